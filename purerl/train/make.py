"""make_train: a config becomes one pure function from a key to a trained agent."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from purerl import warm_start
from purerl.acting.policy import RecurrentPolicy
from purerl.config import ConfigError, TrainConfig, shown
from purerl.hooks import OBSERVED, check_observe
from purerl.keys import shape_of_keys
from purerl.metrics import held
from purerl.networks.observe import as_arrays, completed
from purerl.precision import algorithm_in_32_bits, in_32_bits, recurrence_in_32_bits
from purerl.train.binding import Bound, bind
from purerl.train.segments import make_segment
from purerl.types import Algorithm, Array, Overrides, PyTree, TrainResult

Train = Callable[..., TrainResult]


@in_32_bits
def make_train(
    config: TrainConfig,
    *,
    axis_name: str | None = None,
    observe: Callable[[PyTree], PyTree] | None = None,
    first_update: int | None = None,
) -> Train:
    """Make the whole training run as one pure function.

    Args:
        config: Config, which is checked here, before anything is traced, and never
            changed.
        axis_name: Name of a mapped axis over which one agent's environments are
            spread; None for an agent on one device. See `purerl.data_parallel`.
        observe: Function `(state) -> pytree of arrays`, called at every evaluation;
            `TrainResult.observed` has what it returned.
        first_update: Number of updates that the states have done that `start` gets; it
            must be told where they are traced, and is not compared with them there:
            after a wrong one, as many updates are made as it leaves of the run.

    Returns:
        `train(key, overrides=None, start=None) -> TrainResult`, which `jax.jit`,
        `jax.vmap`, `jax.pmap` and `purerl.pmap` transform. `overrides` maps (dotted)
        names of dynamic fields to values; one that nothing in the run reads changes
        nothing, where `purerl.sweep` refuses such an axis. `start` is the state of an
        agent that goes on with all it has (one of `RunResult.state` too), or networks
        by name (`purerl.networks_of`) with which a run begins; the key is the agent's
        from then on. With the key that trained the state, it goes on as if never
        stopped.

    Raises:
        ConfigError: naming the field, the value, the constraint and the remedy.
    """
    bound = bind(config)
    plan = bound.plan
    if observe is not None:
        made = bound.algorithm(bound.config)
        check_observe(observe, made, len(plan.evaluate_after))
    warm_start.check_first_update(first_update, plan.num_updates)

    @in_32_bits
    def train(
        key: Array, overrides: Overrides | None = None, start: PyTree = None
    ) -> TrainResult:
        check_key(key)
        segment = make_segment(bound, overrides, axis_name, observe)
        if start is None:
            if first_update:
                raise ConfigError(
                    f"first_update is {first_update:,}, and no start is given: give "
                    "train(key, start=state) the state that has done these updates."
                )
            state, first = segment.init(key), 0
        else:
            state, first = warm_start.begin(
                segment.init, key, start, first_update, bound, overrides
            )
        state, metrics, evaluation = segment.advance(
            state, first, plan.num_updates - first
        )
        observed = evaluation.pop(OBSERVED, None)
        return TrainResult(state, held(metrics), evaluation, observed)

    return train


def check_key(key: Any) -> None:
    """Refuse anything but one typed key.

    Raises:
        ConfigError: with what to call instead.
    """
    dtype = getattr(key, "dtype", None)
    if dtype is None or not jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        is_array = dtype is not None and hasattr(key, "shape")
        got = f"{dtype}{list(key.shape)}" if is_array else type(key).__name__
        raise ConfigError(
            f"key must be a typed random key, such as jax.random.key(0), got {got}; "
            "wrap an old one, uint32[2], with jax.random.wrap_key_data."
        )
    if key.shape != ():
        raise ConfigError(
            f"train takes one key, got {key.shape} of them; use jax.vmap(train)(keys) "
            "or purerl.pmap(train, lanes=8)(keys)."
        )


def _check_draw(key: Any) -> None:
    """Refuse anything but one key, typed or old, to draw actions with, or none."""
    if key is not None and shape_of_keys(key) != ():
        raise ConfigError(
            "key of a policy must be one key for all observations, got "
            f"{shown(key)}; for several use jax.vmap(policy)(obs, keys)."
        )


@in_32_bits
def make_algorithm(config: TrainConfig) -> Algorithm:
    """Make the three pure functions of a config: `init(key)`, `step(state)`, `act`.

    Where the environment is stepped on the host, `step` refuses, and `hosted` has the
    update in pieces.

    Raises:
        ConfigError: see `bind`.
    """
    bound = bind(config, on_host=True, trains=False)
    return algorithm_in_32_bits(bound.algorithm(bound.config))


@dataclasses.dataclass(frozen=True, eq=False)  # It is hashed by identity, for jax.jit.
class Policy:
    """A trained agent without a memory, see `make_policy`; it can be pickled.

    Attributes:
        config: Config with which the agent was trained.
        state: State of one agent.
    """

    config: TrainConfig
    state: PyTree
    _act: Callable[..., Array] = dataclasses.field(repr=False)

    def __call__(self, obs: Any, key: Array | None = None) -> Array:
        """Return the action `[...]` for observations; drawn with a key, else best."""
        return self._act(obs, key)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return make_policy, (self.config, self.state)


@in_32_bits
def make_policy(config: TrainConfig, state: PyTree) -> Callable[..., Any]:
    """Make the policy of one trained agent.

    Args:
        config: Config with which the agent was trained.
        state: `TrainResult.state` of one agent.

    Returns:
        `policy(obs, key=None) -> action`, on one observation or a batch; without a
        key the action is deterministic. Parts of an observation that only the critic
        sees (`critic_keys`) may be left out. Where the policy remembers the episode so
        far, a `purerl.acting.policy.RecurrentPolicy`: `memory = policy.init()`, then
        `policy(obs, memory, key=None) -> (action, memory)`. Both can be pickled.

    Raises:
        ConfigError: the state holds several agents, or its networks are not those of
            the config, as of another algorithm, environment or size.
    """
    warm_start.check_agent(state)
    bound = bind(config, on_host=True, trains=False)
    algorithm = bound.algorithm(bound.config)
    check_acts(bound, algorithm, state)
    space = bound.env.observation_space(bound.env.default_params)
    complete = partial(completed, space, keys=getattr(bound.config, "actor_keys", ()))
    recurrence = algorithm.recurrence
    if recurrence is not None:

        def act(
            state: PyTree, obs: Any, memory: PyTree, key: Array | None = None
        ) -> tuple[Array, PyTree]:
            _check_draw(key)
            return recurrence.act(state, complete(obs), memory, key)

        whole = recurrence_in_32_bits(recurrence._replace(act=act))
        return RecurrentPolicy(whole, state, partial(make_policy, config, state))

    @in_32_bits
    def act_alone(obs: Array, key: Array | None = None) -> Array:
        _check_draw(key)
        return algorithm.act(state, complete(as_arrays(obs)), key)

    return Policy(config, state, act_alone)


def check_acts(bound: Bound, algorithm: Algorithm, state: PyTree) -> None:
    """Refuse a state that a config's policy cannot act with.

    Args:
        bound: The config and its environment.
        algorithm: Algorithm of the config.
        state: State of one agent.

    Raises:
        ConfigError: see `warm_start.check_acts`.
    """
    fresh = jax.eval_shape(algorithm.init, jax.random.key(0))
    agent = f"an agent of {type(bound.config).__name__} in {bound.env.name}"
    warm_start.check_acts(state, fresh, agent)

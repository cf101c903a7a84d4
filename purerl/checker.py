"""`check`: does an algorithm keep the contract that the training loop relies on?

Made for authors of algorithms: it runs a few updates of a config and stops at the first
broken rule, with a sentence that names the rule, what was seen and what was expected.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl import serialise
from purerl.acting.environment import bind_params
from purerl.acting.policy import recurrence_of
from purerl.algorithms import entry_of
from purerl.config import TrainConfig
from purerl.envs.checker import RuleError, is_equal, require, said_of, signature
from purerl.learning.optimiser import name_leaves
from purerl.metrics import is_defined
from purerl.precision import in_32_bits
from purerl.train import Bound, bind, make_segment, make_train
from purerl.types import AgentState, Algorithm, Array, Metrics, PyTree

REQUIRED_METRICS = ("env_steps", "episodes", "episode_return", "episode_length")
# Two widths of a program round differently; a few updates do not part the curves.
TOLERANCE = 1e-2
# Dice of two sides all fall alike in one of 2^8 times.
REPEATS = 9


class AlgorithmCheckError(AssertionError):
    """An algorithm breaks a rule of the contract."""


@in_32_bits
def check(
    config: TrainConfig, key: Array | None = None, *, num_updates: int = 3
) -> None:
    """Run a few updates and check every rule that the training loop relies on.

    The rules: the config's numbers may be traced and it survives its dict; the state is
    arrays of fixed shapes and dtypes; the step is traced once; the key stays and the
    counter counts; metrics are finite scalars under the required names; randomness
    comes from the key and the counter, and from nothing else; a part that
    `config.frozen` names does not learn; the policy acts inside the action space, on
    one observation or a batch, and without a key always alike; vmapped agents differ
    from one another, and each is what it is alone.

    Compiles about nine programs of the size of an update. What an algorithm learns is
    not looked at: that is what the probe environments are for (`envs/probe.py`).

    Args:
        config: The smallest sensible one, of a registered algorithm. Where there is a
            warm-up it must end within `num_updates`.
        key: Random key of the agent; a fixed one where not given.
        num_updates: Updates to run.

    Raises:
        AlgorithmCheckError: a rule is broken.
        ConfigError: the config cannot be trained.
    """
    entry_of(config)
    bound = bind(config.replace(num_evaluations=0))
    key = jax.random.key(0) if key is None else key
    num_updates = min(num_updates, bound.plan.num_updates)
    with said_of(type(config).__name__, AlgorithmCheckError):
        _check(bound, key, num_updates)


def _expect(what: str, found: Any, expected: Any, remedy: str = "") -> None:
    """Require that something is as expected; `remedy` ends the sentence."""
    require(found == expected, f"{what} is {found}, expected {expected}{remedy}.")


def _check(bound: Bound, key: Array, num_updates: int) -> None:
    config, other = bound.config, jax.random.fold_in(key, 1)
    _check_config(config)
    algorithm, traces = bound.algorithm(config), []

    @jax.jit
    def step(state: PyTree) -> tuple[PyTree, Metrics]:
        traces.append(1)
        return algorithm.step(state)

    start = _run("init", jax.jit(algorithm.init), key)
    _check_start(start)
    states, metrics = [start], []
    for update in range(num_updates):
        state, metric = _run("step", step, states[-1])
        _check_state(states[-1], state, update)
        _check_metrics(config, metric, (metrics or [metric])[0], update)
        states, metrics = [*states, state], [*metrics, metric]
    _expect("the number of traces of step for equal states", len(traces), 1)
    require(
        int(metrics[-1].get("gradient_steps", 1)) > 0,
        "no gradient step was taken: give a shorter warm-up, or more num_updates.",
    )
    _check_randomness(step, start, states[1], other)
    _check_act(config, bound, algorithm, states[-1])
    _check_frozen(config, states[-2])
    what = "training with every number of the config traced"

    def train(config: TrainConfig, key: Array) -> PyTree:
        return make_train(config)(key)

    _run(what, partial(jax.eval_shape, train), bound.config, key)
    _check_vmap(bound, key, other, metrics)


def _check_config(config: TrainConfig) -> None:
    """Help for every field, our `replace`, its arithmetic, a dict and back."""
    for field in dataclasses.fields(config):
        what = f"the field {field.name!r} has no help: declare it with"
        require(field.metadata.get("help"), f"{what} static(...) or dynamic(...).")
    require(
        type(config).replace is TrainConfig.replace,
        "`replace` is not TrainConfig's: decorate the class with config_dataclass.",
    )
    for name in ("steps_per_update", "sequential_steps"):
        value = getattr(config, name)
        is_count = isinstance(value, int) and value > 0
        require(is_count, f"{name} is {value!r}, expected a positive whole number.")
    if isinstance(config.env, str):
        plain = serialise.to_dict(config)
        again = serialise.to_dict(serialise.from_dict(plain))
        odd = [name for name in plain if plain[name] != again[name]]
        require(not odd, f"the fields {odd} do not survive to_dict and from_dict.")


def _check_start(state: Any) -> None:
    """Check that a state is a NamedTuple of typed arrays with `key` and `update`."""
    require(
        isinstance(state, tuple) and hasattr(state, "_replace"),
        f"init returned a {type(state).__name__}, expected a NamedTuple.",
    )
    fields = list(getattr(state, "_fields", ()))
    for name in ("key", "update"):
        require(name in fields, f"the state has {fields}, expected {name!r} too.")
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        require(
            not getattr(jax.typeof(leaf), "weak_type", False),
            f"state{jax.tree_util.keystr(path)} is weakly typed, which compiles the "
            "step a second time: write jnp.int32(0) or jnp.float32(0), not 0.",
        )
    agent: Any = state
    is_key = jax.dtypes.issubdtype(agent.key.dtype, jax.dtypes.prng_key)
    require(
        is_key and agent.key.shape == (),
        f"state.key is {signature(agent.key)}, expected the key that init was given.",
    )
    is_zero = signature(agent.update) == "int32[]" and int(agent.update) == 0
    require(
        is_zero, f"state.update is {agent.update!r} at the start, expected int32 0."
    )


def _check_state(before: AgentState, after: AgentState, update: int) -> None:
    """Fixed types, the same key, one more update."""
    types = [jax.tree.map(signature, state) for state in (before, after)]
    what = f"step changed the types of the state from {types[0]} to {types[1]}"
    require(types[0] == types[1], f"{what}, expected the same: a scan carries it.")
    what = "step changed state.key: an update's key is purerl.keys.update_key(state)."
    require(is_equal(before.key, after.key), what)
    _expect("state.update after an update", int(after.update), update + 1)


def _check_metrics(
    config: TrainConfig, metrics: Metrics, first: Metrics, update: int
) -> None:
    """Finite scalars, the required names among them, the same in every update."""
    missing = [name for name in REQUIRED_METRICS if name not in metrics]
    names = ", ".join(missing)
    require(not missing, f"metrics have no {names}: see rollout.episode_metrics.")
    require(set(metrics) == set(first), "metrics change their names.")
    for name, value in metrics.items():
        remedy = ": reduce it inside the step"
        _expect(f"the shape of the metric {name!r}", jnp.shape(value), (), remedy)
        is_known = np.isfinite(value) or not is_defined(name, metrics)
        what = f"the metric {name!r} is {float(value)} in update {update}"
        require(is_known, f"{what}, expected a finite number.")
    expected = (update + 1) * config.steps_per_update
    _expect("the metric env_steps", int(metrics["env_steps"]), expected)


def _check_frozen(config: TrainConfig, state: AgentState) -> None:
    """Check that a part that the config freezes stays as it is when others learn."""
    params = getattr(state, "params", None)
    names = [name for name, _ in name_leaves(params)]
    if len(names) < 2:  # There is nothing to freeze, or nothing else.
        return
    frozen = config.replace(frozen=names[:1])
    after, _ = jax.jit(bind(frozen).algorithm(frozen).step)(state)
    stays = is_equal(jax.tree.leaves(params)[0], jax.tree.leaves(after.params)[0])
    remedy = "make the optimiser with frozen=frozen_in(config.frozen)"
    require(stays, f"{names[0]} moved though the config's frozen names it: {remedy}.")


def _check_randomness(
    step: Callable, start: AgentState, after: AgentState, other: Array
) -> None:
    """Check that an update is a function of state, key and counter."""

    def again(**changes: Any) -> AgentState:
        state, _ = step(start._replace(**changes))
        return state._replace(key=after.key, update=after.update)

    require(is_equal(again(), after), "the same state gave two different updates.")
    changes = {"another key": {"key": other}}
    changes["another number of the update"] = {"update": jnp.int32(1)}
    for what, change in changes.items():
        remedy = "draw from purerl.keys.update_key(state)"
        is_other = not is_equal(again(**change), after)
        require(is_other, f"{what} gave the same update, expected another: {remedy}.")


def _check_act(
    config: TrainConfig, bound: Bound, algorithm: Algorithm, state: PyTree
) -> None:
    """Check that `act` stays in the action space, and needs a key to be random."""
    recurrence = recurrence_of(algorithm)
    params = bind_params(bound.env, config.env_params)
    space = bound.env.action_space(params)
    keys = jax.random.split(jax.random.key(0), 3)
    batch, _ = jax.vmap(bound.env.reset, (0, None))(keys, params)

    def act(obs: Any, shape: tuple[int, ...], key: Array | None = None) -> Array:
        memory = recurrence.init(shape)
        return _run("act", recurrence.act, state, obs, memory, key)[0]

    actions = act(batch, (3,))
    one = jax.tree.map(lambda x: x[0], batch)
    first, *again = (act(one, ()) for _ in range(REPEATS))
    member = space.sample(keys[0])  # of several parts it is a pytree
    what = "the shape of three actions"
    _expect(what, _shapes(actions), _shapes(member, (3,)))
    same = [
        is_equal(act(batch, (3,)), actions),
        *(is_equal(a, first) for a in again),
    ]
    require(all(same), "act without a key gave two different actions.")
    drawn = [act(one, (), key) for key in keys]
    rows = [jax.tree.map(lambda x, i=i: x[i], actions) for i in range(3)]
    for action in (*rows, first, *drawn):
        is_in = _shapes(action) == _shapes(member) and bool(space.contains(action))
        require(is_in, f"act returned {action}, which is not in {space}.")


def _shapes(tree: PyTree, leading: tuple[int, ...] = ()) -> PyTree:
    """The pytree of the shapes of its arrays, behind leading axes."""
    return jax.tree.map(lambda x: (*leading, *jnp.shape(x)), tree)


def _check_vmap(bound: Bound, key: Array, other: Array, alone: list[Metrics]) -> None:
    """Check that two vmapped agents differ, and that the first equals the one alone."""
    segment = make_segment(bound)

    def train(key: Array) -> tuple[PyTree, Metrics]:
        return segment.advance(segment.init(key), 0, len(alone))[:2]

    keys = jnp.stack([key, other])
    state, metrics = _run("vmap", jax.jit(jax.vmap(train)), keys)
    lanes = [jax.tree.map(lambda x, i=i: x[i], state) for i in range(2)]
    require(
        not is_equal(lanes[0]._replace(key=key), lanes[1]._replace(key=key)),
        "two vmapped agents with different keys are equal, expected different ones: "
        "draw from init_key(key) and update_key(state), not from a key of your own.",
    )
    for name, values in metrics.items():
        single = np.array([float(metric[name]) for metric in alone])
        lane = np.asarray(values[0], float)
        require(
            np.allclose(lane, single, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True),
            f"the metric {name!r} of an agent is {lane} over the first updates in a "
            f"vmap and {single} alone, expected the same to rounding.",
        )


def _run(what: str, fn: Callable[..., Any], *args: Any) -> Any:
    try:
        return fn(*args)
    except (TypeError, jax.errors.JAXIndexError) as error:
        reason = (str(error).splitlines() or [repr(error)])[0]
        raise RuleError(
            f"{what} cannot be traced ({reason}): expected pure JAX, arrays in the "
            "state, no Python decision on a dynamic field."
        ) from error

"""What actor-critics with a replay buffer share: fields, state, the critics' step.

TD3 and SAC differ in what the critics are fitted to and how the policy climbs them.
Parameters stay layers inside the loop, not one flat vector as in `dqn`: layers of 256
units fill a kernel each, and taking them out of a vector would copy them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl import networks
from purerl.acting import rollout
from purerl.algorithms import off_policy
from purerl.algorithms.off_policy import (
    Batch,
    Experience,
    Item,
    OffPolicyConfig,
    OffPolicyHooks,
)
from purerl.config import (
    FRACTION,
    POSITIVE,
    ConfigError,
    config_dataclass,
    dynamic,
    one_of,
    static,
)
from purerl.keys import update_key
from purerl.learning import optimiser
from purerl.learning.collectives import pmean
from purerl.losses import SquaredError
from purerl.losses.check import check_loss
from purerl.types import Array, Metrics, PyTree


@config_dataclass
class ActorCriticConfig(OffPolicyConfig):
    """Fields of actor-critics with a replay buffer."""

    env: Any = static("Pendulum-v1", "Environment id, or an environment object.")
    buffer_size: int = static(
        1_000_000, "Transitions that are kept; of a shorter run, its steps.", POSITIVE
    )
    learning_rate: float = dynamic(3e-4, "Step size of Adam.", POSITIVE)
    tau: float = dynamic(
        0.005, "Share of the online networks in an update of the targets.", FRACTION
    )
    value_loss: Any = dynamic(SquaredError(), "Loss of the TD error.")
    adam_eps: float = dynamic(1e-8, "Adam's epsilon.", POSITIVE)
    hidden_sizes: tuple[int, ...] = static((256, 256), "Units of each hidden layer.")
    critic_hidden_sizes: tuple[int, ...] = static(
        (), "Those of the critics; none takes hidden_sizes."
    )
    activation: str = static(
        "relu", "After each hidden layer.", one_of(*networks.ACTIVATIONS)
    )
    layer_norm: bool = static(False, "Normalise before each activation.")


class ActorCriticState(NamedTuple):
    """Everything that training carries, arrays only.

    Attributes:
        params: Parameters of `actor` and `critics`, and whatever else is learned, by
            name.
        target_params: Parameters of the networks that have targets, by name.
        opt_state: State of the optimiser of each of `params`.
        buffer: `batches.Item` with leaves `[C / B, B, ...]`, a column for every
            environment; continuous actions in [-1, 1].
        envs: The environments between two steps.
        key: Random key of the agent, which never changes; every update's key is folded
            from it.
        update: `[]` int32, number of updates done.
    """

    params: dict[str, PyTree]
    target_params: dict[str, PyTree]
    opt_state: dict[str, PyTree]
    buffer: Item
    envs: rollout.EnvCarry
    key: Array
    update: Array


class Learner(NamedTuple):
    """What a gradient step changes, named as in the state."""

    params: dict[str, PyTree]
    target_params: dict[str, PyTree]
    opt_state: dict[str, PyTree]


def validate(config: ActorCriticConfig) -> None:
    """Check the shared fields by themselves.

    Raises:
        ConfigError: naming the field, the value, the constraint and the remedy.
    """
    off_policy.validate(config)
    check_loss("value_loss", config.value_loss, 3, "SquaredError()")
    for name in ("hidden_sizes", "critic_hidden_sizes"):
        sizes = getattr(config, name)
        if not all(type(n) is int and n > 0 for n in sizes):
            raise ConfigError(
                f"{name} must be positive whole numbers, got {sizes!r}; for example "
                "(256, 256)."
            )


def init(
    hooks: OffPolicyHooks,
    params: dict[str, PyTree],
    targets: tuple[str, ...],
    key: Array,
    key_env: Array,
) -> ActorCriticState:
    """Make a state of the given networks, copies as targets, and an empty buffer.

    Args:
        hooks: What the algorithm brings to the off-policy loop.
        params: Fresh parameters by name.
        targets: Names of the parameters that have a target network.
        key: Random key, which is kept in the state.
        key_env: Random key, consumed.
    """
    adam = _optimiser(hooks.config)
    experience = off_policy.init(hooks, key_env)
    return ActorCriticState(
        params=params,
        target_params={name: params[name] for name in targets},
        opt_state={name: adam.init(params[name]) for name in params},
        buffer=experience.buffer,
        envs=experience.envs,
        key=key,
        update=jnp.int32(0),
    )


def step(
    hooks: OffPolicyHooks, state: ActorCriticState
) -> tuple[ActorCriticState, Metrics]:
    """Make one update: rounds of acting, remembering, learning."""
    learner, experience, metrics = off_policy.run(
        hooks,
        Learner(state.params, state.target_params, state.opt_state),
        Experience(state.buffer, (), state.envs),
        update_key(state),
        state.update,
    )
    new = ActorCriticState(
        params=learner.params,
        target_params=learner.target_params,
        opt_state=learner.opt_state,
        buffer=experience.buffer,
        envs=experience.envs,
        key=state.key,
        update=state.update + 1,
    )
    return new, metrics


def fit_critics(
    config: ActorCriticConfig,
    axis_name: str | None,
    values: Callable[[PyTree], tuple[Array, Array]],
    learner: Learner,
    batch: Batch,
    target: Array,
) -> tuple[Learner, Array, Metrics]:
    """Move both critics towards the target, by the sum of their losses.

    Args:
        config: The numbers.
        axis_name: Mapped axis over which environments are spread, if any.
        values: Function from the critics' parameters to their values of the batch,
            `[N]` each.
        learner: Learner before the step.
        batch: Batch that the values are of; it gives the samples' weights.
        target: `[N]`.

    Returns:
        The learner after the step, the first critic's TD errors `[N]`, and losses.
    """

    def loss(params: PyTree) -> tuple[Array, tuple[Array, Metrics]]:
        first, second = values(params)
        errors = config.value_loss(first, target, first)
        errors = errors + config.value_loss(second, target, second)
        total = (batch.weight * errors).mean()
        return total, (target - first, {"value_loss": total, "q_value": first.mean()})

    minimise = jax.grad(loss, has_aux=True)
    grads, (td_error, metrics) = minimise(learner.params["critics"])
    grads, metrics = pmean((grads, metrics), axis_name)
    learner = descend(config, learner, {"critics": grads})
    metrics["grad_norm"] = optimiser.grad_norm(learner.opt_state["critics"])
    return learner, td_error, metrics


def descend(
    config: ActorCriticConfig, learner: Learner, grads: dict[str, PyTree]
) -> Learner:
    """Take one step of Adam on the parameters that `grads` names.

    Args:
        config: Step size, clipping and epsilon of the optimiser.
        learner: Learner before the step.
        grads: Gradients by the name of the parameters.
    """
    params, opt_state = dict(learner.params), dict(learner.opt_state)
    adam = _optimiser(config)
    for name, gradient in grads.items():
        updates, opt_state[name] = adam.update(gradient, opt_state[name], params[name])
        params[name] = optax.apply_updates(params[name], updates)
    return learner._replace(params=params, opt_state=opt_state)


def _optimiser(config: Any) -> optax.GradientTransformation:
    """Adam without clipping."""
    return optimiser.adam(config.learning_rate, eps=config.adam_eps)

"""The common part of actor-critics with a replay buffer: fields, state, optimisers.

TD3 and SAC differ in what the critics are fitted to and how the policy maximises them.
Parameters stay layers inside the loop, not one flat vector as in `dqn`: layers of 256
units fill a kernel each, and taking them out of a vector would copy them.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl import networks
from purerl.acting import rollout
from purerl.algorithms import network_config, off_policy, off_policy_pieces
from purerl.algorithms.off_policy import (
    Experience,
    Item,
    OffPolicyConfig,
    OffPolicyHooks,
)
from purerl.algorithms.off_policy_pieces import Split
from purerl.config import (
    FRACTION,
    POSITIVE,
    POSITIVE_OR_NONE,
    SIZES,
    config_dataclass,
    dynamic,
    one_of,
    static,
)
from purerl.learning import optimiser
from purerl.learning.parts import frozen_in
from purerl.losses import SquaredError
from purerl.losses.check import check_value_loss
from purerl.networks import layers
from purerl.optimisers import Adam
from purerl.optimisers.check import check_optimisers
from purerl.types import Array, Hosted, Metrics, PyTree

# From the name of some parameters to the prefix of their fields in a config.
_PREFIXES = {
    "actor": "actor",
    "critics": "critic",
    "log_temperature": "temperature",
    "duals": "dual",
}


@config_dataclass
class ActorCriticConfig(OffPolicyConfig):
    """Fields of actor-critics with a replay buffer."""

    env: Any = static("Pendulum-v1", "Environment id, or an environment object.")
    buffer_size: int = static(
        1_000_000, "Transitions that are kept; of a shorter run, its steps.", POSITIVE
    )
    learning_rate: float = dynamic(3e-4, "Step size of the networks.", POSITIVE)
    actor_learning_rate: float | None = dynamic(
        None, "Step size of the policy; None takes learning_rate.", POSITIVE_OR_NONE
    )
    critic_learning_rate: float | None = dynamic(
        None, "Step size of the critics; None takes learning_rate.", POSITIVE_OR_NONE
    )
    tau: float = dynamic(
        0.005, "Share of the online networks in an update of the targets.", FRACTION
    )
    value_loss: Any = dynamic(SquaredError(), "Loss of the TD error.")
    optimiser: Any = dynamic(Adam(), "Optimiser of the networks.")
    actor_optimiser: Any = dynamic(
        None, "Optimiser of the policy; None takes optimiser."
    )
    critic_optimiser: Any = dynamic(
        None, "Optimiser of the critics; None takes optimiser."
    )
    hidden_sizes: tuple[int, ...] = static(
        (256, 256), "Units of each hidden layer.", SIZES
    )
    critic_hidden_sizes: tuple[int, ...] = static(
        (),
        "Units of each hidden layer of the critics; () takes hidden_sizes.",
        SIZES,
    )
    activation: str = static(
        "relu",
        "Activation function after each hidden layer.",
        one_of(*networks.ACTIVATIONS),
    )
    actor: Any = network_config.actor_field()
    actor_gain: float = network_config.actor_gain_field()
    actor_keys: tuple[str, ...] = network_config.keys_field("actor")
    critic_keys: tuple[str, ...] = network_config.keys_field("critic")


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
        priorities: `batches.Kept` of the items, where replay is prioritised.
        obs_moments: Statistics of observations, where they are normalised.
    """

    params: dict[str, PyTree]
    target_params: dict[str, PyTree]
    opt_state: dict[str, PyTree]
    buffer: Item
    envs: rollout.EnvCarry
    key: Array
    update: Array
    priorities: PyTree = ()
    obs_moments: PyTree = ()


class Learner(NamedTuple):
    """The part of the state that a gradient step changes, named as in the state."""

    params: dict[str, PyTree]
    target_params: dict[str, PyTree]
    opt_state: dict[str, PyTree]


def validate(config: ActorCriticConfig) -> None:
    """Check the shared fields by themselves.

    Raises:
        ConfigError: naming the field, the value, the constraint and the remedy.
    """
    off_policy.validate(config)
    check_value_loss(config.value_loss)
    check_optimisers(config)


def init(
    hooks: OffPolicyHooks,
    params: dict[str, PyTree],
    targets: tuple[str, ...],
    key: Array,
    key_env: Array,
) -> ActorCriticState:
    """Make a state of the given networks, copies as targets, and an empty buffer.

    Args:
        hooks: Functions and numbers that the algorithm gives to the off-policy loop.
        params: Fresh parameters by name.
        targets: Names of the parameters that have a target network.
        key: Random key, which is kept in the state.
        key_env: Random key, consumed.
    """
    experience = off_policy.init(hooks, key_env)
    return ActorCriticState(
        params=params,
        target_params={name: params[name] for name in targets},
        opt_state={
            name: optimiser_of(hooks.config, name).init(params[name]) for name in params
        },
        buffer=experience.buffer,
        envs=experience.envs,
        key=key,
        update=jnp.int32(0),
        priorities=experience.priorities,
        obs_moments=experience.obs_moments,
    )


def step(
    hooks: OffPolicyHooks, state: ActorCriticState
) -> tuple[ActorCriticState, Metrics]:
    """Make one update: rounds of acting, storing and learning."""
    return off_policy_pieces.step(split(hooks, state), state)


def split(hooks: OffPolicyHooks, state: ActorCriticState) -> Split:
    """Return what an update of a state is made of."""

    def join(learner: Learner, experience: Experience) -> ActorCriticState:
        return ActorCriticState(
            params=learner.params,
            target_params=learner.target_params,
            opt_state=learner.opt_state,
            buffer=experience.buffer,
            envs=experience.envs,
            key=state.key,
            update=state.update + 1,
            priorities=experience.priorities,
            obs_moments=experience.obs_moments,
        )

    learner = Learner(state.params, state.target_params, state.opt_state)
    experience = off_policy.experience_of(state)
    return Split(hooks, learner, experience, join)


def hosted(hooks: OffPolicyHooks, update: Array) -> Hosted:
    """Return an update in pieces, for environments on the host.

    Args:
        hooks: Functions and numbers that the algorithm gives to the off-policy loop.
        update: `[]` int32, number of updates done.
    """
    return off_policy_pieces.of_rounds(hooks.config, partial(split, hooks), update)


def descend(
    config: ActorCriticConfig, learner: Learner, grads: dict[str, PyTree]
) -> Learner:
    """Take one step on the parameters that `grads` names, each by its own optimiser.

    Args:
        config: Optimisers and their step sizes.
        learner: Learner before the step.
        grads: Gradients by the name of the parameters.
    """
    params, opt_state = dict(learner.params), dict(learner.opt_state)
    for name, gradient in grads.items():
        updates, opt_state[name] = optimiser_of(config, name).update(
            gradient, opt_state[name], params[name]
        )
        params[name] = optax.apply_updates(params[name], updates)
    return learner._replace(params=params, opt_state=opt_state)


def put_statistics(
    config: ActorCriticConfig, learner: Learner, name: str, statistics: PyTree
) -> Learner:
    """Return the learner with new running statistics of batch normalisation.

    The statistics of frozen parts stay what they were.

    Args:
        config: Config of the agent; it names the frozen parts.
        learner: Learner after its step.
        name: Name of the parameters.
        statistics: See `layers.forward`; empty where there are none.
    """
    if not statistics:
        return learner
    old = learner.params[name]
    new = layers.put_statistics(old, statistics)
    is_frozen = frozen_in(config.frozen, name)
    if is_frozen is not None:
        new = jax.tree.map(lambda f, o, n: o if f else n, is_frozen(old), old, new)
    return learner._replace(params={**learner.params, name: new})


def optimiser_of(config: Any, name: str) -> optax.GradientTransformation:
    """Return the optimiser of some parameters, with their step size.

    It clips where the config has `max_grad_norm`. Fields that the config lacks, or that
    are None there, are those of all networks.

    Args:
        config: Config of the agent; its leaves may be traced.
        name: Name of the parameters.
    """
    prefix = _PREFIXES[name]
    chosen = getattr(config, f"{prefix}_optimiser", None)
    rate = getattr(config, f"{prefix}_learning_rate", None)
    chosen = config.optimiser if chosen is None else chosen
    still = config.frozen
    if getattr(config, "crossq", False):
        still = (*still, *layers.STATISTICS)
    return optimiser.make(
        chosen if name == "actor" else optimiser.without_noise(chosen),
        config.learning_rate if rate is None else rate,
        getattr(config, "max_grad_norm", None),
        frozen=frozen_in(still, name),
        # Where nothing is ever clipped, only the critics' norm is reported.
        measured=name == "critics" or hasattr(config, "max_grad_norm"),
    )

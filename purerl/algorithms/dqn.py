"""Deep Q-learning (Mnih et al. 2015) and the extensions that pay.

A network estimates the value of every discrete action. Acting is epsilon-greedy, and
each gradient step minimises, on a batch from the replay buffer,

    L = E[w loss(Q(s, a), y)],    y = r + gamma^n (1 - terminated) Q'(s', a*)

with the target network `Q'` and `a* = argmax_a Q'(s', a)`, or, with `double`, the
online network's choice `argmax_a Q(s', a)` (van Hasselt et al. 2016). `dueling` splits
the network into value and advantages (Wang et al. 2016); `n_step` sums n rewards
before bootstrapping; `prioritised` samples in proportion to the last TD error and
weighs the loss by `w` (Schaul et al. 2016). `r` and `s'` end with their episode, and a
time limit bootstraps: see `off_policy.Batch`.

Defaults are those of CleanRL's `dqn.py` for CartPole-v1 (Huang et al. 2022): a buffer
of 10,000, batches of 128, a gradient step every 10 environment steps and a new target
every 50 gradient steps, layers of 120 and 84 units, epsilon from 1 to 0.05 over half of
the run. Not as there: the double estimator; one step of ten environments between
gradient steps, in place of ten of one; learning begins after 1,000 steps (there
10,000); gradients are clipped at a norm of 10 (there not at all) and are those of half
the squared error (Adam does not notice the half, the clipping does); layers start
orthogonal.
"""

from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from purerl import auto, networks
from purerl.acting import exploration, observe, rollout
from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape
from purerl.algorithms import network_config, off_policy, off_policy_pieces
from purerl.algorithms.checks import (
    check_action_value_network,
    instead_of_values,
    needed_for_values,
)
from purerl.algorithms.off_policy import Batch, Experience, OffPolicyConfig
from purerl.algorithms.off_policy_pieces import Split
from purerl.config import (
    AUTO,
    FRACTION,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_OR_NONE,
    ConfigError,
    config_dataclass,
    dynamic,
    one_of,
    static,
)
from purerl.keys import init_keys
from purerl.learning import optimiser
from purerl.learning.collectives import pmean
from purerl.learning.parts import frozen_in
from purerl.losses import SquaredError
from purerl.losses.check import check_loss
from purerl.networks import composite
from purerl.optimisers import Adam
from purerl.optimisers.check import check_optimisers
from purerl.optimisers.older import take_epsilon
from purerl.types import Algorithm, Array, Hosted, Metrics, PyTree


@config_dataclass
class DQNConfig(OffPolicyConfig):
    """Deep Q-learning."""

    num_envs: int = static(
        10, "Environments that one agent steps in parallel.", POSITIVE
    )
    buffer_size: int = static(
        10_000,
        "Transitions that are kept, in whole steps of all environments.",
        POSITIVE,
    )
    batch_size: int = static(128, "Transitions of one gradient step.", POSITIVE)
    epsilon_schedule: str = static(
        "linear", "How exploration decays.", one_of(*exploration.SCHEDULES)
    )
    epsilon_start: float = dynamic(1.0, "Share of random actions at first.", FRACTION)
    epsilon_end: float = dynamic(0.05, "Share that it decays to.", FRACTION)
    epsilon_fraction: float = dynamic(
        0.5,
        "Share of the run over which exploration decays.",
        exploration.SHARE,
        moves=False,
    )
    epsilon_steps: float = dynamic(
        AUTO,
        "Environment steps of the linear decay, or that halve the inverse-time one; "
        "auto takes epsilon_fraction of total_timesteps.",
        POSITIVE,
        moves=False,
    )
    target_update_interval: int = static(
        50, "Gradient steps between updates of the target network.", POSITIVE
    )
    tau: float = dynamic(
        1.0, "Share of the online network in an update of the target one.", FRACTION
    )
    value_loss: Any = dynamic(SquaredError(), "Loss of the TD error.")
    max_grad_norm: float = dynamic(10.0, "Largest global gradient norm.", POSITIVE)
    optimiser: Any = dynamic(Adam(), "Optimiser of the network.")
    adam_eps: float | None = dynamic(
        None, "Older name of optimiser.eps, where it is put.", POSITIVE_OR_NONE
    )
    anneal_learning_rate: bool = static(False, "Decay the step size linearly to 0.")
    double: bool = static(True, "The online network chooses the target's action.")
    dueling: bool = static(
        False,
        "Split the network into value and advantages, each with one more hidden layer, "
        "as wide as the torso's last.",
    )
    prioritised: bool = static(False, "Sample in proportion to the TD error.")
    priority_exponent: float = dynamic(0.6, "Power of the TD error.", NON_NEGATIVE)
    importance_exponent: float = dynamic(
        0.4, "Power of the importance weights at first; it grows to 1.", FRACTION
    )
    hidden_sizes: tuple[int, ...] = static((120, 84), "Units of each hidden layer.")
    activation: str = static(
        "relu", "After each hidden layer.", one_of(*networks.ACTIVATIONS)
    )

    def __post_init__(self) -> None:
        take_epsilon(self, "adam_eps")
        super().__post_init__()

    def automatic(self, env: Environment) -> dict[str, Any]:
        """Return the decay's length in environment steps."""
        del env
        return exploration.automatic(self)


class Parts(NamedTuple):
    """What is bound once, in Python: structure, and the config's numbers."""

    config: DQNConfig
    stepper: rollout.Stepper
    obs_space: Any
    num_actions: int
    network: nn.Module


class DQNState(NamedTuple):
    """Everything that training carries, arrays only.

    Attributes:
        params: Parameters of the online network.
        target_params: Parameters of the target network.
        opt_state: State of the optimiser.
        buffer: `off_policy.Item` with leaves `[C / B, B, ...]`, a column for every
            environment.
        priorities: `batches.Kept` of the items, where replay is prioritised.
        envs: The environments between two steps.
        key: Random key of the agent, which never changes; every update's key is folded
            from it.
        update: `[]` int32, number of updates done.
        obs_moments: Statistics of observations, where they are normalised.
    """

    params: PyTree
    target_params: PyTree
    opt_state: PyTree
    buffer: off_policy.Item
    priorities: PyTree
    envs: rollout.EnvCarry
    key: Array
    update: Array
    obs_moments: PyTree = ()


class Learner(NamedTuple):
    """What a gradient step changes; networks as flat vectors `[P]`."""

    params: Array
    target_params: Array
    opt_state: PyTree


def validate(config: DQNConfig, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    off_policy.validate(config)
    exploration.check_share(config)
    check_loss("value_loss", config.value_loss, 3, "SquaredError()")
    check_optimisers(config)
    space: Any = env.action_space(env.default_params)
    if not hasattr(space, "n"):
        raise ConfigError(
            f"DQNConfig needs {needed_for_values(space)}, got {space} of "
            f"{env.name}; use {instead_of_values(space)}."
        )
    check_action_value_network(config, env, int(space.n))
    if config.dueling and network_config.own(config, "critic") is not None:
        raise ConfigError(
            "dueling must be False where critic is a whole network of your own, got "
            f"True and {network_config.described(config, 'critic')}; split the values "
            "in the module, or give the layers before the split as torso."
        )


def make(
    config: DQNConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Build DQN for a config and an environment; see `build`.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread, if any.
    """
    parts = build(config, env, axis_name)
    return Algorithm(
        partial(init, parts),
        partial(step, parts),
        partial(act, parts),
        hosted=partial(hosted, parts),
    )


def build(config: DQNConfig, env: Environment, axis_name: str | None = None) -> Parts:
    """Build network and environment of a config: what the functions below work with.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread.
    """
    config = auto.resolve(config, env)
    stepper = rollout.make_stepper(config, env, axis_name)
    obs_space = env.observation_space(stepper.params)
    action_space: Any = env.action_space(stepper.params)
    num_actions = int(action_space.n)
    network = make_network(config, obs_shape(obs_space), num_actions)
    return Parts(config, stepper, obs_space, num_actions, network)


def make_network(config: DQNConfig, shape: Any, num_actions: int) -> nn.Module:
    """Make the network from observations to action values.

    Args:
        config: Config of the agent.
        shape: Shape of the features of one observation.
        num_actions: Number of actions.
    """
    network = network_config.whole(config, "critic", shape)
    if network is None:
        network = _discrete_critic(config, shape, num_actions)
    return networks.Masked(network) if composite.has_mask(shape) else network


def _discrete_critic(config: DQNConfig, shape: Any, num_actions: int) -> nn.Module:
    """The config's torso and a value per action, with the dueling split or without."""

    def make_stream() -> nn.Module:
        sizes = (network_config.stream_size(config),)
        product = networks.small_product
        return network_config.dense_layers(config, sizes, dot_general=product)

    return networks.DiscreteCritic(
        network_config.torso_of(
            config, shape, "critic", dot_general=networks.small_product
        ),
        num_actions,
        make_stream if config.dueling else None,
        networks.small_product,
        config.critic_gain,
        composite.has_mask(shape),
    )


def init(parts: Parts, key: Array) -> DQNState:
    """Make a fresh network, its copy as the target, an empty buffer."""
    keys = init_keys(key, 3)
    example = observe.example(parts.obs_space)
    params = networks.init_params(keys[:2], {"q": (parts.network, [example])})["q"]
    flat, restore = optimiser.flatten(params)
    experience = off_policy.init(make_hooks(parts, restore), keys[2])
    return DQNState(
        params=params,
        target_params=params,
        opt_state=_optimiser(parts, restore).init(flat),
        buffer=experience.buffer,
        priorities=experience.priorities,
        envs=experience.envs,
        key=key,
        update=jnp.int32(0),
        obs_moments=experience.obs_moments,
    )


def step(parts: Parts, state: DQNState) -> tuple[DQNState, Metrics]:
    """Make one update: rounds of acting, remembering, learning."""
    return off_policy_pieces.step(split(parts, state), state)


def split(parts: Parts, state: DQNState) -> Split:
    """Return what an update of a state is made of."""
    params, restore = optimiser.flatten(state.params)
    target_params, _ = optimiser.flatten(state.target_params)

    def join(learner: Learner, experience: Experience) -> DQNState:
        return DQNState(
            params=restore(learner.params),
            target_params=restore(learner.target_params),
            opt_state=learner.opt_state,
            buffer=experience.buffer,
            priorities=experience.priorities,
            envs=experience.envs,
            key=state.key,
            update=state.update + 1,
            obs_moments=experience.obs_moments,
        )

    learner = Learner(params, target_params, state.opt_state)
    experience = off_policy.experience_of(state)
    return Split(make_hooks(parts, restore), learner, experience, join)


def hosted(parts: Parts, update: Array) -> Hosted:
    """Return an update in pieces, for environments on the host.

    Args:
        parts: Networks, environments and config; see `build`.
        update: `[]` int32, number of updates done.
    """
    return off_policy_pieces.of_rounds(parts.config, partial(split, parts), update)


def act(parts: Parts, state: DQNState, obs: Array, key: Array | None = None) -> Array:
    """Return the greedy action, or with a key the epsilon-greedy one at `epsilon_end`.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State of one agent.
        obs: `[..., *obs_shape]` observations as the environment gives them.
        key: Random key, consumed; without one the action is the deterministic one.
    """
    features = off_policy.features_of(
        parts.config, parts.obs_space, state.obs_moments, obs
    )
    q: Any = parts.network.apply(state.params, features)
    if key is None:
        return jnp.argmax(q, -1).astype(jnp.int32)
    choices = exploration.choices_of(obs_shape(parts.obs_space), parts.num_actions)
    coin = exploration.draw_coin(key, q.shape[:-1], num_actions=choices)
    return exploration.epsilon_greedy(q, coin, parts.config.epsilon_end, features)


def make_hooks(parts: Parts, restore: Any) -> off_policy.OffPolicyHooks:
    """Make DQN's part of the off-policy loop.

    Args:
        parts: Networks, environments and config; see `build`.
        restore: Function from a flat vector to the network's parameters.
    """
    config = parts.config
    shape = obs_shape(parts.obs_space)
    choices = exploration.choices_of(shape, parts.num_actions)

    def explore(learner: Learner, features: Any, noise: Any, step: Array) -> Array:
        epsilon = exploration.epsilon_at(
            config.epsilon_schedule,
            step,
            start=config.epsilon_start,
            end=config.epsilon_end,
            steps=config.epsilon_steps,
        )
        q: Any = parts.network.apply(restore(learner.params), features)
        return exploration.epsilon_greedy(q, noise, epsilon, features)

    return off_policy.OffPolicyHooks(
        config=config,
        stepper=parts.stepper,
        obs_space=parts.obs_space,
        replay=off_policy.replay_of(config, parts.stepper.axis_name),
        draw_action=partial(exploration.draw_coin, num_actions=choices),
        explore=explore,
        random_action=partial(exploration.draw_action, num_actions=choices),
        to_env=lambda action: action,
        draw_learning=lambda key, shape: (),  # Nothing random is needed.
        learn=partial(learn, parts, restore),
    )


def learn(
    parts: Parts, restore: Any, learner: Learner, batch: Batch, noise: Any, count: Array
) -> tuple[Learner, Array, Metrics]:
    """Take one gradient step, and update the target network where that is due.

    Args:
        parts: Networks, environments and config; see `build`.
        restore: Function from a flat vector to the network's parameters.
        learner: Learner before the step.
        batch: Batch from the replay buffer.
        noise: Nothing random is needed; it is not used.
        count: `[]` uint32, number of gradient steps before this one.
    """
    del noise
    config, axis = parts.config, parts.stepper.axis_name
    target = td_target(parts, restore, learner, batch)
    minimise = jax.grad(partial(loss, parts, restore), has_aux=True)
    grads, (td_error, metrics) = minimise(learner.params, batch, target)
    grads, metrics = pmean((grads, metrics), axis)
    updates, opt_state = _optimiser(parts, restore, count).update(
        grads, learner.opt_state, learner.params
    )
    params: Any = optax.apply_updates(learner.params, updates)
    metrics["grad_norm"] = optimiser.grad_norm(opt_state)
    due = (count + 1) % config.target_update_interval == 0
    target_params = optimiser.polyak(
        learner.target_params, params, jnp.where(due, config.tau, 0.0)
    )
    return Learner(params, target_params, opt_state), td_error, metrics


def td_target(parts: Parts, restore: Any, learner: Learner, batch: Batch) -> Array:
    """Return `y = r + discount * Q'(s', a*)`, `[N]`.

    Args:
        parts: Networks, environments and config; see `build`.
        restore: Function from a flat vector to the network's parameters.
        learner: Online and target network, as flat vectors.
        batch: Batch from the replay buffer.
    """
    network = parts.network
    q_next: Any = network.apply(restore(learner.target_params), batch.next_obs)
    if parts.config.double:
        chooser: Any = network.apply(restore(learner.params), batch.next_obs)
        best = jnp.argmax(chooser, -1)
        value = jnp.take_along_axis(q_next, best[:, None], -1)[:, 0]
    else:
        value = q_next.max(-1)
    return batch.reward + batch.discount * value


def loss(
    parts: Parts, restore: Any, params: Array, batch: Batch, target: Array
) -> tuple[Array, tuple[Array, Metrics]]:
    """Return the scalar loss of a batch, its TD errors `[N]` and metrics.

    Args:
        parts: Networks, environments and config; see `build`.
        restore: Function from a flat vector to the network's parameters.
        params: Parameters of the online network, as a flat vector.
        batch: Batch from the replay buffer.
        target: `[N]` targets.
    """
    q: Any = parts.network.apply(restore(params), batch.obs)
    value = jnp.take_along_axis(q, batch.action[:, None], -1)[:, 0]
    error = parts.config.value_loss(value, target, value)
    total = (batch.weight * error).mean()
    metrics = {"value_loss": total, "q_value": value.mean()}
    return total, (target - value, metrics)


def _optimiser(
    parts: Parts, restore: Any, count: Array | int = 0
) -> optax.GradientTransformation:
    """The optimiser of the flat vector, at the step size of gradient step `count`."""
    config = parts.config
    rate: Any = config.learning_rate
    if config.anneal_learning_rate:
        rate = optimiser.annealed(rate, jnp.asarray(count), config.total_gradient_steps)
    return optimiser.make(
        config.optimiser,
        rate,
        config.max_grad_norm,
        restore,
        frozen_in(config.frozen),
    )

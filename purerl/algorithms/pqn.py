"""Parallel Q-learning (PQN; Gallici et al. 2024, arXiv:2407.04811).

Q-learning without a replay buffer and without a target network. Every update collects
`T` steps in `B` environments with the epsilon-greedy policy, computes lambda-returns
with the network as it then is,

    G_t = r_t + gamma ((1 - lambda) max_a Q(s_{t+1}, a) + lambda G_{t+1}),

and takes several epochs of minibatch steps on `E[loss(Q(s_t, a_t), G_t)]`, the targets
held fixed. The environments' number decorrelates the samples, as a replay buffer does
elsewhere, and layer normalisation keeps the bootstrapped values bounded, as a target
network does (the paper's theorem 2). An episode that ended cuts the trace, and one that
was truncated bootstraps: see `returns.q_lambda`.

Defaults are those of the authors' code for CartPole-v1, for a run of 500,000 steps: 32
environments, 64 steps, 4 epochs of 16 minibatches, RAdam with linear decay, global norm
10, lambda 0.95, epsilon from 1 to 0.2 over the first fifth of the run. Theirs scales
rewards by 0.1, with a step size of 1e-4 and layers of 256 units. Here rewards are as
they are, so that the values to be learned are ten times as large, and the step size is
1e-3; 128 units were enough.
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
from purerl.acting.observe import obs_shape, to_features
from purerl.algorithms import exploration_config, network_config, pieces
from purerl.algorithms.checks import check_action_values, check_minibatches
from purerl.algorithms.network_config import NetworkConfig
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
from purerl.keys import init_keys, update_keys
from purerl.learning import diagnostics, optimiser
from purerl.learning.collectives import after
from purerl.learning.minibatches import PLAIN_STEPS_OF_TURN, Passes, minimise
from purerl.learning.parts import frozen_in
from purerl.learning.returns import q_lambda
from purerl.losses import SquaredError, value_error
from purerl.losses.check import check_value_loss
from purerl.networks import columns, composite
from purerl.optimisers import RAdam
from purerl.optimisers.check import check_optimisers
from purerl.types import Algorithm, Array, Hosted, Metrics, PyTree, Transition


@config_dataclass
class PQNConfig(NetworkConfig):
    """The config of parallel Q-learning."""

    num_envs: int = static(
        32, "Environments that one agent steps in parallel.", POSITIVE
    )
    num_steps: int = static(64, "Steps per environment and update.", POSITIVE)
    num_epochs: int = static(4, "Passes over the rollout per update.", POSITIVE)
    num_minibatches: int = static(16, "Gradient steps per pass.", POSITIVE)
    learning_rate: float = dynamic(1e-3, "Step size of the optimiser.", POSITIVE)
    anneal_learning_rate: bool = static(True, "Decay the step size linearly to 0.")
    optimiser: Any = dynamic(
        RAdam(), "Optimiser of the network; RAdam warms its step size up."
    )
    max_grad_norm: float | None = dynamic(
        10.0, "Largest global gradient norm; None for no bound.", POSITIVE_OR_NONE
    )
    trace_decay: float = dynamic(0.95, "Lambda of the returns.", FRACTION)
    value_loss: Any = dynamic(SquaredError(), "Loss of the action value.")
    epsilon_schedule: str = exploration_config.schedule_field()
    epsilon_start: float = exploration_config.start_field()
    epsilon_end: float = exploration_config.end_field(0.2)
    epsilon_fraction: float = exploration_config.fraction_field(0.2)
    epsilon_steps: float = exploration_config.steps_field()
    normalize_observations: bool = static(
        False, "Standardise observations by running moments."
    )
    clip_observations: float = dynamic(
        10.0, "Largest normalised observation; CleanRL's and Baselines' 10.", POSITIVE
    )
    hidden_sizes: tuple[int, ...] = static(
        (128, 128), "Units of each hidden layer.", SIZES
    )
    activation: str = static(
        "relu",
        "Activation function after each hidden layer.",
        one_of(*networks.ACTIVATIONS),
    )
    layer_norm: bool = static(
        True,
        "Layer normalisation before each activation, which stands in for a target "
        "network.",
    )

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one update, `T * B`."""
        return self.num_envs * self.num_steps

    @property
    def sequential_steps(self) -> int:
        """Dependent operations of one update: environment and gradient steps."""
        return self.num_steps + self.num_epochs * self.num_minibatches

    def automatic(self, env: Environment) -> dict[str, Any]:
        """Return the decay's length in environment steps."""
        del env
        return exploration.automatic(self)


class Parts(NamedTuple):
    """The parts of PQN, bound once in Python: structure, and the config's numbers."""

    config: PQNConfig
    stepper: rollout.Stepper
    obs_space: Any
    num_actions: int
    network: nn.Module
    num_updates: int
    axis_name: str | None


class PQNState(NamedTuple):
    """Everything that training carries, arrays only.

    Attributes:
        params: Parameters of the network.
        opt_state: State of the optimiser.
        obs_moments: Statistics of observations, see `observe.init_moments`.
        envs: The environments between two steps.
        key: Random key of the agent, which never changes; every update's key is folded
            from it.
        update: `[]` int32, number of updates done.
    """

    params: PyTree
    opt_state: PyTree
    obs_moments: PyTree
    envs: rollout.EnvCarry
    key: Array
    update: Array


class Batch(NamedTuple):
    """The samples of a gradient step, `[N, ...]`; observations are prepared already."""

    obs: Array
    action: Array
    target: Array


def validate(config: PQNConfig, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    check_minibatches(config)
    exploration.check_share(config)
    check_action_values(config, env)
    check_value_loss(config.value_loss)
    check_optimisers(config)


def make(
    config: PQNConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Build PQN for a config and an environment; see `build`.

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


def build(config: PQNConfig, env: Environment, axis_name: str | None = None) -> Parts:
    """Build network and environment of a config: what the functions below work with.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread.
    """
    config = auto.resolve(config, env)
    stepper = rollout.make_stepper(config, env, axis_name)
    obs_space = env.observation_space(stepper.params)
    actions: Any = env.action_space(stepper.params)
    shape, num_actions = obs_shape(obs_space), int(actions.n)
    network = network_config.whole(config, "critic", shape)
    if network is None:
        torso = network_config.torso_of(config, shape, "critic")
        network = networks.DiscreteCritic(torso, num_actions, gain=config.critic_gain)
    if composite.has_mask(shape):
        network = networks.Masked(network)
    return Parts(
        config=config,
        stepper=stepper,
        obs_space=obs_space,
        num_actions=num_actions,
        network=network,
        num_updates=max(1, config.total_timesteps // config.steps_per_update),
        axis_name=axis_name,
    )


def init(parts: Parts, key: Array) -> PQNState:
    """Make a fresh network and environments; the key is kept in the state."""
    config = parts.config
    keys = init_keys(key, 3)
    num_envs = rollout.per_device(config.num_envs, parts.axis_name)
    example = observe.example(parts.obs_space)
    params = networks.init_params(keys[:2], {"q": (parts.network, [example])})["q"]
    optim = optimiser_of(config, config.learning_rate, params)
    return PQNState(
        params=params,
        opt_state=optim.init(optimiser.flatten(params)[0]),
        obs_moments=observe.init_moments(parts.obs_space),
        envs=rollout.init_envs(parts.stepper, keys[2], num_envs),
        key=key,
        update=jnp.int32(0),
    )


def step(parts: Parts, state: PQNState) -> tuple[PQNState, Metrics]:
    """Make one update: collect, compute lambda-returns, regress on them."""
    keys = update_keys(state, 4)
    return learn(parts, state, collect(parts, state, keys[:3]), keys)


def learn(
    parts: Parts, state: PQNState, collected: rollout.Rollout, keys: Array
) -> tuple[PQNState, Metrics]:
    """Regress on the lambda-returns of a rollout; return state and metrics.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State with which the rollout was collected.
        collected: The rollout, from `collect`.
        keys: Keys of the update, the first three of which the rollout has used.
    """
    envs, transitions, episodes = collected
    batch = make_batch(parts, state, transitions)
    params, opt_state, losses = fit(parts, state, batch, keys[3])
    obs_moments, metrics = report(parts, state, transitions, episodes, losses)
    update = state.update + 1
    return PQNState(params, opt_state, obs_moments, envs, state.key, update), metrics


def report(
    parts: Parts,
    state: Any,
    transitions: Transition,
    episodes: rollout.Episodes,
    losses: Metrics,
) -> tuple[PyTree, Metrics]:
    """Return the statistics of observations with a rollout in, and an update's metrics.

    Args:
        parts: Network, environments and config; see `build`.
        state: State before the update.
        transitions: `[T, B, ...]` transitions of the rollout.
        episodes: The ends of the rollout's episodes.
        losses: Means over the gradient steps.
    """
    config, axis = parts.config, parts.axis_name
    # Averages over devices must come one after another: see `collectives`.
    episodes = after(episodes, losses["value_loss"], axis)
    metrics = rollout.episode_metrics(episodes, axis) | losses
    obs_moments = state.obs_moments
    if config.normalize_observations:
        features = to_features(parts.obs_space, transitions.obs)
        features = after(features, metrics["episode_return"], axis)
        obs_moments = observe.merge_moments(
            parts.obs_space, obs_moments, features, axis
        )
    update = state.update + 1
    env_steps = update.astype(jnp.uint32) * jnp.uint32(config.steps_per_update)
    return obs_moments, metrics | {"env_steps": env_steps}


def act(parts: Parts, state: PQNState, obs: Array, key: Array | None = None) -> Array:
    """Return the greedy action, or with a key the epsilon-greedy one at `epsilon_end`.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State of one agent.
        obs: `[..., *obs_shape]` observations as the environment gives them.
        key: Random key, consumed; without one the action is the deterministic one.
    """
    prepared = observe.prepare(parts, state.obs_moments, obs)
    q: Any = parts.network.apply(state.params, prepared)
    return exploration.act(q, prepared, parts.config.epsilon_end, key)


def collect(
    parts: Parts, state: PQNState, key: Array
) -> tuple[rollout.EnvCarry, Transition, rollout.Episodes]:
    """Act epsilon-greedily for `num_steps` steps in every environment.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State of one agent; its network does not change meanwhile.
        key: Random key, consumed.

    Returns:
        Environments after the rollout, transitions `[T, B, ...]` with observations as
        the environment gave them, and where episodes ended.
    """
    explore, see, draw = policy(parts, state)
    return rollout.collect(
        parts.stepper, state.envs, explore, see, key, parts.config.num_steps, draw
    )


def policy(parts: Parts, state: PQNState) -> rollout.Policy:
    """Return how the network of a state chooses actions while it is trained."""
    epsilon = exploration.epsilon_of_update(parts.config, state.update)

    def explore(obs: Any, coin: Any) -> tuple[Array, Any, Array]:
        q: Any = parts.network.apply(state.params, obs)
        action = exploration.epsilon_greedy(q, coin, epsilon, obs)
        return action, (), action  # The action as stored, no log-prob, as taken.

    return rollout.Policy(
        explore,
        partial(observe.prepare, parts, state.obs_moments),
        # One coin is drawn for every step and environment.
        partial(exploration.draw_coin, num_actions=choices(parts)),
    )


def hosted(parts: Parts, update: Array) -> Hosted:
    """Return an update in pieces, for environments on the host.

    Args:
        parts: Networks, environments and config; see `build`.
        update: `[]` int32, number of updates done; nothing here depends on it.
    """
    del update

    def restart(state: PQNState, obs: Any) -> PQNState:
        return state._replace(envs=pieces.first_step(state.envs, obs))

    return pieces.of_rollout(
        parts.config, partial(policy, parts), partial(learn, parts), restart
    )


def choices(parts: Parts) -> int:
    """Return of how many a coin's uniform number is."""
    return exploration.choices_of(obs_shape(parts.obs_space), parts.num_actions)


def make_batch(parts: Parts, state: PQNState, transitions: Transition) -> Batch:
    """Compute observations, actions and lambda-returns of a rollout, flat `[N, ...]`.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State with which the rollout was collected.
        transitions: `[T, B, ...]` transitions of the rollout.
    """
    config = parts.config
    seen = partial(observe.prepare, parts, state.obs_moments)
    # A time limit bootstraps on the values of the observation before any reset.
    q_next: Any = parts.network.apply(state.params, seen(transitions.next_obs))
    target = q_lambda(
        transitions.reward,
        q_next.max(-1),
        transitions.terminated,
        transitions.truncated,
        gamma=config.gamma,
        trace_decay=config.trace_decay,
    )
    batch = Batch(seen(transitions.obs), transitions.action, target)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)


def fit(
    parts: Parts, state: Any, batch: Any, key: Array, loss_of: Any = None
) -> tuple[PyTree, PyTree, Metrics]:
    """Regress on the targets; return means over the update's gradient steps.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State before the update.
        batch: `[N, ...]` samples of the rollout.
        key: Random key, consumed.
        loss_of: `(params, minibatch) -> (loss, metrics)`; `loss` where not given.
    """
    config = parts.config
    rate = config.learning_rate
    if config.anneal_learning_rate:
        rate = optimiser.annealed(rate, state.update, parts.num_updates)
    params, opt_state, metrics = minimise(
        partial(loss, parts) if loss_of is None else loss_of,
        state.params,
        state.opt_state,
        batch,
        key,
        Passes(
            optim=optimiser_of(config, rate, state.params),
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
            axis_name=parts.axis_name,
            steps_of_turn=PLAIN_STEPS_OF_TURN if loss_of is None else 1,
        ),
    )
    return params, opt_state, {name: x.mean() for name, x in metrics.items()}


def loss(parts: Parts, params: PyTree, batch: Batch) -> tuple[Array, Metrics]:
    """Return the scalar loss of a minibatch and its metrics.

    Args:
        parts: Networks, environments and config; see `build`.
        params: Parameters of the network.
        batch: `[N, ...]` samples of the minibatch.
    """
    q: Any = parts.network.apply(params, batch.obs)
    value = columns.pick(q, batch.action)
    errors = value_error(parts.config.value_loss, value, batch.target)
    metrics = diagnostics.means({"value_loss": errors, "q_value": value})
    return metrics["value_loss"], metrics


def optimiser_of(
    config: PQNConfig, learning_rate: Array | float, params: PyTree
) -> optax.GradientTransformation:
    """Return the optimiser of a flat vector of parameters, which clips their gradient.

    Args:
        config: Config of the agent.
        learning_rate: Step size of the update.
        params: Parameters of the network.
    """
    layers = optimiser.layers_of(params)
    return optimiser.make(
        config.optimiser,
        learning_rate,
        config.max_grad_norm,
        layers,
        frozen_in(config.frozen),
    )

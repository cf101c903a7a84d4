"""What every on-policy actor-critic shares; the algorithm's own file is its objective.

An update collects `T` steps in `B` environments with the current policy (`collect`),
looks at them with the critic (`estimate`), learns, and reports (`report`, `observe`).
What happens between `estimate` and `report` is the algorithm.

Statistics of observations and rewards are frozen while a rollout is collected and
learned from, and move on afterwards: see `normalise`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl import auto, networks
from purerl.acting import observe as observing
from purerl.acting import rollout
from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape, to_features
from purerl.algorithms import network_config, pieces
from purerl.algorithms.checks import check_hidden_sizes
from purerl.algorithms.network_config import NetworkConfig
from purerl.config import (
    FRACTION,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_OR_NONE,
    ConfigError,
    config_dataclass,
    dynamic,
    number_of,
    one_of,
    static,
)
from purerl.keys import init_keys
from purerl.learning import diagnostics, normalise, optimiser
from purerl.learning.collectives import after
from purerl.losses import SquaredError
from purerl.losses.check import check_loss
from purerl.networks import composite, paired
from purerl.networks.distributions import CategoricalHead, Head, make_head
from purerl.optimisers import Adam
from purerl.optimisers.check import check_optimisers
from purerl.optimisers.older import take_epsilon
from purerl.types import Array, Hosted, Metrics, PyTree, Transition


@config_dataclass
class OnPolicyConfig(NetworkConfig):
    """Fields that every on-policy actor-critic has."""

    num_steps: int = static(128, "Steps per environment and update.", POSITIVE)
    gae_lambda: float = dynamic(0.95, "Trace decay of the advantage.", FRACTION)
    value_loss: Any = dynamic(SquaredError(), "Loss of the critic.")
    entropy_coef: float = dynamic(0.0, "Weight of the entropy bonus.", NON_NEGATIVE)
    optimiser: Any = dynamic(Adam(), "Optimiser of the networks.")
    adam_eps: float | None = dynamic(
        None, "Older name of optimiser.eps, where it is put.", POSITIVE_OR_NONE
    )
    anneal_learning_rate: bool = static(False, "Decay the step size linearly to 0.")
    normalize_advantages: bool = static(True, "Standardise the advantages.")
    normalize_observations: bool = static(False, "Standardise by running moments.")
    normalize_rewards: bool = static(False, "Scale by the std of running returns.")
    clip_observations: float = dynamic(
        10.0, "Largest normalised observation; CleanRL's and Baselines' 10.", POSITIVE
    )
    clip_rewards: float = dynamic(
        10.0, "Largest normalised reward; CleanRL's and Baselines' 10.", POSITIVE
    )
    policy: str = static(
        "auto",
        "Distribution of actions; auto takes categorical or gaussian.",
        one_of("auto", "categorical", "gaussian", "tanh_gaussian"),
    )
    log_std_init: float = static(0.0, "Initial log standard deviation.")
    state_dependent_std: bool = static(
        False, "The log standard deviation is an output of the actor too."
    )
    actor: Any = network_config.actor_field()
    actor_gain: float = network_config.actor_gain_field()
    shared_torso: bool = static(
        False, "Actor and critic are heads of one torso, in place of one each."
    )
    actor_keys: tuple[str, ...] = network_config.keys_field("actor")
    critic_keys: tuple[str, ...] = network_config.keys_field("critic")

    def __post_init__(self) -> None:
        take_epsilon(self, "adam_eps")
        super().__post_init__()

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one update, `T * B`."""
        return self.num_envs * number_of(self, "num_steps")


ConfigT = TypeVar("ConfigT", bound=OnPolicyConfig)


class Parts(NamedTuple, Generic[ConfigT]):
    """What is bound once, in Python: structure, and the config's numbers.

    Attributes:
        config: The numbers.
        stepper: The environments.
        obs_space: Observation space of the environment.
        head: Distribution of the actions.
        actor: Network from prepared observations to what the head takes.
        critic: Network from what `inputs` returns to values.
        on_inputs: The actor, from what `inputs` returns.
        num_updates: Updates of the whole run.
        axis_name: Mapped axis over which this agent's environments are spread, if any.
    """

    config: ConfigT
    stepper: rollout.Stepper
    obs_space: Any
    head: Head
    actor: nn.Module
    critic: nn.Module
    on_inputs: nn.Module
    num_updates: int
    axis_name: str | None


class OnPolicyState(NamedTuple):
    """Everything that training carries, arrays only.

    Attributes:
        params: Parameters of `actor` and `critic`; a torso that they share is the
            actor's.
        opt_state: State of the optimiser, or of several.
        obs_moments: Statistics of observations, see `observe.init_moments`.
        reward_scale: Statistics of returns.
        envs: The environments between two steps.
        key: Random key of the agent, which never changes; every update's key is folded
            from it.
        update: `[]` int32, number of updates done.
    """

    params: dict[str, PyTree]
    opt_state: PyTree
    obs_moments: PyTree
    reward_scale: normalise.RewardScale
    envs: rollout.EnvCarry
    key: Array
    update: Array


class Estimates(NamedTuple):
    """What the critic makes of a rollout, `[T, B, ...]`.

    Attributes:
        obs: Prepared observations.
        reward: Reward, scaled if the config says so.
        value: `V(s_t)`.
        next_value: `V(s'_t)`, the value of the observation before any reset.
    """

    obs: Array
    reward: Array
    value: Array
    next_value: Array


class Batch(NamedTuple):
    """What a gradient step sees, `[N, ...]`; observations are prepared already."""

    obs: Array
    action: Array
    log_prob: Array
    value: Array
    advantage: Array
    target: Array


def validate(
    config: OnPolicyConfig,
    env: Environment,
    memory_shape: tuple[int, ...] | None = None,
) -> None:
    """Check the networks, the head and the value loss against the environment.

    Args:
        config: Config of the agent.
        env: Environment, from `resolve_env`.
        memory_shape: Shape of what actor and critic see in place of an observation.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    check_hidden_sizes(config.hidden_sizes)
    check_loss("value_loss", config.value_loss, 3, "SquaredError()")
    check_optimisers(config)
    params = env.default_params
    try:
        head = make_head(env.action_space(params), config.policy)
        shape = obs_shape(env.observation_space(params))
    except ValueError as error:
        raise ConfigError(f"{env.name}: {error}") from None
    check_shared(config)
    check_deviation(config, head)
    with_torso = ("actor", "critic") if memory_shape is None else ("torso",)
    network_config.check_torsos(config, env, with_torso)
    check_networks(config, head, memory_shape or shape)


def check_deviation(config: OnPolicyConfig, head: Head) -> None:
    """Refuse a standard deviation by state where there is none, or it cannot learn.

    Args:
        config: Config of the agent.
        head: Distribution of the actions.

    Raises:
        ConfigError: naming the fields.
    """
    if not config.state_dependent_std:
        return
    if head.is_discrete or not network_config.is_auto(config, "actor"):
        what = "discrete actions" if head.is_discrete else "an actor of your own"
        raise ConfigError(
            f"state_dependent_std=True has no effect with {what}; leave it out."
        )
    low, high = networks.LOG_STD_RANGE
    if not low < config.log_std_init < high:
        raise ConfigError(
            f"log_std_init must be greater than {low:g} and less than {high:g} with "
            f"state_dependent_std=True, which keeps it in between, got "
            f"{config.log_std_init}."
        )


def check_shared(config: OnPolicyConfig) -> None:
    """Refuse to share a torso between networks that do not have one in common.

    Raises:
        ConfigError: naming the network.
    """
    if config.shared_torso and config.actor_keys != config.critic_keys:
        raise ConfigError(
            "shared_torso needs actor_keys and critic_keys to be the same, got "
            f"{config.actor_keys!r} and {config.critic_keys!r}: what one torso sees, "
            "both networks know; set shared_torso=False."
        )
    for field in ("actor", "critic") if config.shared_torso else ():
        if not network_config.is_auto(config, field):
            raise ConfigError(
                f"shared_torso needs {field} to be auto, a head on the torso, got "
                f"{network_config.described(config, field)}; give the layers that both "
                "have as torso."
            )


def check_networks(config: OnPolicyConfig, head: Head, shape: Any) -> None:
    """Refuse whole networks of the user's own that do not fit head and values.

    Args:
        config: Config of the agent.
        head: Distribution of the actions.
        shape: Shape of what the networks see.

    Raises:
        ConfigError: naming the module and both shapes.
    """
    num = head.num_outputs
    outputs: Any = (num,) if head.is_discrete else [(num,), (num,)]
    words = (
        f"logits of {num} actions"
        if head.is_discrete
        else f"a pair of mean and log standard deviation of {num} numbers"
    )
    network_config.check_whole(config, "actor", [shape], outputs, words)
    network_config.check_whole(
        config, "critic", [shape], (), "one value per observation"
    )


def build(
    config: ConfigT, env: Environment, axis_name: str | None = None
) -> Parts[ConfigT]:
    """Build networks and environment of a config: what the functions below work with.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread.
    """
    config = auto.resolve(config, env)
    stepper = rollout.make_stepper(config, env, axis_name)
    obs_space = env.observation_space(stepper.params)
    head = make_head(env.action_space(stepper.params), config.policy)
    shape = obs_shape(obs_space)
    actor = make_actor(config, head, shape)
    on_inputs = actor
    critic = make_critic(config, shape)
    if config.shared_torso:
        on_inputs, critic = on_features(actor, shape), on_features(critic, shape)
    return Parts(
        config=config,
        stepper=stepper,
        obs_space=obs_space,
        head=head,
        actor=actor,
        critic=critic,
        on_inputs=on_inputs,
        num_updates=max(1, config.total_timesteps // config.steps_per_update),
        axis_name=axis_name,
    )


def on_features(network: nn.Module, shape: Any) -> nn.Module:
    """Return a network with the same head, which takes what `inputs` returns."""
    if isinstance(network, networks.Masked):
        return network.clone(module=on_features(network.module, shape))
    heads = composite.head_shape(1, shape)
    return network.clone(torso=composite.viewed(networks.Features(), heads))


def make_actor(
    config: OnPolicyConfig,
    head: Head,
    shape: Any,
    torso: nn.Module | None = None,
) -> nn.Module:
    """Make the network from observations to what the head takes.

    Args:
        config: Config of the agent.
        head: Distribution of the actions.
        shape: Shape of the features of one observation.
        torso: Torso in place of the config's.
    """
    finish = None if head.is_discrete else _as_gaussian
    actor = network_config.whole(config, "actor", shape, finish)
    if actor is None:
        torso = torso or network_config.torso_of(config, shape, "actor")
        actor = _on_torso(config, head, torso)
    return networks.Masked(actor) if composite.has_mask(shape) else actor


def _on_torso(config: OnPolicyConfig, head: Head, torso: nn.Module) -> nn.Module:
    """The actor of a config on a torso."""
    num, gain = head.num_outputs, config.actor_gain
    if head.is_discrete:
        return networks.CategoricalActor(torso, num, gain)
    if config.state_dependent_std:
        return networks.StateGaussianActor(
            torso, num, gain=gain, log_std_init=config.log_std_init
        )
    return networks.GaussianActor(torso, num, config.log_std_init, gain)


def make_critic(
    config: OnPolicyConfig, shape: Any, torso: nn.Module | None = None
) -> nn.Module:
    """Make the network from observations to values.

    Args:
        config: Config of the agent.
        shape: Shape of the features of one observation.
        torso: Torso in place of the config's.
    """
    own = network_config.whole(config, "critic", shape)
    if own is not None:
        return own
    torso = torso or network_config.torso_of(config, shape, "critic")
    return networks.Critic(torso, config.critic_gain)


def _as_gaussian(outputs: Any) -> networks.Gaussian:
    return networks.Gaussian(*outputs)


def inputs(parts: Parts, params: dict[str, PyTree], obs: Any) -> Any:
    """Return what `critic` and `on_inputs` take: observations, or a torso's features.

    Args:
        parts: Networks, environments and config; see `build`.
        params: Parameters of `actor` and `critic`.
        obs: `[..., *obs_shape]` prepared observations.
    """
    if not parts.config.shared_torso:
        return obs
    features: Any = parts.actor.apply(params["actor"], obs, method=_features)
    return features


def outputs(
    parts: Parts, params: dict[str, PyTree] | paired.Pair, inputs: Any
) -> tuple[Any, Array, PyTree]:
    """Return what the head takes, the values `[N]`, and how active the units were.

    Args:
        parts: Networks, environments and config; see `build`.
        params: Parameters of `actor` and `critic`, or both as one.
        inputs: What `inputs` returns, `[N, ...]`; for both as one, what
            `paired.with_ones` makes of it.

    Returns:
        Outputs, values, and the mean absolute output of every unit by the names of the
        networks; None where the optimiser does not see it.
    """
    if isinstance(params, paired.Pair):
        found, value = params(inputs)
        if isinstance(found, list) and not isinstance(parts.head, CategoricalHead):
            found = jnp.stack(found, -1)
        return found, value, None
    if not optimiser.sees_activity(parts.config.optimiser):
        found = parts.on_inputs.apply(params["actor"], inputs)
        return found, parts.critic.apply(params["critic"], inputs), None  # type: ignore[return-value]
    found, actor = _noted(parts.on_inputs, params["actor"], inputs)
    value, critic = _noted(parts.critic, params["critic"], inputs)
    return found, value, {"actor": actor, "critic": critic}


def _noted(network: nn.Module, params: PyTree, inputs: Any) -> tuple[Any, PyTree]:
    """What a network makes of inputs, and what it notes of its units."""
    found, noted = network.apply(params, inputs, mutable=networks.COLLECTION)
    return found, noted.get(networks.COLLECTION, {})


def _features(actor: Any, obs: Any) -> Any:
    network = actor.module if isinstance(actor, networks.Masked) else actor
    return composite.beside_mask(network.torso(obs), obs)


def _example_inputs(parts: Parts, obs: Any) -> Any:
    """Zeros of the shape that `inputs` returns, before there are parameters."""
    if not parts.config.shared_torso:
        return obs
    draw = partial(parts.actor.init_with_output, method=_features)
    features, _ = jax.eval_shape(draw, jax.random.key(0), obs)
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), features)


def init(
    parts: Parts, key: Array, init_optimiser: Callable[[dict[str, PyTree]], PyTree]
) -> OnPolicyState:
    """Make fresh networks and environments; the key is kept in the state.

    Args:
        parts: Networks, environments and config; see `build`.
        key: Random key, which is kept in the state.
        init_optimiser: Function from the parameters of `actor` and `critic` to
            `opt_state`.
    """
    keys = init_keys(key, 3)
    num_envs = rollout.per_device(parts.config.num_envs, parts.axis_name)
    envs = rollout.init_envs(parts.stepper, keys[2], num_envs)
    example = observing.example(parts.obs_space)
    params = networks.init_params(
        keys[:2],
        {
            "actor": (parts.actor, [example]),
            "critic": (parts.critic, [_example_inputs(parts, example)]),
        },
    )
    return OnPolicyState(
        params=params,
        opt_state=init_optimiser(params),
        obs_moments=observing.init_moments(parts.obs_space),
        reward_scale=normalise.RewardScale(
            normalise.init_moments(), jnp.zeros(num_envs)
        ),
        envs=envs,
        key=key,
        update=jnp.int32(0),
    )


def act(
    parts: Parts, state: OnPolicyState, obs: Array, key: Array | None = None
) -> Array:
    """Return the policy's action on observations `[..., *obs_shape]`.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State of one agent.
        obs: Observations as the environment gives them.
        key: Random key, consumed; without one the action is the deterministic one.
    """
    prepared = prepare(parts, state.obs_moments, obs)
    outputs = parts.actor.apply(state.params["actor"], prepared)
    head = parts.head
    raw = head.mode(outputs) if key is None else head.sample(outputs, key)
    return head.to_env(raw)


def prepare(parts: Parts, moments: PyTree, obs: Any) -> Any:
    """Return what the networks see: floats, normalised if the config says so.

    Args:
        parts: Networks, environments and config; see `build`.
        moments: Statistics of observations.
        obs: `[..., *obs_shape]` observations as the environment gives them.
    """
    features = to_features(parts.obs_space, obs)
    if parts.config.normalize_observations:
        clip = parts.config.clip_observations
        features = observing.normalised(parts.obs_space, moments, features, clip)
    return features


def collect(
    parts: Parts, state: OnPolicyState, key: Array
) -> tuple[rollout.EnvCarry, Transition, rollout.Episodes]:
    """Run the policy for `num_steps` steps in every environment.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State of one agent.
        key: Random key, or three of them; see `rollout.collect`.

    Returns:
        Environments after the rollout, transitions `[T, B, ...]` with observations as
        the environment gave them, and where episodes ended.
    """
    act, prepared, draw = policy(parts, state)
    envs, transitions, episodes = rollout.collect(
        parts.stepper, state.envs, act, prepared, key, parts.config.num_steps, draw
    )
    return envs, with_log_prob(parts.head, transitions), episodes


def policy(parts: Parts, state: OnPolicyState) -> rollout.Policy:
    """Return how the networks of a state choose actions while they are trained."""
    return rollout.Policy(
        partial(_choose, parts, state.params["actor"]),
        partial(prepare, parts, state.obs_moments),
        parts.head.noise,
    )


def hosted(
    parts: Parts, learn: Callable[..., tuple[OnPolicyState, Metrics]], update: Array
) -> Hosted:
    """Return an update in pieces, for environments on the host.

    Args:
        parts: Networks, environments and config; see `build`.
        learn: `(parts, state, (envs, transitions, episodes), keys) -> (state,
            metrics)`, with four keys of the update.
        update: `[]` int32, number of updates done; nothing here depends on it.
    """
    del update

    def then(
        state: OnPolicyState, collected: rollout.Rollout, keys: Array
    ) -> tuple[OnPolicyState, Metrics]:
        envs, transitions, episodes = collected
        transitions = with_log_prob(parts.head, transitions)
        return learn(parts, state, (envs, transitions, episodes), keys)

    return pieces.of_rollout(parts.config, partial(policy, parts), then, restart)


def restart(state: Any, obs: Any) -> Any:
    """Return the state with all episodes begun anew.

    Args:
        state: State of one agent, with `envs` and `reward_scale`.
        obs: First observations `[B, ...]`.
    """
    envs = pieces.first_step(obs)
    blank = jnp.zeros_like(state.reward_scale.running)
    scale = state.reward_scale._replace(running=blank)
    return state._replace(envs=envs, reward_scale=scale)


def _choose(
    parts: Parts, params: PyTree, obs: Array, noise: Array
) -> tuple[Array, Any, Array]:
    """Sample with one noise per environment: raw action, outputs, env action."""
    outputs = parts.actor.apply(params, obs)
    raw = parts.head.choose(outputs, noise)
    return raw, outputs, parts.head.to_env(raw)


def with_log_prob(head: Head, transitions: Transition) -> Transition:
    """Compute the log-probabilities of a rollout's actions, after it.

    The steps of a rollout follow one another, and each waits for what it computes. So
    they keep the policy's outputs, and the rest is done for all steps at once.

    Args:
        head: The policy's distribution.
        transitions: `[T, B, ...]`, with the policy's outputs in place of `log_prob`.
    """
    outputs = transitions.log_prob
    return transitions._replace(log_prob=head.log_prob(outputs, transitions.action))


def estimate(
    parts: Parts, state: OnPolicyState, transitions: Transition
) -> tuple[Estimates, normalise.RewardScale]:
    """Compute the values and rewards of a rollout, from which advantages are made.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State with which the rollout was collected.
        transitions: `[T, B, ...]` transitions of the rollout.

    Returns:
        Estimates `[T, B, ...]`, and the statistics of returns with this rollout in.
    """
    config = parts.config
    critic = state.params["critic"]
    obs = prepare(parts, state.obs_moments, transitions.obs)
    value: Any = parts.critic.apply(critic, inputs(parts, state.params, obs))
    # The value of the observation before any reset: what a time limit bootstraps on.
    next_obs = prepare(parts, state.obs_moments, transitions.next_obs)
    seen = inputs(parts, state.params, next_obs)
    next_value: Any = parts.critic.apply(critic, seen)

    reward, scale = transitions.reward, state.reward_scale
    if config.normalize_rewards:
        done = transitions.terminated | transitions.truncated
        scale, reward = normalise.scale_rewards(
            scale,
            reward,
            done,
            gamma=config.gamma,
            clip=config.clip_rewards,
            axis_name=parts.axis_name,
        )
    return Estimates(obs, reward, value, next_value), scale


def flatten(batch: Batch) -> Batch:
    """Flatten the samples of a rollout `[T, B, ...]` into one row `[N, ...]`."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)


def annealed(parts: Parts, rate: Array | float, update: Array) -> Array | float:
    """Return a step size as it is, or decayed linearly over the run.

    Args:
        parts: Networks, environments and config; see `build`.
        rate: Step size at the beginning of the run.
        update: `[]` int, number of updates done.
    """
    if not parts.config.anneal_learning_rate:
        return rate
    return optimiser.annealed(rate, update, parts.num_updates)


def report(
    parts: Parts,
    update: Array,
    episodes: rollout.Episodes,
    batch: Batch,
    losses: Metrics,
) -> Metrics:
    """Report episodes, losses, explained variance and `env_steps` of an update.

    Args:
        parts: Networks, environments and config; see `build`.
        update: `[]` int32, number of updates done before this one.
        episodes: Ends of the episodes of the rollout.
        batch: Batch of values and targets to which the rollout led.
        losses: Averages over devices already, `value_loss` after the others.
    """
    # One phase of averages over devices after another: see `collectives`.
    episodes = after(episodes, losses["value_loss"], parts.axis_name)
    metrics = rollout.episode_metrics(episodes, parts.axis_name) | losses
    batch = after(batch, metrics["episode_return"], parts.axis_name)
    metrics["explained_variance"] = diagnostics.explained_variance(
        batch.value, batch.target, parts.axis_name
    )
    steps = (update + 1).astype(jnp.uint32)
    metrics["env_steps"] = steps * jnp.uint32(parts.config.steps_per_update)
    return metrics


def observe(parts: Parts, moments: PyTree, obs: Any, before: Array) -> PyTree:
    """Add a rollout to the statistics of observations, if the config normalises.

    Args:
        parts: Networks, environments and config; see `build`.
        moments: Statistics before the rollout.
        obs: `[T, B, ...]` observations as the environment gave them.
        before: An average over devices that comes first, the last one of `report`.
    """
    if not parts.config.normalize_observations:
        return moments
    features = to_features(parts.obs_space, obs)
    features = after(features, before, parts.axis_name)
    return observing.merge_moments(parts.obs_space, moments, features, parts.axis_name)

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
from purerl.acting import rollout
from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape, to_features
from purerl.algorithms.checks import check_hidden_sizes
from purerl.config import (
    FRACTION,
    NON_NEGATIVE,
    POSITIVE,
    ConfigError,
    TrainConfig,
    config_dataclass,
    dynamic,
    number_of,
    one_of,
    static,
)
from purerl.keys import init_key
from purerl.learning import diagnostics, normalise, optimiser
from purerl.learning.collectives import after
from purerl.losses import SquaredError
from purerl.losses.check import check_loss
from purerl.networks.distributions import Head, make_head
from purerl.types import Array, Metrics, PyTree, Transition


@config_dataclass
class OnPolicyConfig(TrainConfig):
    """Fields that every on-policy actor-critic has."""

    num_steps: int = static(128, "Steps per environment and update.", POSITIVE)
    gae_lambda: float = dynamic(0.95, "Trace decay of the advantage.", FRACTION)
    value_loss: Any = dynamic(SquaredError(), "Loss of the critic.")
    entropy_coef: float = dynamic(0.0, "Weight of the entropy bonus.", NON_NEGATIVE)
    adam_eps: float = dynamic(1e-8, "Adam's epsilon.", POSITIVE)
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
    torso: str = static(
        "auto", "auto takes cnn for images, else mlp.", one_of(*networks.TORSOS)
    )
    hidden_sizes: tuple[int, ...] = static((64, 64), "Units of each hidden layer.")
    activation: str = static(
        "tanh", "After each hidden layer.", one_of(*networks.ACTIVATIONS)
    )

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one update, `T * B`."""
        return self.num_envs * number_of(self, "num_steps")


ConfigT = TypeVar("ConfigT", bound=OnPolicyConfig)


class Parts(NamedTuple, Generic[ConfigT]):
    """What is bound once, in Python: structure, and the config's numbers."""

    config: ConfigT
    stepper: rollout.Stepper
    obs_space: Any
    head: Head
    actor: nn.Module
    critic: nn.Module
    num_updates: int
    axis_name: str | None


class OnPolicyState(NamedTuple):
    """Everything that training carries, arrays only.

    Attributes:
        params: Parameters of `actor` and `critic`.
        opt_state: State of the optimiser, or of several.
        obs_moments: Statistics of observations.
        reward_scale: Statistics of returns.
        envs: The environments between two steps.
        key: Random key of the agent, which never changes; every update's key is folded
            from it.
        update: `[]` int32, number of updates done.
    """

    params: dict[str, PyTree]
    opt_state: PyTree
    obs_moments: normalise.Moments
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


def validate(config: OnPolicyConfig, env: Environment) -> None:
    """Check the networks, the head and the value loss against the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    check_hidden_sizes(config.hidden_sizes)
    check_loss("value_loss", config.value_loss, 3, "SquaredError()")
    params = env.default_params
    try:
        make_head(env.action_space(params), config.policy)
        shape = obs_shape(env.observation_space(params))
        networks.make_torso(config.torso, shape, (1,), config.activation)
    except ValueError as error:
        raise ConfigError(f"{env.name}: {error}") from None


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

    def torso() -> nn.Module:
        return networks.make_torso(
            config.torso, obs_shape(obs_space), config.hidden_sizes, config.activation
        )

    actor = (
        networks.CategoricalActor(torso(), head.num_outputs)
        if head.is_discrete
        else networks.GaussianActor(torso(), head.num_outputs, config.log_std_init)
    )
    return Parts(
        config=config,
        stepper=stepper,
        obs_space=obs_space,
        head=head,
        actor=actor,
        critic=networks.Critic(torso()),
        num_updates=max(1, config.total_timesteps // config.steps_per_update),
        axis_name=axis_name,
    )


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
    key_networks, key_env = jax.random.split(init_key(key))
    num_envs = rollout.per_device(parts.config.num_envs, parts.axis_name)
    envs = rollout.init_envs(parts.stepper, key_env, num_envs)
    shape = obs_shape(parts.obs_space)
    example = jnp.zeros((1, *shape))
    params = networks.init_params(
        key_networks,
        {"actor": (parts.actor, [example]), "critic": (parts.critic, [example])},
    )
    return OnPolicyState(
        params=params,
        opt_state=init_optimiser(params),
        obs_moments=normalise.init_moments(shape),
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


def prepare(parts: Parts, moments: normalise.Moments, obs: Array) -> Array:
    """Return what the networks see: floats, normalised if the config says so.

    Args:
        parts: Networks, environments and config; see `build`.
        moments: Statistics of observations.
        obs: `[..., *obs_shape]` observations as the environment gives them.
    """
    features = to_features(parts.obs_space, obs)
    if parts.config.normalize_observations:
        clip = parts.config.clip_observations
        features = normalise.normalise(moments, features, clip)
    return features


def collect(
    parts: Parts, state: OnPolicyState, key: Array
) -> tuple[rollout.EnvCarry, Transition, rollout.Episodes]:
    """Run the policy for `num_steps` steps in every environment.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State of one agent.
        key: Random key, consumed.

    Returns:
        Environments after the rollout, transitions `[T, B, ...]` with observations as
        the environment gave them, and where episodes ended.
    """
    envs, transitions, episodes = rollout.collect(
        parts.stepper,
        state.envs,
        partial(_choose, parts, state.params["actor"]),
        partial(prepare, parts, state.obs_moments),
        key,
        parts.config.num_steps,
        parts.head.noise,
    )
    return envs, with_log_prob(parts.head, transitions), episodes


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
    value: Any = parts.critic.apply(critic, obs)
    # The value of the observation before any reset: what a time limit bootstraps on.
    next_obs = prepare(parts, state.obs_moments, transitions.next_obs)
    next_value: Any = parts.critic.apply(critic, next_obs)

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


def observe(
    parts: Parts, moments: normalise.Moments, obs: Array, metrics: Metrics
) -> normalise.Moments:
    """Add a rollout to the statistics of observations, if the config normalises.

    Args:
        parts: Networks, environments and config; see `build`.
        moments: Statistics before the rollout.
        obs: `[T, B, ...]` observations as the environment gave them.
        metrics: Metrics from `report`, whose averages come first.
    """
    if not parts.config.normalize_observations:
        return moments
    features = to_features(parts.obs_space, obs)
    features = after(features, metrics["explained_variance"], parts.axis_name)
    return normalise.merge(moments, features, parts.axis_name)

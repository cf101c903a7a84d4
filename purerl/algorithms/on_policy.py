"""The common part of on-policy actor-critics: everything but the objective.

An update collects `T` steps in `B` environments with the current policy (`collect`),
looks at them with the critic (`estimate`), learns, and reports (`report`, `observe`).
What happens between `estimate` and `report` is the algorithm.

Statistics of observations and rewards are frozen while a rollout is collected and
learned from, and move on afterwards: see `normalise`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl import auto, networks
from purerl.acting import observe as observing
from purerl.acting import rollout
from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape, to_features
from purerl.algorithms import pieces
from purerl.algorithms.on_policy_config import ConfigT
from purerl.algorithms.on_policy_networks import make_actor, make_critic, on_features
from purerl.keys import init_keys
from purerl.learning import diagnostics, normalise, optimiser
from purerl.learning.collectives import after
from purerl.networks import composite, paired
from purerl.networks.distributions import CategoricalHead, Head
from purerl.networks.mixed import make_policy_head
from purerl.tracing import traced_for_cpu
from purerl.types import Array, Hosted, Metrics, PyTree, Transition

# Numbers of the observations whose values an accelerator computes in one batch with the
# values of those that follow: half the kernels, and twice the memory while it lasts.
MOST_AT_ONCE = 2**18


class Parts(NamedTuple, Generic[ConfigT]):
    """The parts of an agent, bound once in Python: structure, and the config's numbers.

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
        params: Parameters of `actor` and `critic`; a torso that both share is among
            those of the actor.
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
    """The critic's estimates on a rollout, `[T, B, ...]`.

    Attributes:
        obs: Prepared observations.
        reward: Reward, scaled if the config says so.
        value: Values `V(s_t)`.
        next_value: Values `V(s'_t)` of the observations before any reset.
    """

    obs: Array
    reward: Array
    value: Array
    next_value: Array


class Batch(NamedTuple):
    """The samples of a gradient step, `[N, ...]`; observations are prepared already."""

    obs: Array
    action: Array
    log_prob: Array
    value: Array
    advantage: Array
    target: Array


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
    head = make_policy_head(env.action_space(stepper.params), config.policy)
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
        inputs: Inputs that `inputs` returns, `[N, ...]`; for both networks as one, what
            `paired.with_ones` makes of them.

    Returns:
        Outputs, values, and the mean absolute output of every unit by the names of the
        networks; None where the optimiser does not see it.
    """
    if isinstance(params, paired.Pair):
        found, value = params(inputs)
        if isinstance(found, list) and not isinstance(parts.head, CategoricalHead):
            found = jnp.stack(found, -1)
        return found, value, None
    if not sees_activity(parts.config):
        found = parts.on_inputs.apply(params["actor"], inputs)
        return found, parts.critic.apply(params["critic"], inputs), None  # type: ignore[return-value]
    found, actor = _noted(parts.on_inputs, params["actor"], inputs)
    value, critic = _noted(parts.critic, params["critic"], inputs)
    return found, value, {"actor": actor, "critic": critic}


def sees_activity(config: Any) -> bool:
    """Return whether an optimiser of a config sees how active units are.

    Args:
        config: Config of an algorithm.
    """
    names = ("optimiser", "critic_optimiser")
    return any(optimiser.sees_activity(getattr(config, name, None)) for name in names)


def _noted(network: nn.Module, params: PyTree, inputs: Any) -> tuple[Any, PyTree]:
    """Return the outputs of a network, and what it notes of its units."""
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
    prepared = observing.prepare(parts, state.obs_moments, obs)
    outputs = parts.actor.apply(state.params["actor"], prepared)
    head = parts.head
    raw = head.mode(outputs) if key is None else head.sample(outputs, key)
    return head.to_env(raw)


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
        partial(observing.prepare, parts, state.obs_moments),
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
    envs = pieces.first_step(state.envs, obs)
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
    obs, value, next_value = _values(parts, state, transitions)
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


def _values(
    parts: Parts, state: OnPolicyState, transitions: Transition
) -> tuple[Any, Array, Array]:
    """Prepared observations `[T, B, ...]`, their values, and those after the steps."""
    critic = state.params["critic"]

    def value_of(obs: Any) -> Any:
        return parts.critic.apply(critic, inputs(parts, state.params, obs))

    obs = observing.prepare(parts, state.obs_moments, transitions.obs)
    is_small = isinstance(obs, Array) and obs.size <= MOST_AT_ONCE
    value = None if is_small and not traced_for_cpu() else value_of(obs)
    # A time limit bootstraps on the value of the observation before any reset.
    next_obs = observing.prepare(parts, state.obs_moments, transitions.next_obs)
    if value is None:
        value, next_value = value_of(jnp.stack([obs, next_obs]))
        return obs, value, next_value
    return obs, value, value_of(next_obs)


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
    # Averages over devices must come one after another: see `collectives`.
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

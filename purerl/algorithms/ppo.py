"""Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347).

Every update collects `T` steps in `B` environments with the current policy, then takes
several epochs of minibatch steps on

    L = -E[min(r A, clip(r, 1-eps, 1+eps) A)] + c_v E[value_loss] - c_e E[entropy]

with `r = pi(a|s) / pi_old(a|s)` and `A` the generalised advantage estimate, normalised
per minibatch. The clipping is the drift `policy_loss`, and any other drift can take its
place. Defaults are CleanRL's `ppo.py` (Huang et al. 2022, "The 37 implementation
details of PPO") for CartPole-v1.
"""

from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from purerl import diagnostics, networks, normalise, optimiser, rollout
from purerl.collectives import after, pmean
from purerl.config import (
    FRACTION,
    NON_NEGATIVE,
    POSITIVE,
    ConfigError,
    TrainConfig,
    config_dataclass,
    dynamic,
    one_of,
    static,
)
from purerl.distributions import Head, make_head
from purerl.environment import Environment
from purerl.losses import ClipDrift, ClippedSquaredError, surrogate
from purerl.losses.check import check_loss
from purerl.observe import obs_shape, to_features
from purerl.returns import gae
from purerl.shuffle import shuffled_indices
from purerl.types import Algorithm, Array, Metrics, PyTree, Transition


@config_dataclass
class PPOConfig(TrainConfig):
    """Proximal policy optimisation."""

    num_steps: int = static(128, "Steps per environment and update.", POSITIVE)
    num_epochs: int = static(4, "Passes over the rollout per update.", POSITIVE)
    num_minibatches: int = static(4, "Gradient steps per pass.", POSITIVE)
    gae_lambda: float = dynamic(0.95, "Trace decay of the advantage.", FRACTION)
    policy_loss: Any = dynamic(ClipDrift(0.2), "Drift of the policy loss.")
    value_loss: Any = dynamic(ClippedSquaredError(0.2), "Loss of the critic.")
    entropy_coef: float = dynamic(0.01, "Weight of the entropy bonus.", NON_NEGATIVE)
    value_coef: float = dynamic(0.5, "Weight of the value loss.", NON_NEGATIVE)
    max_grad_norm: float = dynamic(0.5, "Largest global gradient norm.", POSITIVE)
    adam_eps: float = dynamic(1e-5, "Adam's epsilon.", POSITIVE)
    anneal_learning_rate: bool = static(True, "Decay the step size linearly to 0.")
    normalize_advantages: bool = static(True, "Standardise per minibatch.")
    normalize_observations: bool = static(False, "Standardise by running moments.")
    normalize_rewards: bool = static(False, "Scale by the std of running returns.")
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
        return self.num_envs * self.num_steps

    @property
    def sequential_steps(self) -> int:
        """Dependent operations of one update: environment and gradient steps."""
        return self.num_steps + self.num_epochs * self.num_minibatches


class Setup(NamedTuple):
    """What is bound once, in Python: structure, and the config's numbers."""

    config: PPOConfig
    stepper: rollout.Stepper
    obs_space: Any
    head: Head
    actor: nn.Module
    critic: nn.Module
    num_updates: int
    axis_name: str | None


class PPOState(NamedTuple):
    """Everything that training carries, arrays only.

    Attributes:
        params: of `actor` and `critic`.
        opt_state: of the optimiser.
        obs_moments: statistics of observations.
        reward_scale: statistics of returns.
        envs: the environments between two steps.
        key: never changes; every update's key is folded from it.
        update: int32 `[]`, updates done.
    """

    params: dict[str, PyTree]
    opt_state: PyTree
    obs_moments: normalise.Moments
    reward_scale: normalise.RewardScale
    envs: rollout.EnvCarry
    key: Array
    update: Array


class Batch(NamedTuple):
    """What a gradient step sees, `[N, ...]`; observations are prepared already."""

    obs: Array
    action: Array
    log_prob: Array
    value: Array
    advantage: Array
    target: Array


def validate(config: PPOConfig, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    size, parts = config.steps_per_update, config.num_minibatches
    if size % parts:
        fits = [p for p in range(1, size + 1) if size % p == 0]
        below = max(p for p in fits if p < parts)
        above = min((p for p in fits if p > parts), default=below)
        raise ConfigError(
            f"num_envs * num_steps ({config.num_envs} * {config.num_steps} = {size}) "
            f"must be divisible by num_minibatches, got {parts}; "
            f"nearest: {below} or {above}."
        )
    sizes = config.hidden_sizes
    is_sizes = isinstance(sizes, tuple) and all(type(n) is int for n in sizes)
    if not is_sizes or not sizes or min(sizes) < 1:
        raise ConfigError(
            f"hidden_sizes must be at least one positive whole number, got {sizes!r}; "
            "for example (64, 64)."
        )
    check_loss("policy_loss", config.policy_loss, 2, "ClipDrift(0.2)")
    check_loss("value_loss", config.value_loss, 3, "SquaredError()")
    params = env.default_params
    try:
        make_head(env.action_space(params), config.policy)
        shape = obs_shape(env.observation_space(params))
        networks.make_torso(config.torso, shape, (1,), config.activation)
    except ValueError as error:
        raise ConfigError(f"{env.name}: {error}") from None


def make(
    config: PPOConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """PPO bound to a config and an environment; see `bind`."""
    setup = bind(config, env, axis_name)
    return Algorithm(partial(init, setup), partial(step, setup), partial(act, setup))


def bind(config: PPOConfig, env: Environment, axis_name: str | None = None) -> Setup:
    """Networks and environment of a config: what `init`, `step` and `act` work with.

    Args:
        config: its leaves may be traced.
        env: from `resolve_env`.
        axis_name: mapped axis over which this agent's environments are spread.
    """
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
    return Setup(
        config=config,
        stepper=stepper,
        obs_space=obs_space,
        head=head,
        actor=actor,
        critic=networks.Critic(torso()),
        num_updates=max(1, config.total_timesteps // config.steps_per_update),
        axis_name=axis_name,
    )


def init(setup: Setup, key: Array) -> PPOState:
    """Fresh networks and environments; the key is kept in the state."""
    config = setup.config
    # Updates fold 0, 1, 2, ... into the key; initialisation takes the other end.
    key_actor, key_critic, key_env = jax.random.split(
        jax.random.fold_in(key, 2**32 - 1), 3
    )
    num_envs = rollout.per_device(config.num_envs, setup.axis_name)
    envs = rollout.init_envs(setup.stepper, key_env, num_envs)
    shape = obs_shape(setup.obs_space)
    example = jnp.zeros((1, *shape))
    params = {
        "actor": setup.actor.init(key_actor, example),
        "critic": setup.critic.init(key_critic, example),
    }
    return PPOState(
        params=params,
        opt_state=_optimiser(config, config.learning_rate).init(
            optimiser.flatten(params)[0]
        ),
        obs_moments=normalise.init_moments(shape),
        reward_scale=normalise.RewardScale(
            normalise.init_moments(), jnp.zeros(num_envs)
        ),
        envs=envs,
        key=key,
        update=jnp.int32(0),
    )


def step(setup: Setup, state: PPOState) -> tuple[PPOState, Metrics]:
    """One update: collect, estimate advantages, minimise."""
    config = setup.config
    key_roll, key_fit = jax.random.split(jax.random.fold_in(state.key, state.update))

    envs, transitions, episodes = rollout.collect(
        setup.stepper,
        state.envs,
        partial(_act_and_log, setup, state.params["actor"]),
        partial(_prepare, setup, state.obs_moments),
        key_roll,
        config.num_steps,
        setup.head.noise,
    )
    batch, reward_scale = make_batch(setup, state, transitions)
    params, opt_state, losses = fit(setup, state, batch, key_fit)

    # One phase of averages over devices after another: see `collectives`.
    end = losses["policy_loss"]
    episodes = after(episodes, end, setup.axis_name)
    metrics = rollout.episode_metrics(episodes, setup.axis_name) | losses
    batch = after(batch, metrics["episode_return"], setup.axis_name)
    metrics["explained_variance"] = diagnostics.explained_variance(
        batch.value, batch.target, setup.axis_name
    )
    obs_moments = state.obs_moments
    if config.normalize_observations:
        features = to_features(setup.obs_space, transitions.obs)
        features = after(features, metrics["explained_variance"], setup.axis_name)
        obs_moments = normalise.merge(obs_moments, features, setup.axis_name)
    update = state.update + 1
    env_steps = update.astype(jnp.uint32) * jnp.uint32(config.steps_per_update)
    metrics["env_steps"] = env_steps
    new = PPOState(
        params, opt_state, obs_moments, reward_scale, envs, state.key, update
    )
    return new, metrics


def act(setup: Setup, state: PPOState, obs: Array, key: Array | None = None) -> Array:
    """The policy's action on observations `[..., *obs_shape]`.

    Args:
        setup: bound structure.
        state: of one agent.
        obs: as the environment gives them.
        key: consumed; without one the action is the deterministic one.
    """
    prepared = _prepare(setup, state.obs_moments, obs)
    outputs = setup.actor.apply(state.params["actor"], prepared)
    head = setup.head
    raw = head.mode(outputs) if key is None else head.sample(outputs, key)
    return head.to_env(raw)


def make_batch(
    setup: Setup, state: PPOState, transitions: Transition
) -> tuple[Batch, normalise.RewardScale]:
    """Values, advantages and targets of a rollout, flattened to `[N, ...]`."""
    config = setup.config
    prepare = partial(_prepare, setup, state.obs_moments)
    critic = state.params["critic"]
    obs = prepare(transitions.obs)
    value: Any = setup.critic.apply(critic, obs)
    # The value of the observation before any reset: what a time limit bootstraps on.
    next_value: Any = setup.critic.apply(critic, prepare(transitions.next_obs))

    reward, scale = transitions.reward, state.reward_scale
    done = transitions.terminated | transitions.truncated
    if config.normalize_rewards:
        scale, reward = normalise.scale_rewards(
            scale, reward, done, gamma=config.gamma, axis_name=setup.axis_name
        )
    advantage = gae(
        reward,
        value,
        next_value,
        transitions.terminated,
        transitions.truncated,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
    )
    batch = Batch(
        obs,
        transitions.action,
        transitions.log_prob,
        value,
        advantage,
        advantage + value,
    )
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)
    return flat, scale


def fit(
    setup: Setup, state: PPOState, batch: Batch, key: Array
) -> tuple[PyTree, PyTree, Metrics]:
    """Epochs of minibatch gradient steps; returns mean losses and diagnostics."""
    config = setup.config
    rate = config.learning_rate
    if config.anneal_learning_rate:
        rate = optimiser.annealed(rate, state.update, setup.num_updates)
    optim = _optimiser(config, rate)
    flat_params, restore = optimiser.flatten(state.params)

    def flat_loss(flat: Array, minibatch: Batch) -> tuple[Array, Metrics]:
        return loss(setup, restore(flat), minibatch)

    def minimise(carry: tuple, minibatch: Batch) -> tuple[tuple, Metrics]:
        flat, opt_state = carry
        grads, metrics = jax.grad(flat_loss, has_aux=True)(flat, minibatch)
        grads, metrics = pmean((grads, metrics), setup.axis_name)
        updates, opt_state = optim.update(grads, opt_state, flat)
        metrics["grad_norm"] = optimiser.grad_norm(opt_state)
        return (flat + updates, opt_state), metrics

    def epoch(carry: tuple, key_epoch: Array) -> tuple[tuple, Metrics]:
        order = shuffled_indices(key_epoch, batch.value.shape[0])
        parts = config.num_minibatches
        minibatches = jax.tree.map(
            lambda x: x[order].reshape(parts, -1, *x.shape[1:]), batch
        )
        return jax.lax.scan(minimise, carry, minibatches)

    keys = jax.random.split(key, config.num_epochs)
    start = (flat_params, state.opt_state)
    (flat_params, opt_state), metrics = jax.lax.scan(epoch, start, keys)
    means = {name: values.mean() for name, values in metrics.items()}
    # The whole update's divergence: how far the last pass left the old policy.
    means["approx_kl_last"] = metrics["approx_kl"][-1].mean()
    return restore(flat_params), opt_state, means


def loss(setup: Setup, params: PyTree, batch: Batch) -> tuple[Array, Metrics]:
    """The scalar loss of a minibatch and what there is to say about it."""
    config, head = setup.config, setup.head
    outputs = setup.actor.apply(params["actor"], batch.obs)
    value = setup.critic.apply(params["critic"], batch.obs)
    log_ratio = head.log_prob(outputs, batch.action) - batch.log_prob
    advantage = batch.advantage
    if config.normalize_advantages:
        advantage = normalise.standardise(advantage, setup.axis_name)

    policy_loss = surrogate(config.policy_loss, log_ratio, advantage).mean()
    value_loss = config.value_loss(value, batch.target, batch.value).mean()
    entropy = head.entropy(outputs).mean()
    total = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
    # Of the drift's own interval, or of the usual one where it has none.
    clip_eps = getattr(config.policy_loss, "clip_eps", 0.2)
    outside = jnp.abs(jnp.expm1(log_ratio)) > clip_eps
    return total, {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": diagnostics.approx_kl(log_ratio),
        "clip_fraction": outside.mean(dtype=jnp.float32),
    }


def _optimiser(
    config: PPOConfig, learning_rate: Array | float
) -> optax.GradientTransformation:
    return optimiser.adam(
        learning_rate, max_grad_norm=config.max_grad_norm, eps=config.adam_eps
    )


def _prepare(setup: Setup, moments: normalise.Moments, obs: Array) -> Array:
    """What the networks see: floats, normalised if the config says so."""
    features = to_features(setup.obs_space, obs)
    if setup.config.normalize_observations:
        features = normalise.normalise(moments, features)
    return features


def _act_and_log(
    setup: Setup, params: PyTree, obs: Array, noise: Array
) -> tuple[Array, Array, Array]:
    """Sample with one noise per environment: raw action, its log_prob, env action."""
    outputs = setup.actor.apply(params, obs)
    raw = setup.head.choose(outputs, noise)
    return raw, setup.head.log_prob(outputs, raw), setup.head.to_env(raw)

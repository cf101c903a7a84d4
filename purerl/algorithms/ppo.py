"""Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347).

Every update collects `T` steps in `B` environments with the current policy, then takes
several epochs of minibatch steps on

    L = -E[min(r A, clip(r, 1-eps, 1+eps) A)] + c_v E[value_loss] - c_e E[entropy]

with `r = pi(a|s) / pi_old(a|s)` and `A` the generalised advantage estimate, normalised
per minibatch. The clipping is the drift `policy_loss`, and any other drift can take its
place.

Defaults are CleanRL's (Huang et al. 2022, "The 37 implementation details of PPO"), and
as there they follow the actions: fields that are `auto` differ. For discrete actions
they are those of `ppo.py` for CartPole-v1. For continuous actions they are those of
`ppo_continuous_action.py`: observations and rewards are normalised (the value may move
by 0.2, which must be a fair part of the returns), there is no entropy bonus, and an
update is 10 epochs of 32 minibatches over 2,048 steps. Two things are not as there:
four environments collect 512 steps each, in place of one that collects 2,048, and the
step size is that of `ppo.py`, 2.5e-4 (there 3e-4).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import optax

from purerl.acting.environment import Environment
from purerl.acting.rollout import Rollout
from purerl.algorithms import on_policy, on_policy_config
from purerl.algorithms.checks import check_minibatches, check_standardised
from purerl.algorithms.on_policy import (
    Batch,
    OnPolicyState,
    Parts,
    build,
)
from purerl.algorithms.on_policy_config import OnPolicyConfig
from purerl.algorithms.on_policy_networks import CRITICS
from purerl.config import (
    AUTO,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_OR_NONE,
    ConfigError,
    config_dataclass,
    dynamic,
    is_auto,
    number_of,
    static,
)
from purerl.keys import update_keys
from purerl.learning import diagnostics, normalise, optimiser
from purerl.learning.minibatches import (
    PLAIN_STEPS_OF_TURN,
    Passes,
    is_one_loop,
    minimise,
    pass_means,
    step_means,
)
from purerl.learning.parts import frozen_in
from purerl.learning.returns import gae
from purerl.losses import ClipDrift, ClippedSquaredError, surrogate
from purerl.losses.check import check_loss
from purerl.networks import paired
from purerl.networks.distributions import is_discrete
from purerl.optimisers import Adam
from purerl.optimisers.first_order import is_known
from purerl.tracing import traced_for_cpu
from purerl.types import Algorithm, Array, Metrics, PyTree, Transition


@config_dataclass
class PPOConfig(OnPolicyConfig):
    """Proximal policy optimisation."""

    num_steps: int = static(
        AUTO,
        "Steps per environment and update; auto takes 128 for discrete actions, 512 "
        "for continuous ones.",
        POSITIVE,
    )
    num_epochs: int = static(
        AUTO,
        "Passes over the rollout per update; auto takes 4 for discrete actions, 10 for "
        "continuous ones.",
        POSITIVE,
    )
    num_minibatches: int = static(
        AUTO,
        "Gradient steps per pass; auto takes 4 for discrete actions, and for "
        "continuous ones up to 32, of 64 samples at least.",
        POSITIVE,
    )
    policy_loss: Any = dynamic(ClipDrift(0.2), "Drift of the policy loss.")
    value_loss: Any = dynamic(ClippedSquaredError(0.2), "Loss of the critic.")
    entropy_coef: float = dynamic(
        AUTO,
        "Weight of the entropy bonus; auto takes 0.01 for discrete actions, 0 for "
        "continuous ones.",
        NON_NEGATIVE,
    )
    value_coef: float = dynamic(0.5, "Weight of the value loss.", NON_NEGATIVE)
    max_grad_norm: float | None = dynamic(
        0.5, "Largest global gradient norm; None for no bound.", POSITIVE_OR_NONE
    )
    optimiser: Any = dynamic(Adam(eps=1e-5), "Optimiser of actor and critic.")
    anneal_learning_rate: bool = static(True, "Decay the step size linearly to 0.")
    critic_learning_rate: float | None = dynamic(
        None, "Step size of the critic; None takes learning_rate.", POSITIVE_OR_NONE
    )
    critic_optimiser: Any = dynamic(
        None, "Optimiser of the critic; None takes optimiser, one for both."
    )
    target_kl: float | None = dynamic(
        None,
        "Approximate KL divergence above which the passes of an update end.",
        POSITIVE_OR_NONE,
    )
    normalize_advantages: bool = static(
        True,
        "Standardise advantages, per minibatch or, with normalize_whole_batch, "
        "per update.",
    )
    normalize_whole_batch: bool = static(
        False, "Standardise advantages over the whole rollout, once per update."
    )
    normalize_observations: bool = static(
        AUTO,
        "Standardise observations by running moments; auto does where actions are "
        "continuous.",
    )
    normalize_rewards: bool = static(
        AUTO,
        "Divide rewards by the std of running returns; auto does where actions "
        "are continuous.",
    )

    @property
    def sequential_steps(self) -> int:
        """Dependent operations of one update: environment and gradient steps."""
        num_epochs = number_of(self, "num_epochs")
        num_minibatches = number_of(self, "num_minibatches")
        return number_of(self, "num_steps") + num_epochs * num_minibatches

    def automatic(self, env: Environment) -> dict[str, Any]:
        """Return CleanRL's numbers for the kind of actions; see the module."""
        if is_discrete(env.action_space(env.default_params)):
            return {
                "num_steps": 128,
                "num_epochs": 4,
                "num_minibatches": 4,
                "entropy_coef": 0.01,
                "normalize_observations": False,
                "normalize_rewards": False,
            }
        num_steps = 512 if is_auto(self.num_steps) else self.num_steps
        return {
            "num_steps": num_steps,
            "num_epochs": 10,
            "num_minibatches": _minibatches(self.num_envs * num_steps),
            "entropy_coef": 0.0,
            "normalize_observations": True,
            "normalize_rewards": True,
        }


def _minibatches(samples: int) -> int:
    """The most minibatches of one size, up to 32, that have 64 samples at least."""
    most = min(32, max(1, samples // 64))
    return max(parts for parts in range(1, most + 1) if samples % parts == 0)


def validate(
    config: PPOConfig, env: Environment, memory_shape: tuple[int, ...] | None = None
) -> None:
    """Check what fields have to do with one another and with the environment.

    Args:
        config: Config of the agent.
        env: Environment, from `resolve_env`.
        memory_shape: Shape of what actor and critic see in place of an observation.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    check_minibatches(config)
    if config.normalize_advantages:
        samples, sizes = config.num_envs * config.num_steps, "num_envs * num_steps"
        if not config.normalize_whole_batch:
            samples //= config.num_minibatches
            sizes += " / num_minibatches"
        check_standardised(samples, sizes)
    if config.normalize_whole_batch and not config.normalize_advantages:
        raise ConfigError(
            "normalize_whole_batch=True has no effect with normalize_advantages=False; "
            "set that to True, or leave this out."
        )
    on_policy_config.validate(config, env, memory_shape)
    check_loss("policy_loss", config.policy_loss, 2, "ClipDrift(0.2)")


def make(
    config: PPOConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Build PPO for a config and an environment; see `on_policy.build`.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread, if any.
    """
    parts = build(config, env, axis_name)
    return Algorithm(
        partial(init, parts),
        partial(step, parts),
        partial(on_policy.act, parts),
        hosted=partial(on_policy.hosted, parts, learn),
    )


def init(parts: Parts[PPOConfig], key: Array) -> OnPolicyState:
    """Make fresh networks and environments; the key is kept in the state."""

    def init_optimiser(params: PyTree) -> PyTree:
        optim = optimiser_of(parts.config, params)
        return optim.init(optimiser.flatten(params)[0])

    return on_policy.init(parts, key, init_optimiser)


def step(
    parts: Parts[PPOConfig], state: OnPolicyState
) -> tuple[OnPolicyState, Metrics]:
    """Make one update: collect, estimate advantages, minimise."""
    keys = update_keys(state, 4)
    return learn(parts, state, on_policy.collect(parts, state, keys[:3]), keys)


def learn(
    parts: Parts[PPOConfig],
    state: OnPolicyState,
    collected: Rollout,
    keys: Array,
) -> tuple[OnPolicyState, Metrics]:
    """Estimate the advantages of a rollout, and minimise; return state and metrics.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State with which the rollout was collected.
        collected: The rollout, from `on_policy.collect`.
        keys: Keys of the update, the first three of which the rollout has used.
    """
    envs, transitions, episodes = collected
    batch, reward_scale = make_batch(parts, state, transitions)
    params, opt_state, losses = fit(parts, state, batch, keys[3])
    metrics = on_policy.report(parts, state.update, episodes, batch, losses)
    new = OnPolicyState(
        params=params,
        opt_state=opt_state,
        obs_moments=on_policy.observe(
            parts, state.obs_moments, transitions.obs, metrics["explained_variance"]
        ),
        reward_scale=reward_scale,
        envs=envs,
        key=state.key,
        update=state.update + 1,
    )
    return new, metrics


def make_batch(
    parts: Parts[PPOConfig], state: OnPolicyState, transitions: Transition
) -> tuple[Batch, normalise.RewardScale]:
    """Compute values, advantages and targets of a rollout, flattened to `[N, ...]`.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State with which the rollout was collected.
        transitions: `[T, B, ...]` transitions of the rollout.
    """
    config = parts.config
    seen, scale = on_policy.estimate(parts, state, transitions)
    advantage = gae(
        seen.reward,
        seen.value,
        seen.next_value,
        transitions.terminated,
        transitions.truncated,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
    )
    batch = Batch(
        obs=seen.obs,
        action=transitions.action,
        log_prob=transitions.log_prob,
        value=seen.value,
        advantage=standardised(parts, advantage),
        target=advantage + seen.value,
    )
    return on_policy.flatten(batch), scale


def standardised(parts: Parts[PPOConfig], advantage: Array) -> Array:
    """Return the advantages of a rollout, standardised where that is done at once.

    Args:
        parts: Networks, environments and config; see `build`.
        advantage: `[T, B]` advantages.
    """
    config = parts.config
    if not (config.normalize_advantages and config.normalize_whole_batch):
        return advantage
    return normalise.standardise(advantage, parts.axis_name)


def fit(
    parts: Parts[PPOConfig], state: OnPolicyState, batch: Batch, key: Array
) -> tuple[PyTree, PyTree, Metrics]:
    """Take epochs of minibatch gradient steps; return mean losses and diagnostics.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State before the update.
        batch: `[N, ...]` samples of the rollout.
        key: Random key, consumed.
    """
    passes, by_sample = make_passes(parts, state.params, state.update), False
    if not traced_for_cpu():
        parts, batch, passes = with_few_kernels(parts, state.params, batch, passes)
        by_sample = parts.axis_name is None and is_one_loop(batch, passes)
    minimised = partial(loss, parts, by_sample=by_sample)
    params, opt_state, metrics = minimise(
        minimised, state.params, state.opt_state, batch, key, passes
    )
    if by_sample:
        metrics = step_means(metrics)
    return params, opt_state, pass_means(metrics)


def with_few_kernels(
    parts: Parts[PPOConfig], params: PyTree, batch: Batch, passes: Passes
) -> tuple[Parts[PPOConfig], Batch, Passes]:
    """Return what `fit` minimises with, for an accelerator; the result is the same.

    Advantages are standardised for all minibatches of a pass at once, and an actor and
    a critic of one shape are one network (`networks.paired`).

    Args:
        parts: Networks, environments and config; see `build`.
        params: Parameters of `actor` and `critic`.
        batch: `[N, ...]` samples of the rollout.
        passes: Passes of gradient steps through the batch.
    """
    config = parts.config
    passes = passes._replace(steps_of_turn=PLAIN_STEPS_OF_TURN)
    if config.normalize_advantages and not config.normalize_whole_batch:
        # The loss gets advantages that are standardised already.
        parts = parts._replace(config=config.replace(normalize_whole_batch=True))
        passes = passes._replace(prepare=partial(_standardise, parts.axis_name))
    if not _is_paired(parts):
        return parts, batch, passes
    form = optimiser.Form(
        partial(paired.join, parts.actor), lambda pair: paired.split(pair, params)
    )
    obs = paired.with_ones(batch.obs.reshape(batch.obs.shape[0], -1))
    return parts, batch._replace(obs=obs), passes._replace(form=form)


def _standardise(axis_name: str | None, batch: Batch) -> Batch:
    advantage = normalise.standardise(batch.advantage, axis_name)
    return batch._replace(advantage=advantage)


def _is_paired(parts: Parts[PPOConfig]) -> bool:
    """Return whether actor and critic learn as one network."""
    config = parts.config
    is_plain = not (config.shared_torso or config.frozen)
    return (
        is_plain
        and config.critic_learning_rate is None
        and config.critic_optimiser is None
        and is_known(config.optimiser)
        and paired.can_be_paired(parts.actor, parts.critic)
    )


def loss(
    parts: Parts[PPOConfig], params: PyTree, batch: Batch, by_sample: bool = False
) -> tuple[Array, Metrics]:
    """Return the scalar loss of a minibatch and its metrics.

    Args:
        parts: Networks, environments and config; see `build`.
        params: Parameters of `actor` and `critic`.
        batch: `[N, ...]` samples of the minibatch.
        by_sample: Whether to return the metrics of each sample, `[N]`, in place of
            their means: on an accelerator these take a kernel in every gradient step.
    """
    config, head = parts.config, parts.head
    inputs = on_policy.inputs(parts, params, batch.obs)
    outputs, value, activity = on_policy.outputs(parts, params, inputs)
    log_ratio = head.log_prob(outputs, batch.action) - batch.log_prob
    advantage = batch.advantage
    if config.normalize_advantages and not config.normalize_whole_batch:
        advantage = normalise.standardise(advantage, parts.axis_name)

    # Ratios are counted outside the drift's own interval, or the usual one if it has
    # none.
    low, high = getattr(config.policy_loss, "trust", (0.2, 0.2))
    # One comparison: with two of them an accelerator has a kernel more.
    off_centre = jnp.expm1(log_ratio) - (high - low) / 2
    samples = {
        "policy_loss": surrogate(config.policy_loss, log_ratio, advantage),
        "value_loss": config.value_loss(value, batch.target, batch.value),
        "entropy": head.entropy(outputs),
        "approx_kl": diagnostics.approx_kl(log_ratio),
        "clip_fraction": jnp.abs(off_centre) > (high + low) / 2,
    }
    metrics = diagnostics.means(samples)
    if activity is not None:
        metrics["activity"] = activity
    total = metrics["policy_loss"] + config.value_coef * metrics["value_loss"]
    total = total - config.entropy_coef * metrics["entropy"]
    return total, samples if by_sample else metrics


def make_passes(parts: Parts[PPOConfig], params: PyTree, update: Array) -> Passes:
    """Return how the gradient steps of an update are taken, and when they end.

    Args:
        parts: Networks, environments and config; see `build`.
        params: Parameters as layers.
        update: `[]` int32, number of updates done.
    """
    config = parts.config
    target_kl = config.target_kl

    def is_last(last: Metrics) -> Array:
        # The test comes after each pass, on its last minibatch, as in CleanRL's code.
        return last["approx_kl"] > target_kl  # type: ignore[operator]

    return Passes(
        optim=optimiser_of(
            config, params, lambda rate: on_policy.annealed(parts, rate, update)
        ),
        num_epochs=config.num_epochs,
        num_minibatches=config.num_minibatches,
        axis_name=parts.axis_name,
        is_last=None if target_kl is None else is_last,
        tells=on_policy.sees_activity(config),
    )


def optimiser_of(
    config: PPOConfig,
    params: PyTree,
    anneal: Callable[[Array | float], Array | float] = lambda rate: rate,
) -> optax.GradientTransformation:
    """Return the optimiser of a flat vector of parameters, which clips their gradient.

    Args:
        config: Config of the agent; its leaves may be traced.
        params: Parameters as layers, by network.
        anneal: Function from a step size of the config to that of the update.
    """
    layers = optimiser.layers_of(params)
    rate, critic_rate = config.learning_rate, config.critic_learning_rate
    max_norm, frozen = config.max_grad_norm, frozen_in(config.frozen)
    if config.critic_optimiser is not None:
        return _two_optimisers(config, params, anneal)
    if critic_rate is None:
        return optimiser.make(config.optimiser, anneal(rate), max_norm, layers, frozen)
    # A step of every optimiser here is proportional to its step size.
    rates = {name: critic_rate if name in CRITICS else rate for name in params}
    optim = optax.chain(
        optimiser.clip_by_global_norm(max_norm),
        optimiser.transformation(config.optimiser, 1.0, layers),
        optimiser.scaled(params, {name: anneal(x) for name, x in rates.items()}),
    )
    tells = optimiser.sees_frozen(config.optimiser)
    return optimiser.keep_frozen(optim, layers, frozen, tells)


def _two_optimisers(
    config: PPOConfig,
    params: PyTree,
    anneal: Callable[[Array | float], Array | float],
) -> optax.GradientTransformation:
    """The optimiser of the critic beside that of all other networks.

    The gradient of all of them is clipped at once before, as with one optimiser.
    """
    rate, critic_rate = config.learning_rate, config.critic_learning_rate
    frozen = frozen_in(config.frozen)

    def moving(names: tuple[str, ...], chosen: Any, rate: Any) -> Any:
        layers = optimiser.layers_of({name: params[name] for name in names})
        return optimiser.transformation(chosen, anneal(rate), layers, frozen)

    critic = tuple(name for name in params if name in CRITICS)
    others = tuple(name for name in params if name not in CRITICS)
    own = optimiser.without_noise(config.critic_optimiser)
    optims = {
        others: moving(others, config.optimiser, rate),
        critic: moving(critic, own, rate if critic_rate is None else critic_rate),
    }
    optim = optax.chain(
        optimiser.clip_by_global_norm(config.max_grad_norm),
        optimiser.separate(params, optims),
    )
    # The norm that is clipped must not see what is frozen either.
    return optimiser.keep_frozen(optim, optimiser.layers_of(params), frozen)

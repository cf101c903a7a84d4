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
by 0.2, which must be a fair part of the returns), entropy earns nothing, and an update
is 10 epochs of 32 minibatches over 2,048 steps. Two things are not as there: four
environments collect 512 steps each, in place of one that collects 2,048, and the step
size is that of `ppo.py`, 2.5e-4 (there 3e-4).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from purerl.acting.environment import Environment
from purerl.algorithms import on_policy
from purerl.algorithms.checks import check_minibatches
from purerl.algorithms.on_policy import (
    Batch,
    OnPolicyConfig,
    OnPolicyState,
    Parts,
    build,
)
from purerl.config import (
    AUTO,
    NON_NEGATIVE,
    POSITIVE,
    config_dataclass,
    dynamic,
    is_auto,
    number_of,
    static,
)
from purerl.keys import update_key
from purerl.learning import diagnostics, normalise, optimiser
from purerl.learning.minibatches import Passes, minimise
from purerl.learning.returns import gae
from purerl.losses import ClipDrift, ClippedSquaredError, surrogate
from purerl.losses.check import check_loss
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
    max_grad_norm: float = dynamic(0.5, "Largest global gradient norm.", POSITIVE)
    adam_eps: float = dynamic(1e-5, "Adam's epsilon.", POSITIVE)
    anneal_learning_rate: bool = static(True, "Decay the step size linearly to 0.")
    normalize_advantages: bool = static(True, "Standardise per minibatch.")
    normalize_observations: bool = static(
        AUTO,
        "Standardise by running moments; auto does where actions are continuous.",
    )
    normalize_rewards: bool = static(
        AUTO,
        "Scale by the std of running returns; auto does where actions are continuous.",
    )

    @property
    def sequential_steps(self) -> int:
        """Dependent operations of one update: environment and gradient steps."""
        num_epochs = number_of(self, "num_epochs")
        num_minibatches = number_of(self, "num_minibatches")
        return number_of(self, "num_steps") + num_epochs * num_minibatches

    def automatic(self, env: Environment) -> dict[str, Any]:
        """Return CleanRL's numbers for the kind of actions; see the module."""
        is_discrete = hasattr(env.action_space(env.default_params), "n")
        if is_discrete:
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


def validate(config: PPOConfig, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    check_minibatches(config)
    on_policy.validate(config, env)
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
        partial(init, parts), partial(step, parts), partial(on_policy.act, parts)
    )


def init(parts: Parts[PPOConfig], key: Array) -> OnPolicyState:
    """Make fresh networks and environments; the key is kept in the state."""

    def init_optimiser(params: PyTree) -> PyTree:
        optim = _optimiser(parts.config, parts.config.learning_rate)
        return optim.init(optimiser.flatten(params)[0])

    return on_policy.init(parts, key, init_optimiser)


def step(
    parts: Parts[PPOConfig], state: OnPolicyState
) -> tuple[OnPolicyState, Metrics]:
    """Make one update: collect, estimate advantages, minimise."""
    key_roll, key_fit = jax.random.split(update_key(state))
    envs, transitions, episodes = on_policy.collect(parts, state, key_roll)
    batch, reward_scale = make_batch(parts, state, transitions)
    params, opt_state, losses = fit(parts, state, batch, key_fit)
    metrics = on_policy.report(parts, state.update, episodes, batch, losses)
    new = OnPolicyState(
        params=params,
        opt_state=opt_state,
        obs_moments=on_policy.observe(
            parts, state.obs_moments, transitions.obs, metrics
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
        advantage=advantage,
        target=advantage + seen.value,
    )
    return on_policy.flatten(batch), scale


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
    config = parts.config
    rate = on_policy.annealed(parts, config.learning_rate, state.update)
    params, opt_state, metrics = minimise(
        partial(loss, parts),
        state.params,
        state.opt_state,
        batch,
        key,
        Passes(
            optim=_optimiser(config, rate),
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
            axis_name=parts.axis_name,
        ),
    )
    means = {name: values.mean() for name, values in metrics.items()}
    # The whole update's divergence: how far the last pass left the old policy.
    means["approx_kl_last"] = metrics["approx_kl"][-1].mean()
    return params, opt_state, means


def loss(
    parts: Parts[PPOConfig], params: PyTree, batch: Batch
) -> tuple[Array, Metrics]:
    """Return the scalar loss of a minibatch and its metrics.

    Args:
        parts: Networks, environments and config; see `build`.
        params: Parameters of `actor` and `critic`.
        batch: `[N, ...]` samples of the minibatch.
    """
    config, head = parts.config, parts.head
    outputs = parts.actor.apply(params["actor"], batch.obs)
    value = parts.critic.apply(params["critic"], batch.obs)
    log_ratio = head.log_prob(outputs, batch.action) - batch.log_prob
    advantage = batch.advantage
    if config.normalize_advantages:
        advantage = normalise.standardise(advantage, parts.axis_name)

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

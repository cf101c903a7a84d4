"""Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347).

Every update collects `T` steps in `B` environments with the current policy, then takes
several epochs of minibatch steps on

    L = -E[min(r A, clip(r, 1-eps, 1+eps) A)] + c_v E[value_loss] - c_e E[entropy]

with `r = pi(a|s) / pi_old(a|s)` and `A` the generalised advantage estimate, normalised
per minibatch. The clipping is the drift `policy_loss`, and any other drift can take its
place.

Defaults are CleanRL's (Huang et al. 2022, "The 37 implementation details of PPO"): for
discrete actions those of `ppo.py`, for continuous ones of `ppo_continuous_action.py`.
Two differ from the latter: four environments collect 512 steps each (there one collects
2,048), and the step size is 2.5e-4 (there 3e-4).
"""

from typing import Any

import jax.numpy as jnp

from purerl.accelerator.paired import minimise_in_few_kernels
from purerl.acting.rollout import Played
from purerl.algorithms import on_policy, policy_gradient
from purerl.algorithms.memory import MemoryConfig, has_memory
from purerl.algorithms.on_policy import Agent, Learned, OnPolicyState
from purerl.algorithms.policy_gradient import Batch, PolicyGradientConfig
from purerl.config import config_dataclass, dynamic, is_auto, static
from purerl.envs.base import Environment
from purerl.fields import (
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_OR_NONE,
    by_actions,
    values_by_actions,
)
from purerl.learning.averages import RewardScale, means, standardise
from purerl.losses.policy import ClipDrift
from purerl.losses.value import ClippedSquaredError
from purerl.networks.distributions import is_discrete
from purerl.optimisers.first_order import Adam
from purerl.types import Algorithm, Array, Metrics, PyTree


@config_dataclass
class PPOConfig(PolicyGradientConfig, MemoryConfig):
    """Proximal policy optimisation."""

    num_steps: int = by_actions(static, 128, 512, "Steps of a rollout;", POSITIVE)
    num_epochs: int = by_actions(static, 4, 10, "Passes over a rollout;", POSITIVE)
    num_minibatches: int = by_actions(
        static, 4, "up to 32, of 64 samples", "Gradient steps per pass;", POSITIVE
    )
    policy_loss: Any = dynamic(ClipDrift(0.2), "Drift of the policy loss.")
    value_loss: Any = dynamic(ClippedSquaredError(0.2), "Loss of the critic.")
    entropy_coef: float = by_actions(dynamic, 0.01, 0.0, "Entropy bonus;", NON_NEGATIVE)
    value_coef: float = dynamic(0.5, "Weight of the value loss.", NON_NEGATIVE)
    max_grad_norm: float | None = dynamic(0.5, "Gradient clipping.", POSITIVE_OR_NONE)
    optimiser: Any = dynamic(Adam(eps=1e-5), "Optimiser of actor and critic.")
    anneal_learning_rate: bool = True
    critic_learning_rate: float | None = dynamic(
        None, "Step size of the critic; None takes learning_rate.", POSITIVE_OR_NONE
    )
    target_kl: float | None = dynamic(None, "KL that ends an update.", POSITIVE_OR_NONE)
    normalize_advantages: bool = static(True, "Standardise advantages, per minibatch.")
    normalize_whole_batch: bool = static(False, "Standardise advantages per update.")
    normalize_observations: bool = by_actions(static, False, True, "Normalise inputs;")
    normalize_rewards: bool = by_actions(static, False, True, "Scale rewards;")

    def automatic(self, env: Environment) -> dict[str, Any]:
        """Return CleanRL's numbers for the kind of actions; see the module."""
        is_continuous = not is_discrete(env.action_space(env.default_params))
        values = values_by_actions(self, "continuous" if is_continuous else "discrete")
        if is_continuous and has_memory(self):
            # A gradient step goes through all steps of a rollout.
            values |= {"num_steps": 128, "num_epochs": 4}
        num_steps = values["num_steps"] if is_auto(self.num_steps) else self.num_steps
        values |= {"num_minibatches": 4, "sequence_length": num_steps}
        if is_continuous and not has_memory(self):
            # Minibatches of one size, of 64 samples at least.
            samples = self.num_envs * num_steps
            most = min(32, max(1, samples // 64))
            fits = [parts for parts in range(1, most + 1) if samples % parts == 0]
            values["num_minibatches"] = max(fits)
        return values


def make(
    config: PPOConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Bind PPO to a config, whose leaves may be traced, and to an environment."""
    return on_policy.algorithm(make_agent(config, env, axis_name), learn)


def make_agent(config: Any, env: Environment, axis_name: str | None = None) -> Agent:
    """Make actor, critic and environments of a config."""
    agent = policy_gradient.make_agent(config, env, axis_name)
    return agent._replace(few_kernels=minimise_in_few_kernels)


def learn(agent: Agent, state: OnPolicyState, played: Played, key: Array) -> Learned:
    """Estimate the advantages of a rollout, and take epochs of minibatch steps."""
    samples, reward_scale = targets(agent, state, played)
    params, opt_state, losses = on_policy.fit(agent, state, played, loss, samples, key)
    values = samples.value.ravel(), samples.target.ravel()
    return Learned(params, opt_state, losses, reward_scale, values)


def targets(
    agent: Agent, state: OnPolicyState, played: Played
) -> tuple[Batch, RewardScale]:
    """Return samples `[T, B, ...]`, and statistics of returns with this rollout in."""
    config, transitions = agent.config, played.transitions
    seen, reward_scale = policy_gradient.estimate(agent, state, played)
    advantage = policy_gradient.advantages(agent, seen, transitions)
    target = advantage + seen.value
    if config.normalize_advantages and config.normalize_whole_batch:
        advantage = standardise(advantage, agent.axis_name)
    action, log_prob = transitions.action, transitions.log_prob
    batch = Batch(seen.obs, action, log_prob, seen.value, advantage, target)
    return batch, reward_scale


def loss(
    agent: Agent, params: PyTree, rows: Any, by_sample: bool = False
) -> tuple[Array, Metrics]:
    """Return the loss of a minibatch of `Agent.rows_of`, and its metrics.

    With `by_sample` these are of each sample, `[N]`: on an accelerator their means take
    a kernel in every gradient step.
    """
    config, head = agent.config, agent.head
    batch = agent.samples_of(params, rows)
    outputs, value, activity = policy_gradient.outputs(agent, params, batch.obs)
    log_ratio = head.log_prob(outputs, batch.action) - batch.log_prob
    advantage = batch.advantage  # On an accelerator it is standardised already.
    if config.normalize_advantages and not config.normalize_whole_batch:
        advantage = standardise(advantage, agent.axis_name)

    # Ratios are counted outside the drift's own interval, or the usual one.
    low, high = getattr(config.policy_loss, "trust", (0.2, 0.2))
    # One comparison: with two of them an accelerator has a kernel more.
    off_centre = jnp.expm1(log_ratio) - (high - low) / 2
    drift = config.policy_loss(log_ratio, advantage)
    samples = {
        "policy_loss": drift - jnp.exp(log_ratio) * advantage,
        "value_loss": config.value_loss(value, batch.target, batch.value),
        "entropy": head.entropy(outputs),
        # KL(old || new) by the samples of the old policy: k3 in Schulman (2020).
        "approx_kl": jnp.expm1(log_ratio) - log_ratio,
        "clip_fraction": jnp.abs(off_centre) > (high + low) / 2,
    }
    metrics = means(samples)
    if activity is not None:
        metrics["activity"] = activity
    total = metrics["policy_loss"] + config.value_coef * metrics["value_loss"]
    total = total - config.entropy_coef * metrics["entropy"]
    return total, samples if by_sample else metrics

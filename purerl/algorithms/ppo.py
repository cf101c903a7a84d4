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

from purerl.accelerator.minimise import minimise_in_few_kernels
from purerl.acting.rollout import Played
from purerl.algorithms import on_policy, policy_gradient
from purerl.algorithms.checks import check_standardised
from purerl.algorithms.memory_config import (
    MemoryConfig,
    check_rows,
    has_memory,
)
from purerl.algorithms.on_policy import Agent, Learned, OnPolicyState
from purerl.algorithms.policy_gradient import Batch, PolicyGradientConfig
from purerl.config import (
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_OR_NONE,
    by_actions,
    config_dataclass,
    dynamic,
    is_auto,
    number_of,
    static,
    values_by_actions,
)
from purerl.envs.base import Environment
from purerl.learning import diagnostics
from purerl.learning.minibatches import minimise, pass_means
from purerl.learning.normalise import RewardScale, standardise
from purerl.losses import ClipDrift, ClippedSquaredError, surrogate
from purerl.losses.check import check_loss
from purerl.networks.distributions import is_discrete
from purerl.optimisers import Adam
from purerl.tracing import traced_for_cpu
from purerl.types import Algorithm, Array, Metrics, PyTree


@config_dataclass
class PPOConfig(PolicyGradientConfig, MemoryConfig):
    """Proximal policy optimisation."""

    num_steps: int = by_actions(
        static, 128, 512, "Steps per environment and update;", POSITIVE
    )
    num_epochs: int = by_actions(
        static, 4, 10, "Passes over the rollout per update;", POSITIVE
    )
    num_minibatches: int = by_actions(
        static, 4, "up to 32, of 64 samples", "Gradient steps per pass;", POSITIVE
    )
    policy_loss: Any = dynamic(ClipDrift(0.2), "Drift of the policy loss.")
    value_loss: Any = dynamic(ClippedSquaredError(0.2), "Loss of the critic.")
    entropy_coef: float = by_actions(
        dynamic, 0.01, 0.0, "Weight of the entropy bonus;", NON_NEGATIVE
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
    normalize_observations: bool = by_actions(
        static, False, True, "Standardise observations by running moments;"
    )
    normalize_rewards: bool = by_actions(
        static, False, True, "Divide rewards by the std of running returns;"
    )

    @property
    def sequential_steps(self) -> int:
        """Dependent operations of one update; a gradient step runs through time too."""
        num_epochs = number_of(self, "num_epochs")
        gradient_steps = num_epochs * number_of(self, "num_minibatches")
        return number_of(self, "num_steps") + gradient_steps * self.steps_of_gradient

    def automatic(self, env: Environment) -> dict[str, Any]:
        """Return CleanRL's numbers for the kind of actions; see the module."""
        is_continuous = not is_discrete(env.action_space(env.default_params))
        # With a memory a gradient step goes through all steps of a rollout.
        is_long = is_continuous and not has_memory(self)
        values = values_by_actions(self, "continuous" if is_continuous else "discrete")
        if is_continuous and has_memory(self):
            values |= {"num_steps": 128, "num_epochs": 4}
        num_steps = values["num_steps"] if is_auto(self.num_steps) else self.num_steps
        samples = self.num_envs * num_steps
        values["num_minibatches"] = _minibatches(samples) if is_long else 4
        return {**values, "sequence_length": num_steps}


def _minibatches(samples: int) -> int:
    """The most minibatches of one size, up to 32, that have 64 samples at least."""
    most = min(32, max(1, samples // 64))
    return max(parts for parts in range(1, most + 1) if samples % parts == 0)


def validate(config: PPOConfig, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    check_rows(config)
    if config.normalize_advantages:
        samples, sizes = config.num_envs * config.num_steps, "num_envs * num_steps"
        if not config.normalize_whole_batch:
            samples //= config.num_minibatches
            sizes += " / num_minibatches"
        check_standardised(samples, sizes)
    policy_gradient.validate(config, env)
    check_loss("policy_loss", config.policy_loss, 2, "ClipDrift(0.2)")


def make(
    config: PPOConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Bind PPO to a config and an environment from `resolve_env`.

    Leaves of the config may be traced; `axis_name` is the mapped axis over which this
    agent's environments are spread, if any.
    """
    return algorithm(policy_gradient.make_agent(config, env, axis_name))


def algorithm(agent: Agent) -> Algorithm:
    """Return PPO of an agent."""
    return on_policy.algorithm(agent, learn)


def learn(agent: Agent, state: OnPolicyState, played: Played, key: Array) -> Learned:
    """Estimate the advantages of a rollout, and take epochs of minibatch steps."""
    samples, reward_scale = targets(agent, state, played)
    rows = on_policy.rows_of(agent, state, played, samples)
    params, opt_state, losses = fit(agent, state, rows, key)
    values = samples.value.ravel(), samples.target.ravel()
    return Learned(params, opt_state, losses, reward_scale, values)


def targets(
    agent: Agent, state: OnPolicyState, played: Played
) -> tuple[Batch, RewardScale]:
    """Return samples `[T, B, ...]` with advantages and targets (equations 11 and 12).

    And the statistics of returns with this rollout in.
    """
    config, transitions = agent.config, played.transitions
    seen, reward_scale = policy_gradient.estimate(agent, state, played)
    advantage = policy_gradient.advantages(agent, seen, transitions)
    target = advantage + seen.value
    if config.normalize_advantages and config.normalize_whole_batch:
        advantage = standardise(advantage, agent.axis_name)
    action, log_prob = transitions.action, transitions.log_prob
    batch = Batch(seen.obs, action, log_prob, seen.value, advantage, target)
    return batch, reward_scale


def fit(
    agent: Agent, state: OnPolicyState, rows: Any, key: Array
) -> tuple[PyTree, PyTree, Metrics]:
    """Take epochs of minibatch gradient steps; return mean losses and diagnostics.

    Args:
        agent: Networks, environments and config.
        state: State before the update.
        rows: Rows of the rollout, see `on_policy.rows_of`.
        key: Random key, consumed.
    """
    passes = on_policy.passes_of(agent, state)._replace(
        is_last=_is_too_far(agent.config),
        tells=policy_gradient.sees_activity(agent.config),
        begin=partial(on_policy.begun, agent) if agent.memory else None,
    )
    start = state.params, state.opt_state
    if traced_for_cpu() or agent.memory:
        found = minimise(partial(loss, agent), *start, rows, key, passes)
    else:
        found = minimise_in_few_kernels(agent, loss, *start, rows, key, passes)
    params, opt_state, metrics = found
    return params, opt_state, pass_means(metrics)


def loss(
    agent: Agent, params: PyTree, rows: Any, by_sample: bool = False
) -> tuple[Array, Metrics]:
    """Return the scalar loss of a minibatch and its metrics.

    Args:
        agent: Networks, environments and config.
        params: Parameters by network.
        rows: Rows of the minibatch, see `on_policy.rows_of`.
        by_sample: Return the metrics of each sample, `[N]`, in place of their means: on
            an accelerator these take a kernel in every gradient step.
    """
    config, head = agent.config, agent.head
    batch = on_policy.samples_of(agent, params, rows)
    outputs, value, activity = policy_gradient.outputs(agent, params, batch.obs)
    log_ratio = head.log_prob(outputs, batch.action) - batch.log_prob
    advantage = batch.advantage
    if config.normalize_advantages and not config.normalize_whole_batch:
        advantage = standardise(advantage, agent.axis_name)

    # Ratios are counted outside the drift's own interval, or the usual one.
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


def _is_too_far(config: PPOConfig) -> Callable[[Metrics], Array] | None:
    """Whether the policy has moved beyond `target_kl`, by a pass's last minibatch."""
    target_kl = config.target_kl
    return None if target_kl is None else lambda last: last["approx_kl"] > target_kl

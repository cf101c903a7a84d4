"""Learned policy gradient (LPG; Oh et al. 2020, arXiv:2007.08794).

The agent has a policy `pi(a|s)` and a prediction `y(s)`, a distribution over `M` values
of which nobody has said what they mean. Every update collects `T` steps in `B`
environments and asks a *rule* what both shall become. The rule sees rewards, ends of
episodes, the probabilities of the actions and the predictions, and returns a target of
the policy `pi_hat`, a number for each step, and a target of the prediction `y_hat`. The
agent takes one step along

    E[pi_hat grad log pi(a|s)  -  alpha_y grad KL(y(s) || y_hat)]

with the targets held fixed. What is usually written by hand, a value function and how
it bootstraps, is the rule's own affair: the rule is a leaf of the config, a pytree that
can be swept and evolved, and `rules.LPGRule` is the paper's recurrent network.

The targets are constants of the agent's gradient, but not cut off from the rule: an
update is differentiable with respect to the rule's numbers, for meta-gradients.

Without a learned rule, the default rule is advantage actor-critic, with the prediction
as a categorical critic: see `rules.ActorCriticRule`. The length of rollouts, the number
of environments and `alpha_y` are the defaults of the authors' code of Jackson et al.
(2023, "Discovering general reinforcement learning algorithms with adversarial
environment design", github.com/EmptyJackson/groove); the optimiser's numbers are ours.
"""

from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl import networks
from purerl.acting.rollout import Played, Transition
from purerl.algorithms import checks, network_config, on_policy, policy_gradient
from purerl.algorithms.network_config import ActorConfig
from purerl.algorithms.on_policy import Agent, Learned, OnPolicyState
from purerl.config import ConfigError, config_dataclass, dynamic, static
from purerl.envs.base import Environment
from purerl.fields import AUTO, NON_NEGATIVE, POSITIVE, POSITIVE_OR_NONE
from purerl.learning import averages
from purerl.networks import observe
from purerl.networks.distributions import is_discrete, make_head
from purerl.optimisers import Adam
from purerl.rules import ActorCriticRule, RuleInputs, Targets
from purerl.rules.check import check_rule
from purerl.types import Algorithm, Array, Metrics, PyTree

# The paper's size of the prediction, for rules that do not set one.
PREDICTION_SIZE = 30


@config_dataclass
class LPGConfig(ActorConfig):
    """Learned policy gradient."""

    num_envs: int = 64
    num_steps: int = static(20, "Steps per environment and update.", POSITIVE)
    rule: Any = dynamic(ActorCriticRule(), "Rule that makes the targets.")
    prediction_size: int = static(AUTO, "Size of y; auto: the rule's.", POSITIVE)
    prediction_coef: float = dynamic(0.5, "Weight of the prediction.", NON_NEGATIVE)
    entropy_coef: float = dynamic(0.0, "Weight of the entropy bonus.", NON_NEGATIVE)
    learning_rate: float = 5e-3
    optimiser: Any = dynamic(Adam(), "Optimiser of policy and prediction.")
    max_grad_norm: float | None = dynamic(None, "Gradient clipping.", POSITIVE_OR_NONE)
    anneal_learning_rate: bool = static(False, "Decay the step size linearly to 0.")
    shared_torso: bool = static(False, "Give policy and prediction one torso.")

    @property
    def sequential_steps(self) -> int:
        """Dependent operations of one update: the rollout, its way back, one step."""
        return 2 * self.num_steps + 1

    def automatic(self, env: Environment) -> dict[str, Any]:
        """Return the size of the prediction that the rule is made for."""
        del env
        size = getattr(self.rule, "prediction_size", PREDICTION_SIZE)
        return {"prediction_size": size}


class Batch(NamedTuple):
    """The samples of the gradient step, `[T, B, ...]`; observations are prepared."""

    obs: Array
    action: Array
    targets: Targets


def validate(config: LPGConfig, env: Environment) -> None:
    """Check the networks and the rule against the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    check_rule(config.rule, config.prediction_size)
    space = env.action_space(env.default_params)
    if not is_discrete(space):
        raise ConfigError(
            "LPGConfig needs discrete actions, whose probabilities the rule sees, got "
            f"{space} of {env.name}; use PPOConfig or VPGConfig."
        )
    checks.check_shared(config)
    num, size = make_head(space, "auto").num_outputs, config.prediction_size
    wanted = {
        "actor": ((num,), f"logits of {num} actions"),
        "critic": ((size,), f"{size} logits of the prediction"),
    }
    checks.check_networks(config, env, wanted)


def make(
    config: LPGConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Bind LPG to a config and an environment; arguments as of `ppo.make`."""
    return on_policy.algorithm(make_agent(config, env, axis_name), learn)


def make_agent(
    config: LPGConfig, env: Environment, axis_name: str | None = None
) -> Agent:
    """Bind policy, prediction and environments of a config.

    The prediction stands where other algorithms have their critic.
    """
    return policy_gradient.make_agent(config, env, axis_name, make_prediction)


def make_prediction(config: LPGConfig, shape: Any) -> nn.Module:
    """Make the network from observations to the logits of the prediction."""
    own = network_config.whole(config, "critic", shape)
    if own is not None:
        return own
    torso = network_config.torso_of(config, shape, "critic")
    return networks.CategoricalActor(torso, config.prediction_size, config.critic_gain)


def learn(agent: Agent, state: OnPolicyState, played: Played, key: Array) -> Learned:
    """Take the gradient step that the rule asks for."""
    del key  # Nothing is random.
    targets = agent.config.rule(rule_inputs(agent, state, played.transitions))
    obs = observe.prepare(agent, state.obs_moments, played.transitions.obs)
    batch = Batch(obs, played.transitions.action, targets)
    # The gradient is that of the agent's parameters alone, taken of a function in which
    # the targets stand as they are. So nothing stops a gradient of the result with
    # respect to the rule.
    found = on_policy.gradient_step(agent, state, played, partial(loss, agent), batch)
    return Learned(*found)


def rule_inputs(
    agent: Agent, state: OnPolicyState, transitions: Transition
) -> RuleInputs:
    """Return a rollout as the rule sees it, `[T, B, ...]`.

    Args:
        state: State with which the rollout was collected.
        transitions: `[T, B, ...]` transitions of the rollout.
    """

    def see(obs: Any) -> Any:
        prepared = observe.prepare(agent, state.obs_moments, obs)
        return agent.inputs(state.params, prepared)

    inputs, next_inputs = see(transitions.obs), see(transitions.next_obs)
    outputs = _actor(agent).apply(state.params["actor"], inputs)
    return RuleInputs(
        reward=transitions.reward,
        terminated=transitions.terminated,
        truncated=transitions.truncated,
        gamma=agent.config.gamma,
        # The log-probabilities stored in the rollout are data, so they would be
        # constants to a meta-gradient. The rule must see those of an agent that it has
        # made itself.
        log_prob=agent.head.log_prob(outputs, transitions.action),
        log_prediction=log_prediction(agent, state.params, inputs),
        # This is the prediction for the observation before any reset.
        next_log_prediction=log_prediction(agent, state.params, next_inputs),
        share=state.update.astype(jnp.float32) / agent.num_updates,
        num_updates=jnp.float32(agent.num_updates),
    )


def log_prediction(agent: Agent, params: PyTree, inputs: Any) -> Array:
    """Return the log of the prediction, `[..., M]`.

    Args:
        inputs: Inputs that `Agent.inputs` makes of prepared observations.
    """
    logits: Any = agent.critic.apply(params["critic"], inputs)
    return jax.nn.log_softmax(logits)


def loss(agent: Agent, params: PyTree, batch: Batch) -> tuple[Array, Metrics]:
    """Return the scalar whose gradient is that of the module, negated, and metrics.

    Args:
        batch: `[T, B, ...]` samples of the rollout with their targets.
    """
    config, head, targets = agent.config, agent.head, batch.targets
    inputs = agent.inputs(params, batch.obs)
    outputs = _actor(agent).apply(params["actor"], inputs)
    prediction = log_prediction(agent, params, inputs)
    samples = {
        "policy_loss": -targets.policy * head.log_prob(outputs, batch.action),
        "prediction_loss": divergence(prediction, targets.log_prediction),
        "entropy": head.entropy(outputs),
        "prediction_entropy": -(jnp.exp(prediction) * prediction).sum(-1),
        "policy_target": jnp.abs(targets.policy),
    }
    metrics = averages.means({name: x.ravel() for name, x in samples.items()})
    total = metrics["policy_loss"] - config.entropy_coef * metrics["entropy"]
    return total + config.prediction_coef * metrics["prediction_loss"], metrics


def divergence(log_prediction: Array, log_target: Array) -> Array:
    """Return KL(prediction || target) in nats, `[...]`.

    Args:
        log_prediction: `[..., M]` logarithms of the prediction's probabilities.
        log_target: `[..., M]` logarithms of the target's probabilities.
    """
    return (jnp.exp(log_prediction) * (log_prediction - log_target)).sum(-1)


def _actor(agent: Agent) -> Any:
    """The policy from what `Agent.inputs` returns."""
    return agent.on_features or agent.actor

"""Maximum a posteriori policy optimisation (Abdolmaleki et al. 2018a, 2018b).

Each gradient step takes a batch from the replay buffer and, with primes for target
networks and `a` for actions in [-1, 1], does three things.

1. **Evaluate.** Two critics are fitted to what the target policy would earn,

       y = r + gamma (1 - terminated) mean_a' min_i Q'_i(s', a'),    a' ~ pi'(s'),

   a mean over `bootstrap_samples` actions, `r` and `s'` over `n_step` steps as they
   were collected, without a correction for the older policy that took them. A time
   limit bootstraps.

2. **Improve, without a policy** (E-step). `action_samples` actions from `pi'(s)` are
   weighted by `softmax(min_i Q'_i(s, a) / eta)`, with the temperature `eta` for which
   the weights diverge by `epsilon` from the samples: solved exactly, or by gradient.

3. **Fit the policy** (M-step) to the weighted actions by maximum likelihood, while its
   mean and its standard deviation stay within `epsilon_mean` and `epsilon_std` of the
   target policy's, each with a Lagrange multiplier.

The equations of the last two are in `losses.mpo`. Discrete actions are not sampled:
expectations are sums over all of them, and `action_samples`, `bootstrap_samples` and
what is of standard deviations have no use.

Every `target_update_interval` steps the target networks become the online ones.

The policy is a Gaussian squashed by tanh. Its raw action is sampled, and likelihoods
and divergences are the Gaussian's (the Jacobian of tanh has no parameters); critics,
buffer and environment see the squashed one, the deterministic `tanh(mean)` included.
The minimum of two critics in both steps is Fujimoto et al.'s (2018); the papers have
one critic.

Defaults of constraints and multipliers, of the samples, of `n_step`, of the clipping of
gradients and of the interval of targets are those of Acme's MPO (Hoffman et al. 2020,
arXiv:2006.00979; its JAX agent). Constraints that tight suit long runs: the standard
deviation hardly moves for the first 100,000 gradient steps, in which its multiplier
comes down from 1,000 by about 0.01 each. The presets for short runs (`mpo-pendulum`,
`mpo-swingup`) are looser. Networks, batch and step size are those of SAC (Haarnoja et
al. 2018).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from purerl.algorithms import actor_critic, replayed_memory
from purerl.algorithms.actor_critic import LOG_STD, ActorCriticConfig, Agent, build
from purerl.algorithms.actor_critic import validate as validate
from purerl.algorithms.off_policy import Batch, Hooks, Learner, State
from purerl.config import config_dataclass, dynamic, static
from purerl.envs.base import Environment
from purerl.fields import POSITIVE, POSITIVE_OR_NONE, one_of
from purerl.learning import optimiser
from purerl.learning.averages import pmean
from purerl.learning.branches import StepCount
from purerl.losses import mpo as losses
from purerl.losses import value_error
from purerl.losses.mpo import Bounds, Duals, Improvement
from purerl.networks.distributions import Gaussian
from purerl.types import Algorithm, Array, Metrics, PyTree


@config_dataclass
class MPOConfig(ActorCriticConfig):
    """Maximum a posteriori policy optimisation."""

    n_step: int = 5
    action_samples: int = static(
        20, "Actions per state whose weights improve the policy.", POSITIVE
    )
    bootstrap_samples: int = static(
        20, "Actions per next state whose mean value is the target.", POSITIVE
    )
    epsilon: float = dynamic(
        0.1, "Divergence of the weights from the samples, in nats.", POSITIVE
    )
    epsilon_mean: float = dynamic(
        2.5e-3, "Largest divergence by the policy's mean (or probabilities).", POSITIVE
    )
    epsilon_std: float = dynamic(
        1e-6, "Largest divergence by the policy's std, in nats.", POSITIVE
    )
    per_dimension: bool = static(
        True, "A constraint for each action dimension, not for their sum."
    )
    multiplier_mean: float = dynamic(
        10.0, "First multiplier of the mean's (or probabilities') constraint.", POSITIVE
    )
    multiplier_std: float = dynamic(
        1_000.0, "First multiplier of the std's constraint.", POSITIVE
    )
    temperature: str = static(
        "exact",
        "Method for the temperature's dual problem: exact solves it in every step.",
        one_of("exact", "gradient"),
    )
    temperature_init: float = dynamic(
        10.0, "First temperature, where it is learned by gradient.", POSITIVE
    )
    dual_learning_rate: float = dynamic(
        1e-2, "Step size of the multipliers (and temperature).", POSITIVE
    )
    target_update_interval: int = static(
        100, "Gradient steps between updates of the target networks.", POSITIVE
    )
    tau: float = 1.0
    max_grad_norm: float | None = dynamic(
        40.0, "Largest norm of a gradient; None for no bound.", POSITIVE_OR_NONE
    )
    log_std_min: float = static(
        -5.0, "Smallest log standard deviation; the largest is 2.", LOG_STD
    )


def make(
    config: MPOConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Build MPO for a config and an environment."""
    agent = build(config, env, axis_name)
    return actor_critic.algorithm(agent, init, enter, actor_critic.decide)


def init(agent: Agent, key: Array) -> State:
    """Make fresh networks, their copies as targets, an empty buffer."""
    targets = ("actor", "critics")
    return actor_critic.init(agent, key, targets, duals=init_duals(agent))


def init_duals(agent: Agent) -> Duals:
    """Make the dual variables at the start of training."""
    config, start = agent.config, losses.softplus_inverse
    is_learned = config.temperature == "gradient"
    temperature = start(config.temperature_init) if is_learned else None
    if agent.head.is_discrete:
        policy = jnp.full(1, start(config.multiplier_mean))
        return Duals(policy=policy, temperature=temperature)
    num = agent.head.num_outputs if config.per_dimension else 1
    return Duals(
        mean=jnp.full(num, start(config.multiplier_mean)),
        std=jnp.full(num, start(config.multiplier_std)),
        temperature=temperature,
    )


def enter(agent: Agent, state: State) -> tuple[Hooks, Learner, Any]:
    """Return what an update of a state works with; see `off_policy.Enter`."""
    learner = Learner(state.params, state.target_params, state.opt_state)
    return make_hooks(agent), learner, lambda learner: learner


def make_hooks(agent: Agent) -> Hooks:
    """Make MPO's part of the learner."""
    # Keys are drawn in place of noise: the noise of one step is wide enough for the
    # device, and that of a whole update would be large.
    return actor_critic.make_hooks(agent, partial(learn, agent), jax.random.split)


def learn(
    agent: Agent, learner: Learner, batch: Batch, key: Array, count: StepCount
) -> tuple[Learner, Array, Metrics]:
    """Take one gradient step, and update the target networks where that is due.

    Args:
        learner: Learner before the step.
        count: Where the step stands among all.
    """
    config, targets = agent.config, learner.target_params
    duals = learner.params["duals"]
    key_evaluate, key_improve = jax.random.split(key)
    target = td_target(agent, targets, batch, key_evaluate)
    improvement = improve(agent, targets, duals, batch.obs, key_improve)
    minimise = jax.grad(partial(loss, agent), has_aux=True)
    grads, (td_error, metrics) = minimise(learner.params, batch, target, improvement)
    grads, metrics = pmean((grads, metrics), agent.stepper.axis_name)
    # Networks of the user's own terms are among the parameters too.
    learner = actor_critic.descend(config, learner, grads)
    for name in grads:
        norm = optimiser.grad_norm(learner.opt_state[name])
        metrics[f"{name}_grad_norm"] = norm
    due = count.completes(config.target_update_interval)
    online = {name: learner.params[name] for name in targets}
    targets = optimiser.polyak(targets, online, jnp.where(due, config.tau, 0.0))
    return learner._replace(target_params=targets), td_error, metrics


def td_target(
    agent: Agent, targets: dict[str, PyTree], batch: Batch, key: Array
) -> Array:
    """Return `y = r + discount * mean_a' min_i Q'_i(s', a')`, `[N]`."""
    if agent.head.is_discrete:
        log_policy, q_values = all_actions(agent, targets, batch.next_obs)
        value = (jnp.exp(log_policy) * q_values).sum(0)
    else:
        num = agent.config.bootstrap_samples
        *_, q_values = sample_actions(agent, targets, batch.next_obs, num, key)
        value = q_values.mean(0)
    return batch.reward + batch.discount * value


def improve(
    agent: Agent, targets: dict[str, PyTree], duals: Duals, obs: Any, key: Array
) -> Improvement:
    """Make the E-step: weigh actions of the target policy by their values.

    Args:
        duals: Variables of the constraints.
        obs: `[N, ...]` features of observations.
    """
    config, axis = agent.config, agent.stepper.axis_name
    if agent.head.is_discrete:
        log_policy, q_values = all_actions(agent, targets, obs)
        policy, raw = log_policy, None
    else:
        num, log_policy = config.action_samples, None
        policy, raw, q_values = sample_actions(agent, targets, obs, num, key)
    if duals.temperature is None:
        epsilon = config.epsilon
        temperature = losses.solve_temperature(q_values, epsilon, axis, log_policy)
    else:
        temperature = losses.positive(duals.temperature)
    if log_policy is not None:
        return losses.improved(log_policy, q_values, temperature)
    weights = losses.action_weights(q_values, temperature)
    return Improvement(policy, raw, q_values, weights, temperature)


def all_actions(
    agent: Agent, targets: dict[str, PyTree], obs: Any
) -> tuple[Array, Array]:
    """Return log-probabilities and values of all discrete actions, `[n, N]` each."""
    logits: Any = agent.actor.apply(targets["actor"], obs)
    pair: Any = agent.critics.apply(targets["critics"], obs)
    return jax.nn.log_softmax(logits).T, jnp.minimum(*pair).T


def sample_actions(
    agent: Agent, targets: dict[str, PyTree], obs: Any, num: int, key: Array
) -> tuple[Gaussian, Array, Array]:
    """Draw actions of the target policy and value them with the target critics.

    Args:
        obs: `[N, O]` features of observations.
        num: S, actions per observation.

    Returns:
        The policy `[N, A]`, raw actions `[S, N, A]`, values `[S, N]`.
    """
    policy: Any = agent.actor.apply(targets["actor"], obs)
    noise = agent.head.noise(key, (num, policy.mean.shape[0]))
    repeated = jax.tree.map(lambda x: jnp.broadcast_to(x[None], noise.shape), policy)
    raw = agent.head.choose(repeated, noise)
    all_obs = replayed_memory.repeated(obs, num)
    pair: Any = agent.critics.apply(targets["critics"], all_obs, jnp.tanh(raw))
    return policy, raw, jnp.minimum(*pair)


def loss(
    agent: Agent,
    params: dict[str, PyTree],
    batch: Batch,
    target: Array,
    improvement: Improvement,
) -> tuple[Array, tuple[Array, Metrics]]:
    """Return the scalar loss of critics, policy and duals, TD errors and metrics.

    No parameter of one has a gradient from the loss of another, so their sum is
    minimised by each as its own loss would be.

    Args:
        params: Parameters of actor, critics and duals, by name.
        target: `[N]` targets of the critics.
        improvement: Result of the E-step.
    """
    config, duals = agent.config, params["duals"]
    pair = actor_critic.taken_values(agent, params["critics"], batch)
    errors = [value_error(config.value_loss, q, target) for q in pair]
    value_loss = (batch.weight * (errors[0] + errors[1])).mean()
    outputs: Any = agent.actor.apply(params["actor"], batch.obs)
    bounds = Bounds(config.epsilon, config.epsilon_mean, config.epsilon_std)
    fit = losses.fit_discrete if agent.head.is_discrete else losses.fit_loss
    policy_loss, metrics = fit(duals, outputs, improvement, bounds)
    metrics |= {"value_loss": value_loss, "q_value": pair[0].mean()}
    return value_loss + policy_loss, (target - pair[0], metrics)

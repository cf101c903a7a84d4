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

The second step's equations are in `losses.temperature`, the third's in `losses.mpo`.
Discrete actions are not sampled, but summed over: see `mpo_discrete`.

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
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl.acting import rollout
from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape
from purerl.algorithms import (
    actor_critic,
    continuous,
    discrete,
    mpo_discrete,
    off_policy,
    stochastic,
)
from purerl.algorithms.actor_critic import ActorCriticConfig, ActorCriticState, Learner
from purerl.algorithms.checks import instead_of_values
from purerl.algorithms.off_policy import Batch
from purerl.config import (
    FRACTION,
    POSITIVE,
    POSITIVE_OR_NONE,
    ConfigError,
    config_dataclass,
    dynamic,
    one_of,
    static,
)
from purerl.keys import init_keys
from purerl.learning import optimiser
from purerl.learning.branches import StepCount
from purerl.learning.collectives import pmean
from purerl.losses import mpo as m_step
from purerl.losses import temperature as e_step
from purerl.losses import value_error
from purerl.losses.mpo import Bounds, Duals, Improvement
from purerl.networks.distributions import Gaussian, Head, is_discrete, make_head
from purerl.optimisers import Adam
from purerl.types import Algorithm, Array, Metrics, PyTree


@config_dataclass
class MPOConfig(ActorCriticConfig):
    """Maximum a posteriori policy optimisation."""

    n_step: int = static(5, "Rewards summed before bootstrapping.", POSITIVE)
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
        2.5e-3,
        "Largest divergence by the policy's mean, in nats; of discrete actions, by "
        "their probabilities.",
        POSITIVE,
    )
    epsilon_std: float = dynamic(
        1e-6,
        "Largest divergence by the policy's std, in nats. With Acme's 1e-6, its first "
        "multiplier of 1,000 and its dual step of 0.01 the std hardly moves for the "
        "first 100,000 gradient steps; the mean learns.",
        POSITIVE,
    )
    per_dimension: bool = static(
        True, "A constraint for each action dimension, not for their sum."
    )
    multiplier_mean: float = dynamic(
        10.0,
        "First multiplier of the mean's constraint, or of the probabilities'.",
        POSITIVE,
    )
    multiplier_std: float = dynamic(
        1_000.0, "First multiplier of the std's constraint.", POSITIVE
    )
    temperature: str = static(
        "exact",
        "Method for the temperature's dual problem: exact solves it in every "
        "step, gradient descends it (dual_optimiser).",
        one_of("exact", "gradient"),
    )
    temperature_init: float = dynamic(
        10.0, "First temperature, where it is learned by gradient.", POSITIVE
    )
    dual_learning_rate: float = dynamic(
        1e-2, "Step size of the multipliers (and temperature).", POSITIVE
    )
    dual_optimiser: Any = dynamic(
        Adam(), "Optimiser of the multipliers (and temperature)."
    )
    target_update_interval: int = static(
        100, "Gradient steps between updates of the target networks.", POSITIVE
    )
    tau: float = dynamic(
        1.0, "Share of the online networks in an update of the targets.", FRACTION
    )
    max_grad_norm: float | None = dynamic(
        40.0, "Largest norm of each gradient; None for no bound.", POSITIVE_OR_NONE
    )
    log_std_min: float = static(-5.0, "Smallest log standard deviation.")
    log_std_max: float = static(2.0, "Largest log standard deviation.")


class Parts(NamedTuple):
    """The parts of MPO, bound once in Python: structure, and the config's numbers.

    Attributes:
        config: The numbers.
        stepper: The environments.
        obs_space: Observation space of the environment.
        head: Noise of actions, and their range.
        actor: Network of the policy before tanh, a Gaussian, or of logits.
        critics: Networks of values of observation and action in [-1, 1], or of all
            discrete actions.
    """

    config: MPOConfig
    stepper: rollout.Stepper
    obs_space: Any
    head: Head
    actor: nn.Module
    critics: nn.Module


def validate(config: MPOConfig, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    actor_critic.validate(config)
    if config.log_std_min >= config.log_std_max:
        raise ConfigError(
            f"log_std_min must be less than log_std_max ({config.log_std_max}), got "
            f"{config.log_std_min}."
        )
    space: Any = env.action_space(env.default_params)
    if hasattr(space, "n"):
        num = int(space.n)
        words = f"logits of {num} actions"
        continuous.check_networks(config, env, (num,), words, num)
        return
    if is_discrete(space):
        raise ConfigError(
            "MPOConfig needs continuous actions, or one discrete action at a time, got "
            f"{space} of {env.name}; use {instead_of_values(space)}."
        )
    continuous.validate(config, env, "PPOConfig")
    continuous.check_gaussian(config, env)


def make(
    config: MPOConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Build MPO for a config and an environment; see `build`.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread, if any.
    """
    parts = build(config, env, axis_name)
    return Algorithm(
        partial(init, parts),
        partial(step, parts),
        partial(stochastic.act, parts),
        hosted=partial(actor_critic.hosted, make_hooks(parts)),
    )


def build(config: MPOConfig, env: Environment, axis_name: str | None = None) -> Parts:
    """Build networks and environment of a config: what the functions below work with.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread.
    """
    stepper = rollout.make_stepper(config, env, axis_name)
    head = make_head(env.action_space(stepper.params), "auto")
    obs_space = env.observation_space(stepper.params)
    shape = obs_shape(obs_space)
    if head.is_discrete:
        pair = discrete.discrete_networks(config, shape, head.num_outputs)
        return Parts(config, stepper, obs_space, head, *pair)
    return Parts(
        config=config,
        stepper=stepper,
        obs_space=obs_space,
        head=head,
        actor=continuous.gaussian_actor(config, shape, head.num_outputs),
        critics=continuous.action_critics(config, shape),
    )


def init(parts: Parts, key: Array) -> ActorCriticState:
    """Make fresh networks, their copies as targets, an empty buffer."""
    keys = init_keys(key, 3)
    params = stochastic.init_params(parts, keys[:2])
    params["duals"] = init_duals(parts)
    targets = ("actor", "critics")
    return actor_critic.init(make_hooks(parts), params, targets, key, keys[2])


def init_duals(parts: Parts) -> Any:
    """Make the dual variables at the start of training."""
    config = parts.config
    if parts.head.is_discrete:
        return mpo_discrete.init_duals(config)
    num = parts.head.num_outputs if config.per_dimension else 1
    start = m_step.softplus_inverse
    return Duals(
        mean=jnp.full(num, start(config.multiplier_mean)),
        std=jnp.full(num, start(config.multiplier_std)),
        temperature=(
            start(config.temperature_init) if config.temperature == "gradient" else None
        ),
    )


def step(parts: Parts, state: ActorCriticState) -> tuple[ActorCriticState, Metrics]:
    """Make one update: rounds of acting, storing and learning."""
    return actor_critic.step(make_hooks(parts), state)


def make_hooks(parts: Parts) -> off_policy.OffPolicyHooks:
    """Make MPO's part of the off-policy loop."""
    config, head = parts.config, parts.head
    return off_policy.OffPolicyHooks(
        config=config,
        stepper=parts.stepper,
        obs_space=parts.obs_space,
        replay=off_policy.uniform(config, parts.stepper.axis_name),
        draw_action=head.noise,
        explore=partial(stochastic.explore, parts),
        random_action=stochastic.random_action(parts),
        to_env=head.to_env,
        # Keys are drawn in place of noise: the noise of one step is wide enough for the
        # device, and that of a whole update would be large.
        draw_learning=jax.random.split,
        learn=partial(learn, parts),
    )


def learn(
    parts: Parts, learner: Learner, batch: Batch, key: Array, count: StepCount
) -> tuple[Learner, Array, Metrics]:
    """Take one gradient step, and update the target networks where that is due.

    Args:
        parts: Networks, environments and config; see `build`.
        learner: Learner before the step.
        batch: Batch from the replay buffer.
        key: Random key, consumed.
        count: Where the step stands among all.
    """
    config, targets = parts.config, learner.target_params
    duals = learner.params["duals"]
    if parts.head.is_discrete:
        target, improvement = evaluate_all(parts, targets, duals, batch)
    else:
        key_evaluate, key_improve = jax.random.split(key)
        target = td_target(parts, targets, batch, key_evaluate)
        improvement = improve(parts, targets, duals, batch.obs, key_improve)

    minimise = jax.grad(partial(loss, parts), has_aux=True)
    grads, (td_error, metrics) = minimise(learner.params, batch, target, improvement)
    grads, metrics = pmean((grads, metrics), parts.stepper.axis_name)
    learner, norms = descend(config, learner, grads)
    due = count.completes(config.target_update_interval)
    online = {name: learner.params[name] for name in targets}
    targets = optimiser.polyak(targets, online, jnp.where(due, config.tau, 0.0))
    return learner._replace(target_params=targets), td_error, {**metrics, **norms}


def evaluate_all(
    parts: Parts, targets: dict[str, PyTree], duals: Any, batch: Batch
) -> tuple[Array, Any]:
    """Return the critics' target and the E-step's result for discrete actions.

    Args:
        parts: Networks, environments and config; see `build`.
        targets: Parameters of the target networks.
        duals: Variables of the constraints.
        batch: Batch from the replay buffer.
    """
    judge = partial(mpo_discrete.judged, parts.actor, parts.critics, targets)
    target = mpo_discrete.td_target(*judge(batch.next_obs), batch)
    axis = parts.stepper.axis_name
    found = mpo_discrete.improve(parts.config, axis, duals, *judge(batch.obs))
    return target, found


def td_target(
    parts: Parts, targets: dict[str, PyTree], batch: Batch, key: Array
) -> Array:
    """Return `y = r + discount * mean_a' min_i Q'_i(s', a')`, `[N]`.

    Args:
        parts: Networks, environments and config; see `build`.
        targets: Parameters of the target networks.
        batch: Batch from the replay buffer.
        key: Random key, consumed.
    """
    num = parts.config.bootstrap_samples
    *_, q_values = sample_actions(parts, targets, batch.next_obs, num, key)
    return batch.reward + batch.discount * q_values.mean(0)


def improve(
    parts: Parts, targets: dict[str, PyTree], duals: Duals, obs: Array, key: Array
) -> Improvement:
    """Make the E-step: sample actions and weigh them by their values.

    Args:
        parts: Networks, environments and config; see `build`.
        targets: Parameters of the target networks.
        duals: Variables of the constraints.
        obs: `[N, O]` features of observations.
        key: Random key, consumed.
    """
    config = parts.config
    policy, raw, q_values = sample_actions(
        parts, targets, obs, config.action_samples, key
    )
    if duals.temperature is None:
        temperature = e_step.solve_temperature(
            q_values, config.epsilon, parts.stepper.axis_name
        )
    else:
        temperature = m_step.positive(duals.temperature)
    weights = e_step.action_weights(q_values, temperature)
    return Improvement(policy, raw, q_values, weights, temperature)


def sample_actions(
    parts: Parts, targets: dict[str, PyTree], obs: Array, num: int, key: Array
) -> tuple[Gaussian, Array, Array]:
    """Draw actions of the target policy and value them with the target critics.

    Args:
        parts: Networks, environments and config; see `build`.
        targets: Parameters of the target networks.
        obs: `[N, O]` features of observations.
        num: S, actions per observation.
        key: Random key, consumed.

    Returns:
        The policy `[N, A]`, raw actions `[S, N, A]`, values `[S, N]`.
    """
    policy: Any = parts.actor.apply(targets["actor"], obs)
    noise = parts.head.noise(key, (num, jax.tree.leaves(obs)[0].shape[0]))
    repeated = jax.tree.map(lambda x: jnp.broadcast_to(x[None], noise.shape), policy)
    raw = parts.head.choose(repeated, noise)
    all_obs = jax.tree.map(lambda x: jnp.broadcast_to(x[None], (num, *x.shape)), obs)
    pair: Any = parts.critics.apply(targets["critics"], all_obs, jnp.tanh(raw))
    return policy, raw, jnp.minimum(*pair)


def loss(
    parts: Parts,
    params: dict[str, PyTree],
    batch: Batch,
    target: Array,
    improvement: Any,
) -> tuple[Array, tuple[Array, Metrics]]:
    """Return the scalar loss of critics, policy and duals, TD errors and metrics.

    No parameter of one has a gradient from the loss of another, so their sum is
    minimised by each as its own loss would be.

    Args:
        parts: Networks, environments and config; see `build`.
        params: Parameters of actor, critics and duals, by name.
        batch: Batch from the replay buffer.
        target: `[N]` targets of the critics.
        improvement: Result of the E-step.
    """
    value_loss, td_error, q_value = evaluate_loss(parts, params, batch, target)
    outputs: Any = parts.actor.apply(params["actor"], batch.obs)
    config = parts.config
    if parts.head.is_discrete:
        policy_loss, metrics = mpo_discrete.fit_loss(
            config, params["duals"], outputs, improvement
        )
    else:
        bounds = Bounds(config.epsilon, config.epsilon_mean, config.epsilon_std)
        policy_loss, metrics = m_step.fit_loss(
            params["duals"], outputs, improvement, bounds
        )
    metrics |= {"value_loss": value_loss, "q_value": q_value}
    return value_loss + policy_loss, (td_error, metrics)


def evaluate_loss(
    parts: Parts, params: dict[str, PyTree], batch: Batch, target: Array
) -> tuple[Array, Array, Array]:
    """Return the critics' loss `[]`, the first's TD errors `[N]`, its mean value `[]`.

    Args:
        parts: Networks, environments and config; see `build`.
        params: Parameters of actor, critics and duals, by name.
        batch: Batch from the replay buffer.
        target: `[N]` targets of the critics.
    """
    if parts.head.is_discrete:
        values: Any = parts.critics.apply(params["critics"], batch.obs)
        taken = batch.action[:, None]
        pair = [jnp.take_along_axis(one, taken, -1)[:, 0] for one in values]
    else:
        pair: Any = parts.critics.apply(params["critics"], batch.obs, batch.action)
    errors = [value_error(parts.config.value_loss, q, target) for q in pair]
    total = (batch.weight * (errors[0] + errors[1])).mean()
    return total, target - pair[0], pair[0].mean()


def descend(
    config: MPOConfig, learner: Learner, grads: dict[str, PyTree]
) -> tuple[Learner, Metrics]:
    """Take a step for each part by its own optimiser, its gradient clipped by its norm.

    Args:
        config: Optimisers, their step sizes and the clipping.
        learner: Learner before the step.
        grads: Gradients by the name of the parameters.
    """
    learner = actor_critic.descend(config, learner, grads)
    return learner, {
        f"{name}_grad_norm": optimiser.grad_norm(learner.opt_state[name])
        for name in grads
    }

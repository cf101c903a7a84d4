"""Soft actor-critic (Haarnoja et al. 2018b; Christodoulou 2019 for discrete actions).

The policy `pi` maximises the return and its entropy, weighted by the temperature
`alpha`. Every gradient step fits two critics to, with primes for target networks,

    y = r + gamma (1 - terminated) V'(s'),
    V'(s) = E_{a ~ pi(s)}[min_i Q'_i(s, a) - alpha log pi(a|s)],

then moves the policy up `E_{a ~ pi(s)}[min_i Q_i(s, a) - alpha log pi(a|s)]`, the
temperature down `log alpha (H(pi) - H*)`, which holds the entropy at its target `H*`,
and the target networks by `tau (online - target)`. A time limit bootstraps: see
`batches.Batch`.

* **Continuous actions** are `a = tanh(u)`, `u ~ N(mu(s), sigma(s)^2)`. One is sampled
  for each expectation, and differentiated through. They are in [-1, 1], where densities
  (see `continuous.squash`), entropies and `H* = -dim(A)` are measured, whatever the
  environment scales them to.
* **Discrete actions** leave nothing to sample: the expectations are sums over all of
  them, and `H*` is a share of the largest entropy, `log n`.

With `n_step` > 1 the rewards of n steps are summed as they were collected: the
entropies of the steps between are left out, and nothing corrects for the older policy
that took them.

Acting samples from the policy, evaluation takes `tanh(mu)` or the likeliest action, and
the first `random_steps` environment steps are uniformly random (`learning_starts` of
them, unless that is set apart).

Defaults are those of the paper's appendix D (256-256, batch 256, 3e-4, tau 0.005), and
of Stable-Baselines3 where it is silent (initial temperature 1, `log sigma` in
-20 .. 2). For discrete actions Christodoulou's share of the largest entropy is 0.98,
for Atari with long training; on small tasks such a policy never stops exploring, and
its values diverge together with the temperature, so that the default is 0.5.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from purerl import auto
from purerl.acting import rollout
from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape
from purerl.algorithms import (
    actor_critic,
    continuous,
    crossq,
    discrete,
    ensembles,
    off_policy,
    stochastic,
    twins,
)
from purerl.algorithms.actor_critic import ActorCriticState, Learner
from purerl.algorithms.checks import instead_of_values
from purerl.algorithms.ensembles import CriticOutputs, EnsembleConfig
from purerl.algorithms.off_policy import Batch
from purerl.config import (
    FRACTION,
    POSITIVE,
    POSITIVE_OR_NONE,
    ConfigError,
    config_dataclass,
    dynamic,
    static,
)
from purerl.keys import init_keys
from purerl.learning import optimiser
from purerl.learning.branches import StepCount, change_or_wait
from purerl.learning.collectives import after, pmean
from purerl.networks import composite, layers
from purerl.networks.distributions import Head, is_discrete, make_head
from purerl.optimisers import Adam
from purerl.types import Algorithm, Array, Metrics, PyTree


@config_dataclass
class SACConfig(EnsembleConfig):
    """Soft actor-critic, for continuous and for discrete actions."""

    temperature_init: float = dynamic(
        1.0, "Initial temperature alpha, the weight of the entropy.", POSITIVE
    )
    learn_temperature: bool = static(
        True, "Learn the temperature, or keep it at temperature_init."
    )
    temperature_learning_rate: float | None = dynamic(
        None,
        "Step size of the temperature; None takes learning_rate.",
        POSITIVE_OR_NONE,
    )
    temperature_optimiser: Any = dynamic(Adam(), "Optimiser of the temperature.")
    entropy_per_dimension: float = dynamic(
        -1.0, "Target entropy per dimension, in nats, of actions in [-1, 1]."
    )
    entropy_share: float = dynamic(
        0.5, "Target entropy of n discrete actions, as a share of log n.", FRACTION
    )
    policy_delay: int = static(
        1,
        "Gradient steps of the critics per step of policy and temperature; the steps "
        "between are left out, not made up for (CleanRL's policy_frequency repeats "
        "them).",
        POSITIVE,
    )
    target_update_interval: int = static(
        1, "Gradient steps between updates of the target networks.", POSITIVE
    )
    crossq: bool = static(
        False,
        "Batch normalisation in policy and critics, whose targets come from the same "
        "pass (CrossQ): there are no target networks, and tau and "
        "target_update_interval are not read.",
    )
    log_std_min: float = static(-20.0, "Smallest log standard deviation.")
    log_std_max: float = static(2.0, "Largest log standard deviation.")


class Parts(NamedTuple):
    """The parts of SAC, bound once in Python: structure, and the config's numbers.

    Attributes:
        config: The numbers.
        stepper: The environments.
        obs_space: Observation space of the environment.
        head: Distribution of discrete actions, or the range of continuous ones.
        actor: Network of logits, or of a Gaussian.
        critics: Networks of the values of all actions, or of a given one.
        target_entropy: Target `H*` of the entropy, in nats.
    """

    config: SACConfig
    stepper: rollout.Stepper
    obs_space: Any
    head: Head
    actor: nn.Module
    critics: nn.Module
    target_entropy: Array | float


class Choices(NamedTuple):
    """The actions over which an expectation under the policy runs, `[N, C]` each.

    One that was sampled, of weight 1, or all of them by their probability.

    Attributes:
        value: Function of the critics' values, by default the smaller of two; in a
            target of quantiles it returns `[K, N, C]`.
        log_prob: Log-probability under the policy.
        weight: Weight in the expectation.
    """

    value: Array
    log_prob: Array
    weight: Array


def validate(config: SACConfig, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    ensembles.validate(config)
    if config.log_std_min >= config.log_std_max:
        raise ConfigError(
            f"log_std_min must be less than log_std_max ({config.log_std_max}), got "
            f"{config.log_std_min}."
        )
    space: Any = env.action_space(env.default_params)
    if is_discrete(space) and not hasattr(space, "n"):
        raise ConfigError(
            "SACConfig needs continuous actions, or one discrete action at a time, got "
            f"{space} of {env.name}; use {instead_of_values(space)}."
        )
    if config.crossq:
        crossq.validate(config, env)
    if not hasattr(space, "n"):
        continuous.check_bounded_actions(config, env)
        continuous.check_gaussian(config, env)
        return
    if config.num_quantiles:
        raise ConfigError(
            f"num_quantiles must be 0 where actions are discrete, got "
            f"{config.num_quantiles} for {space} of {env.name}: the expectation over "
            "actions would mix quantiles of different distributions. Leave it out."
        )
    num = int(space.n)
    words = f"logits of {num} actions"
    continuous.check_networks(config, env, (num,), words, num)


def make(
    config: SACConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Build SAC for a config and an environment; see `build`.

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


def build(config: SACConfig, env: Environment, axis_name: str | None = None) -> Parts:
    """Build networks and environment of a config: what the functions below work with.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread.
    """
    crossq.check_one_device(config, axis_name)
    config = auto.resolve(config, env)
    stepper = rollout.make_stepper(config, env, axis_name)
    head = make_head(env.action_space(stepper.params), "auto")
    num = head.num_outputs
    obs_space = env.observation_space(stepper.params)
    shape = obs_shape(obs_space)
    if head.is_discrete:
        actor, critics = discrete.discrete_networks(config, shape, num)
        target_entropy = config.entropy_share * np.log(num)
    else:
        actor = continuous.gaussian_actor(config, shape, num)
        critics = continuous.action_critics(config, shape)
        target_entropy = config.entropy_per_dimension * num
    return Parts(
        config=config,
        stepper=stepper,
        obs_space=obs_space,
        head=head,
        actor=actor,
        critics=critics,
        target_entropy=target_entropy,
    )


def init(parts: Parts, key: Array) -> ActorCriticState:
    """Make fresh networks, the critics' copies as targets, an empty buffer."""
    keys = init_keys(key, 3)
    params = stochastic.init_params(parts, keys[:2])
    temperature = jnp.asarray(parts.config.temperature_init, jnp.float32)
    params["log_temperature"] = jnp.log(temperature)
    targets = () if parts.config.crossq else ("critics",)
    return actor_critic.init(make_hooks(parts), params, targets, key, keys[2])


def step(parts: Parts, state: ActorCriticState) -> tuple[ActorCriticState, Metrics]:
    """Make one update: rounds of acting, storing and learning."""
    return twins.step(make_hooks, parts, state)


def make_hooks(parts: Parts) -> off_policy.OffPolicyHooks:
    """Make SAC's part of the off-policy loop."""
    config, head, axis = parts.config, parts.head, parts.stepper.axis_name
    batch_size = rollout.per_device(config.batch_size, axis)

    def draw_learning(key: Array, shape: tuple[int, ...]) -> Any:
        # Noise of the actions at the next observations, and at the current ones.
        return () if head.is_discrete else head.noise(key, (*shape, 2, batch_size))

    return off_policy.OffPolicyHooks(
        config=config,
        stepper=parts.stepper,
        obs_space=parts.obs_space,
        replay=off_policy.replay_of(config, axis),
        draw_action=head.noise,
        explore=partial(stochastic.explore, parts),
        random_action=stochastic.random_action(parts),
        to_env=head.to_env,
        draw_learning=draw_learning,
        learn=partial(learn, parts),
        policy_delay=config.policy_delay,
        draw_shared=ensembles.subsets(config),
    )


def choices(
    parts: Parts,
    outputs: Any,
    critics: Callable[..., ensembles.Values],
    estimate: Callable[[ensembles.Values], Array],
    obs: Array,
    noise: Any,
) -> Choices:
    """Return what the policy may do at `obs` `[N, ...]`, and what that is worth.

    Args:
        parts: Networks, environments and config; see `build`.
        outputs: Outputs of the policy's network for these observations.
        critics: `(obs, action) -> values`, or `(obs) -> values` of discrete actions.
        estimate: Function from the critics' values to one.
        obs: Features of the observations.
        noise: `[N, A]` standard normal; None for discrete actions.
    """
    if parts.head.is_discrete:
        values = critics(obs)
        log_prob = jax.nn.log_softmax(outputs)
        return Choices(estimate(values), log_prob, jnp.exp(log_prob))
    action, log_prob = continuous.squash(outputs, noise)
    value = estimate(critics(obs, action))[..., None]
    log_prob = log_prob[:, None] if value.ndim == 2 else log_prob[None, :, None]
    return Choices(value, log_prob, jnp.ones_like(log_prob))


def temperature_of(parts: Parts, learner: Learner) -> Array:
    """Return the weight of the entropy, `[]`: what was learned, or the config's number.

    Args:
        parts: Networks, environments and config; see `build`.
        learner: Learner of one agent.
    """
    if parts.config.learn_temperature:
        return jnp.exp(learner.params["log_temperature"])
    return jnp.asarray(parts.config.temperature_init, jnp.float32)


def soft_value(found: Choices, temperature: Array) -> Array:
    """Return `E_a[min_i Q_i(s, a) - alpha log pi(a|s)]`, `[N]` or `[K, N]`."""
    return (found.weight * (found.value - temperature * found.log_prob)).sum(-1)


def learn(
    parts: Parts, learner: Learner, batch: Batch, noise: Any, count: StepCount
) -> tuple[Learner, Array, Metrics]:
    """Take a step of the critics and, if due, of policy, temperature and targets.

    Args:
        parts: Networks, environments and config; see `build`.
        learner: Learner before the step.
        batch: Batch from the replay buffer.
        noise: `[2, N, A]` standard normal; nothing for discrete actions. With
            `critic_subset` a pair, with the critics of the target.
        count: Where the step stands among all.
    """
    config = parts.config
    noise, subset = ensembles.with_subset(config, noise)
    noise_next, noise_now = (None, None) if parts.head.is_discrete else noise
    evaluate_critics = make_judge(parts, learner, batch, noise_next, subset)
    learner, td_error, metrics = ensembles.fit_critics(
        config, parts.stepper.axis_name, evaluate_critics, learner, batch
    )

    def wait(learner: Learner) -> tuple[Learner, Metrics]:
        # Without a policy step, add zero to the sums of its numbers; as a product, so
        # that it varies over devices as the loss does.
        blank = 0.0 * metrics["value_loss"]
        return learner, {"policy_loss": blank, "entropy": blank}

    move = partial(improve, parts, batch.obs, noise_now)
    due = count.completes(config.policy_delay)
    learner, more = change_or_wait(due, move, wait, learner)
    if not config.crossq:
        due = count.completes(config.target_update_interval)
        critics = optimiser.polyak(
            learner.target_params["critics"],
            learner.params["critics"],
            jnp.where(due, config.tau, 0.0),
        )
        learner = learner._replace(target_params={"critics": critics})
    temperature = temperature_of(parts, learner)
    return learner, td_error, {**metrics, **more, "temperature": temperature}


def make_judge(
    parts: Parts, learner: Learner, batch: Batch, noise: Any, subset: Array | None
) -> Callable[[PyTree], CriticOutputs]:
    """Return what makes of the critics' parameters their values and their target.

    Args:
        parts: Networks, environments and config; see `build`.
        learner: Learner before the step.
        batch: Batch from the replay buffer.
        noise: `[N, A]` standard normal, of the next actions; None for discrete ones.
        subset: `[M]` int32, the critics of the target; None for all.
    """
    if not parts.config.crossq:
        target = td_target(parts, learner, batch, noise, subset)
        return lambda critics: CriticOutputs(
            taken_values(parts, critics, batch), target
        )
    outputs: Any = parts.actor.apply(learner.params["actor"], batch.next_obs)
    action, _ = continuous.squash(outputs, noise)
    estimate = partial(ensembles.pessimistic, parts.config)
    temperature = temperature_of(parts, learner)

    def evaluate_critics(critics: PyTree) -> CriticOutputs:
        now, later, new = crossq.evaluate_critics(parts.critics, batch, action, critics)
        later = later if subset is None else later[subset]
        found = choices(
            parts, outputs, lambda *seen: later, estimate, batch.next_obs, noise
        )
        target = ensembles.bootstrapped(batch, soft_value(found, temperature))
        return CriticOutputs(now, target, new)

    return evaluate_critics


def td_target(
    parts: Parts,
    learner: Learner,
    batch: Batch,
    noise: Any,
    subset: Array | None = None,
) -> Array:
    """Return `y = r + discount * V'(s')`, `[N]`.

    With quantiles, `[K, N]` samples of the target's distribution.

    Args:
        parts: Networks, environments and config; see `build`.
        learner: Learner before the step.
        batch: Batch from the replay buffer.
        noise: `[N, A]` standard normal; None for discrete actions.
        subset: `[M]` int32, the critics over which the minimum is; None for all.
    """
    params = learner.target_params["critics"]
    critics = partial(ensembles.target_values, parts.critics, params, subset)
    estimate = partial(ensembles.pessimistic, parts.config)
    outputs = parts.actor.apply(learner.params["actor"], batch.next_obs)
    found = choices(parts, outputs, critics, estimate, batch.next_obs, noise)
    temperature = temperature_of(parts, learner)
    return ensembles.bootstrapped(batch, soft_value(found, temperature))


def taken_values(parts: Parts, critics: PyTree, batch: Batch) -> ensembles.Values:
    """Return the critics' values of the batch's actions.

    Args:
        parts: Networks, environments and config; see `build`.
        critics: Parameters of the critics.
        batch: Batch from the replay buffer.
    """
    if not parts.head.is_discrete:
        return parts.critics.apply(critics, batch.obs, batch.action)
    values: Any = parts.critics.apply(critics, batch.obs)

    def taken(one: Array) -> Array:
        return jnp.take_along_axis(one, batch.action[:, None], -1)[:, 0]

    if isinstance(values, tuple):
        return tuple(map(taken, values))
    return jax.vmap(taken)(values)


def target_entropy(parts: Parts, obs: Any) -> Array | float:
    """Return the target of the batch's entropy, in nats, `[]`.

    Where actions are masked, it is the mean over observations of the share of
    `log m`, with `m` the number of the valid ones.

    Args:
        parts: Networks, environments and config; see `build`.
        obs: Features of the batch's observations.
    """
    mask = composite.mask_of(obs)
    if mask is None:
        return parts.target_entropy
    largest = jnp.log(jnp.maximum(mask.sum(-1), 1).astype(jnp.float32))
    axis = parts.stepper.axis_name
    return parts.config.entropy_share * pmean(largest.mean(), axis)


def improve(
    parts: Parts, obs: Array, noise: Any, learner: Learner
) -> tuple[Learner, Metrics]:
    """Move the policy up its soft value, and the temperature to hold the entropy.

    Args:
        parts: Networks, environments and config; see `build`.
        obs: Features of the batch's observations.
        noise: `[N, A]` standard normal; None for discrete actions.
        learner: Learner before the step.
    """
    temperature = temperature_of(parts, learner)
    critics = ensembles.policy_critics(
        parts.config, parts.critics, learner.params["critics"]
    )
    estimate = partial(ensembles.policy_objective, parts.config)

    def loss(actor: PyTree) -> tuple[Array, tuple[Array, PyTree]]:
        if parts.config.crossq:
            outputs, new = layers.forward(parts.actor, actor, obs)
        else:
            outputs, new = parts.actor.apply(actor, obs), ()
        found = choices(parts, outputs, critics, estimate, obs, noise)
        entropy = -(found.weight * found.log_prob).sum(-1).mean()
        value = soft_value(found, temperature)
        return -value.mean(), (entropy, new)

    minimise = jax.value_and_grad(loss, has_aux=True)
    (total, (entropy, statistics)), grads = pmean(
        minimise(learner.params["actor"]), parts.stepper.axis_name
    )
    gradients = {"actor": grads}
    if parts.config.learn_temperature:
        # The gradient is that of log alpha (H - H*): more entropy than wanted makes
        # alpha smaller. Averages over devices must come one after another: see
        # `collectives`.
        seen = after(obs, entropy, parts.stepper.axis_name)
        gradients["log_temperature"] = entropy - target_entropy(parts, seen)
    learner = actor_critic.descend(parts.config, learner, gradients)
    learner = actor_critic.put_statistics(parts.config, learner, "actor", statistics)
    return learner, {"policy_loss": total, "entropy": entropy}

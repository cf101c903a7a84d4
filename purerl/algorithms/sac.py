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
  (see `actor_critic.squash`), entropies and `H* = -dim(A)` are measured, whatever the
  environment scales them to.
* **Discrete actions** leave nothing to sample: the expectations are sums over all of
  them, and `H*` is a share of the largest entropy, `log n`.

With `n_step` > 1 the rewards of n steps are summed as they were collected: the
entropies of the steps between are left out, and nothing corrects for the older policy
that took them.

With `crossq` (Bhatt et al. 2024, arXiv:1902.05605v4) networks have batch normalisation,
and the critics of `(s, a)` and of `(s', a')`, `a' ~ pi(s')`, are one pass of both,

    [Q_i(s, a), Q_i(s', a')] = Q_i([s; s'], [a; a']),

so that the statistics fit the mixture of the two distributions of actions. Then there
is no need of target networks. No gradient goes through the target, while it does go
through the statistics of the batch. The policy, with batch normalisation of its own,
maximises critics that are normalised by their running statistics. The paper has critics
of 2,048 units, Adam with b1 = 0.5 and a step size of 1e-3, and moves the policy in
every third gradient step.

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
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.acting import rollout
from purerl.algorithms import actor_critic, ensembles, network_config, replayed_memory
from purerl.algorithms.actor_critic import LOG_STD, Agent, build
from purerl.algorithms.ensembles import CriticOutputs, EnsembleConfig, Values
from purerl.algorithms.memory import has_memory
from purerl.algorithms.off_policy import Batch, Hooks, Learner, State
from purerl.config import ConfigError, config_dataclass, dynamic, static
from purerl.envs.base import Environment
from purerl.fields import FRACTION, POSITIVE, POSITIVE_OR_NONE
from purerl.learning import optimiser
from purerl.learning.averages import after, pmean
from purerl.learning.branches import StepCount
from purerl.networks import layers
from purerl.networks.observe import obs_shape
from purerl.optimisers import Muon
from purerl.types import Algorithm, Array, Metrics, PyTree


@config_dataclass
class SACConfig(EnsembleConfig):
    """Soft actor-critic, for continuous and for discrete actions."""

    policy_metrics: ClassVar[tuple[str, ...]] = ("policy_loss", "entropy")

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
    entropy_per_dimension: float = dynamic(
        -1.0, "Target entropy per dimension, in nats, of actions in [-1, 1]."
    )
    entropy_share: float = dynamic(
        0.5, "Target entropy of n discrete actions, as a share of log n.", FRACTION
    )
    policy_delay: int = static(
        1, "Gradient steps of the critics for each step of the policy.", POSITIVE
    )
    target_update_interval: int = static(
        1, "Gradient steps between updates of the target networks.", POSITIVE
    )
    crossq: bool = static(
        False,
        "Batch normalisation in policy and critics, whose targets come from the "
        "same pass: no target networks, tau or target_update_interval (CrossQ).",
    )
    log_std_min: float = static(
        -20.0, "Smallest log standard deviation; the largest is 2.", LOG_STD
    )


def validate(config: SACConfig, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    is_choice = hasattr(env.action_space(env.default_params), "n")
    if config.crossq:
        _check_crossq(config, env)
    ensembles.validate(config)
    actor_critic.validate(config, env)
    if is_choice and config.num_quantiles:
        raise ConfigError(
            f"num_quantiles must be 0 where actions are discrete, as those of "
            f"{env.name}, got {config.num_quantiles}: the expectation over actions "
            "would mix quantiles of different distributions."
        )


def _check_crossq(config: SACConfig, env: Environment) -> None:
    """Refuse networks and optimisers in which batch normalisation has no place."""
    shape, chosen = obs_shape(env.observation_space(env.default_params)), ""
    if has_memory(config):
        chosen = "a memory, which sees sequences"
    elif hasattr(env.action_space(env.default_params), "n"):
        chosen = f"the discrete actions of {env.name}"
    elif not all(
        network_config.own(config, field) is None
        and network_config.is_vector_torso(config, shape, field)
        and network_config.chosen_torso(config, field) != "simba"
        for field in ("actor", "critic")
    ):
        chosen = "a torso, actor or critic other than the dense layers of a vector"
    elif optimiser.sees_layers(config.optimiser) and not isinstance(
        config.optimiser, Muon
    ):
        # What sees all layers would take running statistics for parameters.
        chosen = f"optimiser={type(config.optimiser).__name__}()"
    if chosen:
        raise ConfigError(
            f"crossq must be False with {chosen}: its batch normalisation has no place "
            "there. Leave one of them out."
        )


def make(
    config: SACConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Build SAC for a config and an environment."""
    agent = build(config, env, axis_name)
    return actor_critic.algorithm(agent, init, enter, actor_critic.decide)


def init(agent: Agent, key: Array) -> State:
    """Make fresh networks, the critics' copies as targets, an empty buffer."""
    temperature = jnp.asarray(agent.config.temperature_init, jnp.float32)
    targets = () if agent.config.crossq else ("critics",)
    return actor_critic.init(agent, key, targets, log_temperature=jnp.log(temperature))


def make_hooks(agent: Agent) -> Hooks:
    """Make SAC's part of the learner."""
    config, head, axis = agent.config, agent.head, agent.stepper.axis_name
    batch_size = rollout.per_device(config.batch_size, axis)

    def draw_noise(key: Array, shape: tuple[int, ...]) -> Any:
        # Noise of the actions at the next observations, and at the current ones.
        return () if head.is_discrete else head.noise(key, (*shape, 2, batch_size))

    shared = ensembles.subsets(config)
    step = partial(learn, agent)
    return actor_critic.make_hooks(agent, step, draw_noise, draw_shared=shared)


enter = partial(actor_critic.enter, make_hooks)


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


def choices(
    agent: Agent,
    outputs: Any,
    critics: Callable[..., ensembles.Values],
    estimate: Callable[[ensembles.Values], Array],
    obs: Array,
    noise: Any,
) -> Choices:
    """Return what the policy may do at `obs` `[N, ...]`, and what that is worth.

    Args:
        outputs: Outputs of the policy's network for these observations.
        critics: `(obs, action) -> values`, or `(obs) -> values` of discrete actions.
        estimate: Function from the critics' values to one.
        obs: Features of the observations.
        noise: `[N, A]` standard normal; None for discrete actions.
    """
    if agent.head.is_discrete:
        values = critics(obs)
        log_prob = jax.nn.log_softmax(outputs)
        return Choices(estimate(values), log_prob, jnp.exp(log_prob))
    action, log_prob = actor_critic.squash(outputs, noise)
    value = estimate(critics(obs, action))[..., None]
    log_prob = log_prob[:, None] if value.ndim == 2 else log_prob[None, :, None]
    return Choices(value, log_prob, jnp.ones_like(log_prob))


def temperature_of(agent: Agent, learner: Learner) -> Array:
    """Return the weight of the entropy, `[]`: what was learned, or the config's number.

    Args:
        learner: Learner of one agent.
    """
    if agent.config.learn_temperature:
        return jnp.exp(learner.params["log_temperature"])
    return jnp.asarray(agent.config.temperature_init, jnp.float32)


def soft_value(found: Choices, temperature: Array) -> Array:
    """Return `E_a[min_i Q_i(s, a) - alpha log pi(a|s)]`, `[N]` or `[K, N]`."""
    return (found.weight * (found.value - temperature * found.log_prob)).sum(-1)


def learn(
    agent: Agent, learner: Learner, batch: Batch, noise: Any, count: StepCount
) -> tuple[Learner, Array, Metrics]:
    """Take a step of the critics and, if due, of policy, temperature and targets.

    Args:
        noise: `[2, N, A]` standard normal; nothing for discrete actions. With
            `critic_subset` a pair, with the critics of the target.
        count: Where the step stands among all.
    """
    config = agent.config
    noise, subset = ensembles.with_subset(config, noise)
    noise_next, noise_now = (None, None) if agent.head.is_discrete else noise
    given = agent, learner, batch, noise_next, subset
    if config.crossq:
        evaluate_critics = partial(crossq_outputs, *given)
    else:
        target = td_target(*given)

        def evaluate_critics(params: PyTree) -> CriticOutputs:
            values = actor_critic.taken_values(agent, params, batch)
            return CriticOutputs(values, target)

    move = partial(improve, agent, batch.obs, noise_now)
    learner, td_error, metrics = ensembles.learn(
        agent, evaluate_critics, move, learner, batch, count
    )
    if not config.crossq:
        due = count.completes(config.target_update_interval)
        critics = optimiser.polyak(
            learner.target_params["critics"],
            learner.params["critics"],
            jnp.where(due, config.tau, 0.0),
        )
        learner = learner._replace(target_params={"critics": critics})
    temperature = temperature_of(agent, learner)
    return learner, td_error, metrics | {"temperature": temperature}


def td_target(
    agent: Agent,
    learner: Learner,
    batch: Batch,
    noise: Any,
    subset: Array | None = None,
    critics: Callable[..., Values] | None = None,
) -> Array:
    """Return `y = r + discount * V'(s')`, `[N]`.

    With quantiles, `[K, N]` samples of the target's distribution.

    Args:
        noise: `[N, A]` standard normal; None for discrete actions.
        subset: `[M]` int32, the critics over which the minimum is; None for all.
        critics: Function that values the next actions in place of the target networks.
    """
    if critics is None:
        params = learner.target_params["critics"]
        critics = partial(ensembles.target_values, agent.critics, params, subset)
    estimate = partial(ensembles.pessimistic, agent.config)
    outputs = agent.actor.apply(learner.params["actor"], batch.next_obs)
    found = choices(agent, outputs, critics, estimate, batch.next_obs, noise)
    temperature = temperature_of(agent, learner)
    return ensembles.bootstrapped(batch, soft_value(found, temperature))


def crossq_outputs(
    agent: Agent,
    learner: Learner,
    batch: Batch,
    noise: Array,
    subset: Array | None,
    params: PyTree,
) -> CriticOutputs:
    """Return the values and the target of CrossQ, from one pass of the critics."""
    outputs: Any = agent.actor.apply(learner.params["actor"], batch.next_obs)
    next_action, _ = actor_critic.squash(outputs, noise)
    num = batch.reward.shape[0]
    obs = jnp.concatenate([batch.obs, batch.next_obs])
    action = jnp.concatenate([batch.action, next_action])
    both, statistics = layers.forward(agent.critics, params, obs, action)
    if isinstance(both, tuple):
        now, later = tuple(x[:num] for x in both), tuple(x[num:] for x in both)
    else:
        now, later = both[:, :num], both[:, num:]
        later = later if subset is None else later[subset]
    later = jax.lax.stop_gradient(later)
    target = td_target(agent, learner, batch, noise, critics=lambda *_: later)
    return CriticOutputs(now, target, statistics)


def target_entropy(agent: Agent, obs: Any) -> Array | float:
    """Return the target of the batch's entropy, in nats, `[]`.

    Where actions are masked, it is the mean over observations of the share of
    `log m`, with `m` the number of the valid ones.
    """
    config, num = agent.config, agent.head.num_outputs
    if not agent.head.is_discrete:
        return config.entropy_per_dimension * num
    mask = replayed_memory.mask_of(obs)
    if mask is None:
        return config.entropy_share * np.log(num)
    largest = jnp.log(jnp.maximum(mask.sum(-1), 1).astype(jnp.float32))
    return config.entropy_share * pmean(largest.mean(), agent.stepper.axis_name)


def improve(
    agent: Agent, obs: Array, noise: Any, learner: Learner
) -> tuple[Learner, Metrics]:
    """Move the policy up its soft value, and the temperature to hold the entropy.

    Args:
        noise: `[N, A]` standard normal; None for discrete actions.
    """
    temperature = temperature_of(agent, learner)
    critics = ensembles.policy_critics(
        agent.config, agent.critics, learner.params["critics"]
    )
    estimate = partial(ensembles.policy_objective, agent.config)

    def loss(actor: PyTree) -> tuple[Array, tuple[Array, PyTree]]:
        if agent.config.crossq:
            outputs, new = layers.forward(agent.actor, actor, obs)
        else:
            outputs, new = agent.actor.apply(actor, obs), ()
        found = choices(agent, outputs, critics, estimate, obs, noise)
        entropy = -(found.weight * found.log_prob).sum(-1).mean()
        value = soft_value(found, temperature)
        return -value.mean(), (entropy, new)

    minimise = jax.value_and_grad(loss, has_aux=True)
    (total, (entropy, statistics)), grads = pmean(
        minimise(learner.params["actor"]), agent.stepper.axis_name
    )
    gradients = {"actor": grads}
    if agent.config.learn_temperature:
        # The gradient is that of log alpha (H - H*): more entropy than wanted makes
        # alpha smaller. Averages over devices must come one after another: see
        # `averages`.
        seen = after(obs, entropy, agent.stepper.axis_name)
        gradients["log_temperature"] = entropy - target_entropy(agent, seen)
    learner = actor_critic.descend(agent.config, learner, gradients)
    learner = actor_critic.put_statistics(agent.config, learner, "actor", statistics)
    return learner, {"policy_loss": total, "entropy": entropy}

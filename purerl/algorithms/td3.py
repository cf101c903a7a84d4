"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018).

A deterministic policy `mu(s)` maximises the value that critics learn from replayed
steps, and three additions keep it from maximising their errors. With primes for target
networks and actions in [-1, 1], every gradient step fits two critics to

    y = r + gamma (1 - terminated) min_i Q'_i(s', a'),
    a' = clip(mu'(s') + clip(e, -c, c), -1, 1),    e ~ N(0, policy_noise^2).

1. **Clipped double Q-learning**: both learn the same target, in which the smaller value
   counts.
2. **Target policy smoothing**: noise on the target's action, symmetric around zero,
   makes a sharp peak of a critic worth little.
3. **Delayed policy updates**: every `policy_delay`-th step also improves the policy, by
   the gradient of `E[Q_1(s, mu(s))]` through the action, and moves the target networks
   by `tau (online - target)`.

A time limit bootstraps: see `batches.Batch`. Acting adds `N(0, exploration_noise^2)` to
the action of every environment by itself, evaluation does not, and the first
`random_steps` environment steps are uniformly random (`learning_starts` of them, unless
that is set apart). All noise is in units of half the range of actions.

Defaults are the paper's for the tasks in which it warms up for 1,000 steps, with the
sizes and the step size of the authors' later code (256-256, batch 256, Adam 3e-4). The
buffer of 10^6 transitions takes no more memory than the run has steps.
"""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl import auto, networks
from purerl.acting import observe, rollout
from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape
from purerl.algorithms import (
    actor_critic,
    continuous,
    ensembles,
    network_config,
    off_policy,
    twins,
)
from purerl.algorithms.actor_critic import ActorCriticState, Learner
from purerl.algorithms.ensembles import CriticOutputs, EnsembleConfig
from purerl.algorithms.off_policy import Batch
from purerl.config import (
    NON_NEGATIVE,
    POSITIVE,
    config_dataclass,
    dynamic,
    static,
)
from purerl.keys import init_keys
from purerl.learning import optimiser
from purerl.learning.branches import StepCount, change_or_wait
from purerl.learning.collectives import pmean
from purerl.networks.distributions import GaussianHead
from purerl.types import Algorithm, Array, Metrics, PyTree


@config_dataclass
class TD3Config(EnsembleConfig):
    """Twin delayed deep deterministic policy gradient."""

    usual_value: ClassVar[str] = "first"

    exploration_noise: float = dynamic(
        0.1, "Std of the exploration noise on actions in [-1, 1].", NON_NEGATIVE
    )
    policy_noise: float = dynamic(
        0.2, "Std of the noise that smooths the target's action.", NON_NEGATIVE
    )
    noise_clip: float = dynamic(
        0.5, "Largest noise on the target's action, to either side.", NON_NEGATIVE
    )
    policy_delay: int = static(
        2, "Gradient steps of the critics per step of policy and targets.", POSITIVE
    )


class Parts(NamedTuple):
    """The parts of TD3, bound once in Python: structure, and the config's numbers."""

    config: TD3Config
    stepper: rollout.Stepper
    obs_space: Any
    head: GaussianHead
    actor: nn.Module
    critics: nn.Module


def validate(config: TD3Config, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    ensembles.validate(config)
    continuous.validate(config, env, "DQNConfig or SACConfig")
    num = continuous.dimensions(env)
    words = f"actions of {num} numbers, before the tanh that comes after it"
    continuous.check_networks(config, env, (num,), words, 0)


def make(
    config: TD3Config, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Build TD3 for a config and an environment; see `build`.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread, if any.
    """
    parts = build(config, env, axis_name)
    return Algorithm(
        partial(init, parts),
        partial(step, parts),
        partial(act, parts),
        hosted=partial(actor_critic.hosted, make_hooks(parts)),
    )


def build(config: TD3Config, env: Environment, axis_name: str | None = None) -> Parts:
    """Build networks and environment of a config: what the functions below work with.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread.
    """
    config = auto.resolve(config, env)
    stepper = rollout.make_stepper(config, env, axis_name)
    head = continuous.action_range(env.action_space(stepper.params))
    obs_space = env.observation_space(stepper.params)
    shape = obs_shape(obs_space)
    actor = network_config.whole(config, "actor", shape, jnp.tanh)
    if actor is None:
        torso = network_config.torso_of(config, shape, "actor")
        actor = networks.TanhActor(torso, head.num_outputs, config.actor_gain)
    return Parts(
        config=config,
        stepper=stepper,
        obs_space=obs_space,
        head=head,
        actor=actor,
        critics=continuous.action_critics(config, shape),
    )


def init(parts: Parts, key: Array) -> ActorCriticState:
    """Make fresh networks, their copies as targets, an empty buffer."""
    keys = init_keys(key, 3)
    obs = observe.example(parts.obs_space)
    action = jnp.zeros((1, parts.head.num_outputs))
    params = networks.init_params(
        keys[:2],
        {"actor": (parts.actor, [obs]), "critics": (parts.critics, [obs, action])},
    )
    targets = ("actor", "critics")
    return actor_critic.init(make_hooks(parts), params, targets, key, keys[2])


def step(parts: Parts, state: ActorCriticState) -> tuple[ActorCriticState, Metrics]:
    """Make one update: rounds of acting, storing and learning."""
    return twins.step(make_hooks, parts, state)


def act(
    parts: Parts, state: ActorCriticState, obs: Array, key: Array | None = None
) -> Array:
    """Return the policy's action on observations `[..., *obs_shape]`.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State of one agent.
        obs: Observations as the environment gives them.
        key: Random key, consumed; without one there is no noise on the action.
    """
    features = observe.prepare(parts, state.obs_moments, obs)
    action: Any = parts.actor.apply(state.params["actor"], features)
    if key is not None:
        noise = parts.head.noise(key, action.shape[:-1])
        action = perturb(action, noise, parts.config.exploration_noise)
    return parts.head.to_env(action)


def perturb(
    action: Array, noise: Array, std: Array | float, limit: Array | float = jnp.inf
) -> Array:
    """Return `clip(action + clip(std * noise, -limit, limit), -1, 1)`.

    Args:
        action: `[..., A]` actions in [-1, 1].
        noise: Standard normal noise, of the same shape.
        std: Standard deviation of the noise that is added.
        limit: The most that is added, to either side.
    """
    return jnp.clip(action + jnp.clip(std * noise, -limit, limit), -1.0, 1.0)


def make_hooks(parts: Parts) -> off_policy.OffPolicyHooks:
    """Make TD3's part of the off-policy loop."""
    config, head, axis = parts.config, parts.head, parts.stepper.axis_name
    batch_size = rollout.per_device(config.batch_size, axis)

    def explore(learner: Learner, features: Any, noise: Array, step: Array) -> Array:
        del step
        action: Any = parts.actor.apply(learner.params["actor"], features)
        return perturb(action, noise, config.exploration_noise)

    return off_policy.OffPolicyHooks(
        config=config,
        stepper=parts.stepper,
        obs_space=parts.obs_space,
        replay=off_policy.replay_of(config, axis),
        draw_action=head.noise,
        explore=explore,
        random_action=partial(continuous.random_action, num_actions=head.num_outputs),
        to_env=head.to_env,
        draw_learning=lambda key, shape: head.noise(key, (*shape, batch_size)),
        learn=partial(learn, parts),
        policy_delay=config.policy_delay,
        draw_shared=ensembles.subsets(config),
    )


def learn(
    parts: Parts, learner: Learner, batch: Batch, noise: Any, count: StepCount
) -> tuple[Learner, Array, Metrics]:
    """Take a step of the critics and, where it is due, of the policy and the targets.

    Args:
        parts: Networks, environments and config; see `build`.
        learner: Learner before the step.
        batch: Batch from the replay buffer.
        noise: `[N, A]` standard normal, of the target's actions, and with
            `critic_subset` the critics of the target.
        count: Where the step stands among all.
    """
    noise, subset = ensembles.with_subset(parts.config, noise)
    target = td_target(parts, learner.target_params, batch, noise, subset)

    def evaluate_critics(params: PyTree) -> CriticOutputs:
        return CriticOutputs(
            parts.critics.apply(params, batch.obs, batch.action), target
        )

    learner, td_error, metrics = ensembles.fit_critics(
        parts.config, parts.stepper.axis_name, evaluate_critics, learner, batch
    )

    def wait(learner: Learner) -> tuple[Learner, Array]:
        # Without a policy step, zero is added to the sum of the policy's losses. It is
        # a product, so that it varies over devices as the loss does.
        return learner, 0.0 * metrics["value_loss"]

    due = count.completes(parts.config.policy_delay)
    learner, metrics["policy_loss"] = change_or_wait(
        due, partial(improve, parts, batch.obs), wait, learner
    )
    return learner, td_error, metrics


def td_target(
    parts: Parts,
    target_params: dict[str, PyTree],
    batch: Batch,
    noise: Array,
    subset: Array | None = None,
) -> Array:
    """Return `y = r + discount * min_i Q'_i(s', a')`, the action smoothed, `[N]`.

    With quantiles, `[K, N]` samples of the target's distribution.

    Args:
        parts: Networks, environments and config; see `build`.
        target_params: Parameters of the target networks, by name.
        batch: Batch from the replay buffer.
        noise: `[N, A]` standard normal, of the target's actions.
        subset: `[M]` int32, the critics over which the minimum is; None for all.
    """
    config = parts.config
    action: Any = parts.actor.apply(target_params["actor"], batch.next_obs)
    action = perturb(action, noise, config.policy_noise, config.noise_clip)
    values = ensembles.target_values(
        parts.critics, target_params["critics"], subset, batch.next_obs, action
    )
    return ensembles.bootstrapped(batch, ensembles.pessimistic(config, values))


def improve(parts: Parts, obs: Array, learner: Learner) -> tuple[Learner, Array]:
    """Move the policy up the critics' value, and the targets to the online networks.

    Args:
        parts: Networks, environments and config; see `build`.
        obs: Features of the batch's observations.
        learner: Learner before the step.
    """
    critics = ensembles.policy_critics(
        parts.config, parts.critics, learner.params["critics"]
    )

    def loss(params: PyTree) -> Array:
        values = critics(obs, parts.actor.apply(params, obs))
        return -ensembles.policy_objective(parts.config, values).mean()

    minimise = jax.value_and_grad(loss)
    total, grads = pmean(minimise(learner.params["actor"]), parts.stepper.axis_name)
    learner = actor_critic.descend(parts.config, learner, {"actor": grads})
    target_params = optimiser.polyak(
        learner.target_params, learner.params, parts.config.tau
    )
    return learner._replace(target_params=target_params), total

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

With `exploration_noise_max` each environment has a noise of its own, as in Parallel
Q-learning (Li et al. 2023, arXiv:2307.12983) and, drawn anew for every episode, in
FastTD3 (Seo et al. 2025, arXiv:2505.22642): thousands of environments act differently.

Defaults are the paper's for the tasks in which it warms up for 1,000 steps, with the
sizes and the step size of the authors' later code (256-256, batch 256, Adam 3e-4). The
buffer of 10^6 transitions takes no more memory than the run has steps.
"""

from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from purerl.acting import rollout
from purerl.algorithms import actor_critic, ensembles
from purerl.algorithms.actor_critic import Agent, build
from purerl.algorithms.ensembles import CriticOutputs, EnsembleConfig
from purerl.algorithms.off_policy import Batch, Hooks, Learner, State
from purerl.config import config_dataclass, dynamic, static
from purerl.envs.base import Environment
from purerl.fields import NON_NEGATIVE, POSITIVE, Check
from purerl.keys import env_draw
from purerl.learning import optimiser
from purerl.learning.averages import pmean
from purerl.learning.branches import StepCount
from purerl.types import Algorithm, Array, Metrics, PyTree

NONE_OR_NON_NEGATIVE = Check(lambda x: x is None or x >= 0, NON_NEGATIVE.words)


@config_dataclass
class TD3Config(EnsembleConfig):
    """Twin delayed deep deterministic policy gradient."""

    usual_value: ClassVar[str] = "first"

    exploration_noise: float = dynamic(
        0.1, "Std of the exploration noise on actions in [-1, 1].", NON_NEGATIVE
    )
    exploration_noise_max: float | None = dynamic(
        None,
        "Std of the noise of the last environment, those between spaced evenly "
        "from exploration_noise (PQL); None takes one std.",
        NONE_OR_NON_NEGATIVE,
    )
    policy_noise: float = dynamic(
        0.2, "Std of the noise that smooths the target's action.", NON_NEGATIVE
    )
    noise_clip: float = dynamic(
        0.5, "Largest noise on the target's action, to either side.", NON_NEGATIVE
    )
    policy_delay: int = static(
        2, "Gradient steps of the critics for each step of the policy.", POSITIVE
    )


def validate(config: TD3Config, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    ensembles.validate(config)
    actor_critic.validate(config, env)


def make(
    config: TD3Config, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Build TD3 for a config and an environment."""
    agent = build(config, env, axis_name)
    return actor_critic.algorithm(agent, init, enter, decide)


def init(agent: Agent, key: Array) -> State:
    """Make fresh networks, their copies as targets, an empty buffer."""
    return actor_critic.init(agent, key, targets=("actor", "critics"))


def make_hooks(agent: Agent) -> Hooks:
    """Make TD3's part of the learner."""
    config, head, axis = agent.config, agent.head, agent.stepper.axis_name
    batch_size = rollout.per_device(config.batch_size, axis)

    def explored(agent: Agent, action: Array, noise: Array) -> Array:
        low, high = agent.config.exploration_noise, agent.config.exploration_noise_max
        if high is None:
            return perturb(action, noise, low)
        # An environment's noise does not depend on the devices that they are spread on.
        each = lambda key, shape: jnp.linspace(low, high, *shape)  # noqa: E731
        std = env_draw(each, noise, (len(action),), axis)
        return perturb(action, noise, std[:, None])

    return actor_critic.make_hooks(
        agent,
        partial(learn, agent),
        lambda key, shape: head.noise(key, (*shape, batch_size)),
        explored,
        draw_shared=ensembles.subsets(config),
    )


enter = partial(actor_critic.enter, make_hooks)


def decide(agent: Agent, action: Array, key: Array | None) -> Array:
    """Return the policy's action for the environment; without a key it has no noise."""
    if key is not None:
        noise = agent.head.noise(key, action.shape[:-1])
        action = perturb(action, noise, agent.config.exploration_noise)
    return agent.head.to_env(action)


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


def learn(
    agent: Agent, learner: Learner, batch: Batch, noise: Any, count: StepCount
) -> tuple[Learner, Array, Metrics]:
    """Take a step of the critics and, where it is due, of the policy and the targets.

    Args:
        learner: Learner before the step.
        noise: `[N, A]` standard normal, of the target's actions, and with
            `critic_subset` the critics of the target.
        count: Where the step stands among all.
    """
    noise, subset = ensembles.with_subset(agent.config, noise)
    target = td_target(agent, learner.target_params, batch, noise, subset)

    def evaluate_critics(params: PyTree) -> CriticOutputs:
        return CriticOutputs(
            agent.critics.apply(params, batch.obs, batch.action), target
        )

    move = partial(improve, agent, batch.obs)
    return ensembles.learn(agent, evaluate_critics, move, learner, batch, count)


def td_target(
    agent: Agent,
    target_params: dict[str, PyTree],
    batch: Batch,
    noise: Array,
    subset: Array | None = None,
) -> Array:
    """Return `y = r + discount * min_i Q'_i(s', a')`, the action smoothed, `[N]`.

    With quantiles, `[K, N]` samples of the target's distribution.

    Args:
        target_params: Parameters of the target networks, by name.
        noise: `[N, A]` standard normal, of the target's actions.
        subset: `[M]` int32, the critics over which the minimum is; None for all.
    """
    config = agent.config
    action: Any = agent.actor.apply(target_params["actor"], batch.next_obs)
    action = perturb(action, noise, config.policy_noise, config.noise_clip)
    values = ensembles.target_values(
        agent.critics, target_params["critics"], subset, batch.next_obs, action
    )
    return ensembles.bootstrapped(batch, ensembles.pessimistic(config, values))


def improve(agent: Agent, obs: Array, learner: Learner) -> tuple[Learner, Metrics]:
    """Move the policy up the critics' value, and the targets to the online networks."""
    critics = ensembles.policy_critics(
        agent.config, agent.critics, learner.params["critics"]
    )

    def loss(params: PyTree) -> Array:
        values = critics(obs, agent.actor.apply(params, obs))
        return -ensembles.policy_objective(agent.config, values).mean()

    minimise = jax.value_and_grad(loss)
    total, grads = pmean(minimise(learner.params["actor"]), agent.stepper.axis_name)
    learner = actor_critic.descend(agent.config, learner, {"actor": grads})
    targets = learner.target_params
    online = {name: learner.params[name] for name in targets}
    target_params = optimiser.polyak(targets, online, agent.config.tau)
    return learner._replace(target_params=target_params), {"policy_loss": total}

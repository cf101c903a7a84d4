"""Vanilla policy gradient: REINFORCE (Williams 1992) with a baseline, or without.

Every update collects `T` steps in `B` environments with the current policy, takes *one*
gradient step on the policy over all of them,

    grad J = E[A grad log pi(a|s)]  (+ c_e grad E[entropy]),

and then fits the value function to the rewards-to-go, by several steps over the whole
batch with a step size of its own. The weight `A` of an action is

    gae                            sum_k (gamma lambda)^k delta_{t+k}
    rewards_to_go                  R_t - V(s_t)
    rewards_to_go, no baseline     R_t

with `R_t` the discounted rewards to the end of the path (`returns.rewards_to_go`), then
standardised over the batch. No reward of the next episode counts, and a path that did
not come to its end is not taken for one that did: where a time limit or the end of the
rollout cuts it, `V` of the observation beyond the cut completes `R_t`. So the value
function is fitted, and used there, even where it is no baseline.

Form and defaults are those of Spinning Up's VPG (Achiam 2018), with its epoch of 4,000
steps spread over 8 environments. Our networks start orthogonal, the policy's last layer
near zero.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from purerl.acting.rollout import Played
from purerl.algorithms import checks, on_policy, policy_gradient
from purerl.algorithms.on_policy import Agent, Learned, OnPolicyState
from purerl.algorithms.own_terms import AddGradient
from purerl.algorithms.policy_gradient import Batch, PolicyGradientConfig
from purerl.config import ConfigError, config_dataclass, dynamic, static
from purerl.envs.base import Environment
from purerl.fields import POSITIVE, one_of
from purerl.learning import optimiser
from purerl.learning.averages import RewardScale, after, pmean, standardise
from purerl.learning.optimiser import frozen_in
from purerl.learning.returns import rewards_to_go
from purerl.learning.sequences import flatten
from purerl.optimisers import Adam
from purerl.types import Algorithm, Array, Metrics, PyTree


@config_dataclass
class VPGConfig(PolicyGradientConfig):
    """Vanilla policy gradient."""

    num_envs: int = 8
    num_steps: int = 500
    learning_rate: float = 3e-4
    critic_learning_rate: float = dynamic(1e-3, "Step size of the critic.", POSITIVE)
    critic_iterations: int = static(80, "Gradient steps of the critic.", POSITIVE)
    advantage: str = static("gae", "Weight of actions.", one_of("gae", "rewards_to_go"))
    baseline: bool = static(True, "Subtract the value from the rewards-to-go.")
    gae_lambda: float = 0.97
    normalize_advantages: bool = static(True, "Standardise advantages over the batch.")
    log_std_init: float = -0.5

    @property
    def sequential_steps(self) -> int:
        """Dependent operations of one update: environment and gradient steps."""
        return self.num_steps + 1 + self.critic_iterations


def validate(config: VPGConfig, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    checks.policy_gradient(config, env)
    if config.advantage == "gae" and not config.baseline:
        raise ConfigError(
            "baseline must be True where advantage is 'gae', which is made of values, "
            "got False; use advantage='rewards_to_go'."
        )


def make(
    config: VPGConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Bind VPG to a config and an environment; arguments as of `ppo.make`."""
    agent = policy_gradient.make_agent(config, env, axis_name)
    return on_policy.algorithm(agent, learn, partial(init_optimisers, agent))


def init_optimisers(agent: Agent, params: dict[str, PyTree]) -> PyTree:
    """Return the states of the optimisers; every network has one of its own."""
    return {
        name: optimiser_of(agent, name, network).init(optimiser.flatten(network)[0])
        for name, network in params.items()
    }


def learn(agent: Agent, state: OnPolicyState, played: Played, key: Array) -> Learned:
    """Take one gradient step on the policy, then many on the value function."""
    del key  # Nothing of the algorithm's own is random.
    samples, reward_scale = targets(agent, state, played)
    batch, axis, add, moved = flatten(samples), agent.axis_name, None, {}
    if agent.terms is not None:
        add = agent.terms.over(agent, state, played, on_policy.NUM_KEYS)
        for name in agent.terms.heads:  # They learn by the terms alone.
            moved[name] = descend(
                agent, state, name, lambda _: (jnp.zeros(()), {}), add
            )
            last = optimiser.flatten(moved[name][0])[0].sum()
            batch = after(batch, last, axis)
    moved["actor"] = improve_policy(agent, state, batch, add)
    params = {**state.params, "actor": moved["actor"][0]}
    # Averages over devices must come one after another: see `averages`.
    last = after(batch, moved["actor"][2]["approx_kl"], axis)
    moved["critic"] = fit_value(agent, state._replace(params=params), last, add)
    return Learned(
        params={name: found[0] for name, found in moved.items()},
        opt_state={name: found[1] for name, found in moved.items()},
        metrics=moved["actor"][2] | moved["critic"][2],
        reward_scale=reward_scale,
        value_and_target=(batch.value, batch.target),
    )


def targets(
    agent: Agent, state: OnPolicyState, played: Played
) -> tuple[Batch, RewardScale]:
    """Return samples `[T, B, ...]` with weights of actions and targets of values.

    And the statistics of returns with this rollout in.
    """
    config, transitions = agent.config, played.transitions
    seen, scale = policy_gradient.estimate(agent, state, played)
    ends = transitions.terminated, transitions.truncated
    to_go = rewards_to_go(seen.reward, seen.next_value, *ends, gamma=config.gamma)
    if config.advantage == "gae":
        advantage = policy_gradient.advantages(agent, seen, transitions)
    else:
        advantage = to_go - seen.value if config.baseline else to_go
    if config.normalize_advantages:
        flat = standardise(advantage.ravel(), agent.axis_name)
        advantage = flat.reshape(advantage.shape)
    action, log_prob = transitions.action, transitions.log_prob
    batch = Batch(seen.obs, action, log_prob, seen.value, advantage, to_go)
    return batch, scale


Moved = tuple[PyTree, PyTree, Metrics]
"""A network, its optimiser's state, and what its steps report."""


def improve_policy(
    agent: Agent, state: OnPolicyState, batch: Batch, add: AddGradient | None = None
) -> Moved:
    """Take one gradient step on the policy; `add` is that of the user's own terms."""

    def loss(actor: PyTree) -> tuple[Array, Metrics]:
        return policy_loss(agent, actor, batch)

    actor, opt_state, metrics = descend(agent, state, "actor", loss, add)
    outputs = agent.actor.apply(actor, batch.obs)
    log_ratio = agent.head.log_prob(outputs, batch.action) - batch.log_prob
    # KL(old || new) by the samples of the old policy: k3 in Schulman (2020).
    divergence = (jnp.expm1(log_ratio) - log_ratio).mean()
    metrics["grad_norm"] = optimiser.grad_norm(opt_state)
    metrics["approx_kl"] = pmean(divergence, agent.axis_name)
    return actor, opt_state, metrics


def policy_loss(agent: Agent, actor: PyTree, batch: Batch) -> tuple[Array, Metrics]:
    """Return the scalar whose gradient is the policy gradient, negated."""
    outputs = agent.actor.apply(actor, batch.obs)
    loss = -(batch.advantage * agent.head.log_prob(outputs, batch.action)).mean()
    entropy = agent.head.entropy(outputs).mean()
    total = loss - agent.config.entropy_coef * entropy
    return total, {"policy_loss": loss, "entropy": entropy}


def fit_value(
    agent: Agent, state: OnPolicyState, batch: Batch, add: AddGradient | None = None
) -> Moved:
    """Regress on the targets, by `critic_iterations` steps.

    `value_loss` is that of the values the rollout was judged by, `value_loss_last` that
    of the last gradient step. A shared torso is the actor's: it stays as the policy's
    step left it, and the critic's head alone is fitted to its features.
    """
    config, inputs = agent.config, agent.inputs(state.params, batch.obs)

    def loss(critic: PyTree) -> tuple[Array, Metrics]:
        value: Any = agent.critic.apply(critic, inputs)
        error = config.value_loss(value, batch.target, batch.value).mean()
        return error, {"value_loss": error}

    steps = config.critic_iterations
    critic, opt_state, each = descend(agent, state, "critic", loss, add, steps)
    errors = each["value_loss"]
    return critic, opt_state, {"value_loss": errors[0], "value_loss_last": errors[-1]}


def descend(
    agent: Agent,
    state: OnPolicyState,
    name: str,
    loss: Callable[[PyTree], tuple[Array, Metrics]],
    add: AddGradient | None = None,
    steps: int | None = None,
) -> Moved:
    """Take a gradient step on a network, or `steps` of them with metrics `[steps]`."""
    flat, restore = optimiser.flatten(state.params[name])
    optim = optimiser_of(agent, name, state.params[name], state.update)

    def restored(flat: Array) -> PyTree:
        return {**state.params, name: restore(flat)}

    def step(carry: tuple, _: None = None) -> tuple[tuple, Metrics]:
        flat, opt_state = carry
        grads, metrics = jax.grad(lambda x: loss(restore(x)), has_aux=True)(flat)
        if add is not None:
            grads, found = add(grads, restored, flat)
            metrics = {**metrics, **found}
        grads, metrics = pmean((grads, metrics), agent.axis_name)
        moves, opt_state = optim.update(grads, opt_state, flat)
        return (flat + moves, opt_state), metrics  # type: ignore[operator]

    start = flat, state.opt_state[name]
    if steps is None:
        (flat, opt_state), metrics = step(start)
    else:
        (flat, opt_state), metrics = jax.lax.scan(step, start, length=steps)
    return restore(flat), opt_state, metrics


def optimiser_of(
    agent: Agent, name: str, params: PyTree, update: Any = 0
) -> optax.GradientTransformation:
    """Return the optimiser of a network, on a flat vector of its parameters."""
    config = agent.config
    chosen, rate = config.optimiser, config.learning_rate
    if name not in ("actor", "critic"):  # The network of a term of the user's own.
        chosen = Adam()
    if name == "critic":
        chosen, rate = optimiser.without_noise(chosen), config.critic_learning_rate
    return optimiser.make(
        chosen,
        on_policy.learning_rate(agent, rate, update),
        layers=optimiser.layers_of(params),
        frozen=frozen_in(config.frozen, name),
        measured=name == "actor",
    )

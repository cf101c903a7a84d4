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

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from purerl.acting.rollout import Played
from purerl.algorithms import checks, on_policy, pieces, policy_gradient
from purerl.algorithms.on_policy import Agent, Learned, OnPolicyState
from purerl.algorithms.own_terms import AddGradient
from purerl.algorithms.policy_gradient import Batch, PolicyGradientConfig
from purerl.config import ConfigError, config_dataclass, dynamic, static
from purerl.config.fields import FRACTION, POSITIVE, one_of
from purerl.envs.base import Environment
from purerl.learning import optimiser
from purerl.learning.averages import RewardScale, after, pmean, standardise
from purerl.learning.optimiser import frozen_in
from purerl.learning.returns import rewards_to_go
from purerl.types import Algorithm, Array, Metrics, PyTree


@config_dataclass
class VPGConfig(PolicyGradientConfig):
    """Vanilla policy gradient."""

    num_envs: int = static(8, "Environments of one agent.", POSITIVE)
    num_steps: int = static(500, "Steps per environment and update.", POSITIVE)
    learning_rate: float = dynamic(3e-4, "Step size of the policy.", POSITIVE)
    critic_learning_rate: float = dynamic(1e-3, "Step size of the critic.", POSITIVE)
    critic_iterations: int = static(80, "Gradient steps of the critic.", POSITIVE)
    advantage: str = static("gae", "Weight of actions.", one_of("gae", "rewards_to_go"))
    baseline: bool = static(True, "Subtract the value from the rewards-to-go.")
    gae_lambda: float = dynamic(0.97, "Trace decay of the advantage.", FRACTION)
    normalize_advantages: bool = static(True, "Standardise advantages over the batch.")
    log_std_init: float = static(-0.5, "Initial log standard deviation.")

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
    return on_policy.algorithm(agent, learn, partial(init_optimisers, agent.config))


def init_optimisers(config: VPGConfig, params: dict[str, PyTree]) -> PyTree:
    """Return the states of the optimisers; `actor` and `critic` have one each."""
    return {
        name: optimiser_of(config, name, network).init(optimiser.flatten(network)[0])
        for name, network in params.items()
    }


def learn(agent: Agent, state: OnPolicyState, played: Played, key: Array) -> Learned:
    """Take one gradient step on the policy, then many on the value function."""
    del key  # Nothing of the algorithm's own is random.
    samples, reward_scale = targets(agent, state, played)
    batch = on_policy.flatten(samples)
    terms, heads, heads_opt = None, {}, {}
    if agent.terms is not None:
        terms = agent.terms.over(agent, state, played, pieces.NUM_KEYS)
        heads, heads_opt = _move_heads(agent, state, terms, agent.terms.heads)
    if heads:
        last = sum(jnp.sum(x) for x in jax.tree.leaves(heads))
        batch = after(batch, jnp.asarray(last), agent.axis_name)
    actor, actor_opt, losses = improve_policy(agent, state, batch, terms)
    # Averages over devices must come one after another: see `averages`.
    last = after(batch, losses["approx_kl"], agent.axis_name)
    moved = state._replace(params={**state.params, "actor": actor})
    critic, critic_opt, value_losses = fit_value(agent, moved, last, terms)
    return Learned(
        params={"actor": actor, "critic": critic, **heads},
        opt_state={"actor": actor_opt, "critic": critic_opt, **heads_opt},
        metrics=losses | value_losses,
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


def _move_heads(
    agent: Agent, state: OnPolicyState, terms: AddGradient, names: tuple[str, ...]
) -> tuple[dict[str, PyTree], dict[str, PyTree]]:
    """Return the networks of the user's own terms, and their optimisers' states."""
    if not names:
        return {}, {}
    own = {name: state.params[name] for name in names}
    zeros = jax.tree.map(jnp.zeros_like, own)
    grads, _ = terms(zeros, lambda own: {**state.params, **own}, own)
    grads = pmean(grads, agent.axis_name)
    heads, states = {}, {}
    for name in names:
        gradient = optimiser.flatten(grads[name])[0]
        heads[name], states[name] = _step(agent, state, name, gradient)
    return heads, states


def _step(
    agent: Agent, state: OnPolicyState, name: str, gradient: Array
) -> tuple[PyTree, PyTree]:
    """A network after a step along its flat gradient, and its optimiser's state."""
    params = state.params[name]
    flat, restore = optimiser.flatten(params)
    optim = optimiser_of(agent.config, name, params, agent, state.update)
    moves, opt_state = optim.update(gradient, state.opt_state[name], flat)
    return restore(flat + moves), opt_state  # type: ignore[operator]


def improve_policy(
    agent: Agent,
    state: OnPolicyState,
    batch: Batch,
    terms: AddGradient | None = None,
) -> tuple[PyTree, PyTree, Metrics]:
    """Take one gradient step; return the actor, its optimiser's state, diagnostics.

    `terms` adds the gradient of the user's own terms, if there are any.
    """
    config, params = agent.config, state.params
    flat, restore = optimiser.flatten(params["actor"])

    def loss(flat: Array) -> tuple[Array, Metrics]:
        return policy_loss(agent, restore(flat), batch)

    grads, metrics = jax.grad(loss, has_aux=True)(flat)
    if terms is not None:

        def with_actor(flat: Array) -> PyTree:
            return {**params, "actor": restore(flat)}

        grads, found = terms(grads, with_actor, flat)
        metrics = {**metrics, **found}
    grads, metrics = pmean((grads, metrics), agent.axis_name)
    actor, opt_state = _step(agent, state, "actor", grads)

    outputs = agent.actor.apply(actor, batch.obs)
    log_ratio = agent.head.log_prob(outputs, batch.action) - batch.log_prob
    # KL(old || new) by the samples of the old policy: k3 in Schulman (2020).
    divergence = (jnp.expm1(log_ratio) - log_ratio).mean()
    # What is frozen does not move, and counts for nothing in the norm.
    frozen = frozen_in(config.frozen, "actor")
    layers = optimiser.layers_of(params["actor"])
    still = optimiser.keep_frozen(optax.identity(), layers, frozen)
    moving: Any = still.update(grads, optax.EmptyState(), grads)[0]
    metrics["grad_norm"] = optax.tree.norm(moving)
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
    agent: Agent, state: OnPolicyState, batch: Batch, terms: Any = None
) -> tuple[PyTree, PyTree, Metrics]:
    """Regress on the targets; return the critic, its optimiser's state, losses.

    `value_loss` is that of the values the rollout was judged by, `value_loss_last` that
    of the last gradient step. A shared torso is the actor's: it stays as the policy's
    step left it, and the critic's head alone is fitted to its features. `terms` are
    the user's own, which every step minimises too.
    """
    config, critic = agent.config, state.params["critic"]
    optim = optimiser_of(config, "critic", critic, agent, state.update)
    flat, restore = optimiser.flatten(critic)
    inputs = agent.inputs(state.params, batch.obs)

    def loss(flat: Array) -> Array:
        value: Any = agent.critic.apply(restore(flat), inputs)
        return config.value_loss(value, batch.target, batch.value).mean()

    def with_critic(flat: Array) -> PyTree:
        return {**state.params, "critic": restore(flat)}

    def minimise(carry: tuple, _: None) -> tuple[tuple, Array]:
        flat, opt_state = carry
        error, grads = jax.value_and_grad(loss)(flat)
        if terms is not None:
            grads, _ = terms(grads, with_critic, flat)
        error, grads = pmean((error, grads), agent.axis_name)
        updates, opt_state = optim.update(grads, opt_state, flat)
        return (flat + updates, opt_state), error

    start = flat, state.opt_state["critic"]
    (flat, opt_state), errors = jax.lax.scan(
        minimise, start, length=config.critic_iterations
    )
    losses = {"value_loss": errors[0], "value_loss_last": errors[-1]}
    return restore(flat), opt_state, losses


def optimiser_of(
    config: VPGConfig,
    name: str,
    params: PyTree,
    agent: Agent | None = None,
    update: Any = 0,
) -> optax.GradientTransformation:
    """Return the optimiser of a network, on a flat vector of its parameters.

    Args:
        name: `actor`, `critic` or the name of a term of the user's own.
        params: Parameters of that network.
        agent: The agent, whose run the step size may follow.
        update: Number of updates done.
    """
    chosen, rate = config.optimiser, config.learning_rate
    if name not in ("actor", "critic"):  # The network of a term of the user's own.
        chosen = optax.adam
    if name == "critic":
        chosen = optimiser.without_noise(chosen)
        rate = config.critic_learning_rate
    if agent is not None:
        rate = on_policy.learning_rate(agent, rate, update)
    layers = optimiser.layers_of(params)
    return optimiser.transformation(
        chosen, rate, layers, frozen_in(config.frozen, name)
    )

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
import optax

from purerl.acting.environment import Environment
from purerl.acting.rollout import Rollout
from purerl.algorithms import on_policy, on_policy_config
from purerl.algorithms.checks import check_standardised
from purerl.algorithms.on_policy import (
    Batch,
    OnPolicyState,
    Parts,
    build,
)
from purerl.algorithms.on_policy_config import OnPolicyConfig
from purerl.config import (
    FRACTION,
    POSITIVE,
    ConfigError,
    config_dataclass,
    dynamic,
    one_of,
    static,
)
from purerl.keys import update_keys
from purerl.learning import diagnostics, normalise, optimiser
from purerl.learning.collectives import after, pmean
from purerl.learning.parts import frozen_in
from purerl.learning.returns import gae, rewards_to_go
from purerl.types import Algorithm, Array, Metrics, PyTree, Transition


@config_dataclass
class VPGConfig(OnPolicyConfig):
    """Vanilla policy gradient."""

    num_envs: int = static(
        8, "Environments that one agent steps in parallel.", POSITIVE
    )
    num_steps: int = static(500, "Steps per environment and update.", POSITIVE)
    learning_rate: float = dynamic(3e-4, "Step size of the policy.", POSITIVE)
    critic_learning_rate: float = dynamic(1e-3, "Step size of the critic.", POSITIVE)
    critic_optimiser: Any = dynamic(
        None, "Optimiser of the critic; None takes optimiser."
    )
    critic_iterations: int = static(
        80, "Gradient steps of the critic per update.", POSITIVE
    )
    advantage: str = static(
        "gae",
        "Weight of an action's log-probability: gae (the advantage) or rewards_to_go.",
        one_of("gae", "rewards_to_go"),
    )
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
    on_policy_config.validate(config, env)
    if config.normalize_advantages:
        check_standardised(config.num_envs * config.num_steps, "num_envs * num_steps")
    if config.advantage == "gae" and not config.baseline:
        raise ConfigError(
            "baseline must be True where advantage is 'gae', which is made of values, "
            "got False; use advantage='rewards_to_go'."
        )


def make(
    config: VPGConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Build VPG for a config and an environment; see `on_policy.build`.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread, if any.
    """
    parts = build(config, env, axis_name)
    return Algorithm(
        partial(init, parts),
        partial(step, parts),
        partial(on_policy.act, parts),
        hosted=partial(on_policy.hosted, parts, learn),
    )


def init(parts: Parts[VPGConfig], key: Array) -> OnPolicyState:
    """Make networks and environments; `actor` and `critic` have their own optimiser."""
    config = parts.config
    rates = {"actor": config.learning_rate, "critic": config.critic_learning_rate}

    def init_optimisers(params: dict[str, PyTree]) -> PyTree:
        return {
            name: _optimiser(config, name, rate, params[name]).init(
                optimiser.flatten(params[name])[0]
            )
            for name, rate in rates.items()
        }

    return on_policy.init(parts, key, init_optimisers)


def step(
    parts: Parts[VPGConfig], state: OnPolicyState
) -> tuple[OnPolicyState, Metrics]:
    """Make one update: collect, one step of the policy, many of the value function."""
    keys = update_keys(state, 3)
    return learn(parts, state, on_policy.collect(parts, state, keys), keys)


def learn(
    parts: Parts[VPGConfig],
    state: OnPolicyState,
    collected: Rollout,
    keys: Array,
) -> tuple[OnPolicyState, Metrics]:
    """Improve the policy by a rollout, then the values; return state and metrics.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State with which the rollout was collected.
        collected: The rollout, from `on_policy.collect`.
        keys: Keys of the update, the first three of which the rollout has used.
    """
    del keys  # Nothing more is random.
    envs, transitions, episodes = collected
    batch, reward_scale = make_batch(parts, state, transitions)
    actor, actor_opt, losses = improve_policy(parts, state, batch)
    # Averages over devices must come one after another: see `collectives`.
    last = after(batch, losses["approx_kl"], parts.axis_name)
    moved = state._replace(params={**state.params, "actor": actor})
    critic, critic_opt, value_losses = fit_value(parts, moved, last)
    losses |= value_losses
    metrics = on_policy.report(parts, state.update, episodes, batch, losses)
    new = OnPolicyState(
        params={"actor": actor, "critic": critic},
        opt_state={"actor": actor_opt, "critic": critic_opt},
        obs_moments=on_policy.observe(
            parts, state.obs_moments, transitions.obs, metrics["explained_variance"]
        ),
        reward_scale=reward_scale,
        envs=envs,
        key=state.key,
        update=state.update + 1,
    )
    return new, metrics


def make_batch(
    parts: Parts[VPGConfig], state: OnPolicyState, transitions: Transition
) -> tuple[Batch, normalise.RewardScale]:
    """Compute weights of actions and targets of values, flattened to `[N, ...]`.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State with which the rollout was collected.
        transitions: `[T, B, ...]` transitions of the rollout.
    """
    config = parts.config
    seen, scale = on_policy.estimate(parts, state, transitions)
    ends = transitions.terminated, transitions.truncated
    to_go = rewards_to_go(seen.reward, seen.next_value, *ends, gamma=config.gamma)
    if config.advantage == "gae":
        advantage = gae(
            seen.reward,
            seen.value,
            seen.next_value,
            *ends,
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
        )
    else:
        advantage = to_go - seen.value if config.baseline else to_go
    batch = on_policy.flatten(
        Batch(
            obs=seen.obs,
            action=transitions.action,
            log_prob=transitions.log_prob,
            value=seen.value,
            advantage=advantage,
            target=to_go,
        )
    )
    if config.normalize_advantages:
        advantage = normalise.standardise(batch.advantage, parts.axis_name)
        batch = batch._replace(advantage=advantage)
    return batch, scale


def improve_policy(
    parts: Parts[VPGConfig], state: OnPolicyState, batch: Batch
) -> tuple[PyTree, PyTree, Metrics]:
    """Take one gradient step; return the actor, its optimiser's state, diagnostics.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State before the update.
        batch: `[N, ...]` samples of the rollout.
    """
    config = parts.config
    rate = on_policy.annealed(parts, config.learning_rate, state.update)
    flat, restore = optimiser.flatten(state.params["actor"])

    def flat_loss(flat: Array) -> tuple[Array, Metrics]:
        return policy_loss(parts, restore(flat), batch)

    grads, metrics = jax.grad(flat_loss, has_aux=True)(flat)
    grads, metrics = pmean((grads, metrics), parts.axis_name)
    optim = _optimiser(config, "actor", rate, state.params["actor"])
    updates, opt_state = optim.update(grads, state.opt_state["actor"], flat)
    actor = restore(optax.apply_updates(flat, updates))  # type: ignore[arg-type]

    outputs = parts.actor.apply(actor, batch.obs)
    log_ratio = parts.head.log_prob(outputs, batch.action) - batch.log_prob
    divergence = diagnostics.approx_kl(log_ratio).mean()
    metrics["grad_norm"] = optax.tree.norm(_moving(config, state.params, grads))
    metrics["approx_kl"] = pmean(divergence, parts.axis_name)
    return actor, opt_state, metrics


def policy_loss(
    parts: Parts[VPGConfig], actor: PyTree, batch: Batch
) -> tuple[Array, Metrics]:
    """Return the scalar whose gradient is the policy gradient, negated.

    Args:
        parts: Networks, environments and config; see `build`.
        actor: Parameters of the policy.
        batch: `[N, ...]` samples of the rollout.
    """
    head = parts.head
    outputs = parts.actor.apply(actor, batch.obs)
    loss = -(batch.advantage * head.log_prob(outputs, batch.action)).mean()
    entropy = head.entropy(outputs).mean()
    total = loss - parts.config.entropy_coef * entropy
    return total, {"policy_loss": loss, "entropy": entropy}


def fit_value(
    parts: Parts[VPGConfig], state: OnPolicyState, batch: Batch
) -> tuple[PyTree, PyTree, Metrics]:
    """Regress on the targets; return the critic, its optimiser's state, losses.

    `value_loss` is that of the values the rollout was judged by, `value_loss_last` that
    of the last gradient step. A shared torso is the actor's: it stays as the policy's
    step left it, and the critic's head alone is fitted to its features.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State before the update, with the actor after it.
        batch: `[N, ...]` samples of the rollout.
    """
    config = parts.config
    rate = on_policy.annealed(parts, config.critic_learning_rate, state.update)
    optim = _optimiser(config, "critic", rate, state.params["critic"])
    flat, restore = optimiser.flatten(state.params["critic"])
    inputs = on_policy.inputs(parts, state.params, batch.obs)

    def loss(flat: Array) -> Array:
        value: Any = parts.critic.apply(restore(flat), inputs)
        return config.value_loss(value, batch.target, batch.value).mean()

    def minimise(carry: tuple, _: None) -> tuple[tuple, Array]:
        flat, opt_state = carry
        error, grads = pmean(jax.value_and_grad(loss)(flat), parts.axis_name)
        updates, opt_state = optim.update(grads, opt_state, flat)
        return (flat + updates, opt_state), error

    (flat, opt_state), errors = jax.lax.scan(
        minimise,
        (flat, state.opt_state["critic"]),
        length=config.critic_iterations,
    )
    return (
        restore(flat),
        opt_state,
        {"value_loss": errors[0], "value_loss_last": errors[-1]},
    )


def _moving(config: VPGConfig, params: PyTree, grads: Array) -> Array:
    """Return the actor's flat gradient with zeros for what is frozen."""
    layers = optimiser.layers_of(params["actor"])
    frozen = frozen_in(config.frozen, "actor")
    optim = optimiser.keep_frozen(optax.identity(), layers, frozen)
    return optim.update(grads, optim.init(grads), grads)[0]  # type: ignore[return-value]


def _optimiser(
    config: VPGConfig, name: str, rate: Array | float, params: PyTree
) -> optax.GradientTransformation:
    """The optimiser of `actor` or `critic`, on a flat vector of their parameters."""
    chosen = config.optimiser
    if name == "critic":
        own = config.critic_optimiser
        chosen = optimiser.without_noise(chosen if own is None else own)
    layers = optimiser.layers_of(params)
    return optimiser.transformation(
        chosen, rate, layers, frozen_in(config.frozen, name)
    )

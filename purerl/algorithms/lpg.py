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

import jax
import jax.numpy as jnp
import optax

from purerl import auto, networks
from purerl.acting import observe, rollout
from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape
from purerl.algorithms import network_config, on_policy
from purerl.algorithms.checks import check_hidden_sizes
from purerl.algorithms.network_config import NetworkConfig
from purerl.algorithms.on_policy import OnPolicyState
from purerl.algorithms.on_policy_config import check_shared
from purerl.algorithms.on_policy_networks import make_actor, on_features
from purerl.config import (
    AUTO,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_OR_NONE,
    ConfigError,
    config_dataclass,
    dynamic,
    static,
)
from purerl.keys import update_keys
from purerl.learning import diagnostics, optimiser
from purerl.learning.collectives import after, pmean
from purerl.learning.parts import frozen_in
from purerl.networks.distributions import is_discrete, make_head
from purerl.optimisers import Adam
from purerl.optimisers.check import check_optimisers
from purerl.rules import ActorCriticRule, RuleInputs, Targets
from purerl.rules.check import check_rule
from purerl.types import Algorithm, Array, Metrics, PyTree, Transition

# The paper's size of the prediction, for rules that do not set one.
PREDICTION_SIZE = 30
# The networks and the environments are those of `on_policy`.
Parts = on_policy.Parts[Any]


@config_dataclass
class LPGConfig(NetworkConfig):
    """Learned policy gradient."""

    num_envs: int = static(
        64, "Environments that one agent steps in parallel.", POSITIVE
    )
    num_steps: int = static(20, "Steps per environment and update.", POSITIVE)
    rule: Any = dynamic(
        ActorCriticRule(),
        "Rule that makes the targets of a rollout, by hand or learned.",
    )
    prediction_size: int = static(
        AUTO,
        "Size of the prediction vector; auto takes that of the rule's network, or "
        "30 if the rule has no network.",
        POSITIVE,
    )
    prediction_coef: float = dynamic(
        0.5, "Weight alpha_y of the prediction's divergence.", NON_NEGATIVE
    )
    entropy_coef: float = dynamic(0.0, "Weight of the entropy bonus.", NON_NEGATIVE)
    learning_rate: float = dynamic(5e-3, "Step size of the optimiser.", POSITIVE)
    optimiser: Any = dynamic(Adam(), "Optimiser of policy and prediction.")
    max_grad_norm: float | None = dynamic(
        None, "Largest global gradient norm; None for no bound.", POSITIVE_OR_NONE
    )
    anneal_learning_rate: bool = static(False, "Decay the step size linearly to 0.")
    normalize_observations: bool = static(
        False, "Standardise observations by running moments."
    )
    clip_observations: float = dynamic(
        10.0, "Largest normalised observation; CleanRL's and Baselines' 10.", POSITIVE
    )
    actor: Any = network_config.actor_field()
    actor_gain: float = network_config.actor_gain_field()
    shared_torso: bool = static(
        False, "Give policy and prediction one common torso in place of one each."
    )
    actor_keys: tuple[str, ...] = network_config.keys_field("actor")
    critic_keys: tuple[str, ...] = network_config.keys_field("critic")

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one update, `T * B`."""
        return self.num_envs * self.num_steps

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
    check_hidden_sizes(config.hidden_sizes)
    check_optimisers(config)
    check_rule(config.rule, config.prediction_size)
    space = env.action_space(env.default_params)
    if not is_discrete(space):
        raise ConfigError(
            "LPGConfig needs discrete actions, whose probabilities the rule sees, got "
            f"{space} of {env.name}; use PPOConfig or VPGConfig."
        )
    # It has every field of `OnPolicyConfig` that is read there.
    fields: Any = config
    check_shared(fields)
    network_config.check_torsos(config, env, ("actor", "critic"))
    shape = obs_shape(env.observation_space(env.default_params))
    num, size = make_head(space, "auto").num_outputs, config.prediction_size
    words = f"logits of {num} actions"
    network_config.check_whole(config, "actor", [shape], (num,), words)
    words = f"{size} logits of the prediction"
    network_config.check_whole(config, "critic", [shape], (size,), words)


def make(
    config: LPGConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Build LPG for a config and an environment; see `build`.

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


def build(config: LPGConfig, env: Environment, axis_name: str | None = None) -> Parts:
    """Build networks and environment of a config: what the functions below work with.

    The prediction stands where other algorithms have their critic.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread.
    """
    config = auto.resolve(config, env)
    stepper = rollout.make_stepper(config, env, axis_name)
    obs_space = env.observation_space(stepper.params)
    head = make_head(env.action_space(stepper.params), "auto")
    shape = obs_shape(obs_space)
    # It has every field of `OnPolicyConfig` that is read there.
    fields: Any = config
    actor = on_inputs = make_actor(fields, head, shape)
    prediction = network_config.whole(config, "critic", shape)
    if prediction is None:
        torso = network_config.torso_of(config, shape, "critic")
        prediction = networks.CategoricalActor(
            torso, config.prediction_size, config.critic_gain
        )
    if config.shared_torso:
        on_inputs = on_features(actor, shape)
        prediction = on_features(prediction, shape)
    return Parts(
        config=config,
        stepper=stepper,
        obs_space=obs_space,
        head=head,
        actor=actor,
        critic=prediction,
        on_inputs=on_inputs,
        num_updates=max(1, config.total_timesteps // config.steps_per_update),
        axis_name=axis_name,
    )


def init(parts: Parts, key: Array) -> OnPolicyState:
    """Make fresh networks and environments; the key is kept in the state."""

    def init_optimiser(params: PyTree) -> PyTree:
        optim = _optimiser(parts.config, parts.config.learning_rate, params)
        return optim.init(optimiser.flatten(params)[0])

    return on_policy.init(parts, key, init_optimiser)


def step(parts: Parts, state: OnPolicyState) -> tuple[OnPolicyState, Metrics]:
    """Make one update: collect, ask the rule, take one gradient step."""
    keys = update_keys(state, 3)
    return learn(parts, state, on_policy.collect(parts, state, keys), keys)


def learn(
    parts: Parts, state: OnPolicyState, collected: rollout.Rollout, keys: Array
) -> tuple[OnPolicyState, Metrics]:
    """Take the step that the rule asks for; return state and metrics.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State with which the rollout was collected.
        collected: The rollout, from `on_policy.collect`.
        keys: Keys of the update, the first three of which the rollout has used.
    """
    del keys  # Nothing more is random.
    config, axis = parts.config, parts.axis_name
    envs, transitions, episodes = collected
    targets = config.rule(rule_inputs(parts, state, transitions))
    obs = observe.prepare(parts, state.obs_moments, transitions.obs)
    batch = Batch(obs, transitions.action, targets)
    params, opt_state, losses = improve(parts, state, batch)

    # Averages over devices must come one after another: see `collectives`.
    episodes = after(episodes, losses["policy_loss"], axis)
    metrics = rollout.episode_metrics(episodes, axis) | losses
    env_steps = (state.update + 1).astype(jnp.uint32)
    metrics["env_steps"] = env_steps * jnp.uint32(config.steps_per_update)
    new = state._replace(
        params=params,
        opt_state=opt_state,
        obs_moments=on_policy.observe(
            parts, state.obs_moments, transitions.obs, metrics["episode_return"]
        ),
        envs=envs,
        update=state.update + 1,
    )
    return new, metrics


def rule_inputs(
    parts: Parts, state: OnPolicyState, transitions: Transition
) -> RuleInputs:
    """Return a rollout as the rule sees it, `[T, B, ...]`.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State with which the rollout was collected.
        transitions: `[T, B, ...]` transitions of the rollout.
    """

    def see(obs: Any) -> Any:
        prepared = observe.prepare(parts, state.obs_moments, obs)
        return on_policy.inputs(parts, state.params, prepared)

    inputs, next_inputs = see(transitions.obs), see(transitions.next_obs)
    outputs = parts.on_inputs.apply(state.params["actor"], inputs)
    return RuleInputs(
        reward=transitions.reward,
        terminated=transitions.terminated,
        truncated=transitions.truncated,
        gamma=parts.config.gamma,
        # The log-probabilities stored in the rollout are data, so they would be
        # constants to a meta-gradient. The rule must see those of an agent that it has
        # made itself.
        log_prob=parts.head.log_prob(outputs, transitions.action),
        log_prediction=log_prediction(parts, state.params, inputs),
        # This is the prediction for the observation before any reset.
        next_log_prediction=log_prediction(parts, state.params, next_inputs),
        share=state.update.astype(jnp.float32) / parts.num_updates,
        num_updates=jnp.float32(parts.num_updates),
    )


def log_prediction(parts: Parts, params: PyTree, inputs: Any) -> Array:
    """Return the log of the prediction, `[..., M]`.

    Args:
        parts: Networks, environments and config; see `build`.
        params: Parameters of `actor` and `critic`.
        inputs: Inputs that `on_policy.inputs` makes of prepared observations.
    """
    logits: Any = parts.critic.apply(params["critic"], inputs)
    return jax.nn.log_softmax(logits)


def improve(
    parts: Parts, state: OnPolicyState, batch: Batch
) -> tuple[PyTree, PyTree, Metrics]:
    """Take one gradient step towards the targets; return averages over the rollout.

    The gradient is that of the agent's parameters alone, taken of a function in which
    the targets stand as they are. So nothing stops a gradient of the result with
    respect to the rule.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State before the update.
        batch: `[T, B, ...]` samples of the rollout with their targets.
    """
    flat, restore = optimiser.flatten(state.params)

    def flat_loss(flat: Array) -> tuple[Array, Metrics]:
        return loss(parts, restore(flat), batch)

    grads, metrics = jax.grad(flat_loss, has_aux=True)(flat)
    grads, metrics = pmean((grads, metrics), parts.axis_name)
    rate = on_policy.annealed(parts, parts.config.learning_rate, state.update)
    optim = _optimiser(parts.config, rate, state.params)
    updates, opt_state = optim.update(grads, state.opt_state, flat)
    metrics["grad_norm"] = optimiser.grad_norm(opt_state)
    params = restore(optax.apply_updates(flat, updates))  # type: ignore[arg-type]
    return params, opt_state, metrics


def loss(parts: Parts, params: PyTree, batch: Batch) -> tuple[Array, Metrics]:
    """Return the scalar whose gradient is that of the module, negated, and metrics.

    Args:
        parts: Networks, environments and config; see `build`.
        params: Parameters of `actor` and `critic`.
        batch: `[T, B, ...]` samples of the rollout with their targets.
    """
    config, head, targets = parts.config, parts.head, batch.targets
    inputs = on_policy.inputs(parts, params, batch.obs)
    outputs = parts.on_inputs.apply(params["actor"], inputs)
    prediction = log_prediction(parts, params, inputs)
    samples = {
        "policy_loss": -targets.policy * head.log_prob(outputs, batch.action),
        "prediction_loss": divergence(prediction, targets.log_prediction),
        "entropy": head.entropy(outputs),
        "prediction_entropy": -(jnp.exp(prediction) * prediction).sum(-1),
        "policy_target": jnp.abs(targets.policy),
    }
    metrics = diagnostics.means({name: x.ravel() for name, x in samples.items()})
    total = metrics["policy_loss"] - config.entropy_coef * metrics["entropy"]
    return total + config.prediction_coef * metrics["prediction_loss"], metrics


def divergence(log_prediction: Array, log_target: Array) -> Array:
    """Return KL(prediction || target) in nats, `[...]`.

    Args:
        log_prediction: `[..., M]` logarithms of the prediction's probabilities.
        log_target: `[..., M]` logarithms of the target's probabilities.
    """
    return (jnp.exp(log_prediction) * (log_prediction - log_target)).sum(-1)


def _optimiser(
    config: LPGConfig, rate: Array | float, params: PyTree
) -> optax.GradientTransformation:
    """The optimiser of a flat vector of parameters."""
    layers = optimiser.layers_of(params)
    frozen = frozen_in(config.frozen)
    return optimiser.make(config.optimiser, rate, config.max_grad_norm, layers, frozen)

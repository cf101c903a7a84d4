"""Maximum a posteriori policy optimisation (Abdolmaleki et al. 2018a, 2018b).

Each gradient step takes a batch from the replay buffer and, with primes for target
networks and `a` for actions in [-1, 1], does three things.

1. **Evaluate.** Two critics are fitted to what the target policy would earn,

       y = r + gamma (1 - terminated) mean_a' min_i Q'_i(s', a'),    a' ~ pi'(s'),

   a mean over `bootstrap_samples` actions, `r` and `s'` over `n_step` steps. A time
   limit bootstraps.

2. **Improve, without a policy** (E-step). `action_samples` actions from `pi'(s)` are
   weighted by `softmax(min_i Q'_i(s, a) / eta)`, with the temperature `eta` for which
   the weights diverge by `epsilon` from the samples: solved exactly, or by gradient.

3. **Fit the policy** (M-step) to the weighted actions by maximum likelihood, while its
   mean and its standard deviation stay within `epsilon_mean` and `epsilon_std` of the
   target policy's, each with a Lagrange multiplier: see `losses.mpo`.

Every `target_update_interval` steps the target networks become the online ones.

The policy is a Gaussian squashed by tanh. Its raw action is sampled, and likelihoods
and divergences are the Gaussian's (the Jacobian of tanh has no parameters); critics,
buffer and environment see the squashed one, the deterministic `tanh(mean)` included.
The minimum of two critics in both steps is Fujimoto et al.'s (2018); the papers have
one critic.

Defaults of constraints and multipliers, of the samples, of `n_step`, of the clipping of
gradients and of the interval of targets are those of Acme's MPO (Hoffman et al. 2020,
arXiv:2006.00979; its JAX agent). Constraints that tight suit long runs: the presets for
short ones (`mpo-pendulum`, `mpo-swingup`) are looser. Networks and batch are those of
SAC (Haarnoja et al. 2018), and so is the step size.
"""

from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from purerl import networks, optimiser, rollout
from purerl.algorithms import off_policy
from purerl.algorithms.off_policy import Batch, Experience, OffPolicyConfig
from purerl.collectives import pmean
from purerl.config import (
    FRACTION,
    POSITIVE,
    ConfigError,
    config_dataclass,
    dynamic,
    one_of,
    static,
)
from purerl.distributions import Gaussian, Head, make_head
from purerl.environment import Environment
from purerl.keys import init_key, update_key
from purerl.losses import SquaredError
from purerl.losses import mpo as mathematics
from purerl.losses.check import check_loss
from purerl.observe import obs_shape, to_features
from purerl.types import Algorithm, Array, Metrics, PyTree


@config_dataclass
class MPOConfig(OffPolicyConfig):
    """Maximum a posteriori policy optimisation."""

    learning_rate: float = dynamic(3e-4, "Step size of Adam.", POSITIVE)
    dual_learning_rate: float = dynamic(
        1e-2, "Step size of Adam for multipliers (and temperature).", POSITIVE
    )
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
        2.5e-3, "Largest divergence by the policy's mean, in nats.", POSITIVE
    )
    epsilon_std: float = dynamic(
        1e-6, "Largest divergence by the policy's std, in nats.", POSITIVE
    )
    per_dimension: bool = static(
        True, "A constraint for each action dimension, not for their sum."
    )
    multiplier_mean: float = dynamic(
        10.0, "First multiplier of the mean's constraint.", POSITIVE
    )
    multiplier_std: float = dynamic(
        1_000.0, "First multiplier of the std's constraint.", POSITIVE
    )
    temperature: str = static(
        "exact",
        "exact solves the dual in every step, gradient descends it with Adam.",
        one_of("exact", "gradient"),
    )
    temperature_init: float = dynamic(
        10.0, "First temperature, where it is learned by gradient.", POSITIVE
    )
    target_update_interval: int = static(
        100, "Gradient steps between updates of the target networks.", POSITIVE
    )
    tau: float = dynamic(
        1.0, "Share of the online networks in an update of the targets.", FRACTION
    )
    value_loss: Any = dynamic(SquaredError(), "Loss of the TD error.")
    max_grad_norm: float = dynamic(40.0, "Largest norm of each gradient.", POSITIVE)
    adam_eps: float = dynamic(1e-8, "Adam's epsilon.", POSITIVE)
    log_std_min: float = static(-5.0, "Smallest log standard deviation of the policy.")
    log_std_max: float = static(2.0, "Largest log standard deviation of the policy.")
    hidden_sizes: tuple[int, ...] = static((256, 256), "Units of each hidden layer.")
    critic_hidden_sizes: tuple[int, ...] = static(
        (), "Those of the critics; none takes hidden_sizes."
    )
    activation: str = static(
        "relu", "After each hidden layer.", one_of(*networks.ACTIVATIONS)
    )
    layer_norm: bool = static(False, "Normalise before each activation.")


class Setup(NamedTuple):
    """What is bound once, in Python: structure, and the config's numbers."""

    config: MPOConfig
    stepper: rollout.Stepper
    obs_space: Any
    head: Head
    actor: nn.Module
    critics: nn.Module


class Duals(NamedTuple):
    """Parameters whose softplus are the dual variables.

    Attributes:
        mean: `[A]` (or `[1]`), multipliers of the mean's constraints.
        std: `[A]` (or `[1]`), multipliers of the std's constraints.
        temperature: `[]`, where it is learned by gradient, else None.
    """

    mean: Array
    std: Array
    temperature: Array | None


class MPOState(NamedTuple):
    """Everything that training carries, arrays only.

    Attributes:
        params: of `actor`, `critics` and `duals`.
        target_params: of `actor` and `critics`.
        opt_state: of their optimisers.
        buffer: `off_policy.Item` with leaves `[C, ...]`; actions in [-1, 1].
        envs: the environments between two steps.
        key: never changes; every update's key is folded from it.
        update: int32 `[]`, updates done.
    """

    params: dict[str, PyTree]
    target_params: dict[str, PyTree]
    opt_state: dict[str, PyTree]
    buffer: off_policy.Item
    envs: rollout.EnvCarry
    key: Array
    update: Array


class Learner(NamedTuple):
    """What a gradient step changes, named as in the state; flat vectors `[P]`."""

    params: dict[str, Array]
    target_params: dict[str, Array]
    opt_state: dict[str, PyTree]


class Improvement(NamedTuple):
    """The E-step's better policy, as weighted actions.

    Attributes:
        policy: the target policy at the batch's observations, `[N, A]` each.
        raw: `[S, N, A]` actions sampled from it, before tanh.
        q_values: `[S, N]` of these actions.
        weights: `[S, N]`; those of a state sum to 1.
        temperature: `[]`, that the weights were made with.
    """

    policy: Gaussian
    raw: Array
    q_values: Array
    weights: Array
    temperature: Array


def validate(config: MPOConfig, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    off_policy.validate(config)
    check_loss("value_loss", config.value_loss, 3, "SquaredError()")
    if config.log_std_min >= config.log_std_max:
        raise ConfigError(
            f"log_std_min must be less than log_std_max ({config.log_std_max}), got "
            f"{config.log_std_min}."
        )
    params = env.default_params
    space = env.action_space(params)
    if hasattr(space, "n"):
        raise ConfigError(
            f"MPOConfig needs continuous actions, got {space} of {env.name}; use "
            "DQNConfig or PPOConfig."
        )
    try:
        make_head(space, "tanh_gaussian")
        shape = obs_shape(env.observation_space(params))
    except ValueError as error:
        raise ConfigError(f"{env.name}: {error}") from None
    if len(shape) != 1:
        raise ConfigError(
            f"MPOConfig needs observations that are vectors, got {shape} of "
            f"{env.name}; flatten them in a wrapper."
        )


def make(
    config: MPOConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """MPO bound to a config and an environment; see `bind`."""
    setup = bind(config, env, axis_name)
    return Algorithm(partial(init, setup), partial(step, setup), partial(act, setup))


def bind(config: MPOConfig, env: Environment, axis_name: str | None = None) -> Setup:
    """Networks and environment of a config: what `init`, `step` and `act` work with.

    Args:
        config: its leaves may be traced.
        env: from `resolve_env`.
        axis_name: mapped axis over which this agent's environments are spread.
    """
    stepper = rollout.make_stepper(config, env, axis_name)
    obs_space = env.observation_space(stepper.params)
    # Of a squashed action: within [-1, 1], it is scaled to the space's bounds.
    head = make_head(env.action_space(stepper.params), "gaussian")
    torso = networks.MLP(
        config.hidden_sizes, config.activation, layer_norm=config.layer_norm
    )
    make_critic = partial(
        networks.ActionCritic,
        config.critic_hidden_sizes or config.hidden_sizes,
        config.activation,
        config.layer_norm,
    )
    return Setup(
        config=config,
        stepper=stepper,
        obs_space=obs_space,
        head=head,
        actor=networks.StateGaussianActor(
            torso, head.num_outputs, config.log_std_min, config.log_std_max
        ),
        critics=networks.Twin(make_critic),
    )


def init(setup: Setup, key: Array) -> MPOState:
    """Fresh networks, their copies as targets, an empty buffer."""
    key_actor, key_critics, key_env = jax.random.split(init_key(key), 3)
    obs = jnp.zeros((1, *obs_shape(setup.obs_space)))
    action = jnp.zeros((1, setup.head.num_outputs))
    networks_params = {
        "actor": setup.actor.init(key_actor, obs),
        "critics": setup.critics.init(key_critics, obs, action),
    }
    params = {**networks_params, "duals": init_duals(setup)}
    flat, restore = _flatten(params)
    optimisers = _optimisers(setup.config)
    experience = off_policy.init(wire(setup, restore), key_env)
    return MPOState(
        params=params,
        target_params=networks_params,
        opt_state={name: optimisers[name].init(flat[name]) for name in flat},
        buffer=experience.buffer,
        envs=experience.envs,
        key=key,
        update=jnp.int32(0),
    )


def init_duals(setup: Setup) -> Duals:
    """The dual variables at the start of training."""
    config = setup.config
    num = setup.head.num_outputs if config.per_dimension else 1
    start = mathematics.softplus_inverse
    return Duals(
        mean=jnp.full(num, start(config.multiplier_mean)),
        std=jnp.full(num, start(config.multiplier_std)),
        temperature=(
            start(config.temperature_init) if config.temperature == "gradient" else None
        ),
    )


def step(setup: Setup, state: MPOState) -> tuple[MPOState, Metrics]:
    """One update: rounds of acting, remembering, learning."""
    params, restore = _flatten(state.params)
    target_params, _ = _flatten(state.target_params)
    learner, experience, metrics = off_policy.run(
        wire(setup, restore),
        Learner(params, target_params, state.opt_state),
        Experience(state.buffer, (), state.envs),
        update_key(state),
        state.update,
    )
    new = MPOState(
        params={name: restore[name](x) for name, x in learner.params.items()},
        target_params={
            name: restore[name](x) for name, x in learner.target_params.items()
        },
        opt_state=learner.opt_state,
        buffer=experience.buffer,
        envs=experience.envs,
        key=state.key,
        update=state.update + 1,
    )
    return new, metrics


def act(setup: Setup, state: MPOState, obs: Array, key: Array | None = None) -> Array:
    """The policy's action on observations `[..., *obs_shape]`.

    Args:
        setup: bound structure.
        state: of one agent.
        obs: as the environment gives them.
        key: consumed; without one the action is the deterministic `tanh(mean)`.
    """
    features = to_features(setup.obs_space, obs)
    outputs: Any = setup.actor.apply(state.params["actor"], features)
    head = setup.head
    raw = head.mode(outputs) if key is None else head.sample(outputs, key)
    return head.to_env(jnp.tanh(raw))


def wire(setup: Setup, restore: dict[str, Any]) -> off_policy.Wiring:
    """MPO's part of the off-policy loop.

    Args:
        setup: bound structure.
        restore: from a flat vector to parameters, by name.
    """
    config, head = setup.config, setup.head

    def explore(learner: Learner, features: Array, noise: Any, step: Array) -> Array:
        del step
        outputs: Any = setup.actor.apply(
            restore["actor"](learner.params["actor"]), features
        )
        return jnp.tanh(head.choose(outputs, noise))

    return off_policy.Wiring(
        config=config,
        stepper=setup.stepper,
        obs_space=setup.obs_space,
        memory=off_policy.uniform(config, setup.stepper.axis_name),
        draw_action=head.noise,
        explore=explore,
        random_action=partial(
            jax.random.uniform, shape=(head.num_outputs,), minval=-1.0, maxval=1.0
        ),
        to_env=head.to_env,
        draw_learning=None,
        learn=partial(learn, setup, restore),
    )


def learn(
    setup: Setup,
    restore: dict[str, Any],
    learner: Learner,
    batch: Batch,
    key: Array,
    count: Array,
) -> tuple[Learner, Array, Metrics]:
    """One gradient step, and the target networks' share where it is due."""
    config = setup.config
    key_evaluate, key_improve = jax.random.split(key)
    targets = {name: restore[name](x) for name, x in learner.target_params.items()}
    duals = restore["duals"](learner.params["duals"])
    target = td_target(setup, targets, batch, key_evaluate)
    improvement = improve(setup, targets, duals, batch.obs, key_improve)

    def flat_loss(flat: dict[str, Array]) -> tuple[Array, tuple[Array, Metrics]]:
        params = {name: restore[name](x) for name, x in flat.items()}
        return loss(setup, params, batch, target, improvement)

    grads, (td_error, metrics) = jax.grad(flat_loss, has_aux=True)(learner.params)
    grads, metrics = pmean((grads, metrics), setup.stepper.axis_name)
    params, opt_state = {}, {}
    for name, optim in _optimisers(config).items():
        updates, opt_state[name] = optim.update(grads[name], learner.opt_state[name])
        params[name] = optax.apply_updates(learner.params[name], updates)
        metrics[f"{name}_grad_norm"] = optimiser.grad_norm(opt_state[name])
    due = (count + 1) % config.target_update_interval == 0
    target_params = optimiser.polyak(
        learner.target_params,
        {name: params[name] for name in learner.target_params},
        jnp.where(due, config.tau, 0.0),
    )
    return Learner(params, target_params, opt_state), td_error, metrics


def td_target(
    setup: Setup, targets: dict[str, PyTree], batch: Batch, key: Array
) -> Array:
    """`y = r + discount * mean_a' min_i Q'_i(s', a')`, `[N]`; the key is consumed."""
    num = setup.config.bootstrap_samples
    *_, q_values = sample_actions(setup, targets, batch.next_obs, num, key)
    return batch.reward + batch.discount * q_values.mean(0)


def improve(
    setup: Setup, targets: dict[str, PyTree], duals: Duals, obs: Array, key: Array
) -> Improvement:
    """The E-step on observations `[N, O]`; the key is consumed."""
    config = setup.config
    policy, raw, q_values = sample_actions(
        setup, targets, obs, config.action_samples, key
    )
    if duals.temperature is None:
        temperature = mathematics.solve_temperature(
            q_values, config.epsilon, setup.stepper.axis_name
        )
    else:
        temperature = _positive(duals.temperature)
    weights = mathematics.action_weights(q_values, temperature)
    return Improvement(policy, raw, q_values, weights, temperature)


def sample_actions(
    setup: Setup, targets: dict[str, PyTree], obs: Array, num: int, key: Array
) -> tuple[Gaussian, Array, Array]:
    """Actions of the target policy and what the target critics think of them.

    Args:
        setup: bound structure.
        targets: parameters of the target networks.
        obs: features `[N, O]`.
        num: S, actions per observation.
        key: consumed.

    Returns:
        The policy `[N, A]`, raw actions `[S, N, A]`, values `[S, N]`.
    """
    policy: Any = setup.actor.apply(targets["actor"], obs)
    noise = setup.head.noise(key, (num, obs.shape[0]))
    repeated = jax.tree.map(lambda x: jnp.broadcast_to(x[None], noise.shape), policy)
    raw = setup.head.choose(repeated, noise)
    all_obs = jnp.broadcast_to(obs[None], (num, *obs.shape))
    pair: Any = setup.critics.apply(targets["critics"], all_obs, jnp.tanh(raw))
    return policy, raw, jnp.minimum(*pair)


def loss(
    setup: Setup,
    params: dict[str, PyTree],
    batch: Batch,
    target: Array,
    improvement: Improvement,
) -> tuple[Array, tuple[Array, Metrics]]:
    """The scalar loss of critics, policy and duals; TD errors and what to report.

    No parameter of one has a gradient from the loss of another, so their sum is
    minimised by each as its own loss would be.
    """
    value_loss, td_error, q_value = evaluate_loss(setup, params, batch, target)
    outputs: Any = setup.actor.apply(params["actor"], batch.obs)
    policy_loss, metrics = fit_loss(setup, params["duals"], outputs, improvement)
    metrics |= {"value_loss": value_loss, "q_value": q_value}
    return value_loss + policy_loss, (td_error, metrics)


def evaluate_loss(
    setup: Setup, params: dict[str, PyTree], batch: Batch, target: Array
) -> tuple[Array, Array, Array]:
    """Loss of both critics `[]`, TD errors of the first `[N]`, mean value `[]`."""
    pair: Any = setup.critics.apply(params["critics"], batch.obs, batch.action)
    errors = [setup.config.value_loss(q, target, q) for q in pair]
    total = (batch.weight * (errors[0] + errors[1])).mean()
    return total, target - pair[0], pair[0].mean()


def fit_loss(
    setup: Setup, duals: Duals, outputs: Gaussian, improvement: Improvement
) -> tuple[Array, Metrics]:
    """The M-step: likelihood of the weighted actions, penalties, losses of the duals.

    Args:
        setup: bound structure.
        duals: the dual variables' parameters.
        outputs: of the online policy at the improvement's observations, `[N, A]`.
        improvement: of the E-step.
    """
    config, policy = setup.config, improvement.policy
    likelihood = mathematics.decoupled_log_likelihood(policy, outputs, improvement.raw)
    policy_loss = -(improvement.weights * likelihood).sum(0).mean()

    divergence = mathematics.decoupled_divergence(policy, outputs)
    by_dimension = jax.tree.map(lambda kl: kl.mean(0), divergence)
    kl_mean, kl_std = (
        kl if config.per_dimension else kl.sum(keepdims=True) for kl in by_dimension
    )
    multiplier_mean, multiplier_std = _positive(duals.mean), _positive(duals.std)
    lagrangian = mathematics.lagrangian
    penalty_mean, dual_mean = lagrangian(multiplier_mean, kl_mean, config.epsilon_mean)
    penalty_std, dual_std = lagrangian(multiplier_std, kl_std, config.epsilon_std)
    total = policy_loss + penalty_mean + penalty_std + dual_mean + dual_std
    if duals.temperature is not None:
        total = total + mathematics.temperature_dual(
            _positive(duals.temperature), improvement.q_values, config.epsilon
        )
    return total, {
        "policy_loss": policy_loss,
        "kl_weights": mathematics.weights_divergence(improvement.weights).mean(),
        "kl_mean": kl_mean.mean(),
        "kl_std": kl_std.mean(),
        "multiplier_mean": multiplier_mean.mean(),
        "multiplier_std": multiplier_std.mean(),
        "temperature": improvement.temperature,
        "policy_std": jnp.exp(outputs.log_std).mean(),
    }


def _positive(param: Array) -> Array:
    """A dual variable from its parameter; never 0, by which something is divided."""
    return jax.nn.softplus(param) + mathematics.MIN_TEMPERATURE


def _flatten(params: dict[str, PyTree]) -> tuple[dict[str, Array], dict[str, Any]]:
    """Each network's parameters as one vector, and the ways back."""
    pairs = {name: optimiser.flatten(tree) for name, tree in params.items()}
    flat = {name: pair[0] for name, pair in pairs.items()}
    return flat, {name: pair[1] for name, pair in pairs.items()}


def _optimisers(config: MPOConfig) -> dict[str, optax.GradientTransformation]:
    """Adam for each part; each gradient is clipped by its own norm."""
    rates = {
        "actor": config.learning_rate,
        "critics": config.learning_rate,
        "duals": config.dual_learning_rate,
    }
    return {
        name: optimiser.adam(
            rate, max_grad_norm=config.max_grad_norm, eps=config.adam_eps
        )
        for name, rate in rates.items()
    }

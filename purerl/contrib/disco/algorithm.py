"""DiscoRL: an agent whose rule of learning was discovered (Oh et al. 2025).

"Discovering state-of-the-art reinforcement learning algorithms", Nature,
doi:10.1038/s41586-025-09761-x. A network puts out a policy `pi(s)`, a prediction
`y(s)`, and of every action a prediction `z(s, a)`, a categorical value `Q(s, a)` and
the policy of the next observation `p(s, a)`. A rule reads trajectories from a buffer
and says what `pi`, `y` and `z` shall become; then one gradient step minimises the mean
over the steps of

    policy_coef KL(pi_hat || pi(s)) + y_coef KL(y_hat || y(s))
    + z_coef KL(z_hat || z(s, a)) + value_coef CE(G, Q(s, a))
    + model_coef (1 - terminated) KL(pi(s') || p(s, a))

with the target `G` of Retrace(lambda), made of a target network and written as a
two-hot distribution. `s'` is the observation before any reset. `pi_hat`, `y_hat`,
`z_hat`, `G` and `pi(s')` are constants of the gradient. The target network then moves
by `1 - target_decay` of the way to the network before the step.

The rule is a leaf of the config, and carries a memory from update to update.
`rules.DiscoRule` reads the published weights Disco103 from a file; the default,
`rules.CMPORule`, was written by hand and needs none. Other defaults are those of the
authors' code (github.com/google-deepmind/disco_rl): `get_settings_disco` in its
`agent.py`, and its notebook's two environments, trajectories of 29 steps, batches of 64
of the last 1,024, and one gradient step for each two of them.

Axes: `T` steps, `N` trajectories, `A` actions.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from purerl import auto, networks
from purerl.accelerator.kernels import traced_for_cpu
from purerl.acting import rollout
from purerl.acting.rollout import Transition
from purerl.algorithms import checks, network_config, on_policy
from purerl.algorithms.network_config import ACTIVATION, NetworkConfig
from purerl.config import (
    AUTO,
    DECAY,
    FRACTION,
    LAYERS,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_OR_NONE,
    SIZES,
    Check,
    ConfigError,
    config_dataclass,
    dynamic,
    static,
)
from purerl.contrib.disco.rules import (
    CMPORule,
    DiscoInputs,
    DiscoTargets,
    Predictions,
    Values,
    of_action,
)
from purerl.envs.base import Environment
from purerl.keys import init_keys, update_keys
from purerl.learning import optimiser, small_networks
from purerl.learning.averages import after, mean_and_var, pmean
from purerl.learning.branches import change_if, change_where
from purerl.learning.optimiser import frozen_in
from purerl.learning.returns import recur_backwards
from purerl.metrics import BATCH, averages
from purerl.networks import observe
from purerl.networks.distributions import Head, make_head
from purerl.networks.observe import obs_shape, to_features
from purerl.networks.recurrent import LSTMMemory, lstm
from purerl.optimisers import Adam
from purerl.replay import uniform as ring
from purerl.types import Algorithm, Array, Hosted, Metrics, PyTree

HEAD_STD = 0.01  # Of the first kernels of the policy and of `y`.
# Normal numbers of variance 1 / fan_in are cut off at two standard deviations, which
# leaves this share of the variance. The authors' layers start so: their library does
# not make up for the loss.
LEFT = 0.7737
INIT = nn.initializers.variance_scaling(LEFT, "fan_in", "truncated_normal")


class ActionModel(nn.Module):
    """Policy, predictions and action values, with a recurrent model of one step.

    With the embedding `x` of the observation, a linear layer of the torso's features,

        c      = W x + b,   h = tanh(c)
        h_a    = LSTM(one_hot(a), (h, c))                       for every action a
        logits = linear(x),   y = linear(x)
        z_a, q_a, next_logits_a = MLPs of h_a, one for each

    The forget gate has a bias of 1 at the start.

    Attributes:
        torso: Module of the features of one observation.
        num_actions: Number A of actions.
        prediction_size: Number M of entries of a prediction.
        num_bins: Number K of bins of an action's value.
        embedding_size: Numbers of the embedding.
        model_size: Units of the recurrent model.
        head_sizes: Units of each hidden layer of the MLPs, which have relu units.
    """

    torso: nn.Module
    num_actions: int
    prediction_size: int
    num_bins: int
    embedding_size: int
    model_size: int
    head_sizes: tuple[int, ...]

    @nn.compact
    def __call__(self, obs: Array) -> Predictions:
        """Predictions of observations `[..., *obs_shape]`."""
        x = self._dense(self.embedding_size, "embedding")(self.torso(obs))
        after = self._after(self._dense(self.model_size, "root")(x))
        num, size = self.num_actions, self.prediction_size
        return Predictions(
            logits=self._small("logits", num)(x),
            y=self._small("y", size)(x),
            z=self._head("z", size, after),
            q=self._head("q", self.num_bins, after),
            next_logits=self._head("next_logits", num, after),
        )

    def _after(self, cell: Array) -> Array:
        """The model's outputs `[..., A, H]` after each action, of cells `[..., H]`."""
        size = self.model_size

        def bias(
            key: Array, shape: tuple[int, ...], dtype: type = jnp.float32
        ) -> Array:
            del key
            return jnp.zeros(shape, dtype).at[size : 2 * size].set(1.0)

        # The inputs are one-hot, so that their product is the kernel itself. Both are
        # parts of one matrix of A + H inputs, and start as that does.
        std = (self.num_actions + size) ** -0.5
        init = nn.initializers.truncated_normal(std)
        recurrent = self.param("recurrent", init, (size, 4 * size))
        actions = self.param("actions", init, (self.num_actions, 4 * size))
        inputs = actions + self.param("gates", bias, (4 * size,))[None]
        inputs = jnp.broadcast_to(inputs, (*cell.shape[:-1], *inputs.shape))
        memory = LSTMMemory(jnp.tanh(cell)[..., None, :], cell[..., None, :])
        return lstm(recurrent, inputs, memory).hidden

    def _small(self, name: str, size: int) -> nn.Dense:
        init = nn.initializers.truncated_normal(HEAD_STD)
        return nn.Dense(size, kernel_init=init, name=name)

    def _head(self, name: str, size: int, x: Array) -> Array:
        for number, units in enumerate(self.head_sizes):
            x = nn.relu(self._dense(units, f"{name}_hidden_{number}")(x))
        return self._dense(size, name)(x)

    def _dense(self, size: int, name: str) -> nn.Dense:
        return nn.Dense(size, kernel_init=INIT, name=name)


def scaled_like(params: PyTree) -> PyTree:
    """Return orthogonal kernels of a torso with the variance that `INIT` has.

    An orthogonal kernel of I inputs and O outputs has the variance `1 / max(I, O)`.

    Args:
        params: Parameters of a torso.
    """

    def scaled(path: Any, kernel: Array) -> Array:
        if getattr(path[-1], "key", "") != "kernel":
            return kernel
        fan_in = math.prod(kernel.shape[:-1])
        wanted = LEFT * max(fan_in, kernel.shape[-1]) / fan_in
        return kernel * math.sqrt(wanted)

    return jax.tree_util.tree_map_with_path(scaled, params)


_EPSILON = 1e-6


class MovingMoments(NamedTuple):
    """Exponential averages of a number, corrected for their beginning at nothing.

    Attributes:
        mean: `[]` average of the number.
        var: `[]` variance around it.
        weight: `[]` weight of what was seen: 1 minus the share of the beginning; 0 at
            first.
    """

    mean: Array
    var: Array
    weight: Array


def init_moments() -> MovingMoments:
    """Return moments of nothing."""
    return MovingMoments(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))


def seen_moments(
    moments: MovingMoments, values: Array, decay: Array | float, axis_name: str | None
) -> MovingMoments:
    """Return the moments after a batch of values.

    Args:
        moments: Moments before it.
        values: `[...]`; a batch counts once, however large it is.
        decay: Share of what was known before.
        axis_name: Mapped axis over which values are spread, if any.
    """
    batch_mean, left, batch_var = mean_and_var(values.reshape(-1), axis_name)
    weight = decay * moments.weight + (1.0 - decay)
    share = (1.0 - decay) / weight
    # The difference of two averages of squares would lose all digits of a small spread.
    delta = (batch_mean - moments.mean) + left
    before = moments.var + share * jnp.square(delta)
    return MovingMoments(
        moments.mean + share * delta, (1.0 - share) * before + share * batch_var, weight
    )


def standardised(moments: MovingMoments, values: Array) -> Array:
    """Return values without the moving mean, in units of the moving deviation.

    Args:
        moments: Moments of at least one batch.
        values: `[...]` values to standardise.
    """
    deviation = jnp.sqrt(moments.var + _EPSILON**2) + _EPSILON
    return (values - moments.mean) / deviation


def retrace(
    reward: Array,
    action_value: Array,
    next_value: Array,
    ratio: Array,
    terminated: Array,
    truncated: Array,
    *,
    gamma: Array | float,
    trace_decay: Array | float,
) -> Array:
    """Return the targets of Retrace(lambda) (Munos et al. 2016, equation 4).

        G_t = r_t + gamma * (V(s'_t) + c_{t+1} * (G_{t+1} - Q(s_{t+1}, a_{t+1})))
        c_t = lambda * min(1, ratio_t)

    The trace ends with an episode, and with the trajectory: there
    `G_t = r_t + gamma * V(s'_t)`, and `G_t = r_t` where the episode terminated. `s'_t`
    is the state after step t and before any reset, so a time limit bootstraps.

    Args:
        reward: `[T, B]` rewards.
        action_value: `[T, B]` values `Q(s_t, a_t)` of the actions that were taken.
        next_value: `[T, B]` `V(s'_t)`, the value under the policy that is judged.
        ratio: `[T, B]`, how much more probable the action is under that policy than
            under the one that chose it.
        terminated: `[T, B]` bool, the episode ended in a state of value zero.
        truncated: `[T, B]` bool, the episode was cut (time limit).
        trace_decay: Lambda.

    Returns:
        Targets of `Q(s_t, a_t)`, `[T, B]`.
    """
    chex.assert_rank(reward, 2)
    chex.assert_equal_shape(
        [reward, action_value, next_value, ratio, terminated, truncated]
    )
    is_cut = (terminated | truncated).at[-1].set(True)
    trace = trace_decay * jnp.minimum(1.0, ratio)
    # This is the next step's trace; the value that `roll` puts after the last step is
    # cut off.
    decay = jnp.where(is_cut, 0.0, jnp.roll(trace, -1, axis=0))
    later = jnp.roll(action_value, -1, axis=0)
    bootstrap = jnp.where(terminated, 0.0, next_value)
    return recur_backwards(reward + gamma * (bootstrap - decay * later), gamma * decay)


def estimate(
    config: Any,
    inputs: DiscoInputs,
    moments: MovingMoments,
    axis_name: str | None = None,
) -> tuple[Values, MovingMoments]:
    """Return what the action values say of trajectories; see `Values`.

    Args:
        inputs: Trajectories without values.
        moments: Moments of the advantages before.
        axis_name: Mapped axis over which trajectories are spread, if any.

    Returns:
        Values, and the moments with these advantages in.
    """
    top = config.max_abs_value
    policy = jax.nn.softmax(inputs.online.logits)
    next_policy = jax.nn.softmax(inputs.next_online.logits)
    target_q = small_networks.mean(inputs.target.q, top)
    next_target_q = small_networks.mean(inputs.next_target.q, top)
    base = (policy * target_q).sum(-1)
    ratio = _log_prob(inputs.online.logits, inputs.action) - _log_prob(
        inputs.behaviour, inputs.action
    )
    target = retrace(
        inputs.reward,
        of_action(target_q, inputs.action),
        (next_policy * next_target_q).sum(-1),
        jnp.exp(ratio),
        inputs.terminated,
        inputs.truncated,
        gamma=config.gamma,
        trace_decay=config.trace_decay,
    )
    next_q = small_networks.mean(inputs.next_online.q, top)
    advantage, action_advantage = target - base, target_q - base[..., None]
    moments = seen_moments(moments, advantage, config.advantage_decay, axis_name)
    values = Values(
        value=(policy * small_networks.mean(inputs.online.q, top)).sum(-1),
        next_value=(next_policy * next_q).sum(-1),
        target_q=target_q,
        target=target,
        advantage=advantage,
        action_advantage=action_advantage,
        standardised=standardised(moments, advantage),
        action_standardised=standardised(moments, action_advantage),
    )
    return values, moments


def losses(
    config: Any, inputs: DiscoInputs, online: Predictions, targets: DiscoTargets
) -> dict[str, Array]:
    """Return the losses of every step, `[T, N]` each, by name.

    Args:
        inputs: Trajectories with their values; constants.
        online: Outputs of the network that learns, whose gradient it is.
        targets: Targets that the rule asks for; constants.
    """
    action, top = inputs.action, config.max_abs_value
    following = of_action(online.next_logits, action)
    model = divergence(inputs.next_online.logits, following)
    q = of_action(online.q, action)
    return {
        "policy_loss": divergence(targets.logits, online.logits),
        "y_loss": divergence(targets.y, online.y),
        "z_loss": divergence(targets.z, of_action(online.z, action)),
        # There is no policy after the end of an episode.
        "model_loss": jnp.where(inputs.terminated, 0.0, model),
        "value_loss": small_networks.cross_entropy(q, inputs.values.target, top),
    }


def divergence(target: Array, logits: Array) -> Array:
    """Return KL(target || logits) in nats, `[...]`.

    Args:
        target: `[..., A]` logits, to which nothing of the gradient goes.
        logits: `[..., A]` logits of the distribution that learns.
    """
    log_target = jax.nn.log_softmax(target)
    difference = log_target - jax.nn.log_softmax(logits)
    return (jnp.exp(log_target) * difference).sum(-1)


def _log_prob(logits: Array, action: Array) -> Array:
    return of_action(jax.nn.log_softmax(logits), action)


class Parts(NamedTuple):
    """The parts of DiscoRL, bound once in Python: structure, and the config's numbers.

    Attributes:
        config: The numbers.
        stepper: The environments.
        obs_space: Observation space of the environment.
        head: Distribution of the actions.
        network: From features of observations to `Predictions`.
    """

    config: Any
    stepper: rollout.Stepper
    obs_space: Any
    head: Head
    network: ActionModel


class Learner(NamedTuple):
    """The part of the state that a gradient step changes.

    Attributes:
        params: Parameters of the network.
        target_params: Parameters of the target network.
        opt_state: State of the optimiser.
        rule_memory: The rule's memory of the agent's updates.
        advantage_moments: Moving moments of the advantages.
    """

    params: PyTree
    target_params: PyTree
    opt_state: PyTree
    rule_memory: PyTree
    advantage_moments: MovingMoments


def predict(parts: Parts, params: PyTree, features: Any) -> Predictions:
    """Return what the network says of features `[..., *obs_shape]`.

    Args:
        params: Parameters of the network.
        features: Features of observations.
    """
    found: Any = parts.network.apply(params, features)
    return found


def improve(
    parts: Parts, learner: Learner, batch: Transition
) -> tuple[Learner, Metrics]:
    """Ask the rule, take one gradient step, and move the target network.

    Args:
        batch: `[T, N, ...]` trajectories, with the logits of the policy that acted.
    """
    config, axis = parts.config, parts.stepper.axis_name
    flat, restore = optimiser.flatten(learner.params)

    def flat_loss(flat: Array) -> tuple[Array, tuple]:
        return loss(parts, learner, restore(flat), batch)

    grads, (metrics, memory, moments) = jax.grad(flat_loss, has_aux=True)(flat)
    # The rule's own averages over devices come first.
    last = sum(jnp.sum(x) for x in jax.tree.leaves((memory, moments)))
    grads, metrics = pmean(after((grads, metrics), jnp.asarray(last), axis), axis)
    optim = make_optimiser(config, learner.params)
    moves, opt_state = optim.update(grads, learner.opt_state, flat)
    metrics["grad_norm"] = optimiser.grad_norm(opt_state)
    if config.max_update is not None:
        most = config.learning_rate * config.max_update
        moves = jnp.clip(moves, -most, most)  # type: ignore[arg-type]
    new = Learner(
        params=restore(optax.apply_updates(flat, moves)),  # type: ignore[arg-type]
        target_params=optimiser.polyak(
            learner.target_params, learner.params, 1.0 - config.target_decay
        ),
        opt_state=opt_state,
        rule_memory=memory,
        advantage_moments=moments,
    )
    return new, metrics


def loss(
    parts: Parts, learner: Learner, params: PyTree, batch: Transition
) -> tuple[Array, tuple[Metrics, PyTree, MovingMoments]]:
    """Return the scalar that is minimised; metrics, the rule's memory, and moments.

    Args:
        params: Parameters of the network that learns, by which it is differentiated.
        batch: `[T, N, ...]` transitions of the trajectories.
    """
    config, axis = parts.config, parts.stepper.axis_name
    obs, next_obs = (
        to_features(parts.obs_space, x) for x in (batch.obs, batch.next_obs)
    )
    online = predict(parts, params, obs)
    # The targets send no gradient to the agent's outputs; the rule's own numbers still
    # get one.
    inputs = DiscoInputs(
        batch.action,
        batch.reward,
        batch.terminated,
        batch.truncated,
        batch.log_prob,
        jax.lax.stop_gradient(online),
        predict(parts, learner.params, next_obs),
        predict(parts, learner.target_params, obs),
        predict(parts, learner.target_params, next_obs),
    )
    values, moments = estimate(config, inputs, learner.advantage_moments, axis)
    inputs = inputs._replace(values=values)
    targets, memory = config.rule(inputs, learner.rule_memory, axis)
    terms = losses(config, inputs, online, targets)
    metrics = {name: x.mean() for name, x in terms.items()}
    total = sum(
        getattr(config, name.replace("_loss", "_coef")) * x
        for name, x in metrics.items()
    )
    metrics["entropy"] = parts.head.entropy(inputs.online.logits).mean()
    metrics["q_value"] = values.value.mean()
    metrics["advantage"] = jnp.abs(values.advantage).mean()
    return total, (metrics, memory, moments)  # type: ignore[return-value]


def make_optimiser(config: Any, params: PyTree) -> optax.GradientTransformation:
    """The optimiser of a flat vector of parameters."""
    layers = optimiser.layers_of(params)
    frozen = frozen_in(config.frozen)
    rate = config.learning_rate
    return optimiser.make(config.optimiser, rate, config.max_grad_norm, layers, frozen)


# Sizes where the rule has no network that reads predictions.
PREDICTION_SIZE = 1
AT_LEAST_TWO = Check(lambda x: x >= 2, "must be 2 or greater")


@config_dataclass
class DiscoConfig(NetworkConfig):
    """DiscoRL: an agent that asks a rule what to learn from a buffer."""

    num_envs: int = static(2, "Environments of one agent.", POSITIVE)
    num_steps: int = static(29, "Steps of a trajectory, T.", POSITIVE)
    buffer_size: int = static(1_024 * 29, "Steps that are kept.", POSITIVE)
    batch_size: int = static(64, "Trajectories of one gradient step.", POSITIVE)
    learning_starts: int = static(64 * 29, "Steps of the warm-up.", NON_NEGATIVE)
    gamma: float = dynamic(0.997, "Discount per step.", FRACTION)
    trace_decay: float = dynamic(0.95, "Lambda of Retrace.", FRACTION)
    rule: Any = dynamic(CMPORule(), "Rule that makes the targets.")
    prediction_size: int = static(AUTO, "Size of y, z; auto: the rule's.", POSITIVE)
    num_bins: int = static(601, "Bins of an action value.", AT_LEAST_TWO)
    max_abs_value: float = dynamic(300.0, "Largest value's root.", POSITIVE, stays=True)
    policy_coef: float = dynamic(1.0, "Weight of the policy's loss.", NON_NEGATIVE)
    y_coef: float = dynamic(1.0, "Weight of the loss of y.", NON_NEGATIVE)
    z_coef: float = dynamic(1.0, "Weight of the loss of z.", NON_NEGATIVE)
    model_coef: float = dynamic(1.0, "Weight of the model's loss.", NON_NEGATIVE)
    value_coef: float = dynamic(0.2, "Weight of the action value's loss.", NON_NEGATIVE)
    target_decay: float = dynamic(0.9, "Share of the target kept.", FRACTION)
    advantage_decay: float = dynamic(0.99, "Share of the moments kept.", DECAY)
    learning_rate: float = dynamic(3e-4, "Step size of the optimiser.", POSITIVE)
    optimiser: Any = dynamic(Adam(), "Optimiser of the network.")
    max_grad_norm: float | None = dynamic(None, "Gradient clipping.", POSITIVE_OR_NONE)
    max_update: float | None = dynamic(1.0, "Largest step, in rates.", POSITIVE_OR_NONE)
    hidden_sizes: tuple[int, ...] = static(
        (512, 512), "Units of each hidden layer.", LAYERS
    )
    activation: str = static("relu", "Activation of hidden layers.", ACTIVATION)
    torso_gain: float = static(1.0, "First gain of the torso.", POSITIVE)
    model_size: int = static(128, "Units of the recurrent model.", POSITIVE)
    head_sizes: tuple[int, ...] = static((128,), "Units of prediction layers.", SIZES)

    @property
    def sequential_steps(self) -> int:
        """Dependent operations of one update: the rollout, its way back, one step."""
        return 2 * self.num_steps + 1

    @property
    def capacity(self) -> int:
        """Trajectories that the buffer holds.

        A multiple of `num_envs`, so that every environment has slots of its own.
        """
        return self.buffer_size // self.steps_per_update * self.num_envs

    @property
    def first_update(self) -> int:
        """Number of the update that learns first: the one that ends the warm-up."""
        return max(0, -(-self.learning_starts // self.steps_per_update) - 1)

    def automatic(self, env: Environment) -> dict[str, Any]:
        """Return the size of the predictions that the rule is made for."""
        del env
        return {
            "prediction_size": getattr(self.rule, "prediction_size", PREDICTION_SIZE)
        }


def validate(config: DiscoConfig, env: Environment) -> None:
    """Check the network, the rule and the buffer against the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    calls = "init() and __call__(inputs, memory, axis_name)"
    checks.check_kind(
        config.rule, config.prediction_size, calls, "purerl.rules.CMPORule()"
    )
    space = env.action_space(env.default_params)
    if not hasattr(space, "n"):
        raise ConfigError(
            f"DiscoConfig needs discrete actions, got {space} of {env.name}; use "
            "PPOConfig."
        )
    if not network_config.is_auto(config, "critic"):
        raise ConfigError(
            "critic must be auto for DiscoConfig, which has one network, got "
            f"{network_config.described(config, 'critic')}; give its layers as torso."
        )
    # The last of the sizes is that of the embedding, after the torso.
    below = config.replace(hidden_sizes=config.hidden_sizes[:-1])
    checks.check_torso(below, env, "torso")
    if observe.has_mask(checks.check_observations(config, env)):
        raise ConfigError(
            f"{env.name} says which actions are valid, and DiscoConfig's rules know "
            "nothing of that; use PPOConfig or LPGConfig."
        )
    if config.buffer_size < config.steps_per_update:
        raise ConfigError(
            "buffer_size must hold the num_envs * num_steps = "
            f"{config.steps_per_update} steps of an update, got {config.buffer_size}."
        )
    updates = config.total_timesteps // config.steps_per_update
    if updates and config.first_update >= updates:
        raise ConfigError(
            f"learning_starts must be at most {updates * config.steps_per_update}, "
            f"the steps that are run, got {config.learning_starts}."
        )


class DiscoState(NamedTuple):
    """Everything that training carries, arrays only.

    Attributes:
        params: Parameters of the network.
        target_params: Parameters of the target network.
        opt_state: State of the optimiser.
        rule_memory: The rule's memory of the agent's updates.
        advantage_moments: Moving moments of the advantages.
        buffer: Trajectories, leaves `[C / B, B, T, ...]`, with the logits of the policy
            that acted in the place of log-probabilities.
        envs: The environments between two steps.
        key: Random key of the agent, which never changes.
        update: `[]` int32, number of updates done.
    """

    params: PyTree
    target_params: PyTree
    opt_state: PyTree
    rule_memory: PyTree
    advantage_moments: MovingMoments
    buffer: Transition
    envs: rollout.EnvCarry
    key: Array
    update: Array


def make(
    config: DiscoConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Build DiscoRL's agent for a config and an environment; see `build`.

    Args:
        axis_name: Mapped axis over which this agent's environments are spread, if any.
    """
    parts = build(config, env, axis_name)
    return Algorithm(
        partial(init, parts),
        partial(step, parts),
        partial(act, parts),
        hosted=partial(hosted, parts),
    )


def build(config: DiscoConfig, env: Environment, axis_name: str | None = None) -> Parts:
    """Build network and environment of a config: what the functions below work with.

    Args:
        axis_name: Mapped axis over which this agent's environments are spread.
    """
    config = auto.resolve(config, env)
    stepper = rollout.make_stepper(config, env, axis_name)
    obs_space = env.observation_space(stepper.params)
    head = make_head(env.action_space(stepper.params), "categorical")
    *inner, last = config.hidden_sizes
    shape = obs_shape(obs_space)
    network = ActionModel(
        torso=network_config.torso_of(config, shape, hidden_sizes=tuple(inner)),
        num_actions=head.num_outputs,
        prediction_size=config.prediction_size,
        num_bins=config.num_bins,
        embedding_size=last,
        model_size=config.model_size,
        head_sizes=config.head_sizes,
    )
    return Parts(config, stepper, obs_space, head, network)


def init(parts: Parts, key: Array) -> DiscoState:
    """Make a fresh network, its copy as the target, an empty buffer."""
    config, axis = parts.config, parts.stepper.axis_name
    keys = init_keys(key, 3)
    num_envs = rollout.per_device(config.num_envs, axis)
    example = observe.example(parts.obs_space)
    network = {"network": (parts.network, [example])}
    params = networks.init_params(keys[:2], network)["network"]
    inner = params["params"]
    if "torso" in inner and isinstance(config.torso, str):
        inner = {**inner, "torso": scaled_like(inner["torso"])}
    params = {**params, "params": inner}
    envs = rollout.init_envs(parts.stepper, keys[2], num_envs)
    capacity = rollout.per_device(config.capacity, axis)
    shapes = jax.eval_shape(partial(_example, parts), envs)
    return DiscoState(
        params=params,
        target_params=params,
        opt_state=make_optimiser(config, params).init(optimiser.flatten(params)[0]),
        rule_memory=config.rule.init(),
        advantage_moments=init_moments(),
        buffer=ring.by_env(ring.init(shapes, capacity), num_envs),
        envs=envs,
        key=key,
        update=jnp.int32(0),
    )


def _example(parts: Parts, envs: rollout.EnvCarry) -> Transition:
    """Return one trajectory of the right shapes `[T, ...]`."""
    num = parts.config.num_steps
    obs = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], (num, *x.shape[1:])), envs.obs)
    logits = jnp.zeros((num, parts.head.num_outputs))
    flag = jnp.zeros(num, bool)
    action = parts.head.mode(logits)
    return Transition(obs, action, logits, jnp.zeros(num), obs, flag, flag)


def step(parts: Parts, state: DiscoState) -> tuple[DiscoState, Metrics]:
    """Make one update: collect trajectories, remember them, take one gradient step."""
    keys = update_keys(state, on_policy.NUM_KEYS)
    num_steps = parts.config.num_steps
    played = rollout.collect(
        parts.stepper, state.envs, (), policy(parts, state), keys[:3], num_steps
    )
    return learn(parts, state, played, keys)


def policy(parts: Parts, state: DiscoState) -> rollout.Player:
    """Return how the network of a state chooses actions while it is trained."""

    def act(features: Any, memory: PyTree, noise: Array) -> Any:
        logits = predict(parts, state.params, features).logits
        raw = parts.head.choose(logits, noise)
        return (raw, logits, parts.head.to_env(raw)), memory

    return rollout.Player(act, partial(to_features, parts.obs_space), parts.head.noise)


def act(parts: Parts, state: DiscoState, obs: Array, key: Array | None = None) -> Array:
    """Return the policy's action on observations `[..., *obs_shape]`.

    Args:
        state: State of one agent.
        obs: Observations as the environment gives them.
        key: Random key, consumed; without one the action is the deterministic one.
    """
    logits = predict(parts, state.params, to_features(parts.obs_space, obs)).logits
    head = parts.head
    return head.to_env(head.mode(logits) if key is None else head.sample(logits, key))


def learn(
    parts: Parts, state: DiscoState, played: rollout.Played, keys: Array
) -> tuple[DiscoState, Metrics]:
    """Remember a rollout, and learn from a batch of trajectories where that is due.

    Args:
        state: State with which the rollout was collected.
        played: The rollout, with the policy's logits in its transitions.
        keys: Keys of the update, the first three of which the rollout has used.
    """
    config, axis = parts.config, parts.stepper.axis_name
    envs, transitions, episodes = played.envs, played.transitions, played.episodes
    num_envs = envs.episode_return.shape[0]
    before = state.update.astype(jnp.uint32) * jnp.uint32(num_envs)
    trajectories = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), transitions)
    buffer = ring.add(ring.in_order(state.buffer), trajectories, before)

    due = state.update >= config.first_update
    change = partial(_learn, parts, buffer, before + jnp.uint32(num_envs), keys[3])
    learner = Learner(*(getattr(state, name) for name in Learner._fields))
    if traced_for_cpu():
        learner, sums = change_if(due, change, learner, like=state.key)
    else:
        learner, sums = change_where(due, change, learner)

    losses = averages(sums, {"gradient_steps": due.astype(jnp.int32)})
    # Averages over devices must come one after another: see `averages`.
    episodes = after(episodes, losses["policy_loss"], axis)
    done = (state.update + 1).astype(jnp.uint32)
    metrics = {
        "env_steps": done * jnp.uint32(config.steps_per_update),
        "gradient_steps": jnp.maximum(0, state.update + 1 - config.first_update).astype(
            jnp.uint32
        ),
        **rollout.episode_metrics(episodes, axis),
        **losses,
    }
    if config.metrics:
        shown: Any = transitions
        metrics[BATCH] = shown
    new = state._replace(
        **learner._asdict(),
        buffer=ring.by_env(buffer, num_envs),
        envs=envs,
        update=state.update + 1,
    )
    return new, metrics


def _learn(
    parts: Parts, buffer: Transition, added: Array, key: Array, learner: Learner
) -> tuple[Learner, Metrics]:
    """Take the gradient step of a batch of trajectories from the buffer."""
    if parts.stepper.axis_name is not None:
        key = jax.random.fold_in(key, jax.lax.axis_index(parts.stepper.axis_name))
    num = rollout.per_device(parts.config.batch_size, parts.stepper.axis_name)
    bits = jax.random.bits(key, (num,), jnp.uint32)
    numbers = ring.sample(bits, added, ring.capacity_of(buffer))
    found = ring.gather(buffer, numbers)
    return improve(parts, learner, jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), found))


def hosted(parts: Parts, update: Array) -> Hosted:
    """Return an update in pieces, for environments on the host.

    Args:
        update: `[]` int32, number of updates done; nothing here depends on it.
    """
    del update

    def restart(state: Any, obs: Any) -> Any:
        return state._replace(envs=rollout.first_step(state.envs, obs))

    return on_policy.of_rollout(
        parts.config, partial(policy, parts), partial(learn, parts), restart
    )

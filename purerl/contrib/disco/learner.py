"""The gradient step of DiscoRL's agent: inputs of the rule, losses, target network.

Axes: `T` steps, `N` trajectories, `A` actions.
"""

import math
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from purerl.acting import rollout
from purerl.acting.rollout import Transition
from purerl.contrib.disco.rules import (
    DiscoInputs,
    DiscoTargets,
    Predictions,
    Values,
    of_action,
)
from purerl.learning import optimiser, small_networks
from purerl.learning.averages import after, mean_and_var, pmean
from purerl.learning.optimiser import frozen_in
from purerl.learning.returns import recur_backwards
from purerl.networks.distributions import Head
from purerl.networks.observe import to_features
from purerl.networks.recurrent import LSTMMemory, lstm
from purerl.types import Array, Metrics, PyTree

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

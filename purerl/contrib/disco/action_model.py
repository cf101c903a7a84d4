"""A network that predicts what follows each action (Oh et al. 2025, DiscoRL).

Of an observation it puts out a policy and a vector `y`, and of every action, after one
step of a recurrent model, a vector `z`, an action value and the policy of the next
observation. `y` and `z` mean nothing by themselves: a rule of learning says what they
shall become (`purerl.contrib.disco.rules`).
"""

import math
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl.networks.recurrent import LSTMMemory, lstm
from purerl.types import Array, PyTree

HEAD_STD = 0.01  # Of the first kernels of the policy and of `y`.
# Normal numbers of variance 1 / fan_in are cut off at two standard deviations, which
# leaves this share of the variance. The authors' layers start so: their library does
# not make up for the loss.
LEFT = 0.7737
INIT = nn.initializers.variance_scaling(LEFT, "fan_in", "truncated_normal")


class Predictions(NamedTuple):
    """The outputs of the network on observations, for A actions.

    Attributes:
        logits: `[..., A]` logits of the policy.
        y: `[..., M]` logits of the prediction of the observation.
        z: `[..., A, M]` logits of the prediction of each action.
        q: `[..., A, K]` logits of each action's value, see `learning.two_hot`.
        next_logits: `[..., A, A]` logits of the policy after each action.
    """

    logits: Array
    y: Array
    z: Array
    q: Array
    next_logits: Array


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

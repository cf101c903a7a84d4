"""The learned policy gradient: a rule that is a recurrent network.

Oh et al. (2020), "Discovering Reinforcement Learning Algorithms" (arXiv:2007.08794);
with `temporal=True` Jackson et al. (2024), "Discovering Temporally-Aware Reinforcement
Learning Algorithms" (arXiv:2402.05828).
"""

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from purerl.config import ConfigError
from purerl.networks.recurrent import LSTMMemory, forget, lstm
from purerl.rules.inputs import RuleInputs, Targets
from purerl.types import Array, PyTree

NUM_INPUTS = 6
NUM_TEMPORAL = 2
INITS = ("random", "zeros")


@struct.dataclass
class LPGRule:
    """An LSTM that reads a rollout from its last step to its first.

    In every step it sees the reward, whether the episode terminated, the discount, the
    probability of the action, and the predictions of the observations before and after
    the step, each as one number, `phi(y)`: a layer of relu units and one output, the
    same for both. Of its memory a linear layer makes the target of the policy, a
    number, and another one the target of the prediction, a distribution.

    The memory is empty after a rollout's last step, and is emptied where an episode
    ended, so that a step never hears of the episode that follows. Where the episode
    terminated, `phi` of what follows is zero, and where a time limit cut it, it is that
    of the observation before the reset: there a step sees what it sees at the end of a
    rollout. The network is told of the termination only.

    With `temporal`, it also sees the share of the run that is over and the logarithm of
    the number of updates of the run. With a `base`, its outputs are added to those of
    another rule: zero output layers are exactly that rule.

    Attributes:
        params: Kernels and biases by name: `embedding` (two layers of `phi`), `input`,
            `recurrent` (the LSTM), `policy` and `prediction` (the outputs).
        base: Rule to which the outputs are added; None for none.
        temporal: Whether the network sees how far the run is and how long.
    """

    params: PyTree
    base: Any = None
    temporal: bool = struct.field(pytree_node=False, default=False)

    @classmethod
    def create(
        cls,
        key: Array,
        hidden_size: int = 256,
        prediction_size: int = 30,
        embedding_size: int = 16,
        *,
        scale: float = 1.0,
        base: Any = None,
        temporal: bool = False,
    ):
        """Draw a random rule (LeCun normal kernels, zero biases).

        Args:
            key: Random key of the kernels.
            hidden_size: Units of the LSTM; 256 in the paper.
            prediction_size: Numbers of the prediction vector, M; 30 in the paper.
            embedding_size: Units of the hidden layer of `phi`; 16 in the code of
                Jackson et al. (2023, github.com/EmptyJackson/groove).
            scale: Factor of the kernels of the output layers; 0 is the base alone.
            base: Rule to which the outputs are added; None for none.
            temporal: Whether the network sees how far the run is and how long.

        Raises:
            ConfigError: a size that is no whole number of at least 1.
        """
        hidden = _size("hidden_size", hidden_size)
        numbers = _size("prediction_size", prediction_size)
        units = _size("embedding_size", embedding_size)
        inputs = NUM_INPUTS + (NUM_TEMPORAL if temporal else 0)
        keys = jax.random.split(key, 6)
        params = {
            "embedding": (_layer(keys[0], numbers, units), _layer(keys[1], units, 1)),
            "input": _layer(keys[2], inputs, 4 * hidden),
            "recurrent": _layer(keys[3], hidden, 4 * hidden)[0],
            "policy": _scaled(_layer(keys[4], hidden, 1), scale),
            "prediction": _scaled(_layer(keys[5], hidden, numbers), scale),
        }
        return cls(params=params, base=base, temporal=temporal)

    @classmethod
    def make(
        cls,
        hidden_size: int = 256,
        prediction_size: int = 30,
        embedding_size: int = 16,
        init: str = "random",
        seed: int = 0,
        base: Any = None,
        temporal: bool = False,
    ):
        """Make a rule from plain values, as a command line or a YAML file writes them.

        Args:
            hidden_size: Units of the LSTM.
            prediction_size: Numbers of the prediction vector, M.
            embedding_size: Units of the hidden layer of `phi`.
            init: Kind of the first parameters. With `random` every kernel is drawn;
                with `zeros` the output layers are zero: the rule is its base, or leaves
                the policy as it is.
            seed: Seed of the kernels.
            base: Rule to which the outputs are added; None for none.
            temporal: Whether the network sees how far the run is and how long.

        Raises:
            ConfigError: another init, or a size that is no whole number of at least 1.
        """
        if init not in INITS:
            raise ConfigError(f"init must be one of {', '.join(INITS)}, got {init!r}.")
        return cls.create(
            jax.random.key(int(seed)),
            hidden_size,
            prediction_size,
            embedding_size,
            scale=float(init == "random"),
            base=base,
            temporal=bool(temporal),
        )

    @property
    def prediction_size(self) -> int:
        """Numbers of the prediction vector, M."""
        return jnp.shape(self.params["prediction"][1])[-1]

    def __call__(self, inputs: RuleInputs) -> Targets:
        """Return the targets of a rollout, see `Targets`."""
        features = self.features(inputs)
        hidden = self.unroll(features, inputs.done)
        policy = _dense(self.params["policy"], hidden)[..., 0]
        logits = _dense(self.params["prediction"], hidden)
        if self.base is not None:
            known = self.base(inputs)
            policy, logits = known.policy + policy, known.log_prediction + logits
        return Targets(policy, jax.nn.log_softmax(logits))

    def features(self, inputs: RuleInputs) -> Array:
        """Return what the LSTM sees of every step, `[T, B, F]`."""
        reward = inputs.reward
        after = self.embed(inputs.next_log_prediction)
        seen = [
            reward,
            inputs.terminated.astype(reward.dtype),
            jnp.full_like(reward, inputs.gamma),
            jnp.exp(inputs.log_prob),
            self.embed(inputs.log_prediction),
            jnp.where(inputs.terminated, 0.0, after),
        ]
        if self.temporal:
            seen.append(jnp.full_like(reward, inputs.share))
            seen.append(jnp.full_like(reward, jnp.log(inputs.num_updates)))
        return jnp.stack(seen, axis=-1)

    def embed(self, log_prediction: Array) -> Array:
        """Return `phi` of predictions `[..., M]`, `[...]`."""
        first, last = self.params["embedding"]
        return _dense(last, jax.nn.relu(_dense(first, jnp.exp(log_prediction))))[..., 0]

    def unroll(self, features: Array, done: Array) -> Array:
        """Read a rollout backwards.

        Args:
            features: `[T, B, F]` features of the steps.
            done: `[T, B]` bool, the step is the last one of its episode.

        Returns:
            The LSTM's outputs `[T, B, H]`, each of which knows the steps from its own
            to the end of the episode or of the rollout.
        """
        recurrent = jnp.asarray(self.params["recurrent"])
        gates = _dense(self.params["input"], features)
        blank = jnp.zeros((features.shape[1], recurrent.shape[0]))

        def step(
            memory: LSTMMemory, xs: tuple[Array, Array]
        ) -> tuple[LSTMMemory, Array]:
            gates_t, done_t = xs
            # The memory holds the steps after this one; they are another episode's if
            # this one ended.
            memory = lstm(recurrent, gates_t, forget(memory, done_t))
            return memory, memory.hidden

        start = LSTMMemory(blank, blank)
        return jax.lax.scan(step, start, (gates, done), reverse=True)[1]


def _size(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if isinstance(value, bool) or number < 1:
        raise ConfigError(
            f"{name} must be a whole number of at least 1, got {value!r}."
        )
    return number


def _layer(key: Array, fan_in: int, fan_out: int) -> tuple[Array, Array]:
    """A random kernel and a bias of zeros."""
    kernel = jax.random.normal(key, (fan_in, fan_out)) / np.sqrt(fan_in)
    return kernel, jnp.zeros(fan_out)


def _scaled(layer: tuple[Array, Array], scale: float) -> tuple[Array, Array]:
    return scale * layer[0], layer[1]


def _dense(layer: PyTree, inputs: Array) -> Array:
    kernel, bias = layer
    out = inputs @ kernel
    return out + jnp.broadcast_to(bias, out.shape)

"""The learned policy gradient: a rule that is a recurrent network.

Oh et al. (2020), "Discovering Reinforcement Learning Algorithms" (arXiv:2007.08794);
with `temporal=True` Jackson et al. (2024), "Discovering Temporally-Aware Reinforcement
Learning Algorithms" (arXiv:2402.05828).
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from purerl.accelerator.kernels import forget
from purerl.learning.small_networks import dense, is_random, random_layer, whole
from purerl.networks.recurrent import LSTMMemory, lstm
from purerl.rules.known import RuleInputs, Targets
from purerl.types import Array, PyTree

NUM_INPUTS = 6
NUM_TEMPORAL = 2


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
            hidden_size: Units of the LSTM; 256 in the paper.
            prediction_size: Numbers of the prediction vector, M; 30 in the paper.
            embedding_size: Units of the hidden layer of `phi`; 16 in the code of
                Jackson et al. (2023, github.com/EmptyJackson/groove).
            init: Kind of the first parameters. With `random` every kernel is drawn
                (LeCun normal); with `zeros` the output layers are zero: the rule is its
                base, or leaves the policy as it is.
            seed: Seed of the kernels.

        Raises:
            ConfigError: another init, or a size that is no whole number of at least 1.
        """
        hidden = whole("hidden_size", hidden_size)
        numbers = whole("prediction_size", prediction_size)
        units = whole("embedding_size", embedding_size)
        inputs = NUM_INPUTS + (NUM_TEMPORAL if temporal else 0)
        keys = jax.random.split(jax.random.key(int(seed)), 6)
        scale = float(is_random(init))
        params = {
            "embedding": (
                random_layer(keys[0], numbers, units),
                random_layer(keys[1], units, 1),
            ),
            "input": random_layer(keys[2], inputs, 4 * hidden),
            "recurrent": random_layer(keys[3], hidden, 4 * hidden)[0],
            "policy": _scaled(random_layer(keys[4], hidden, 1), scale),
            "prediction": _scaled(random_layer(keys[5], hidden, numbers), scale),
        }
        return cls(params=params, base=base, temporal=bool(temporal))

    @property
    def prediction_size(self) -> int:
        """Numbers of the prediction vector, M."""
        return jnp.shape(self.params["prediction"][1])[-1]

    def __call__(self, inputs: RuleInputs) -> Targets:
        """Return the targets of a rollout, see `Targets`."""
        features = self.features(inputs)
        gates = dense(self.params["input"], features)
        hidden = read_backwards(self.params["recurrent"], gates, inputs.done)
        policy = dense(self.params["policy"], hidden)[..., 0]
        logits = dense(self.params["prediction"], hidden)
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
        return dense(last, jax.nn.relu(dense(first, jnp.exp(log_prediction))))[..., 0]


def read_backwards(recurrent: Any, gates: Array, done: Array) -> Array:
    """Read rollouts from their last step to the first with an LSTM.

    The memory is empty after the last step of a rollout and of an episode.

    Args:
        recurrent: `[H, 4 H]` kernel.
        gates: `[T, B, 4 H]`, what the inputs give the gates.
        done: `[T, B]` bool, the step is the last one of its episode.

    Returns:
        Outputs `[T, B, H]`, each of which knows the steps from its own to the end of
        the episode or of the rollout.
    """
    recurrent = jnp.asarray(recurrent)
    blank = jnp.zeros((gates.shape[1], recurrent.shape[0]))

    def step(memory: LSTMMemory, xs: tuple[Array, Array]) -> tuple[LSTMMemory, Array]:
        gates_t, done_t = xs
        # The memory holds the steps after this one; they are another episode's if this
        # one ended.
        memory = lstm(recurrent, gates_t, forget(memory, done_t))
        return memory, memory.hidden

    start = LSTMMemory(blank, blank)
    return jax.lax.scan(step, start, (gates, done), reverse=True)[1]


def _scaled(layer: tuple[Array, Array], scale: float) -> tuple[Array, Array]:
    return scale * layer[0], layer[1]

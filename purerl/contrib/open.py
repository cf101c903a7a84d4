"""OPEN: an optimiser that is a recurrent network (Goldie et al. 2024).

"Can Learned Optimization Make Reinforcement Learning Less Difficult?", arXiv:2407.07082
and the authors' code at https://github.com/AlexGoldie/rl-learned-optimization, where
weights lie as `.npy` files that `OpenOptimiser.load` reads. The network is applied to
every parameter alike. Its inputs and its output are the published ones, in their order;
`LearnedOptimiser` is one of the same kind that begins as Adam.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct

from purerl import schedules
from purerl.config import FRACTION, POSITIVE_OR_NONE, ConfigError, dynamic, static
from purerl.learning.small_networks import whole
from purerl.networks.layers import ACTIVITY
from purerl.optimisers.first_order import EPS_ROOT
from purerl.optimisers.learned import (
    Layout,
    layout_of,
    mean_of,
    noise_at,
    of_vector,
    seed_of,
)
from purerl.types import Array, PyTree

DECAYS = (0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)
NUM_FEATURES = 2 * len(DECAYS) + 7
# These are added to a magnitude before its logarithm, and to a mean square.
_LOG_EPS, _SQUARE_EPS, _NORM_EPS = 1e-13, 1e-5, 1e-6
_ACTIVITY_EPS = 1e-11


def shapes_of(hidden_size: int, memory_size: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights by name, in the order of the published vector.

    Args:
        hidden_size: Units of each hidden layer, H.
        memory_size: Units of the recurrent layer, M.
    """
    gates = {"ir": True, "iz": True, "in": True, "hr": False, "hz": False, "hn": True}
    found: dict[str, tuple[int, ...]] = {}
    for name in sorted(gates):
        rows = NUM_FEATURES if name[0] == "i" else memory_size
        if gates[name]:
            found[f"gru.{name}.bias"] = (memory_size,)
        found[f"gru.{name}.kernel"] = (rows, memory_size)
    rows = memory_size
    for number in range(2):
        found[f"dense{number}.bias"] = (hidden_size,)
        found[f"dense{number}.kernel"] = (rows, hidden_size)
        found[f"norm{number}.bias"] = (hidden_size,)
        found[f"norm{number}.scale"] = (hidden_size,)
        rows = hidden_size
    return {**found, "dense2.bias": (3,), "dense2.kernel": (rows, 3)}


def make_params(
    hidden_size: int = 16, memory_size: int = 8, seed: int = 0
) -> dict[str, np.ndarray]:
    """Return random weights, from which a published evolution starts: LeCun normal.

    Args:
        hidden_size: Units of each hidden layer.
        memory_size: Units of the recurrent layer.
        seed: Seed of the kernels; biases are zero, scales of the norms are one.
    """
    draw = np.random.default_rng(seed)
    found = {}
    for name, shape in shapes_of(hidden_size, memory_size).items():
        if name.endswith("kernel"):
            found[name] = draw.standard_normal(shape) / shape[0] ** 0.5
        else:
            found[name] = np.full(shape, float(name.endswith("scale")))
    return {name: array.astype(np.float32) for name, array in found.items()}


def features_of(
    params: Array, gradient: Array, momenta: Array, layout: Layout
) -> Array:
    """Return what the network sees of each parameter by itself, `[15, P]`.

    Every row is divided by its root mean square over each tensor.

    Args:
        params: Parameters `[P]`.
        gradient: Gradient `[P]`, clipped.
        momenta: Decaying means of the gradients, `[6, P]`.
    """
    rows = jnp.concatenate(
        [
            params[None],
            jnp.sign(momenta),
            jnp.log(jnp.abs(momenta) + _LOG_EPS),
            jnp.sign(gradient)[None],
            jnp.log(jnp.abs(gradient) + _LOG_EPS)[None],
        ]
    )
    tensors = jnp.split(rows, np.cumsum(layout.sizes)[:-1], axis=1)
    squares = [jnp.mean(jnp.square(x), axis=1, keepdims=True) for x in tensors]
    scales = [jax.lax.rsqrt(_SQUARE_EPS + square) for square in squares]
    return jnp.concatenate([x * y for x, y in zip(tensors, scales, strict=True)], 1)


def remember(params: Mapping[str, Array], memory: Array, seen: Array) -> Array:
    """Return the memory `[M, P]` after a step of a gated recurrent unit.

    It is that of Cho et al. 2014 (arXiv:1406.1078) in the form of flax's `GRUCell`,
    whose reset gate multiplies the product.

    Args:
        memory: Memory before the step, `[M, P]`.
        seen: Inputs `[F, P]`.
    """

    def product(name: str, x: Array) -> Array:
        out = jnp.transpose(params[f"gru.{name}.kernel"]) @ x
        bias = params.get(f"gru.{name}.bias")
        return out if bias is None else out + jnp.asarray(bias)[:, None]

    reset = jax.nn.sigmoid(product("ir", seen) + product("hr", memory))
    keep = jax.nn.sigmoid(product("iz", seen) + product("hz", memory))
    new = jnp.tanh(product("in", seen) + reset * product("hn", memory))
    return (1.0 - keep) * new + keep * memory


def read_out(params: Mapping[str, Array], memory: Array) -> Array:
    """Return the outputs `[3, P]` of a memory: dense layers, each with a norm and relu.

    Args:
        memory: Memory `[M, P]`.
    """
    x = memory
    for number in range(3):
        x = jnp.transpose(params[f"dense{number}.kernel"]) @ x
        x = x + jnp.asarray(params[f"dense{number}.bias"])[:, None]
        if number < 2:
            x = x - _mean_of_units(x)
            x = x * jax.lax.rsqrt(_mean_of_units(jnp.square(x)) + _NORM_EPS)
            scale, bias = (params[f"norm{number}.{name}"] for name in ("scale", "bias"))
            x = jax.nn.relu(
                x * jnp.asarray(scale)[:, None] + jnp.asarray(bias)[:, None]
            )
    return x


def _mean_of_units(x: Array) -> Array:
    """The mean `[1, P]` over the rows of `x`, `[H, P]`.

    It is a product because a CPU's compiled sum over rows is ten times slower.
    """
    return jnp.full((1, x.shape[0]), 1.0 / x.shape[0], x.dtype) @ x


def dormancy(layout: Layout, activity: Any, params: PyTree) -> Array:
    """Return how active the unit is that each parameter leads to, `[P]`.

    It is the unit's mean absolute output over that of its layer (Sokar et al. 2023,
    arXiv:2302.12902, equation 1): 0 for a dormant unit, 1 on average, and 1 where
    nothing is known of the layer.

    Args:
        activity: Mean absolute outputs `[N]` of layers, by the names of their networks,
            as `networks.layers.note_activity` leaves them; None where nobody knows.
        params: Pytree of arrays of the parameters' shapes.
    """
    found = []
    for name, leaf in zip(layout.names, jax.tree.leaves(params), strict=True):
        units = _activity_at(activity, name)
        if units is None or units.shape != leaf.shape[-1:]:
            found.append(jnp.ones(leaf.size))
            continue
        units = units + _ACTIVITY_EPS
        ratios = units / jnp.abs(units).sum() * units.size
        found.append(jnp.broadcast_to(ratios, leaf.shape).ravel())
    return jnp.concatenate(found)


def _activity_at(activity: Any, name: tuple[str, ...]) -> Array | None:
    """The mean absolute output of the layer that a leaf is in."""
    if len(name) < 2:  # A bare array, such as a temperature, is in no layer.
        return None
    *path, layer, _ = name
    node = activity
    for part in [*(x for x in path if x != "params"), ACTIVITY + layer]:
        if not isinstance(node, Mapping) or part not in node:
            return None
        node = node[part]
    return node


EXPONENT = 1e-3  # The second output is multiplied by this before it is an exponent.


class OpenState(NamedTuple):
    """The state of an `OpenOptimiser`, for P parameters.

    Attributes:
        count: `[]` int32, number of steps done.
        momenta: `[6, P]`, decaying means of the gradients, with `DECAYS`.
        memory: `[M, P]`, memory of the recurrent network.
        seed: `[]` uint32, where the noise of the run begins.
    """

    count: Array
    momenta: Array
    memory: Array
    seed: Array


@struct.dataclass
class OpenOptimiser:
    """OPEN's network: the step of every parameter from 19 facts about it.

    With the outputs `o` of the network for a parameter, the step is `-(u - mean(u))`,
    `u = learning_rate (o_1 exp(0.001 o_2) + o_3 n)`, with a standard normal number `n`,
    which is 0 for a critic. The mean is over all parameters that are not frozen. The
    published step size is 0.001, and nothing decays it.

    The inputs are the parameter, signs and logarithms of six momenta and of the
    gradient, each divided by its root mean square over the tensor; and the share of the
    run, the depth of the layer, the share of the update's epochs, and how active the
    unit is that the parameter leads to, in units of its layer's mean (section 5.3).
    PPO gives the last two; from other algorithms they are 0 and 1.

    Attributes:
        params: Weights by name; see `shapes_of`.
        max_norm: Largest norm of each network's gradient; None clips nothing. The
            published one clips actor and critic apart, the config's `max_grad_norm`
            both together.
        share: Share of the run that is over, as the network sees it.
        noise: Whether the parameters of a policy also move at random.
        needs_layers: It knows the layer that each parameter is in.
        needs_activity: It sees how active each unit was, and the epoch.
        needs_frozen: It takes the mean over the parameters that are not frozen.
    """

    params: PyTree = struct.field(default_factory=make_params)
    max_norm: float | None = dynamic(0.5, "Largest norm per network.", POSITIVE_OR_NONE)
    share: float = dynamic(schedules.Share(), "Share of the run.", FRACTION)
    noise: bool = static(True, "Move the parameters of a policy at random too.")
    needs_layers: ClassVar[bool] = True
    needs_activity: ClassVar[bool] = True
    needs_frozen: ClassVar[bool] = True

    @classmethod
    def make(
        cls,
        hidden_size: int = 16,
        memory_size: int = 8,
        noise: bool = True,
        max_norm: float | None = 0.5,
        seed: int = 0,
    ) -> "OpenOptimiser":
        """Make an optimiser of random weights, from plain values.

        Args:
            hidden_size: Units of each hidden layer; 32 in the published one for several
                environments.
            memory_size: Units of the recurrent layer; 16 there.
            noise: Whether the parameters of a policy also move at random.
            max_norm: Largest norm of each network's gradient; None clips nothing.
            seed: Seed of the weights.

        Raises:
            ConfigError: a size or the seed is no whole number, or too small.
        """
        params = make_params(
            whole("hidden_size of OpenOptimiser", hidden_size),
            whole("memory_size of OpenOptimiser", memory_size),
            whole("seed of OpenOptimiser", seed, least=0),
        )
        return cls(params, max_norm, noise=bool(noise))

    @classmethod
    def load(cls, path: str | Path) -> "OpenOptimiser":
        """Read weights as the authors publish them: one vector in a `.npy` file.

        Args:
            path: Path of the file, which holds 1,211 numbers, or the 3,571 of the
                larger network for several environments.

        Raises:
            ConfigError: there is no such file, or it holds something else.
        """
        try:
            vector = np.asarray(np.load(path, allow_pickle=False), np.float32)
        except (OSError, TypeError, ValueError) as error:
            raise ConfigError(
                f"cannot read the weights of OPEN {str(path)!r}: it is no .npy file of "
                f"one vector of numbers ({error})."
            ) from None
        for sizes in ((16, 8), (32, 16)):
            shapes = shapes_of(*sizes)
            counts = [int(np.prod(shape)) for shape in shapes.values()]
            if vector.shape == (sum(counts),):
                parts = np.split(vector, np.cumsum(counts)[:-1])
                named = zip(shapes.items(), parts, strict=True)
                return cls({name: x.reshape(shape) for (name, shape), x in named})
        raise ConfigError(
            f"{str(path)!r} holds an array of shape {vector.shape}; the published "
            "weights of OPEN are vectors of 1,211 or 3,571 numbers."
        )

    def __call__(
        self, learning_rate: Array | float
    ) -> optax.GradientTransformationExtraArgs:
        """Return the transformation with a step size, which may be traced."""
        memory_size = jnp.shape(self.params["gru.hn.bias"])[0]

        def init(flat: Array) -> OpenState:
            return OpenState(
                count=jnp.zeros((), jnp.int32),
                momenta=jnp.zeros((len(DECAYS), *flat.shape), flat.dtype),
                memory=jnp.zeros((memory_size, *flat.shape), flat.dtype),
                seed=seed_of(flat) if self.noise else jnp.zeros((), jnp.uint32),
            )

        def step(
            gradient: Array,
            state: OpenState,
            params: Array,
            layers: PyTree,
            *,
            activity: Any = None,
            epoch: Array | float = 0.0,
            moving: np.ndarray | None = None,
        ) -> tuple[Array, OpenState]:
            layout = layout_of(layers)
            gradient = self._clipped(gradient, layout)
            decays = jnp.array(DECAYS)[:, None]
            momenta = decays * state.momenta + (1.0 - decays) * gradient[None]
            share = schedules.at(self.share, 0.0)
            active = dormancy(layout, activity, layers)
            features = features_of(params, gradient, momenta, layout)
            rest = (share, layout.spread(layout.depth), epoch, active)
            rows = [jnp.broadcast_to(x, gradient.shape)[None] for x in rest]
            memory = remember(
                self.params, state.memory, jnp.concatenate([features, *rows])
            )
            outputs = read_out(self.params, memory)
            move = outputs[0] * jnp.exp(EXPONENT * outputs[1])
            if self.noise:
                move = move + outputs[2] * noise_at(state.seed, state.count, layout)
            number = move.size if moving is None else int(moving.sum())
            if number > 1:  # A single number would never move.
                move = move - mean_of(move, moving)
            return move, OpenState(state.count + 1, momenta, memory, state.seed)

        return of_vector("OpenOptimiser", learning_rate, init, step)

    def _clipped(self, gradient: Array, layout: Layout) -> Array:
        """The gradient, that of each network scaled down to the largest norm."""
        if self.max_norm is None:
            return gradient
        number = layout.spread(layout.network)
        count = int(layout.network.max()) + 1
        of_network = np.arange(count)[:, None] == number[None]
        squares = jnp.where(of_network, jnp.square(gradient)[None], 0.0)
        # A zero under the root would leave a network without a gradient no derivative.
        norms = jnp.sqrt(squares.sum(1) + EPS_ROOT)
        scales = self.max_norm / jnp.maximum(norms, self.max_norm)
        return gradient * scales[number]

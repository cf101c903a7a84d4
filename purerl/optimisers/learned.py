"""An optimiser that is a small network, and begins as Adam.

It is of the kind of OPEN (Goldie et al. 2024, arXiv:2407.07082): one network for all
parameters, which sees the gradient and its momenta, the parameter, the share of the run
that is over and the layer, and whose weights an evolution finds. Two things differ. Its
output changes Adam's step instead of being the step, so that zero weights in the last
layer are Adam. And it sees gradients in units of Adam's root, which do not depend on
the scale of the loss. `OpenOptimiser` is the published one.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jax.flatten_util import ravel_pytree

from purerl import schedules
from purerl.config import DECAY, FRACTION, POSITIVE, dynamic, static
from purerl.learning.small_networks import signed_log, whole, zero_layer
from purerl.optimisers.first_order import EPS_ROOT
from purerl.types import Array, PyTree

_COLLECTION = "params"  # flax keeps the parameters of a network under this name.
# Modules that see an observation before all others beside them, in this order, and such
# as see it after them: blocks of a memory, the head of a critic of all actions.
_FIRST = ("torso", "Conv", "CNN", "memory")
_LAST = ("block", "outputs", "Critic")


class Layout(NamedTuple):
    """Facts about the P numbers of a flat vector, in the order of `ravel_pytree`.

    Attributes:
        sizes: Number of parameters of each leaf, `[L]`; they sum to P.
        depth: Place of each leaf's layer in its network, `[L]`: 0 for the first layer,
            1 for the last.
        is_matrix: 1 for a leaf of two axes or more (a kernel), 0 for a bias, `[L]`.
        is_critic: Whether each leaf belongs to a network of values beside a policy,
            `[L]`.
        network: Number of the network that each leaf belongs to, `[L]`.
        names: Path of each leaf.
    """

    sizes: np.ndarray
    depth: np.ndarray
    is_matrix: np.ndarray
    is_critic: np.ndarray
    network: np.ndarray
    names: tuple[tuple[str, ...], ...]

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Return `[P]`, one number for each parameter, of one for each leaf `[L]`."""
        return np.repeat(values, self.sizes)


def layout_of(params: PyTree) -> Layout:
    """Return where the parameters of some networks stand.

    A layer is what holds arrays: its kernel and its bias are at one depth. A network is
    what flax keeps under `params`; where one pytree holds an actor and a critic, or two
    critics alike, each has layers from 0 to 1. Within a network a torso comes first,
    then convolutions and a memory, then what is made of layers, and last what is a
    layer by itself (a head), each in the order of their names; a normalisation follows
    the layer of its number. In blocks around which something is added (transformers,
    memories of blocks, IMPALA's), it is before the layer that it normalises.

    Args:
        params: Pytree of arrays, or of their shapes.
    """
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    names = [tuple(_name(key) for key in path) for path, _ in leaves]
    depth: dict[tuple[str, ...], float] = {}
    number: dict[tuple[str, ...], float] = {}
    for index, (path, network) in enumerate(_networks(params)):
        layers = _layers(network)
        for place, layer in enumerate(layers):
            number[path + layer] = index
            depth[path + layer] = place / max(1, len(layers) - 1)
    return Layout(
        sizes=np.array([int(np.prod(leaf.shape)) for _, leaf in leaves]),
        depth=np.array([_nearest(depth, name) for name in names], np.float32),
        is_matrix=np.array([leaf.ndim > 1 for _, leaf in leaves], np.float32),
        is_critic=np.array(["critic" in "/".join(name) for name in names]),
        network=np.array([_nearest(number, name) for name in names], np.int32),
        names=tuple(names),
    )


def _networks(tree: Any, path: tuple[str, ...] = ()) -> list[tuple]:
    """The networks of a pytree with their paths; without `params` it is one network."""
    if not isinstance(tree, Mapping):
        return [(path, tree)]
    if _COLLECTION in tree:
        return [((*path, _COLLECTION), part) for part in _twins(tree[_COLLECTION])]
    inner = [one for name in tree for one in _networks(tree[name], (*path, name))]
    if any(where[-1:] == (_COLLECTION,) for where, _ in inner):
        return inner
    return [(path, tree)]


def _twins(tree: Any) -> list[Any]:
    """The networks of one structure that a network is made of, or the network itself.

    Their modules have the same names but for the number at the end: `CNN_0` and
    `Critic_0` are one of them, `CNN_1` and `Critic_1` the other.
    """
    if not isinstance(tree, Mapping):
        return [tree]
    parts: dict[str, dict[str, Any]] = {}
    for name, module in tree.items():
        kind, _, number = name.rpartition("_")
        is_made_of_layers = isinstance(module, Mapping) and not _is_layer(module)
        if not (number.isdigit() and is_made_of_layers):
            return [tree]
        parts.setdefault(number, {})[kind] = module
    if len({jax.tree.structure(part) for part in parts.values()}) > 1:
        return [tree]
    return [
        {f"{kind}_{number}": module for kind, module in part.items()}
        for number, part in parts.items()
    ]


def _layers(tree: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of the layers of a network, from the first to the last by their names."""
    if not isinstance(tree, Mapping):
        return [path]
    modules = {name: x for name, x in tree.items() if isinstance(x, Mapping)}

    def place(name: str) -> tuple:
        first = [n for n, kind in enumerate(_FIRST) if name.startswith(kind)]
        is_last = any(kind in name for kind in _LAST)
        is_layer = _is_layer(modules[name]) and not first
        kind, _, number = name.rpartition("_")
        order = (int(number), kind) if number.isdigit() else (-1, name)
        return first or [len(_FIRST)], is_last, is_layer, order

    found: list[tuple[str, ...]] = []
    for name in sorted(modules, key=place):
        inner = modules[name]
        own = (*path, name)
        found += [own] if _is_layer(inner) else _layers(inner, own)
    # Arrays beside modules, such as a log standard deviation, are a last layer.
    return found if len(modules) == len(tree) else [*found, path]


def _is_layer(tree: Any) -> bool:
    """Return whether a module holds arrays only."""
    return not any(isinstance(x, Mapping) for x in tree.values())


def _nearest(known: dict[tuple[str, ...], float], name: tuple[str, ...]) -> float:
    """Return the number that is known of the innermost place that a leaf is in."""
    for length in range(len(name), -1, -1):
        if name[:length] in known:
            return known[name[:length]]
    return 0.0


def _name(key: Any) -> str:
    return str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key))))


# The decays of the momenta beside Adam's own: they average over two steps and a
# hundred.
DECAYS = (0.5, 0.99)
FEATURES = (
    "gradient",
    "momentum, Adam's",
    *(f"momentum, {decay:g}" for decay in DECAYS),
    "size of the gradients",
    "parameter",
    "share of the run",
    "depth of the layer",
    "matrix or bias",
)
# An output of one adds this to the step, in units of Adam's step. A shift moves every
# parameter that has the same features the same way: where it is small, random weights
# still learn, so that an evolution has something to choose from.
SHIFT = 0.1
HIDDEN_SIZE = 8


class LearnedState(NamedTuple):
    """The state of a `LearnedOptimiser`, for P parameters.

    Attributes:
        count: `[]` int32, number of steps done.
        momenta: `[3, P]` decaying means of the gradients: Adam's first, then those of
            `DECAYS`.
        second: `[P]`, decaying mean of the squared gradients.
        seed: `[]` uint32, where the noise of the run begins; zero without noise.
    """

    count: Array
    momenta: Array
    second: Array
    seed: Array


def make_params(
    hidden_size: int = HIDDEN_SIZE, noise: bool = False, seed: int = 0
) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Return the weights of a network that does nothing to Adam's step.

    Args:
        hidden_size: Units of the hidden layer, H.
        noise: Whether there is an output for the size of a noise.
        seed: Seed of the first layer's kernel.

    Returns:
        `((kernel [F, H], bias [H]), (kernel [H, O], bias [O]))`. The last layer is
        zero. The first is random (LeCun normal): were both zero, no single weight would
        change anything, and an evolution would have no direction to begin in.
    """
    inputs, outputs = len(FEATURES), 3 if noise else 2
    draw = np.random.default_rng(seed).standard_normal((inputs, hidden_size))
    first = (draw / inputs**0.5).astype(np.float32)
    bias = zero_layer(inputs, hidden_size)[1]
    return (first, bias), zero_layer(hidden_size, outputs)


@struct.dataclass
class LearnedOptimiser:
    """Adam's step, changed by a network of a few facts about each parameter.

    With Adam's direction `a = m / (sqrt(v) + eps)` of one parameter, the step is
    `-learning_rate (a exp(f) + 0.1 s + 0.1 w n)`, with the outputs `f`, `s` and, with
    noise, `w` of the network for this parameter, and a standard normal number `n`. The
    network has one hidden layer with tanh, and the inputs named in `FEATURES`.
    `LearnedOptimiser()` is Adam.

    Attributes:
        params: `((kernel [9, H], bias [H]), (kernel [H, O], bias [O]))`, with two
            outputs, three with noise.
        b1: Adam's decay of the mean of gradients.
        b2: Adam's decay of the mean of squared gradients.
        eps: Number that is added to the root of the second mean.
        share: Share of the run that is over, as the network sees it.
        noise: Whether the parameters of a policy also move at random. A critic's do
            not, as in OPEN (section 5.3).
        needs_layers: It knows the layer that each parameter is in.
        needs_frozen: It takes means over the parameters that are not frozen.
    """

    params: PyTree = struct.field(default_factory=make_params)
    b1: float = dynamic(0.9, "Decay of the mean of gradients.", DECAY)
    b2: float = dynamic(0.999, "Decay of the mean of squared gradients.", DECAY)
    eps: float = dynamic(1e-8, "Number added to the root of the second.", POSITIVE)
    share: float = dynamic(schedules.Share(), "Share of the run.", FRACTION)
    noise: bool = static(False, "Move the parameters of a policy at random too.")
    needs_layers: ClassVar[bool] = True
    needs_frozen: ClassVar[bool] = True

    @classmethod
    def make(
        cls,
        hidden_size: int = HIDDEN_SIZE,
        noise: bool = False,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        seed: int = 0,
    ) -> "LearnedOptimiser":
        """Make an optimiser that is Adam, from plain values as a command line has them.

        Args:
            hidden_size: Units of the network's hidden layer.
            noise: Whether the parameters of a policy also move at random.
            b1: Adam's decay of the mean of gradients.
            b2: Adam's decay of the mean of squared gradients.
            eps: Number that is added to the root of the second mean.
            seed: Seed of the kernel of the hidden layer, which matters once an
                evolution has moved the last layer away from zero.

        Raises:
            ConfigError: the hidden layer has no units, or no whole number of them, or
                the seed is no whole number.
        """
        units = whole("hidden_size of LearnedOptimiser", hidden_size)
        seed = whole("seed of LearnedOptimiser", seed, least=0)
        params = make_params(units, bool(noise), seed)
        return cls(params, b1, b2, eps, noise=bool(noise))

    def __call__(
        self, learning_rate: Array | float
    ) -> optax.GradientTransformationExtraArgs:
        """Return the transformation with a step size, which may be traced."""

        def init(flat: Array) -> LearnedState:
            return LearnedState(
                count=jnp.zeros((), jnp.int32),
                momenta=jnp.zeros((1 + len(DECAYS), *flat.shape), flat.dtype),
                second=jnp.zeros_like(flat),
                seed=seed_of(flat) if self.noise else jnp.zeros((), jnp.uint32),
            )

        return of_vector("LearnedOptimiser", learning_rate, init, self._step)

    def _step(
        self,
        gradient: Array,
        state: LearnedState,
        params: Array,
        layers: PyTree,
        *,
        moving: np.ndarray | None = None,
    ) -> tuple[Array, LearnedState]:
        """The direction `[P]` to step against, and the state after the step."""
        layout = layout_of(layers)
        count = state.count + 1
        decays = jnp.stack([jnp.asarray(x, jnp.float32) for x in (self.b1, *DECAYS)])
        decays = decays[:, None]
        momenta = (1.0 - decays) * gradient[None] + decays * state.momenta
        second = (1.0 - self.b2) * jnp.square(gradient) + self.b2 * state.second
        # A zero under the root would leave parameters without a gradient so far no
        # derivative.
        root = jnp.sqrt(second / (1.0 - self.b2**count) + EPS_ROOT) + self.eps
        ratios = momenta / (1.0 - decays**count) / root[None]
        seen = jnp.stack([gradient / root, *ratios])
        features = self._features(seen, root, params, layout, moving)
        normal = noise_at(state.seed, state.count, layout) if self.noise else None
        direction = self.direction(ratios[0], features, normal)
        return direction, LearnedState(count, momenta, second, state.seed)

    def direction(
        self, adam: Array, features: Array, normal: Array | None = None
    ) -> Array:
        """Return what the network makes of Adam's direction, `[P]`.

        Args:
            adam: Adam's direction, `[P]`.
            features: `[F, P]` features of the parameters, in the order of `FEATURES`.
            normal: Standard normal numbers `[P]`; without them there is no noise.
        """
        (kernel_in, bias_in), (kernel_out, bias_out) = self.params
        hidden = jnp.tanh(jnp.transpose(kernel_in) @ features + bias_in[:, None])
        outputs = jnp.transpose(kernel_out) @ hidden + bias_out[:, None]
        changed = adam * jnp.exp(outputs[0]) + SHIFT * outputs[1]
        return changed if normal is None else changed + SHIFT * outputs[2] * normal

    def _features(
        self,
        ratios: Array,
        root: Array,
        params: Array,
        layout: Layout,
        moving: np.ndarray | None,
    ) -> Array:
        """Return the features `[F, P]` of P parameters, all near one in size."""
        size = jnp.log(root)
        typical = jnp.sqrt(mean_of(jnp.square(params), moving)) + 1e-8
        # It is a number wherever somebody trains with it.
        share = schedules.at(self.share, 0.0)
        return jnp.concatenate(
            [
                signed_log(ratios),
                jnp.tanh(0.25 * (size - mean_of(size, moving)))[None],
                signed_log(params / typical)[None],
                jnp.full((1, *params.shape), share, params.dtype),
                layout.spread(layout.depth)[None],
                layout.spread(layout.is_matrix)[None],
            ]
        )


def of_vector(
    name: str, learning_rate: Array | float, init: Callable, step: Callable
) -> optax.GradientTransformationExtraArgs:
    """Return the transformation of layers by a function of all their numbers.

    Args:
        name: Name of the optimiser, for the message.
        learning_rate: Step size, which may be traced.
        init: `(params [P]) -> state`.
        step: `(gradient [P], state, params [P], layers, **told) -> (direction [P],
            state)`, a direction to step against.
    """

    def update(updates: Any, state: Any, params: Any = None, **told: Any) -> Any:
        if params is None:
            raise ValueError(f"{name} needs the parameters beside them.")
        gradient, restore = ravel_pytree(updates)
        flat = ravel_pytree(params)[0]
        direction, state = step(gradient, state, flat, updates, **told)
        return restore(-learning_rate * direction), state

    return optax.GradientTransformationExtraArgs(
        lambda params: init(ravel_pytree(params)[0]), update
    )


def mean_of(x: Array, moving: np.ndarray | None) -> Array:
    """Return the mean `[]` of numbers `[P]` of the parameters that are not frozen.

    Args:
        x: `[P]` numbers of the parameters.
        moving: `[P]` bool, which parameters are not frozen; None where all are not.
    """
    if moving is None:
        return x.mean()
    return jnp.where(moving, x, 0.0).sum() / max(1, int(moving.sum()))


def seed_of(flat: Array) -> Array:
    """Return a number of the bits of parameters, `[]` uint32, as seed of a noise.

    An optimiser is given no random key. The parameters that it starts from were drawn
    with the key of the run, so that runs with other keys have another noise, and all
    devices of one run, which have the same parameters, have the same.

    Args:
        flat: Parameters `[P]`, float32.
    """
    words = jax.lax.bitcast_convert_type(flat, jnp.uint32)
    # Each word is mixed with its place first; else exchanging two words would change
    # nothing.
    place = jnp.arange(words.size, dtype=jnp.uint32) * jnp.uint32(2) + jnp.uint32(1)
    mixed = (words ^ (words >> 15)) * (place * jnp.uint32(0x9E3779B1) | jnp.uint32(1))
    return jnp.sum(mixed ^ (mixed >> 13), dtype=jnp.uint32)


def noise_at(seed: Array, count: Array, layout: Layout) -> Array:
    """Return standard normal numbers `[P]` of one step; a critic's parameters have 0.

    Args:
        seed: `[]` uint32 seed, from `seed_of`.
        count: `[]` int32, number of steps done.
        layout: Places of the parameters in the networks.
    """
    key = jax.random.fold_in(jax.random.key(seed), count)
    has_noise = layout.spread(~layout.is_critic)
    return jnp.where(has_noise, jax.random.normal(key, has_noise.shape), 0.0)

"""OPEN: an optimiser that is a recurrent network (Goldie et al. 2024).

"Can Learned Optimization Make Reinforcement Learning Less Difficult?", arXiv:2407.07082
and the authors' code at https://github.com/AlexGoldie/rl-learned-optimization, where
weights lie as `.npy` files that `OpenOptimiser.load` reads. The network is applied to
every parameter alike. Its inputs and its output are the published ones, in their order;
`LearnedOptimiser` is one of the same kind that begins as Adam.
"""

from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jax.flatten_util import ravel_pytree

from purerl import schedules
from purerl.config import FRACTION, POSITIVE_OR_NONE, ConfigError, dynamic, static
from purerl.optimisers.differentiable import EPS_ROOT
from purerl.optimisers.layout import Layout, layout_of
from purerl.optimisers.learned import mean_of, noise_at, seed_of
from purerl.optimisers.open_network import (
    DECAYS,
    dormancy,
    features_of,
    make_params,
    read_out,
    remember,
    shapes_of,
)
from purerl.types import Array, PyTree

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
    max_norm: float | None = dynamic(
        0.5, "Largest gradient norm of each network.", POSITIVE_OR_NONE
    )
    share: float = dynamic(
        schedules.Share(), "Share of the run that the network sees.", FRACTION
    )
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
        sizes = {"hidden_size": hidden_size, "memory_size": memory_size, "seed": seed}
        for name, value in sizes.items():
            least = int(name != "seed")
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(
                    f"{name} of OpenOptimiser must be a whole number, {least} or "
                    f"greater, got {value!r}."
                )
        params = make_params(hidden_size, memory_size, seed)
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
        except OSError as error:
            raise ConfigError(
                f"cannot read the weights of OPEN {str(path)!r}: {error}."
            ) from None
        except (TypeError, ValueError):
            raise ConfigError(
                f"cannot read the weights of OPEN {str(path)!r}: it is no .npy file of "
                "one vector of numbers, as the authors publish them."
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

        def init(params: Any) -> OpenState:
            flat = ravel_pytree(params)[0]
            return OpenState(
                count=jnp.zeros((), jnp.int32),
                momenta=jnp.zeros((len(DECAYS), *flat.shape), flat.dtype),
                memory=jnp.zeros((memory_size, *flat.shape), flat.dtype),
                seed=seed_of(flat) if self.noise else jnp.zeros((), jnp.uint32),
            )

        def update(
            updates: Any,
            state: Any,
            params: Any = None,
            *,
            activity: Any = None,
            epoch: Array | float = 0.0,
            moving: np.ndarray | None = None,
        ) -> Any:
            if params is None:
                raise ValueError("OpenOptimiser needs the parameters beside them.")
            layout = layout_of(updates)
            gradient, restore = ravel_pytree(updates)
            gradient = self._clipped(gradient, layout)
            decays = jnp.array(DECAYS)[:, None]
            momenta = decays * state.momenta + (1.0 - decays) * gradient[None]
            share = schedules.at(self.share, 0.0)
            active = dormancy(layout, activity, updates)
            features = features_of(ravel_pytree(params)[0], gradient, momenta, layout)
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
            state = OpenState(state.count + 1, momenta, memory, state.seed)
            return restore(-learning_rate * move), state

        return optax.GradientTransformationExtraArgs(init, update)

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

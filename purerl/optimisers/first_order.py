"""Optimisers that follow the gradient: `optimiser(learning_rate)`.

The call makes optax's transformation of these numbers, whose updates are added to the
parameters. It is made anew in every update, so that all numbers may be traced; what is
carried between updates is its state, whose structure the numbers do not change.

Clipping the gradient's norm is not theirs: that is `max_grad_norm` of the config.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
from flax import struct
from optax.contrib import MuonDimensionNumbers

from purerl.accelerator.kernels import traced_for_cpu
from purerl.config import DECAY, FRACTION, NON_NEGATIVE, POSITIVE, dynamic, static
from purerl.types import Array, PyTree


@struct.dataclass
class Adam:
    """Adam (Kingma and Ba 2015, arXiv:1412.6980, algorithm 1).

    Attributes:
        b1: Decay of the mean of gradients.
        b2: Decay of the mean of squared gradients.
        eps: Number that is added to the root of the second mean.
    """

    b1: float = dynamic(0.9, "Decay of the mean of gradients.", DECAY)
    b2: float = dynamic(0.999, "Decay of the mean of squared gradients.", DECAY)
    eps: float = dynamic(1e-8, "Number added to the root of the second.", POSITIVE)
    needs_layers: ClassVar[bool] = False

    def __call__(self, learning_rate: Array | float) -> optax.GradientTransformation:
        """Return the transformation with a step size, which may be traced."""
        scale: Any = optax.scale_by_learning_rate(learning_rate)  # type: ignore[arg-type]
        return optax.chain(*self.directions(), scale)

    def directions(self) -> tuple[optax.GradientTransformation, ...]:
        """Return what makes a step of a gradient, before the step size."""
        return (scale_by_adam(self.b1, self.b2, self.eps),)


@struct.dataclass
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv:1711.05101).

    Every step also takes `learning_rate * weight_decay` of each parameter away, of all
    of them: kernels, biases and the log standard deviation of a Gaussian.

    Attributes:
        b1: Decay of the mean of gradients.
        b2: Decay of the mean of squared gradients.
        eps: Number that is added to the root of the second mean.
        weight_decay: Share of a parameter that is taken away, per unit of step size.
    """

    weight_decay: float = dynamic(1e-4, "Share that is taken away.", NON_NEGATIVE)
    needs_layers: ClassVar[bool] = False

    def directions(self) -> tuple[optax.GradientTransformation, ...]:
        """Return Adam's direction, and the decay."""
        return *super().directions(), optax.add_decayed_weights(self.weight_decay)


@struct.dataclass
class SGD:
    """Gradient descent, with momentum (Polyak 1964; Nesterov's: Sutskever et al. 2013).

    Attributes:
        momentum: Decay of the sum of past gradients; 0 is plain descent.
        nesterov: Whether a step looks ahead along the momentum.
    """

    momentum: float = dynamic(0.0, "Decay of the sum of past gradients.", DECAY)
    nesterov: bool = static(False, "Look ahead along the momentum.")
    needs_layers: ClassVar[bool] = False

    def __call__(self, learning_rate: Array | float) -> optax.GradientTransformation:
        """Return the transformation with a step size, which may be traced."""
        return optax.sgd(learning_rate, self.momentum, self.nesterov)  # type: ignore[arg-type]


@struct.dataclass
class RMSProp:
    """The gradient over the root of its recent mean square (Hinton 2012, lecture 6e).

    Attributes:
        decay: Decay of the mean of squared gradients.
        eps: Number that is added to that mean, before the root is taken.
        centered: Whether the square of the mean gradient is taken off (Graves 2013), so
            that the variance divides.
    """

    decay: float = dynamic(0.9, "Decay of the mean of squared gradients.", DECAY)
    eps: float = dynamic(1e-8, "Number added to that mean, inside the root.", POSITIVE)
    centered: bool = static(False, "Divide by the root of the variance.")
    needs_layers: ClassVar[bool] = False

    def __call__(self, learning_rate: Array | float) -> optax.GradientTransformation:
        """Return the transformation with a step size, which may be traced."""
        return optax.rmsprop(
            learning_rate,  # type: ignore[arg-type]
            decay=self.decay,
            eps=self.eps,
            centered=self.centered,
        )


@struct.dataclass
class RAdam(Adam):
    """Rectified Adam (Liu et al. 2020, arXiv:1908.03265, algorithm 2).

    Adam whose first steps are not divided by a second moment that few samples have
    settled: momentum alone for five steps, then a rectified step size.

    Attributes:
        b1: Decay of the mean of gradients.
        b2: Decay of the mean of squared gradients.
        eps: Number that is added to the root of the second mean.
    """

    needs_layers: ClassVar[bool] = False

    def directions(self) -> tuple[optax.GradientTransformation, ...]:
        """Return the rectified direction."""
        return (scale_by_radam(self.b1, self.b2, self.eps),)


@struct.dataclass
class Lion:
    """The sign of a mean of gradients (Chen et al. 2023, arXiv:2302.06675).

    Every parameter moves by the whole step size in every step, so that step sizes three
    to ten times smaller than Adam's are usual.

    Attributes:
        b1: Share of the mean in what the sign is taken of.
        b2: Decay of the mean of gradients.
        weight_decay: Share of a parameter that is taken away, per unit of step size.
    """

    b1: float = dynamic(0.9, "Share of the mean, beside the new gradient.", FRACTION)
    b2: float = dynamic(0.99, "Decay of the mean of gradients.", DECAY)
    weight_decay: float = dynamic(0.0, "Share that is taken away.", NON_NEGATIVE)
    needs_layers: ClassVar[bool] = False

    def __call__(self, learning_rate: Array | float) -> optax.GradientTransformation:
        """Return the transformation with a step size, which may be traced."""
        return optax.lion(
            learning_rate,  # type: ignore[arg-type]
            b1=self.b1,
            b2=self.b2,
            weight_decay=self.weight_decay,
        )


@struct.dataclass
class Muon:
    """Momentum whose matrices are made orthogonal (Jordan et al. 2024).

    A kernel `[fan_in, fan_out]` moves by `U V^T` of its momentum `U S V^T`, which five
    iterations of Newton and Schulz approximate, times `sqrt(max(1, fan_out / fan_in))`.
    All kernels that are matrices move so, those of the first and the last layer too.
    What is no matrix (biases, a log standard deviation, the kernels of convolutions)
    moves by Adam, with the same step size and `eps`; with `nesterov`, by Nesterov's
    form of Adam (Dozat 2016). The source is
    https://kellerjordan.github.io/posts/muon.

    Attributes:
        momentum: Decay of the mean of gradients of matrices.
        b1: Adam's decay of the mean of gradients, for what is no matrix.
        b2: Adam's decay of the mean of squared gradients, for what is no matrix.
        eps: Number that is added where something is divided.
        weight_decay: Share of a matrix that is taken away, per unit of step size.
        nesterov: Whether a step looks ahead along the momentum.
        needs_layers: Muon gets a pytree of layers where others get one flat vector.
    """

    momentum: float = dynamic(0.95, "Decay of the mean of gradients.", DECAY)
    b1: float = dynamic(0.9, "Adam's first decay, for what is no matrix.", DECAY)
    b2: float = dynamic(0.999, "Adam's second decay, for what is no matrix.", DECAY)
    eps: float = dynamic(1e-8, "Number added where something is divided.", POSITIVE)
    weight_decay: float = dynamic(0.0, "Share that is taken away.", NON_NEGATIVE)
    nesterov: bool = static(True, "Look ahead along the momentum.")
    needs_layers: ClassVar[bool] = True

    def __call__(self, learning_rate: Array | float) -> optax.GradientTransformation:
        """Return the transformation with a step size, which may be traced."""
        return optax.contrib.muon(
            learning_rate,  # type: ignore[arg-type]
            beta=self.momentum,
            eps=self.eps,
            weight_decay=self.weight_decay,
            nesterov=self.nesterov,
            adam_b1=self.b1,
            adam_b2=self.b2,
            adam_eps_root=EPS_ROOT,
            muon_weight_dimension_numbers=_matrices,
        )


def _matrices(layers: PyTree) -> PyTree:
    """Mark the kernels that are matrices; biases may have two axes as well."""

    def mark(path: Any, leaf: Any) -> MuonDimensionNumbers | None:
        name = jax.tree_util.keystr(path[-1:], simple=True) if path else ""
        is_matrix = leaf.ndim == 2 and not name.endswith("bias")
        return MuonDimensionNumbers() if is_matrix else None

    return jax.tree_util.tree_map_with_path(mark, layers)


# Under the roots of Adam's family, which have no derivative at zero: a parameter that
# has never had a gradient, such as a frozen one or the weight of an input that was
# always zero, would turn every meta-gradient into NaN. The root of this number is
# 1e-18, which changes no bit of a step beside any `eps` that is used.
EPS_ROOT = 1e-36


def scale_by_adam(
    b1: Array | float, b2: Array | float, eps: Array | float
) -> optax.GradientTransformation:
    """Return `optax.scale_by_adam`, written for the platform that is traced for."""

    def shared(count: Array) -> Array:
        # Optax corrects the bias of each mean for itself, by a power that an
        # accelerator computes in a kernel of its own. Here one kernel has both.
        return 1 - jnp.stack([jnp.asarray(b1), jnp.asarray(b2)]) ** count

    def move(numbers: Array, mean: Array, square: Array) -> Array:
        first, second = numbers
        return mean / first / (jnp.sqrt(square / second + EPS_ROOT) + eps)

    plain = optax.scale_by_adam(b1, b2, eps, EPS_ROOT)  # type: ignore[arg-type]
    return plain if traced_for_cpu() else _in_few_kernels(plain, shared, move)


def scale_by_radam(
    b1: Array | float,
    b2: Array | float,
    eps: Array | float,
    *,
    by_optax: bool | None = None,
) -> optax.GradientTransformation:
    """Return `optax.scale_by_radam`, written for the platform that is traced for.

    Args:
        by_optax: Whether it is optax's own; that of the platform where not given.
    """

    def shared(count: Array) -> Array:
        # Element by element as one vector. Names are the paper's.
        beta = jnp.stack([jnp.asarray(x) for x in (b1, b2, b2, b2)])
        power = beta**count
        rho_max = 2 / (1 - beta) - 1
        rho = rho_max - 2 * count * power / (1 - power)
        is_settled = rho >= 5
        known = jnp.where(is_settled, rho, rho_max)  # else the root of less than 0
        ratio = (known - 4) * (known - 2) * rho_max
        ratio /= (rho_max - 4) * (rho_max - 2) * known
        rectified = jnp.where(is_settled, jnp.sqrt(ratio), 0)
        place = np.arange(4)
        factors = jnp.where(place == 2, rectified, 1.0 - is_settled)
        return jnp.where(place < 2, 1 - power, factors)

    def move(numbers: Array, mean: Array, square: Array) -> Array:
        first, second, factor, unscaled = numbers
        scale = factor / (jnp.sqrt(square / second + EPS_ROOT) + eps) + unscaled
        return mean / first * scale

    plain = optax.scale_by_radam(b1, b2, eps, EPS_ROOT)  # type: ignore[arg-type]
    by_optax = traced_for_cpu() if by_optax is None else by_optax
    return plain if by_optax else _in_few_kernels(plain, shared, move)


def _in_few_kernels(
    plain: optax.GradientTransformation,
    shared: Callable[[Array], Array],
    move: Callable[[Array, Array, Array], Array],
) -> optax.GradientTransformation:
    """Return a transformation of Adam's kind with one kernel for what leaves share."""

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        _, state = plain.update(updates, state, params)
        numbers = shared(state.count)

        def of_leaf(mean: Array, square: Array) -> Array:
            # After the powers, which would lose too much in fewer bits.
            return move(numbers.astype(mean.dtype), mean, square)

        return jax.tree.map(of_leaf, state.mu, state.nu), state

    return optax.GradientTransformation(plain.init, update)


def is_known(optimiser: object) -> bool:
    """Return whether an optimiser is one of this module, and no variant of the user's.

    These leave a parameter without a gradient where it is if it is zero, and their
    state is moments of the parameters' shapes and numbers.
    """
    return type(optimiser) in (Adam, AdamW, SGD, RMSProp, RAdam, Lion)


@struct.dataclass
class DifferentiableRAdam(RAdam):
    """RAdam, whose first steps have a derivative too.

    Those of optax compute the root of a negative number and do not use it, which turns
    every meta-gradient into NaN.
    """

    needs_layers: ClassVar[bool] = False

    def directions(self) -> tuple[optax.GradientTransformation, ...]:
        """Return the rectified direction."""
        return (scale_by_radam(self.b1, self.b2, self.eps, by_optax=False),)


@struct.dataclass
class DifferentiableMuon(Muon):
    """Muon, whose step has a derivative where a matrix has no gradient.

    The norm of zeros has none, so that those of matrices are larger by a number that no
    parameter notices.
    """

    needs_layers: ClassVar[bool] = True

    def __call__(self, learning_rate: Array | float) -> optax.GradientTransformation:
        """Return the transformation with a step size, which may be traced."""
        muon = super().__call__(learning_rate)

        def update(updates: Any, state: Any, params: Any = None) -> Any:
            more = EPS_ROOT**0.5
            seen = jax.tree.map(lambda x: x + more if x.ndim == 2 else x, updates)
            return muon.update(seen, state, params)

        return optax.GradientTransformation(muon.init, update)


def differentiable(optimiser: Any) -> Any:
    """Return an optimiser with the same steps, which all have a derivative."""
    classes = {RAdam: DifferentiableRAdam, Muon: DifferentiableMuon}
    if type(optimiser) in classes:
        return classes[type(optimiser)](**vars(optimiser))
    return optimiser

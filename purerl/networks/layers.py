"""Dense layers, activations, and a product for layers with many small batches."""

import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from purerl.accelerator import columns
from purerl.accelerator.kernels import traced_for_cpu
from purerl.networks.orthogonal import orthogonal
from purerl.types import Array, PyTree

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": nn.tanh,
    "relu": nn.relu,
    "elu": nn.elu,
    "gelu": nn.gelu,
    "swish": nn.swish,
    "leaky_relu": nn.leaky_relu,
    "selu": nn.selu,
}

# The most rows of a product that is written as sums: those of acting, not of learning.
MOST_ROWS = 64
# A larger layer's product is written as sums, too, where so few rows of so few agents
# act: on an H200 PPO on CartPole took 0.84 of the time with one agent and 0.94 with 64,
# but 1.04 with 1,024.
MOST_ACTING_ROWS, MOST_ACTING_UNITS, MOST_ACTING_AGENTS = 8, 64, 128
# Rows of a multiple of so many bytes share a few lines of a CPU's caches. With some
# zeros at the end of each, the gradient of a kernel of at most so many units, from at
# least so many rows, took 0.4 to 0.6 of the time.
ALIASED_BYTES, ALIASED_ZEROS = 4096, 16
MOST_ALIASED_UNITS, LEAST_ALIASED_ROWS = 128, 256
# A convolution of at most so many channels makes four outputs at once on a CPU, of more
# channels two: see `convolve`.
MOST_INPUTS_OF_FOUR = 16
# The prefix of the name under which a layer's activity is noted: `activity_Dense_0`.
ACTIVITY = "activity_"
COLLECTION = "intermediates"  # A collection of flax that no initialisation makes.


def note_activity(module: nn.Module, layer: str, x: Array) -> None:
    """Keep the mean absolute output `[N]` of each of a layer's units, where asked for.

    The units of a convolution are its channels, whose mean is over places too.

    It is asked for by `module.apply(..., mutable="intermediates")`. Otherwise nothing
    is computed, and programs are the same as without this call.

    Args:
        module: Module that the layer belongs to.
        layer: Name of the layer in the module, such as `Dense_0`.
        x: Outputs `[..., N]`, after the activation where the layer has one.
    """
    if module.is_mutable_collection(COLLECTION):
        mean = jnp.abs(x).reshape(-1, x.shape[-1]).mean(0)
        name = ACTIVITY + layer
        module.sow(COLLECTION, name, mean, lambda _, new: new, lambda: mean)


class Dense(nn.Module):
    """`x @ kernel + bias`: flax's layer of this name, which is traced in less time.

    At every call, flax's evaluates the shapes of its initial values again and compares;
    with an orthogonal initialiser that took a third of the time in which a program of
    PPO is traced. The parameters have the same names and shapes.

    Attributes:
        features: Units of the layer.
        scale: Gain of the orthogonal kernel at the start.
        dot_general: Product of inputs and kernel; `jax.lax.dot_general` if None.
        dtype: Type of the computation and the outputs; None takes that of the inputs,
            which is the parameters' float32.
    """

    features: int
    scale: float = 1.0
    dot_general: Any = None
    dtype: Any = None

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Outputs `[..., features]` of inputs `[..., I]`."""
        shape = (x.shape[-1], self.features)
        kernel, bias = _kernel_and_bias(self, shape)
        if self.dtype is not None:
            x, kernel, bias = (jnp.asarray(a, self.dtype) for a in (x, kernel, bias))
        if is_narrow(x, kernel):
            y = narrow_product(x, kernel)
        elif self.dot_general is None and is_of_acting(x, kernel):
            y = acting_product(x, kernel)
        elif self.dot_general is None and is_aliased(x, kernel):
            y = spaced_product(x, kernel)
        else:
            product = self.dot_general or jax.lax.dot_general
            y = product(x, kernel, (((x.ndim - 1,), (0,)), ((), ())))
        return y + along_last(bias, y.ndim)


class Conv(nn.Module):
    """A convolution of images: flax's layer of this name, see `convolve`.

    The parameters have the same names and shapes, and are read as in `Dense`.

    Attributes:
        features: Channels of the outputs.
        size: Height and width of the window.
        stride: Pixels from one window to the next.
        padding: `VALID` or `SAME`.
        scale: Gain of the orthogonal kernel at the start.
        dtype: Type of the computation and the outputs, as in `Dense`.
    """

    features: int
    size: int
    stride: int = 1
    padding: str = "SAME"
    scale: float = 1.0
    dtype: Any = None

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Outputs `[N, H', W', features]` of images `[N, H, W, channels]`."""
        shape = (self.size, self.size, x.shape[-1], self.features)
        kernel, bias = _kernel_and_bias(self, shape)
        if self.dtype is not None:
            x, kernel, bias = (jnp.asarray(a, self.dtype) for a in (x, kernel, bias))
        return convolve(x, kernel, bias, self.stride, self.padding)


def _kernel_and_bias(
    module: "Dense | Conv", shape: tuple[int, ...]
) -> tuple[Array, Array]:
    """The parameters of a layer, made where there are none yet."""
    if module.has_variable("params", "kernel"):
        return tuple(module.get_variable("params", x) for x in ("kernel", "bias"))
    kernel = module.param("kernel", orthogonal(module.scale), shape)
    return kernel, module.param("bias", nn.initializers.zeros, (module.features,))


def convolve(x: Array, kernel: Array, bias: Array, stride: int, padding: str) -> Array:
    """Return the convolution `[N, H', W', O]` of images and windows, and a bias.

    On a CPU it is one product of all windows with the kernel. XLA's own is slow there:
    the gradient of MinAtar's kernel took twelve times as long, and `vmap` over kernels
    makes a convolution in groups of it, which is slower yet
    (`experiments/benchmarks/convolution_speed.py`).

    A window of the product is as wide as those of several neighbouring outputs, whose
    kernels stand side by side with zeros around each. That multiplies more and copies
    less. The bias is one more row of the kernel, for an input of one: what follows is
    then computed pixel by pixel, whatever its shape.

    Args:
        x: `[N, H, W, I]` images.
        kernel: `[h, w, I, O]` kernel.
        bias: `[O]`.
        stride: Pixels from one window to the next.
        padding: `VALID` or `SAME`.
    """
    strides = (stride, stride)
    if not traced_for_cpu():
        y = jax.lax.conv_general_dilated(
            x, kernel, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return y + along_last(bias, 4)
    height, width, inputs, features = kernel.shape
    if padding == "SAME":
        ends = jax.lax.padtype_to_pads(x.shape[1:3], (height, width), strides, padding)
        x = jnp.pad(x, ((0, 0), *ends, (0, 0)))
    outputs = (x.shape[2] - width) // stride + 1
    most = 4 if inputs <= MOST_INPUTS_OF_FOUR else 2
    several = math.gcd(outputs, most)
    reach = width + stride * (several - 1)

    def windows(x: Array, axis: int, size: int, step: int) -> Array:
        """The pixels of each window along an axis, side by side as channels."""
        end = step * ((x.shape[axis] - size) // step) + 1
        parts = [
            jax.lax.slice_in_dim(x, start, start + end, step, axis)
            for start in range(size)
        ]
        return jnp.concatenate(parts, -1)

    x = windows(windows(x, 2, reach, stride * several), 1, height, stride)
    x = jnp.concatenate([x, jnp.ones((*x.shape[:3], 1), x.dtype)], -1)
    shifts = [(stride * n, stride * (several - 1 - n)) for n in range(several)]
    kernels = [jnp.pad(kernel, ((0, 0), each, (0, 0), (0, 0))) for each in shifts]
    rows = jnp.stack(kernels, 3).reshape(-1, several * features)
    rows = jnp.concatenate([rows, jnp.tile(bias, several)[None]])
    y = x.reshape(-1, x.shape[-1]) @ rows
    return y.reshape(*x.shape[:2], outputs, features)


def along_last(vector: Array, ndim: int) -> Array:
    """Return a vector as an array of `ndim` axes, of which all but the last have 1."""
    return vector.reshape((1,) * (ndim - 1) + (-1,))


def layer_norm(dtype: Any = None) -> nn.LayerNorm:
    """Return flax's layer normalisation (Ba et al. 2016), of the last axis.

    On an accelerator the variance is the mean square of what is left after the mean is
    taken off: a compiler makes one kernel of that, with what stands before and after
    it. On a CPU it is the mean square less the square of the mean, which is one pass.

    Args:
        dtype: Type of the computation and the outputs; None takes that of the inputs.
    """
    return nn.LayerNorm(dtype=dtype, use_fast_variance=traced_for_cpu())


def is_narrow(x: Array, kernel: Array) -> bool:
    """Return whether a product is written as sums, for an accelerator.

    A product of few rows with few inputs or outputs, as when a policy acts, has little
    to multiply: as sums it is one kernel with the bias and the activation after it.

    Args:
        x: `[..., I]` inputs.
        kernel: `[I, O]` kernel of the layer.
    """
    lead = x.shape[:-1]
    # An exported program may have a batch of any size.
    if traced_for_cpu() or not all(isinstance(size, int) for size in lead):
        return False
    is_small = 0 < min(kernel.shape) <= columns.MOST
    return is_small and np.prod(lead, dtype=int) <= MOST_ROWS


def is_aliased(x: Array, kernel: Array) -> bool:
    """Return whether a product is one of `spaced_product`, on a CPU.

    Args:
        x: `[..., I]` inputs.
        kernel: `[I, O]` kernel of the layer.
    """
    lead = x.shape[:-1]
    if not traced_for_cpu() or not all(isinstance(size, int) for size in lead):
        return False
    if x.shape[-1] * x.dtype.itemsize % ALIASED_BYTES:
        return False
    return (
        kernel.shape[1] <= MOST_ALIASED_UNITS and math.prod(lead) >= LEAST_ALIASED_ROWS
    )


@jax.custom_jvp
def spaced_product(x: Array, kernel: Array) -> Array:
    """Return `x @ kernel`, whose gradient of the kernel reads rows that zeros part.

    Args:
        x: `[..., I]` inputs.
        kernel: `[I, O]` kernel of the layer.
    """
    return x @ kernel


def _spaced_slope(slope: Array, _: Array, x: Array, kernel: Array) -> Array:
    spaced = jnp.pad(x, (*((0, 0),) * (x.ndim - 1), (0, ALIASED_ZEROS)))
    return spaced @ jnp.pad(slope, ((0, ALIASED_ZEROS), (0, 0)))


spaced_product.defjvps(lambda slope, _, x, kernel: slope @ kernel, _spaced_slope)


def narrow_product(x: Array, kernel: Array) -> Array:
    """Return `x @ kernel` as sums of few terms, or as few sums; see `is_narrow`.

    Args:
        x: `[..., I]` inputs.
        kernel: `[I, O]` kernel of the layer.
    """
    lead = (1,) * (x.ndim - 1)
    if kernel.shape[0] <= columns.MOST:
        rows = [kernel[index].reshape(*lead, -1) for index in range(kernel.shape[0])]
        terms = [x[..., index, None] * row for index, row in enumerate(rows)]
        return reduce(jnp.add, terms)
    return (x[..., None, :] * kernel.T.reshape(*lead, *kernel.T.shape)).sum(-1)


def is_of_acting(x: Array, kernel: Array) -> bool:
    """Return whether a product is one of `acting_product`, on an accelerator.

    Args:
        x: `[..., I]` inputs.
        kernel: `[I, O]` kernel of the layer.
    """
    if traced_for_cpu() or x.ndim != 2 or not isinstance(x.shape[0], int):
        return False
    is_real = x.dtype == kernel.dtype and jnp.issubdtype(x.dtype, jnp.floating)
    is_small = x.shape[0] <= MOST_ACTING_ROWS and max(kernel.shape) <= MOST_ACTING_UNITS
    return is_real and is_small


@jax.custom_jvp
def acting_product(x: Array, kernel: Array) -> Array:
    """Return `x @ kernel`: as sums for one agent and for a few of them under `vmap`.

    A product of four rows has less to multiply than a kernel for products has to begin
    with. Many agents, each with a kernel of its own, are products again. Derivatives
    are those of a product.

    Args:
        x: `[N, I]` inputs of an agent.
        kernel: `[I, O]` kernel of its layer.
    """
    return _by_width(x, kernel)


acting_product.defjvps(
    lambda slope, _, x, kernel: slope @ kernel,
    lambda slope, _, x, kernel: x @ slope,
)


@custom_vmap
def _by_width(x: Array, kernel: Array) -> Array:
    """Multiply as sums, or as products where `vmap` gave many agents a kernel each.

    Args:
        x: `[*agents, N, I]` inputs.
        kernel: `[*agents, I, O]` kernels.
    """
    if math.prod(kernel.shape[:-2]) > MOST_ACTING_AGENTS:
        return x @ kernel
    product = narrow_product
    for _ in kernel.shape[:-2]:
        product = jax.vmap(product)
    return product(x, kernel)


@_by_width.def_vmap
def _by_width_of_more(
    axis_size: int, is_mapped: tuple[bool, bool], x: Array, kernel: Array
) -> tuple[Array, bool]:
    """Multiply what an axis more of `vmap` has: its agents count with the others."""
    if all(is_mapped):
        return _by_width(x, kernel), True
    # One network for many inputs, or one input for many: a product of all of them.
    axes = tuple(0 if each else None for each in is_mapped)
    return jax.vmap(jnp.matmul, axes)(x, kernel), True


class Features(nn.Module):
    """A stand-in for a torso whose features are there already: returns its input."""

    def __call__(self, features: Array) -> Array:
        """Features as they are."""
        return features


@jax.custom_vjp
def _product(x: Array, kernel: Array) -> Array:
    return x @ kernel


def _product_forward(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ kernel, (x, kernel)


def _product_backward(
    saved: tuple[Array, Array], gradient: Array
) -> tuple[Array, Array]:
    def plain(x: Array, kernel: Array, gradient: Array) -> tuple[Array, Array]:
        return gradient @ kernel.T, x.T @ gradient

    def copied(x: Array, kernel: Array, gradient: Array) -> tuple[Array, Array]:
        # Without the barrier the compiler folds the transpositions into the products.
        x_t, kernel_t = jax.lax.optimization_barrier((x.T, kernel.T))
        return gradient @ kernel_t, x_t @ gradient

    return jax.lax.platform_dependent(*saved, gradient, cpu=copied, default=plain)


_product.defvjp(_product_forward, _product_backward)


def small_product(
    x: Array, kernel: Array, dimension_numbers: Any, **options: Any
) -> Array:
    """Multiply as `dot_general` for a dense layer with many small batches.

    The gradients of a product are products with transposed factors. For some tens of
    rows a CPU is faster when XLA copies these into place first; for hundreds it makes
    no difference, and other devices never copy.

    Args:
        x: `[N, I]`; other ranks take the plain product.
        kernel: `[I, O]` kernel of the layer.
        dimension_numbers: Axes of the product, as in `jax.lax.dot_general`.
        options: Keywords of `jax.lax.dot_general`.
    """
    if x.ndim != 2:
        return jax.lax.dot_general(x, kernel, dimension_numbers, **options)
    return _product(x, kernel)


# The collection of flax in which a batch leaves the new statistics.
STATISTICS_COLLECTION = "statistics"
# Names of the parameters that are running statistics.
STATISTICS = ("running_mean", "running_var", "running_steps")
# The bounds of the correction after the warm-up are those of Ioffe (2017).
LARGEST_SCALE, LARGEST_SHIFT = 3.0, 5.0


class BatchRenorm(nn.Module):
    """Batch renormalisation (Ioffe 2017, arXiv:1702.03275).

    In training a feature of the batch becomes, with its mean `m` and deviation `s`
    there, running ones `M` and `S`, and a learned scale and bias,

        scale ((x - m) / s * r + d) + bias,
        r = clip(s / S, 1/3, 3),    d = clip((m - M) / S, -5, 5),

    where no gradient goes through `r` and `d`. For the first `warm_up_steps` batches
    `r = 1` and `d = 0`, which is batch normalisation (Ioffe and Szegedy 2015). In
    acting it is `scale (x - M) / S + bias`.

    Attributes:
        momentum: Share of the running statistics that a batch leaves.
        eps: Number that is added to variances.
        warm_up_steps: Number of batches before the correction begins.
    """

    momentum: float = 0.99
    eps: float = 1e-3
    warm_up_steps: int = 100_000

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Normalised features `[..., F]`; all leading axes are the batch."""
        x = x.astype(jnp.float32)
        ones, zeros = nn.initializers.ones, nn.initializers.zeros
        shape = (x.shape[-1],)
        scale = self.param("scale", ones, shape)
        bias = self.param("bias", zeros, shape)
        running_mean = jax.lax.stop_gradient(self.param("running_mean", zeros, shape))
        running_var = jax.lax.stop_gradient(self.param("running_var", ones, shape))
        steps = jax.lax.stop_gradient(self.param("running_steps", zeros, ()))
        deviation = jnp.sqrt(running_var + self.eps)

        if (
            not self.is_mutable_collection(STATISTICS_COLLECTION)
            or self.is_initializing()
        ):
            normal = (x - _like(running_mean, x)) / _like(deviation, x)
            return normal * _like(scale, x) + _like(bias, x)

        rows = x.reshape(-1, x.shape[-1])
        mean, var = rows.mean(0), rows.var(0)
        found = jnp.sqrt(var + self.eps)
        is_warm = steps >= self.warm_up_steps
        r = jnp.clip(found / deviation, 1.0 / LARGEST_SCALE, LARGEST_SCALE)
        d = jnp.clip((mean - running_mean) / deviation, -LARGEST_SHIFT, LARGEST_SHIFT)
        r = jax.lax.stop_gradient(jnp.where(is_warm, r, 1.0))
        d = jax.lax.stop_gradient(jnp.where(is_warm, d, 0.0))
        normal = (x - _like(mean, x)) / _like(found, x) * _like(r, x) + _like(d, x)

        left = self.momentum
        new = {
            "running_mean": left * running_mean + (1.0 - left) * mean,
            "running_var": left * running_var + (1.0 - left) * var,
            "running_steps": steps + 1.0,
        }
        for name, value in new.items():
            self.put_variable(STATISTICS_COLLECTION, name, jax.lax.stop_gradient(value))
        return normal * _like(scale, x) + _like(bias, x)


def _like(values: Array, x: Array) -> Array:
    return jnp.broadcast_to(values, x.shape)


def forward(module: nn.Module, params: PyTree, *inputs: Any) -> tuple[Any, PyTree]:
    """Apply a network in training: batches are normalised by their own statistics.

    Args:
        module: Network with `BatchRenorm` layers.
        params: Parameters of the network.
        *inputs: Inputs of the network; all leading axes are the batch.

    Returns:
        The outputs, and the new running statistics for `put_statistics`.
    """
    outputs, new = module.apply(params, *inputs, mutable=[STATISTICS_COLLECTION])
    return outputs, new[STATISTICS_COLLECTION]


def put_statistics(params: PyTree, statistics: PyTree) -> PyTree:
    """Return the parameters of a network with new running statistics.

    Args:
        params: Parameters `{"params": ...}`.
        statistics: Running statistics that `forward` returned.
    """
    return {**params, "params": _put(params["params"], statistics)}


def _put(params: Any, new: Any) -> Any:
    if not isinstance(new, Mapping):
        return new
    return {
        name: _put(value, new[name]) if name in new else value
        for name, value in params.items()
    }

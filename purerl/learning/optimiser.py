"""Optimisers, rebuilt from numbers inside every step so that a state holds arrays only.

Their state has the same structure whatever the numbers, which may be traced.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from purerl.types import Array, PyTree


class ClipState(NamedTuple):
    """The norm of the last gradient, before clipping, float32 `[]`."""

    grad_norm: Array


def adam(
    learning_rate: Array | float,
    *,
    max_grad_norm: Array | float | None = None,
    eps: Array | float = 1e-5,
) -> optax.GradientTransformation:
    """Make Adam after clipping by the *global* norm (`optax.clip` is elementwise).

    Give it one flat vector (`flatten`): a dozen small layers are a dozen small kernels
    for each of its operations.

    Args:
        learning_rate: Step size, may be traced.
        max_grad_norm: Largest Euclidean norm of the whole gradient, may be traced;
            without one nothing is clipped.
        eps: 1e-5 as in OpenAI Baselines' PPO2; Adam's own default is 1e-8.
    """
    return optax.chain(
        clip_by_global_norm(max_grad_norm),
        optax.adam(learning_rate, eps=eps),  # type: ignore[arg-type]
    )


def radam(
    learning_rate: Array | float, *, max_grad_norm: Array | float, eps: float = 1e-8
) -> optax.GradientTransformation:
    """Make rectified Adam (Liu et al. 2020) after clipping by the global norm.

    Adam whose first steps are not divided by a second moment that few samples have
    settled: momentum alone for five steps, then a rectified step size.

    Args:
        learning_rate: Step size, may be traced.
        max_grad_norm: Largest Euclidean norm of the whole gradient, may be traced.
        eps: Number that is added to the root of the second moment.
    """
    return optax.chain(
        clip_by_global_norm(max_grad_norm),
        optax.radam(learning_rate, eps=eps),  # type: ignore[arg-type]
    )


def flatten(params: PyTree) -> tuple[Array, Callable[[Array], PyTree]]:
    """Flatten parameters into one vector; return it and the way back.

    The way back is differentiable, and its gradient is one concatenation; the plain
    one of `ravel_pytree` pads every layer's gradient to the whole length and adds.

    Args:
        params: Pytree of float leaves.

    Returns:
        `(flat [P], restore)` with `restore(flat) == params`.
    """
    flat, unravel = ravel_pytree(params)

    @jax.custom_vjp
    def restore(flat: Array) -> PyTree:
        return unravel(flat)

    def forward(flat: Array) -> tuple[PyTree, None]:
        return unravel(flat), None

    def backward(_: None, gradient: PyTree) -> tuple[Array]:
        return (ravel_pytree(gradient)[0],)

    restore.defvjp(forward, backward)
    return flat, restore


def clip_by_global_norm(
    max_norm: Array | float | None,
) -> optax.GradientTransformation:
    """Scale a gradient longer than `max_norm` down to it, and remember its norm.

    `optax.clip_by_global_norm` that keeps the norm, which would else be computed twice.
    """

    def init(params: Any) -> ClipState:
        del params
        return ClipState(jnp.zeros(()))

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        del state, params
        norm = optax.tree.norm(updates)
        if max_norm is None:
            return updates, ClipState(norm)
        # The larger of the two divides: no 0 / 0 where the gradient vanishes.
        scale = max_norm / jnp.maximum(norm, max_norm)
        return optax.tree.scale(scale, updates), ClipState(norm)

    return optax.GradientTransformation(init, update)


def grad_norm(opt_state: Any) -> Array:
    """Return the norm of the last gradient, before clipping."""
    return opt_state[0].grad_norm


def polyak(target: PyTree, online: PyTree, tau: Array | float) -> PyTree:
    """Move the target towards the online parameters: `target + tau (online - target)`.

    Args:
        target: Parameters of the target network.
        online: Parameters of the online network, of the same structure.
        tau: Share of the online ones in the result: 0.005 makes a slow target, 1 a
            copy, 0 no change (each exactly).
    """
    return jax.tree.map(lambda t, o: (1.0 - tau) * t + tau * o, target, online)


def annealed(value: Array | float, update: Array, num_updates: int) -> Array:
    """Decay linearly to zero over a run, `value * (1 - update / U)`; zero after it.

    Args:
        value: The value at update 0.
        update: `[]` int, number of updates done.
        num_updates: Number of updates of the whole run.
    """
    return value * jnp.maximum(0.0, 1.0 - update / num_updates)

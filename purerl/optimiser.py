"""Optimisers, rebuilt from numbers inside every step so that a state holds arrays only.

Their state has the same structure whatever the numbers, which may be traced.
"""

import optax

from purerl.types import Array


def adam(
    learning_rate: Array | float, *, max_grad_norm: Array | float, eps: float = 1e-5
) -> optax.GradientTransformation:
    """Adam after clipping by the *global* norm (not elementwise, as `optax.clip` is).

    Args:
        learning_rate: step size, may be traced.
        max_grad_norm: largest Euclidean norm of the whole gradient, may be traced.
        eps: 1e-5 as in OpenAI Baselines' PPO2; Adam's own default is 1e-8.
    """
    return optax.chain(
        optax.clip_by_global_norm(max_grad_norm),  # type: ignore[arg-type]
        optax.adam(learning_rate, eps=eps),  # type: ignore[arg-type]
    )


def annealed(value: Array | float, update: Array, num_updates: int) -> Array:
    """Linear decay to zero over a run: `value * (1 - update / num_updates)`.

    Args:
        value: the value at update 0.
        update: int `[]`, updates done.
        num_updates: updates of the whole run.
    """
    return value * (1.0 - update / num_updates)

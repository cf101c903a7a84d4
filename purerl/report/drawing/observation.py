"""The drawing of environments that have nothing to show but their observation."""

from typing import Any

import numpy as np

from purerl.report.drawing import canvas as c
from purerl.report.drawing.canvas import Canvas
from purerl.report.sweep_data import label

MOST = 24  # Numbers that have a bar each.
NAMED = 6  # Of more numbers than these none is written under its bar.
_LEFT, _RIGHT, _TOP, _BOTTOM = 24, 16, 34, 30


def bars(state: Any, params: Any, *, title: str = "observation") -> np.ndarray:
    """Draw an observation as bars: what the agent sees, number by number.

    A bar is full at the largest size of a number that is shown, or at 1 if that is
    larger. Of more than `MOST` numbers the first ones are drawn.

    Args:
        state: Observation: an array, or a pytree of arrays, in the order of its parts.
        params: Numbers of the environment, which the picture does not use.
        title: Name of the numbers, written above them.
    """
    import jax

    del params
    parts = [np.asarray(leaf, float).ravel() for leaf in jax.tree.leaves(state)]
    numbers = np.concatenate(parts)
    shown = np.nan_to_num(numbers[:MOST])
    canvas = Canvas((c.WIDTH / 2, -c.HEIGHT / 2), (c.WIDTH, c.HEIGHT))
    more = f", the first {MOST} of {len(numbers):,}" if len(numbers) > MOST else ""
    canvas.text((_LEFT, -16), f"{title}{more}", c.DARK, 12)
    largest = max(1.0, float(np.abs(shown).max(initial=0.0)))
    middle = (_TOP + c.HEIGHT - _BOTTOM) / 2
    reach = (c.HEIGHT - _BOTTOM - _TOP) / 2
    width = (c.WIDTH - _LEFT - _RIGHT) / max(len(shown), 1)
    for index, number in enumerate(shown):
        left = _LEFT + index * width
        inside = (left + 0.12 * width, left + 0.88 * width)
        canvas.box((inside[0], -middle - reach), (inside[1], -middle + reach), c.SOFT)
        tall = reach * float(number) / largest
        low, high = sorted((-middle, -middle + tall))
        canvas.box(
            (inside[0], low), (inside[1], high), c.BLUE if tall > 0 else c.ORANGE
        )
        if len(shown) <= NAMED:
            at = (left + width / 2, -c.HEIGHT + _BOTTOM / 2)
            canvas.text(at, label(float(number)), c.DARK, 10, "mm")
    canvas.line([(_LEFT, -middle), (c.WIDTH - _RIGHT, -middle)], c.DARK, 1)
    return canvas.pixels()

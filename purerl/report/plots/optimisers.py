"""Pictures of learned optimisers: the step that they make of Adam's."""

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from purerl.config import ConfigError
from purerl.learning.two_hot import signed_log
from purerl.optimisers import LearnedOptimiser
from purerl.optimisers.learned import DECAYS
from purerl.report.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARES = {0.0: "At the beginning", 0.5: "Half way", 1.0: "At the end"}
LAYERS = {0.0: "kernel of the first layer", 1.0: "kernel of the last layer"}
_POINTS = 201
_LIMIT = 1.5  # The largest step of Adam drawn, in units of the step size.


def optimiser_figure(optimiser: Any) -> "Figure":
    """Draw a learned optimiser's step over Adam's, at three moments of a run.

    It is drawn for a gradient that has been the same for long, so that all momenta
    agree, of typical size, and for a parameter that is zero.

    Args:
        optimiser: The optimiser, a `LearnedOptimiser`.

    Raises:
        ConfigError: it is of another kind, which has nothing to draw.
    """
    if not isinstance(optimiser, LearnedOptimiser):
        raise ConfigError(
            f"{type(optimiser).__name__} is no LearnedOptimiser, whose step is drawn."
        )
    adam = np.linspace(-_LIMIT, _LIMIT, _POINTS, dtype=np.float32)
    figure = style.new_figure(height=3.6)
    panels = figure.subplots(1, len(SHARES), sharey=True)
    for axes, (share, words) in zip(panels, SHARES.items(), strict=True):
        for (depth, name), colour in zip(LAYERS.items(), style.COLOURS, strict=False):
            step = step_of(optimiser, adam, share, depth)
            axes.plot(adam, step, color=colour, label=name, linewidth=1.8)
        axes.plot(adam, adam, "--", color=style.INK, label="Adam", linewidth=1.0)
        axes.axhline(0.0, color=style.INK, linewidth=0.6, alpha=0.5)
        axes.axvline(0.0, color=style.INK, linewidth=0.6, alpha=0.5)
        style.finish(axes, words, "Adam's step / step size")
    panels[0].set_ylabel("step / step size")
    panels[0].legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def step_of(
    optimiser: LearnedOptimiser, adam: np.ndarray, share: float, depth: float
) -> np.ndarray:
    """Return steps `[N]` of a kernel's parameters, in units of the step size.

    Args:
        optimiser: The optimiser.
        adam: Adam's steps `[N]`, in units of the step size.
        share: Share of the run that is over.
        depth: Place of the layer in its network, from 0 to 1.
    """
    ratios = signed_log(jnp.asarray(adam))
    others = jnp.array([0.0, 0.0, share, depth, 1.0])[:, None]
    features = jnp.concatenate(
        [
            jnp.broadcast_to(ratios, (2 + len(DECAYS), ratios.size)),
            jnp.broadcast_to(others, (len(others), ratios.size)),
        ]
    )
    return np.asarray(optimiser.direction(jnp.asarray(adam), features))

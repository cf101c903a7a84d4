"""Pictures of what was learned: value losses, drifts, optimisers."""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl import schedules
from purerl.config import ConfigError
from purerl.learning.small_networks import signed_log
from purerl.losses import ClipDrift, DPODrift, SquaredError
from purerl.optimisers import LearnedOptimiser
from purerl.optimisers.learned import DECAYS
from purerl.report.plots import style
from purerl.report.plots.style import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 201
ERROR = 10.0  # The largest error at which a value loss is drawn.
ADVANTAGES = (2.0, 1.0, -1.0, -2.0)
SHARES = {0.0: "At the beginning", 0.5: "Half way", 1.0: "At the end"}
LAYERS = {0.0: "kernel of the first layer", 1.0: "kernel of the last layer"}
LOOKS: list[dict[str, Any]] = [
    {"color": colour, "linestyle": dash}
    for colour, dash in zip(style.COLOURS, ("-", "--", "-."), strict=False)
]
LIMIT = 1.5  # The largest step of Adam drawn, in units of the step size.


def loss_figure(loss: Any, ax: Any = None) -> Picture:
    """Draw a loss of either kind; one that moves as it is half-way through a run.

    Args:
        loss: A drift or a value loss.
        ax: Axes to draw into, as `drift_figure` or `value_loss_figure` takes them.

    Raises:
        ConfigError: it is neither a drift nor a value loss.
    """
    loss = schedules.at(loss, 0.5)
    sample = jax.ShapeDtypeStruct((3,), jnp.float32)
    for number, draw in ((2, drift_figure), (3, value_loss_figure)):
        try:
            jax.eval_shape(loss, *[sample] * number)
        except TypeError:
            continue
        return draw(loss, ax)
    raise ConfigError(f"{loss!r} is no loss of 2 (drift) or 3 (value) arrays [N].")


def value_loss_figure(loss: Any, ax: Any = None) -> Picture:
    """Draw a value loss and its slope over the error, beside the squared error.

    A constant in a loss does not matter, so both are drawn from their value at zero
    error. The squared error is scaled to the same mean slope, because the optimiser
    sees to the step size: what is compared is the shape.

    Args:
        loss: The value loss, `loss(value, target, old_value)`, of which the target is 0
            here.
        ax: Two axes to draw into: of the loss and of its slope.
    """
    errors = jnp.linspace(-ERROR, ERROR, POINTS)
    learned, other = curve(loss, errors), curve(SquaredError(), errors)
    scale = np.abs(learned[1]).mean() / np.abs(other[1]).mean()
    drawn = {"learned": learned}
    drawn["squared error, scaled"] = scale * other[0], scale * other[1]
    words = {"Value loss": "loss, from zero error", "Its gradient": "d loss / d value"}
    panels = style.panel_grid(2, ax, width=4.5, height=3.8, head=0)
    for place, (axes, title) in enumerate(zip(panels, words, strict=True)):
        for (name, curves), look in zip(drawn.items(), LOOKS, strict=False):
            axes.plot(errors, curves[place], label=name, linewidth=1.8, **look)
        _cross(axes, across=place == 1)
        axes.set_xlim(-ERROR, ERROR)
        style.finish(axes, title, "value - target", words[title])
    panels[0].legend(frameon=False, fontsize="small")
    return style.picture(panels, "", ax)


def curve(loss: Any, errors: Any, target: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Return a value loss over errors, from that at zero error, and its slopes.

    Args:
        loss: Value loss, `(value, target, old_value) -> [N]`.
        errors: Values minus targets, `[N]`.
        target: Target at which the loss is looked at.
    """
    targets = jnp.full_like(errors, target)

    def at(errors: Any) -> Any:
        return loss(targets + errors, targets, targets)

    value = at(errors) - at(jnp.zeros_like(errors))
    slope = jax.grad(lambda e: at(e).sum())(errors)
    return np.asarray(value), np.asarray(slope)


def drift_figure(drift: Any, ax: Any = None) -> Picture:
    """Draw a drift over ratio and advantage, and what is left of the objective.

    Above, the slope `d (r A - drift) / d r` of the objective, which the policy
    maximises, at four advantages. Where it is zero, the policy is held. Below, the
    drift as a map beside those of PPO and DPO on one colour scale.

    Args:
        drift: The drift, `drift(log_ratio, advantage)`.
        ax: Seven axes to draw into: of the slopes, and of the maps.
    """
    named = {"learned": drift, "PPO": ClipDrift(0.2), "DPO": DPODrift()}
    ratios = jnp.linspace(0.5, 1.75, POINTS)
    advantages = jnp.linspace(-3.0, 3.0, POINTS)
    number = len(ADVANTAGES) + len(named)
    panels = style.panel_grid(number, ax, columns=4, width=2.6, height=2.9, head=0)
    slopes, maps = panels[: len(ADVANTAGES)], panels[len(ADVANTAGES) :]
    for axes, advantage in zip(slopes, ADVANTAGES, strict=True):
        for (name, shown), look in zip(named.items(), LOOKS, strict=True):
            slope = objective_slope(shown, ratios, advantage)
            axes.plot(ratios, slope, label=name, linewidth=1.6, **look)
        _cross(axes, 1.0)
        style.finish(axes, f"A = {advantage:+g}", "ratio")
    slopes[0].set_ylabel("slope of the objective")
    slopes[0].legend(frameon=False, fontsize="small")
    values = [drift_map(shown, ratios, advantages) for shown in named.values()]
    # The scale is that of the hand-written drifts, so that a wild learned drift
    # saturates.
    most = max(float(np.quantile(of, 0.98)) for of in values[1:])
    image, look = None, {"cmap": style.COLOUR_MAP, "vmin": 0.0, "vmax": most}
    for axes, name, of in zip(maps, named, values, strict=True):
        image = axes.pcolormesh(ratios, advantages, of, rasterized=True, **look)
        axes.axvline(1.0, color="white", linewidth=0.6, alpha=0.7)
        style.finish(axes, f"Drift: {name}", "ratio", "advantage")
        axes.grid(visible=False)
    style.colour_bar(image, maps, "", extend="max", pad=0.01)
    return style.picture(panels, "", ax)


def drift_map(drift: Any, ratios: Any, advantages: Any) -> np.ndarray:
    """Return a drift `[A, R]` over advantages and ratios.

    Args:
        drift: Function `(log_ratio, advantage)`.
        ratios: Probability ratios, `[R]`.
        advantages: Advantages, `[A]`.
    """
    r, a = jnp.meshgrid(ratios, advantages)
    values = drift(jnp.log(r).ravel(), a.ravel())
    return np.asarray(values).reshape(r.shape)


def objective_slope(drift: Any, ratios: Any, advantage: float) -> np.ndarray:
    """Return `d (r A - drift(r, A)) / d r`, `[R]`.

    Args:
        drift: Function `(log_ratio, advantage)`.
        ratios: Probability ratios, `[R]`.
        advantage: Advantage of the action.
    """
    a = jnp.full_like(ratios, advantage)

    def objective(r: Any) -> Any:
        return (r * a - drift(jnp.log(r), a)).sum()

    return np.asarray(jax.grad(objective)(ratios))


def _cross(axes: "Axes", x: float = 0.0, *, across: bool = True) -> None:
    """Faint lines through a point and, if `across`, through zero."""
    look = {"color": style.INK, "linewidth": 0.6, "alpha": 0.5}
    axes.axvline(x, **look)
    if across:
        axes.axhline(0.0, **look)


def optimiser_figure(optimiser: Any, ax: Any = None) -> Picture:
    """Draw a learned optimiser's step over Adam's, at three moments of a run.

    It is drawn for a gradient that has been the same for long, so that all momenta
    agree, of typical size, and for a parameter that is zero.

    Args:
        optimiser: The optimiser, a `LearnedOptimiser`.
        ax: Three axes to draw into, one for each moment.

    Raises:
        ConfigError: it is of another kind, which has nothing to draw.
    """
    if not isinstance(optimiser, LearnedOptimiser):
        raise ConfigError(f"{type(optimiser).__name__} is no LearnedOptimiser.")
    adam = np.linspace(-LIMIT, LIMIT, POINTS, dtype=np.float32)
    panels = style.panel_grid(len(SHARES), ax, height=3.6, head=0, sharey=True)
    for axes, (share, words) in zip(panels, SHARES.items(), strict=True):
        for (depth, name), colour in zip(LAYERS.items(), style.COLOURS, strict=False):
            step = step_of(optimiser, adam, share, depth)
            axes.plot(adam, step, color=colour, label=name, linewidth=1.8)
        axes.plot(adam, adam, "--", color=style.INK, label="Adam", linewidth=1.0)
        _cross(axes)
        style.finish(axes, words, "Adam's step / step size")
    panels[0].set_ylabel("step / step size")
    panels[0].legend(frameon=False, fontsize="small", loc="upper left")
    return style.picture(panels, "", ax)


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
    momenta = jnp.tile(signed_log(jnp.asarray(adam)), (2 + len(DECAYS), 1))
    others = jnp.array([0.0, 0.0, share, depth, 1.0])[:, None]
    features = jnp.concatenate([momenta, jnp.tile(others, (1, adam.size))])
    return np.asarray(optimiser.direction(jnp.asarray(adam), features))

"""Pictures of searches: populations, halving, studies, and what evolutions learned."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl import schedules
from purerl.config import ConfigError
from purerl.execution.format import with_noun
from purerl.learning.small_networks import signed_log
from purerl.losses import ClipDrift, DPODrift, SquaredError
from purerl.optimisers import LearnedOptimiser
from purerl.optimisers.learned import DECAYS
from purerl.report import style
from purerl.report.style import Axis, Picture
from purerl.report.sweep_data import short

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes


BLUE, RED = style.COLOURS[:2]
CELLS = 160  # A contour has so many cells along each side.
# The standard deviation of the Gaussian that smooths a contour, as a share of an axis.
BANDWIDTH = 0.15

Trial = Any  # A `purerl.tuning.result.Row`, or what has the same attributes.
FAINT: dict[str, Any] = {"color": BLUE, "alpha": style.FAINT, "lw": 1}
# Up to three panels in a row.
_panels = partial(style.panel_grid, height=2.9, head=0.5, least=5.2, sharey=True)


def _by_search(
    dataset: "xr.Dataset", draw: Callable[["Axes", Any, np.ndarray, int], Any], ax: Any
) -> Picture:
    """Draw each search in a panel: `draw(axes, updates, scores, seed)`."""
    seeds, updates = dataset["seed"].values.tolist(), dataset["updates"].values
    panels = _panels(len(seeds), ax)
    for seed, axes in zip(seeds, panels, strict=True):
        draw(axes, updates, dataset["score"].sel(seed=seed).values, seed)
        y = "score" if axes is panels[0] else ""
        style.finish(axes, f"seed {seed}", "updates", y)
    panels[0].legend(frameon=False, fontsize="small")
    return style.picture(panels, "", ax)


def population_scores(
    dataset: "xr.Dataset", lineages: Mapping[int, np.ndarray], ax: Any = None
) -> Picture:
    """Draw every member's score after every round, a panel per search.

    Args:
        dataset: Dataset of a `PBTResult`.
        lineages: Members `[R]` whose training led to a search's best member, by the
            seed of the search; they are drawn bold.
        ax: Axes to draw into, one for each search.
    """

    def draw(axes: "Axes", updates: Any, scores: np.ndarray, seed: int) -> None:
        axes.plot(updates, scores, **FAINT)[0].set_label("members")
        if seed in lineages:
            line = lineages[seed][: len(updates)]
            best = scores[np.arange(len(line)), line]
            look = {"color": RED, "lw": 1.8, "marker": "o", "ms": 3}
            axes.plot(updates, best, **look, label="what led to the best one")

    return _by_search(dataset, draw, ax)


def population_values(
    dataset: "xr.Dataset",
    names: Sequence[str],
    lineages: Mapping[int, np.ndarray],
    ax: Any = None,
) -> Picture:
    """Draw every member's hyperparameters round by round, a panel per axis.

    Args:
        dataset: Dataset of a `PBTResult`.
        names: Names of the axes.
        lineages: Lineages as in `population_scores`; the schedules that they found are
            bold.
        ax: Axes to draw into, one for each name.
    """
    panels, ends = _panels(len(names), ax, sharey=False), dataset["updates"].values
    # A value is kept from a round's start to its end.
    x = np.stack([np.concatenate([[0], ends[:-1]]), ends], 1).ravel()
    for name, axes in zip(names, panels, strict=True):
        values = dataset[name].transpose("seed", "round", "member").values
        axis = Axis.of(values.ravel().tolist())
        axis.set_up(axes, "y")
        numbers = axis.places(values.ravel().tolist()).reshape(values.shape)
        for place, seed in enumerate(dataset["seed"].values.tolist()):
            mine = np.repeat(numbers[place], 2, axis=0)
            axes.plot(x, mine, **FAINT)
            if seed in lineages:
                line = np.repeat(lineages[seed][: len(ends)], 2)
                colour = style.colour_of(1 + place % (len(style.COLOURS) - 1))
                axes.plot(x, mine[np.arange(len(line)), line], color=colour, lw=1.8)
        style.finish(axes, name, "updates")
    return style.picture(panels, "", ax)


def halving_scores(dataset: "xr.Dataset", ax: Any = None) -> Picture:
    """Draw the scores of the members that reached each rung, a panel per search.

    Args:
        dataset: Dataset of a `HalvingResult`.
        ax: Axes to draw into, one for each search.
    """
    brackets = dataset["bracket"].values

    def draw(axes: "Axes", updates: Any, scores: np.ndarray, _: int) -> None:
        for bracket in np.unique(brackets):
            look = {"color": style.colour_of(int(bracket)), "alpha": 0.6, "lw": 1}
            mine = scores[brackets == bracket]
            lines = axes.plot(updates, mine.T, marker="o", markersize=3.5, **look)
            lines[0].set_label(f"bracket {bracket}")

    return _by_search(dataset, draw, ax)


def halving_values(
    dataset: "xr.Dataset", names: Sequence[str], ax: Any = None
) -> Picture:
    """Draw the last known score over every axis; larger dots were trained longer.

    Args:
        dataset: Dataset of a `HalvingResult`.
        names: Names of the axes.
        ax: Axes to draw into, one for each name.
    """
    panels, score = _panels(len(names), ax), last_known(dataset["score"].values)
    trained = dataset["trained_updates"].values.ravel()
    look = {"s": 12 + 60 * trained / max(1, trained.max()), "alpha": 0.6, "color": BLUE}
    for name, axes in zip(names, panels, strict=True):
        values = dataset[name].transpose("seed", "point").values.ravel().tolist()
        axis = Axis.of(values)
        style.draw_points(axes, axis, values, score.ravel(), **look)
        style.finish(axes, x=name)
    panels[0].set_ylabel("score at the last rung")
    return style.picture(panels, "", ax)


def last_known(scores: np.ndarray) -> np.ndarray:
    """Return the last number along the last axis that is known, NaN where none is."""
    if not scores.shape[-1]:
        return np.full(scores.shape[:-1], np.nan)
    last = np.isfinite(scores)[..., ::-1].argmax(-1)  # 0, which is NaN, where none is.
    return np.take_along_axis(scores[..., ::-1], last[..., None], -1)[..., 0]


def request_scores(scores: Sequence[np.ndarray], ax: "Axes | None" = None) -> Picture:
    """Draw the scores of every request's members, and the best so far.

    Args:
        scores: Scores `[N]` of the members of each request; NaN where unknown.
        ax: Axes to draw into.
    """
    (axes,) = _panels(1, ax)
    numbers = np.repeat(np.arange(len(scores)), [len(values) for values in scores])
    axes.scatter(numbers, np.concatenate(scores), s=16, alpha=0.5, color=BLUE)
    best = [np.nanmax([*values, -np.inf]) for values in scores]
    axes.plot(np.maximum.accumulate(best), color=RED, drawstyle="steps-post")
    axes.locator_params(axis="x", integer=True)
    style.finish(axes, "", "request", "score")
    return style.picture([axes], "", ax)


# Studies.


def study_figures(
    rows: Sequence[Trial], shares: Mapping[str, float], axes: Mapping[str, Axis]
) -> dict[str, Picture]:
    """Draw the pictures that a study has data for, by name.

    Args:
        rows: The trials.
        shares: Shares of the axes in what makes a trial good; empty if not known.
        axes: Axes by name, as they are drawn.
    """
    if not any(row.state == "complete" for row in rows):
        return {}
    found = {"history": study_history(rows), "slice": study_slices(rows, axes)}
    if shares:
        found["importance"] = study_importance(shares)
    if len(shares) > 1:
        names = sorted(shares, key=lambda n: -shares[n])
        found["contour"] = study_contour(rows, axes, names[:3])
    return found


def _complete(rows: Sequence[Trial]) -> tuple[list[Trial], np.ndarray]:
    """The trials that are complete, and their scores."""
    complete = [row for row in rows if row.state == "complete"]
    if not complete:
        raise ConfigError("no trial of the study is complete yet, so nothing is drawn.")
    return complete, np.array([row.score for row in complete], float)


def study_history(rows: Sequence[Trial], ax: "Axes | None" = None) -> Picture:
    """Draw scores in the order of the trials, and the best so far.

    Raises:
        ConfigError: no trial is complete.
    """
    complete, scores = _complete(rows)
    (axes,) = style.panel_grid(1, ax, width=style.PAGE_WIDTH, height=4.8, head=0)
    numbers = [row.number for row in complete]
    axes.plot(numbers, scores, "o", color=BLUE, ms=5, alpha=0.85, label="complete")
    pruned = [row for row in rows if row.state == "pruned" and row.curve]
    if pruned:
        last = [row.curve[max(row.curve)] for row in pruned]
        look: Any = {"color": style.COLOURS[-1], "label": "pruned, at its last score"}
        axes.plot([row.number for row in pruned], last, "x", ms=5, **look)
    best = np.maximum.accumulate(scores)
    ends = [*numbers, max(row.number for row in rows)], [*best, best[-1]]
    axes.step(*ends, where="post", color=RED, lw=1.8, label="best so far")
    for row in complete:
        if row.is_default:
            look = {"color": style.INK, "lw": 1, "ls": (0, (5, 4))}
            axes.axhline(row.score, label="default", **look)
    style.finish(axes, "", "trial", "score, mean over seeds")
    axes.locator_params(axis="x", integer=True)
    style.legend_below(axes.figure, axes, 4, ax=ax)
    return style.picture([axes], with_noun(len(rows), "trial"), ax)


def study_importance(shares: Mapping[str, float], ax: "Axes | None" = None) -> Picture:
    """Draw the share of each axis in what makes a trial good."""
    names = sorted(shares, key=lambda name: shares[name])
    size = {"width": style.PAGE_WIDTH, "height": 1.2 + 0.42 * len(names), "head": 0}
    (axes,) = style.panel_grid(1, ax, **size)
    bars = axes.barh(list(map(short, names)), [shares[n] for n in names], color=BLUE)
    look = {"fmt": "%.2f", "padding": 3, "fontsize": "small", "color": style.INK}
    axes.bar_label(bars, **look)
    axes.margins(x=0.1)
    style.finish(axes, "", "share")
    axes.grid(axis="y", visible=False)
    return style.picture([axes], "importance (PED-ANOVA)", ax)


def study_slices(
    rows: Sequence[Trial], drawn: Mapping[str, Axis], ax: Any = None
) -> Picture:
    """Draw the score against each axis; later trials are darker, the best is a star."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap
    from matplotlib.ticker import MaxNLocator

    # The palest blues would not be seen.
    shades = ListedColormap(colormaps["Blues"](np.linspace(0.25, 1.0, 256)))
    (complete, scores), dots = _complete(rows), None
    size: dict[str, Any] = {"head": 0.6, "least": style.PAGE_WIDTH, "sharey": True}
    panels = style.panel_grid(len(drawn), ax, **size)
    look = {"c": [row.number for row in complete], "cmap": shades, "edgecolors": BLUE}
    for number, (axes, name) in enumerate(zip(panels, drawn, strict=True)):
        values = [row.params[name] for row in complete]
        _, dots = style.draw_points(
            axes, drawn[name], values, scores, lw=0.7, s=28, **look
        )
        style.finish(axes, x=short(name), y="score" if number % 3 == 0 else "")
    whole = MaxNLocator(integer=True)
    style.colour_bar(dots, panels, "trial", ticks=whole, pad=0.015, aspect=30)
    return style.picture(panels, "score against each axis", ax)


def study_contour(
    rows: Sequence[Trial],
    drawn: Mapping[str, Axis],
    names: Sequence[str],
    ax: Any = None,
) -> Picture:
    """Draw the smoothed score over pairs of the most important axes, and the trials.

    The surface is the mean of the trials' scores weighted by a Gaussian of their
    distance, faint where no trial is near.

    Args:
        rows: Trials of the study.
        drawn: Axes by name, as they are drawn.
        names: Names of the axes, the most important first.
        ax: Axes to draw into, one for each pair.
    """
    pairs = list(combinations(names, 2))
    complete, scores = _complete(rows)
    size = {"height": 3.7 if len(pairs) > 1 else 4.8, "head": 0}
    panels = style.panel_grid(len(pairs), ax, least=style.PAGE_WIDTH, **size)
    low, high = float(np.quantile(scores, 0.1)), float(scores.max())
    low, high = (low, high) if low < high else (low - 0.5, low + 0.5)
    look = {"cmap": style.COLOUR_MAP, "vmin": low, "vmax": high}
    dots = None
    for axes, pair in zip(panels, pairs, strict=True):
        first, second = (
            drawn[name].places(row.params[name] for row in complete) for name in pair
        )
        across, x = _line(drawn[pair[0]], first)
        up, y = _line(drawn[pair[1]], second)
        surface, near = _smooth(x, y, scores)
        mesh: Any = {"shading": "nearest", "rasterized": True}
        mesh["alpha"] = 0.25 + 0.75 * near
        axes.pcolormesh(across, up, surface, **mesh, **look)
        sizes = np.where(np.arange(len(scores)) == scores.argmax(), 120, 30)
        edge = {"edgecolors": "#ffffff", "lw": 0.8, "s": sizes, "zorder": 3}
        dots = axes.scatter(first, second, c=scores, **edge, **look)
        for name, along in zip(pair, ("x", "y"), strict=True):
            drawn[name].set_up(axes, along)
        style.finish(axes, x=short(pair[0]), y=short(pair[1]))
        axes.grid(visible=False)
        axes.set(xlim=across[[0, -1]], ylim=up[[0, -1]])
    style.colour_bar(dots, panels, "score", pad=0.015, extend="min")
    return style.picture(panels, "smoothed score; the largest dot is the best", ax)


def _line(axis: Axis, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of cells across a picture; places of trials as shares of its width."""
    scale, back = (np.log, np.exp) if axis.log else (np.asarray, np.asarray)
    at = scale(places)
    if axis.names:
        low, high = -0.5, len(axis.names) - 0.5
    else:
        pad = 0.05 * np.ptp(at) or 0.05 * (1.0 if axis.log else abs(at[0]) or 1.0)
        low, high = at.min() - pad, at.max() + pad
    return back(np.linspace(low, high, CELLS)), (at - low) / (high - low)


def _smooth(
    x: np.ndarray, y: np.ndarray, scores: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Smoothed scores `[Y, X]` of trials; and how near trials are, in 0 .. 1."""
    cells = np.linspace(0, 1, CELLS)
    squares = (cells[None, :, None] - x) ** 2 + (cells[:, None, None] - y) ** 2
    weights = np.exp(-0.5 * squares / BANDWIDTH**2)
    surface = (weights * scores).sum(-1) / np.maximum(weights.sum(-1), 1e-30)
    return surface, np.clip(weights.max(-1) * 5, 0, 1)


# What was learned: value losses, drifts, optimisers.

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

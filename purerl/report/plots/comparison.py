"""Learning curves of several settings, an environment beside another."""

from typing import TYPE_CHECKING

import numpy as np

from purerl.report import statistics
from purerl.report.plots import style
from purerl.report.plots.curves import is_followed

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHES = ("-", "--", "-.", ":")


def comparison_figure(dataset: "xr.Dataset") -> "Figure":
    """Draw the mean return along training, a line per setting.

    Bands are 95% intervals; of fewer than ten seeds, their range. From its end on a run
    that failed counts as the worst return that is drawn in its environment.

    Args:
        dataset: Dataset of a `Comparison`: `curve` by environment, setting, seed and
            piece, `env_steps` by environment, setting and piece, at its end; both NaN
            after the last piece.
    """
    names, settings = (dataset[k].values.tolist() for k in ("environment", "setting"))
    columns = min(2, len(names))  # In three a page's width leaves no readable text.
    height = -(-len(names) // columns)
    width = max(6.0, style.PAGE_WIDTH / 2 * columns)
    figure = style.new_figure(width, 0.8 + 3.4 * height)
    panels = figure.subplots(height, columns, squeeze=False).ravel()
    for spare in panels[len(names) :]:
        spare.set_visible(False)
    # Many bands over one another hide the lines.
    faint = 0.15 if len(settings) <= 4 else 0.08
    words, num_failed = set(), 0
    for place, (axes, name) in enumerate(zip(panels, names, strict=False)):
        is_failed = failed_runs(dataset)[place]
        num_failed += int(is_failed.sum())
        curves = dataset["curve"].values[place]
        worst = np.nanmin(curves, initial=np.inf)
        for number, setting in enumerate(settings):
            steps = dataset["env_steps"].values[place, number]
            is_piece = np.isfinite(steps)
            steps = steps[is_piece]
            values = curves[number][:, is_piece]
            has_ended = is_failed[number][:, None] & ~is_followed(values)
            values = np.where(has_ended & np.isfinite(worst), worst, values)
            found = statistics.curve(values, "mean")
            words.add(found.words)
            _draw_curve(axes, steps, found, number, setting, faint)
        style.step_axis(axes)
        style.finish(axes, name, "environment steps", "return")
    handles, labels = panels[0].get_legend_handles_labels()
    legend = figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=min(4, len(labels)),
        frameon=False,
        fontsize=10,
        title=_title(words, num_failed),
        title_fontsize=9,
    )
    legend.get_title().set_color(style.INK)
    for text in legend.get_texts():
        text.set_color(style.INK)
    return figure


def failed_runs(dataset: "xr.Dataset") -> np.ndarray:
    """Return which runs have no score by some measure: they failed. `[E, N, S]`."""
    of_runs = ("environment", "setting", "seed")
    scores = [x.values for x in dataset.data_vars.values() if x.dims == of_runs]
    return np.any(np.isnan(scores), axis=0)


def _title(words: set[str], num_failed: int) -> str:
    """Return what the lines and bands of the legend are."""
    title = f"mean of the seeds, and in the band {' or '.join(sorted(words))}"
    if not num_failed:
        return title
    runs = "1 run" if num_failed == 1 else f"{num_failed} runs"
    return f"{title}; {runs} failed, the worst from its end on"


def _draw_curve(
    axes: "Axes",
    steps: np.ndarray,
    found: statistics.Estimate,
    number: int,
    label: str,
    faint: float,
) -> None:
    """Draw the curve of a setting and its band.

    Args:
        axes: Axes to draw on.
        steps: Environment steps at the ends of the pieces, `[T]`.
        found: Mean of each piece, with its ends.
        number: Number of the setting, which chooses its colour, dash and mark.
        label: Name in the legend.
        faint: Opacity of the band.
    """
    colour = style.COLOURS[number % len(style.COLOURS)]
    axes.fill_between(
        steps, found.low, found.high, color=colour, alpha=faint, linewidth=0
    )
    axes.plot(
        steps,
        found.value,
        DASHES[number // len(style.COLOURS) % len(DASHES)],
        color=colour,
        marker=style.MARKERS[number % len(style.MARKERS)],
        # A mark for each setting in turn, so that they do not hide one another.
        markevery=(number % 8, max(1, len(steps) // 8)),
        markersize=5,
        label=label,
        linewidth=1.6,
    )

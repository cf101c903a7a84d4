"""Learning curves of several settings, an environment beside another."""

from typing import TYPE_CHECKING

import numpy as np

from purerl.report import statistics
from purerl.report.plots import style

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

DASHES = ("-", "--", "-.", ":")


def comparison_figure(dataset: "xr.Dataset") -> "Figure":
    """Draw the mean return along training, a line per setting.

    Bands are 95% intervals; of fewer than ten seeds, their range.

    Args:
        dataset: Dataset of a `Comparison`: `curve` by environment, setting, seed and
            piece, `env_steps` by environment, setting and piece, at its end; both NaN
            after the last piece.
    """
    names, settings = (dataset[k].values.tolist() for k in ("environment", "setting"))
    columns = min(3, len(names))
    height = -(-len(names) // columns)
    figure = style.new_figure(max(6.0, 4.2 * columns), 0.6 + 3.2 * height)
    panels = figure.subplots(height, columns, squeeze=False).ravel()
    for spare in panels[len(names) :]:
        spare.set_visible(False)
    for place, (axes, name) in enumerate(zip(panels, names, strict=False)):
        for number, setting in enumerate(settings):
            steps = dataset["env_steps"].values[place, number]
            is_piece = np.isfinite(steps)
            steps = steps[is_piece]
            values = dataset["curve"].values[place, number][:, is_piece]
            colour = style.COLOURS[number % len(style.COLOURS)]
            found = statistics.curve(values, "mean")
            axes.fill_between(
                steps, found.low, found.high, color=colour, alpha=0.15, linewidth=0
            )
            dash = DASHES[number // len(style.COLOURS) % len(DASHES)]
            axes.plot(
                steps, found.value, dash, color=colour, label=setting, linewidth=1.6
            )
        style.step_axis(axes)
        style.finish(axes, name, "environment steps", "return")
    handles, labels = panels[0].get_legend_handles_labels()
    legend = figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=min(4, len(labels)),
        frameon=False,
        fontsize=9,
    )
    for text in legend.get_texts():
        text.set_color(style.INK)
    return figure

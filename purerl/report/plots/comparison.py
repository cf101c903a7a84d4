"""Learning curves of several losses, an environment beside another."""

from typing import TYPE_CHECKING

from purerl.report import statistics
from purerl.report.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from purerl.meta.comparison import LossComparison

DASHES = ("-", "--", "-.", ":")


def comparison_figure(result: "LossComparison") -> "Figure":
    """Mean return along training, a line per loss.

    Bands are 95% intervals; of fewer than ten seeds, their range.

    Args:
        result: of `purerl.compare_losses`.
    """
    columns = min(3, len(result.environments))
    height = -(-len(result.environments) // columns)
    figure = style.new_figure(max(6.0, 4.2 * columns), 0.6 + 3.2 * height)
    panels = figure.subplots(height, columns, squeeze=False).ravel()
    for spare in panels[len(result.environments) :]:
        spare.set_visible(False)
    for axes, name in zip(panels, result.environments, strict=False):
        steps, curves = result.steps[name], result.curves[name].astype(float)
        for number, (loss, values) in enumerate(
            zip(result.losses, curves, strict=True)
        ):
            colour = style.COLOURS[number % len(style.COLOURS)]
            found = statistics.curve(values, "mean")
            axes.fill_between(
                steps, found.low, found.high, color=colour, alpha=0.15, linewidth=0
            )
            dash = DASHES[number // len(style.COLOURS) % len(DASHES)]
            axes.plot(steps, found.value, dash, color=colour, label=loss, linewidth=1.6)
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

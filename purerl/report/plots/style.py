"""The style of every picture: colours, axes, panels, and how it reaches a file.

Colours are close to those of Okabe and Ito, which most people can tell apart whatever
colours they see; lines differ by marker as well. No global state of matplotlib is used.
"""

import contextlib
import functools
import io
import math
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from purerl.atomic import write_atomic
from purerl.report.sweep_data import in_order, is_log, is_number, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (
    "#1f83c4",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#aa4499",
    "#7f7f7f",
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
INK = "#24292f"  # Text and axes; in a page it takes the colour of the page's text.
FAINT = 0.22
LETTER = 0.083  # Inches of a letter of a tick's label.
LONGEST = 30  # Letters of it, at most.
TURNED, LINE = 35, 0.22  # Degrees of labels that would touch; inches that they need.
COLOUR_MAP = "viridis"
DPI = 150
PAGE_WIDTH = 10.4  # A picture of this width in inches is as wide as a page's text.


def load_matplotlib() -> None:
    """Import matplotlib, also where MPLBACKEND names a backend that there is not.

    Nothing here opens a window.
    """
    if "matplotlib" in sys.modules:
        return
    backend = os.environ.pop("MPLBACKEND", None)
    import matplotlib

    if backend:
        os.environ["MPLBACKEND"] = backend
        with contextlib.suppress(ValueError):
            matplotlib.rcParams["backend"] = backend


def new_figure(width: float = PAGE_WIDTH, height: float = 4.8) -> "Figure":
    """Make an empty figure, in inches, whose texts are shown as they are."""
    load_matplotlib()
    return _figure_class()(figsize=(width, height), dpi=DPI, layout="constrained")


@functools.cache
def _figure_class() -> "type[Figure]":
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    class PlainFigure(Figure):
        """A figure in which `$` is a character of a name, and begins no formula."""

        def draw(self, renderer: Any) -> None:
            for text in self.findobj(Text):
                text.set_parse_math(False)
            super().draw(renderer)

    return PlainFigure


def panel_grid(
    count: int,
    *,
    columns: int = 3,
    width: float = 3.4,
    height: float = 3.0,
    head: float = 0.7,
    least: float = 5.0,
    **shared: Any,
) -> tuple["Figure", list["Axes"]]:
    """Make a figure with panels in rows.

    Args:
        count: Number of panels.
        columns: Number of panels in a row, at most.
        width: Width of a panel, in inches.
        height: Height of a panel.
        head: Height of what stands over or under the panels.
        least: Least width of the figure.
        **shared: Axes that the panels share, such as `sharey=True`.
    """
    columns = min(count, columns)
    rows = -(-count // columns)
    figure = new_figure(max(least, width * columns), head + height * rows)
    panels = figure.subplots(rows, columns, squeeze=False, **shared).ravel()
    for spare in panels[count:]:
        spare.set_visible(False)
    return figure, list(panels[:count])


def colour_of(number: int) -> str:
    """Return the colour of the line with a number."""
    return COLOURS[number % len(COLOURS)]


def marker_of(number: int) -> str:
    """Return the marker of the line with a number."""
    return MARKERS[number % len(MARKERS)]


def draw_band(
    axes: "Axes",
    x: np.ndarray,
    found: Sequence[Any],
    colour: str,
    mark: str = "-",
    *,
    opacity: float = FAINT,
    marks: int = 0,
    **line: Any,
) -> None:
    """Draw a line through the points that are known, over a band between two ends.

    Args:
        axes: The panel.
        x: Places of the points, `[T]`.
        found: Values and their lower and upper ends, `[T]` each, such as an `Estimate`.
        colour: Colour of the line and the band.
        mark: Format of the line, as matplotlib has it.
        opacity: Opacity of the band.
        marks: Number of markers along the line, about; 0 for one at each point.
        **line: Options of the line.
    """
    x = np.asarray(x)
    value, low, high = (np.broadcast_to(part, x.shape) for part in found[:3])
    known = np.isfinite(value)
    x, value, low, high = x[known], value[known], low[known], high[known]
    step = "post" if line.get("drawstyle") == "steps-post" else None
    band = {"color": colour, "alpha": opacity, "linewidth": 0, "step": step}
    axes.fill_between(x, low, high, **band)
    if marks:
        line["markevery"] = (line.pop("first", 0), max(1, len(x) // marks))
    axes.plot(x, value, mark, color=colour, **{"linewidth": 1.8, **line})


def draw_star(axes: "Axes", x: float, y: float, **options: Any) -> None:
    """Mark the best of many dots."""
    look = {"color": COLOURS[1], "ms": 15, "mec": "#ffffff", "mew": 0.8}
    axes.plot(x, y, "*", **{**look, **options})


def legend_below(
    figure: "Figure", axes: "Axes", columns: int = 2, **options: Any
) -> Any:
    """Write one legend for all panels under them, from the lines of one of them."""
    handles, labels = axes.get_legend_handles_labels()
    look = {"loc": "outside lower center", "frameon": False, "fontsize": 9}
    columns = min(columns, max(1, len(labels)))
    legend = figure.legend(handles, labels, ncols=columns, **look | options)
    for text in (*legend.get_texts(), legend.get_title()):
        text.set_color(INK)
    return legend


def colour_bar(
    figure: "Figure", scale: Any, panels: Any, label: str, **options: Any
) -> None:
    """Draw the scale of colours beside some panels."""
    bar = figure.colorbar(scale, ax=panels, **options)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar.set_label(label)
    ink(bar.ax)


def finish(axes: "Axes", title: str = "", x: str = "", y: str = "") -> None:
    """Set titles, a faint grid, two spines, and one colour for all of them.

    Args:
        axes: Axes that are drawn already.
        title: Title of the axes.
        x: Label of the x axis.
        y: Label of the y axis.
    """
    if title:
        axes.set_title(title, fontsize=12, color=INK, loc="left")
    if x:
        axes.set_xlabel(x)
    if y:
        axes.set_ylabel(y)
    axes.grid(alpha=0.3, linewidth=0.6, color="#8b949e")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    ink(axes)


def ink(axes: "Axes") -> None:
    """Give ticks, labels and spines the colour of text."""
    axes.tick_params(colors=INK, which="both", labelsize=10)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)
    for spine in axes.spines.values():
        spine.set_edgecolor(INK)
        spine.set_linewidth(0.8)
    legend = axes.get_legend()
    for text in legend.get_texts() if legend else ():
        text.set_color(INK)


def step_axis(axes: "Axes") -> None:
    """Label environment steps along x, with 10k and 1M for thousands and millions."""
    axes.xaxis.set_major_formatter(_ticker().EngFormatter(sep=""))
    # More ticks would touch in narrow panels.
    axes.xaxis.set_major_locator(_ticker().MaxNLocator(5))
    axes.set_xlim(left=0)


class Axis(NamedTuple):
    """The places of values along x or y: names side by side, numbers by their size.

    Attributes:
        log: Whether the scale is logarithmic.
        names: The names in their order; empty where the values are numbers.
    """

    log: bool = False
    names: Sequence[Any] = ()

    @classmethod
    def of(cls, values: Iterable[Any]) -> "Axis":
        """Return the axis of some values: logarithmic where that tells them apart."""
        values = in_order(values)
        if all(map(is_number, values)):
            return cls(log=is_log(values))
        return cls(names=values)

    def places(self, values: Iterable[Any]) -> np.ndarray:
        """Return the places of some values, `[N]`."""
        if self.names:
            values = [self.names.index(value) for value in values]
        return np.asarray(list(values), float)

    def set_up(
        self, axes: "Axes", along: str, values: Sequence[Any] = (), most: int = 4
    ) -> None:
        """Set scale, limits and tick labels of x or y.

        Args:
            axes: The panel.
            along: The direction of the axis, `x` or `y`.
            values: Numbers that have a tick each, if they are not more than `most`.
            most: Number of ticks at most; every name has one.
        """
        axis = axes.xaxis if along == "x" else axes.yaxis
        if self.names:
            set_limits = axes.set_xlim if along == "x" else axes.set_ylim
            set_limits(-0.5, len(self.names) - 0.5)
            values, labels = range(len(self.names)), _names_in_short(self.names)
            places, span = np.arange(len(self.names)), len(self.names)
        else:
            if self.log:
                log_axis(axes, along, most)
            if not 0 < len(values) <= most:
                return
            labels = [label(value) for value in values]
            places = np.log(values) if self.log else np.asarray(values, float)
            # The outermost ones lie near the ends of the panel.
            span = float(np.ptp(places)) / 0.9 or 1.0
        is_turned = False
        if along == "x":
            labels, is_turned = _apart(axes, places, span, labels)
        axis.set_major_locator(_ticker().FixedLocator(list(values)))
        axis.set_major_formatter(_ticker().FixedFormatter(labels))
        axis.set_minor_locator(_ticker().NullLocator())
        if is_turned:
            axes.tick_params(axis="x", rotation=TURNED)


def _names_in_short(names: Sequence[Any]) -> list[str]:
    """Names, of parts their classes, where these tell them apart."""
    classes = [str(name).partition("(")[0] for name in names]
    texts = classes if len(set(classes)) == len(names) else map(label, names)
    return [
        text if len(text) <= LONGEST else text[: LONGEST - 1] + "…" for text in texts
    ]


def _apart(
    axes: "Axes", places: np.ndarray, span: float, labels: Sequence[str]
) -> tuple[list[str], bool]:
    """Labels along x that do not lie over one another, and whether they are turned.

    Where turning them is not enough, a label that would touch the one before it is left
    out; the last one stays, in the place of those before it.
    """
    figure, spec = axes.get_figure(root=True), axes.get_subplotspec()
    columns = spec.get_gridspec().ncols if spec else 1
    # The layout is made later: labels of the other axis take some of a panel's share.
    width = (figure.get_figwidth() if figure else PAGE_WIDTH) / columns - 0.45
    order = np.argsort(places, kind="stable")
    inches = (places[order] - places[order][0]) / span * width
    needs = np.array([LETTER * (len(labels[i]) + 1) for i in order])
    if (np.diff(inches) >= (needs[1:] + needs[:-1]) / 2).all():
        return list(labels), False
    kept = [0]
    for number in range(1, len(order)):
        is_far = inches[number] - inches[kept[-1]] >= LINE
        if not is_far and number == len(order) - 1 and len(kept) > 1:
            kept[-1] = number
        elif is_far:
            kept.append(number)
    shown = {int(order[number]) for number in kept}
    return [text if i in shown else "" for i, text in enumerate(labels)], True


def log_axis(axes: "Axes", along: str, most: int = 5) -> None:
    """Make an axis logarithmic, with few ticks, whose labels do not overlap.

    Args:
        axes: The panel.
        along: The direction of the axis, `x` or `y`.
        most: The largest number of ticks.
    """
    ticker = _ticker()

    class FewTicks(ticker.Locator):
        """The most ticks at round numbers that are not too many."""

        def __call__(self) -> np.ndarray:
            low, high = sorted(self.axis.get_view_interval())
            return log_ticks(low, high, most)

    (axes.set_xscale if along == "x" else axes.set_yscale)("log")
    axis = axes.xaxis if along == "x" else axes.yaxis
    axis.set_major_locator(FewTicks())
    axis.set_major_formatter(ticker.FuncFormatter(lambda x, _: label(float(x))))
    axis.set_minor_locator(ticker.NullLocator())


def _ticker() -> Any:
    load_matplotlib()
    from matplotlib import ticker

    return ticker


def log_ticks(low: float, high: float, most: int) -> np.ndarray:
    """Return round numbers between two positive ends, at least two and at most `most`.

    The ends themselves where no two round numbers lie between them.

    Args:
        low: Lower end, positive.
        high: Upper end.
        most: Number of ticks at most.
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    decades: list[float] = []
    fitting: list[float] = []
    for digits in ((1,), (1, 3), (1, 2, 5), range(1, 10), np.arange(10, 100) / 10):
        every = [d * 10.0**power for power in powers for d in digits]
        ticks = [x for x in every if low * (1 - 1e-9) <= x <= high * (1 + 1e-9)]
        decades = decades or ticks
        if max(1, len(fitting)) < len(ticks) <= most:
            fitting = ticks
    if len(decades) > most:
        fitting = decades[:: -(-len(decades) // most)]
    return np.asarray(fitting or [low, high])


def label_ends(
    axes: "Axes", ends: Sequence[tuple[float, str, str]], title: str = ""
) -> None:
    """Write each line's name right of the axes, at its height, without overlaps.

    Args:
        axes: Axes whose y limits are final.
        ends: Last value, name and colour of each line.
        title: The title of the names: what they are values of.
    """
    low, high = axes.get_ylim()
    height = axes.get_window_extent().height / DPI * 72  # In points.
    gap = 12.5 / max(height, 1.0)
    wanted = [(np.clip((y - low) / (high - low), 0, 1), n, c) for y, n, c in ends]
    wanted.sort(key=lambda end: float(end[0]))
    positions = spread([float(y) for y, _, _ in wanted], gap, 1.0)
    for (at, name, colour), height in zip(wanted, positions, strict=True):
        axes.annotate(
            name,
            xy=(1.0, float(at)),
            xytext=(1.035, height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=INK,  # Text in the paler colours is hard to read.
            fontsize=9,
            va="center",
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "lw": 1.2,
                "relpos": (0.0, 0.5),
                "shrinkA": 0,
                "shrinkB": 0,
            },
        )
    if title:
        axes.annotate(
            title,
            xy=(1.035, min(max(positions) + 1.2 * gap, 1.0 + gap)),
            xycoords="axes fraction",
            color=INK,
            fontsize=9,
            va="center",
        )


def spread(positions: Sequence[float], gap: float, top: float) -> list[float]:
    """Move ascending `positions` at least `gap` apart, little, and not above `top`.

    Args:
        positions: Heights in ascending order.
        gap: Least distance of two heights.
        top: Upper limit of the heights.
    """
    moved = list(positions)
    for _ in range(50):
        for i in range(1, len(moved)):
            short = gap - (moved[i] - moved[i - 1])
            if short > 1e-9:
                moved[i - 1] -= short / 2
                moved[i] += short / 2
        over = moved[-1] - top
        if over > 0:
            moved[-1] -= over
        under = -moved[0]
        if under > 0 and gap * len(moved) <= top:
            moved[0] += under
    return moved


def save(figure: "Figure", path: str | Path) -> Path:
    """Write a figure, by its suffix (.png, .svg, .pdf), so that no reader sees half.

    Raises:
        OSError: the folder cannot be written to.
        ValueError: a name without a known suffix.
    """
    path = Path(path)
    kind = path.suffix.lstrip(".").lower()
    if kind not in figure.canvas.get_supported_filetypes():
        raise ValueError(f"unknown kind of picture {path.suffix!r}; use .png or .svg")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind)
    write_atomic(path, buffer.getvalue())
    return path


def to_svg(figure: "Figure") -> str:
    """Return the figure as SVG for HTML: transparent, text in the page's colour."""
    buffer = io.BytesIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue().decode()
    text = text[text.index("<svg") :]
    # Namespaces are addresses that HTML does not need.
    text = re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    return text.replace(INK, "currentColor")

"""The style of every picture: colours, axes, panels, and how it reaches a file.

Colours are close to those of Okabe and Ito, which most people can tell apart whatever
colours they see; lines differ by marker as well. Sizes of letters follow matplotlib's
`font.size`, so that a style sheet of the caller's holds here too.
"""

import contextlib
import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from purerl.atomic import write_atomic
from purerl.config import ConfigError
from purerl.execution.format import with_noun
from purerl.report.sweep_data import in_order, is_log, is_number, label, labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

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
LONGEST = 30  # Letters of a tick's label, at most.
LETTERS = 28  # Labels along x that have more letters together are turned.
TICKS = 5  # Ticks of a logarithmic axis, at most.
COLOUR_MAP = "viridis"
DPI, SCREEN_DPI = 150, 110
PAGE_WIDTH = 10.4  # A picture of this width in inches is as wide as a page's text.


# Inches of one and of two columns of a paper, with letters of 8 points.
COLUMNS = {1: 3.25, 2: 6.75}
PAPER: dict[Any, Any] = {"font.size": 8.0, "axes.linewidth": 0.6}
THINNER = 0.65  # Lines and markers of a paper's figure, beside those of a page.
LEAST_PANEL = 1.5  # Inches: least width and height of a panel in a paper.
_width: ContextVar[float | None] = ContextVar("width", default=None)


class Picture(NamedTuple):
    """A figure and its panels: `figure, axes = result.plot()`. A notebook shows it.

    Attributes:
        figure: The figure of matplotlib. Its label says what is drawn.
        axes: The panel, or a tuple of all panels.
    """

    figure: "Figure"
    axes: Any

    def __repr__(self) -> str:
        return f"Picture({self.figure.get_label()!r})"

    def _repr_png_(self) -> tuple[bytes, dict[str, Any]]:
        width, height = (round(96 * inches) for inches in self.figure.get_size_inches())
        data = as_bytes(self.figure, "png", dpi=SCREEN_DPI)
        return data, {"width": width, "height": height}

    def save(self, path: str | Path) -> Path:
        """Write the figure by the suffix of its name; see `save`."""
        return save(self, path)


@contextlib.contextmanager
def paper(columns: int = 1) -> Iterator[None]:
    """Draw figures for a paper: as wide as its columns, with letters of 8 points.

    What a figure shows stands in its caption there and not over it, see `Picture`.

    Args:
        columns: One column (3.25 inches) or two (6.75).

    Raises:
        ConfigError: another number of columns.
    """
    from matplotlib import rc_context

    if columns not in COLUMNS:
        raise ConfigError(f"columns must be 1 or 2, got {columns!r}.")
    token = _width.set(COLUMNS[columns])
    try:
        with rc_context(PAPER):
            yield
    finally:
        _width.reset(token)


def new_figure(width: float = PAGE_WIDTH, height: float = 4.8) -> "Figure":
    """Make an empty figure, in inches, which no window shows."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def panel_grid(
    count: int = 1,
    ax: Any = None,
    *,
    columns: int = 3,
    width: float = 3.4,
    height: float = 3.0,
    head: float = 0.7,
    least: float = 0.0,
    **shared: Any,
) -> list["Axes"]:
    """Return the panels of a new figure, in rows, or those that the caller has.

    Args:
        count: Number of panels.
        ax: Axes of the caller's, as many as there are panels.
        columns: Number of panels in a row, at most.
        width: Width of a panel, in inches.
        height: Height of a panel.
        head: Height of what stands over or under the panels.
        least: Least width of the figure.
        **shared: Axes that the panels share, such as `sharey=True`.

    Raises:
        ConfigError: another number of axes.
    """
    if ax is not None:
        given = np.atleast_1d(ax).ravel().tolist()
        if len(given) != count:
            wanted = with_noun(count, "panel")
            raise ConfigError(f"ax must be {wanted}, got {len(given)}.")
        return given
    columns, size = min(count, columns), _width.get()
    if size is not None:
        columns = min(columns, max(1, int(size / LEAST_PANEL)))
        scale = size / (width * columns)
        height = max(height * scale, min(0.6 * size / columns, 2.4), LEAST_PANEL)
        width, head, least = size / columns, head * min(1.0, scale), size
    rows = -(-count // columns)
    figure = new_figure(max(least, width * columns), head + height * rows)
    panels = figure.subplots(rows, columns, squeeze=False, **shared).ravel()
    for spare in panels[count:]:
        spare.set_visible(False)
    return list(panels[:count])


def picture(panels: Sequence["Axes"], words: str = "", ax: Any = None) -> Picture:
    """Return panels as a picture; words over it, or beside it for a paper, say what.

    Args:
        panels: The panels.
        words: A title: over the panel, or over all where they stand in a row.
        ax: Axes of the caller's, who gives titles, sizes and widths.
    """
    first: Any = panels[0]
    figure = first.get_figure(root=True)
    drawn = Picture(figure, panels[0] if len(panels) == 1 else tuple(panels))
    if ax is not None:
        return drawn
    figure.set_label(words.replace("\n", ", "))
    if _width.get() is not None:
        lines: Any = figure.findobj(lambda artist: hasattr(artist, "get_markersize"))
        for line in lines:
            line.set_linewidth(THINNER * line.get_linewidth())
            line.set_markersize(THINNER * line.get_markersize())
    elif words and first.get_gridspec().ncols == 1:
        panels[0].set_title(words, fontsize="large", color=INK, loc="left")
    elif words:
        figure.suptitle(words, fontsize="large", color=INK, x=0.01, ha="left")
    return drawn


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
    first: int = 0,
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
        first: Number of the point with the first marker.
        **line: Options of the line.
    """
    x = np.asarray(x)
    value, low, high = (np.broadcast_to(part, x.shape) for part in found[:3])
    known = np.isfinite(value)
    x, value, low, high = x[known], value[known], low[known], high[known]
    axes.fill_between(x, low, high, color=colour, alpha=opacity, linewidth=0)
    if marks:
        line["markevery"] = (first, max(1, len(x) // marks))
    axes.plot(x, value, mark, color=colour, **{"linewidth": 1.8, **line})


def draw_points(
    axes: "Axes", axis: "Axis", values: Iterable[Any], scores: Any, **look: Any
) -> tuple[np.ndarray, Any]:
    """Draw a dot per point: its score over its value of an axis; a star on the best.

    Args:
        axes: The panel, which is set up for the axis.
        axis: The axis along x; dots at one of its names lie beside one another.
        values: Values of the points, `[N]`.
        scores: Scores of the points, `[N]`; NaN where one has none.
        **look: Options of `scatter`.

    Returns:
        The places of the dots along x, and what a scale of colours is made of.
    """
    axis.set_up(axes, "x")
    places = axis.places(values)
    if axis.names:
        places = places + np.random.default_rng(0).uniform(-0.2, 0.2, len(places))
    dots = axes.scatter(places, scores, **look)
    if np.isfinite(scores).any():
        best = np.nanargmax(scores)
        star: Any = {"color": COLOURS[1], "ms": 14, "mec": "#ffffff", "mew": 0.8}
        axes.plot(places[best], scores[best], "*", label="best", **star)
    return places, dots


def legend_below(
    figure: Any, axes: Any, columns: int = 2, ax: Any = None, **options: Any
) -> "Legend":
    """Write one legend for all panels under them, from the lines of one or of several.

    In axes of the caller's it stands in the first of these.
    """
    found: dict[str, Any] = {}
    for panel in np.ravel(axes):
        handles, labels = panel.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    handles, labels = list(found.values()), list(found)
    look = {"loc": "outside lower center", "frameon": False, "fontsize": "small"}
    size = _width.get()
    if ax is not None:
        columns = 1
        options |= {"loc": "best"}
    elif size is not None:
        options |= {"loc": "outside lower center", "alignment": "center"}
        letters = 7 + max(map(len, labels), default=0)  # 7 are the line's.
        columns = max(1, min(len(labels), int(18 * size / letters)))
        lines = -(-len(labels) // columns) + ("title" in options)
        figure.set_figheight(figure.get_figheight() + 0.16 * lines)
    look |= {"labelcolor": INK, "ncols": min(columns, max(1, len(labels)))}
    place = figure if ax is None else np.ravel(axes)[0]
    legend = place.legend(handles, labels, **look | options)
    legend.get_title().set_color(INK)
    return legend


def colour_bar(
    scale: Any, panels: Sequence["Axes"], label: str, **options: Any
) -> None:
    """Draw the scale of colours beside some panels."""
    bar = panels[0].figure.colorbar(scale, ax=panels, **options)
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
        axes.set_title(title, fontsize="large", color=INK, loc="left")
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
    # In points: what is relative is read again when a tick is drawn, after `paper`.
    size = axes.xaxis.label.get_fontsize()
    axes.tick_params(colors=INK, which="both", labelsize=size)
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
    from matplotlib import ticker

    axes.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
    # More ticks would touch in narrow panels.
    figure: Any = axes.get_figure(root=True)
    inches = axes.get_position().width * figure.get_figwidth()
    axes.xaxis.set_major_locator(ticker.MaxNLocator(5 if inches > 2 else 3))
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

    def set_up(self, axes: "Axes", along: str) -> None:
        """Set scale, limits and tick labels of `x` or `y`; every name has a tick."""
        if self.log:
            log_axis(axes, along)
        if not self.names:
            return
        # Parts are told apart by their classes alone, where these differ.
        words = labels(self.names)
        texts = [word.partition("(")[0] for word in words]
        texts = words if len(set(texts)) < len(texts) else texts
        texts = [t if len(t) <= LONGEST else f"{t[: LONGEST - 1]}…" for t in texts]
        shown = range(0, len(texts), -(-len(texts) // 20))  # All up to 20.
        is_turned = along == "x" and sum(len(texts[i]) for i in shown) > LETTERS
        getattr(axes, f"set_{along}lim")(-0.5, len(texts) - 0.5)
        set_ticks, turn = getattr(axes, f"set_{along}ticks"), 35 if is_turned else 0
        set_ticks(shown, [texts[i] for i in shown], rotation=turn)


def log_axis(axes: "Axes", along: str) -> None:
    """Make an axis, `x` or `y`, logarithmic, with few ticks at round numbers."""
    from matplotlib import ticker

    getattr(axes, f"set_{along}scale")("log")
    axis = getattr(axes, f"{along}axis")

    class FewTicks(ticker.Locator):
        def __call__(self) -> np.ndarray:
            return log_ticks(*sorted(axis.get_view_interval()))

    axis.set_major_locator(FewTicks())
    axis.set_major_formatter(ticker.FuncFormatter(lambda x, _: label(float(x))))
    axis.set_minor_locator(ticker.NullLocator())


def log_ticks(low: float, high: float) -> np.ndarray:
    """Return two to `TICKS` round numbers between two positive ends, or the ends."""
    powers = 10.0 ** np.arange(math.floor(math.log10(low)), math.log10(high) + 1)
    ticks = np.zeros(0)
    for digits in ((1,), (1, 3), (1, 2, 5)):
        if len(ticks) < 3:
            ticks = np.outer(powers, digits).ravel()
            is_inside = (ticks >= low * (1 - 1e-9)) & (ticks <= high * (1 + 1e-9))
            ticks = ticks[is_inside]
    return (
        ticks[:: -(-len(ticks) // TICKS)] if len(ticks) > 1 else np.array([low, high])
    )


def as_bytes(figure: "Figure", kind: str, **options: Any) -> bytes:
    """Return a figure as the bytes of a file, with letters of fonts in PDF and PS."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    # Type 3 fonts, the default, are refused by many a publisher.
    with rc_context({"pdf.fonttype": 42, "ps.fonttype": 42}):
        figure.savefig(buffer, format=kind, **options)
    return buffer.getvalue()


def save(picture: "Picture | Figure", path: str | Path) -> Path:
    """Write a picture, by its suffix (.pdf, .svg, .png), so that no reader sees half.

    Raises:
        OSError: the folder cannot be written to.
        ValueError: a name without a known suffix.
    """
    figure = picture.figure if isinstance(picture, Picture) else picture
    path = Path(path)
    kind = path.suffix.lstrip(".").lower()
    if kind not in figure.canvas.get_supported_filetypes():
        raise ValueError(
            f"unknown kind of picture {path.suffix!r}; use .pdf, .svg or .png"
        )
    write_atomic(path, as_bytes(figure, kind))
    return path


def to_svg(figure: "Figure") -> str:
    """Return the figure as SVG for HTML: transparent, text in the page's colour."""
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    text = as_bytes(figure, "svg", transparent=True, metadata=nothing).decode()
    text = text[text.index("<svg") :]
    # Namespaces are addresses that HTML does not need.
    text = re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    return text.replace(INK, "currentColor")

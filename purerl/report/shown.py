"""What all results have: a few lines of text, HTML, a picture, a data frame."""

import abc
import contextlib
import html
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from purerl.config import ConfigError
from purerl.report import html as pages
from purerl.report import style
from purerl.report.plots import Line
from purerl.report.style import Picture

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

ROWS = 6  # Rows of the table in a notebook.
SMALL = 60_000  # Characters of SVG in a notebook; beyond it, a PNG may be smaller.
# Along which metrics of training, of evaluations and of comparisons go.
_TIMES = ("segment", "evaluation", "piece")


class View(NamedTuple):
    """What a result tells of itself.

    Attributes:
        title: What it is of, in a line.
        facts: Further lines: how much was done, and how good it is.
        draw: A function that draws its picture, `draw(ax=None)`.
        columns: A function that returns the columns of its table by name.
        best: The column whose highest values are shown first; empty for the order that
            there is.
    """

    title: str
    facts: Sequence[str]
    draw: Callable[..., Picture]
    columns: Callable[[], Any]
    best: str = ""


class Shown(abc.ABC):
    """A result that people look at."""

    @abc.abstractmethod
    def view(self) -> View:
        """Return what the result tells of itself, for the methods here."""

    def plot(self, ax: Any = None, *, columns: int | None = None) -> Picture:
        """Draw the result: `figure, axes = result.plot()`. A notebook shows it.

        `result.plot(columns=1).save("curve.pdf")` makes a figure of a paper.

        Args:
            ax: Axes of matplotlib to draw into, as many as there are panels.
            columns: Columns of a paper that the figure is wide, 1 or 2; see
                `purerl.report.plots.paper`.
        """
        with contextlib.nullcontext() if columns is None else style.paper(columns):
            return self.view().draw(ax)

    def lines(self, metric: str) -> dict[str, list[Line]]:
        """Return the curves by environment, for `purerl.report.plots.curves_figure`.

        Args:
            metric: Name of a metric.

        Raises:
            ConfigError: no such metric, or a result without curves of returns.
        """
        del metric
        raise ConfigError(f"{type(self).__name__} has no curves of returns.")

    def to_dataframe(self, *, curves: bool = False) -> "pd.DataFrame":
        """Return a table, a row per agent, member, trial or generation.

        Args:
            curves: Return a row per point of the learning curves instead: metrics of
                training, and means over the episodes of evaluations.

        Raises:
            ConfigError: there are no curves, or nothing has been trained yet.
        """
        import pandas as pd

        if not curves:
            return pd.DataFrame(self.view().columns()).infer_objects()
        dataset = getattr(self, "dataset", None)
        if dataset is None or not set(_TIMES) & set(dataset.dims):
            raise ConfigError(f"{type(self).__name__} has no learning curves.")
        return curves_frame(dataset)

    def headings_and_rows(self) -> tuple[list[str], list[list[Any]]]:
        """Return the table for people, the best rows first."""
        frame, best = self.to_dataframe(), self.view().best
        if best:
            frame = frame.sort_values(best, ascending=False, kind="stable")
        return list(frame), frame.astype(object).values.tolist()

    def __repr__(self) -> str:
        view = self.view()
        return "\n  ".join((f"{type(self).__name__}: {view.title}", *self._facts(view)))

    def _facts(self, view: View) -> list[str]:
        out: Path | None = getattr(self, "out", None)
        return [*view.facts, *([f"in {out}"] if out else [])]

    def _repr_html_(self) -> str:
        view = self.view()
        lines = "<br>".join(map(html.escape, self._facts(view)))
        name = html.escape(f"{type(self).__name__}: {view.title}")
        parts = [f"<b>{name}</b><br>{lines}"]
        with contextlib.suppress(ConfigError):  # Nothing has been trained yet.
            headings, rows = self.headings_and_rows()
            parts.append(pages.table(headings, rows[:ROWS]))
            if len(rows) > ROWS:
                more = f"{len(rows) - ROWS:,} more rows in result.to_dataframe()"
                parts.append(pages.note(more))
            with style.paper(2):
                drawn = view.draw()
            parts.append(pages.figure(drawn, str(drawn.figure.get_label()), SMALL))
        return "".join(parts)


def curves_frame(dataset: "xr.Dataset") -> "pd.DataFrame":
    """Return a row per point of the curves of a dataset.

    Args:
        dataset: Variables along a segment, a piece, or an evaluation with its episodes,
            of which the means are taken. Rows with the same environment steps are one.
    """
    import pandas as pd

    frames: list[pd.DataFrame] = []
    for time in _TIMES:
        names = [n for n, values in dataset.items() if time in values.dims]
        if not names:
            continue
        part = dataset[names]
        part = part.mean("episode") if "episode" in part.dims else part
        frame = part.to_dataframe().reset_index().drop(columns=time)
        frame = frame.rename(columns={"evaluation_env_steps": "env_steps"})
        frames.append(frame.dropna(subset=["env_steps"]))
    first, *others = frames
    keys = [name for name in first if name in dataset.coords] + ["env_steps"]
    for frame in others:
        first = first.merge(frame, how="outer", on=keys, sort=False)
    return first.reindex(columns=[*keys, *first.columns.difference(keys, sort=False)])


def stated(finished: bool, done: str, out: Path | None) -> str:
    """Return a line on how far something got; how to go on where it was stopped."""
    if finished:
        return f"finished: {done}"
    how = "the same call goes on" if out else "kept in memory alone (no out=)"
    return f"not finished: {done}; {how}"


def columns_of(points: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return columns from rows by name; None where a row has no such name."""
    names = dict.fromkeys(name for point in points for name in point)
    return {name: [point.get(name) for point in points] for name in names}

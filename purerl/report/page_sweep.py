"""The page of a sweep: its best configurations, curves, axes, seeds."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from purerl.metrics import decimals
from purerl.report import plots
from purerl.report.html import Section, about, figure_html, table_html, write_page
from purerl.report.sweep_data import (
    SCORE,
    Scores,
    axis_names,
    by_environment,
    configuration,
    env_name,
    read_scores,
)
from purerl.report.sweep_tables import best_rows

if TYPE_CHECKING:
    import xarray as xr


def sweep_page(
    dataset: "xr.Dataset",
    path: str | Path,
    *,
    metric: str = SCORE,
    load: str = "",
    **facts: Any,
) -> Path:
    """Write the report of a sweep: best configurations, curves, axes, seeds.

    Where the environment is an axis, each environment has these sections of its own.

    Args:
        dataset: The dataset of the sweep.
        path: The path of the page.
        metric: The variable that the configurations are judged by.
        load: Python code that reads the sweep; a usual way if not given.
        **facts: Further lines about the sweep, such as `command="..."`.

    Raises:
        ConfigError: no such metric, or no score yet.
        OSError: the page cannot be written.
    """
    scores = read_scores(dataset, metric)
    names = axis_names(dataset)
    sections, notes = _parts(dataset, metric)
    if scores.missing:
        notes.append(f"The sweep has not ended: {scores.missing}.")
    load = load or (
        "import xarray\n\n"
        "# result.dataset.to_netcdf('sweep.nc') of what the sweep returned, then:\n"
        "data = xarray.open_dataset('sweep.nc')"
    )
    shape = " x ".join(map(str, scores.grid or (len(scores.points),)))
    lost = int((~np.isfinite(scores.scores)).sum())
    about_it = about(
        configuration(dataset),
        load,
        axes=", ".join(names),
        design=f"{dataset.attrs.get('design', 'grid')}, {shape} configurations",
        seeds=scores.scores.shape[1],
        diverged=int(scores.diverged.sum()),
        without_a_score=lost,
        not_finished=scores.missing,
        **facts,
    )
    title = f"Sweep: {env_name(dataset)}"
    return write_page(path, title, *sections, about_it, note=" ".join(notes))


def _parts(dataset: "xr.Dataset", metric: str) -> tuple[list[Section], list[str]]:
    """The sections of every environment, and a sentence about its best."""
    parts = by_environment(dataset)
    scored = [n for n, part in parts.items() if read_scores(part, metric).has_any]
    sections, notes = [], []
    for name, part in parts.items():
        if scored and name not in scored:
            notes.append(f"No member of {name} has a score.")
            continue
        before, of = (f"{name}: ", f" of {name}") if len(parts) > 1 else ("", "")
        sections += [Section(before + s.title, s.body) for s in _sections(part, metric)]
        notes.append(_note(read_scores(part, metric), of))
    return sections, notes


def _sections(dataset: "xr.Dataset", metric: str) -> list[Section]:
    """The sections of one environment."""
    scores, names = read_scores(dataset, metric), axis_names(dataset)
    sections = [Section("Best configurations", sweep_table(dataset, metric))]
    curves = figure_html(
        plots.sweep_curves(dataset), "Lines: interquartile mean; diverged as worst."
    )
    varying = [name for name in names if len(scores.values(name)) > 1]
    if scores.grid is not None:
        for name in varying:
            curves += figure_html(plots.sweep_curves(dataset, name))
    sections.append(Section("Learning curves", curves))
    if names:
        sections.append(Section("Axes", _axis_figures(dataset, metric, varying)))
    seeds = figure_html(plots.seed_scores(dataset, metric=metric))
    seeds += figure_html(plots.profile(dataset, metric=metric))
    sections.append(Section("Seeds", seeds))
    return sections


def _note(scores: Scores, of: str) -> str:
    """The best configuration in words, after what it is the best of."""
    best = int(scores.ranking()[0])
    mean = f"{scores.means[best]:,.{decimals(scores.means[best])}f}"
    values = f"{scores.name(best)}; " if scores.names else ""
    return f"Best{of}: {values}mean {mean} over seeds."


def sweep_table(dataset: "xr.Dataset", metric: str = SCORE) -> str:
    """Return every configuration with mean, its interval or range, IQM, best first.

    Configurations of which no member has rows are left out.
    """
    headings, rows = best_rows(read_scores(dataset, metric))
    return table_html(headings, [[*r.values, *r.numbers, r.lost] for r in rows])


def _axis_figures(dataset: "xr.Dataset", metric: str, varying: Sequence[str]) -> str:
    if read_scores(dataset, metric).grid is None:
        return figure_html(plots.scatter(dataset, metric=metric))
    body = figure_html(plots.slices(dataset, metric=metric))
    if len(varying) < 2:
        return body
    pairs = [(a, b) for i, a in enumerate(varying) for b in varying[i + 1 :]]
    maps = [plots.heat_map(dataset, b, a, metric=metric) for a, b in pairs[:6]]
    return body + "".join(map(figure_html, maps))

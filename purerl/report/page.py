"""Reports as one HTML file: no server, no network, pictures inside.

A page is a header and sections; `write_page` writes any, and `run_page`, `sweep_page`,
`tuning_page` and `evolution_page` make the usual ones. Text takes the colours that the
reader prefers (dark or light); tables sort by a click on their header.
"""

import dataclasses
import html
import json
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from purerl import serialise
from purerl.report import page_parts, plots, statistics
from purerl.report.sweep_data import (
    SCORE,
    axis_names,
    configuration,
    env_name,
    label,
    read_scores,
    short,
)
from purerl.runner import manifest
from purerl.runner.result import RunResult

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from purerl.meta.comparison import LossComparison
    from purerl.meta.result import EvolutionResult

MAX_ROWS = 1_000


@dataclasses.dataclass(frozen=True)
class Section:
    """A heading and HTML under it; make the HTML with the functions of this module."""

    title: str
    body: str


def write_page(
    path: str | Path, title: str, *sections: Section, note: str = ""
) -> Path:
    """Write a page, atomically.

    Args:
        path: of the HTML file.
        title: of the page, as text.
        *sections: in their order.
        note: a line of text under the title.

    Returns:
        The path.

    Raises:
        OSError: the folder cannot be written to.
    """
    links = "".join(
        f'<a href="#s{i}">{html.escape(s.title)}</a>' for i, s in enumerate(sections)
    )
    parts = "".join(
        f'<section id="s{i}"><h2>{html.escape(s.title)}</h2>{s.body}</section>'
        for i, s in enumerate(sections)
    )
    lead = note_html(note) if note else ""
    text = page_parts.PAGE.format(
        title=html.escape(title),
        style=page_parts.STYLE,
        script=page_parts.SCRIPT,
        note=lead,
        links=links,
        sections=parts,
    )
    serialise.write_atomic(path, text)
    return Path(path)


def figure_html(figure: "Figure", caption: str = "") -> str:
    """A figure as inline SVG, or as PNG within the page where SVG would be large."""
    picture = page_parts.picture(figure)
    words = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{picture}{words}</figure>"


def table_html(
    headers: Sequence[str], rows: Sequence[Sequence[Any]], most: int = MAX_ROWS
) -> str:
    """A sortable table; numbers are aligned and sorted as numbers."""
    head = "".join(f"<th>{html.escape(str(name))}</th>" for name in headers)
    body = "".join(
        f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in rows[:most]
    )
    left = len(rows) - most
    more = f"<p class=note>{left:,} further rows are not shown.</p>" if left > 0 else ""
    table = f"<table class=sort><thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide">{table}</table></div>{more}'


def settings_html(values: Mapping[str, Any], *, closed: str = "") -> str:
    """Names and values; behind a heading that opens on a click if `closed` says one."""
    cells = "<tr><td>{}</td><td><code>{}</code></td></tr>"
    rows = "".join(
        cells.format(html.escape(str(name)), _text(value))
        for name, value in values.items()
    )
    table = f'<div class="wide"><table>{rows}</table></div>'
    if not closed:
        return table
    return f"<details><summary>{html.escape(closed)}</summary>{table}</details>"


def note_html(text: str) -> str:
    """A line of small text."""
    return f"<p class=note>{html.escape(text)}</p>"


def code_html(text: str) -> str:
    """Code as it is."""
    return f"<pre><code>{html.escape(text)}</code></pre>"


def about(config: Mapping[str, Any], load: str, **facts: Any) -> Section:
    """Where the results come from: facts, versions, command, config, how to load.

    Args:
        config: plain values.
        load: Python that reads the results; may be empty.
        **facts: further lines; empty ones are left out.
    """
    lines = {name.replace("_", " "): value for name, value in facts.items() if value}
    lines.setdefault("versions", ", ".join(f"{n} {v}" for n, v in _versions().items()))
    lines.setdefault("command", shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]))
    body = settings_html(lines)
    body += settings_html(config, closed=f"Configuration ({len(config)} fields)")
    if load:
        body += "<h3>Load it</h3>" + code_html(load)
    return Section("About", body)


def run_page(run: RunResult | str | Path, path: str | Path | None = None) -> Path:
    """Report of one run.

    Args:
        run: what `purerl.run` returned, or the folder it wrote.
        path: of the page; `report.html` in the run's folder if not given.

    Raises:
        ConfigError: no run in the folder.
        OSError: the page cannot be written.
    """
    from purerl.report import page_runs

    return page_runs.run_page(run, path)


def sweep_page(
    dataset: "xr.Dataset",
    path: str | Path,
    *,
    metric: str = SCORE,
    load: str = "",
    **facts: Any,
) -> Path:
    """Report of a sweep: best configurations, curves, axes, seeds.

    Args:
        dataset: of the sweep.
        path: of the page.
        metric: what the configurations are judged by.
        load: Python that reads the sweep; a usual way if not given.
        **facts: further lines about it, such as `command="..."`.

    Raises:
        ConfigError: no such metric, or no score yet.
        OSError: the page cannot be written.
    """
    scores = read_scores(dataset, metric)
    best = int(scores.ranking()[0])
    names = axis_names(dataset)
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
        **facts,
    )
    note = f"Best: {scores.name(best)}; mean {scores.means[best]:,.1f} over seeds."
    title = f"Sweep: {env_name(dataset)}"
    return write_page(path, title, *sections, about_it, note=note)


def sweep_table(dataset: "xr.Dataset", metric: str = SCORE) -> str:
    """Every configuration with mean, IQM, its interval or range, best first."""
    scores = read_scores(dataset, metric)
    heading = statistics.heading_of(scores.scores.shape[1])
    filled, rows = scores.filled, []
    ranking = scores.ranking()
    for place in ranking:
        found = statistics.estimate(filled[place])
        values = [scores.points[place][name] for name in scores.names]
        lost = int((~np.isfinite(scores.scores[place])).sum())
        numbers = [round(float(x), 3) for x in (filled[place].mean(), found.value)]
        rows.append([*values, *numbers, found.text(2, heading), lost])
    headers = [*map(short, scores.names), "mean", "IQM", heading, "lost"]
    return table_html(headers, rows)


def evolution_page(
    result: "EvolutionResult",
    path: str | Path | None = None,
    *,
    transfer: "LossComparison | None" = None,
    command: str = "",
) -> Path:
    """Report of an evolution: its curve, pictures of what was learned, generations.

    Args:
        result: of `purerl.evolve` or `purerl.load_evolution`, finished or not.
        path: of the page; `report.html` in the evolution's folder if not given.
        transfer: what `purerl.compare_losses` found of its loss.
        command: that started it; this one if not given.

    Raises:
        ConfigError: neither a path nor a folder.
        OSError: the page cannot be written.
    """
    from purerl.report import page_evolution

    return page_evolution.evolution_page(result, path, transfer, command)


def tuning_page(
    trials: Sequence[Any],
    path: str | Path,
    *,
    title: str = "Tuning",
    config: Mapping[str, Any] | None = None,
    figures: Mapping[str, "Figure"] | None = None,
    mode: str = "max",
    load: str = "",
    **facts: Any,
) -> Path:
    """Report of a search for hyperparameters.

    Args:
        trials: mappings (or objects with attributes) with `params`, a mapping, and
            `value`, a number or None; what else they hold becomes columns.
        path: of the page.
        title: of the page.
        config: the base config, plain values.
        figures: by caption.
        mode: `"max"` or `"min"`: which values are better.
        load: Python that reads the trials.
        **facts: further lines about it.

    Raises:
        ConfigError: trials without `params` and `value`, or another mode.
        OSError: the page cannot be written.
    """
    from purerl.report import page_runs

    return page_runs.tuning_page(
        trials,
        path,
        title=title,
        config=config or {},
        figures=figures or {},
        mode=mode,
        load=load,
        facts=facts,
    )


def _axis_figures(dataset: "xr.Dataset", metric: str, varying: Sequence[str]) -> str:
    if read_scores(dataset, metric).grid is None:
        return figure_html(plots.scatter(dataset, metric=metric))
    body = figure_html(plots.slices(dataset, metric=metric))
    if len(varying) < 2:
        return body
    pairs = [(a, b) for i, a in enumerate(varying) for b in varying[i + 1 :]]
    maps = [plots.heat_map(dataset, b, a, metric=metric) for a, b in pairs[:6]]
    return body + "".join(map(figure_html, maps))


def _versions() -> dict[str, str]:
    return manifest.versions()


def _cell(value: Any) -> str:
    if isinstance(value, bool | str) or value is None:
        return f"<td>{html.escape('-' if value is None else str(value))}</td>"
    if isinstance(value, int | float | np.number):
        number = float(value)
        known = math.isfinite(number)
        text = label(value) if abs(number) < 1e3 else f"{number:,.1f}"
        shown = text if known else "-"
        return f'<td class=n data-v="{number if known else ""}">{shown}</td>'
    return f"<td>{_text(value)}</td>"


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return html.escape(text)

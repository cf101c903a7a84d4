"""The pages of runs, sweeps, searches and studies, and of whatever a folder holds.

`purerl.report.html` has what pages are made of, and `purerl.report.page_comparison`
those of comparisons and evolutions.
"""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from purerl import hooks, serialise
from purerl.config import ConfigError, TrainConfig
from purerl.execution.format import program, quoted
from purerl.metrics import decimals
from purerl.report import html, plots, sweep_data, tables
from purerl.report.folder import load, read_result
from purerl.report.page_comparison import comparison_page, evolution_page
from purerl.report.plots import tuning
from purerl.report.rendering import can_render
from purerl.runner import manifest
from purerl.runner.result import RunResult
from purerl.runner.rows import WORTHLESS
from purerl.storage import folders

if TYPE_CHECKING:
    import xarray as xr

    from purerl.tuning.result import TuneResult

LUCKY = (
    "A score at the end favours the lucky: train what was found again with fresh seeds "
    "(purerl.train_schedules) before you compare it with anything."
)
MAX_VIDEO = 20_000_000  # Bytes of a video that a page holds.


def folder_page(folder: Path, path: Path | None = None) -> Path:
    """Write the page of whatever a folder holds.

    Args:
        folder: The folder.
        path: The path of the page; `report.html` in the folder if not given.

    Raises:
        ConfigError: it holds none of them, or nothing yet.
    """
    path = path or folder / "report.html"
    kind = folders.kind_of(folder)
    if kind == "run":
        config = manifest.load_run(folder)["config"]
        return run_page(read_result(folder), config, path)
    if kind == "sweep":
        return sweep_page(load(folder).dataset, path, folder)
    if kind in ("pbt", "halving"):
        return _search_page(folder, path)
    if kind == "tune":
        return study_page(load(folder), path)
    if kind == "evolution":
        from purerl.comparison.result import find_comparison

        return evolution_page(load(folder), path, find_comparison(folder))
    if kind == folders.COMPARISON:
        return comparison_page(load(folder), path)
    if (folder / "records").is_dir():
        return _own_search_page(folder, path)
    raise ConfigError(folders.refusal(folder, kind, ", for which there is no page"))


def run_page(result: RunResult, config: Mapping[str, Any], path: Path) -> Path:
    """Write the report of one run.

    Args:
        result: The run.
        config: Config of the run as plain values.
        path: The path of the page.

    Raises:
        OSError: the page cannot be written.
    """
    seeds, scores = "", result.scores()
    if np.isfinite(scores).any() and len(scores) > 1:
        title = "Final evaluation of every seed"
        seeds = html.figure(plots.score_groups({"evaluation": scores}, title=title))
    own = _own_metrics(config, result.metrics)
    sections = {
        "Learning curve": html.figure(plots.learning_curve(result)),
        "Own metrics": html.figure(plots.metric_curves(result, own)) if own else "",
        "Seeds": seeds,
        "Agents": html.table(*tables.agents_of(result)[:2]),
        "Videos": _videos(result.out, result.config) if result.out else "",
        "About": html.about(config, result.out, cut=tables.last_cut_note(result)),
    }
    notes = [*result.view().facts, *([WORTHLESS] if result.divergence else [])]
    notes = [f"{note[:1].upper()}{note[1:]}" for note in notes]
    title = f"Run: {serialise.env_name(config.get('env'))}"
    return html.write_page(path, title, sections, ". ".join(notes))


def _own_metrics(config: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[str]:
    """The own metrics that have a value, and what shaped rewards paid."""
    own = config.get("metrics", ())
    names = [n for n in metrics if hooks.reports(n, own) or n == "shaped_return"]
    return [name for name in names if np.isfinite(metrics[name]).any()]


def _videos(folder: Path, config: TrainConfig) -> str:
    """The videos in a run's folder, or the command that writes one, if one can."""
    files = sorted([*folder.glob("*.gif"), *folder.glob("*.mp4")])
    shown = [html.file(x, x.name) for x in files if x.stat().st_size <= MAX_VIDEO]
    if not shown and can_render(config):
        shown = [html.note("A video is written by")]
        shown.append(html.code(f"{program()} render {quoted(folder)}"))
    return "".join(shown)


def sweep_page(dataset: "xr.Dataset", path: Path, folder: Path | None = None) -> Path:
    """Write the report of a sweep: best configurations, curves, axes, seeds.

    Where the environment is an axis, each environment has these sections of its own.

    Args:
        dataset: The dataset of the sweep.
        path: The path of the page.
        folder: The folder of the sweep, if any.

    Raises:
        ConfigError: no score yet.
        OSError: the page cannot be written.
    """
    scores, parts = sweep_data.read_scores(dataset), sweep_data.by_environment(dataset)
    found = {name: sweep_data.read_scores(part) for name, part in parts.items()}
    any_scored = any(of.has_any for of in found.values())
    sections, notes = dict[str, str](), []
    for name, own in found.items():
        if any_scored and not own.has_any:
            notes.append(f"No member of {name} has a score.")
            continue
        before, of = (f"{name}: ", f" of {name}") if len(parts) > 1 else ("", "")
        for title, body in _sweep_sections(parts[name], own).items():
            sections[before + title] = body
        best = int(own.ranking()[0])
        mean = f"{own.means[best]:,.{decimals(own.means[best])}f}"
        values = f"{own.name(best)}; " if own.names else ""
        notes.append(f"Best{of}: {values}mean {mean} over seeds.")
    if scores.missing:
        notes.append(f"The sweep has not ended: {scores.missing}.")
    shape = " x ".join(map(str, scores.grid or (len(scores.points),)))
    sections["About"] = html.about(
        sweep_data.configuration(dataset),
        folder,
        axes=", ".join(scores.names),
        design=f"{dataset.attrs.get('design', 'grid')}, {shape} configurations",
        seeds=scores.scores.shape[1],
        diverged=int(scores.diverged.sum()),
        without_a_score=int((~np.isfinite(scores.scores)).sum()),
        not_finished=scores.missing,
    )
    title = f"Sweep: {sweep_data.env_name(dataset)}"
    return html.write_page(path, title, sections, " ".join(notes))


def _sweep_sections(dataset: "xr.Dataset", scores: sweep_data.Scores) -> dict[str, str]:
    """The sections of one environment."""
    varying = [name for name in scores.names if len(scores.values(name)) > 1]
    curves = [plots.sweep_curves(dataset)]
    against = [plots.slices(dataset)] if scores.names else []
    if scores.grid is not None:
        curves += [plots.sweep_curves(dataset, name) for name in varying]
        pairs = list(itertools.combinations(varying, 2))[:6]
        against += [plots.heat_map(dataset, b, a) for a, b in pairs]
    variables = {str(name): dataset[name].values for name in dataset.data_vars}
    own = _own_metrics(sweep_data.configuration(dataset), variables)
    metrics = [plots.sweep_curves(dataset, metric=own)] if own else []
    note = html.note("Lines: interquartile mean; members that diverged as the worst.")
    return {
        "Best configurations": html.table(*tables.best_rows(scores)),
        "Learning curves": note + "".join(map(html.figure, curves)),
        "Own metrics": "".join(map(html.figure, metrics)),
        "Axes": "".join(map(html.figure, against)),
        "Seeds": html.figure(plots.seed_scores(dataset)),
    }


def _search_page(folder: Path, path: Path) -> Path:
    """The page of population-based training, or of successive halving."""
    result = load(folder)
    if not result.steps:
        raise ConfigError(
            f"the search in {folder} has saved nothing yet. Run its command again."
        )
    dataset, names = result.dataset, list(result.space.axes)
    best = result.best_of_each()
    sections = {"Best members": html.table(*tables.member_rows(best))}
    own: dict[str, Any] = {"axes": ", ".join(names)}
    if folders.kind_of(folder) == "halving":
        title = "Successive halving"
        larger = "A dot per member; larger ones were trained longer."
        values = plots.halving_values(dataset, names)
        sections |= {
            "Rungs": html.table(*tables.rung_rows(dataset)),
            "Scores": html.figure(result.plot()),
            "Hyperparameters": html.figure(values, larger),
        }
    else:
        title = "Population-based training"
        lineages = {one.seed: one.lineage for one in best}
        bold = "Faint: every member. Bold: the training that led to the best member."
        values = plots.population_values(dataset, names, lineages)
        sections["Scores"] = html.figure(result.plot(), bold)
        sections["Hyperparameters"] = html.figure(values, bold)
        if best:
            first = max(best, key=lambda one: one.score)
            heading = f"Schedule of member {first.member}, seed {first.seed}"
            sections[heading] = html.table(*tables.schedule_rows(first))
        parents = dataset["parent"].values[:, :-1]
        everyone = np.arange(dataset.sizes["member"])
        own["copies"] = int((parents != everyone).sum())
    config = serialise.to_dict(result.config)
    sections["About"] = html.about(
        config,
        folder,
        **own,
        state="finished" if result.finished else "not finished",
        training_steps=f"{result.training_steps:,}",
        evaluation_steps=f"{result.evaluation_steps:,}",
    )
    return html.write_page(path, f"{title}: {config.get('env', '')}", sections, LUCKY)


def _own_search_page(folder: Path, path: Path) -> Path:
    """The page of a search that purerl knows nothing of but its folder."""
    from purerl.search.drive import score_of
    from purerl.search.folder import read_outcomes

    stored = folders.load(folder)
    scores, rows = [], []
    for number, outcome in enumerate(read_outcomes(folder)):
        scores.append(score_of(outcome))
        steps = int(outcome.train["env_steps"][:, -1].max())
        known = scores[-1][np.isfinite(scores[-1])]
        ends = (float(known.max()), float(known.mean())) if known.size else ("", "")
        members = len(outcome.diverged)
        rows.append([number, members, steps, *ends, int(outcome.diverged.sum())])
    caption = "A dot per member and request: its score."
    headers = ["request", "members", "env steps", "best", "mean", "diverged"]
    kind, config = str(stored["kind"]), stored["config"]
    sections = {
        "Scores": html.figure(plots.request_scores(scores), caption),
        "Requests": html.table(headers, rows),
        "About": html.about(config, folder, load=""),
    }
    title = f"{kind[:1].upper()}{kind[1:]}: {config.get('env', '')}"
    return html.write_page(path, title, sections, LUCKY)


_STUDY_CAPTIONS = {
    "history": "Scores in the order of the trials.",
    "importance": "Share of each axis in what makes a trial good.",
    "contour": "Smoothed score over pairs of axes; a star marks the best trial.",
    "slice": "Score against each axis; later trials are darker.",
}


def study_page(result: "TuneResult", path: Path) -> Path:
    """Write the report of a study with a folder, finished or not.

    Args:
        result: The result of the study.
        path: The path of the page.

    Raises:
        OSError: the page cannot be written.
    """
    assert result.out is not None
    stored = folders.load(result.out)
    found = tuning.figures(result.rows, result.importance, result.space.drawn())
    captions = _STUDY_CAPTIONS.items()
    fresh = ""
    if result.holdout is not None:
        first, last = result.holdout.seeds[0], result.holdout.seeds[-1]
        words = f"Seeds {first} to {last}, which no trial was trained with; the "
        words += f"difference is taken seed by seed. {result.holdout.note}"
        fresh = html.note(words) + html.table(*result.holdout.headings_and_rows())
    states = [row.state for row in result.rows]
    counts = {state: states.count(state) for state in dict.fromkeys(states)}
    costs = ("env_steps", "compilations", "seconds")
    facts = {
        "trials": ", ".join(f"{count} {state}" for state, count in counts.items()),
        "axes": stored["axes"],
        "seeds": stored["seeds"],
        **{n: f"{result.summary[n]:,}" for n in costs if n in result.summary},
    }
    sections = {
        "Trials": html.table(*result.headings_and_rows()),
        "On fresh seeds": fresh,
        "Search": "".join(html.figure(found[n], x) for n, x in captions if n in found),
        "About": html.about(stored["config"], result.out, **facts),
    }
    title = f"Tuning: {serialise.env_name(stored['config']['env'])}"
    return html.write_page(path, title, sections, ". ".join(result.view().facts))

"""The page of a result: facts, tables, pictures, and how it was made.

Every page is `page_of`. What a kind of result has on it is a mapping from headings to
HTML, made of the parts of `purerl.report.html`.
"""

import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from purerl import hooks, serialise
from purerl.algorithms import name_of
from purerl.comparison.result import Comparison, find_comparison, notes
from purerl.config import PART_KINDS, ConfigError, TrainConfig
from purerl.execution.format import program, quoted, with_noun
from purerl.meta.result import EvolutionResult
from purerl.population.halving import HalvingResult
from purerl.population.pbt import PBTResult
from purerl.population.search import Result
from purerl.report import html, plots, sweep_data, tables
from purerl.report.folder import look
from purerl.report.playing import can_render
from purerl.report.shown import Shown
from purerl.report.statistics import heading_of
from purerl.runner.arguments import seeds_named
from purerl.runner.result import RunResult
from purerl.runner.rows import WORTHLESS
from purerl.search.protocol import Finished
from purerl.storage import folders
from purerl.sweeps.result import SweepResult
from purerl.tuning.result import TuneResult

if TYPE_CHECKING:
    import xarray as xr

LUCKY = (
    "A score at the end favours the lucky: train what was found again with fresh seeds "
    "(purerl.train_schedules) before you compare it with anything."
)
MAX_VIDEO = 20_000_000  # Bytes of a video that a page holds.
Sections = dict[str, str]  # HTML by the heading over it; an empty one is left out.


def folder_page(folder: Path, out: Path | None = None) -> Path:
    """Write the page of whatever a folder holds.

    Args:
        folder: Folder to write of.
        out: Page to write; FOLDER/report.html if not given.

    Raises:
        ConfigError: it holds no results, or nothing yet.
    """
    return page_of(look(folder), out or folder / "report.html", folder)


def page_of(result: Shown, path: Path, folder: Path | None = None) -> Path:
    """Write the page of a result, finished or not, of which a folder has the config.

    Raises:
        ConfigError: nothing has been trained yet.
        OSError: the page cannot be written.
    """
    kind, make = KINDS[type(result)]
    sections, view = make(result), result.view()
    folder = folder or getattr(result, "out", None)
    config = getattr(result, "config", None)  # It counts where there is no folder.
    plain = {} if folder or config is None else serialise.to_dict(config)
    sections["About"] = html.about(folder, plain)
    facts = ". ".join(f"{fact[:1].upper()}{fact[1:]}" for fact in view.facts)
    return html.write_page(path, f"{kind}: {view.title}", sections, facts)


def run_sections(result: RunResult) -> Sections:
    """Curves, agents and videos of a run."""
    seeds, scores = "", result.scores()
    if np.isfinite(scores).any() and len(scores) > 1:
        title = "Final evaluation of every seed"
        seeds = html.figure(plots.score_groups({"evaluation": scores}, title=title))
    stored = folders.load(result.out)["config"] if result.out else {}
    own = _own_metrics(stored, result.metrics)
    cut, lost = tables.last_cut_note(result), WORTHLESS if result.divergence else ""
    return {
        "Learning curve": html.figure(plots.learning_curve(result)),
        "Own metrics": html.figure(plots.metric_curves(result, own)) if own else "",
        "Seeds": seeds,
        "Agents": html.table(*tables.agents_of(result)[:2]) + html.note(lost, cut),
        "Videos": _videos(result.out, result.config) if result.out else "",
    }


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


def sweep_sections(dataset: "xr.Dataset") -> Sections:
    """Best configurations, curves, axes and seeds of a sweep, for each environment.

    Raises:
        ConfigError: no member has a score yet.
    """
    parts, sections = sweep_data.by_environment(dataset), Sections()
    found = {name: sweep_data.read_scores(part) for name, part in parts.items()}
    any_scored = any(scores.has_any for scores in found.values())
    for name, scores in found.items():
        before = f"{name}: " if len(parts) > 1 else ""
        if any_scored and not scores.has_any:
            words = html.note(f"No member of {name} has a score.")
            sections[f"{before}Best configurations"] = words
            continue
        for title, body in _sweep_of_one(parts[name], scores).items():
            sections[before + title] = body
    return sections


def _sweep_of_one(dataset: "xr.Dataset", scores: sweep_data.Scores) -> Sections:
    """The sections of one environment."""
    varying = [name for name in scores.names if len(scores.values(name)) > 1]
    # Curves along the only axis are those of the best configurations.
    is_line = scores.grid is not None and len(varying) == 1
    curves = [] if is_line else [plots.sweep_curves(dataset)]
    against = [plots.slices(dataset)] if scores.names else []
    if scores.grid is not None:
        curves += [plots.sweep_curves(dataset, name) for name in varying]
        pairs = list(itertools.combinations(varying, 2))[:6]
        against += [plots.heat_map(dataset, b, a) for a, b in pairs]
    variables = {str(name): dataset[name].values for name in dataset.data_vars}
    own = _own_metrics(sweep_data.configuration(dataset), variables)
    metrics = [plots.sweep_curves(dataset, metric=own)] if own else []
    note = html.note("Lines: interquartile mean; members that diverged as the worst.")
    best = html.table(*tables.best_rows(scores))
    return {
        "Best configurations": best + html.note(scores.missing),
        "Learning curves": note + html.figures(*curves),
        "Own metrics": html.figures(*metrics),
        "Axes": html.figures(*against),
        "Seeds": html.figure(plots.seed_scores(dataset)),
    }


def search_sections(result: Result) -> Sections:
    """Best members, scores and values of a population or of successive halving."""
    if not result.steps:
        raise ConfigError("the search has saved nothing yet. Run its command again.")
    dataset, names, best = result.dataset, list(result.space.axes), []
    best = result.best_of_each()
    sections = {"Best members": html.table(*tables.member_rows(best))}
    sections["Best members"] += html.note(LUCKY)
    if isinstance(result, HalvingResult):
        words = "A dot per member; larger ones were trained longer."
        values = plots.halving_values(dataset, names)
        sections["Rungs"] = html.table(*tables.rung_rows(dataset))
    else:
        words = "Faint: every member. Bold: the training that led to the best member."
        lineages = {one.seed: one.lineage for one in best}
        values = plots.population_values(dataset, names, lineages)
    sections["Scores"] = html.figure(result.plot())
    sections["Hyperparameters"] = html.figure(values, words)
    if best and isinstance(result, PBTResult):
        first = max(best, key=lambda one: one.score)
        heading = f"Schedule of member {first.member}, seed {first.seed}"
        sections[heading] = html.table(*tables.schedule_rows(first))
    return sections


def own_search_sections(result: Finished) -> Sections:
    """Scores of a search that purerl knows nothing of but its folder."""
    caption = "A dot per member and request: its score."
    return {
        "Scores": html.figure(result.plot(), caption),
        "Requests": html.table(*result.headings_and_rows()) + html.note(LUCKY),
    }


def study_sections(result: TuneResult) -> Sections:
    """Trials, fresh seeds and pictures of a study."""
    found = plots.study_figures(result.rows, result.importance, result.space.drawn())
    fresh = ""
    if result.holdout is not None:
        words = (
            f"{seeds_named(result.holdout.seeds).capitalize()}, which no trial was "
            f"trained with; the difference is taken seed by seed. {result.holdout.note}"
        )
        fresh = html.note(words) + html.table(*result.holdout.headings_and_rows())
    return {
        "Trials": html.table(*result.headings_and_rows()),
        "On fresh seeds": fresh,
        "Search": html.figures(*found.values()),
    }


def comparison_sections(result: Comparison) -> Sections:
    """Scores, learning curves and settings of a comparison."""
    changes, whole = {}, result.about["environments"]
    for name, values in result.about["settings"].items():
        if values and "env" in values:
            whole = {name: values, **whole}
        else:
            changes[name] = ", ".join(map(_text, (values or {}).items()))
    settings = html.settings(changes) if changes else ""
    for name, values in whole.items():
        settings += html.settings(values, closed=f"Configuration of {name}")
    return {**_compared(result), "Settings": settings}


def _compared(result: Comparison) -> Sections:
    ends, seeds = heading_of(len(result.seeds)), with_noun(len(result.seeds), "seed")
    named, table = result.headings_and_rows()
    words = f"{seeds} that no search has trained with, the same for every setting; in "
    words += f"brackets {ends}; differences are from "
    words += ". ".join([f"{result.baseline}, seed by seed", *notes(result.rows)]) + "."
    if "failed" in named:
        words += " A run that failed counts as the worst score of its environment, or "
        words += "as a lower return that a run which did not fail has had on its way."
    drawn = "Mean return of the episodes that ended in a piece of the run; where none "
    drawn += "did it is the last one before, and at first the first one. "
    return {
        "Scores": html.table(named, table) + html.note(words),
        "Learning curves": html.figure(result.plot(), f"{drawn}Bands: {ends}."),
    }


def _text(change: tuple[str, Any]) -> str:
    """A change in words; of a part its text alone."""
    name, value = change
    if isinstance(value, dict):
        value = next((value[kind] for kind in PART_KINDS if kind in value), value)
    return f"{name}={value if isinstance(value, str) else json.dumps(value)}"


# Title and caption of what was learned, by field.
_LEARNED = {
    "value_loss": (
        "The value loss",
        "Left: the loss from its value at zero error, beside the squared error scaled "
        "to the same mean slope. Right: its gradient.",
    ),
    "policy_loss": (
        "The drift",
        "Above: the slope of the objective that the policy maximises, at four "
        "advantages. Below: the drift beside PPO's and DPO's, on one scale.",
    ),
}
_STEPS = (
    "The step of a parameter over Adam's, both in units of the step size, for a "
    "gradient that has been the same for long."
)


def evolution_sections(result: EvolutionResult) -> Sections:
    """Curve, pictures of what was learned, numbers and generations of an evolution."""
    own = serialise.env_name(result.config.env)
    tasks = result.settings["environments"] or [{}]
    places = [serialise.env_name(task.get("env", own)) for task in tasks]
    curves = html.figure(result.plot(), "Mean and best member of every generation.")
    if len(places) > 1:
        words = "Mean over members and rollouts, in units of each environment."
        drawn = plots.evolution_returns(result.history["returns"], places)
        curves += html.figure(drawn, words)
    sections = {"Curve": curves}
    pictures = result.pictures()
    for name in (*result.parts("loss"), *result.parts("optimiser")):
        title, caption = _LEARNED.get(name, (f"The {name.replace('_', ' ')}", _STEPS))
        body = html.figure(pictures[name], caption) if name in pictures else ""
        sections[title] = body + _use(result, name)
    headers, numbers = ["field", "start", "learned", "best member"], _numbers(result)
    sections["Numbers"] = html.table(headers, numbers) if numbers else ""
    transfer = find_comparison(result.out) if result.out else None
    if transfer is not None:
        sections["Held-out seeds"] = "".join(_compared(transfer).values())
    sections["Generations"] = html.table(*result.headings_and_rows())
    sections["Settings"] = html.settings(result.settings)
    return sections


def _use(result: EvolutionResult, name: str) -> str:
    """How to train with what was learned."""
    if result.out is None:
        return ""
    file = result.out / f"{name}.npz"
    part = f"{name} = purerl.load_part({str(file)!r})"
    return html.code(f"{train_command(result.config, name, file)}\n# or {part}")


def train_command(config: TrainConfig, name: str, file: Path) -> str:
    """Return the command that trains the same algorithm with an evolved part.

    Args:
        config: Config of the evolution.
        name: Name of the field that holds the part.
        file: File of the part.
    """
    algorithm = name_of(config)
    chosen = "" if algorithm == "ppo" else f"--algorithm {algorithm} "
    return f"{program()} train {chosen}--{name.replace('_', '-')} {quoted(file)}"


def _numbers(result: EvolutionResult) -> list[list[Any]]:
    """Name, start, learned and best of every number that is no part of a network."""
    rows = []
    is_known = np.isfinite(result.history["best"]).any()
    best = result.best().point if is_known else result.start
    three = (result.start, result.solution, best)
    flat = [jax.tree_util.tree_flatten_with_path(values)[0] for values in three]
    for (where, start), (_, learned), (_, highest) in zip(*flat, strict=True):
        if np.ndim(start) == 0:
            name = where[0].key + jax.tree_util.keystr(where[1:])
            rows.append([name, *(float(x) for x in (start, learned, highest))])
    return rows


# What the title of a page calls a result, and what makes its sections.
KINDS: dict[type, tuple[str, Callable[[Any], Sections]]] = {
    RunResult: ("Run", run_sections),
    SweepResult: ("Sweep", lambda result: sweep_sections(result.dataset)),
    PBTResult: ("Population-based training", search_sections),
    HalvingResult: ("Successive halving", search_sections),
    TuneResult: ("Tuning", study_sections),
    EvolutionResult: ("Evolution", evolution_sections),
    Comparison: ("Comparison", comparison_sections),
    Finished: ("Search", own_search_sections),
}

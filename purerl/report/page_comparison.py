"""The pages of comparisons and evolutions."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from purerl import serialise
from purerl.algorithms import name_of
from purerl.config import PART_KINDS, TrainConfig
from purerl.execution.format import program, quoted, with_noun
from purerl.report import plots
from purerl.report.comparison import (
    ALL,
    ends_of,
    notes,
    short,
    words_for,
)
from purerl.report.html import (
    about,
    code_html,
    figure_html,
    note_html,
    settings_html,
    table_html,
    write_page,
)
from purerl.report.statistics import heading_of

if TYPE_CHECKING:
    from purerl.comparison.result import Comparison
    from purerl.meta.result import EvolutionResult


def comparison_page(result: "Comparison", path: str | Path) -> Path:
    """Write the report of a comparison: scores, learning curves, the settings.

    Args:
        result: The result of `purerl.compare` or `purerl.load_comparison`.
        path: The file to write.

    Raises:
        OSError: the page cannot be written.
    """
    configs = iter(result.about["environments"].items())
    _, first = next(configs, ("", {}))
    facts = {
        "environments": ", ".join(result.environments),
        "baseline": result.baseline,
        "held-out seeds": f"{len(result.seeds)}, from the key of seed {result.seed}",
        "measures": ", ".join(
            f"{short(name)}: {words_for(name)}" for name in result.measures
        ),
    }
    others = [
        settings_html(values, closed=f"Configuration of {name}")
        for name, values in configs
    ]
    sections = {
        "Scores": _scores_html(result),
        "Learning curves": _curves_html(result),
        "Settings": _settings(result),
        "About": about(first, result.out, **facts) + "".join(others),
    }
    title = f"Comparison: {', '.join(result.environments)}"
    return write_page(path, title, sections, _note(result))


def _curves_html(result: "Comparison") -> str:
    """The learning curves of a comparison."""
    ends = heading_of(len(result.seeds))
    words = "Mean return of the episodes that ended in a piece of the run; where none "
    words += "did it is the last one before, and at first the first one. "
    words += f"Bands: {ends}."
    return figure_html(result.plot(), words)


def _scores_html(result: "Comparison") -> str:
    """The table of a comparison, and how to read it."""
    named, table = result.headings_and_rows()
    words = with_noun(len(result.seeds), "seed")
    words += " that no search has trained with, the same for every setting; in "
    words += f"brackets {heading_of(len(result.seeds))}; differences are from "
    words += ". ".join([f"{result.baseline}, seed by seed", *notes(result.rows)]) + "."
    if "failed" in named:
        words += " A run that failed counts as the worst score of its environment, or "
        words += "as a lower return that a run which did not fail has had on its way."
    return table_html(named, table) + note_html(words)


def _settings(result: "Comparison") -> str:
    """A table of what every setting changes; a whole config behind a click."""
    body = ""
    short: dict[str, str] = {}
    for name, values in result.about["settings"].items():
        if values and "env" in values:
            title = f"{name}: a whole configuration, {values.get('algorithm', '')}"
            body += settings_html(values, closed=title)
        else:
            short[name] = _text(values)
    return (settings_html(short) if short else "") + body


def _text(values: dict[str, Any] | None) -> str:
    """Changes in a line."""
    if not values:
        return "the configuration as it is"
    found = []
    for name, value in values.items():
        if isinstance(value, dict):
            kind = next((kind for kind in PART_KINDS if kind in value), None)
            if kind is not None:
                value = value[kind]
            elif "sha256" in value:
                value = f"{value['numbers']} numbers ({value['sha256'][:12]})"
        text = value if isinstance(value, str) else json.dumps(value)
        found.append(f"{name}={text}")
    return ", ".join(found)


def _note(result: "Comparison") -> str:
    """The best setting by the last measure, or all there is to say of one alone."""
    places = result.environments
    environment = places[0] if len(places) == 1 else ALL
    measure = result.measures[-1]
    rows = [
        row
        for row in result.rows
        if row.environment == environment
        and row.measure == measure
        and row.difference == row.difference  # The difference is NaN for the baseline.
    ]
    lead = f"{len(result.settings)} settings, {len(result.seeds)} held-out seeds each."
    if not rows:
        return lead
    best = max(rows, key=lambda row: row.difference)
    words = heading_of(best.seeds)
    ends = ends_of(best, "difference", words)
    where = f"{short(measure)} in {environment}"
    first = f"Furthest above {result.baseline} by {where}"
    if best.difference <= 0:
        first = f"None is above {result.baseline} by {where}; nearest"
    clear = ", clear of zero at 5% (all settings together)" if best.is_clear else ""
    return (
        f"{lead} {first}: {best.setting}, {best.difference:+,.3g} "
        f"({words}: {ends}){clear}."
    )


_CAPTIONS = {
    "value_loss": "Left: the loss from its value at zero error, beside the squared "
    "error scaled to the same mean slope. Right: its gradient.",
    "policy_loss": "Above: the drift beside PPO's and DPO's, on one scale. Below: the "
    "slope of the objective that the policy maximises, at four advantages.",
}
_STEPS = (
    "The step of a parameter over Adam's, both in units of the step size, for a "
    "gradient that has been the same for long."
)
_TITLES = {"value_loss": "The value loss", "policy_loss": "The drift"}
_COSTS = ("agents", "env_steps", "steps_per_second", "train_seconds")


def evolution_page(
    result: "EvolutionResult",
    path: Path,
    transfer: "Comparison | None" = None,
) -> Path:
    """Write the report of an evolution: curve, pictures of what was learned, rows.

    Args:
        result: The result of `purerl.evolve` or `purerl.load_evolution`, finished or
            not.
        path: The path of the page.
        transfer: The comparison of what was learned with others, by `purerl.compare`.

    Raises:
        OSError: the page cannot be written.
    """
    history, settings = result.history, result.settings
    own = serialise.env_name(result.config.env)
    places = [
        serialise.env_name(x.get("env", own)) for x in settings["environments"] or [{}]
    ]
    curves = figure_html(result.plot(), "Mean and best member of every generation.")
    if history["returns"].shape[1] > 1:
        curves += figure_html(
            plots.evolution_returns(history["returns"], places),
            "Mean over members and rollouts, in units of each environment.",
        )
    sections = {"Curve": curves}
    pictures, learned = result.pictures(), result.learned
    for name in (*result.losses(learned), *result.optimisers(learned)):
        body = ""
        if name in pictures:
            body = figure_html(pictures[name], _CAPTIONS.get(name, _STEPS))
        title = _TITLES.get(name, f"The {name.replace('_', ' ')}")
        sections[title] = body + _use(result, name)
    numbers = _numbers(result)
    if numbers:
        headers = ["field", "start", "learned", "best member"]
        sections["Numbers"] = table_html(headers, numbers)
    if transfer is not None:
        sections["Held-out seeds"] = _curves_html(transfer) + _scores_html(transfer)
    sections["Generations"] = table_html(*result.headings_and_rows())
    facts = {
        "generations": f"{result.done:,} of {result.generations:,}",
        "population": f"{settings['population']:,} x {settings['rollouts']} rollouts",
        "fitness": settings["fitness"],
        "environments": ", ".join(places),
        "strategy": settings["strategy"],
        "evolved": settings["evolve"],
        "seed": str(settings["seed"]),
        "members failed": f"{int(history['failed'].sum()):,}",
        **{key: f"{result.summary[key]:,}" for key in _COSTS if key in result.summary},
    }
    config = serialise.to_dict(result.config)
    sections["About"] = about(config, result.out, **facts)
    title = f"Evolution: {result.view().title}"
    return write_page(path, title, sections, ". ".join(result.view().facts))


def _use(result: "EvolutionResult", name: str) -> str:
    if result.out is None:
        return ""
    file = result.out / f"{name}.npz"
    config = type(result.config).__name__
    return code_html(train_command(result.config, name, file)) + code_html(
        f"import purerl\n\nconfig = purerl.{config}({name}=purerl.load_part("
        f"{str(file)!r}))"
    )


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


def _numbers(result: "EvolutionResult") -> list[list[Any]]:
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

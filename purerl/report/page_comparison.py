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
from purerl.report import html, plots
from purerl.report.comparison import notes, short, words_for
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
    first, *others = result.about["environments"].items()
    facts = {
        "environments": ", ".join(result.environments),
        "baseline": result.baseline,
        "held-out seeds": f"{len(result.seeds)}, from the key of seed {result.seed}",
        "measures": ", ".join(
            f"{short(name)}: {words_for(name)}" for name in result.measures
        ),
    }
    made = html.about(first[1], result.out, **facts)
    for name, values in others:
        made += html.settings(values, closed=f"Configuration of {name}")
    sections = {
        "Scores": _scores_html(result),
        "Learning curves": _curves_html(result),
        "Settings": _settings(result),
        "About": made,
    }
    title = f"Comparison: {', '.join(result.environments)}"
    return html.write_page(path, title, sections, ". ".join(result.view().facts))


def _curves_html(result: "Comparison") -> str:
    """The learning curves of a comparison."""
    ends = heading_of(len(result.seeds))
    words = "Mean return of the episodes that ended in a piece of the run; where none "
    words += "did it is the last one before, and at first the first one. "
    words += f"Bands: {ends}."
    return html.figure(result.plot(), words)


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
    return html.table(named, table) + html.note(words)


def _settings(result: "Comparison") -> str:
    """A table of what every setting changes; a whole config behind a click."""
    body, changes = "", {}
    for name, values in result.about["settings"].items():
        if values and "env" in values:
            title = f"{name}: a whole configuration, {values.get('algorithm', '')}"
            body += html.settings(values, closed=title)
        else:
            changes[name] = ", ".join(map(_text, (values or {}).items()))
    return (html.settings(changes) if changes else "") + body


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
    own, tasks = serialise.env_name(result.config.env), settings["environments"] or [{}]
    places = [serialise.env_name(task.get("env", own)) for task in tasks]
    words = "Mean and best member of every generation."
    curves = html.figure(result.plot(), words)
    if len(places) > 1:
        words = "Mean over members and rollouts, in units of each environment."
        curves += html.figure(
            plots.evolution_returns(history["returns"], places), words
        )
    sections = {"Curve": curves}
    pictures, learned = result.pictures(), result.learned
    for name in (*result.losses(learned), *result.optimisers(learned)):
        title, caption = _LEARNED.get(name, (f"The {name.replace('_', ' ')}", _STEPS))
        body = html.figure(pictures[name], caption) if name in pictures else ""
        sections[title] = body + _use(result, name)
    headers, numbers = ["field", "start", "learned", "best member"], _numbers(result)
    sections["Numbers"] = html.table(headers, numbers) if numbers else ""
    if transfer is not None:
        sections["Held-out seeds"] = _curves_html(transfer) + _scores_html(transfer)
    sections["Generations"] = html.table(*result.headings_and_rows())
    facts = {
        "generations": f"{result.done:,} of {result.generations:,}",
        "population": f"{settings['population']:,} x {settings['rollouts']} rollouts",
        "environments": ", ".join(places),
        **{name: settings[name] for name in ("fitness", "strategy", "seed")},
        "evolved": settings["evolve"],
        "members failed": f"{int(history['failed'].sum()):,}",
        **{key: f"{result.summary[key]:,}" for key in _COSTS if key in result.summary},
    }
    config = serialise.to_dict(result.config)
    sections["About"] = html.about(config, result.out, **facts)
    title = f"Evolution: {result.view().title}"
    return html.write_page(path, title, sections, ". ".join(result.view().facts))


def _use(result: "EvolutionResult", name: str) -> str:
    """How to train with what was learned."""
    if result.out is None:
        return ""
    file, config = result.out / f"{name}.npz", type(result.config).__name__
    part = f"{name}=purerl.load_part({str(file)!r})"
    command = train_command(result.config, name, file)
    return html.code(command) + html.code(
        f"import purerl\n\nconfig = purerl.{config}({part})"
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

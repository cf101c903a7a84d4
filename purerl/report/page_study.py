"""The page of a tuning study: its best trials, the comparison, how it was searched."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from purerl.report.html import (
    Section,
    about,
    figure_html,
    made_with,
    note_html,
    table_html,
    write_page,
)
from purerl.report.plots import tuning
from purerl.report.sweep_data import label, short

if TYPE_CHECKING:
    from purerl.tuning.result import Holdout, TuneResult
    from purerl.tuning.space import Space

_CAPTIONS = {
    "history": "Scores in the order of the trials.",
    "importance": "Share of each axis in what makes a trial good.",
    "contour": "Smoothed score over pairs of axes; a star marks the best trial.",
    "slice": "Score against each axis; later trials are darker.",
}
_COSTS = ("env_steps", "compilations", "seconds")


def study_page(
    result: "TuneResult",
    space: "Space",
    stored: Mapping[str, Any],
    path: Path,
) -> Path:
    """Write the report of a study, finished or not.

    Args:
        result: The result of the study.
        space: The axes that the study searches.
        stored: The manifest of the study.
        path: The path of the page.

    Raises:
        OSError: the page cannot be written.
    """
    sections = [Section("Trials", _trials(result))]
    if result.holdout is not None:
        sections.append(Section("On fresh seeds", _holdout(result.holdout)))
    found = tuning.figures(result.rows, result.importance, space.drawn())
    pictures = "".join(
        figure_html(found[name], caption)
        for name, caption in _CAPTIONS.items()
        if name in found
    )
    if pictures:
        sections.append(Section("Search", pictures))
    sections.append(_about(result, stored))
    title = f"Tuning: {stored['config']['env']}"
    return write_page(path, title, *sections, note=_note(result))


def _trials(result: "TuneResult") -> str:
    """All trials, the best first, those without a score last."""
    names = list(result.rows[0].params) if result.rows else []
    rows = sorted(
        result.rows,
        key=lambda row: (row.score is None, -(row.score or 0.0), row.number),
    )
    table = [
        [
            row.number,
            *(row.params[name] for name in names),
            row.score,
            row.state,
            row.env_steps,
            "default" if row.is_default else row.note,
        ]
        for row in rows
    ]
    headers = ["trial", *map(short, names), "score", "state", "steps", "note"]
    return table_html(headers, table)


def _holdout(holdout: "Holdout") -> str:
    first, last = holdout.seeds[0], holdout.seeds[-1]
    words = f"Seeds {first} to {last}, which no trial was trained with; the difference "
    words += f"is taken seed by seed. {holdout.note}"
    return note_html(words.strip()) + table_html(*holdout.headings_and_rows())


def _about(result: "TuneResult", stored: Mapping[str, Any]) -> Section:
    states = [row.state for row in result.rows]
    counts = {state: states.count(state) for state in dict.fromkeys(states)}
    numbers = {n: f"{result.summary[n]:,}" for n in _COSTS if n in result.summary}
    load = f"import purerl\n\nresult = purerl.load_tune({str(result.out)!r})\n"
    load += "print(result.best(), result.holdout)"
    facts = {
        "trials": ", ".join(f"{count} {state}" for state, count in counts.items()),
        "axes": stored["axes"],
        "seeds": stored["seeds"],
        **{name: stored.get(name) for name in ("sampler", "pruner")},
        "fitness": stored.get("fitness"),
        **numbers,
        **made_with(result.out),
    }
    return about(stored["config"], load, **facts)


def _note(result: "TuneResult") -> str:
    best = result.best_row
    if best is None:
        return "No trial is complete yet."
    words = ", ".join(f"{short(n)}={label(v)}" for n, v in best.params.items())
    state = "" if result.finished else " The study is not finished."
    return f"Best: trial {best.number}, {words}; score {best.score:,.4g}.{state}"

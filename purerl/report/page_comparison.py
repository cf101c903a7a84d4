"""The page of a comparison: its scores, learning curves, what the settings are."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from purerl.config import PART_KINDS
from purerl.metrics import decimals
from purerl.report.comparison import ALL, SHORT, WORDS
from purerl.report.html import (
    Section,
    about,
    figure_html,
    note_html,
    settings_html,
    table_html,
    write_page,
)
from purerl.report.statistics import INTERVAL, heading_of, text_of
from purerl.report.sweep_data import seeds_in_words

if TYPE_CHECKING:
    from purerl.comparison.result import Comparison
    from purerl.report.comparison import Row


def comparison_page(
    result: "Comparison", path: str | Path, *, folder: str = "", command: str = ""
) -> Path:
    """Write the report of a comparison: scores, learning curves, the settings.

    Args:
        result: The result of `purerl.compare` or `purerl.load_comparison`.
        path: The file to write.
        folder: The folder that holds the comparison, if any.
        command: The command that wrote the comparison, if any.

    Raises:
        OSError: the page cannot be written.
    """
    places = result.about["environments"]
    load = f"import purerl\n\nresult = purerl.load_comparison({folder or 'FOLDER'!r})\n"
    load += "print(result.to_dataframe())"
    facts = {
        "environments": ", ".join(result.environments),
        "baseline": result.baseline,
        "held-out seeds": f"{len(result.seeds)}, from the key of seed {result.seed}",
        "measures": ", ".join(
            f"{SHORT[name]}: {WORDS[name]}" for name in result.measures
        ),
        "command": command,
    }
    configs = [
        settings_html(values, closed=f"Configuration of {name}")
        for name, values in list(places.items())[1:]
    ]
    about_it = about(next(iter(places.values()), {}), load, **facts)
    sections = [
        Section("Scores", scores_html(result)),
        Section("Learning curves", curves_html(result)),
        Section("Settings", _settings(result)),
        Section(about_it.title, about_it.body + "".join(configs)),
    ]
    title = f"Comparison: {', '.join(result.environments)}"
    return write_page(path, title, *sections, note=_note(result))


def curves_html(result: "Comparison") -> str:
    """Return the learning curves as HTML."""
    ends = heading_of(len(result.seeds))
    words = "Mean return of the episodes that ended in a piece of the run; where none "
    words += "did it is the last one before, and at first the first one. "
    words += f"Bands: {ends}."
    return figure_html(result.plot(), words)


def scores_html(result: "Comparison") -> str:
    """Return the table of a comparison, and how to read it, as HTML."""
    ends = heading_of(len(result.seeds))
    headers = ["environment", "measure", "setting", "mean", ends, "IQM"]
    headers += [f"minus {result.baseline}", ends, "P(better)", INTERVAL]
    any_failed = any(row.failed for row in result.rows)
    rows = [
        [
            row.environment,
            SHORT[row.measure],
            row.setting,
            row.mean,
            _range(row, "mean", ends),
            row.iqm,
            row.difference,
            _range(row, "difference", ends),
            row.better,
            _range(row, "better", INTERVAL, digits=2),
            *([row.failed] if any_failed else []),
        ]
        for row in result.rows
    ]
    body = table_html([*headers, *(["failed"] if any_failed else [])], rows)
    words = seeds_in_words(len(result.seeds))
    words += " that no search has trained with, the same "
    words += "for every setting; differences are taken seed by seed."
    if len(result.environments) > 1:
        words += f" Over {ALL}, in units of the baseline's mean in each, or "
        words += "of the spread of all settings' scores where that is larger."
    if any_failed:
        words += " A run that failed counts as the worst score of its environment, or "
        words += "as a lower return that a run which did not fail has had on its way."
    return body + note_html(words)


def _range(row: "Row", name: str, heading: str, digits: int | None = None) -> str:
    """The ends beside a number of a row, under a heading; no line break parts them."""
    low, high = getattr(row, f"{name}_low"), getattr(row, f"{name}_high")
    if digits is None:
        digits = decimals(low, high)
    text = text_of(low, high, heading_of(row.seeds), digits, heading)
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _settings(result: "Comparison") -> str:
    """Return a table of what every setting changes; a whole config behind a click."""
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
    ends = _range(best, "difference", words).replace("\N{NO-BREAK SPACE}", " ")
    first = f"Furthest above {result.baseline} by {SHORT[measure]} in {environment}"
    if best.difference <= 0:
        first = f"None is above {result.baseline} by {SHORT[measure]} in {environment}"
        first += "; nearest" if best.difference else "; equal"
    return (
        f"{lead} {first}: {best.setting}, {best.difference:+,.3g} "
        f"({words}: {ends}){_clear_words(best, len(rows))}."
    )


def _clear_words(row: "Row", differences: int) -> str:
    """Return words for a difference that is clear of zero, or not; none of few runs."""
    if heading_of(row.seeds) != INTERVAL or row.difference_low != row.difference_low:
        return ""
    together = f", {differences} differences taken together" if differences > 1 else ""
    return f", {'' if row.is_clear else 'not '}clear of zero at 5%{together}"

"""The part of docs/results.md on losses: evolved, hand-written, and case studies.

Rendered by `python experiments/results.py` from what the experiments wrote to
experiments/results/*.json. Rows are those of `purerl.compare`.
"""

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from printed import printed_on

from purerl.report.statistics import heading_of, text_of

STORE = Path(__file__).parent / "results"
MEASURES = {
    "training_curve": "area",
    "final_return": "final",
    "evaluation": "evaluation",
}
CURVE = (
    "The evolution: the mean of the members with their standard deviation in the band, "
    "and the best member"
)
LINES = (
    "Learning curves on held-out seeds: the mean of the seeds, and in the band its 95% "
    "interval"
)


class Study(NamedTuple):
    """An experiment with a table of losses.

    Attributes:
        name: Name of the experiment's file.
        title: Heading of the section.
        what: Sentence before the table.
        tables: Key of the rows in the file -> heading of the table, if any.
        pictures: File in docs/images -> what it shows.
    """

    name: str
    title: str
    what: str
    tables: dict[str, str]
    pictures: dict[str, str]


STUDIES = (
    Study(
        "evolve-value-loss",
        "A value loss evolved on CartPole-v1",
        "A random 1-64-64-1 network in place of the critic's squared error, evolved by "
        "Open-ES, with a step size of PPO (0.001) at which a critic matters; the "
        "hand-written losses' coefficients (with clip, with delta) were tuned on a "
        "grid of 49 by 16 other seeds. All judged on 64 held-out seeds.",
        {
            "generations": "Along the evolution; differences are from generation 0:",
            "judged": "Beside hand-written losses, and in two environments that it was "
            "not evolved in; differences are from the learned loss:",
        },
        {
            "evolution-value-loss-curve.png": CURVE,
            "evolution-value-loss.png": "The learned loss beside the squared error",
            "evolution-value-loss-transfer.png": LINES,
        },
    ),
    Study(
        "evolve-drift",
        "A drift evolved from none",
        "A drift network of the published form, from zero parameters (an unclipped "
        "policy gradient), evolved by Open-ES on CartPole-v1 and judged on 64 held-out "
        "seeds.",
        {
            "generations": "Along the evolution; differences are from generation 0:",
            "judged": "Beside hand-written drifts, and in two environments that it was "
            "not evolved in; differences are from the learned drift:",
        },
        {
            "evolution-drift-curve.png": CURVE,
            "evolution-drift.png": "The learned drift beside those of PPO and DPO",
            "evolution-drift-transfer.png": LINES,
        },
    ),
    Study(
        "compare-drifts",
        "DPO's drift beside PPO's",
        "Two continuous tasks, 200,000 steps, 16 seeds, settings chosen for PPO. "
        "Differences are from PPO:",
        {"rows": ""},
        {
            "drifts-dpo-ppo.png": "Learning curves: the mean of the seeds, and in "
            "the band its 95% interval"
        },
    ),
)


def plain_rows(rows: Any) -> list[dict[str, Any]]:
    """Rows of a comparison as plain values; None where there is no number."""
    return [
        {name: None if _is_nan(value) else value for name, value in row.items()}
        for row in (row._asdict() for row in rows)
    ]


def section() -> list[str]:
    """Lines of markdown, of the studies whose numbers are there."""
    lines: list[str] = []
    for study in STUDIES:
        path = STORE / f"{study.name}.json"
        if path.exists():
            lines += _study(study, json.loads(path.read_text()))
            lines += _others(study.name)
    if lines:
        lines = [
            "",
            "## Losses, evolved and hand-written",
            "",
            "*Area* is the mean of the training curve, *final* that of its last tenth; "
            "means with 95% intervals, differences seed by seed, and the probability "
            "that a run is better than one of the baseline's. Only the ends of these "
            "intervals were kept, and they are percentiles of a bootstrap of 64 seeds, "
            "or of 16 in the last table. Of 16 seeds such an interval of a mean holds "
            "in 0.80 to 0.93 of samples (see `experiments/interval_coverage.py`).",
            *lines,
        ]
    return lines


def _study(study: Study, numbers: dict[str, Any]) -> list[str]:
    seconds = numbers["seconds"]
    if isinstance(seconds, dict):
        parts = ", ".join(f"{name} {value:,} s" for name, value in seconds.items())
    else:
        parts = f"{seconds:,} s"
    lines = ["", f"### {study.title}", "", study.what]
    if "tuned" in numbers:
        lines.append(f"Tuned: {'; '.join(numbers['tuned'].values())}.")
    if "history" in numbers:
        means = numbers["history"]["mean"]
        lines.append(
            f"The population's mean fitness went from {means[0]:.1f} in the first to "
            f"{means[-1]:.1f} in the last of {len(means)} generations."
        )
    for key, heading in study.tables.items():
        lines += ["", *([heading, ""] if heading else []), *_table(numbers[key])]
    lines += [
        "",
        *(
            line
            for file, text in study.pictures.items()
            for line in (f"![{text}](images/{file})", "", f"*{text}.*", "")
        ),
    ]
    lines += [
        "",
        f"`{numbers['command']}`: {parts}; {printed_on(numbers)}.",
    ]
    return lines


def _others(name: str) -> list[str]:
    """A row per other setting of a study that was tried, and one of the study's."""
    others = sorted(STORE.glob(f"{name}-*.json"))
    if not others:
        return []
    found = [json.loads(p.read_text()) for p in [STORE / f"{name}.json", *others]]
    environments = list(dict.fromkeys(row["environment"] for row in found[0]["judged"]))
    environments = [e for e in environments if _area(found[0], e, "learned")]
    first, *rest = environments
    lines = [
        "",
        "All settings of the evolution that were tried, by the area under the curve on "
        f"the held-out seeds; the difference is that of the tuned squared error on "
        f"{first}:",
        "",
        f"| command | population, first and last | {first} | tuned squared error | "
        f"{' | '.join(rest)} | evolution |",
        "|---|---|---|---|" + "---|" * (len(rest) + 1),
    ]
    for numbers in found:
        means = numbers["history"]["mean"]
        tuned = _area(numbers, first, "squared tuned")
        areas = [_interval(_area(numbers, e, "learned"), "mean") for e in environments]
        lines.append(
            f"| `{numbers['command'].removeprefix('python experiments/')}` | "
            f"{means[0]:.1f}, {means[-1]:.1f} | {areas[0]} | "
            f"{_interval(tuned, 'difference')} | {' | '.join(areas[1:])} | "
            f"{numbers['seconds']['evolve']:,} s |"
        )
    return lines


def _area(numbers: dict[str, Any], environment: str, loss: str) -> dict[str, Any]:
    """The row of a loss's area in an environment; empty where there is none."""
    for row in numbers["judged"]:
        place = (row["environment"], _name(row), row["measure"])
        if place == (environment, loss, "training_curve") and not _is_nan(row["mean"]):
            return row
    return {}


def _table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| environment | measure | loss | mean | difference | P(better) |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        if _is_nan(row["mean"]):
            continue  # All environments together have no common unit.
        cells = [_interval(row, name) for name in ("mean", "difference", "better")]
        measure = MEASURES[row["measure"]]
        lines.append(
            f"| {row['environment']} | {measure} | {_name(row)} | {' | '.join(cells)} |"
        )
    return lines


def _name(row: dict[str, Any]) -> str:
    """The loss of a row; rows that were kept before had it by that word."""
    return row["setting"] if "setting" in row else row["loss"]


def _interval(row: dict[str, Any], name: str) -> str:
    values = [row[name], row[f"{name}_low"], row[f"{name}_high"]]
    if any(_is_nan(value) for value in values):
        return ""
    largest = max(abs(value) for value in values)
    digits = 3 if largest < 2 else 2 if largest < 20 else 1 if largest < 1000 else 0
    sign = "+" if name == "difference" else ""
    text = f"{values[0]:{sign},.{digits}f}"
    ends = text_of(values[1], values[2], heading_of(row["seeds"]), digits, sign=sign)
    return f"{text} ({ends})"


def _is_nan(value: Any) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))

"""Numbers of a benchmark: spread over rounds, goals, a table, a file."""

import json
import os
import platform
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple


class Run(NamedTuple):
    """One timed run.

    Attributes:
        seconds: Seconds of the wall clock, until every result was there.
        score: Number that shows that the run did its work (a mean return, say).
        cpu_seconds: Seconds of all threads of the process; on a machine shared with
            others it says more than the clock.
    """

    seconds: float
    score: float = float("nan")
    cpu_seconds: float = float("nan")


Measure = Callable[[int], Run]


class Spread(NamedTuple):
    """Median, smallest and largest of the rounds."""

    median: float
    low: float
    high: float


class Goal(NamedTuple):
    """`is_floor`: the figure must be at least `bound`, else at most."""

    is_floor: bool
    bound: float

    def is_met(self, figure: float) -> bool:
        """Return whether a figure reaches the goal."""
        return figure >= self.bound if self.is_floor else figure <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.is_floor else '≤'} {self.bound:g}"


@dataclass
class Row:
    """One line of the table.

    Attributes:
        name: what was measured.
        unit: of `purerl` and `other`.
        purerl: ours.
        other: the peer's, if there is one.
        other_name: who that is.
        figure: the number that the goal speaks of; of several rounds the ratio of
            the medians with the smallest and largest ratio of a round.
        goal: None for a line that is there to inform.
        note: scores, compile seconds.
    """

    name: str
    unit: str
    purerl: Spread
    other: Spread | None
    other_name: str
    figure: Spread
    goal: Goal | None = None
    note: str = ""
    rounds: dict[str, list[float]] = field(default_factory=dict)

    @property
    def is_met(self) -> bool | None:
        """True if the goal is met; None without one."""
        return None if self.goal is None else self.goal.is_met(self.figure.median)


def alternate(measures: dict[str, Measure], rounds: int) -> dict[str, list[Run]]:
    """Measure every contender once per round, another one first in every round."""
    names = list(measures)
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for index in range(rounds):
        shift = index % len(names)
        for name in names[shift:] + names[:shift]:
            runs[name].append(measures[name](index))
            seconds = runs[name][-1].seconds
            print(f"  round {index + 1}: {name} {seconds:.2f} s", flush=True)
    return runs


def spread(values: Sequence[float]) -> Spread:
    """Median, smallest and largest."""
    return Spread(statistics.median(values), min(values), max(values))


def compare(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Ratio of the medians, and the range of the rounds' own ratios."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    middle = statistics.median(ours) / statistics.median(theirs)
    return Spread(middle, min(ratios), max(ratios))


def rates(runs: Sequence[Run], work: float) -> list[float]:
    """Work per second of every run."""
    return [work / run.seconds for run in runs]


def mean_score(runs: Sequence[Run]) -> float:
    """Mean over the rounds."""
    return statistics.fmean(run.score for run in runs)


def cpu_seconds(runs: dict[str, list[Run]]) -> str:
    """Median processor time of every contender's run, in words."""
    parts = [
        f"{who} {statistics.median(run.cpu_seconds for run in found):.2f} s"
        for who, found in runs.items()
    ]
    return "CPU time of a run: " + ", ".join(parts)


PACKAGES = ("purerl", "jax", "jaxlib", "flax", "optax", "numpy", "gymnax")


def hardware(packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """Return the machine and the versions of the measurement."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        found = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.M)
        model = found.group(1) if found else model
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count()
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": model,
        "cores": cores,
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
    }


def number(value: float, unit: str) -> str:
    """A number as a reader wants it: rates in thousands, the rest to the point."""
    if unit == "steps/s":
        return f"{value / 1e6:.2f}M" if value >= 1e6 else f"{value / 1e3:.0f}k"
    if unit == "s":
        return f"{value:.2f} s"
    return f"{value:.2f}"


def cells(row: Row) -> list[str]:
    """The table's cells of a row."""

    def with_range(values: Spread, unit: str) -> str:
        shown = [number(value, unit) for value in values]
        return f"{shown[0]} ({shown[1]}-{shown[2]})"

    met = {None: "", True: "yes", False: "NO"}[row.is_met]
    other = f"{with_range(row.other, row.unit)} {row.other_name}" if row.other else ""
    return [
        row.name,
        with_range(row.purerl, row.unit),
        other,
        with_range(row.figure, ""),
        str(row.goal or ""),
        met,
    ]


def table(rows: Sequence[Row]) -> str:
    """A Markdown table, aligned for a terminal."""
    head = ["what", "purerl", "peer", "figure (min-max)", "goal", "met?"]
    lines = [head, *(cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    padded = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    ]
    padded.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(padded)


def text(rows: Sequence[Row], facts: dict[str, Any]) -> str:
    """Table, notes, and what they were measured on, as Markdown."""
    versions = ", ".join(f"{k} {v}" for k, v in facts["versions"].items())
    lines = [
        table(rows),
        "",
        *(f"- {row.name}: {row.note}" for row in rows if row.note),
        "",
        f"{facts['date']}; {facts['cpu']}, {facts['cores']} cores; load average "
        f"{facts['load_before']} before, {facts['load_after']} after; "
        f"{facts['rounds']} rounds; Python {facts['python']}; {versions}.",
    ]
    if "peer_versions" in facts:
        lines.append(f"Peer's interpreter: {facts['peer_versions']}.")
    return "\n".join(lines)


def save(stem: Path, rows: Sequence[Row], facts: dict[str, Any]) -> None:
    """Write `stem.md` and `stem.json`."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".md").write_text(text(rows, facts) + "\n")
    records = [asdict(row) | {"met": row.is_met} for row in rows]
    body = json.dumps({"facts": facts, "rows": records}, indent=2)
    stem.with_suffix(".json").write_text(body + "\n")

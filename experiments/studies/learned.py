"""The rows of the learning results, for the studies that put them beside a claim."""

import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from study import STORE, Budget, Row  # It puts experiments/ on the path.

# isort: split
from frame import interval_text, mean_interval, read
from pictures import ALGORITHMS, style
from results import ROWS

import purerl
from purerl import make_train

Found = Mapping[str, dict[str, Any]]  # Rows by their names.


class Shown(NamedTuple):
    """A row of the learning results as a study shows it.

    Attributes:
        title: What it is.
        claim: The source's number.
        algorithm: The algorithm, which has a colour.
        line: Style of the line.
        note: What a reader should know of it, where it was run.
    """

    title: str
    claim: str
    algorithm: str
    line: str = "-"
    note: str = ""


def load(name: str) -> dict[str, Any]:
    """Return a row of the learning results, empty where it was not run."""
    return read(STORE.parent / f"{name}.json")


def known(
    budget: Budget,
    shown: Iterable[str],
    long: Iterable[str],
    quick: Callable[[], Mapping[str, purerl.TrainConfig]],
) -> Found:
    """Return the rows that are there.

    Args:
        budget: The budget of the study.
        shown: Names of the rows.
        long: Those whose missing agents are trained with `--long`.
        quick: Function that returns configs, with at least one evaluation, of agents
            that are trained in place of rows in a quick run.
    """
    if budget.quick:
        small = quick().items()
        return {name: budget.part(name, train, config) for name, config in small}
    complete(budget, long)
    found = {name: load(name) for name in shown}
    return {name: row for name, row in found.items() if row}


def complete(budget: Budget, names: Iterable[str]) -> None:
    """Train what rows of the learning results lack, where hours are no matter.

    Args:
        budget: The budget of the study; without `long` nothing is trained.
        names: Names of rows in `experiments/results_rows.yaml`, trained seed by seed.
    """
    for name in names if budget.long and not budget.quick else ():
        row = load(name)
        if row and len(row["per_seed"]) >= ROWS[name].seeds:
            continue
        script = STORE.parents[1] / "results.py"
        command = [sys.executable, str(script), name, "--at-once", "1"]
        subprocess.run(command, check=True)


def what_is_missing(name: str, row: dict[str, Any]) -> str:
    """Return the sentence about agents that are not trained yet; empty for none.

    Args:
        name: Name of the row in `experiments/results_rows.yaml`.
        row: The row, from `load`, or from `train` in a quick run, which is no part of
            the learning results.
    """
    if not row:
        why = ROWS[name].not_run
        return f"Not run: {why}." if why else "Not run yet."
    trained, wanted = len(row["per_seed"]), ROWS[name].seeds
    if trained == wanted or "command" not in row:
        return ""
    return (
        f"{trained} of {wanted} agents {'is' if trained == 1 else 'are'} trained so "
        f"far; `{row['command']}` trains the others."
    )


def train(config: purerl.TrainConfig) -> dict[str, Any]:
    """Train one agent, in place of a row of the learning results.

    Args:
        config: Settings with at least one evaluation.

    Returns:
        `curve_steps` and `curve`, the evaluations; `per_seed`, the last one.
    """
    result = jax.jit(jax.vmap(make_train(config)))(jax.random.key(0)[None])
    returns = np.asarray(result.evaluation["episode_return"]).mean(-1)
    return {
        "curve_steps": np.asarray(result.evaluation["env_steps"][0]).tolist(),
        "curve": returns.mean(0).tolist(),
        "per_seed": returns[:, -1].tolist(),
    }


def score_text(row: dict[str, Any], digits: int) -> str:
    """Return the mean of a row's agents, its interval or range, and their number.

    A range has the number in itself.

    Args:
        row: The row.
        digits: Digits after the point.
    """
    words, agents = interval_text(row["per_seed"], digits), len(row["per_seed"])
    if agents == 1:
        return f"{row['per_seed'][0]:,.{digits}f} (one agent)"
    return words if "range" in words else f"{words}; {agents} agents"


def rows_of(shown: Mapping[str, Shown], found: Found, digits: int) -> list[Row]:
    """Return the claims beside the rows, which may be missing."""
    rows = []
    for name, one in shown.items():
        row = found.get(name, {})
        here = score_text(row, digits) if row else "not measured"
        what, note = f"{one.title}: return at the end", note_of(name, row, one.note)
        rows.append(Row(what, one.claim, here, note))
    return rows


def note_of(name: str, row: dict[str, Any], note: str) -> str:
    """Return the note of a row: what is missing, and its own where it was run."""
    missing = what_is_missing(name, row)
    return f"{missing} {note}".strip() if row else missing


def bars(rows: Iterable[dict[str, Any]]) -> str:
    """Return what the bars of `draw` are, in words.

    Args:
        rows: The rows that are drawn.
    """
    numbers = {len(row["per_seed"]) for row in rows}
    kinds = ["the 95% interval of the mean"] * (max(numbers) >= 10)
    if min(numbers) < 10:
        kinds.append("the range of the agents where there are fewer than ten")
    return " or ".join(kinds)


def printed(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the commands that printed some rows, where and when.

    Args:
        rows: Rows; those of `train` have no command and are left out.
    """
    names = ("command", "hardware", "jax", "date")
    return [
        {**{name: row[name] for name in names}, "seconds": row.get("train_seconds")}
        for row in rows
        if "command" in row
    ]


def draw(shown: Mapping[str, Shown], found: Found) -> tuple[Any, Any]:
    """Draw the mean evaluations of rows, and at the end their intervals.

    Returns:
        A figure and its axes, which `finish` sets up.
    """
    figure = style.new_figure(width=7.5, height=4.4)
    axes = figure.subplots()
    for place, (name, row) in enumerate(found.items()):
        title, _, algorithm, line, _ = shown[name]
        look: dict[str, Any] = {"color": ALGORITHMS[algorithm]}
        steps, marker = row["curve_steps"], style.MARKERS[place]
        axes.plot(steps, row["curve"], line, marker=marker, label=title, **look)
        scores = np.asarray(row["per_seed"], float)
        ends, mean = mean_interval(scores), scores.mean()
        below_above = [[mean - ends.low], [ends.high - mean]]
        # Beside the last mark, so that intervals of several rows do not hide one
        # another.
        right = steps[-1] * (1 + 0.012 * (place + 1))
        axes.errorbar(right, mean, below_above, capsize=4, linewidth=1.6, **look)
    return figure, axes


def finish(axes: Any, place: str, words: str = "episode return") -> None:
    """Set up axes with returns over environment steps, and their legend."""
    axes.legend(frameon=False, loc=place)
    style.finish(axes, "", "environment steps", words)
    style.step_axis(axes)
    axes.yaxis.set_major_formatter("{x:,.0f}")

"""The pages of docs/results that are made from the numbers that are kept."""

import re
from collections.abc import Iterable
from typing import Any

import frame
import numpy as np
from results import ROWS, Row

from purerl.report.statistics import heading_of, text_of

PAGES = frame.ROOT / "docs" / "results"
HEADERS = ["result", "row", "steps x seeds", "evaluation", "published"]
# Headings of the learning results, and what the titles of their rows contain.
GROUPS = {
    "CartPole": "CartPole-v1",
    "Doors": "Doors-v0",
    "Pendulum": "Pendulum-v1",
    "Cart-pole swing-up": "CartpoleSwingup",
    "brax": "brax",
    "MinAtar": "MinAtar",
    "Other tasks": "",
}
# The columns of a table of losses: environment, measure and heading.
LOSSES = {
    "evolve-value-loss": [
        ("CartPole-v1", "training_curve", "CartPole-v1, area"),
        ("Acrobot-v1", "training_curve", "Acrobot-v1, area"),
        ("Catch-bsuite", "training_curve", "Catch-bsuite, area"),
    ],
    "compare-drifts": [
        ("Pendulum-v1", "evaluation", "Pendulum-v1, evaluation"),
        ("CartpoleSwingup-v0", "evaluation", "CartpoleSwingup-v0, evaluation"),
    ],
}
LOSSES["evolve-drift"] = LOSSES["evolve-value-loss"]
RULES = ("learn-lpg", "learn-lpg-temporal", "learn-lpg-annealed")


def write() -> None:
    """Write both pages."""
    for name, text in (("learning", learning()), ("learning-to-learn", learned())):
        frame.write_atomic(PAGES / f"{name}.md", text)


def learning() -> str:
    """Return the page of the learning results."""
    found = {name: frame.read(frame.RESULTS / f"{name}.json") for name in ROWS}
    there = {name: numbers for name, numbers in found.items() if numbers}
    words = frame.raw_words("results")
    lines = [words["introduction"]]
    left = dict(there)
    for heading, task in GROUPS.items():
        names = [name for name in left if task in ROWS[name].title]
        rows = [cells(name, ROWS[name], left.pop(name)) for name in names]
        lines += ["", f"## {heading}", "", *frame.markdown(HEADERS, rows)]
    missed = [f"`{n}`" for n, x in there.items() if is_missed(ROWS[n], x)]
    missing = ", ".join(f"`{name}`" for name in ROWS if name not in there)
    lines += ["", "## How to read the tables", "", words["reading"]]
    if missed:
        lines += ["", f"The goals of these rows are missed: {', '.join(missed)}."]
    if missing:
        lines += ["", words["missing"].format(rows=missing)]
    lines += ["", *folded("Notes on single rows", notes(there))]
    lines += ["", *folded("Sources of the published numbers", sources(there))]
    lines += ["", *folded("Commands and machines", machines(there))]
    return "\n".join(lines) + "\n"


def cells(name: str, row: Row, numbers: dict[str, Any]) -> list[str]:
    """Return a row of the tables of learning results."""
    seeds, mean = numbers["seeds"], numbers["mean"]
    of = f" of {row.seeds}" if seeds < row.seeds else ""
    digits = 0 if abs(mean) >= 1000 else 1 if abs(mean) >= 10 else 2
    evaluation = f"{mean:,.{digits}f} (one seed)"
    if len(numbers["per_seed"]) > 1:
        evaluation = (
            f"{mean:,.{digits}f} ({frame.ends_text(numbers['per_seed'], digits)})"
        )
    return [
        re.sub(rf", ({'|'.join(filter(None, GROUPS.values()))})(-v\d)?", "", row.title),
        f'<a id="{name}"></a>`{name}`',
        f"{numbers['steps']:,} x {seeds}{of}",
        evaluation,
        _published(row, numbers) if row.anchor else "-",
    ]


def is_missed(row: Row, numbers: dict[str, Any]) -> bool:
    """Return whether a row has a goal and does not reach it."""
    if row.goal is None:
        return False
    if row.preset == "dqn-cartpole-20k":
        return sum(x >= row.goal for x in numbers["per_seed"]) < 8
    return numbers["mean"] < row.goal


def _published(row: Row, numbers: dict[str, Any]) -> str:
    """The published number, and where ours lies, if the two can be compared."""
    assert row.anchor is not None
    number, value = row.anchor.words.split(", ")[0], row.anchor.value
    if value is None:
        return number
    found = frame.mean_interval(np.array(numbers["per_seed"]))
    is_known = found.kind == "interval" or found.low == found.high
    low, high = (found.low, found.high) if is_known else (numbers["mean"],) * 2
    if low > value:
        return f"{number} ({'above' if is_known else 'mean above'})"
    if high < value:
        return f"{number} (**{'below' if is_known else 'mean below'}**)"
    return number


def folded(title: str, lines: Iterable[str]) -> list[str]:
    """Return a note that is closed until a reader opens it."""
    return [f'??? note "{title}"', "", *(f"    {line}".rstrip() for line in lines)]


def grouped(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return a point of a list for each key, with all that belongs to it."""
    found: dict[str, list[str]] = {}
    for key, text in pairs:
        found.setdefault(key, []).append(text)
    return [f"* {key}: {', '.join(texts)}." for key, texts in found.items()]


def notes(there: dict[str, Any]) -> list[str]:
    """Return what a reader should know of single rows."""
    found: dict[str, list[str]] = {}
    for name in there:
        if ROWS[name].note:
            found.setdefault(ROWS[name].note, []).append(f"`{name}`")
    return [f"* {', '.join(names)}: {note}." for note, names in found.items()]


def sources(there: dict[str, Any]) -> list[str]:
    """Return who published the numbers of the tables, and over which steps."""
    pairs = []
    for name in there:
        if anchor := ROWS[name].anchor:
            _, _, details = anchor.words.partition(", ")
            pairs.append((anchor.source, f"`{name}`" + f" ({details})" * bool(details)))
    return grouped(pairs)


def machines(there: dict[str, Any]) -> list[str]:
    """Return where and when the rows were printed, and by which command."""
    pairs = []
    for name, numbers in there.items():
        at = ("hardware", "jax", "python", "date")
        machine, jax, python, date = (numbers[key] for key in at)
        plain = f"python experiments/results.py {name}"
        flags = numbers["command"].removeprefix(plain).strip()
        where = f"{machine}, jax {jax}, Python {python}, {date}"
        pairs.append((where, f"`{name}{' ' + flags if flags else ''}`"))
    first = "The command is `python experiments/results.py` and what stands here:"
    return [first, "", *grouped(pairs)]


def learned() -> str:
    """Return the page of what was evolved and learned."""
    words = frame.raw_words("learned")
    tables = {f"table {name}": losses(name) for name in LOSSES}
    tables["table evolve-lpg"] = rules(
        frame.read(frame.RESULTS / "evolve-lpg.json")["judged"],
        ["generation 0", "generation 60", "random rule"],
    )
    tables["table learn-lpg"] = learned_rules()
    text = "\n\n".join(words.values())
    for name, lines in tables.items():
        text = text.replace(f"{{{name}}}", "\n".join(lines))
    for name in [*LOSSES, "evolve-lpg", *RULES]:
        numbers = frame.read(frame.RESULTS / f"{name}.json")
        text = text.replace(f"{{printed {name}}}", printed_by(numbers))
    return text + "\n"


def printed_by(numbers: dict[str, Any]) -> str:
    """Return the command of some numbers, its seconds and its machine."""
    seconds: Any = numbers.get("seconds") or round(sum(numbers["course"]["seconds"]))
    times = f"{seconds:,} s" if not isinstance(seconds, dict) else ""
    times = times or ", ".join(f"{name} {value:,} s" for name, value in seconds.items())
    return f"`{numbers['command']}`: {times}; {frame.printed_on(numbers)}"


def losses(name: str) -> list[str]:
    """Return a table of losses by environment and measure."""
    kept = frame.read(frame.RESULTS / f"{name}.json")
    found: dict[tuple[str, ...], Any] = {
        (row["environment"], row["measure"], _name(row)): row
        for row in kept.get("judged") or kept["rows"]
    }
    columns = LOSSES[name]
    rows = [
        [loss, *(_interval(found[*place, loss]) for *place, _ in columns)]
        for loss in dict.fromkeys(loss for *_, loss in found)
    ]
    return frame.markdown(["loss", *(heading for *_, heading in columns)], rows)


def _name(row: dict[str, Any]) -> str:
    """The loss of a row; rows that were kept before had it by that word."""
    return row["setting"] if "setting" in row else row["loss"]


def _interval(row: dict[str, Any]) -> str:
    values = [row["mean"], row["mean_low"], row["mean_high"]]
    largest = max(abs(value) for value in values)
    digits = 3 if largest < 2 else 2 if largest < 20 else 1 if largest < 1000 else 0
    ends = text_of(values[1], values[2], heading_of(row["seeds"]), digits)
    return f"{values[0]:,.{digits}f} ({ends})"


def rules(judged: dict[str, Any], names: Iterable[str]) -> list[str]:
    """Return a table of rules of learning: some of them, and the tuned baselines."""
    tuned = [name for name in judged if name.endswith("tuned")]
    columns = [(p, k) for p in ("held-out grids", "Catch") for k in ("area", "final")]
    return frame.markdown(
        ["rule", *(f"{place}: {kind}" for place, kind in columns)],
        [
            [name, *(_ends(judged[name][place][kind]) for place, kind in columns)]
            for name in (*names, *tuned)
        ],
    )


def _ends(found: Any) -> str:
    return "{:.2f} ({:.2f} to {:.2f})".format(*found)


def learned_rules() -> list[str]:
    """Return a table of rules that meta-gradients learned: the best step, the last."""
    rows = []
    for name in RULES:
        kept = frame.read(frame.RESULTS / f"{name}.json")
        steps = {n: x for n, x in kept["judged"].items() if n.startswith("step")}
        areas = {n: x["held-out grids"]["area"] for n, x in steps.items()}
        best = max(areas, key=lambda step: areas[step][0])
        last = list(steps)[-1]
        catch = _ends(steps[last]["Catch"]["area"])
        shown = [f"{_ends(areas[best])} at {best}", f"{_ends(areas[last])} at {last}"]
        rows.append([f"`{name}`", *shown, catch])
    heads = ["rule", "held-out grids, area: highest", "last", "Catch, area: last"]
    return frame.markdown(heads, rows)

"""The tables of `gpu_day.py`: Markdown from the JSON that its parts left."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench import markdown, number

Record = Mapping[str, Any]
Cells = Iterable[Sequence[Any]]
SPEED = "what | agents | who | steps/s | purerl is faster by | seconds | compile, s"
BITS = "run | part | same bits as the first | remark"
DEVICE = {
    "microseconds_per_kernel": "{:.2f} µs from one dependent kernel to the next",
    "bandwidth": "{:.3g} bytes/s read and written",
    "flops": "{:.3g} FLOP/s in a float32 product",
    "memory_for_jax": "{:,} bytes of memory for JAX",
}


def text(records: Sequence[Record]) -> str:
    """Return all tables that have rows, and what failed.

    Args:
        records: What the parts left, in the order of the parts.
    """
    sections = [
        *_about(records),
        *_table(f"{SPEED} | score", _speeds(records)),
        "\n".join(_device(records)),
        *_table(BITS, _bits(records)),
        *_failures(records),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def timed(row: Record) -> tuple[float, float, float]:
    """Return median, least and most seconds; the first of several runs warmed up."""
    seconds = row["seconds"][1:] or row["seconds"]
    return statistics.median(seconds), min(seconds), max(seconds)


def _about(records: Sequence[Record]) -> list[str]:
    lines = []
    for record in records:
        versions = ", ".join(f"{k} {v}" for k, v in record.get("versions", {}).items())
        device, date = record.get("device", "unknown device"), record["started"][:10]
        toy = " Toy sizes: the numbers mean nothing." if record["toy"] else ""
        lines.append(f"{device}, {date}; {versions}.{toy}")
    return ["\n".join(dict.fromkeys(lines))]


def _rows(records: Sequence[Record], *names: str) -> list[tuple[Record, Record]]:
    """The rows that have all of some values, with their records."""
    return [
        (record, row)
        for record in records
        for row in record["rows"]
        if all(name in row for name in names)
    ]


def _table(heads: str, rows: Cells) -> list[str]:
    rows = list(rows)
    return ["\n".join(markdown(heads.split(" | "), rows))] if rows else []


def _speeds(records: Sequence[Record]) -> Cells:
    found = [row for _, row in _rows(records, "seconds", "env_steps")]
    rates = [row["env_steps"] / timed(row)[0] for row in found]
    ours = {
        (row["what"], row["agents"]): rate
        for row, rate in zip(found, rates, strict=True)
        if row["who"] == "purerl"
    }
    for row, rate in zip(found, rates, strict=True):
        own = ours.get((row["what"], row["agents"]))
        is_peer = own is not None and row["who"] != "purerl"
        middle, least, most = timed(row)
        yield [
            row["what"],
            f"{row['agents']:,}",
            row["who"],
            number(rate, "steps/s"),
            f"{own / rate:.2f}" if is_peer else "",
            f"{middle:.2f} ({least:.2f} to {most:.2f})",
            *(_or_nothing(row[name]) for name in ("compile_seconds", "score")),
        ]


def _or_nothing(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _device(records: Sequence[Record]) -> Iterable[str]:
    for name, form in DEVICE.items():
        for _, row in _rows(records, name):
            if row[name] is not None:
                how = f", precision {row['precision']}" if "precision" in row else ""
                yield f"* {form.format(row[name])}{how}"


def _bits(records: Sequence[Record]) -> Cells:
    for record, row in _rows(records, "is_equal"):
        remark = "" if row.get("was_killed", True) else "was over before it was killed"
        if row["arrays_that_differ"]:
            remark = "differ: " + ", ".join(row["arrays_that_differ"])
        yield [row["run"], record["part"], "yes" if row["is_equal"] else "NO", remark]


def _failures(records: Sequence[Record]) -> list[str]:
    failed = [(one["part"], one["error"]) for one in records if one["error"]]
    for record, row in _rows(records, "error"):
        which = f"{row.get('who', row.get('what', ''))}, {row.get('agents', '')} agents"
        failed.append((f"{record['part']}, {which}", row["error"]))
    lines = ["What failed:", ""] if failed else []
    for where, error in failed:
        last = (error.strip().splitlines() or [""])[-1]
        lines.append(f"* {where}: {last[:300]}")
    return ["\n".join(lines)]

"""The tables of `gpu_day.py`: Markdown from the JSON that its parts left."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from report import number

Record = Mapping[str, Any]
SPEED = (
    "| what | agents | who | steps/s | purerl is faster by | seconds | compile, s | "
    "score |"
)
KERNELS = (
    "| program | agents | kernels | seconds | µs per kernel | predicted for "
    "an H200, s | measured / predicted |"
)
PROFILE = (
    "| program | agents | updates | kernels | graph launches | seconds | µs per kernel "
    "| kernels' share of the seconds |"
)
BITS = "| run | part | same bits as the first | remark |"


def text(records: Sequence[Record]) -> str:
    """Return all tables that have rows, and what failed.

    Args:
        records: What the parts left, in the order of the parts.
    """
    sections = [_about(records), *_speeds(records), *_kernels(records)]
    sections += [
        *_profiles(records),
        *_device(records),
        *_bits(records),
        *_failures(records),
    ]
    return "\n\n".join(sections) + "\n"


def timed(row: Record) -> tuple[float, float, float]:
    """Return median, least and most seconds; the first of several runs warmed up."""
    seconds = row["seconds"][1:] or row["seconds"]
    return statistics.median(seconds), min(seconds), max(seconds)


def _about(records: Sequence[Record]) -> str:
    lines = []
    for record in records:
        versions = ", ".join(f"{k} {v}" for k, v in record.get("versions", {}).items())
        device, date = record.get("device", "unknown device"), record["started"][:10]
        toy = " Toy sizes: the numbers mean nothing." if record["toy"] else ""
        lines.append(f"{device}, {date}; {versions}.{toy}")
    return "\n".join(dict.fromkeys(lines))


def _rows(records: Sequence[Record], *names: str) -> list[tuple[Record, Record]]:
    """The rows that have all of some values, with their records."""
    return [
        (record, row)
        for record in records
        for row in record["rows"]
        if all(name in row for name in names)
    ]


def _table(head: str, lines: Sequence[str]) -> list[str]:
    rule = "|" + "---|" * (head.count("|") - 1)
    return ["\n".join([head, rule, *lines])] if lines else []


def _speeds(records: Sequence[Record]) -> list[str]:
    found = [
        row
        for _, row in _rows(records, "seconds", "env_steps")
        if "kernels" not in row  # these have a table of their own
    ]
    rates = [row["env_steps"] / timed(row)[0] for row in found]
    ours = {
        (row["what"], row["agents"]): rate
        for row, rate in zip(found, rates, strict=True)
        if row["who"] == "purerl"
    }
    lines = []
    for row, rate in zip(found, rates, strict=True):
        own = ours.get((row["what"], row["agents"]))
        is_peer = own is not None and row["who"] != "purerl"
        middle, least, most = timed(row)
        lines.append(
            f"| {row['what']} | {row['agents']:,} | {row['who']} | "
            f"{number(rate, 'steps/s')} | {f'{own / rate:.2f}' if is_peer else ''} | "
            f"{middle:.2f} ({least:.2f} to {most:.2f}) | "
            f"{_or_nothing(row['compile_seconds'])} | "
            f"{_or_nothing(row['score'])} |"
        )
    return _table(SPEED, lines)


def _or_nothing(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _kernels(records: Sequence[Record]) -> list[str]:
    return _table(
        KERNELS,
        [
            f"| {row['what']} | {row['agents']:,} | {row['kernels']:,} | "
            f"{timed(row)[0]:.2f} | "
            f"{timed(row)[0] / row['kernels'] * 1e6:.2f} | "
            f"{_beside_prediction(row)} |"
            for _, row in _rows(records, "seconds", "kernels")
        ],
    )


def _beside_prediction(row: Record) -> str:
    """Two cells, which are empty where the row is older than predictions."""
    seconds = row.get("predicted_seconds")
    return f"{seconds:.2f} | {timed(row)[0] / seconds:.2f}" if seconds else " | "


def _profiles(records: Sequence[Record]) -> list[str]:
    """The profiler's table; a kernel may begin before the one before it ends."""
    return _table(
        PROFILE,
        [
            f"| {row['profiled']} | {row['agents']:,} | {row['updates']} | "
            f"{row['kernels_run']:,} | {_graphs(row):,} | "
            f"{seconds:.4f} | {seconds / max(1, row['kernels_run']) * 1e6:.2f} | "
            f"{min(1.0, row['busy_seconds'] / seconds):.0%} |"
            for _, row in _rows(records, "profiled")
            for seconds in [row["seconds_without_profiler"]]
        ],
    )


def _graphs(row: Record) -> int:
    calls = row["host_calls"].items()
    return sum(times for name, times in calls if name.startswith("cuGraphLaunch"))


def _device(records: Sequence[Record]) -> list[str]:
    forms = {
        "microseconds_per_kernel": "{:.2f} µs from one dependent kernel to the next",
        "bandwidth": "{:.3g} bytes/s read and written",
        "flops": "{:.3g} FLOP/s in a float32 product",
        "memory_for_jax": "{:,} bytes of memory for JAX",
    }
    lines = []
    for name, form in forms.items():
        for _, row in _rows(records, name):
            if row[name] is not None:
                how = f", precision {row['precision']}" if "precision" in row else ""
                lines.append(f"* {form.format(row[name])}{how}")
    return ["\n".join(lines)] if lines else []


def _bits(records: Sequence[Record]) -> list[str]:
    lines = []
    for record, row in _rows(records, "is_equal"):
        remark = "" if row.get("was_killed", True) else "was over before it was killed"
        if row["arrays_that_differ"]:
            remark = "differ: " + ", ".join(row["arrays_that_differ"])
        equal = "yes" if row["is_equal"] else "NO"
        lines.append(f"| {row['run']} | {record['part']} | {equal} | {remark} |")
    return _table(BITS, lines)


def _failures(records: Sequence[Record]) -> list[str]:
    lines = [
        f"* {record['part']}: {_last_line(record['error'])}"
        for record in records
        if record["error"]
    ]
    for record, row in _rows(records, "error"):
        which = f"{row.get('who', row.get('what', ''))}, {row.get('agents', '')} agents"
        lines.append(f"* {record['part']}, {which}: {_last_line(row['error'])}")
    return ["\n".join(["What failed:", "", *lines])] if lines else []


def _last_line(error: str) -> str:
    lines = error.strip().splitlines() or [""]
    return lines[-1][:300]

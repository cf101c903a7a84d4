"""The sentences and tables of a sweep on the terminal: its plan, and how it went."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from rich.table import Table

from purerl.config import is_auto
from purerl.execution.format import (
    format_bytes,
    format_count,
    format_duration,
    with_noun,
)
from purerl.runner.manifest import evaluations, notes
from purerl.sweeps.groups import Group
from purerl.sweeps.lanes import LaneRate
from purerl.sweeps.plan import GroupPlan, SweepPlan

ROWS = 40  # The number of groups that are listed.
HEADERS = ("members", "steps\neach", "steps", "lanes", "chunk", "memory", "time")


def plan_table(
    plan: SweepPlan, sweep: SweepPlan | None = None, done: int | None = None
) -> Table:
    """Return a table with a row per group that is to be trained."""
    outline = sweep or plan
    if done is None:
        done = outline.num_members - plan.num_members
    points, seeds = len(outline.design.points), len(outline.seeds)
    different = outline.num_members // seeds
    twice = f" ({different:,} different ones)" if different < points else ""
    title = (
        f"{with_noun(points, 'point')}{twice} x {with_noun(seeds, 'seed')} = "
        f"{with_noun(outline.num_members, 'member')}"
    )
    if done:
        title += f", {done:,} of them finished before"
    table = Table(title=title)
    table.add_column("group", overflow="fold")
    for header in HEADERS:
        # On a narrow terminal the group is folded, and no number is cut off.
        table.add_column(header, justify="right", no_wrap=True)
    several = len(outline.groups) > 1
    for group in plan.groups[:ROWS]:
        table.add_row(group_label(group.group, several), *_row(group, plan.num_workers))
    if len(plan.groups) > ROWS:
        table.add_row(f"and {len(plan.groups) - ROWS} more groups", *[""] * 7)
    return table


def group_label(group: Group, several: bool) -> str:
    """Return what the points of a group share, in words."""
    shared = {name: str(value) for name, value in group.static.items()}
    if several:
        shared |= {
            name: _kind(value)
            for name, value in group.overrides.items()
            if not isinstance(value, np.ndarray)
        }
    return ", ".join(f"{name}={value}" for name, value in shared.items()) or (
        "all other points" if several else "all points"
    )


def _kind(value: Any) -> str:
    """The class of a part, the names of an environment's parameters, None or auto."""
    if value is None or is_auto(value):
        return str(value)
    if not isinstance(value, Mapping):
        return type(value).__name__
    names = (
        name if isinstance(x, np.ndarray) else f"{name}: {_kind(x)}"
        for name, x in sorted(value.items())
    )
    return f"{{{', '.join(names)}}}"


def _row(group: GroupPlan, num_workers: int) -> tuple[str, ...]:
    return (
        f"{group.num_members:,}",
        f"{group.group.steps_each:,}",
        format_count(group.steps),
        str(group.lanes),
        f"{min(group.chunk_members, group.num_members):,}",
        format_bytes(group.chunk_bytes() * num_workers),
        format_duration(group.seconds()),
    )


def plan_lines(plan: SweepPlan, compile_seconds: float | None = None) -> str:
    """Return the totals of a plan in words."""
    has_folder = plan.options.out is not None
    results = "none: a folder" if has_folder else format_bytes(plan.result_bytes())
    parts = [
        f"{len(plan.groups)} groups, a program each"
        if len(plan.groups) != 1
        else "one program",
        f"{format_count(plan.steps)} environment steps",
        with_noun(plan.num_workers, "worker"),
        f"memory for training {format_bytes(plan.device_bytes())} of "
        f"{format_bytes(plan.memory_limit * plan.num_workers)}, for results {results}",
        f"about {format_duration(plan.seconds())} of training",
    ]
    if compile_seconds is not None:
        parts.append(f"compiled in {compile_seconds:.1f} s")
    return "\n".join(["; ".join(parts), *_notes(plan)])


def _notes(plan: SweepPlan) -> list[str]:
    """Return the notes of all groups, once where they say the same."""
    lines: dict[str, None] = {}
    for group in (planned_group.group for planned_group in plan.groups):
        ends = [jax.tree.map(lambda x, i=end: x[i], group.overrides) for end in (0, -1)]
        said = [evaluations(group.bound), *notes(group.bound, ends)]
        lines.update(dict.fromkeys(said))
    return list(lines)


def end_line(summary: Mapping[str, Any]) -> str:
    """Return a line that says how a sweep went."""
    return (
        f"{with_noun(summary['trained_members'], 'member')}, "
        f"{format_count(summary['env_steps'])} steps in "
        f"{format_duration(summary['train_seconds'])} "
        f"({summary['steps_per_second']:,} steps/s), "
        f"compiled {with_noun(summary['compilations'], 'program')} in "
        f"{summary['compile_seconds']:.1f} s; memory of the process: planned "
        f"{format_bytes(summary['memory_planned'])}, used "
        f"{format_bytes(summary['memory_used'])} "
        f"({format_bytes(summary['memory_before'])} of it before training)"
    )


def lanes_table(rates: Sequence[LaneRate]) -> Table:
    """Return a table of throughput over widths; the best one is bold."""
    best = max(rate.steps_per_second for rate in rates)
    table = Table(title="training throughput by lanes, all workers busy")
    for header in ("lanes", "steps/s", "of the best", "memory per worker", "compile"):
        table.add_column(header, justify="right")
    for rate in rates:
        share = rate.steps_per_second / best
        table.add_row(
            str(rate.lanes),
            f"{rate.steps_per_second:,.0f}",
            f"{share:.0%}",
            format_bytes(rate.memory),
            f"{rate.compile_seconds:.1f} s",
            style="bold" if share == 1 else "",
        )
    return table

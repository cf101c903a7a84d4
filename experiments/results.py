"""The learning results of docs/results.md: train a row, keep its numbers, render all.

    python experiments/results.py dqn-cartpole pqn-doors   # train these rows
    python experiments/results.py --all                    # every row, hours on a CPU
    python experiments/results.py td3-jaxrl --at-once 1    # seed by seed, over days
    taskset -c 1 python experiments/results.py td3-jaxrl --at-once 1 --only 7 8
    python experiments/results.py                          # only render the page

A row is a preset and a number of seeds, 0, 1, 2, ... Its numbers go to
experiments/results/ROW.json with the hardware and the versions that printed them, and
the page is rendered from these files. Nothing here fails when a goal is missed: it says
so. A row that was stopped or killed goes on where it was with the same command, from
the checkpoints in its folder under --out. With --at-once the file is written after
every few seeds, and those that are in it are not trained again. With --only it trains
these seeds of them, so that several processes, each on a core of its own, can share a
row.
"""

import argparse
import json
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import results_losses
import results_rule
from printed import printed_on
from results_batches import alone, check_alike, next_seeds, read_batches, together
from results_rows import ROWS, Row

import purerl
from purerl import TrainConfig, presets, serialise
from purerl.atomic import write_atomic
from purerl.report.statistics import mean_interval

HERE = Path(__file__).parent
STORE = HERE / "results"
PAGE = HERE.parent / "docs" / "results.md"
RUNS = HERE.parent / "runs" / "results"


INTRODUCTION = """\
# Learning results

Each row was printed by `python experiments/results.py ROW`, which also wrote this page
from `experiments/results/*.json`. The config is the preset of the row's name unless its
section says otherwise: `purerl train --preset NAME --seeds N` trains the same.

*Evaluation* is the deterministic policy at the end of training: the mean over seeds,
with the 95% interval of that mean, by the studentised bootstrap. Rows with fewer than
ten seeds have the range of the seeds instead, and say so; where all seeds are equal
there is no spread to make an interval of. `experiments/interval_coverage.py` shows how
often such intervals hold, and [Sweeps](sweeps.md#how-far-an-interval-can-be-trusted)
what that means. *Published* is a number of others for the same task; its source, steps
and seeds are in the row's section. Where it can be compared, *ours* says whether our
interval lies above it, below it or holds it (of few seeds: where our mean lies). Steps
are environment steps per agent; all agents of a row train in one call, on the hardware
that its section names. *Time* is training, compilation apart; it is not known of a row
that was stopped and went on. Rows of 2026-11-21 and 2026-11-22 are of code that drew
its random numbers otherwise (CHANGELOG, "Random numbers"), but for A2C's and those of
SAC and MPO on the swing-up: now the same seeds give other numbers of the same
distributions.

| result | steps x seeds | evaluation | published | ours | goal | time |
|---|---|---|---|---|---|---|
"""


def train(
    name: str, row: Row, seeds: Sequence[int], lanes: int | None, out: Path
) -> dict[str, Any] | None:
    """Train agents of a row; the numbers that are kept, None where it was stopped.

    Args:
        name: Name of the row.
        row: The row.
        seeds: Seeds of the agents.
        lanes: Agents that one block holds.
        out: Folder of the run.
    """
    load = os.getloadavg()[0]
    resume = (out / "manifest.json").exists()
    result = purerl.run(
        config_of(row), seeds=list(seeds), lanes=lanes, out=out, resume=resume
    )
    if not result.finished:
        return None
    steps = int(result.metrics["env_steps"][0, -1])
    is_one_sitting = result.train_steps >= steps * len(seeds)
    width = f" --lanes {lanes}" if lanes else ""
    final = result.evaluation["episode_return"][:, -1].mean(-1)
    curve = np.nanmean(result.evaluation["episode_return"], axis=(0, 2))
    per_seed = [round(float(x), 2) for x in final]
    kept = stored(name)
    if not result.train_steps and kept and kept["per_seed"] == per_seed:
        return kept  # The run had finished: its times are those of that day.
    return {
        "row": name,
        "command": f"python experiments/results.py {name}{width}",
        "steps": steps,
        "seeds": len(seeds),
        "mean": float(final.mean()),
        "per_seed": per_seed,
        "curve_steps": result.evaluation["env_steps"][0].tolist(),
        "curve": [round(float(x), 2) for x in curve],
        "compile_seconds": round(result.compile_seconds, 1),
        # What a run that was killed had spent before is not known.
        "train_seconds": round(result.train_seconds, 1) if is_one_sitting else None,
        "load_before": round(load, 2),
        **hardware(),
    }


def config_of(row: Row) -> TrainConfig:
    """Return the config of a row's agents."""
    return presets.load(row.preset).replace(**(row.changes or {}))


def train_in_batches(
    name: str, row: Row, seeds: Sequence[int], at_once: int, out: Path
) -> Iterator[dict[str, Any]]:
    """Train the seeds of a row that its file has not; write and yield its numbers.

    Args:
        name: Name of the row.
        row: The row.
        seeds: Seeds of the row that are wanted.
        at_once: Number of seeds of a batch.
        out: Folder of the runs of the row.
    """
    path = STORE / f"{name}.json"
    config = json.loads(json.dumps(serialise.to_dict(config_of(row))))
    check_alike(read_batches(path), config, at_once)
    # Another process may write other seeds meanwhile.
    while which := next_seeds(read_batches(path), seeds, at_once):
        part = train(name, row, which, at_once, out / f"seed-{which[0]}")
        if part is None:
            return
        part["command"] = f"python experiments/results.py {name} --at-once {at_once}"
        part |= {"which": which, "at_once": at_once, "config": config}
        with alone(out):
            batches = read_batches(path)
            check_alike(batches, config, at_once)
            numbers = together([*batches, part])
            write(name, numbers)
        yield numbers


def stored(name: str) -> dict[str, Any] | None:
    """Return what the file of a row holds; None where there is none."""
    path = STORE / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def write(name: str, numbers: dict[str, Any]) -> None:
    """Write the file of a row, atomically."""
    write_atomic(STORE / f"{name}.json", json.dumps(numbers, indent=2) + "\n")


def hardware() -> dict[str, Any]:
    """Return the machine and the versions that printed the numbers."""
    import jax

    device = jax.local_devices()[0]
    model = device.device_kind
    info = Path("/proc/cpuinfo")
    if device.platform == "cpu" and info.exists():
        found = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.M)
        model = found.group(1).strip() if found else platform.machine()
        model = re.sub(r"\s+\d+-Core Processor$", "", model)
        cores = len(os.sched_getaffinity(0))
        model = f"{cores} core{'s' * (cores != 1)} of {model}"
    return {
        "hardware": model,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "jax": version("jax"),
        "purerl": version("purerl"),
    }


def command(parser: argparse.ArgumentParser, asked: argparse.Namespace) -> str:
    """Return the command that prints the same numbers again."""
    kept = ("out", "dry")
    flags = [
        f" --{name.replace('_', '-')}{'' if value is True else ' ' + _words(value)}"
        for name, value in vars(asked).items()
        if value != parser.get_default(name) and name not in kept
    ]
    return f"python experiments/{Path(sys.argv[0]).name}{''.join(flags)}"


def _words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def render() -> str:
    """The page, from the numbers that are there."""
    found = {path.stem: json.loads(path.read_text()) for path in STORE.glob("*.json")}
    lines: list[str] = [*INTRODUCTION.splitlines()]
    sections: list[str] = []
    for name, row in ROWS.items():
        if name in found:
            lines.append(_line(name, row, found[name]))
            sections += ["", *_section(name, row, found[name])]
    missing = {name: row for name, row in ROWS.items() if name not in found}
    if missing:
        sections += ["", "## Rows that were not run", ""]
        sections += ["| row | why | published |", "|---|---|---|"]
        sections += [_missing(name, row) for name, row in missing.items()]
    lines += ["", "## Row by row", *sections]
    lines += results_losses.section()
    lines += results_rule.section()
    return "\n".join(lines) + "\n"


def _line(name: str, row: Row, numbers: dict[str, Any]) -> str:
    goal = "-"
    if row.goal is not None:
        goal = f">= {row.goal:g}: " + ("met" if _is_met(row, numbers) else "**missed**")
    published = row.anchor.words.split(", ")[0] if row.anchor else "-"
    link = f"[{row.title}](#{name})"
    return (
        f"| {link} | {numbers['steps']:,} x {_seeds(row, numbers)} | "
        f"{_evaluation(numbers)} | {published} | {_verdict(row, numbers)} | {goal} | "
        f"{_seconds(numbers)} |"
    )


def _seeds(row: Row, numbers: dict[str, Any]) -> str:
    """Return the number of seeds, of how many where more are to come."""
    seeds = numbers["seeds"]
    return str(seeds) if seeds >= row.seeds else f"{seeds} of {row.seeds}"


def _seconds(numbers: dict[str, Any]) -> str:
    """Return the time of training, if it was done in one sitting."""
    found = numbers["train_seconds"]
    return "in sittings" if found is None else f"{found:,.0f} s"


def _evaluation(numbers: dict[str, Any]) -> str:
    digits = _digits(numbers)
    if len(numbers["per_seed"]) == 1:
        return f"{numbers['mean']:,.{digits}f} (one seed)"
    found = mean_interval(np.array(numbers["per_seed"]))
    return f"{numbers['mean']:,.{digits}f} ({found.text(digits)})"


def _digits(numbers: dict[str, Any]) -> int:
    size = abs(numbers["mean"])
    return 0 if size >= 1000 else 1 if size >= 10 else 2


def _verdict(row: Row, numbers: dict[str, Any]) -> str:
    """On which side of the published number ours lies, if they can be compared."""
    if row.anchor is None or row.anchor.value is None:
        return "-"
    value = row.anchor.value
    found = mean_interval(np.array(numbers["per_seed"]))
    is_known = found.kind == "interval" or found.low == found.high
    low, high = (found.low, found.high) if is_known else (numbers["mean"],) * 2
    if low > value:
        return "above" if is_known else "mean above"
    if high < value:
        return "**below**" if is_known else "**mean below**"
    return "holds it"


def _is_met(row: Row, numbers: dict[str, Any]) -> bool:
    if row.preset == "dqn-cartpole-20k":
        return sum(x >= row.goal for x in numbers["per_seed"]) >= 8
    return row.goal is None or numbers["mean"] >= row.goal


def _section(name: str, row: Row, numbers: dict[str, Any]) -> list[str]:
    """Return the section of a row: its source, its config and its course."""
    changes = ", ".join(f"{k}={v}" for k, v in (row.changes or {}).items())
    seeds = ", ".join(f"{x:,g}" for x in numbers["per_seed"])
    course = ", ".join(
        f"{value:,.4g} at {steps / 1000:,.0f}k"
        for steps, value in zip(numbers["curve_steps"], numbers["curve"], strict=True)
    )
    preset = f"preset `{row.preset}`" + (f" with {changes}" if changes else "")
    facts = {
        "Published": row.anchor and f"{row.anchor.words}. Source: {row.anchor.source}.",
        "Note": row.note and f"{row.note}.",
        "Config": f"{preset}.",
        "Seeds": f"{seeds}."
        + " The others are not trained yet." * (numbers["seeds"] < row.seeds),
        "Course": f"{course}." if len(numbers["curve"]) > 1 else "",
        "Printed by": f"`{numbers['command']}`: training {_seconds(numbers)}, "
        f"compilation {numbers['compile_seconds']:,} s; {printed_on(numbers)}.",
    }
    heading = f'### <a id="{name}"></a>{row.title} (`{name}`)'
    return [heading, ""] + [f"* {key}: {text}" for key, text in facts.items() if text]


def _missing(name: str, row: Row) -> str:
    why = row.not_run or "no numbers yet"
    published = f"{row.anchor.words}; {row.anchor.source}" if row.anchor else "-"
    return f"| `{name}`: {row.title} | {why} | {published} |"


def main() -> None:
    """Train the rows that were asked for, then render the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--all", action="store_true", help="train every row")
    parser.add_argument("--lanes", type=int, help="agents that one block holds")
    parser.add_argument(
        "--at-once", type=int, help="seeds after which the row's numbers are kept"
    )
    parser.add_argument(
        "--only", type=int, nargs="+", metavar="SEED", help="seeds of --at-once"
    )
    parser.add_argument(
        "--out", type=Path, default=RUNS, help="where the rows' runs are kept"
    )
    options = parser.parse_args()
    unknown = set(options.rows) - set(ROWS)
    if unknown:
        parser.error(f"no row {', '.join(sorted(unknown))}; rows: {', '.join(ROWS)}")
    if options.only and (options.all or not options.at_once):
        parser.error("--only names seeds of rows that are trained with --at-once.")
    for name in options.rows:
        if set(options.only or ()) - set(range(ROWS[name].seeds)):
            parser.error(f"{name} has the seeds 0 to {ROWS[name].seeds - 1}.")
    STORE.mkdir(exist_ok=True)
    every = [name for name, row in ROWS.items() if not row.not_run]
    for name in every if options.all else options.rows:
        row, out = ROWS[name], options.out / name
        if options.at_once:
            seeds = options.only or range(row.seeds)
            found = train_in_batches(name, row, seeds, options.at_once, out)
        else:
            found = [train(name, row, range(row.seeds), options.lanes, out)]
        for numbers in found:
            if numbers is None:
                return
            if not options.at_once:
                write(name, numbers)
            print(_line(name, row, numbers), flush=True)
            print("\n".join(_section(name, row, numbers)), flush=True)
    write_atomic(PAGE, render())


if __name__ == "__main__":
    main()

"""The learning results of docs/results.md: train a row, keep its numbers, render all.

    python experiments/results.py dqn-cartpole pqn-doors   # train these rows
    python experiments/results.py --all                    # every row, hours on a CPU
    python experiments/results.py                          # only render the page

A row is a preset and a number of seeds, 0, 1, 2, ... Its numbers go to
experiments/results/ROW.json with the hardware and the versions that printed them, and
the page is rendered from these files. Nothing here fails when a goal is missed: it says
so.
"""

import argparse
import json
import os
import platform
import re
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import results_losses

import purerl
from purerl import presets
from purerl.report.statistics import bootstrap_mean
from purerl.serialise import write_atomic

HERE = Path(__file__).parent
STORE = HERE / "results"
PAGE = HERE.parent / "docs" / "results.md"


class Row(NamedTuple):
    """One learning result.

    Attributes:
        title: algorithm and task.
        preset: of the config.
        seeds: agents.
        goal: least mean evaluation; None for a curve that is only to rise.
        note: what a reader should know.
        changes: fields that differ from the preset.
    """

    title: str
    preset: str
    seeds: int
    goal: float | None
    note: str = ""
    changes: dict[str, Any] | None = None


INTRODUCTION = """\
# Learning results

Each row was printed by its command, `python experiments/results.py ROW`, which also
wrote this page from `experiments/results/*.json`. *Evaluation* is the deterministic
policy at the end of training: the mean over seeds, with a 95% bootstrap interval of
that mean. *Time* is training, compilation apart. Steps are environment steps per agent;
all agents of a row train in one call. The config is the preset of the row's name unless
the note says otherwise: `purerl train --preset NAME --seeds N` trains the same.

| result | row | steps x seeds | evaluation (95% interval) | goal | time (compile) |
|---|---|---|---|---|---|
"""

ROWS = {
    "ppo-cartpole": Row("PPO, CartPole-v1", "ppo-cartpole", 16, 490),
    "vpg-cartpole": Row("VPG, CartPole-v1", "vpg-cartpole", 16, 450),
    "dqn-cartpole": Row("DQN, CartPole-v1", "dqn-cartpole", 16, 475),
    "pqn-cartpole": Row("PQN, CartPole-v1", "pqn-cartpole", 16, 475),
    "recurrent-ppo-cartpole": Row(
        "Recurrent PPO, CartPole-v1", "recurrent-ppo-cartpole", 4, None
    ),
    "dqn-cartpole-20k": Row(
        "DQN, CartPole-v1, one environment, 20,000 steps",
        "dqn-cartpole-20k",
        10,
        195,
        "the goal is 195 by at least 8 of 10 seeds",
    ),
    "dqn-jym": Row(
        "DQN, the same with the source article's numbers",
        "dqn-jym",
        10,
        None,
        "discount 0.9, buffer of 512",
    ),
    "ppo-doors": Row("PPO, Doors-v0, limit 60", "ppo-doors", 4, 14.5, "optimum 15.21"),
    "dqn-doors": Row("DQN, Doors-v0, limit 60", "dqn-doors", 4, 14.5, "optimum 15.21"),
    "pqn-doors": Row("PQN, Doors-v0, limit 60", "pqn-doors", 4, 14.5, "optimum 15.21"),
    "ppo-pendulum": Row("PPO, Pendulum-v1", "ppo-pendulum", 4, -300),
    "td3-pendulum": Row("TD3, Pendulum-v1", "td3-pendulum", 4, -200),
    "sac-pendulum": Row("SAC, Pendulum-v1", "sac-pendulum", 4, -200),
    "mpo-pendulum": Row("MPO, Pendulum-v1", "mpo-pendulum", 4, -200),
    "td3-swingup": Row("TD3, CartpoleSwingup-v0", "td3-swingup", 4, 750),
    "sac-swingup": Row("SAC, CartpoleSwingup-v0", "sac-swingup", 4, 750),
    "mpo-swingup": Row("MPO, CartpoleSwingup-v0", "mpo-swingup", 4, 750),
    "ppo-minatar": Row(
        "PPO, Breakout-MinAtar",
        "ppo-minatar",
        2,
        None,
        changes={"env": "Breakout-MinAtar", "total_timesteps": 2_000_000},
    ),
    "pqn-minatar": Row(
        "PQN, Breakout-MinAtar",
        "pqn-minatar",
        2,
        None,
        "128-128 units instead of the CNN",
        changes={
            "env": "Breakout-MinAtar",
            "total_timesteps": 2_000_000,
            "epsilon_steps": 200_000.0,
            "torso": "mlp",
            "hidden_sizes": (128, 128),
        },
    ),
    "ppo-halfcheetah": Row(
        "PPO, HalfCheetah (brax, spring)", "ppo-halfcheetah", 2, None
    ),
    "td3-halfcheetah-cpu": Row(
        "TD3, HalfCheetah (brax, spring)", "td3-halfcheetah-cpu", 2, None
    ),
    "sac-halfcheetah-cpu": Row(
        "SAC, HalfCheetah (brax, spring)", "sac-halfcheetah-cpu", 2, None
    ),
}


def train(name: str, row: Row) -> dict[str, Any]:
    """Train a row's agents; the numbers that are kept."""
    config = presets.load(row.preset).replace(**(row.changes or {}))
    load = os.getloadavg()[0]
    result = purerl.run(config, seeds=row.seeds)
    final = result.evaluation["episode_return"][:, -1].mean(-1)
    low, high = bootstrap_mean(final[:, None])
    curve = np.nanmean(result.evaluation["episode_return"], axis=(0, 2))
    return {
        "row": name,
        "command": f"python experiments/results.py {name}",
        "steps": int(result.metrics["env_steps"][0, -1]),
        "seeds": row.seeds,
        "mean": float(final.mean()),
        "low": float(low[0]),
        "high": float(high[0]),
        "per_seed": [round(float(x), 2) for x in final],
        "curve_steps": result.evaluation["env_steps"][0].tolist(),
        "curve": [round(float(x), 2) for x in curve],
        "compile_seconds": round(result.compile_seconds, 1),
        "train_seconds": round(result.train_seconds, 1),
        "load_before": round(load, 2),
        **hardware(),
    }


def hardware() -> dict[str, Any]:
    """What the numbers were printed on and with."""
    import jax

    device = jax.local_devices()[0]
    model = device.device_kind
    info = Path("/proc/cpuinfo")
    if device.platform == "cpu" and info.exists():
        found = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.M)
        model = found.group(1).strip() if found else platform.machine()
        model = re.sub(r"\s+\d+-Core Processor$", "", model)
        model = f"{os.cpu_count()} cores of {model}"
    return {
        "hardware": model,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "jax": version("jax"),
        "purerl": version("purerl"),
    }


def command(parser: argparse.ArgumentParser, asked: argparse.Namespace) -> str:
    """What would print the same numbers again: the script, and what was changed."""
    kept = ("out", "dry")
    flags = [
        f" --{name.replace('_', '-')} {_words(value)}"
        for name, value in vars(asked).items()
        if value != parser.get_default(name) and name not in kept
    ]
    return f"python experiments/{Path(sys.argv[0]).name}{''.join(flags)}"


def _words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def render() -> str:
    """The page, from the numbers that are there."""
    lines = [str(line) for line in INTRODUCTION.splitlines()]
    found = {path.stem: json.loads(path.read_text()) for path in STORE.glob("*.json")}
    notes = []
    for name, row in ROWS.items():
        numbers = found.get(name)
        if numbers is None:
            continue
        lines.append(_line(name, row, numbers))
        notes.append(_note(name, row, numbers))
    lines += ["", "What each row came from, and its course:", "", *notes]
    lines += results_losses.section()
    return "\n".join(lines) + "\n"


def _line(name: str, row: Row, numbers: dict[str, Any]) -> str:
    digits = 1 if abs(numbers["mean"]) < 1000 else 0
    mean, low, high = (f"{numbers[k]:,.{digits}f}" for k in ("mean", "low", "high"))
    goal = "-"
    if row.goal is not None:
        goal = f">= {row.goal:g}: " + ("met" if _is_met(row, numbers) else "**missed**")
    return (
        f"| {row.title} | `{name}` | {numbers['steps']:,} x {numbers['seeds']} | "
        f"{mean} ({low} to {high}) | {goal} | "
        f"{numbers['train_seconds']:.0f} s ({numbers['compile_seconds']:.0f} s) |"
    )


def _is_met(row: Row, numbers: dict[str, Any]) -> bool:
    if row.preset == "dqn-cartpole-20k":
        return sum(x >= row.goal for x in numbers["per_seed"]) >= 8
    return row.goal is None or numbers["mean"] >= row.goal


def _note(name: str, row: Row, numbers: dict[str, Any]) -> str:
    changes = "".join(f" {k}={v}" for k, v in (row.changes or {}).items())
    parts = [row.note, f"changed:{changes}" if changes else ""]
    seeds = ", ".join(f"{x:g}" for x in numbers["per_seed"])
    course = ", ".join(
        f"{steps / 1000:,.0f}k: {value:,.4g}"
        for steps, value in zip(numbers["curve_steps"], numbers["curve"], strict=True)
    )
    parts += [
        f"seeds {seeds}",
        f"evaluations {course}",
        f"{numbers['hardware']}, jax {numbers['jax']}, Python {numbers['python']}, "
        f"{numbers['date']}, load {numbers['load_before']} before",
    ]
    return f"* `{name}`: " + "; ".join(part for part in parts if part) + "."


def main() -> None:
    """Train the rows that were asked for, then render the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--all", action="store_true", help="train every row")
    options = parser.parse_args()
    unknown = set(options.rows) - set(ROWS)
    if unknown:
        parser.error(f"no row {', '.join(sorted(unknown))}; rows: {', '.join(ROWS)}")
    STORE.mkdir(exist_ok=True)
    for name in ROWS if options.all else options.rows:
        numbers = train(name, ROWS[name])
        write_atomic(STORE / f"{name}.json", json.dumps(numbers, indent=2) + "\n")
        print(_line(name, ROWS[name], numbers), flush=True)
        print(_note(name, ROWS[name], numbers), flush=True)
    write_atomic(PAGE, render())


if __name__ == "__main__":
    main()

"""A day with a GPU: everything worth measuring, in parts of less than ten minutes.

    PYTHON=.venv/bin/python CUDA=cuda12 experiments/benchmarks/setup_peers.sh  # once
    python experiments/benchmarks/gpu_day.py --list
    python experiments/benchmarks/gpu_day.py --purejaxrl PATH/ppo.py
    python experiments/benchmarks/gpu_day.py --only device ppo-1 --minutes 9
    python experiments/benchmarks/gpu_day.py --table > table.md
    JAX_PLATFORMS=cpu python experiments/benchmarks/gpu_day.py --toy   # anywhere

Every part is a process of its own, and leaves a JSON file with its rows, the device and
the versions. The same command again does what is missing: a part that has its file is
skipped, unless it failed and `--retry` is given. A part that fails or takes too long is
recorded with its error and with the rows that it had, and the rest go on.
"""

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from bench import PEERS, ROOT, Asked, markdown, number, options, read, write

SHORTEST = 0.5  # With fewer minutes left no part begins.
DETERMINISTIC = "--xla_gpu_deterministic_ops=true"
# One agent with as many environments as a GPU takes, and short rollouts.
WIDE = {"num_envs": 8_192, "num_steps": 16, "num_minibatches": 8}
# PPO with the numbers of a preset: part -> what it is, agents, preset, other numbers.
PRESETS: dict[str, tuple[str, int, str, dict[str, Any]]] = {
    "wide-cartpole": (
        "one PPO agent with 8,192 environments, 50M CartPole steps, the three stacks",
        *(1, "ppo-cartpole", WIDE | {"total_timesteps": 50_000_000}),
    ),
    "wide-minatar": (
        "one PPO agent with 8,192 environments, 25M MinAtar steps, the three stacks",
        *(1, "ppo-minatar", WIDE | {"total_timesteps": 25_000_000}),
    ),
    "wide-brax": (
        "one PPO agent with 8,192 environments, 10M steps of brax, the three stacks",
        *(1, "ppo-brax", {"num_envs": 8_192, "total_timesteps": 10_000_000}),
    ),
    "minatar": (
        "ten PPO agents, 1M MinAtar steps, the three stacks",
        *(10, "ppo-minatar", {"total_timesteps": 1_000_000}),
    ),
}


class Part(NamedTuple):
    """One thing to measure.

    Attributes:
        what: What it is, for `--list`.
        kind: Its function is `gpu_parts.measure_KIND`, which takes a `Day`; it is
            loaded in the part's own process.
        arguments: The function's other arguments.
        flags: Flags of XLA.
    """

    what: str
    kind: str
    arguments: tuple[Any, ...] = ()
    flags: str = ""


def make_parts() -> dict[str, Part]:
    """Return the parts of the day, in their order."""
    parts = {"device": Part("time per dependent kernel, bytes/s", "device")}
    for n in (1, 8, 64, 512, 2_048, 8_192):
        words = f"{n:,} PPO agents, 500,000 CartPole steps, rejax and PureJaxRL"
        parts[f"ppo-{n}"] = Part(words, "ppo", (n,))
    for name, (words, *arguments) in PRESETS.items():
        parts[name] = Part(words, "preset", tuple(arguments))
    words = "PPO's brax preset beside brax's own PPO, 2.5M steps"
    parts["brax-ppo"] = Part(words, "brax", (2_500_000,))
    parts["bits"] = Part("same seed, killed and resumed", "bits")
    words = f"the same with {DETERMINISTIC}"
    parts["bits-deterministic"] = Part(words, "bits", flags=DETERMINISTIC)
    for name in ("dqn", "td3", "sac"):
        words = f"{name.upper()}, 1 and 64 agents, beside rejax"
        parts[name] = Part(words, "off_policy", (name,))
    return parts


PARTS = make_parts()


def run_child(name: str, asked: Asked) -> None:
    """Measure a part in this process; keep every row in a file as soon as it is there.

    Args:
        name: The part.
        asked: The options of the command.
    """
    import gpu_parts

    from purerl.storage.folders import made_with

    part, path = PARTS[name], unfinished(asked.out, name)
    kept: dict[str, Any] = {**made_with(), "rows": []}

    def add(row: dict[str, Any]) -> None:
        kept["rows"].append(row)
        write(path, kept)
        print(row, flush=True)

    work = asked.out / "work" / name
    work.mkdir(parents=True, exist_ok=True)
    rounds = asked.rounds if asked.rounds is not None else 2 if asked.toy else 4
    deadline = time.monotonic() + asked.minutes * 60
    given = (asked.toy, work, asked.peers, asked.purejaxrl, deadline, add, rounds)
    write(path, kept)
    getattr(gpu_parts, f"measure_{part.kind}")(gpu_parts.Day(*given), *part.arguments)


def unfinished(folder: Path, name: str) -> Path:
    """Return the file in which a part keeps its rows until it ends."""
    return folder / "work" / f"{name}.json"


def run_part(name: str, asked: Asked, minutes: float) -> dict[str, Any]:
    """Measure a part in a process of its own, and return its record.

    Args:
        name: The part.
        asked: The options of the command.
        minutes: How long it may take.
    """
    part, log = PARTS[name], asked.out / "work" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    unfinished(asked.out, name).unlink(missing_ok=True)
    command = [sys.executable, str(Path(__file__)), "--child", name]
    command += [f"--out={asked.out}", f"--peers={asked.peers}", f"--minutes={minutes}"]
    command += [f"--purejaxrl={asked.purejaxrl}"] if asked.purejaxrl else []
    command += ["--toy"] * asked.toy
    command += [f"--rounds={asked.rounds}"] if asked.rounds is not None else []
    started, began, error = datetime.now(UTC).isoformat(), time.monotonic(), ""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            env=environment(part),
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            if process.wait(minutes * 60 + 15):
                error = log.read_text(errors="replace")[-3000:]
        except subprocess.TimeoutExpired:
            error = f"stopped: it took longer than {minutes:g} minutes"
        finally:
            # Peers are processes of its group, and end with it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return {
        "part": name,
        "what": part.what,
        "started": started,
        "seconds": round(time.monotonic() - began, 1),
        "toy": asked.toy,
        "flags": part.flags,
        "error": error,
        **(read(unfinished(asked.out, name)) or {"rows": []}),
    }


def environment(part: Part) -> dict[str, str]:
    """Return the variables of a part's process.

    The peers' processes and ours share the device one after the other, so none of them
    takes its memory beforehand.
    """
    flags = f"{os.environ.get('XLA_FLAGS', '')} {part.flags}".strip()
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "XLA_FLAGS": flags,
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }


def records(folder: Path) -> list[dict[str, Any]]:
    """Return what the parts of a folder left, in their order."""
    return [found for name in PARTS if (found := read(folder / f"{name}.json"))]


def run_parts(names: Sequence[str], asked: Asked) -> None:
    """Measure the parts that are missing, as far as the minutes go."""
    until = time.monotonic() + 60 * (asked.in_all or float("inf"))
    known = {record["part"]: record for record in records(asked.out)}
    for name in names:
        before = known.get(name)
        if before and not (before["error"] and asked.retry):
            failed = ", which failed (--retry)" if before["error"] else ""
            print(f"{name}: has its file{failed}", flush=True)
            continue
        minutes = min(asked.minutes, (until - time.monotonic()) / 60)
        if minutes < SHORTEST:
            print(f"{name}: no time is left", flush=True)
            continue
        print(f"{name}: {PARTS[name].what} ...", flush=True)
        record = run_part(name, asked, minutes)
        write(asked.out / f"{name}.json", record)
        end = record["error"].strip().splitlines()[-1:] or ["done"]
        print(f"  {end[0][:200]} ({record['seconds']} s)", flush=True)


def parse() -> Asked:
    """Read the command line."""
    asked = options(
        __doc__,
        list=(False, "print the parts, and stop"),
        table=(False, "print the table of FOLDER, and stop"),
        only=([str], PARTS, "these parts"),
        toy=(False, "next to nothing, on any machine"),
        retry=(False, "parts that failed, too"),
        out=(Path, "folder; results/gpu-day if not given"),
        minutes=(9.0, "of a part, at the most"),
        in_all=(float, "minutes of this command, at the most"),
        rounds=(int, "timed runs of each program; 4 if not given"),
        peers=(PEERS, "rejax's environment"),
        purejaxrl=(Path, "PureJaxRL's ppo.py"),
        child=(str, PARTS, "measure this part in this process"),
    )
    if asked.rounds is not None and asked.rounds < 1:
        sys.exit(f"--rounds must be at least 1, got {asked.rounds}.")
    if asked.purejaxrl and not asked.purejaxrl.is_file():
        sys.exit(f"--purejaxrl {asked.purejaxrl} is no file; give its ppo.py.")
    folder = "gpu-day-toy" if asked.toy else "gpu-day"
    asked.out = (asked.out or ROOT / "results" / folder).resolve()
    if any(r["toy"] != asked.toy for r in records(asked.out)) and not asked.table:
        sys.exit(f"{asked.out} mixes toys and real sizes; give another --out.")
    return asked


def main() -> None:
    """Do what the command line asks."""
    asked = parse()
    if asked.child:
        run_child(asked.child, asked)
        return
    if asked.list:
        print("\n".join(f"{name:<24} {part.what}" for name, part in PARTS.items()))
        return
    if not asked.table:
        # So that a part under way ends with this process.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        run_parts(asked.only or list(PARTS), asked)
        print()
    print(table_text(records(asked.out)), end="")


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


def table_text(records: Sequence[Record]) -> str:
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


if __name__ == "__main__":
    main()

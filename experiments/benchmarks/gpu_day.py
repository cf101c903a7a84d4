"""A day with a GPU: everything worth measuring, in parts of less than ten minutes.

    PYTHON=.venv/bin/python CUDA=cuda12 experiments/benchmarks/setup_peers.sh  # once
    python experiments/benchmarks/gpu_day.py --list
    python experiments/benchmarks/gpu_day.py --purejaxrl PATH/ppo.py
    python experiments/benchmarks/gpu_day.py --only device ppo-1 --minutes 9
    python experiments/benchmarks/gpu_day.py --prepare 8 --rounds 2 --in-all 9
    python experiments/benchmarks/gpu_day.py --table > table.md
    JAX_PLATFORMS=cpu python experiments/benchmarks/gpu_day.py --toy   # anywhere

Every part is a process of its own, and leaves a JSON file with its rows, the device and
the versions. The same command again does what is missing: a part that has its file is
skipped, unless it failed and `--retry` is given. A part that fails or takes too long is
recorded with its error and with the rows that it had, and the rest go on.

Where the hours of a GPU are dear, `--prepare N` compiles first, N parts at a time, into
a cache from which the parts take their programs, in this call and in later ones. They
do not say how long compilation took, as it was not measured alone. XLA times some
kernels while it compiles, here beside other processes, so it may choose other ones than
alone. Parts that time nothing are measured while the others compile.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import gpu_table
from peer import ROOT

from purerl.atomic import write_atomic

MINUTES = 9.0  # The longest that a part may take.
SHORTEST = 0.5  # With fewer minutes left no part begins.
UNDER_WAY: set[subprocess.Popen[bytes]] = set()  # The processes of parts.
# Sets of XLA's options in `gpu_options.py`, and what they are.
OPTIONS = {
    "default": "own options",
    "no-graphs": "graphs switched off",
    "small-graphs": "graphs from two kernels on",
    "loops": "graphs with loops and branches in them",
    "double-buffer": "loops of two turns at a time",
}
# What `gpu_without.py` switches off.
SWITCHES = {
    "barrier": "a barrier after every step of the environments",
    "sums": "sums in the place of the products of few acting rows",
}
DETERMINISTIC = "--xla_gpu_deterministic_ops=true"


class Part(NamedTuple):
    """One thing to measure.

    Attributes:
        what: What it is, for `--list`.
        module: The module of its function, which is loaded in the part's own process.
        function: The name of the function; it takes a `gpu_parts.Day`.
        arguments: The function's other arguments.
        flags: Flags of XLA.
        is_timed: Whether it must have the device for itself.
    """

    what: str
    module: str
    function: str
    arguments: tuple[Any, ...] = ()
    flags: str = ""
    is_timed: bool = True


PARTS = {
    "device": Part("time per dependent kernel, bytes/s", "gpu_parts", "measure_device"),
    **{
        f"kernels-{name}": Part(
            f"kernels of {name}, and the time of each",
            "gpu_parts",
            "measure_kernels",
            (name,),
        )
        for name in ("ppo-cartpole", "dqn-cartpole", "td3-pendulum", "sac-pendulum")
    },
    **{
        f"ppo-{n}": Part(
            f"{n:,} PPO agents, 500,000 CartPole steps, rejax and PureJaxRL",
            "gpu_parts",
            "measure_ppo",
            (n,),
        )
        for n in (1, 8, 64, 512, 2_048, 8_192)
    },
    **{
        f"options-{name}": Part(
            f"PPO with XLA's {words}", "gpu_options", "measure_options", (name, words)
        )
        for name, words in OPTIONS.items()
    },
    **{
        f"without-{name}": Part(
            f"PPO without {words}, and as it is",
            "gpu_without",
            "measure_without",
            (name, words),
        )
        for name, words in SWITCHES.items()
    },
    **{
        f"profile-{name}-{n}": Part(
            f"the kernels of {n:,} agents of {name} in the profiler, and the gaps",
            "gpu_profile",
            "measure_profile",
            (name, n),
        )
        for name, n in (
            ("ppo-cartpole", 1),
            ("ppo-cartpole", 1_024),
            ("pqn-cartpole", 64),
            ("recurrent-ppo-cartpole", 64),
            ("dqn-cartpole", 64),
            ("td3-pendulum", 64),
            ("sac-pendulum", 64),
            ("mpo-pendulum", 64),
            ("ppo-minatar", 1),
            ("ppo-halfcheetah", 1),
        )
    },
    "bits": Part(
        "same seed, killed and resumed", "gpu_bits", "measure_bits", is_timed=False
    ),
    "bits-deterministic": Part(
        f"the same with {DETERMINISTIC}",
        "gpu_bits",
        "measure_bits",
        flags=DETERMINISTIC,
        is_timed=False,
    ),
    "evolution": Part(
        "a generation of 512 agents, 500,000 steps each",
        "gpu_parts",
        "measure_evolution",
    ),
    "minatar": Part("PPO, MinAtar, 1e7 steps", "gpu_parts", "measure_minatar"),
    **{
        name: Part(
            f"{name.upper()}, 1 and 64 agents",
            "gpu_parts",
            "measure_off_policy",
            (name,),
        )
        for name in ("dqn", "td3", "sac")
    },
    **{
        f"brax-{task}-{who}": Part(
            f"{who}'s PPO on brax {task}, 5e7 steps",
            "gpu_brax",
            f"measure_{who}",
            (task,),
        )
        for task in ("ant", "halfcheetah")
        for who in ("purerl", "brax")
    },
}


def run_child(name: str, options: argparse.Namespace) -> None:
    """Measure a part in this process; keep every row in a file as soon as it is there.

    Args:
        name: The part.
        options: The options of the command.
    """
    import importlib

    from gpu_parts import Day

    from purerl.storage.folders import made_with

    part = PARTS[name]
    kept: dict[str, Any] = {**made_with(), "rows": []}
    path = unfinished(options.out, name)

    def add(row: dict[str, Any]) -> None:
        kept["rows"].append(row)
        write_atomic(path, json.dumps(kept, indent=1))
        print(json.dumps(row), flush=True)

    write_atomic(path, json.dumps(kept))
    work = options.out / "work" / name
    work.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + options.minutes * 60
    function: Callable[..., None] = getattr(
        importlib.import_module(part.module), part.function
    )
    peers = options.peers / "bin" / "python"
    rounds = options.rounds if options.rounds is not None else 2 if options.toy else 4
    day = Day(options.toy, work, peers, options.purejaxrl, deadline, add, rounds)
    function(day, *part.arguments)


def unfinished(folder: Path, name: str) -> Path:
    """Return the file in which a part keeps its rows until it ends."""
    return folder / "work" / f"{name}.json"


def run_part(
    name: str, options: argparse.Namespace, minutes: float, rounds: int | None
) -> dict[str, Any]:
    """Measure a part in a new process, and return its record.

    Args:
        name: The part.
        options: The options of the command.
        minutes: The longest that it may take.
        rounds: Timed runs of each program; 0 only compiles.
    """
    part, log = PARTS[name], options.out / "work" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    unfinished(options.out, name).unlink(missing_ok=True)
    words = [f"--out={options.out}", f"--peers={options.peers}", f"--minutes={minutes}"]
    words += [f"--purejaxrl={options.purejaxrl}"] if options.purejaxrl else []
    words += ["--toy"] if options.toy else []
    words += [f"--rounds={rounds}"] if rounds is not None else []
    command = [sys.executable, str(Path(__file__)), "--child", name, *words]
    started, began = datetime.now(UTC).isoformat(), time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            env=environment(part, options.out),
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        UNDER_WAY.add(process)
        error = _end_of(process, minutes)
    if error == "failed":
        error = log.read_text(errors="replace")[-3000:]
    kept = {"rows": []}
    if unfinished(options.out, name).exists():
        kept = json.loads(unfinished(options.out, name).read_text())
    return {
        "part": name,
        "what": part.what,
        "started": started,
        "seconds": round(time.monotonic() - began, 1),
        "toy": options.toy,
        "flags": part.flags,
        "error": error,
        **kept,
    }


def _end_of(process: subprocess.Popen[bytes], minutes: float) -> str:
    """Wait; an empty text where all went well. Peers end with the part's process."""
    try:
        return "failed" if process.wait(minutes * 60 + 15) else ""
    except subprocess.TimeoutExpired:
        return f"stopped: it took longer than {minutes:g} minutes"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        UNDER_WAY.discard(process)


def environment(part: Part, folder: Path) -> dict[str, str]:
    """Return the variables of a part's process.

    The peers' processes and ours share the device one after the other, so none of them
    takes its memory beforehand.

    Args:
        part: The part.
        folder: The folder of the day, with the cache of prepared programs.
    """
    cache = folder / "work" / "cache"
    prepared = {"JAX_COMPILATION_CACHE_DIR": str(cache)} if cache.exists() else {}
    flags = f"{os.environ.get('XLA_FLAGS', '')} {part.flags}".strip()
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {
        **os.environ,
        **prepared,
        "PYTHONPATH": path,
        "XLA_FLAGS": flags,
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }


def records(folder: Path) -> list[dict[str, Any]]:
    """Return what the parts of a folder left, in their order."""
    paths = [folder / f"{name}.json" for name in PARTS]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def run_parts(names: Sequence[str], options: argparse.Namespace) -> None:
    """Measure the parts that are missing, as far as the minutes go."""
    until = time.monotonic() + 60 * (options.in_all or float("inf"))
    if options.prepare:
        prepare(names, options, until)
    known = {record["part"]: record for record in records(options.out)}
    for name in names:
        before = known.get(name)
        if before and not (before["error"] and options.retry):
            failed = ", which failed (--retry)" if before["error"] else ""
            print(f"{name}: has its file{failed}", flush=True)
            continue
        minutes = min(options.minutes, (until - time.monotonic()) / 60)
        if minutes < SHORTEST:
            print(f"{name}: no time is left", flush=True)
            continue
        print(f"{name}: {PARTS[name].what} ...", flush=True)
        record = run_part(name, options, minutes, options.rounds)
        keep(record, options.out)
        print(f"  {end_of(record)}", flush=True)


def keep(record: dict[str, Any], folder: Path) -> None:
    """Write the file of a part that was measured."""
    path = folder / f"{record['part']}.json"
    write_atomic(path, json.dumps(record, indent=1) + "\n")


def end_of(record: dict[str, Any]) -> str:
    """Say how a part ended, in a line."""
    end = record["error"].strip().splitlines()[-1:] or ["done"]
    return f"{end[0][:200]} ({record['seconds']} s)"


def prepare(names: Sequence[str], options: argparse.Namespace, until: float) -> None:
    """Compile the programs of several parts at a time; measure what is not timed.

    Args:
        names: The parts.
        options: The options of the command; `prepare` is the number of processes.
        until: The reading of `time.monotonic` at which no part may run any more.
    """
    (options.out / "work" / "cache").mkdir(parents=True, exist_ok=True)
    known = {record["part"] for record in records(options.out)}

    def work(name: str) -> None:
        is_timed = PARTS[name].is_timed
        rounds = 0 if is_timed else options.rounds
        minutes = min(options.minutes, (until - time.monotonic()) / 60)
        if minutes < SHORTEST:
            return
        record = run_part(name, options, minutes, rounds)
        if not is_timed:
            keep(record, options.out)
        print(f"{name}, beside others: {end_of(record)}", flush=True)

    with ThreadPoolExecutor(options.prepare) as pool:
        try:
            list(pool.map(work, [name for name in names if name not in known]))
        except BaseException:
            # The threads wait for processes, which would go on without this one.
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(UNDER_WAY):
                os.killpg(process.pid, signal.SIGKILL)
            raise


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--list", action="store_true", help="print the parts, and stop")
    add("--table", action="store_true", help="print the table of FOLDER, and stop")
    add("--only", nargs="+", choices=PARTS, metavar="PART", help="these parts")
    add("--toy", action="store_true", help="next to nothing, on any machine")
    add("--retry", action="store_true", help="parts that failed, too")
    add("--out", type=Path, help="folder; results/gpu-day if not given")
    add("--minutes", type=float, default=MINUTES, help="of a part, at the most")
    add("--in-all", type=float, help="minutes of this command, at the most")
    add("--rounds", type=int, help="timed runs of each program; 4 if not given")
    add("--prepare", type=int, metavar="N", help="compile first, N parts at a time")
    add("--peers", type=Path, default=ROOT / ".venv-peers", help="rejax's environment")
    add("--purejaxrl", type=Path, help="PureJaxRL's ppo.py")
    add("--child", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.minutes <= 0:
        parser.error(f"--minutes must be positive, got {options.minutes:g}.")
    for name in ("rounds", "prepare"):
        number = getattr(options, name)
        if number is not None and number < 1 and not options.child:
            parser.error(f"--{name} must be at least 1, got {number}.")
    if options.purejaxrl and not options.purejaxrl.is_file():
        parser.error(f"--purejaxrl {options.purejaxrl} is no file; give its ppo.py.")
    folder = "gpu-day-toy" if options.toy else "gpu-day"
    options.out = (options.out or ROOT / "results" / folder).resolve()
    if any(r["toy"] != options.toy for r in records(options.out)) and not options.table:
        parser.error(f"{options.out} mixes toys and real sizes; give another --out.")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what the command line asks."""
    options = parse(arguments)
    if options.child:
        run_child(options.child, options)
        return
    if options.list:
        print("\n".join(f"{name:<24} {part.what}" for name, part in PARTS.items()))
        return
    if not options.table:
        # So that a part under way ends with this process.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        options.out.mkdir(parents=True, exist_ok=True)
        run_parts(options.only or list(PARTS), options)
        print()
    print(gpu_table.text(records(options.out)), end="")


if __name__ == "__main__":
    main()

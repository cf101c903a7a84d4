"""The time before the first step: tracing, lowering and compiling whole training runs.

    python experiments/benchmarks/compile_time.py                    # all presets below
    PYTHON=.venv/bin/python experiments/benchmarks/setup_peers.sh    # once
    python experiments/benchmarks/compile_time.py --peers .venv-peers ppo-cartpole
    python experiments/benchmarks/compile_time.py --peers .venv-peers \
        --purejaxrl PATH/ppo.py ppo-cartpole
    python experiments/benchmarks/compile_time.py --checkout PATH    # beside other code

Every figure is of a fresh process without a cache, and the contenders take turns. With
peers, PPO's programs are without evaluations on all sides (their evaluations are not
alike). The ratio is that to rejax, or to the same preset of the other code.
Compilation uses all cores, so let nothing else run; seconds of processors, the sum over
cores of all stages, suffer least where something does.
"""

import argparse
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import report

HERE = Path(__file__).parent
PRESETS = (
    "ppo-cartpole",
    "ppo-pendulum",
    "ppo-minatar",
    "recurrent-ppo-cartpole",
    "vpg-cartpole",
    "pqn-cartpole",
    "dqn-cartpole",
    "td3-pendulum",
    "sac-pendulum",
    "mpo-pendulum",
)
STAGES = ("trace", "lower", "compile")


def measure(python: Path, words: list[str], checkout: Path | None = None) -> dict:
    """Trace and compile a program in a new process.

    Args:
        python: Interpreter of the program's environment.
        words: Arguments of `compile_worker.py`.
        checkout: Code of purerl that takes the place of the installed one.
    """
    variables = dict(os.environ, JAX_PLATFORMS="cpu")
    variables.pop("JAX_COMPILATION_CACHE_DIR", None)
    if checkout is not None:
        variables["PYTHONPATH"] = str(checkout)
    command = [str(python), str(HERE / "compile_worker.py"), *words]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=variables
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def median(rounds: list[dict[str, float]], stages: tuple[str, ...] = STAGES) -> float:
    """Return the median over rounds of the sum of some stages, in seconds."""
    return report.spread([sum(each[s] for s in stages) for each in rounds]).median


def line(name: str, rounds: list[dict[str, float]], against: float | None) -> str:
    """Return a line of the table.

    Args:
        name: Name of the program.
        rounds: What each round measured.
        against: Seconds of the program that others are compared with, if any.
    """
    stages = " | ".join(f"{median(rounds, (stage,)):.2f}" for stage in STAGES)
    whole = median(rounds)
    ratio = "" if against is None else f"{whole / against:.2f}"
    size = rounds[0]["program_kB"]
    processor = median(rounds, ("processor",))
    return (
        f"| {name} | {stages} | {whole:.2f} | {ratio} | {processor:.2f} | {size:,.0f} |"
    )


def main() -> None:
    """Measure in turns; print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("presets", nargs="*", metavar="PRESET", default=PRESETS)
    parser.add_argument("--rounds", type=int, default=3, help="processes of each")
    parser.add_argument("--peers", type=Path, help="environment with rejax")
    parser.add_argument("--purejaxrl", type=Path, help="PureJaxRL's ppo.py")
    parser.add_argument("--checkout", type=Path, help="other code of purerl")
    options = parser.parse_args()
    changes = ["num_evaluations=0"] if options.peers else []
    own, here = Path(sys.executable), HERE.parent.parent
    contenders: dict[str, tuple[Any, ...]] = {}
    for name in options.presets:
        words = ["purerl", name, *changes]
        contenders[name] = (own, words, here)
        if options.checkout:
            contenders[f"{name}, {options.checkout.name}"] = (
                own,
                words,
                options.checkout,
            )
    if options.peers:
        python = options.peers / "bin" / "python"
        contenders["rejax, PPO"] = (python, ["rejax"])
        if options.purejaxrl:
            contenders["PureJaxRL, PPO"] = (
                python,
                ["purejaxrl", str(options.purejaxrl)],
            )
    rounds: dict[str, list] = {name: [] for name in contenders}
    for _ in range(options.rounds):
        for name, arguments in contenders.items():
            rounds[name].append(measure(*arguments))
    print(f"{report.hardware()}, medians of {options.rounds}, jax {version('jax')}\n")
    print(
        "| program | trace, s | lower, s | compile, s | in all, s | ratio "
        "| of processors, s | kB |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, found in rounds.items():
        other = "rejax, PPO"
        if options.checkout:
            other = f"{name}, {options.checkout.name}"
        against = median(rounds[other]) if other in rounds else None
        print(line(name, found, against))


if __name__ == "__main__":
    main()

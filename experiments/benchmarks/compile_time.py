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

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bench
from same_numbers import for_purejaxrl, for_rejax

import purerl

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


def measure(python: Path, words: Sequence[Any], checkout: Path | str = "") -> dict:
    """Trace and compile a program in a new process.

    Args:
        python: Interpreter of the program's environment.
        words: Arguments of `compile_worker.py`.
        checkout: Code of purerl that takes the place of the installed one.
    """
    env = {"JAX_PLATFORMS": "cpu", "JAX_COMPILATION_CACHE_DIR": ""}
    if checkout:
        env["PYTHONPATH"] = str(checkout)
    return bench.child(bench.HERE / "compile_worker.py", *words, python=python, env=env)


def median(rounds: list[dict[str, float]], stages: tuple[str, ...] = STAGES) -> float:
    """Return the median over rounds of the sum of some stages, in seconds."""
    return bench.spread([sum(each[s] for s in stages) for each in rounds]).median


def main() -> None:
    """Measure in turns; print the table."""
    asked = bench.options(
        __doc__,
        presets=bench.Words(PRESETS, "PRESET", is_checked=False),
        rounds=(3, "processes of each"),
        peers=(Path, "environment with rejax"),
        purejaxrl=(Path, "PureJaxRL's ppo.py"),
        checkout=(Path, "other code of purerl"),
    )
    changes = ["num_evaluations=0"] if asked.peers else []
    own, contenders = Path(sys.executable), dict[str, tuple[Any, ...]]()
    for name in asked.presets or PRESETS:
        words = ["purerl", name, *changes]
        contenders[name] = (own, words, bench.ROOT)
        if asked.checkout:
            other = f"{name}, {asked.checkout.name}"
            contenders[other] = (own, words, asked.checkout)
    if asked.peers:
        python = asked.peers / "bin" / "python"
        config: Any = purerl.resolve(purerl.PPOConfig())
        requests = {"rejax, PPO": {"ppo": for_rejax(config)}}
        if asked.purejaxrl:
            own_words = for_purejaxrl(config, asked.purejaxrl)
            requests["PureJaxRL, PPO"] = {"purejaxrl": own_words}
        for name, request in requests.items():
            contenders[name] = (python, ["peer", json.dumps(request)])
    rounds: dict[str, list] = {name: [] for name in contenders}
    for _ in range(asked.rounds):
        for name, arguments in contenders.items():
            rounds[name].append(measure(*arguments))
    rows = []
    for name, found in rounds.items():
        other = f"{name}, {asked.checkout.name}" if asked.checkout else "rejax, PPO"
        whole, processor = median(found), median(found, ("processor",))
        ratio = f"{whole / median(rounds[other]):.2f}" if other in rounds else ""
        stages = [f"{median(found, (stage,)):.2f}" for stage in STAGES]
        numbers = [*stages, f"{whole:.2f}", ratio, f"{processor:.2f}"]
        rows.append([name, *numbers, f"{found[0]['program_kB']:,.0f}"])
    print(f"{bench.machine_line()}; medians of {asked.rounds}\n")
    heads = "program | trace, s | lower, s | compile, s | in all, s | ratio"
    bench.print_table(f"{heads} | of processors, s | kB", rows)


if __name__ == "__main__":
    main()

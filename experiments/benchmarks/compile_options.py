"""The costs and gains of the compiler's level of optimisation on this machine.

    python experiments/benchmarks/compile_options.py
    python experiments/benchmarks/compile_options.py ppo-halfcheetah:1:65536
    python experiments/benchmarks/compile_options.py ppo-cartpole:1:200000 \
        --option xla_cpu_use_fusion_emitters=false

Every case is a preset, a number of agents and the environment steps of each. It is
compiled twice, as `purerl.compiler_options` says and as XLA does by itself, and both
programs run in turns, results waited for. Seconds are those of processors, the sum over
cores, which suffer least from what else runs; a ratio below 1 is in favour of purerl's
options. The ratio of the runs is the median over rounds, with the smallest and the
largest. With `--option` the program beside XLA's own has that option of XLA's and
purerl's.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import distrax  # noqa: F401  (loaded by the first tracing, and counted with neither)
import jax
import yaml
from report import hardware

import purerl
from purerl import presets

CASES = (
    "ppo-cartpole:1:200000",
    "ppo-cartpole:4:100000",
    "ppo-minatar:1:40000",
    "ppo-halfcheetah:1:40960",
    "recurrent-ppo-cartpole:1:30000",
    "pqn-cartpole:1:100000",
    "dqn-cartpole:1:50000",
    "td3-pendulum:1:5000",
    "sac-pendulum:1:4000",
    "mpo-pendulum:1:3000",
)


def spent(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the processor's seconds of a call, and what it returned."""
    began = time.process_time()
    found = call()
    return time.process_time() - began, found


def measure(case: str, rounds: int, more: dict[str, Any]) -> str:
    """Return the table's line of a case.

    Args:
        case: Preset, agents and steps, with colons between them.
        rounds: How often each program runs.
        more: Options of XLA beside purerl's.
    """
    name, agents, steps = case.split(":")
    config = presets.load(name).replace(total_timesteps=int(steps), num_evaluations=0)
    keys = jax.random.split(jax.random.key(0), int(agents))
    lowered = jax.jit(jax.vmap(purerl.make_train(config))).lower(keys)
    options = purerl.compiler_options() | more
    ours, own = spent(lambda: lowered.compile(options))
    plain, default = spent(lowered.compile)

    def run(program: Any) -> float:
        return spent(lambda: jax.block_until_ready(program(keys)))[0]

    run(own), run(default)  # once without counting
    ratios = []
    for number in range(rounds):
        pair = (own, default) if number % 2 else (default, own)
        seconds = {id(program): run(program) for program in pair}
        ratios.append(seconds[id(own)] / seconds[id(default)])
    spread = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return (
        f"| `{name}` | {agents} | {ours:.1f} | {plain:.1f} | {ours / plain:.2f} "
        f"| {spread} |"
    )


def main() -> None:
    """Print a table of the cases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "cases", nargs="*", default=CASES, metavar="PRESET:AGENTS:STEPS"
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    pairs = [option.split("=", 1) for option in options.option]
    more = {name: yaml.safe_load(value) for name, value in pairs}
    print(f"{hardware()}, jax {jax.__version__}, medians of {options.rounds}")
    print(f"purerl's options{''.join(f', {option}' for option in options.option)}\n")
    print(
        "| program | agents | compile, s | by itself, s | ratio | ratio of the runs |"
    )
    print("|---|---|---|---|---|---|")
    for case in options.cases:
        print(measure(case, options.rounds, more), flush=True)


if __name__ == "__main__":
    main()

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

import time
from statistics import median
from typing import Any

import distrax  # noqa: F401  (loaded by the first tracing, and counted with neither)
import jax
import yaml
from bench import Words, machine_line, options, print_row, print_table

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


def spent(call: Any) -> tuple[float, Any]:
    """Return the processor's seconds of a call, and what it returned."""
    began = time.process_time()
    found = jax.block_until_ready(call())
    return time.process_time() - began, found


def cells(case: str, rounds: int, more: dict[str, Any]) -> list[Any]:
    """Return the table's cells of a case.

    Args:
        case: Preset, agents and steps, with colons between them.
        rounds: How often each program runs.
        more: Options of XLA beside purerl's.
    """
    name, agents, steps = case.split(":")
    config = presets.load(name).replace(total_timesteps=int(steps), num_evaluations=0)
    keys = jax.random.split(jax.random.key(0), int(agents))
    lowered = jax.jit(jax.vmap(purerl.make_train(config))).lower(keys)
    ours, own = spent(lambda: lowered.compile(purerl.compiler_options() | more))
    plain, default = spent(lowered.compile)
    own(keys), default(keys)  # once without counting
    ratios = []
    for number in range(rounds):
        pair = (own, default) if number % 2 else (default, own)
        seconds = {id(program): spent(lambda p=program: p(keys))[0] for program in pair}
        ratios.append(seconds[id(own)] / seconds[id(default)])
    spread = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    times = (f"{ours:.1f}", f"{plain:.1f}", f"{ours / plain:.2f}")
    return [f"`{name}`", agents, *times, spread]


def main() -> None:
    """Print a table of the cases."""
    asked = options(
        __doc__,
        cases=Words(CASES, "PRESET:AGENTS:STEPS", is_checked=False),
        rounds=9,
        option=([str], "NAME=VALUE of XLA's options"),
    )
    pairs = [option.split("=", 1) for option in asked.option or ()]
    more = {name: yaml.safe_load(value) for name, value in pairs}
    print(f"{machine_line()}; medians of {asked.rounds}")
    print(", ".join(["purerl's options", *(asked.option or ())]), end="\n\n")
    heads = "program | agents | compile, s | by itself, s | ratio | ratio of the runs"
    print_table(heads)
    for case in asked.cases or CASES:
        print_row(*cells(case, asked.rounds, more))


if __name__ == "__main__":
    main()

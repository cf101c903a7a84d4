"""The costs and gains of the compiler's level of optimisation on this machine.

    python experiments/benchmarks/compile_options.py
    python experiments/benchmarks/compile_options.py ppo-halfcheetah:1:65536
    python experiments/benchmarks/compile_options.py ppo-cartpole:1:200000 \
        --option xla_cpu_use_fusion_emitters=false

Every case is a preset, a number of agents and the environment steps of each. It is
compiled twice, as `purerl.compiler_options` says and as XLA does by itself, and both
programs run in turns, results waited for. Seconds are those of processors, the sum over
cores, which suffer least from what else runs; a ratio below 1 is in favour of purerl's
options. The ratio of the runs is that of their medians, with the smallest and the
largest of a round. With `--option` the program beside XLA's own has that option of
XLA's and purerl's.
"""

import sys
from typing import Any

import bench
import distrax  # noqa: F401  (loaded by the first tracing, and counted with neither)
import jax
import yaml

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
    options = purerl.compiler_options() | more
    own, ours = bench.clocked(lambda: lowered.compile(options))
    default, plain = bench.clocked(lowered.compile)
    measures: dict[str, bench.Measure] = {}
    for who, program in {"own": own, "XLA's": default}.items():
        measures[who] = bench.calls(lambda program=program: program(keys))
        measures[who](0)  # once without counting
    both = bench.alternate(measures, rounds, sys.stderr).values()
    ratios = bench.compare(*([run.cpu_seconds for run in runs] for runs in both))
    spread = "{:.2f} ({:.2f} to {:.2f})".format(*ratios)
    seconds = ours.cpu_seconds, plain.cpu_seconds
    times = (*(f"{x:.1f}" for x in seconds), f"{seconds[0] / seconds[1]:.2f}")
    return [f"`{name}`", agents, *times, spread]


def main() -> None:
    """Print a table of the cases."""
    asked = bench.options(
        __doc__,
        cases=bench.Words(CASES, "PRESET:AGENTS:STEPS", is_checked=False),
        rounds=9,
        option=([str], "NAME=VALUE of XLA's options"),
    )
    pairs = [option.split("=", 1) for option in asked.option or ()]
    more = {name: yaml.safe_load(value) for name, value in pairs}
    print(f"{bench.machine_line()}; medians of {asked.rounds}")
    print(", ".join(["purerl's options", *(asked.option or ())]), end="\n\n")
    heads = "program | agents | compile, s | by itself, s | ratio | ratio of the runs"
    bench.print_table(heads)
    for case in asked.cases or CASES:
        bench.print_row(*cells(case, asked.rounds, more))


if __name__ == "__main__":
    main()

"""The cost of packing a loop's outputs on this machine's own platform.

    python experiments/benchmarks/packing_speed.py

PPO on CartPole-v1 is compiled twice, once as for an accelerator and once as for a CPU
(`purerl.accelerator.packing`), and both are run in turn, results waited for. A figure
is the ratio of the medians; compilation is apart.
"""

from bench import alternate, compare, machine_line, options, seconds_of, spread, train

from purerl import presets
from purerl.tracing import traced_for

# Agents -> environment steps of each.
CASES = {1: 100_000, 64: 10_000}


def main() -> None:
    """Print a line per case."""
    asked = options(__doc__, rounds=7)
    print(machine_line())
    for agents, steps in CASES.items():
        config = presets.load("ppo-cartpole").replace(
            total_timesteps=steps, num_evaluations=0
        )
        measures = {}
        for name, platform in (("packed", "cuda"), ("plain", "cpu")):
            with traced_for(platform):
                measures[name], _ = train(config, agents)
            measures[name](0)  # once without counting
        runs = alternate(measures, asked.rounds)
        packed, plain = (seconds_of(runs[name]) for name in measures)
        ratio = compare(packed, plain)
        print(
            f"{agents} agents x {steps:,} steps: packed {spread(packed).median:.2f} s, "
            f"plain {spread(plain).median:.2f} s, {ratio.median:.2f} times "
            f"({ratio.low:.2f} to {ratio.high:.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()

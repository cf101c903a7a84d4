"""Training on images with convolutions, by products of windows and by XLA's own.

    python experiments/benchmarks/convolution_speed.py --agents 1 4

PPO on Breakout-MinAtar with 16 environments: its default network with convolutions as
`purerl.networks.layers.convolve` writes them on a CPU, the same network with XLA's
own, and `torso="mlp"`. All train in turn, compilation apart, and `jax.vmap` has the
agents side by side. A rate counts the steps of all agents, by the clock and by the
processor time of all threads. Each trains for so many updates that it takes seconds;
XLA's own, whose rate is low, for the fewest, and for no more than `--xla-agents`.
"""

import statistics

import jax
from bench import alternate, machine_line, options, print_row, print_table, train

import purerl
from purerl.networks import layers
from purerl.types import Array

CONFIG = purerl.PPOConfig(env="Breakout-MinAtar", num_envs=16, num_evaluations=0)
STEPS_OF_UPDATE = 16 * 128
HEADS = "agents | network | steps/s | steps per processor second | of the MLP's"
ours = layers.convolve


def xla_convolution(
    x: Array, kernel: Array, bias: Array, stride: int, padding: str
) -> Array:
    """Convolve as XLA does."""
    numbers = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), padding, dimension_numbers=numbers
    )
    return y + bias


def main() -> None:
    """Print a row for each number of agents and each network."""
    asked = options(__doc__, rounds=3, agents=[1, 4, 64], updates=20, xla_agents=4)
    print(machine_line())
    print_table(HEADS)
    for agents in asked.agents:
        updates = max(1, asked.updates // agents)
        programs = {
            "MLP": ("mlp", ours, 5 * updates),
            "windows": ("auto", ours, updates),
        }
        if agents <= asked.xla_agents:
            programs["XLA's"] = ("auto", xla_convolution, max(1, updates // 10))
        measures = {}
        for name, (torso, convolve, length) in programs.items():
            layers.convolve = convolve
            steps = length * STEPS_OF_UPDATE
            config = CONFIG.replace(torso=torso, total_timesteps=steps)
            measures[name], _ = train(config, agents)
        runs, rates = alternate(measures, asked.rounds), {}
        for name, (_, _, length) in programs.items():
            steps = agents * length * STEPS_OF_UPDATE
            by_clock, by_processor = (
                statistics.median(steps / getattr(run, unit) for run in runs[name])
                for unit in ("seconds", "cpu_seconds")
            )
            rates[name] = by_processor
            share = f"{by_processor / rates['MLP']:.3f}"
            print_row(agents, name, f"{by_clock:,.0f}", f"{by_processor:,.0f}", share)


if __name__ == "__main__":
    main()

"""The speed of an evolution as a share of that of plain vmapped training.

    python experiments/benchmarks/evolve_speed.py
    python experiments/benchmarks/evolve_speed.py --agents 512 --steps 500000  # a GPU

A generation (ask, train every member, read the fitness, tell, and with `--save` write
the checkpoint) and `purerl.pmap(train)` over the same agents, at the same lane width,
take turns. A figure is the ratio of median frames per second; the goal is 0.9. `busy`
is the same by the processor time of the process: on a machine shared with others it
says more than the clock.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from report import hardware

import purerl
from purerl.execution.members import crossed
from purerl.meta import store
from purerl.meta.fitness import inner_config
from purerl.meta.loop import EvolutionLoop
from purerl.meta.setup import EvolutionSettings, make_setup
from purerl.meta.training import Options, rollout_keys, strategy_keys
from purerl.scale.devices import make_workers
from purerl.sweeps.planner import worker_limit

GOAL = 0.9


class Time(NamedTuple):
    """Seconds of one round, by the clock and of the processors."""

    wall: float
    busy: float


class Quiet:
    """A stand-in for a progress bar, which shows nothing."""

    def ran(self, runs: int) -> None:
        """Nothing is shown."""

    def generation(self, best: float, mean: float, failed: int) -> None:
        """Nothing is shown."""


def timed(function: Callable[[], Any]) -> Time:
    """Run it once."""
    wall, busy = time.perf_counter(), time.process_time()
    function()
    return Time(time.perf_counter() - wall, time.process_time() - busy)


def make_evolution(arguments: argparse.Namespace) -> EvolutionLoop:
    """The published value-loss evolution with fewer agents and steps."""
    config = purerl.PPOConfig(
        total_timesteps=arguments.steps,
        num_steps=64,
        value_loss=purerl.losses.MLPValueLoss.zeros(),
    )
    asked = EvolutionSettings(
        "value_loss",
        "open-es",
        population=arguments.agents // 2,
        rollouts=2,
        fitness="training_curve",
    )
    setup = make_setup(config, asked)
    workers = make_workers()
    limit = worker_limit(None, workers)
    options = Options(None, arguments.lanes, None, arguments.chunk, limit, 0, 0, False)
    return EvolutionLoop(setup, arguments.rounds + 2, workers, options)


def plain_training(evolution: EvolutionLoop) -> Callable[[int], Any]:
    """`purerl.pmap` of the same agents' training, of a generation's keys and losses."""
    setup = evolution.setup
    config = inner_config(setup.config, setup.fitness)
    train = purerl.make_train(config)

    def curve(key: jax.Array, overrides: Any) -> jax.Array:
        return train(key, overrides).metrics["episode_return"]

    mapped = purerl.pmap(curve, lanes=evolution.training.lanes)
    optimiser, key = evolution.optimiser, evolution.key
    state = optimiser.init(key)

    def one(generation: int) -> Any:
        ask, _ = strategy_keys(key, generation)
        _, overrides, _ = optimiser.ask(ask, state)
        keys = rollout_keys(key, generation, setup.rollouts)
        members = crossed(keys, overrides, np.arange(setup.runs))
        return jax.block_until_ready(mapped(members.keys, members.overrides))

    return one


def main() -> None:
    """Alternate, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=32)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--lanes", type=int, default=None)
    parser.add_argument("--chunk", type=int, default=1, help="blocks held at a time")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="a checkpoint each time")
    arguments = parser.parse_args()
    evolution = make_evolution(arguments)
    state, _ = evolution.open()
    evolution.compile()
    plain = plain_training(evolution)
    folder = Path(tempfile.mkdtemp())
    (folder / "checkpoints").mkdir()

    def generation() -> None:
        nonlocal state
        state = evolution.generation(state, Quiet(), lambda: False)
        if arguments.save:
            store.save(folder, state)

    generation()
    plain(0)  # compiles
    found: dict[str, list[Time]] = {"generation": [], "plain": []}
    for number in range(arguments.rounds):
        pair = [("generation", generation), ("plain", lambda n=number: plain(n + 1))]
        for name, function in pair if number % 2 else reversed(pair):
            found[name].append(timed(function))
    shutil.rmtree(folder)
    _print(evolution, found)


def _print(evolution: EvolutionLoop, found: dict[str, list[Time]]) -> None:
    steps, agents = evolution.setup.steps, evolution.setup.runs
    lanes = evolution.training.lanes
    print(f"{hardware()}; {agents} agents, {steps:,} steps, {lanes} lanes")
    medians = {}
    for name, times in found.items():
        wall = statistics.median(t.wall for t in times)
        busy = statistics.median(t.busy for t in times)
        medians[name] = Time(wall, busy)
        spread = np.array([t.wall for t in times])
        print(
            f"{name:<11} {steps / wall:>12,.0f} steps/s  {agents / wall:8.2f} agents/s "
            f" {wall:.2f} s ({spread.min():.2f} to {spread.max():.2f}), busy {busy:.2f}"
        )
    wall = medians["plain"].wall / medians["generation"].wall
    busy = medians["plain"].busy / medians["generation"].busy
    verdict = "met" if wall >= GOAL else "missed"
    print(f"ratio {wall:.3f} by the clock, {busy:.3f} busy; goal {GOAL}: {verdict}")


if __name__ == "__main__":
    main()

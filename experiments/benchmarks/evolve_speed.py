"""The speed of an evolution as a share of that of plain vmapped training.

    python experiments/benchmarks/evolve_speed.py
    python experiments/benchmarks/evolve_speed.py --agents 512 --steps 500000  # a GPU

A generation (ask, train every member, read the fitness, tell, and with `--save` write
the checkpoint) and `purerl.pmap(train)` over the same agents, at the same lane width,
take turns. A figure is the ratio of median frames per second; the goal is 0.9. `busy`
is the same by the processor time of the process: on a machine shared with others it
says more than the clock.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from bench import alternate, calls, machine_line, options, rates, spread

import purerl
from purerl.execution.members import crossed
from purerl.execution.memory import worker_limit
from purerl.meta import store
from purerl.meta.fitness import inner_config
from purerl.meta.loop import EvolutionLoop
from purerl.meta.setup import EvolutionSettings, make_setup
from purerl.meta.training import Options, rollout_keys, strategy_keys
from purerl.scale.devices import make_workers

GOAL = 0.9


class Quiet:
    """A stand-in for a progress bar, which shows nothing."""

    def ran(self, runs: int) -> None:
        """Nothing is shown."""

    def generation(self, best: float, mean: float, failed: int) -> None:
        """Nothing is shown."""


def make_evolution(
    agents: int, steps: int, lanes: int | None = None, chunk: int = 1, rounds: int = 9
) -> EvolutionLoop:
    """The published value-loss evolution with fewer agents and steps."""
    config = purerl.PPOConfig(
        total_timesteps=steps,
        num_steps=64,
        value_loss=purerl.losses.MLPValueLoss.zeros(),
    )
    asked = EvolutionSettings(
        "value_loss",
        "open-es",
        population=agents // 2,
        rollouts=2,
        fitness="training_curve",
    )
    workers = make_workers()
    limit = worker_limit(None, workers)
    more = Options(None, lanes, None, chunk, limit, 0, 0, False)
    return EvolutionLoop(make_setup(config, asked), rounds + 2, workers, more)


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


class Generations:
    """An evolution that is called for each of its generations.

    Args:
        evolution: The evolution, whose programs are compiled.
        folder: Where a checkpoint is written each time, if anywhere.
    """

    def __init__(self, evolution: EvolutionLoop, folder: Path | None = None) -> None:
        self._evolution, self._folder = evolution, folder
        self._state, _ = evolution.open()
        evolution.compile()

    def __call__(self) -> None:
        """Run a generation."""
        self._state = self._evolution.generation(self._state, Quiet(), lambda: False)
        if self._folder:
            store.save(self._folder, self._state)


def main() -> None:
    """Alternate, and print medians."""
    asked = options(
        __doc__,
        agents=32,
        steps=50_000,
        lanes=int,
        chunk=(1, "blocks held at a time"),
        rounds=5,
        save=(False, "a checkpoint each time"),
    )
    given = {name: x for name, x in asked.given().items() if name != "save"}
    evolution = make_evolution(**given)
    folder = Path(tempfile.mkdtemp())
    (folder / "checkpoints").mkdir()
    generation = Generations(evolution, folder if asked.save else None)
    plain, numbers = plain_training(evolution), iter(range(asked.rounds + 1))
    generation()
    plain(next(numbers))  # compiles
    measures = {
        "generation": calls(generation),
        "plain": calls(lambda: plain(next(numbers))),
    }
    runs = alternate(measures, asked.rounds)
    shutil.rmtree(folder)
    steps, agents = evolution.setup.steps, evolution.setup.runs
    lanes = evolution.training.lanes
    print(f"{machine_line()}; {agents} agents, {steps:,} steps, {lanes} lanes")
    walls, busy = {}, {}
    for name, found in runs.items():
        wall, low, high = spread([run.seconds for run in found])
        walls[name] = wall
        busy[name] = spread([run.cpu_seconds for run in found]).median
        print(
            f"{name:<11} {spread(rates(found, steps)).median:>12,.0f} steps/s  "
            f"{agents / wall:8.2f} agents/s  {wall:.2f} s ({low:.2f} to {high:.2f}), "
            f"busy {busy[name]:.2f}"
        )
    wall, own = (each["plain"] / each["generation"] for each in (walls, busy))
    verdict = "met" if wall >= GOAL else "missed"
    print(f"ratio {wall:.3f} by the clock, {own:.3f} busy; goal {GOAL}: {verdict}")


if __name__ == "__main__":
    main()

"""purerl.evolve: evolve a loss, hyperparameters or the environment's physics.

A generation asks the strategy for a population, trains every member in blocks of lanes
over all devices, and tells the strategy what each was worth. The programs are compiled
once, in the first generation.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from numbers import Real
from pathlib import Path
from typing import Any

from purerl.config import ConfigError, TrainConfig
from purerl.execution.memory import require_listing, worker_limit
from purerl.meta.genome import Names
from purerl.meta.loop import EvolutionLoop
from purerl.meta.result import EvolutionResult
from purerl.meta.setup import (
    Environments,
    EvolutionSettings,
    check_whole_runs,
    make_setup,
)
from purerl.meta.strategy import Strategy
from purerl.meta.training import Options
from purerl.precision import in_32_bits
from purerl.runner.arguments import as_folder, check_call, check_seconds
from purerl.runner.trackers import Tracker, choose
from purerl.scale import hosts
from purerl.scale.devices import as_count, make_workers, required
from purerl.storage.folders import is_begun
from purerl.storage.lock import locked


@in_32_bits
def evolve(
    config: TrainConfig,
    evolve: Names,
    *,
    strategy: str | Mapping[str, Any] | Strategy = "open-es",
    population: int = 64,
    generations: int = 100,
    rollouts: int = 1,
    fitness: str = "training_curve",
    environments: Environments = (),
    baselines: Any = None,
    seed: int = 0,
    truncation: int | None = None,
    out: str | Path | None = None,
    lanes: int | None = None,
    segment_updates: int | None = None,
    chunk_blocks: int | None = None,
    memory_limit: str | float | None = None,
    devices: Any = None,
    checkpoint_seconds: float = 30.0,
    snapshot_every: int | None = None,
    trackers: Sequence[str | Tracker] | None = None,
    progress: bool = True,
) -> EvolutionResult:
    """Evolve leaves of a config so that what is trained with them is worth most.

    All members of a generation train with the same random keys, and the next generation
    with others: what is compared is what is evolved. A member is worth the mean of its
    runs' fitness over rollouts and environments. One whose training meets a number that
    is not finite is ranked last and counted.

    With `out`, the same call after a kill goes on, and the result is bitwise that of an
    uninterrupted one. Under `jax.distributed` every process trains its share.

    Args:
        config: The config that members train with; what is evolved starts from its
            values.
        evolve: The name of a field with float leaves (`"value_loss"`, `"policy_loss"`,
            `"env_params.length"`), several, or names with scales; see
            `purerl.meta.genome`.
        strategy: The strategy: a name with options (`"cma-es(sigma=0.2)"`), a mapping,
            or `purerl.OpenES(...)`; see `purerl.Strategy`.
        population: The number of members of a generation, P.
        generations: The number of generations in all; an evolution in a folder may go
            on for more.
        rollouts: The number of training runs of each member in each environment, R.
        fitness: The kind of fitness: `training_curve`, `final_return` or `evaluation`;
            with `negative_` before it, as in `negative_training_curve`, it is
            minimised. See `purerl.meta.fitness`.
        environments: Names of environments, or changes of the config by name; the
            config's own where not given.
        baselines: The return that counts 1 (or a pair, the returns that count 0 and 1),
            by environment. Measured where there are several environments and none are
            given: the algorithm's own loss, with as many rollouts but at least eight;
            refused if their mean is not clear of zero.
        seed: The seed of everything random.
        truncation: Updates of a run that a generation trains, K, for the strategies
            `persistent-es` and `noise-reuse-es`: the next generation goes on with the
            same runs, until they end. Whole runs where not given.
        out: The folder to write; nothing is written without one.
        lanes: The width of a block, part of what fixes the bits.
        segment_updates: Updates of a compiled call, part of what fixes the bits; the
            whole run where not given.
        chunk_blocks: The number of blocks that a worker holds at a time; it changes no
            bit.
        memory_limit: Bytes for training, such as `"2GB"`.
        devices: Local devices to use; all of the default backend where not given.
        checkpoint_seconds: The least time between checkpoints, or ten times what the
            last one took where that is longer; 0 saves every generation.
        snapshot_every: The number of generations between two snapshots of the solution;
            0 for none. 16, or that of the folder, where not given.
        trackers: More places to write every generation to, beside JSON lines: names
            (`mlflow`, `tensorboard`, `wandb`), or trackers (see `purerl.make_tracker`).
            An evolution that goes on does so with those that it was started with where
            none are given.
        progress: Whether to show the progress.

    Raises:
        ConfigError: anything that cannot be evolved, or a folder of another evolution
            (with what differs); before anything is trained.
    """
    check_call("purerl.evolve", config)
    settings = EvolutionSettings(
        evolve,
        strategy,
        population,
        rollouts,
        fitness,
        environments,
        baselines,
        seed,
        truncation,
    )
    setup = make_setup(config, settings)
    generations = required("generations", generations)
    lanes = as_count("lanes", lanes)
    segment_updates = as_count("segment_updates", segment_updates)
    chunk_blocks = as_count("chunk_blocks", chunk_blocks)
    check_whole_runs(setup, generations, segment_updates)
    require_listing(setup.population * setup.rollouts, config.total_timesteps)
    check_seconds("checkpoint_seconds", checkpoint_seconds)
    check_snapshots(snapshot_every)
    workers = make_workers(devices)
    is_cpu = workers[0].device.platform == "cpu"
    options = Options(
        as_folder("out", out),
        lanes,
        segment_updates,
        chunk_blocks or (1 if is_cpu else 2),
        worker_limit(memory_limit, workers),
        checkpoint_seconds,
        snapshot_every,
        progress and hosts.index() == 0,
    )

    def check_and_choose() -> list[Tracker]:
        if hosts.index() > 0:
            return []  # Only the first process looks at the folder, and writes.
        if not is_begun(options.folder):
            setup.optimiser.check_fields()  # What was begun goes on as it is.
        return choose(trackers, options.folder)

    chosen = hosts.run_on_all(check_and_choose)
    with ExitStack() as stack:
        # Of several processes all open the folder, and the first one writes.
        folder = options.folder if hosts.index() == 0 else None
        hosts.run_on_all(lambda: stack.enter_context(locked(folder)))
        return EvolutionLoop(setup, generations, workers, options, chosen).run()


def check_snapshots(snapshot_every: int | None) -> None:
    """Refuse what is no number of generations between two snapshots.

    Raises:
        ConfigError: naming the value.
    """
    if snapshot_every is None:
        return
    if not isinstance(snapshot_every, Real) or not snapshot_every >= 0:
        raise ConfigError(f"snapshot_every must be 0 or more, got {snapshot_every!r}.")

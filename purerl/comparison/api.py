"""purerl.compare: named settings judged on held-out seeds and in held-out environments.

Every setting trains in every environment with the same random keys, which no search has
seen (`purerl.comparison.held_out`). Settings that change the same numbers are one
compiled program per environment, vmapped over settings and seeds.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from purerl import serialise
from purerl.comparison.environments import Environments, read_environments
from purerl.comparison.losses import Losses, settings_of
from purerl.comparison.result import Comparison
from purerl.comparison.settings import Settings, described, read_settings
from purerl.comparison.tracking import Tracking
from purerl.comparison.training import TRAINED, Options, Part, make_parts, train
from purerl.config import ConfigError, TrainConfig
from purerl.execution.memory import require_listing
from purerl.precision import in_32_bits
from purerl.report.comparison import WORDS
from purerl.runner.arguments import (
    as_folder,
    as_seed,
    check_call,
    check_seeds,
    num_seeds,
)
from purerl.runner.trackers import Tracker, choose
from purerl.scale import hosts
from purerl.scale.devices import as_count, make_workers
from purerl.search.fitness import check_fitness
from purerl.storage import folders
from purerl.storage.lock import locked
from purerl.streams import say
from purerl.sweeps.planner import worker_limit

MEASURES = ("training_curve", "final_return")
DEFAULT_SEEDS = 64


@in_32_bits
def compare(
    config: TrainConfig,
    settings: Settings,
    *,
    environments: Environments = (),
    baseline: str | None = None,
    seeds: int | Sequence[int] = DEFAULT_SEEDS,
    seed: int = 0,
    measures: Sequence[str] = MEASURES,
    out: str | Path | None = None,
    lanes: int | None = None,
    segment_updates: int | None = None,
    memory_limit: str | float | None = None,
    devices: Any = None,
    trackers: Sequence[str | Tracker] | None = None,
    progress: bool = True,
) -> Comparison:
    """Train with every setting in every environment on held-out seeds, and compare.

    The keys come from a stream of their own: no evolution, whatever its seed, and no
    run of `purerl.run` has trained with them. All settings get the same keys, so that
    differences are taken seed by seed. A run that met a number that is not finite is
    counted, and is worth the worst score of its environment (see `Row`).

    Settings that change the same numbers, and are alike in all else, train in one
    compiled program; any others in one each. What a setting's runs become does not
    depend on what it is compared with.

    With `out`, what has been trained is kept, setting by setting: the same call after a
    kill goes on, and one with another setting or environment trains only that.

    Args:
        config: The config that the settings change.
        settings: Settings by name: changes of the config by (dotted) name, such as
            `{"learning_rate": 1e-3, "hidden_sizes": (64, 64)}`, also of a loss
            (`{"value_loss": "HuberError(delta=2.0)"}`), of what the environment is made
            with (`{"env_params.length": 1.5}`) or of the algorithm
            (`{"algorithm": "dqn"}`); a whole config, of any algorithm; an evolution or
            its folder, for what it learned; or a `purerl.Schedule`.
        environments: Environments: names; changes of the config by name, as in
            `{"env": "Acrobot-v1", "total_timesteps": 200_000}`, with `name` to call
            them otherwise; or configs. The config's own where none are given.
        baseline: The name of the setting that others are compared with; the first if
            not given.
        seeds: The number of held-out seeds, which are then 0, 1, ..., or their numbers.
        seed: The number from whose key the held-out seeds' keys come.
        measures: Kinds of `purerl.meta.fitness`: `training_curve` (area under the
            training curve by its length), `final_return`, `evaluation`.
        out: The folder to write; nothing is written without one.
        lanes: Agents per block, part of what fixes the bits.
        segment_updates: Updates of a compiled call, part of what fixes the bits; the
            whole run where not given, and up to the next piece of a schedule.
        memory_limit: Bytes for training, such as `"2GB"`.
        devices: Local devices to use; all of the default backend where not given.
        trackers: Trackers that are told of every setting when it has been trained, a
            nested run each: names (`mlflow`, `tensorboard`, `wandb`), or trackers. A
            comparison that goes on does so with those that it was started with where
            none are given.
        progress: Whether to show the progress.

    Raises:
        ConfigError: a setting, environment or option that cannot be, before anything
            is trained.
        KeyboardInterrupt: somebody asked to stop; what was finished is in `out`.
    """
    check_call("purerl.compare", config)
    hosts.require_one("a comparison", "Call it in a program of its own.")
    require_listing(num_seeds(seeds), config.total_timesteps)
    entries = read_settings(settings)
    tasks = read_environments(config, environments)
    workers = make_workers(devices)
    options = Options(
        _measures(measures),
        check_seeds(seeds),
        as_seed("seed", seed),
        as_count("lanes", lanes),
        as_count("segment_updates", segment_updates),
        workers,
        worker_limit(memory_limit, workers),
    )
    _check_baseline(baseline, [entry.name for entry in entries])
    folder = _folder(out)
    with locked(folder):
        known, parts = make_parts(entries, tasks, options, folder, say)
        tracking = Tracking(
            serialise.to_dict(tasks[0].config),
            [task.name for task in tasks],
            {entry.name: described(entry) for entry in entries},
            folder,
            choose(trackers, folder),
        )
        tracking.begin(say)
        with tracking.group:
            tracking.add(known)
            known |= train(
                parts, options, progress, tracking.add, lambda: tracking.group.stop
            )
            result = Comparison.of(entries, tasks, options, baseline, known)
            if folder is not None:
                result.save(folder)
            tracking.close(is_finished=True)
    return result


@in_32_bits
def compare_losses(
    config: TrainConfig,
    field: str,
    losses: Losses,
    environments: Environments = (),
    seeds: int | Sequence[int] = DEFAULT_SEEDS,
    out: str | Path | None = None,
    *,
    baseline: str | None = None,
    measures: Sequence[str] = MEASURES,
    seed: int = 0,
    lanes: int | None = None,
    segment_updates: int | None = None,
    memory_limit: str | float | None = None,
    devices: Any = None,
    trackers: Sequence[str | Tracker] | None = None,
    progress: bool = True,
) -> Comparison:
    """Train with every loss in every environment on held-out seeds, and compare.

    It is `purerl.compare` with settings that change a loss.

    Args:
        config: The config to train with.
        field: The field of the config that losses are put into, `value_loss` or
            `policy_loss`.
        losses: Losses by name: an object; the path of a saved loss; text such as
            `"HuberError(delta=2.0)"`; or changes of the config by name, as in
            `{"value_loss": purerl.losses.SquaredError(), "value_coef": 0.1}`.
        environments: Environments, see `purerl.compare`.
        seeds: The held-out seeds, see `purerl.compare`.
        out: The folder to write, see `purerl.compare`.
        baseline: The setting that others are compared with, see `purerl.compare`.
        measures: Kinds of `purerl.meta.fitness`, see `purerl.compare`.
        seed: The number from whose key the held-out seeds' keys come.
        lanes: Agents per block, see `purerl.compare`.
        segment_updates: Updates of a compiled call, see `purerl.compare`.
        memory_limit: Bytes for training, see `purerl.compare`.
        devices: Local devices to use, see `purerl.compare`.
        trackers: Trackers that are told of every loss, see `purerl.compare`.
        progress: Whether to show the progress.

    Raises:
        ConfigError: a loss, field, environment or option that cannot be, before
            anything is trained.
        KeyboardInterrupt: somebody asked to stop; what was finished is in `out`.
    """
    return compare(
        config,
        settings_of(config, field, losses),
        environments=environments,
        baseline=baseline,
        seeds=seeds,
        seed=seed,
        measures=measures,
        out=out,
        lanes=lanes,
        segment_updates=segment_updates,
        memory_limit=memory_limit,
        devices=devices,
        trackers=trackers,
        progress=progress,
    )


def planned(
    config: TrainConfig,
    settings: Settings,
    environments: Environments,
    seeds: int | Sequence[int],
    measures: Sequence[str] = MEASURES,
    baseline: str | None = None,
) -> list[Part]:
    """Return what `compare` would train without a folder, a part per program.

    Args:
        config: The config that the settings change.
        settings: Settings by name, see `compare`.
        environments: Environments, see `compare`.
        seeds: The held-out seeds, see `compare`.
        measures: Kinds of `purerl.meta.fitness`, see `compare`.
        baseline: The setting that others are compared with, see `compare`.

    Raises:
        ConfigError: see `compare`.
    """
    options = Options(
        _measures(measures), check_seeds(seeds), 0, None, None, (), float("inf")
    )
    entries = read_settings(settings)
    tasks = read_environments(config, environments)
    _check_baseline(baseline, [entry.name for entry in entries])
    return make_parts(entries, tasks, options)[1]


def _check_baseline(baseline: str | None, names: Sequence[str]) -> None:
    if baseline is not None and baseline not in names:
        raise ConfigError(
            f"baseline must be one of the settings ({', '.join(names)}), got "
            f"{baseline!r}."
        )


def _measures(measures: Sequence[str]) -> tuple[str, ...]:
    if measures is None:
        measures = ()
    given = (measures,) if isinstance(measures, str) else measures
    names = tuple(check_fitness(kind, tuple(WORDS), "measures") for kind in given)
    if not names or len(set(names)) < len(names):
        raise ConfigError(
            f"measures must name each kind once and at least one, got {measures!r}; "
            f"for example {MEASURES}."
        )
    return names


def _folder(out: str | Path | None) -> Path | None:
    """The folder to write, or None; an evolution's may have its comparison inside."""
    folder = as_folder("out", out)
    check_out(folder)
    if folder is not None:
        folders.make(folder, (TRAINED,))
    return folder


def check_out(folder: Path | None) -> None:
    """Refuse a folder that holds neither a comparison nor an evolution.

    Raises:
        ConfigError: saying what it holds; or it could not be written.
    """
    if folder is None:
        return
    folders.check_writable(folder)
    if (folder / folders.MANIFEST).exists():
        folders.refuse_other(folder, (folders.COMPARISON, "evolution"))

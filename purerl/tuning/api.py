"""purerl.tune: axes and a budget of trials in, the best config out."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from purerl.config import ConfigError, TrainConfig
from purerl.execution.memory import require_listing
from purerl.precision import in_32_bits
from purerl.runner.arguments import as_folder, as_seed, check_seeds, num_seeds
from purerl.runner.trackers import Tracker, choose
from purerl.scale.devices import as_count, make_workers, required
from purerl.search.fitness import check_fitness
from purerl.storage import folders
from purerl.tuning.folder import kept_lanes
from purerl.tuning.loop import Options, StudyLoop
from purerl.tuning.pool import KINDS, TrialSettings, choose_lanes
from purerl.tuning.result import TuneResult
from purerl.tuning.space import Space

SAMPLERS = ("tpe", "random", "cmaes")
PRUNERS = ("hyperband", "median")


@in_32_bits
def tune(
    config: TrainConfig,
    axes: Mapping[str, Any],
    *,
    trials: int = 40,
    seeds: int | Sequence[int] = 4,
    sampler: str = "tpe",
    pruner: str | None = "hyperband",
    storage: str | None = None,
    study: str | None = None,
    out: str | Path | None = None,
    batch: int = 8,
    fitness: str = "final_return",
    reports: int = 9,
    seed: int = 0,
    holdout_seeds: int = 10,
    lanes: int | None = None,
    trackers: Sequence[str | Tracker] | None = None,
    progress: bool = True,
) -> TuneResult:
    """Search for a better config with Optuna.

    A trial is a point of the axes, trained with every seed; its score is the mean over
    the seeds of the final evaluation (of the training return where the config has no
    evaluations). Trials are asked for in batches, and each batch with its seeds is one
    vmapped call per setting of static fields. `reports` times along the way the pruner
    looks at the scores; the lanes of pruned trials are advanced no more. The first
    trial is the config itself, where its values lie on the axes.

    The same call again goes on with a study: what a stopped or killed call had begun
    is trained anew, and `trials` may be larger than before. Several calls with one
    `storage`, in several processes or on several machines, share the trials. With one
    of them, equal calls give equal trials, also after a kill.

    Args:
        config: The config of every trial, where no axis says otherwise.
        axes: Distributions by (dotted) name of the field: `purerl.uniform`,
            `purerl.loguniform`, `purerl.choice`, or a list of values.
        trials: The number of trials that are to finish: complete, pruned, or diverged.
        seeds: The number of seeds per trial, which are then 0, 1, ..., or the seeds
            themselves.
        sampler: The kind of sampler: `tpe`, `random` or `cmaes`.
        pruner: The kind of pruner: `hyperband` (asynchronous successive halving in
            brackets), `median`, or None.
        storage: The URL of Optuna's storage; `study.db` in `out` where not given,
            memory without one.
        study: The study's name in the storage; by environment and algorithm where not
            given.
        out: The folder for the study, its table, the best config, pictures.
        batch: The number of trials that are trained side by side.
        fitness: The kind of fitness: `final_return` for the last score, or
            `training_curve` for the mean of the scores along the way.
        reports: The number of segments of a run, after each of which the pruner looks
            if there is a new evaluation; Hyperband's first rungs are a ninth and a
            third of the budget.
        seed: The seed of the sampler.
        holdout_seeds: The number of fresh seeds with which best and default are trained
            again and compared in the end; 0 leaves it out.
        lanes: The width of a block, part of what fixes a result's bits.
        trackers: Trackers that are told of trials when they finish, a nested run each:
            names (`mlflow`, `tensorboard`, `wandb`), or trackers. A study that goes on
            does so with those that it was started with where none are given.
        progress: Whether to show the progress.

    Raises:
        ConfigError: an axis, value or option that cannot be, a study of other
            settings (with what differs), Optuna missing; before anything is trained.
    """
    _check_options(sampler, pruner)
    kind = check_fitness(fitness, KINDS)
    counts = read_counts(
        trials=trials,
        batch=batch,
        reports=reports,
        holdout_seeds=holdout_seeds,
        seed=seed,
    )
    batch = counts["batch"]
    lanes = as_count("lanes", lanes)
    _require_optuna()
    space = Space(config, axes)
    require_listing(batch * num_seeds(seeds), config.total_timesteps)
    numbers = check_seeds(seeds)
    folder = as_folder("out", out)
    lanes = kept_lanes(folder, lanes)
    width = lanes or choose_lanes(batch * len(numbers), len(numbers), make_workers())
    settings = TrialSettings(config, numbers, kind, counts["reports"], width)
    # A folder of before this was checked goes on, and can be read, as it began.
    if not folders.is_begun(folder):
        space.check_effects()
    options = Options(
        counts["trials"],
        sampler,
        pruner,
        storage,
        study,
        batch,
        counts["seed"],
        counts["holdout_seeds"],
        choose(trackers, folder),
    )
    return StudyLoop(space, settings, options, folder, progress).run()


def read_counts(
    *, trials: int, batch: int, reports: int, holdout_seeds: int, seed: int
) -> dict[str, int]:
    """Return the numbers of a study by name, as numbers of Python.

    Args:
        trials: The number of trials that are to finish.
        batch: The number of trials that are trained side by side.
        reports: The number of segments of a run.
        holdout_seeds: The number of fresh seeds of the comparison; 0 leaves it out.
        seed: The seed of the sampler.

    Raises:
        ConfigError: naming the first that is none.
    """
    is_none = holdout_seeds == 0 and not isinstance(holdout_seeds, bool)
    return {
        "holdout_seeds": 0 if is_none else required("holdout_seeds", holdout_seeds),
        "seed": as_seed("seed", seed),
        "trials": as_count("trials", trials),
        "batch": as_count("batch", batch),
        "reports": as_count("reports", reports),
    }


def _check_options(sampler: str, pruner: str | None) -> None:
    known: dict[str, tuple[str, Sequence[str]]] = {"sampler": (sampler, SAMPLERS)}
    if pruner is not None:
        known["pruner"] = (pruner, PRUNERS)
    for name, (value, choices) in known.items():
        if value not in choices:
            more = " or None" if name == "pruner" else ""
            raise ConfigError(
                f"{name} must be one of {', '.join(choices)}{more}, got {value!r}."
            )


def _require_optuna() -> None:
    try:
        import cmaes  # noqa: F401
        import optuna  # noqa: F401
    except ImportError:
        raise ConfigError(
            "tuning needs Optuna: install it with pip install 'purerl[tune]'."
        ) from None

"""The options of `purerl.tune`."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from purerl.config import TrainConfig
from purerl.runner.arguments import as_seed
from purerl.runner.options import (
    FIXED,
    TOLD,
    Options,
    option,
    seeds_option,
)
from purerl.scale.devices import as_count, required
from purerl.search.fitness import (
    FINAL_RETURN,
    TRAINING_CURVE,
    check_fitness,
    fitness_option,
)
from purerl.space.axes import axes_option

KINDS = (FINAL_RETURN, TRAINING_CURVE)
SAMPLERS = ("tpe", "random")
PRUNERS = ("hyperband", "median")


@dataclasses.dataclass(frozen=True)
class TuneOptions(Options):
    """The options of `purerl.tune`."""

    tool: ClassVar[str] = "tune"

    config: TrainConfig
    axes: Mapping[str, Any] = axes_option(
        "Field that the study varies, NAME=VALUES; may be repeated: "
        "learning_rate=loguniform(1e-5,1e-2); gamma=uniform(0.9,0.999); "
        "num_epochs=uniform(1,8); hidden_sizes=(64,64),(256,256).",
        "Distributions by (dotted) name of the field: `purerl.uniform`, "
        "`purerl.loguniform`, `purerl.choice`, or a list of values.",
    )
    _: dataclasses.KW_ONLY
    trials: int = option(
        40,
        "Number of trials that are to finish: complete, pruned, or diverged.",
        check=as_count,
        keep=TOLD,
    )
    seeds: int | Sequence[int] = seeds_option(4, "Number of agents per trial.")
    sampler: str = option(
        "tpe",
        "Method that proposes trials.",
        kind=Literal["tpe", "random"],
        check=lambda name, value: check_fitness(value, SAMPLERS, name),
        keep=TOLD,
    )
    pruner: str | None = option(
        "hyperband",
        "Method that stops hopeless trials; hyperband is asynchronous successive "
        "halving in brackets.",
        kind=Literal["hyperband", "median", "none"],
        read=lambda name: None if name == "none" else name,
        check=lambda name, value: value and check_fitness(value, PRUNERS, name),
        keep=TOLD,
    )
    storage: str | None = option(
        None,
        "URL of an Optuna storage that several machines share; study.db in the folder "
        "if not given.",
    )
    study: str | None = option(
        None,
        "Name of the study in the storage; by environment and algorithm if not given.",
    )
    batch: int = option(
        8,
        "Number of trials that are trained side by side.",
        check=as_count,
        keep=TOLD,
    )
    fitness: Any = fitness_option(
        FINAL_RETURN,
        KINDS,
        "Score of a trial: final_return (the last one), training_curve (the mean of "
        "all), or a function of your own, package.module:function.",
        keep=FIXED,
    )
    reports: int = option(
        9,
        "Number of segments of a run, after each of which the pruner looks at a trial "
        "that has a new evaluation.",
        check=as_count,
        keep=FIXED,
    )
    seed: int = option(
        0, "Seed of the sampler.", flag="sampler_seed", check=as_seed, keep=FIXED
    )
    holdout_seeds: int = option(
        10,
        "Number of fresh seeds on which the best config and the default one are "
        "compared; 0 leaves the comparison out.",
        check=lambda name, value: required(name, value) if value != 0 else 0,
        keep=TOLD,
    )

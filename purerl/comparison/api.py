"""purerl.compare: named settings judged on held-out seeds and in held-out environments.

Every setting trains in every environment with the same random keys, which no search has
seen (`purerl.comparison.training`). Settings that change the same numbers are one
compiled program per environment, vmapped over settings and seeds.
"""

import dataclasses
from functools import partial
from pathlib import Path

from purerl.comparison.result import (
    Comparison,
    about_of,
    tell,
    tracked,
    tracked_files,
)
from purerl.comparison.settings import (
    Losses,
    Setting,
    Settings,
    Task,
    parse_settings,
    read_environments,
    read_settings,
    settings_of,
)
from purerl.comparison.training import TRAINED, Compared, Part, make_parts, train
from purerl.config import ConfigError, TrainConfig
from purerl.execution.cache import BlockCompiler, current_cache
from purerl.execution.format import say
from purerl.execution.memory import require_listing, worker_limit
from purerl.runner.arguments import check_seeds, num_seeds
from purerl.runner.options import Repeated, option, tool
from purerl.runner.trackers import choose
from purerl.runner.trackers.group import Group
from purerl.scale import hosts
from purerl.scale.devices import make_workers
from purerl.storage import folders
from purerl.storage.files import locked


@dataclasses.dataclass(frozen=True)
class CompareOptions(Compared):
    """The options of `purerl.compare`."""

    config: TrainConfig
    settings: Settings = option(
        dataclasses.MISSING,
        "Setting to compare, NAME: CHANGES, with semicolons between the changes: "
        "'fast: learning_rate=1e-3; hidden_sizes=(64,64)'; 'huber: "
        "value_loss=HuberError(delta=2.0)'; 'DQN: algorithm=dqn'. Whole configs: 'DQN: "
        "preset=dqn-cartpole', 'own: config=FILE'. What was evolved: 'learned: "
        "evolution=FOLDER'. NAME: alone is the config as it is.",
        doc="Settings by name: changes of the config by (dotted) name, such as "
        '`{"learning_rate": 1e-3, "hidden_sizes": (64, 64)}`, also of a loss '
        '(`{"value_loss": "HuberError(delta=2.0)"}`), of what the environment is made '
        'with (`{"env_params.length": 1.5}`) or of the algorithm '
        '(`{"algorithm": "dqn"}`); a whole config, of any algorithm; an evolution or '
        "its folder, for what it learned; or a `purerl.ConfigSchedule`.",
        flag="setting",
        kind=Repeated,
        read=parse_settings,
    )


@dataclasses.dataclass(frozen=True)
class LossOptions(Compared):
    """The options of `purerl.compare_losses`."""

    config: TrainConfig
    field: str = option(
        dataclasses.MISSING,
        doc="The field of the config that losses are put into, `value_loss` or "
        "`policy_loss`.",
    )
    losses: Losses = option(
        dataclasses.MISSING,
        doc="Losses by name: an object; the path of a saved loss; text such as "
        '`"HuberError(delta=2.0)"`; or changes of the config by name, as in '
        '`{"value_loss": purerl.losses.SquaredError(), "value_coef": 0.1}`.',
    )


@tool(CompareOptions)
def compare(asked: CompareOptions) -> Comparison:
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

    Raises:
        ConfigError: a setting, environment or option that cannot be, before anything
            is trained.
        KeyboardInterrupt: somebody asked to stop; what was finished is in `out`.
    """
    folder = asked.folder
    hosts.require_one("a comparison", "Call it in a program of its own.")
    require_listing(num_seeds(asked.seeds), asked.config.total_timesteps)
    check_seeds(asked.seeds)
    entries, tasks = _read(asked)
    workers = make_workers(asked.devices)
    limit = worker_limit(asked.memory_limit, workers)
    # Schedules that change at other updates are parts of one program.
    compiler = BlockCompiler(workers, limit, current_cache())
    check_out(folder)
    if folder is not None:
        folders.make(folder, (TRAINED,))
    with locked(folder):
        known, parts = make_parts(entries, tasks, asked, folder, say)
        group, about = Group(choose(asked.trackers, folder)), about_of(entries, tasks)
        group.begin(tracked(about, folder), say, len(entries) * len(tasks))
        with group:
            tell(group, about, known)
            told = partial(tell, group, about)
            known |= train(parts, asked, compiler, told, lambda: group.stop)
            result = Comparison.of(entries, tasks, asked, known)
            if folder is not None:
                result.save(folder)
            group.close("finished", tracked_files(folder))
    return result


@tool(LossOptions)
def compare_losses(asked: LossOptions) -> Comparison:
    """Train with every loss in every environment on held-out seeds, and compare.

    It is `purerl.compare` with settings that change a loss.

    Raises:
        ConfigError: a loss, field, environment or option that cannot be, before
            anything is trained.
        KeyboardInterrupt: somebody asked to stop; what was finished is in `out`.
    """
    settings = settings_of(asked.config, asked.field, asked.losses)
    return compare(asked.config, settings, **asked.of(Compared))


def planned(asked: CompareOptions) -> list[Part]:
    """Return what `compare` would train without a folder, a part per program.

    Raises:
        ConfigError: see `compare`.
    """
    return make_parts(*_read(asked), asked)[1]


def _read(asked: CompareOptions) -> tuple[list[Setting], list[Task]]:
    """The settings and the environments of a comparison, checked."""
    entries = read_settings(asked.settings)
    tasks = read_environments(asked.config, asked.environments)
    names = [entry.name for entry in entries]
    if asked.baseline is not None and asked.baseline not in names:
        raise ConfigError(
            f"baseline must be one of the settings ({', '.join(names)}), got "
            f"{asked.baseline!r}."
        )
    return entries, tasks


def check_out(folder: Path | None) -> None:
    """Refuse a folder that holds neither a comparison nor an evolution.

    Raises:
        ConfigError: saying what it holds.
    """
    if folders.is_begun(folder):
        assert folder is not None
        folders.check_out(folder, folders.COMPARISON, "evolution")

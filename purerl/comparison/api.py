"""purerl.compare: named settings judged on held-out seeds and in held-out environments.

Every setting trains in every environment with the same random keys, which no search has
seen. Settings that change the same numbers are one compiled program per environment,
vmapped over settings and seeds. A setting's program follows from the setting alone,
never from what it is compared with: so its bits are the same in every comparison.

An evolution of seed `s` trains runs whose keys come from `fold_in(key(s), 0 .. 2)`; the
keys of held-out runs come from `fold_in(key(s), 3)`, those of ordinary runs are
`key(s)` itself. So whatever the seeds, no run that a setting is judged by starts from
the key of a run that it was evolved on.
"""

import dataclasses
import hashlib
import json
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from purerl import hooks, serialise
from purerl.algorithms import name_of
from purerl.comparison import result as results
from purerl.comparison.result import WORDS, Comparison, Trained
from purerl.comparison.settings import (
    Losses,
    Setting,
    Settings,
    described,
    parse_environments,
    parse_settings,
    read_settings,
    settings_of,
)
from purerl.config import ConfigError, TrainConfig, is_auto, part_kind
from purerl.execution.cohort import Cohort, Job, rows_of, stream
from purerl.execution.curves import Segment, mean_of_known
from purerl.execution.format import format_count, with_noun
from purerl.execution.memory import require_listing, worker_limit
from purerl.execution.programs import BlockCompiler, crossed, current_cache
from purerl.meta.fitness import Accumulator, MetricMean
from purerl.runner.arguments import as_seed, check_seeds, num_seeds
from purerl.runner.options import (
    FIXED,
    Repeated,
    Segmented,
    memory_limit_option,
    option,
    seeds_option,
    tool,
)
from purerl.runner.session import Session
from purerl.scale import hosts
from purerl.scale.devices import default_lanes, make_workers
from purerl.search.fitness import check_fitness
from purerl.space.points import (
    Environments,
    Task,
    read_environments,
    resolve_point,
)
from purerl.storage import folders
from purerl.sweeps.groups import (
    check_setting,
    group_points,
)
from purerl.train import Bound, Plan, bind
from purerl.types import Array, Overrides

# What to fold into a seed's key; `purerl.meta.training` has 0 to 2, and 4.
_HELD_OUT = 3
POINTS = 100  # The number of points of a stored curve.
MEASURES = ("training_curve", "final_return")


def _as_measures(name: str, measures: Sequence[str] | None) -> tuple[str, ...]:
    names = (measures,) if isinstance(measures, str) else tuple(measures or ())
    if not names or len(set(names)) < len(names):
        raise ConfigError(
            f"{name} must name each kind once and at least one, got {measures!r}; "
            f"for example {MEASURES}."
        )
    return names


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared(Segmented):
    """The options of `purerl.compare` and `purerl.compare_losses`."""

    tool: ClassVar[str] = "compare"

    environments: Environments = option(
        (),
        "Environment to train in, with changes of the config after semicolons: "
        "'Acrobot-v1; total_timesteps=2e5'; may be repeated. The config's own if not "
        "given.",
        doc="Environments: names; changes of the config by name, as in "
        '`{"env": "Acrobot-v1", "total_timesteps": 200_000}`, with `name` to call them '
        "otherwise; or configs. The config's own where none are given.",
        flag="environment",
        kind=Repeated,
        read=parse_environments,
    )
    baseline: str | None = option(
        None,
        "Name of the setting that others are compared with; the first if not given.",
    )
    seeds: int | Sequence[int] = seeds_option(64, "Number of held-out seeds.")
    seed: int = option(
        0,
        "Seed whose key the held-out seeds' keys come from.",
        check=as_seed,
        keep=FIXED,
    )
    measures: Sequence[str] = option(
        MEASURES,
        f"Scores to compare by, of {', '.join(WORDS)} and own metrics; the first is "
        "the area under the training curve by its length.",
        kind=tuple[str, ...],
        check=_as_measures,
        keep=FIXED,
    )
    memory_limit: str | float | None = memory_limit_option()
    devices: Any = option(
        None,
        doc="Local devices to use; all of the default backend where not given.",
    )


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
        '(`{"algorithm": "dqn"}`); a whole config, of any algorithm; or an evolution '
        "or its folder, for what it learned.",
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
        ConfigError: a setting, environment or option that cannot be, or a folder of
            something else, before anything is trained.
        KeyboardInterrupt: somebody asked to stop; what was finished is in `out`.
    """
    hosts.require_one("a comparison", "Call it in a program of its own.")
    require_listing(num_seeds(asked.seeds), asked.config.total_timesteps)
    return _Loop(asked).run()


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


class Entry(NamedTuple):
    """A setting in an environment, checked.

    Attributes:
        environment: The environment's name.
        setting: The setting's name.
        start: The config that the setting changes.
        values: The values that it changes, by name.
        trained: The config that trains, with no `auto` in it.
    """

    environment: str
    setting: str
    start: TrainConfig
    values: dict[str, Any]
    trained: TrainConfig

    @property
    def id(self) -> str:
        """A hash of what is trained, which names the file of its scores."""
        about = [self.environment, serialise.to_dict(self.trained)]
        text = json.dumps(about, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]


def enter(setting: Setting, task: Task) -> Entry:
    """Return a setting in an environment, checked.

    Raises:
        ConfigError: anything about it that cannot be trained.
    """
    try:
        start, values = setting.within(task)
        (group,) = group_points(start, [values])
        trained = group.bound.at(resolve_point(start, values)[1])
    except ConfigError as error:
        raise ConfigError(f"settings: {setting.name}: {error}") from None
    return Entry(task.name, setting.name, start, values, trained)


def check_effect(entry: Entry) -> None:
    """Refuse a setting that trains exactly as the config that it changes.

    Raises:
        ConfigError: nothing reads what it changes.
    """
    config, numbers = resolve_point(entry.start, entry.values)
    if config is not entry.start:
        return  # Structure is another program.
    try:
        check_setting(bind(config), numbers)
    except ConfigError as error:
        raise ConfigError(f"settings: {entry.setting}: {error}") from None


class Part(NamedTuple):
    """Settings that one program trains in one environment.

    Attributes:
        entries: The settings, P of them.
        bound: Config, environment and plan of all of them.
        overrides: Values by which the settings differ, leaves `[P, ...]`, on the host.
        length: The number of updates of a compiled call, K.
    """

    entries: tuple[Entry, ...]
    bound: Bound
    overrides: Overrides
    length: int


def make_parts(
    entries: Sequence[Entry], segment_updates: int | None = None
) -> list[Part]:
    """Return the entries of one environment in as few programs as there are.

    What sets the same numbers, with losses of the same structure, shares a program.
    """
    alike: dict[Any, list[Entry]] = {}
    for entry in entries:
        # Configs of one class and environment differ in what is `auto` alone.
        automatic = tuple(n for n, value in vars(entry.start).items() if is_auto(value))
        alike.setdefault((name_of(entry.start), automatic), []).append(entry)
    parts = []
    for several in alike.values():
        for group in group_points(several[0].start, [each.values for each in several]):
            members = tuple(several[point] for point in group.points)
            updates = group.bound.plan.num_updates
            length = min(segment_updates or updates, updates)
            parts.append(Part(members, group.bound, group.overrides, length))
    return sorted(parts, key=lambda part: entries.index(part.entries[0]))


def planned(asked: CompareOptions) -> list[Part]:
    """Return what `compare` would train without a folder, a part per program.

    Raises:
        ConfigError: see `compare`.
    """
    _, tasks, entries = _read(asked)
    return _parts(asked, entries, tasks)


def _read(asked: CompareOptions) -> tuple[list[Setting], list[Task], list[Entry]]:
    """The settings, the environments, and every setting in every environment."""
    settings = read_settings(asked.settings)
    names = [setting.name for setting in settings]
    if asked.baseline is not None:
        check_fitness(asked.baseline, names, "baseline")
    tasks = read_environments(asked.config, asked.environments)
    # Without evaluations that nobody asked for.
    evaluations = int("evaluation" in asked.measures)
    entries = []
    for task in tasks:
        config = task.config.replace(num_evaluations=evaluations)
        entries += [enter(s, task._replace(config=config)) for s in settings]
    return settings, tasks, entries


def _parts(
    asked: CompareOptions, entries: Sequence[Entry], tasks: Sequence[Task]
) -> list[Part]:
    """The programs that train some entries, all of which are checked."""
    for entry in entries:
        check_effect(entry)
        own = entry.trained.metrics
        for measure in asked.measures:
            if not hooks.reports(measure, own):
                known = (*WORDS, *map(hooks.name_of, own))
                check_fitness(measure, known, "measures")
    parts = []
    for task in tasks:
        inside = [entry for entry in entries if entry.environment == task.name]
        parts += make_parts(inside, asked.segment_updates)
    return parts


def held_out_keys(seed: int, seeds: Sequence[int]) -> Array:
    """Return keys `[S]`; the key of a number does not depend on the other numbers."""
    base = jax.random.fold_in(jax.random.key(seed), _HELD_OUT)
    return jax.vmap(lambda n: jax.random.fold_in(base, n))(np.asarray(seeds, np.uint32))


class _Recorder:
    """Measures and curves of runs, growing segment by segment."""

    def __init__(self, measures: Sequence[str], num_runs: int, plan: Plan) -> None:
        self.edges = edges_of(plan)
        self.totals = [
            (Accumulator if kind in WORDS else MetricMean)(
                kind, num_runs, plan.num_updates
            )
            for kind in measures
        ]

    def add(self, segment: Segment) -> float:
        """Take a segment; the mean over runs of the curve's last value."""
        means = [total.add(segment) for total in self.totals]
        return means[0]

    def result(self) -> np.ndarray:
        """Measures and pieces of the curve side by side, `[N, M + T]` float32."""
        sums = np.add.reduceat(self.totals[0].curve, self.edges[:-1], axis=1)
        measures = [total.result() for total in self.totals]
        both = [np.stack(measures, 1), sums / np.diff(self.edges)]
        return np.concatenate(both, 1, dtype=np.float32)


def edges_of(plan: Plan) -> np.ndarray:
    """Return numbers of updates `[T + 1]` between which the pieces of a curve lie."""
    pieces = min(POINTS, plan.num_updates)
    return np.linspace(0, plan.num_updates, pieces + 1).astype(int)


class _Loop:
    """One call of `compare`: the pieces that its phases share."""

    def __init__(self, asked: CompareOptions) -> None:
        self.asked, self.folder = asked, asked.folder
        self.seeds = check_seeds(asked.seeds)
        self.keys = held_out_keys(asked.seed, self.seeds)
        settings, self.tasks, self.entries = _read(asked)
        self.workers = make_workers(asked.devices)
        # By the seeds alone: bits must not depend on which settings there are. A folder
        # may say otherwise, which was begun with more or fewer workers.
        self.lanes = asked.lanes or default_lanes(len(self.seeds), self.workers)
        limit = worker_limit(asked.memory_limit, self.workers)
        self.compiler = BlockCompiler(self.workers, limit, current_cache())
        # The compared losses and rules, which may be networks, are no part of the
        # environments' configs.
        changed = {name for setting in settings for name in setting.values}
        parts = {name for name in changed if part_kind(name) in ("loss", "rule")}
        self.about = {
            "settings": {setting.name: described(setting) for setting in settings},
            "environments": {
                task.name: {
                    name: value
                    for name, value in serialise.to_dict(task.config).items()
                    if name not in parts
                }
                for task in self.tasks
            },
            "baseline": asked.baseline or settings[0].name,
            "options": asked.kept(FIXED),
            "seeds": list(self.seeds),
        }
        self.session = Session(asked)
        self.found: dict[tuple[str, str], Trained] = {}
        self.result = Comparison(self.about, self.found, self.folder)
        self.done_steps, self.lock = 0, threading.Lock()

    def run(self) -> Comparison:
        """Train what is missing, tell trackers, and compare."""
        with self.session as session:
            parts = _parts(self.asked, self._open(), self.tasks)
            told = self.result.told()
            session.begin(lambda: told.run, told.total)
            told.tell(session.trackers)
            self._train(parts)
            if self.folder is not None:
                self.result.save()
            session.close(is_finished=True, files=told.files)
        return self.result

    def _open(self) -> list[Entry]:
        """Begin the folder, or take the scores in it; the entries that it lacks."""
        if self.folder is None:
            return self.entries
        asked = self.asked
        ids: dict[str, dict[str, str]] = {task.name: {} for task in self.tasks}
        for entry in self.entries:
            ids[entry.environment][entry.setting] = entry.id
        spec = {
            "kind": results.KIND,
            "format": results.FORMAT,
            "config": serialise.to_dict(asked.config),
            **self.about,
            "lanes": self.lanes,
            "lanes_asked": asked.lanes,
            "segment_updates": asked.segment_updates,
            results.TRAINED: ids,
        }
        # What each call says anew.
        told = ("settings", "environments", "baseline", results.TRAINED)

        def compare(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
            parts = {"config": folders.FIELD, "options": folders.FIELD}
            return folders.differences(stored, new, parts, free=told)

        stored = folders.open_folder(
            self.folder,
            spec,
            results.TRAINED,
            compare=compare,
            merge=lambda stored, new: stored | {name: new[name] for name in told},
        )
        self.session.compare_versions(stored)
        self.lanes = stored["lanes"] or self.lanes
        for entry in self.entries:
            if trained := results.load_scores(self.folder, entry.id):
                self.found[entry.environment, entry.setting] = trained
        return [
            entry
            for entry in self.entries
            if (entry.environment, entry.setting) not in self.found
        ]

    def _train(self, parts: Sequence[Part]) -> None:
        """Train some programs one after the other.

        Raises:
            KeyboardInterrupt: somebody asked to stop; finished settings are kept.
        """
        plans = [part.bound.plan for part in parts]
        total = sum(
            len(part.entries) * plan.num_updates * plan.steps_per_update
            for part, plan in zip(parts, plans, strict=True)
        ) * len(self.seeds)
        session, reporter = self.session, self.session.reporter
        session.expect(total)
        if not parts:
            reporter.info("everything had been trained before")
            return
        reporter.info(
            f"{with_noun(len(self.about['settings']), 'setting')}, "
            f"{with_noun(len(self.seeds), 'held-out seed')}: "
            f"{with_noun(len(parts), 'program')}, {format_count(total)} steps"
        )
        began = time.perf_counter()
        with session.interrupt, reporter:
            for part in parts:
                if not self._train_part(part):
                    reporter.notify(
                        "stopped; with out=, settings that had finished are kept, and "
                        "the same call trains the others"
                    )
                    raise KeyboardInterrupt
        seconds = time.perf_counter() - began
        speed = format_count(self.done_steps / seconds)
        reporter.info(f"trained in {seconds:.1f} s ({speed} steps/s)")

    def _train_part(self, part: Part) -> bool:
        """Train settings with every key; return whether all of them were."""
        asked, num_seeds = self.asked, len(self.seeds)
        plan, measures = part.bound.plan, asked.measures
        program = self.compiler.compile(
            part.bound,
            crossed(self.keys, part.overrides, np.arange(num_seeds)),
            self.lanes,
            part.length,
            is_fixed=asked.lanes is not None,
        )
        # The results of all runs, the keys of a setting fastest.
        shape = (len(part.entries), num_seeds)
        numbers = len(measures) + len(edges_of(plan)) - 1
        values = np.zeros((*shape, numbers), np.float32)
        is_trained = np.zeros(shape, bool)
        host_keys = jax.device_put(self.keys, jax.local_devices()[0])

        def job(rows: np.ndarray) -> Job:
            return Job(program, partial(crossed, host_keys, part.overrides, rows), rows)

        def keep(job: Job, recorded: _Recorder, cohort: Cohort) -> None:
            found, places = recorded.result(), np.divmod(job.key, num_seeds)
            with self.lock:  # Blocks of one setting may end at once.
                values[places], is_trained[places] = found, True
                self.done_steps += cohort.size * program.steps_each
                mean = mean_of_known(found[:, 0])
                self.session.reporter.update(self.done_steps, mean)
                for member in np.unique(places[0]).tolist():
                    if is_trained[member].all():
                        self._keep(part.entries[member], values[member], plan)

        stream(
            list(map(job, rows_of(is_trained.size, program.lanes))),
            self.workers,
            lambda job: _Recorder(measures, len(job.key), plan),
            keep,
            lambda: self.session.is_stopped,
        )
        return bool(is_trained.all())

    def _keep(self, entry: Entry, values: np.ndarray, plan: Plan) -> None:
        """Keep the scores of a setting, `[S, M + T]`, and tell trackers."""
        measures = self.asked.measures
        trained = Trained(
            {name: values[:, i] for i, name in enumerate(measures)},
            values[:, len(measures) :],
            edges_of(plan)[1:] * plan.steps_per_update,
        )
        place = entry.environment, entry.setting
        if self.folder is not None:
            results.save_scores(self.folder, entry.id, trained)
        self.found[place] = trained
        self.result.tell(self.session.trackers, [place])

"""purerl.compare: named settings judged on held-out seeds and in held-out environments.

A setting is changes of a config, a whole config, or an evolution. It becomes values by
(dotted) name of a field.

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
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from purerl import hooks, presets, serialise
from purerl.comparison import result as results
from purerl.comparison.result import WORDS, Comparison, Trained
from purerl.config import ConfigError, TrainConfig, check_mapping, part_kind
from purerl.execution.cohort import Cohort, Job, rows_of, stream
from purerl.execution.curves import Segment, mean_of_known
from purerl.execution.format import format_count, with_noun
from purerl.execution.memory import require_listing, worker_limit
from purerl.execution.programs import BlockCompiler, crossed, current_cache
from purerl.meta.fitness import Accumulator, MetricMean
from purerl.meta.result import EvolutionResult, load_evolution
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
from purerl.space.axes import (
    CARRIED_FIELDS,
    Environments,
    Task,
    environments_option,
    read_changes,
    read_environments,
    resolve_point,
)
from purerl.storage import folders
from purerl.sweeps.groups import check_setting, group_points
from purerl.train import Bound, Plan, bind
from purerl.types import Array, Overrides

# What a setting changes by (dotted) name of a field; a config of any algorithm; or an
# evolution or its folder, for what it learned.
Settings = Mapping[str, Mapping[str, Any] | TrainConfig | EvolutionResult | str | Path]
# A value of at most so many numbers is written as it is.
MOST_NUMBERS = 16
_KINDS = (
    "changes of the config by name, such as {'learning_rate': 1e-3}, a config, or an "
    "evolution or its folder"
)
_OTHERS_PLACE = {
    "env": "all settings are compared in the same environments; list those in "
    "environments",
    "num_evaluations": "the measures decide that; leave it out, and ask for the "
    "measure 'evaluation'",
}


class Setting(NamedTuple):
    """One of the settings that a comparison compares.

    Attributes:
        name: The setting's name.
        values: The values that it changes, by (dotted) name of a field.
        config: The whole config, where one was given.
    """

    name: str
    values: dict[str, Any]
    config: TrainConfig | None = None

    def within(self, task: Task) -> tuple[TrainConfig, dict[str, Any]]:
        """Return the config that the setting changes in an environment, and its values.

        A whole config is itself, with what the environment says, and changes nothing.

        Raises:
            ConfigError: a whole config for another environment or number of steps.
        """
        if self.config is None:
            return task.config, self.values
        evaluations: Any = {"num_evaluations": task.config.num_evaluations}
        moved = self.config.replace(**task.changes, **evaluations)
        _check_task(moved, task)
        return moved, {}


def _check_task(config: TrainConfig, task: Task) -> None:
    """Refuse a whole config for another environment or number of steps."""
    default = type(config)()
    for field in CARRIED_FIELDS:
        mine, theirs = getattr(config, field), getattr(task.config, field)
        # What it says itself, such as numbers to draw in training, is its own choice.
        is_own = not _is_same(mine, getattr(default, field), field)
        is_own = is_own and field not in ("env", "total_timesteps")
        if not is_own and not _is_same(mine, theirs, field):
            raise ConfigError(
                f"it is a config of another task than the others': its {field} is "
                f"{serialise.plain(mine, field)!r}, and theirs in {task.name} is "
                f"{serialise.plain(theirs, field)!r}; give both the same, or set it "
                "for all in environments."
            )


def _is_same(one: Any, other: Any, name: str) -> bool:
    if hasattr(one, "step") or hasattr(other, "step"):  # environments as objects
        # Equal is not alike: a class inherits a dataclass's comparison of its fields.
        if one is other or not one == other:
            return one is other
    return serialise.plain(one, name) == serialise.plain(other, name)


def read_settings(settings: Settings) -> list[Setting]:
    """Return the settings in their order, losses read.

    Raises:
        ConfigError: none of them, a name that is none, one of another kind, a loss or
            an evolution that cannot be read, or a change of the environment.
    """
    check_mapping("settings", settings, "{'fast': {'learning_rate': 1e-3}}")
    if not settings:
        raise ConfigError("settings must map at least one name to what it changes.")
    entries = []
    for name, value in settings.items():
        if not name.strip() or not name.isprintable():
            raise ConfigError(f"settings: {name!r} is no name; give a word for tables.")
        try:
            entries.append(_read_setting(name, value))
        except ConfigError as error:
            raise ConfigError(f"settings: {name}: {error}") from None
    return entries


def _read_setting(name: str, value: Any) -> Setting:
    if isinstance(value, TrainConfig):
        return Setting(name, {}, value)
    if isinstance(value, str | Path):
        folder = Path(value).expanduser()
        if not folder.is_dir():
            raise ConfigError(f"{str(folder)!r} is no folder; give {_KINDS}.")
        value = load_evolution(folder)
    if isinstance(value, EvolutionResult):
        # Fields as they are now; of an environment, which may set others, by name.
        learned, solution = value.learned, value.solution
        fields = {name: name.split(".")[0] for name in solution}
        value = {
            field: getattr(learned, field)
            for field in fields.values()
            if field != "env_params"
        } | {n: solution[n] for n, field in fields.items() if field == "env_params"}
    if not isinstance(value, Mapping):
        raise ConfigError(f"a setting is {_KINDS}, got {value!r}.")
    return Setting(name, _changes(value))


def _changes(values: Mapping[str, Any]) -> dict[str, Any]:
    changes = {}
    for field, value in values.items():
        if field in _OTHERS_PLACE:
            raise ConfigError(f"it changes {field}, but {_OTHERS_PLACE[field]}.")
        if part_kind(str(field)) != "loss":
            changes[field] = serialise.parse_text(field, value)
        elif isinstance(value, Path):
            changes[field] = serialise.load_part(value, "loss")
        else:
            changes[field] = serialise.parse_part(value, "loss")
    return changes


def described(setting: Setting) -> dict[str, Any]:
    """Return what a setting is, as plain values for people and for files."""
    if setting.config is not None:
        return serialise.to_dict(setting.config)
    texts = {}
    for name, value in setting.values.items():
        count = sum(map(np.size, jax.tree.leaves(value)))
        if part_kind(name) is not None and callable(value):
            texts[name] = serialise.part_text(value)
        elif count > MOST_NUMBERS:
            texts[name] = f"{count:,} numbers"
        else:
            texts[name] = serialise.plain(value, name)
    return texts


# Settings as the command line writes them.


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Read settings by name from `NAME: field=value; ...`.

    Raises:
        ConfigError: none, one that cannot be read, or a name that is given twice.
    """
    if not texts:
        raise ConfigError(
            "say what to compare, such as --setting 'own:' --setting "
            "'fast: learning_rate=1e-3'."
        )
    by_name: dict[str, Any] = {}
    for text in texts:
        name, colon, rest = (part.strip() for part in text.partition(":"))
        if not colon or not name or name in by_name:
            raise ConfigError(
                f"--setting {text!r}: write NAME: field=value; ..., such as "
                "'fast: learning_rate=1e-3', with another NAME each time."
            )
        values: Any = read_changes("--setting", text, rest)
        if set(values) == {"evolution"}:
            values = Path(str(values["evolution"]))
        elif "preset" in values or "config" in values:
            is_preset = "preset" in values
            source = str(values.pop("preset" if is_preset else "config"))
            config = presets.load(source) if is_preset else serialise.from_yaml(source)
            changes = values.items()
            values = config.replace(
                **{n: serialise.parse_text(n, value) for n, value in changes}
            )
        by_name[name] = values
    return by_name


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


@dataclasses.dataclass(frozen=True)
class CompareOptions(Segmented):
    """The options of `purerl.compare`."""

    tool: ClassVar[str] = "compare"

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
    _: dataclasses.KW_ONLY
    environments: Environments = environments_option()
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

    What sets the same numbers, with losses of the same structure, shares a program. A
    whole config has its own.
    """
    alike: dict[int, list[Entry]] = {}
    for entry in entries:
        alike.setdefault(id(entry.start), []).append(entry)
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
        first = self.totals[0]
        is_over = np.arange(first.num_updates) >= first.ends[:, None]
        curve = np.where(is_over, np.nan, first.curve)
        sums = np.add.reduceat(curve, self.edges[:-1], axis=1)
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
        self.workers = make_workers()
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
            session.begin(self.result.told)
            self._train(parts)
            if self.folder is not None:
                self.result.save()
            session.close(is_finished=True, files=self.result.told().files)
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
        told = ("settings", "environments", "baseline", results.TRAINED)
        stored = folders.open_folder(self.folder, spec, results.TRAINED, told=told)
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
                    session.say_stopped()
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

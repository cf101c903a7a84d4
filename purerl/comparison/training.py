"""A comparison's training: its programs, its keys, and what is kept of it.

A setting's program follows from the setting alone, never from what it is compared with:
so its bits are the same in every comparison. Its keys are those of no evolution.

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
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from purerl import hooks, serialise
from purerl.acting.environment import bind_params
from purerl.algorithms import name_of
from purerl.comparison.settings import Environments, Piece, Setting, Task
from purerl.config import (
    ConfigError,
    TrainConfig,
    apply_overrides,
    is_auto,
)
from purerl.execution.cache import BlockCompiler
from purerl.execution.cohort import Cohort, Job, rows_of, stream
from purerl.execution.curves import Segment, mean_of_known
from purerl.execution.format import format_count, with_noun
from purerl.execution.programs import Members, crossed, length_of_pieces
from purerl.meta.fitness import Accumulator, MetricMean, ReturnCurve
from purerl.report.comparison import WORDS
from purerl.runner.arguments import as_seed, check_seeds
from purerl.runner.interrupt import Interrupt
from purerl.runner.options import (
    FIXED,
    TOLD,
    Segmented,
    memory_limit_option,
    option,
    seeds_option,
)
from purerl.runner.progress import Reporter
from purerl.scale.devices import default_lanes
from purerl.search.fitness import check_fitness
from purerl.space.points import resolve_point
from purerl.storage import folders
from purerl.storage.files import DAMAGE, load_arrays, save_arrays
from purerl.sweeps.groups import canonical, check_pieces, check_setting, group_points
from purerl.train import Bound, Plan, bind, check_time_limit
from purerl.types import Array, Overrides

# What to fold into a seed's key; `purerl.meta.training` has 0 to 2, and 4.
_HELD_OUT = 3
_MADE_WITH = "made_with"  # The name of versions and device in a file of scores.
_IDENTITY = "identity"
POINTS = 100  # The number of points of a stored curve.


class SettingGroup(NamedTuple):
    """Settings that one program trains in one environment.

    Attributes:
        bound: Config, environment and plan of all of the settings.
        members: The numbers of the settings, P of them.
        starts: Updates at which the settings' pieces begin, ascending from 0.
        overrides: Values by which the settings differ, for every piece, leaves
            `[P, ...]`, on the host.
    """

    bound: Bound
    members: tuple[int, ...]
    starts: tuple[int, ...]
    overrides: tuple[Overrides, ...]

    def length(self, segment_updates: int | None) -> int | None:
        """Return the updates of a compiled call; None for the whole run.

        Raises:
            ConfigError: a piece that would not begin with a call.
        """
        return length_of_pieces(self.starts, segment_updates)


class Contestant(NamedTuple):
    """A setting in an environment.

    Attributes:
        start: The config that the pieces change.
        pieces: The pieces: what the setting changes.
        trained: The config that trains in the first piece, with no `auto` in it.
    """

    start: TrainConfig
    pieces: tuple[Piece, ...]
    trained: TrainConfig


def enter(setting: Setting, task: Task) -> Contestant:
    """Return a setting in an environment, checked.

    Raises:
        ConfigError: anything about it that cannot be trained.
    """
    start, pieces = setting.within(task)
    try:
        checked = [_checked(start, piece) for piece in pieces]
        points = [piece.values for piece in pieces]
        groups = group_points(start, points) if len(pieces) > 1 else []
        if len(groups) > 1:
            raise ConfigError(
                "a schedule can change numbers only, and keeps every loss's "
                "structure: static fields fix shapes or the program."
            )
        for group in groups:
            check_pieces(group.bound, points)
    except ConfigError as error:
        raise ConfigError(f"settings: {setting.name}: {error}") from None
    return Contestant(start, pieces, checked[0])


def check_effect(contestant: Contestant, name: str) -> None:
    """Refuse a setting that trains exactly as the config that it changes.

    Raises:
        ConfigError: nothing reads what it changes.
    """
    start, pieces = contestant.start, contestant.pieces
    config, numbers = resolve_point(start, pieces[0].values)
    if len(pieces) > 1 or config is not start:
        return  # Pieces have a check of their own, and structure is another program.
    try:
        check_setting(bind(config), numbers)
    except ConfigError as error:
        raise ConfigError(f"settings: {name}: {error}") from None


def _checked(start: TrainConfig, piece: Piece) -> TrainConfig:
    """The config that trains in a piece."""
    config, numbers = resolve_point(start, piece.values)
    bound = bind(apply_overrides(config, numbers))
    changed = bind(config).at(numbers)
    if any(name.split(".")[0] == "env_params" for name in numbers):
        bind_params(bound.env, changed.env_params)
    check_time_limit(bind(config), changed)
    if piece.first >= bound.plan.num_updates:
        raise ConfigError(
            f"the schedule's piece at update {piece.first} is after the end of the "
            f"run, which has {bound.plan.num_updates}; raise total_timesteps."
        )
    return changed


def make_groups(contestants: Sequence[Contestant]) -> list[SettingGroup]:
    """Return contestants in as few programs as there are, in their order.

    What sets the same numbers, with losses of the same structure, shares a program.
    """
    alike: dict[str, list[int]] = {}
    for number, contestant in enumerate(contestants):
        # Configs of one class and environment differ in what is `auto` alone.
        starts = [piece.first for piece in contestant.pieces]
        automatic = [n for n, value in vars(contestant.start).items() if is_auto(value)]
        kind = str((name_of(contestant.start), automatic, starts))
        alike.setdefault(kind, []).append(number)
    groups = []
    for numbers in alike.values():
        first = contestants[numbers[0]]
        values = [[p.values for p in contestants[n].pieces] for n in numbers]
        by_piece = [
            group_points(first.start, points) for points in zip(*values, strict=True)
        ]
        for piece_groups in zip(*by_piece, strict=True):
            members = tuple(numbers[point] for point in piece_groups[0].points)
            starts = tuple(piece.first for piece in first.pieces)
            overrides = tuple(group.overrides for group in piece_groups)
            groups.append(
                SettingGroup(piece_groups[0].bound, members, starts, overrides)
            )
    return sorted(groups, key=lambda group: group.members)


class Trained(NamedTuple):
    """The scores of training with one setting in one environment.

    Attributes:
        measures: Values by name of the measure, `[S]` float32, NaN where a run met a
            number that was not finite.
        curve: The mean return of the episodes that ended in each piece of the run,
            `[S, T]`; the last one before where none did, and at first the first one.
        steps: Environment steps at the end of the pieces, `[T]`.
    """

    measures: dict[str, np.ndarray]
    curve: np.ndarray
    steps: np.ndarray


def held_out_keys(seed: int, seeds: Sequence[int]) -> Array:
    """Return keys `[S]`; the key of a number does not depend on the other numbers."""
    base = jax.random.fold_in(jax.random.key(seed), _HELD_OUT)
    return jax.vmap(lambda n: jax.random.fold_in(base, n))(np.asarray(seeds, np.uint32))


class _Recorder:
    """Measures and curves of runs, growing segment by segment."""

    def __init__(self, measures: Sequence[str], num_runs: int, plan: Plan) -> None:
        updates = plan.num_updates
        self.plan = plan
        self.totals = [
            (Accumulator if kind in WORDS else MetricMean)(kind, num_runs, updates)
            for kind in measures
        ]
        self.curve, self.values = ReturnCurve(num_runs), np.zeros((num_runs, updates))

    def add(self, segment: Segment) -> float:
        """Take a segment; the mean over runs of the curve's last value."""
        means = [total.add(segment) for total in self.totals]
        values, late = self.curve.extend(segment)
        self.values[:, segment.first : segment.end] = values
        self.values[:, : segment.first] += late[:, None]
        return means[0]

    def result(self) -> np.ndarray:
        """Measures and pieces of the curve side by side, `[N, M + T]` float32."""
        edges = _edges(self.plan)
        curve = np.add.reduceat(self.values, edges[:-1], axis=1) / np.diff(edges)
        measures = [total.result() for total in self.totals]
        return np.concatenate([np.stack(measures, 1), curve], 1, dtype=np.float32)


def _edges(plan: Plan) -> np.ndarray:
    """Numbers of updates `[T + 1]` between which the pieces of a curve lie."""
    pieces = min(POINTS, plan.num_updates)
    return np.linspace(0, plan.num_updates, pieces + 1).astype(int)


def save(path: Path, scores: Trained) -> None:
    """Write scores, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    of = {_IDENTITY: np.array(path.stem)}
    named = {f"measure_{name}": x for name, x in scores.measures.items()}
    made_with = {_MADE_WITH: np.array(json.dumps(folders.made_with()))}
    save_arrays(
        path, {"curve": scores.curve, "steps": scores.steps, **named, **made_with, **of}
    )


def load(path: Path) -> tuple[Trained, str | None] | None:
    """Return what `save` wrote; None where there is nothing, or it is damaged.

    Returns:
        The scores, and a sentence where they were made with other versions or on
        another device than this process has.
    """
    try:
        stored = load_arrays(path)
        curve, steps = stored.pop("curve"), stored.pop("steps")
        if str(stored.pop(_IDENTITY)) != path.stem:
            return None  # It was exchanged with another.
        made_with = json.loads(str(stored.pop(_MADE_WITH)))
        note = folders.differences_of_versions(made_with)
    except DAMAGE:
        return None
    measures = {name.removeprefix("measure_"): x for name, x in stored.items()}
    return Trained(measures, curve, steps), note


TRAINED = "trained"  # the folder of scores, a file per setting and environment
Known = dict[tuple[str, str], Trained]  # by environment and setting


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
        doc="Environments: names; changes of the config by name, as in "
        '`{"env": "Acrobot-v1", "total_timesteps": 200_000}`, with `name` to call them '
        "otherwise; or configs. The config's own where none are given.",
    )
    baseline: str | None = option(
        None,
        "Name of the setting that others are compared with; the first if not given.",
        keep=TOLD,
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


class Part(NamedTuple):
    """A group of settings in an environment: what one program trains.

    Attributes:
        environment: The environment's name.
        group: The settings, of which nothing is known yet.
        names: The names of the group's members.
        files: The files for the members' scores, one for each; empty without a folder.
    """

    environment: str
    group: SettingGroup
    names: tuple[str, ...]
    files: tuple[Path, ...] = ()

    def agents(self, num_seeds: int) -> int:
        """Return the number of agents that are trained."""
        return len(self.names) * num_seeds

    def steps(self, num_seeds: int) -> int:
        """Return the environment steps of all agents that are trained."""
        plan = self.group.bound.plan
        return self.agents(num_seeds) * plan.num_updates * plan.steps_per_update


def make_parts(
    settings: Sequence[Setting],
    tasks: Sequence[Task],
    options: Compared,
    folder: Path | None = None,
    notify: Callable[[str], None] = lambda sentence: None,
) -> tuple[Known, list[Part]]:
    """Return what is known from the folder and what is to be trained, all checked.

    Args:
        settings: The settings.
        tasks: Environments with their configs.
        options: Options with which the settings are trained.
        folder: The folder in which scores are kept; None without one.
        notify: A function that is told where kept scores were made with other versions
            or on another device.

    Raises:
        ConfigError: a setting that cannot be trained in one of the environments.
    """
    known: Known = {}
    notes: dict[str, None] = {}
    parts = []
    for task in tasks:
        evaluations = 1 if "evaluation" in options.measures else 0
        inner = task._replace(config=task.config.replace(num_evaluations=evaluations))
        entered = [enter(setting, inner) for setting in settings]
        missing, files = [], []
        for number, contestant in enumerate(entered):
            if folder is not None:
                path = folder / TRAINED / f"{identity(contestant, options, task)}.npz"
                files.append(path)
                stored = load(path)
                if stored is not None:
                    known[task.name, settings[number].name], note = stored
                    notes |= {note: None} if note else {}
                    continue
            check_effect(contestant, settings[number].name)
            own = contestant.trained.metrics
            for measure in options.measures:
                if not hooks.reports(measure, own):
                    check_fitness(
                        measure, (*WORDS, *map(hooks.name_of, own)), "measures"
                    )
            missing.append(number)
        for group in make_groups([entered[number] for number in missing]):
            group.length(options.segment_updates)  # refuses what does not fit
            numbers = tuple(missing[member] for member in group.members)
            group = group._replace(members=numbers)
            names = tuple(settings[number].name for number in numbers)
            kept = tuple(files[number] for number in numbers if files)
            parts.append(Part(task.name, group, names, kept))
    for note in notes:
        notify(note)
    return known, parts


def identity(contestant: Contestant, options: Compared, task: Task) -> str:
    """Return a name for all that fixes the scores of a setting in an environment."""
    rest: dict[str, Any] = {
        "measures": options.measures,
        "seeds": check_seeds(options.seeds),
        "seed": options.seed,
        "lanes": options.lanes,
        "segment_updates": options.segment_updates,
        **folders.unusual_random_numbers(),
    }
    if contestant.pieces[1:]:
        later = contestant.pieces[1:]
        rest["pieces"] = [[piece.first, canonical(piece.values)] for piece in later]
    if hasattr(contestant.trained.env, "step"):
        # Text of an environment object may be that of another one.
        rest["environment"] = task.name
    about = [serialise.to_dict(contestant.trained), rest]
    text = json.dumps(about, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def train(
    parts: Sequence[Part],
    options: Compared,
    compiler: BlockCompiler,
    on_part: Callable[[Known], None],
    is_told: Callable[[], bool],
) -> Known:
    """Train what is missing, and keep it.

    Raises:
        KeyboardInterrupt: somebody asked to stop; finished settings are kept.
    """
    num_seeds = len(check_seeds(options.seeds))
    total = sum(part.steps(num_seeds) for part in parts)
    reporter = Reporter(max(1, total), enabled=options.progress)
    if not parts:
        reporter.info("everything had been trained before")
        return {}
    done, began, lock = 0, time.perf_counter(), threading.Lock()

    def on_block(steps: int, mean: float) -> None:
        nonlocal done
        with lock:
            done += steps
            reporter.update(done, mean)

    reporter.info(_banner(parts, num_seeds, reporter.total))
    scores: Known = {}
    with Interrupt(is_told) as interrupt, reporter:

        def is_stopped() -> bool:
            return interrupt.asked

        for part in parts:
            try:
                found = _train_part(part, options, compiler, on_block, is_stopped)
            except KeyboardInterrupt:
                reporter.notify(
                    "stopped; with out=, settings that had finished are kept, and the "
                    "same call trains the others"
                )
                raise
            scores |= found
            on_part(found)
    seconds = time.perf_counter() - began
    reporter.info(
        f"trained in {seconds:.1f} s ({format_count(done / seconds)} steps/s)"
    )
    return scores


def _banner(parts: Sequence[Part], num_seeds: int, steps: int) -> str:
    """Return the line that says what is about to be trained."""
    names = dict.fromkeys(name for part in parts for name in part.names)
    return (
        f"{with_noun(len(names), 'setting')}, "
        f"{with_noun(num_seeds, 'held-out seed')}: "
        f"{with_noun(len(parts), 'program')}, {format_count(steps)} steps"
    )


def _train_part(
    part: Part,
    options: Compared,
    compiler: BlockCompiler,
    on_block: Callable[[int, float], None],
    is_stopped: Callable[[], bool],
) -> Known:
    """Train a group's settings with every key, and keep the scores of each.

    Raises:
        KeyboardInterrupt: somebody asked to stop before every block was trained.
    """
    seeds, workers, group = check_seeds(options.seeds), compiler.workers, part.group
    keys, plan = held_out_keys(options.seed, seeds), group.bound.plan
    program = compiler.compile(
        group.bound,
        crossed(keys, group.overrides[0], np.arange(len(seeds))),
        # By the seeds alone: bits must not depend on which settings there are.
        options.lanes or default_lanes(len(seeds), workers),
        min(
            group.length(options.segment_updates) or plan.num_updates, plan.num_updates
        ),
        is_fixed=options.lanes is not None,
    )
    # The results of all runs, the keys of a setting fastest.
    num_seeds, edges = len(seeds), _edges(plan)
    shape = (len(part.names), num_seeds, len(options.measures) + len(edges) - 1)
    values, is_trained = np.zeros(shape, np.float32), np.zeros(shape[:2], bool)
    lock = threading.Lock()

    def scores(member: int) -> Trained:
        named = {m: values[member, :, i] for i, m in enumerate(options.measures)}
        curve = values[member, :, len(named) :]
        return Trained(named, curve, edges[1:] * plan.steps_per_update)

    host_keys = jax.device_put(keys, jax.local_devices()[0])

    def members(rows: np.ndarray, piece: int) -> Members:
        return crossed(host_keys, group.overrides[piece], rows)

    def overrides(rows: np.ndarray, piece: int) -> Overrides:
        return members(rows, piece).overrides

    def recorder(job: Job) -> _Recorder:
        return _Recorder(options.measures, len(job.key), plan)

    def keep(job: Job, recorded: _Recorder, cohort: Cohort) -> None:
        found = recorded.result()
        on_block(cohort.size * program.steps_each, mean_of_known(found[:, 0]))
        places = np.divmod(job.key, num_seeds)
        with lock:  # Blocks of one setting may end at once.
            values[places], is_trained[places] = found, True
            ended = [m for m in np.unique(places[0]).tolist() if is_trained[m].all()]
        for member in ended if part.files else ():
            save(part.files[member], scores(member))

    jobs = [
        Job(
            program,
            partial(members, rows, 0),
            rows,
            [(x, partial(overrides, rows, n)) for n, x in enumerate(group.starts) if n],
        )
        for rows in rows_of(is_trained.size, program.lanes)
    ]
    stream(jobs, workers, recorder, keep, is_stopped)
    if not is_trained.all():
        raise KeyboardInterrupt
    return {
        (part.environment, name): scores(number)
        for number, name in enumerate(part.names)
    }

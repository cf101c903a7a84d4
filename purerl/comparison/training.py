"""A comparison's training: what is known from its folder, and what is trained."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purerl.comparison import held_out
from purerl.comparison.environments import Task
from purerl.comparison.groups import (
    Contestant,
    Group,
    check_effect,
    enter,
    make_groups,
)
from purerl.comparison.settings import Setting
from purerl.execution.cache import BlockCompiler, ProgramCache, current_cache
from purerl.execution.format import format_count, with_noun
from purerl.execution.members import crossed
from purerl.meta.training import Stopped
from purerl.runner.interrupt import Interrupt
from purerl.runner.progress import Reporter
from purerl.scale.devices import Worker, default_lanes
from purerl.storage import folders

TRAINED = "trained"  # the folder of scores, a file per setting and environment
Known = dict[tuple[str, str], held_out.Scores]  # by environment and setting


class Options(NamedTuple):
    """The way in which settings are trained.

    Attributes:
        measures: Kinds of `purerl.meta.fitness`.
        seeds: Numbers of the held-out seeds.
        seed: The number from whose key the held-out seeds' keys come.
        lanes: The width W that was asked for; None where it is chosen.
        segment_updates: Updates of a compiled call, K; None for the whole run.
        workers: The workers of this process.
        memory_limit: Bytes that a worker may use.
    """

    measures: tuple[str, ...]
    seeds: tuple[int, ...]
    seed: int
    lanes: int | None
    segment_updates: int | None
    workers: Sequence[Worker]
    memory_limit: float


class Part(NamedTuple):
    """A group of settings in an environment: what one program trains.

    Attributes:
        environment: The environment's name.
        group: The settings, of which nothing is known yet.
        names: The names of the group's members.
        files: The files for the members' scores, one for each; empty without a folder.
    """

    environment: str
    group: Group
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
    options: Options,
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
                path = folder / TRAINED / f"{_identity(contestant, options, task)}.npz"
                files.append(path)
                stored = held_out.load(path)
                if stored is not None:
                    known[task.name, settings[number].name], note = stored
                    notes |= {note: None} if note else {}
                    continue
            check_effect(contestant, settings[number].name)
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


def _identity(contestant: Contestant, options: Options, task: Task) -> str:
    rest: dict[str, Any] = {
        "measures": options.measures,
        "seeds": options.seeds,
        "seed": options.seed,
        "lanes": options.lanes,
        "segment_updates": options.segment_updates,
        **folders.unusual_random_numbers(),
    }
    if contestant.identity:
        rest["pieces"] = contestant.identity
    if hasattr(contestant.trained.env, "step"):
        # Text of an environment object may be that of another one.
        rest["environment"] = task.name
    return held_out.identity(contestant.trained, rest)


def train(
    parts: Sequence[Part],
    options: Options,
    is_shown: bool,
    on_part: Callable[[Known], None],
    is_told: Callable[[], bool],
) -> Known:
    """Train what is missing, and keep it.

    Args:
        parts: The parts that are trained.
        options: Options with which the parts are trained.
        is_shown: Whether progress is printed.
        on_part: A function that is called with the scores of every part.
        is_told: A function that says whether a tracker asks to stop.

    Raises:
        KeyboardInterrupt: somebody asked to stop; finished settings are kept.
    """
    num_seeds = len(options.seeds)
    total = sum(part.steps(num_seeds) for part in parts)
    reporter = Reporter(max(1, total), enabled=is_shown)
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
    # Schedules that change at other updates are parts of one program.
    cache = current_cache()
    with Interrupt(is_told) as interrupt, reporter:

        def is_stopped() -> bool:
            return interrupt.asked

        for part in parts:
            try:
                results = _train_part(part, options, on_block, is_stopped, cache)
            except Stopped:
                raise KeyboardInterrupt from None
            pairs = zip(part.names, results, strict=True)
            by_setting = {(part.environment, name): result for name, result in pairs}
            scores |= by_setting
            on_part(by_setting)
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
    options: Options,
    on_block: Callable[[int, float], None],
    is_stopped: Callable[[], bool],
    cache: ProgramCache,
) -> list[held_out.Scores]:
    """Train a group and keep the scores of each setting; all, in its members' order."""
    group, keys = part.group, held_out.held_out_keys(options.seed, options.seeds)
    updates = group.bound.plan.num_updates
    compiler = BlockCompiler(options.workers, options.memory_limit, cache)
    program = compiler.compile(
        group.bound,
        crossed(keys, group.overrides[0], np.arange(len(options.seeds))),
        # By the seeds alone: bits must not depend on which settings there are.
        options.lanes or default_lanes(len(options.seeds), options.workers),
        min(group.length(options.segment_updates) or updates, updates),
        is_fixed=options.lanes is not None,
    )

    def keep(member: int, scores: held_out.Scores) -> None:
        if part.files:
            held_out.save(part.files[member], scores)

    return held_out.train(
        program,
        keys,
        group,
        options.measures,
        options.workers,
        held_out.Hooks(on_block, keep, is_stopped),
    )

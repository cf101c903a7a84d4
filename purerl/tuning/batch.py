"""A batch of trials with their seeds: blocks of lanes that advance together.

Per group of equal static fields there is one cohort, and one program, which is compiled
once for the whole study. All cohorts are brought to the same share of the budget before
anything is reported. When trials are stopped, only the members of the others go on.
"""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from purerl.config import ConfigError
from purerl.execution.cache import current_cache, is_nearly_full
from purerl.execution.cohort import Cohort, advance
from purerl.execution.curves import (
    Curves,
    Segment,
    first_bad_update,
    reduce_segment,
)
from purerl.execution.format import format_bytes
from purerl.execution.memory import worker_limit
from purerl.execution.programs import Program, every, segment_length
from purerl.hooks import reports
from purerl.runner.arguments import check_seeds
from purerl.scale import devices
from purerl.search.fitness import TRAINING_CURVE, is_own, own_scores
from purerl.sweeps.groups import Group, group_points
from purerl.tuning.options import TuneOptions

ACCELERATOR_LANES = 64


def choose_lanes(members: int, seeds: int, workers: Sequence[devices.Worker]) -> int:
    """Return a width at which stopping trials saves work without slowing the others.

    On a CPU a block holds about one trial. An accelerator takes as long for few lanes
    as for `ACCELERATOR_LANES`; wider batches are cut in about four blocks.
    """
    widest = devices.default_lanes(members, workers)
    if workers[0].device.platform != "cpu":
        quarter = 1 << max(0, (-(-members // 4) - 1).bit_length())
        return min(widest, max(ACCELERATOR_LANES, quarter))
    return min(widest, max(4, 1 << (seeds - 1).bit_length()))


class Pool:
    """The workers and programs of a study, and what was done with them.

    Attributes:
        programs: The programs by group: those of the last batch, and of earlier ones as
            far as this process has room for them.
        compile_seconds: Seconds spent compiling so far.
        calls: Calls of `advance` so far, each of a block and a segment: the work that
            was done.
        env_steps: Environment steps trained, without those of lanes that only fill a
            block.
    """

    def __init__(self, options: TuneOptions) -> None:
        self.options, self.seeds = options, check_seeds(options.seeds)
        self.lanes = options.lanes or 1
        self.workers, self.cache = devices.make_workers(), current_cache()
        self.programs: dict[str, Program] = {}
        self._known = self.cache.compilations
        self.compile_seconds = 0.0
        self.calls = self.env_steps = 0

    @property
    def compilations(self) -> int:
        """Programs that were compiled so far."""
        return self.cache.compilations - self._known

    def compile(self, groups: Sequence[Group]) -> list[Program | ConfigError]:
        """Compile what is new, several programs at a time.

        Returns:
            The program of each group, or why an agent does not fit the memory.
        """
        started = time.perf_counter()

        def compile_one(worker: devices.Worker, group: Group) -> Program | ConfigError:
            del worker
            if group.name in self.programs:
                return self.programs[group.name]
            members = every(group.overrides, len(group.points), self.seeds)
            example = members.block(0, self.lanes)
            length = segment_length(group.bound, segments=self.options.reports)
            try:
                return self.cache.get(group.bound, example, length, self.workers)
            except ConfigError as error:
                return error

        if is_nearly_full():
            names = {group.name for group in groups}
            self.programs = {n: p for n, p in self.programs.items() if n in names}
        built = devices.run_blocks(self.workers, groups, compile_one)
        for group, program in zip(groups, built, strict=True):
            if isinstance(program, Program):
                self.programs[group.name] = program
        self.compile_seconds += time.perf_counter() - started
        return built

    def check_memory(self, cohorts: Sequence[Cohort], num_seeds: int) -> None:
        """Refuse a batch whose states do not fit.

        Raises:
            ConfigError: with the sizes.
        """
        found = [(cohort.program.memory(), cohort.num_blocks) for cohort in cohorts]
        states = self.lanes * sum(memory.state * blocks for memory, blocks in found)
        # What one worker needs beside the states.
        working = max(memory.chunk(self.lanes, 0) for memory, _ in found)
        needed = states + working * len(self.workers)
        free = worker_limit(None, self.workers) * len(self.workers)
        if needed > free:
            raise ConfigError(
                f"a batch of these trials with {num_seeds} seeds needs "
                f"{format_bytes(needed)} for training, "
                f"{format_bytes(free)} are free; ask for smaller batches (batch) or "
                "fewer seeds."
            )


class _Run:
    """The trials of a group, and who of them goes on.

    Attributes:
        group: The group of the trials' points.
        cohort: The members of the trials, every trial with every seed.
        trials: The trial of each member that goes on, `[N]`.
        seeds: The number of the seed of each member that goes on, `[N]`.
        rows: What a fitness of one's own is given, curves of these members `[N, ...]`.
    """

    def __init__(
        self, group: Group, cohort: Cohort, trials: np.ndarray, seeds: np.ndarray
    ) -> None:
        self.group, self.cohort, self.trials, self.seeds = group, cohort, trials, seeds
        self.rows = Curves(group.bound.plan, len(trials))

    def keep(self, alive: np.ndarray) -> None:
        """Let only the members of living trials go on."""
        survivors = np.flatnonzero(alive[self.trials])
        if len(survivors) < len(self.trials):
            self.cohort.keep(survivors)
            self.trials, self.seeds = self.trials[survivors], self.seeds[survivors]
            self.rows.keep(survivors)


class Score(NamedTuple):
    """The score of a trial so far.

    Attributes:
        value: The mean over the seeds; NaN where a seed has none yet, or diverged.
        seeds: The score of each seed, `[S]`; NaN where it has none yet, or diverged.
        diverged: Whether some seed met a number that was not finite.
        env_steps: Environment steps trained, over all seeds.
    """

    value: float
    seeds: np.ndarray
    diverged: bool
    env_steps: int


class Batch:
    """Trials that are trained side by side.

    Args:
        pool: The programs and workers of the study.
        points: Points of the trials.
        seeds: Seeds of every trial; those of the study where not given.

    Attributes:
        refused: Why a point cannot be trained, by number of the trial; it is not
            trained.
    """

    def __init__(
        self,
        pool: Pool,
        points: Sequence[Mapping[str, Any]],
        seeds: Sequence[int] | None = None,
    ) -> None:
        self.pool, self.options = pool, pool.options
        self.seeds = tuple(seeds or pool.seeds)
        self.refused: dict[int, str] = {}
        for number, point in enumerate(points):
            try:
                group_points(self.options.config, [point])
            except ConfigError as error:
                self.refused[number] = str(error)
        numbers = [n for n in range(len(points)) if n not in self.refused]
        shape = (len(points), len(self.seeds))
        self.curves: list[list[list[float]]] = [
            [[] for _ in self.seeds] for _ in points
        ]
        self.known = [0 for _ in points]
        self.diverged = np.zeros(shape, bool)
        self.steps = np.zeros(len(points), np.int64)
        self.runs = self._start(points, numbers)
        self.alive = np.array([n not in self.refused for n in range(len(points))])

    def _start(
        self, points: Sequence[Mapping[str, Any]], numbers: Sequence[int]
    ) -> list[_Run]:
        if not numbers:
            return []
        chosen = [points[number] for number in numbers]
        groups = group_points(self.options.config, chosen)
        seeds, runs = np.arange(len(self.seeds)), []
        for group, program in zip(groups, self.pool.compile(groups), strict=True):
            trials = np.asarray(numbers)[list(group.points)]
            if isinstance(program, ConfigError):
                self.refused |= dict.fromkeys(trials.tolist(), str(program))
                continue
            members = every(group.overrides, len(trials), self.seeds)
            cohort = Cohort(program, members, self.pool.workers)
            places = np.repeat(trials, len(seeds)), np.tile(seeds, len(trials))
            runs.append(_Run(group, cohort, *places))
        if runs:
            self.pool.check_memory([run.cohort for run in runs], len(self.seeds))
        for run in runs:
            run.cohort.init()
        return runs

    def advance(self, report: int) -> None:
        """Bring every living trial to `report / reports` of its budget."""
        due = [run for run in self.runs if self._is_due(run, report)]
        cohorts = [run.cohort for run in due]
        ends = [run.cohort.next_update for run in due]
        calls = sum(cohort.block_calls for cohort in cohorts)
        for segments in advance(cohorts, ends):
            for run, segment in zip(due, segments, strict=True):
                self._add(run, segment)
        self.pool.calls += sum(cohort.block_calls for cohort in cohorts) - calls

    def _is_due(self, run: _Run, report: int) -> bool:
        total = run.group.bound.plan.num_updates
        is_behind = run.cohort.update * self.options.reports < report * total
        return is_behind and len(run.trials) > 0

    def _add(self, run: _Run, segment: Segment) -> None:
        """Take what the members of a group did in a segment."""
        plan = run.group.bound.plan
        bad = first_bad_update(segment.metrics) >= 0
        if plan.evaluate_after:
            slots = len(segment.evaluated(plan))
            scores = segment.evaluation["episode_return"][:, :slots]
            scores = scores.mean(-1, dtype=float)
            bad |= ~np.isfinite(scores).all(1)
        else:
            # NaN before the first episode has ended: nothing is known yet.
            curves = [
                self.curves[t][s] for t, s in zip(run.trials, run.seeds, strict=True)
            ]
            last = np.array([curve[-1] if curve else np.nan for curve in curves])
            row = reduce_segment(segment.metrics, {"episode_return": last})
            scores = row["episode_return"][:, None]
        if is_own(self.options.fitness) or self.options.config.metrics:
            run.rows.add(segment)
        if is_own(self.options.fitness):
            curves = run.rows.train, run.rows.evaluation
            scores = own_scores(self.options.fitness, *curves)[:, None]
        steps = segment.ran * plan.steps_per_update
        for member, (trial, seed) in enumerate(zip(run.trials, run.seeds, strict=True)):
            self.pool.env_steps += steps
            self.diverged[trial, seed] |= bad[member]
            self.steps[trial] += steps
            known = scores[member][np.isfinite(scores[member])]
            self.curves[trial][seed] += known.tolist()

    def score(self, trial: int) -> Score:
        """Return what is known of a trial."""
        is_last = self.options.fitness != TRAINING_CURVE
        worth = [c[-1:] if is_last else c for c in self.curves[trial]]
        seeds = np.array([np.mean(scores) if scores else np.nan for scores in worth])
        seeds = np.where(self.diverged[trial], np.nan, seeds)
        diverged = bool(self.diverged[trial].any())
        # Not the mean of those that survived: it would praise what is unstable.
        return Score(float(seeds.mean()), seeds, diverged, int(self.steps[trial]))

    def metrics(self, trial: int) -> dict[str, float]:
        """Return the last row's own metrics of a trial, means over its seeds."""
        own, run = self.options.config.metrics, self._run_of(trial)
        means = {
            name: float(rows[run.trials == trial, -1].mean())
            for name, rows in run.rows.train.items()
            if reports(name, own)
        }
        return {name: mean for name, mean in means.items() if math.isfinite(mean)}

    def reached(self, trial: int) -> int:
        """Return how many of the reports a trial has been trained far enough for.

        Segments are whole updates, so that a trial may be further than the report that
        it was advanced to, and at the end of its budget before the last one.
        """
        run = self._run_of(trial)
        total = run.group.bound.plan.num_updates
        return run.cohort.update * self.options.reports // total

    def trained(self, trial: int) -> int:
        """Return the environment steps that one agent of a trial has trained."""
        run = self._run_of(trial)
        return run.cohort.update * run.group.bound.plan.steps_per_update

    def _run_of(self, trial: int) -> _Run:
        return next(run for run in self.runs if trial in run.trials)

    @property
    def planned_steps(self) -> int:
        """Environment steps of all trials, if none is stopped."""
        return sum(len(run.trials) * run.group.steps_each for run in self.runs)

    def has_news(self, trial: int) -> bool:
        """Return whether each seed of a trial has a new score since the last call."""
        known = min(map(len, self.curves[trial]))
        is_new = known > self.known[trial]
        self.known[trial] = known
        return is_new

    def stop(self, trials: Sequence[int]) -> None:
        """Stop advancing some trials, and pack the others."""
        self.alive[list(trials)] = False
        for run in self.runs:
            run.keep(self.alive)

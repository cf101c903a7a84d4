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
from purerl.execution.cohort import Cohort, advance
from purerl.execution.curves import (
    Curves,
    Segment,
    first_bad_update,
    reduce_segment,
)
from purerl.execution.format import format_bytes
from purerl.execution.memory import worker_limit
from purerl.execution.programs import Program, current_cache, every, segment_length
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
        compile_seconds: Seconds spent compiling so far.
        calls: Calls of `advance` so far, each of a block and a segment: the work that
            was done.
        env_steps: Environment steps trained, without those of lanes that only fill a
            block.
    """

    def __init__(self, options: TuneOptions) -> None:
        self.options, self.seeds = options, check_seeds(options.seeds)
        self.lanes = options.lanes or 1
        self.workers, self._cache = devices.make_workers(), current_cache()
        self._known = self._cache.compilations
        self.compile_seconds = 0.0
        self.calls = self.env_steps = 0

    @property
    def compilations(self) -> int:
        """Programs that were compiled so far."""
        return self._cache.compilations - self._known

    def compile(self, groups: Sequence[Group]) -> list[Program | ConfigError]:
        """Compile what is new, several programs at a time.

        Returns:
            The program of each group, or why an agent does not fit the memory.
        """
        started = time.perf_counter()

        def compile_one(worker: devices.Worker, group: Group) -> Program | ConfigError:
            del worker
            members = every(group.overrides, len(group.points), self.seeds)
            example = members.block(0, self.lanes)
            length = segment_length(group.bound, segments=self.options.reports)
            try:
                return self._cache.get(group.bound, example, length, self.workers)
            except ConfigError as error:
                return error

        built = devices.run_blocks(self.workers, groups, compile_one)
        self.compile_seconds += time.perf_counter() - started
        return built

    def check_memory(self, cohorts: Sequence[Cohort]) -> None:
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
                f"memory: a batch of these trials needs {format_bytes(needed)}, and "
                f"{format_bytes(free)} are free; ask for smaller batches (batch) or "
                "fewer seeds."
            )


class _Run:
    """The trials of a group, and how those of its members do that go on.

    Attributes:
        trials: The trial of each of these members, `[N]`; its seeds in their order.
        scores: Their scores along the way, `[N, K]`; NaN where none is known.
        diverged: Whether each met a number that was not finite, `[N]`.
        rows: What a fitness of one's own is given, and own metrics, `[N, ...]`.
    """

    def __init__(self, group: Group, cohort: Cohort, trials: np.ndarray) -> None:
        self.group, self.cohort, self.trials = group, cohort, trials
        self.plan = group.bound.plan
        self.scores = np.empty((len(trials), 0))
        self.diverged = np.zeros(len(trials), bool)
        self.rows = Curves(self.plan, len(trials))

    def add(self, segment: Segment, fitness: str) -> None:
        """Take what the members did in a segment."""
        self.rows.add(segment)
        self.diverged |= first_bad_update(segment.metrics) >= 0
        if self.plan.evaluate_after:
            played = segment.evaluation["episode_return"]
            slots = len(segment.evaluated(self.plan))
            new = played[:, :slots].mean(-1, dtype=float)
            self.diverged |= ~np.isfinite(new).all(1)
        else:
            # NaN before the first episode has ended: nothing is known yet.
            is_first = self.scores.shape[1] == 0
            last = np.full(len(self.trials), np.nan) if is_first else self.scores[:, -1]
            row = reduce_segment(segment.metrics, {"episode_return": last})
            new = row["episode_return"][:, None]
        if is_own(fitness):
            curves = self.rows.train, self.rows.evaluation
            new = own_scores(fitness, *curves)[:, None]
        self.scores = np.concatenate([self.scores, new], 1)

    def keep(self, alive: np.ndarray) -> None:
        """Let only some members go on, `[N]` bool."""
        if alive.all():
            return
        survivors = np.flatnonzero(alive)
        self.cohort.keep(survivors)
        self.rows.keep(survivors)
        self.trials, self.scores = self.trials[survivors], self.scores[survivors]
        self.diverged = self.diverged[survivors]


class Score(NamedTuple):
    """What is known of a trial.

    Attributes:
        value: The mean over the seeds; NaN where a seed has none yet, or diverged.
        seeds: The score of each seed, `[S]`; NaN where it has none yet, or diverged.
        diverged: Whether each seed met a number that was not finite, `[S]`.
        along: The scores of each seed along the way, `[S, K]`.
        is_new: Whether each seed has a score that it had not when last asked.
        step: The share of the budget that was trained, in steps of the config itself,
            which trials of several programs have in common. Segments are whole updates,
            so it may be more than the report that the trial was advanced to.
        state: `diverged`, or at the end of the budget `complete` or `unknown`; empty
            before.
        detail: What the trial's row says beside its state, as plain values.
    """

    value: float
    seeds: np.ndarray
    diverged: np.ndarray
    along: np.ndarray
    is_new: bool
    step: int
    state: str
    detail: dict[str, Any]


class Batch:
    """Trials that are trained side by side.

    Args:
        pool: The programs and workers of the study.
        points: Points of the trials.
        seeds: Seeds of every trial; those of the study where not given.

    Attributes:
        refused: Why a point cannot be trained, by number of the trial; it is not
            trained.
        planned_steps: Environment steps of all trials, if none is stopped.
        env_steps: Environment steps trained so far.
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
        self.runs = self._start([points[n] for n in numbers], np.array(numbers))
        steps = (len(run.trials) * run.group.steps_each for run in self.runs)
        self.planned_steps, self.env_steps = sum(steps), 0
        # By trial: the number of scores that were known, and its curve so far.
        self._known = dict.fromkeys(numbers, 0)
        self._curves: dict[int, dict[int, float]] = {number: {} for number in numbers}

    def _start(
        self, points: Sequence[Mapping[str, Any]], numbers: np.ndarray
    ) -> list[_Run]:
        groups = group_points(self.options.config, points)
        runs = []
        for group, program in zip(groups, self.pool.compile(groups), strict=True):
            trials = numbers[list(group.points)]
            if isinstance(program, ConfigError):
                self.refused |= dict.fromkeys(trials.tolist(), str(program))
                continue
            members = every(group.overrides, len(trials), self.seeds)
            cohort = Cohort(program, members, self.pool.workers)
            runs.append(_Run(group, cohort, np.repeat(trials, len(self.seeds))))
        if runs:
            self.pool.check_memory([run.cohort for run in runs])
        for run in runs:
            run.cohort.init()
        return runs

    def advance(self, report: int) -> None:
        """Bring every living trial to `report / reports` of its budget."""
        due = [
            run
            for run in self.runs
            if len(run.trials)
            and run.cohort.update * self.options.reports < report * run.plan.num_updates
        ]
        cohorts = [run.cohort for run in due]
        ends = [cohort.next_update for cohort in cohorts]
        calls = sum(cohort.block_calls for cohort in cohorts)
        for segments in advance(cohorts, ends):
            for run, segment in zip(due, segments, strict=True):
                run.add(segment, self.options.fitness)
                steps = segment.ran * run.plan.steps_per_update * len(run.trials)
                self.env_steps += steps
                self.pool.env_steps += steps
        self.pool.calls += sum(cohort.block_calls for cohort in cohorts) - calls

    def score(self, trial: int) -> Score:
        """Return what is known of a trial."""
        options, curve = self.options, self._curves[trial]
        run = next(run for run in self.runs if trial in run.trials)
        mine, update = run.trials == trial, run.cohort.update
        along, diverged = run.scores[mine], run.diverged[mine]
        known = [scores[np.isfinite(scores)] for scores in along]
        is_last = options.fitness != TRAINING_CURVE
        seeds = np.full(len(along), np.nan)
        for seed, scores in enumerate(known):
            if len(scores) and not diverged[seed]:
                seeds[seed] = scores[-1] if is_last else scores.mean()
        # Not the mean of those that survived: it would praise what is unstable.
        value, steps = float(seeds.mean()), update * run.plan.steps_per_update
        number = min(map(len, known))
        is_new = number > self._known[trial] and not diverged.any()
        self._known[trial] = number
        if is_new:
            curve[steps] = value
        reached = update * options.reports // run.plan.num_updates
        state = "diverged" if diverged.any() else ""
        if not state and reached == options.reports:
            state = "complete" if math.isfinite(value) else "unknown"
        means = {
            name: float(rows[mine, -1].mean())
            for name, rows in run.rows.train.items()
            if reports(name, options.config.metrics)
        }
        detail = {
            "seed_scores": [x if math.isfinite(x) else None for x in seeds.tolist()],
            "env_steps": steps * len(seeds),
            "curve": curve,
            "metrics": {name: x for name, x in means.items() if math.isfinite(x)},
        }
        step = round(reached * options.config.total_timesteps / options.reports)
        return Score(value, seeds, diverged, along, is_new, step, state, detail)

    def stop(self, trials: Sequence[int]) -> None:
        """Stop advancing some trials, and pack the others."""
        for run in self.runs:
            run.keep(~np.isin(run.trials, trials))

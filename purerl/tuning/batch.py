"""A batch of trials with their seeds: blocks of lanes that advance together.

Per group of equal static fields there is one executable, compiled once for the whole
study. All blocks are brought to the same share of the budget before anything is
reported. When trials are stopped, the members that are left are packed into as few
blocks as hold them, and only those are advanced: a member's bits depend neither on its
lane nor on its neighbours, so packing changes no result.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.config import ConfigError
from purerl.runner.programs import Members
from purerl.runner.reduce import first_bad_update, reduce_segment
from purerl.scale.devices import Worker, run_blocks
from purerl.scale.host import to_device, to_host
from purerl.sweeps.axes import Design
from purerl.sweeps.groups import Group, group_points
from purerl.tuning.pool import Pool, members_of
from purerl.tuning.space import check_points
from purerl.types import PyTree


class _Run(NamedTuple):
    """A group of a batch, and where its members stand.

    Attributes:
        group: its points.
        members: `[M]`.
        trials: `[M]`, each member's trial.
        seeds: `[M]`, the number of each member's seed.
    """

    group: Group
    members: Members
    trials: np.ndarray
    seeds: np.ndarray


class _Block:
    """Lanes that one call advances: numbers of members, and their states."""

    def __init__(self, rows: np.ndarray, worker: Worker) -> None:
        self.rows, self.worker = rows, worker
        self.state: PyTree = None


class Score(NamedTuple):
    """Of a trial, so far.

    Attributes:
        value: mean over the seeds; NaN where a seed has none yet, or diverged.
        seeds: `[S]`.
        diverged: some seed met a number that was not finite.
        env_steps: trained, over all seeds.
    """

    value: float
    seeds: np.ndarray
    diverged: bool
    env_steps: int


class Batch:
    """Trials that are trained side by side.

    Args:
        pool: of the study.
        points: of the trials.
        seeds: of every trial; those of the study where not given.

    Attributes:
        refused: number of a trial -> why its point cannot be trained; it is not.
    """

    def __init__(
        self,
        pool: Pool,
        points: Sequence[Mapping[str, Any]],
        seeds: Sequence[int] | None = None,
    ) -> None:
        self.pool, self.setup = pool, pool.setup
        self.seeds = tuple(seeds or pool.setup.seeds)
        self.refused: dict[int, str] = {}
        for number, point in enumerate(points):
            try:
                check_points(self.setup.config, [dict(point)])
            except ConfigError as error:
                self.refused[number] = str(error)
        numbers = [n for n in range(len(points)) if n not in self.refused]
        self.alive = np.isin(np.arange(len(points)), numbers)
        shape = (len(points), len(self.seeds))
        self.curves: list[list[list[float]]] = [
            [[] for _ in self.seeds] for _ in points
        ]
        self.known = [0 for _ in points]
        self.diverged = np.zeros(shape, bool)
        self.steps = np.zeros(len(points), np.int64)
        self.runs, self.blocks = self._start(points, numbers)
        self.done = [0 for _ in self.runs]

    def _start(
        self, points: Sequence[Mapping[str, Any]], numbers: Sequence[int]
    ) -> tuple[list[_Run], list[list[_Block]]]:
        if not numbers:
            return [], []
        chosen = tuple(dict(points[number]) for number in numbers)
        design = Design("zip", tuple(chosen[0]), (len(chosen),), chosen)
        groups = group_points(self.setup.config, design)
        self.pool.compile(groups)
        seeds = np.arange(len(self.seeds))
        runs, blocks = [], []
        for group in groups:
            trials = np.repeat(np.asarray(numbers)[list(group.points)], len(seeds))
            members = members_of(group, self.seeds)
            own = np.tile(seeds, len(group.points))
            runs.append(_Run(group, members, trials, own))
            blocks.append(self._cut(np.arange(members.size)))
        self.pool.check_memory(
            {r.group.name: len(b) for r, b in zip(runs, blocks, strict=True)},
            len(self.seeds),
        )
        self._each(runs, blocks, self._init)
        return runs, blocks

    def _cut(self, rows: np.ndarray) -> list[_Block]:
        lanes, workers = self.setup.lanes, self.pool.workers
        starts = range(0, len(rows), lanes)
        return [
            _Block(rows[start : start + lanes], workers[i % len(workers)])
            for i, start in enumerate(starts)
        ]

    def _each(self, runs: list[_Run], blocks: list[list[_Block]], call: Any) -> None:
        """Call `call(run number, run, block)` for every block, on all workers."""
        items = [
            (number, run, block)
            for number, run in enumerate(runs)
            for block in blocks[number]
        ]
        run_blocks(self.pool.workers, items, lambda worker, item: call(*item))

    def _lanes_of(self, run: _Run, block: _Block) -> Members:
        """The members of a block, the last one again in the lanes that are left."""
        index = np.minimum(np.arange(self.setup.lanes), len(block.rows) - 1)
        rows = block.rows[index]
        return jax.tree.map(lambda x: jnp.asarray(x)[rows], run.members)

    def _init(self, number: int, run: _Run, block: _Block) -> None:
        del number
        programs = self.pool.programs[run.group.name]
        state = programs.init(block.worker.device, self._lanes_of(run, block))
        block.state = jax.block_until_ready(state)

    def advance(self, report: int) -> None:
        """Bring every living trial to `report / reports` of its budget."""

        def is_due(number: int) -> bool:
            total = self.runs[number].group.bound.plan.num_updates
            return self.done[number] * self.setup.reports < report * total

        def one(number: int, run: _Run, block: _Block) -> None:
            if is_due(number):
                self._advance_block(self.done[number], run, block)

        self._each(self.runs, self.blocks, one)
        for number, run in enumerate(self.runs):
            if is_due(number):
                length = self.pool.programs[run.group.name].length
                total = run.group.bound.plan.num_updates
                self.done[number] = min(self.done[number] + length, total)

    def _advance_block(self, first: int, run: _Run, block: _Block) -> None:
        programs, plan = self.pool.programs[run.group.name], run.group.bound.plan
        ran = min(programs.length, plan.num_updates - first)
        overrides = self._lanes_of(run, block).overrides
        block.state, (metrics, evaluation) = programs.advance(
            block.worker.device, block.state, overrides, first
        )
        metrics = {name: values[:, :ran] for name, values in metrics.items()}
        bad = first_bad_update(metrics) >= 0
        due = [u for u in plan.evaluate_after if first < u <= first + ran]
        if plan.evaluate_after:
            scores = evaluation["episode_return"][:, : len(due)].mean(-1, dtype=float)
            bad |= ~np.isfinite(scores).all(1)
        else:
            # NaN where no episode ended: nothing is known, nothing has diverged.
            scores = reduce_segment(metrics)["episode_return"][:, None]
        steps = ran * plan.steps_per_update
        with self.pool.lock:
            self.pool.calls += 1
            for lane, row in enumerate(block.rows):
                trial, seed = run.trials[row], run.seeds[row]
                if not self.alive[trial]:
                    continue  # Its lane only fills the block.
                self.pool.env_steps += steps
                self.diverged[trial, seed] |= bad[lane]
                self.steps[trial] += steps
                known = scores[lane][np.isfinite(scores[lane])]
                self.curves[trial][seed] += known.tolist()

    def score(self, trial: int) -> Score:
        """What is known of a trial."""
        seeds = np.array([self._member_score(c) for c in self.curves[trial]])
        seeds = np.where(self.diverged[trial], np.nan, seeds)
        diverged = bool(self.diverged[trial].any())
        # Not the mean of those that survived: it would praise what is unstable.
        return Score(float(seeds.mean()), seeds, diverged, int(self.steps[trial]))

    def _member_score(self, curve: list[float]) -> float:
        if not curve:
            return float("nan")
        return curve[-1] if self.setup.fitness == "final" else float(np.mean(curve))

    @property
    def planned_steps(self) -> int:
        """Environment steps of all trials, if none is stopped."""
        return sum(run.members.size * run.group.steps_each for run in self.runs)

    def has_news(self, trial: int) -> bool:
        """Whether every seed of a trial has a new score since the last question."""
        known = min(map(len, self.curves[trial]))
        is_new = known > self.known[trial]
        self.known[trial] = known
        return is_new

    def stop(self, trials: Sequence[int]) -> None:
        """Advance some trials no more; pack the others."""
        self.alive[list(trials)] = False
        for number, run in enumerate(self.runs):
            self.blocks[number] = self._packed(run, self.blocks[number])

    def _packed(self, run: _Run, blocks: list[_Block]) -> list[_Block]:
        living = [self.alive[run.trials[block.rows]] for block in blocks]
        used = [block for block, some in zip(blocks, living, strict=True) if some.any()]
        rows = np.concatenate([np.empty(0, int), *[block.rows for block in used]])
        left = rows[self.alive[run.trials[rows]]]
        packed = self._cut(left)
        if len(packed) == len(used):
            return used  # As much work, and nothing has to move.
        programs = self.pool.programs[run.group.name]
        hosts = [to_host(block.state) for block in used]
        sizes = [len(block.rows) for block in used]
        place = {int(row): i for i, row in enumerate(rows)}

        def join(*leaves: np.ndarray) -> Any:
            cut = [x[:n] for x, n in zip(leaves, sizes, strict=True)]
            return np.concatenate(cut)

        states = jax.tree.map(join, *hosts)
        for block in packed:
            index = np.array([place[int(row)] for row in block.rows])
            index = index[np.minimum(np.arange(self.setup.lanes), len(index) - 1)]
            host = jax.tree.map(lambda x, i=index: x[i], states)
            block.state = programs.placed(block.worker.device, to_device(host))
        return packed

"""Training on keys that no evolution has seen.

An evolution of seed `s` trains runs whose keys come from `fold_in(key(s), 0 .. 2)`; the
keys of held-out runs come from `fold_in(key(s), 3)`, those of ordinary runs are
`key(s)` itself. So whatever the seeds, no run that a setting is judged by starts from
the key of a run that it was evolved on.
"""

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import serialise
from purerl.comparison.groups import Group
from purerl.execution.cohort import Cohort, train_until
from purerl.execution.curves import Segment, mean_of_known
from purerl.execution.members import crossed
from purerl.execution.programs import Program
from purerl.meta.fitness import Accumulator, ReturnCurve
from purerl.meta.training import Stopped
from purerl.scale.devices import Worker, run_blocks
from purerl.storage import folders
from purerl.storage.files import DAMAGE, load_arrays, save_arrays
from purerl.train import Plan
from purerl.types import Array

# What to fold into a seed's key; `purerl.meta.training` has 0 to 2, and 4.
_HELD_OUT = 3
_MADE_WITH = "made_with"  # The name of versions and device in a file of scores.
_IDENTITY = "identity"
POINTS = 100  # The number of points of a stored curve.


class Scores(NamedTuple):
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
        self.totals = [Accumulator(kind, num_runs, updates) for kind in measures]
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


class Hooks(NamedTuple):
    """Functions that training calls from the threads of its workers.

    Attributes:
        on_block: Called after every block with its environment steps and the mean of
            its first measure.
        on_member: Called with a member's number and its scores, as soon as it is
            trained with every key.
        is_stopped: Says whether somebody asked to stop.
    """

    on_block: Callable[[int, float], None]
    on_member: Callable[[int, Scores], None]
    is_stopped: Callable[[], bool]


class _Results:
    """The results of the runs of a group, the keys of a member fastest.

    Args:
        num_members: The number of members, P.
        num_seeds: The number of keys of each, S.
        measures: Kinds of `purerl.meta.fitness`.
        plan: The plan of a run.
    """

    def __init__(
        self, num_members: int, num_seeds: int, measures: Sequence[str], plan: Plan
    ) -> None:
        self.num_seeds, self.measures = num_seeds, measures
        edges = _edges(plan)
        self.steps = edges[1:] * plan.steps_per_update
        width = len(measures) + len(edges) - 1
        self.values = np.zeros((num_members * num_seeds, width), np.float32)
        self.is_trained = np.zeros(len(self.values), bool)
        self.lock = threading.Lock()

    def add(self, rows: np.ndarray, values: np.ndarray) -> list[int]:
        """Take the results of some runs; return the members that are complete now."""
        members = dict.fromkeys((rows // self.num_seeds).tolist())
        with self.lock:  # Blocks of one member may end at once.
            self.values[rows] = values
            self.is_trained[rows] = True
            return [m for m in members if self.is_trained[self._own(m)].all()]

    def scores(self, member: int) -> Scores:
        """Return the scores of a member that is complete."""
        own, number = self.values[self._own(member)], len(self.measures)
        named = {name: own[:, i] for i, name in enumerate(self.measures)}
        return Scores(named, own[:, number:], self.steps)

    def _own(self, member: int) -> slice:
        return slice(member * self.num_seeds, (member + 1) * self.num_seeds)


def train(
    program: Program,
    keys: Array,
    group: Group,
    measures: Sequence[str],
    workers: Sequence[Worker],
    hooks: Hooks,
) -> list[Scores]:
    """Train every member of a group with every key, in the order of the members.

    Args:
        program: The program that trains the members.
        keys: Keys `[S]`, with each of which every member is trained.
        group: The group of members, P of them.
        measures: Kinds of `purerl.meta.fitness`.
        workers: The workers of this process.
        hooks: Functions that are called on the way.

    Returns:
        P scores.

    Raises:
        Stopped: somebody asked to stop before every block was trained.
    """
    num_members, plan = len(group.members), program.bound.plan
    results = _Results(num_members, keys.shape[0], measures, plan)
    num_runs = len(results.values)
    host_keys = jax.device_put(keys, jax.local_devices()[0])

    def train_block(worker: Worker, start: int) -> None:
        if hooks.is_stopped():
            return
        rows = np.arange(start, min(start + program.lanes, num_runs))
        recorder = _Recorder(measures, len(rows), plan)
        _train_block(program, host_keys, group, rows, worker, recorder)
        values = recorder.result()
        hooks.on_block(len(rows) * program.steps_each, mean_of_known(values[:, 0]))
        for member in results.add(rows, values):
            hooks.on_member(member, results.scores(member))

    run_blocks(workers, range(0, num_runs, program.lanes), train_block)
    if not results.is_trained.all():
        raise Stopped
    return [results.scores(member) for member in range(num_members)]


def _train_block(
    program: Program,
    keys: Array,
    group: Group,
    rows: np.ndarray,
    worker: Worker,
    recorder: _Recorder,
) -> None:
    """Train some rows of every member with every key, piece by piece."""
    cohort = Cohort(program, crossed(keys, group.overrides[0], rows), [worker])
    cohort.init()
    ends = (*group.starts[1:], program.bound.plan.num_updates)
    for first, end, overrides in zip(group.starts, ends, group.overrides, strict=True):
        if first > 0:
            cohort.set_overrides(crossed(keys, overrides, rows).overrides)
        train_until(cohort, end, recorder)


def identity(config: Any, rest: dict[str, Any]) -> str:
    """Return a name for what one setting in one environment was trained with."""
    text = json.dumps([serialise.to_dict(config), rest], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def save(path: Path, scores: Scores) -> None:
    """Write scores, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    of = {_IDENTITY: np.array(path.stem)}
    named = {f"measure_{name}": x for name, x in scores.measures.items()}
    made_with = {_MADE_WITH: np.array(json.dumps(folders.made_with()))}
    save_arrays(
        path, {"curve": scores.curve, "steps": scores.steps, **named, **made_with, **of}
    )


def load(path: Path) -> tuple[Scores, str | None] | None:
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
    return Scores(measures, curve, steps), note

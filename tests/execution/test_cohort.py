"""One training loop: who trains beside a member, and where, changes no bit of it."""

import jax
import numpy as np
import pytest

from purerl.execution import cohort as cohorts
from purerl.execution.cohort import Job, advance, stream
from purerl.execution.curves import Curves
from purerl.execution.programs import (
    Members,
    Program,
    ProgramCache,
    crossed,
    cut,
    every,
    fill,
)
from purerl.scale.devices import make_workers
from purerl.train import bind
from tests.execution.conftest import LANES, SEGMENT, UPDATES
from tests.helpers import assert_same_bits


@pytest.fixture(scope="module")
def whole(begun, members):
    """All five members, trained to the end: their states and their segments."""
    made = begun(members)
    segments = list(made.segments(UPDATES))
    return made.gather(), segments


def take(tree, index):
    return jax.tree.map(lambda x: x[np.asarray(index)], tree)


def test_segments_are_the_run_in_order(whole):
    _, segments = whole
    places = [(s.first, s.ran, s.end) for s in segments]
    assert places == [(0, 4, 4), (4, 4, 8), (8, 4, 12)]
    steps = np.concatenate([s.metrics["env_steps"] for s in segments], 1)
    np.testing.assert_array_equal(steps, [np.arange(1, 13) * 32] * 5)


def test_who_is_kept_is_trained_as_if_all_were(cohort, whole):
    list(cohort.segments(SEGMENT))
    cohort.keep(np.array([0, 2, 4]))  # one in each of three blocks
    assert cohort.num_blocks == 2 and cohort.size == 3
    list(cohort.segments(2 * SEGMENT))
    cohort.keep(np.array([1, 2]))
    assert cohort.num_blocks == 1
    (segment,) = cohort.segments(UPDATES)
    assert segment.metrics["episodes"].shape == (2, SEGMENT)
    states, segments = whole
    assert_same_bits(cohort.gather(), take(states, [2, 4]))
    assert_same_bits(segment.metrics, take(segments[-1].metrics, [2, 4]))
    np.testing.assert_array_equal(cohort.key_data(), states.key.data[[2, 4]])


def test_nobody_is_left(cohort):
    cohort.keep(np.array([], int))
    assert (cohort.size, cohort.num_blocks) == (0, 0)


def test_numbers_can_change_on_the_way(cohort, begun, members):
    """Also of those that are left where dead lanes fill the blocks."""
    list(cohort.segments(SEGMENT))
    rates = members.overrides["learning_rate"]
    cohort.keep(np.array([0, 2, 3]))
    changed = rates[[0, 2, 3]] * np.float32(0.5)
    cohort.set_overrides({"learning_rate": changed})
    np.testing.assert_array_equal(cohort.members.overrides["learning_rate"], changed)
    list(cohort.segments(UPDATES))
    other = begun(members)
    list(other.segments(SEGMENT))
    other.set_overrides({"learning_rate": rates * np.float32(0.5)})
    list(other.segments(UPDATES))
    assert_same_bits(cohort.gather(), take(other.gather(), [0, 2, 3]))


def test_evaluations_follow_the_members_that_are_left(cohort):
    list(cohort.segments(SEGMENT))
    keys = jax.random.split(jax.random.key(5), 5)
    everyone = cohort.evaluate(keys)
    assert len(set(everyone.env_steps.tolist())) > 1
    alive = np.array([0, 2, 3])
    cohort.keep(alive)
    left = cohort.evaluate(keys[alive])
    for mine, theirs in zip(left, everyone, strict=True):
        np.testing.assert_array_equal(mine, theirs[alive])


def test_dispatching_ahead_gives_the_same_segments(cohort, whole, monkeypatch):
    """As on an accelerator: the next segment begins before the last one is read."""
    monkeypatch.setattr(cohorts, "_works_alone", lambda cohort: True)
    found = [(cohort.update, s.metrics) for s in cohort.segments(UPDATES)]
    reached = zip((8, 12, 12), whole[1], strict=True)  # one ahead of what is read
    assert_same_bits(found, [(update, s.metrics) for update, s in reached])
    assert_same_bits(cohort.gather(), whole[0])


@pytest.mark.parametrize("is_ahead", [False, True])
def test_who_asks_to_stop_gets_all_that_was_dispatched(cohort, monkeypatch, is_ahead):
    monkeypatch.setattr(cohorts, "_works_alone", lambda cohort: is_ahead)
    segments = cohort.segments(UPDATES, lambda: cohort.update >= SEGMENT)
    assert [s.end for s in segments] == [SEGMENT] and cohort.update == SEGMENT
    assert [s.end for s in cohort.segments(UPDATES)] == [2 * SEGMENT, UPDATES]


def test_cohorts_side_by_side_end_where_each_is_to(begun, members, whole):
    few, many = (begun(members.take(np.array(x))) for x in ([4, 1], [0, 2, 3]))
    found = [[s.end for s in pair] for pair in advance([few, many], [SEGMENT, UPDATES])]
    assert found == [[4, 4], [8], [12]]
    assert (few.update, many.update) == (SEGMENT, UPDATES)
    assert_same_bits(many.gather(), take(whole[0], [0, 2, 3]))


def test_members_a_few_at_a_time_are_the_same_members(bound, members, cache, whole):
    program = cache.get(bound, members.block(0, LANES), SEGMENT, make_workers())
    part, workers = members.take(np.array([1, 2, 3])), make_workers()[-1:]
    curves, told, kept = Curves(bound.plan, 3), [], []
    stream(
        [Job(program, lambda: part, "three")],
        workers,
        lambda job: curves,
        lambda job, reduced, cohort: kept.append((job.key, reduced, cohort.gather())),
        on_segment=lambda job, *x: told.append(x[:2]),
    )
    assert told == [(3, SEGMENT)] * 3
    ((key, reduced, states),) = kept
    assert key == "three" and reduced is curves
    assert_same_bits(states, take(whole[0], [1, 2, 3]))
    assert curves.train["env_steps"].shape == (3, 3)


def test_members_are_every_point_with_every_key():
    found = every({"x": np.arange(3.0)}, 3, seeds=[5, 6])
    np.testing.assert_array_equal(found.overrides["x"], [0, 0, 1, 1, 2, 2])
    assert_same_bits([*found.keys], [jax.random.key(seed) for seed in (5, 6)] * 3)
    keys = jax.random.split(jax.random.key(0), 2)
    some = crossed(keys, {"x": np.arange(3.0)}, np.array([1, 4]))
    np.testing.assert_array_equal(some.overrides["x"], [0, 2])
    assert_same_bits(some.keys, keys[::-1])


def test_blocks_hold_all_members_once():
    workers = make_workers() * 2
    blocks = cut(5, 2, workers[:2])
    assert [b.rows.tolist() for b in blocks] == [[0, 1], [2, 3], [4]]
    assert [b.size for b in blocks] == [2, 2, 1]
    assert [b.worker for b in blocks] == [workers[0], workers[1], workers[0]]
    np.testing.assert_array_equal(fill(np.array([3, 4]), 4), [3, 4, 4, 4])


def test_a_program_is_known_by_all_that_it_is_compiled_from(
    bound, members, monkeypatch
):
    built = []
    monkeypatch.setattr(Program, "__init__", lambda self, *a: built.append(a))
    # The process of the tests may hold many programs already.
    monkeypatch.setattr("purerl.execution.programs.is_nearly_full", lambda: False)
    cache, workers = ProgramCache(), make_workers()
    block = members.block(0, LANES)
    first = cache.get(bound, block, SEGMENT, workers)
    same = Members(block.keys, {"learning_rate": block.overrides["learning_rate"] * 2})
    assert cache.get(bound, same, SEGMENT, workers) is first  # the numbers do not count
    again = bind(bound.asked)
    assert cache.get(again, block, SEGMENT, workers) is first
    others = [
        (bound, members.block(0, LANES + 1), SEGMENT),
        (bound, Members(block.keys, {}), SEGMENT),
        (bound, block, SEGMENT + 1),
        (bind(bound.asked.replace(gamma=0.5)), block, SEGMENT),  # it is a constant
        (bind(bound.asked.replace(num_epochs=1)), block, SEGMENT),
        (bind(bound.asked.replace(total_timesteps=3_200)), block, SEGMENT),
    ]
    found = [cache.get(*other, workers) for other in others]
    assert len({id(program) for program in [first, *found]}) == 1 + len(others)
    assert len(cache) == len(built) == 1 + len(others)
    for option in (
        jax.default_matmul_precision("float32"),
        jax.threefry_partitionable(False),
    ):
        with option:
            assert cache.get(bound, block, SEGMENT, workers) is not first
    assert cache.get(bound, block, SEGMENT, workers) is first

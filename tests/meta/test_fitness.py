"""What a run and a member are worth, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.config import ConfigError
from purerl.execution.curves import PARAMETERS_FINITE, Segment
from purerl.meta.fitness import (
    Accumulator,
    OwnFitness,
    check_progress,
    measured_anchors,
    member_scores,
    read_baselines,
)
from purerl.search.fitness import own_scores
from purerl.train import Plan

NAN = np.nan


def segment(first, episodes, returns, evaluation=None):
    """A segment with metrics `[N, K]` and evaluations."""
    metrics = {
        "env_steps": np.ones(np.shape(episodes), np.uint32),
        "episodes": np.asarray(episodes, np.int32),
        "episode_return": np.asarray(returns, np.float32),
        "episode_length": np.where(np.asarray(episodes) > 0, 1.0, NAN),
        "policy_loss": np.zeros(np.shape(episodes), np.float32),
    }
    ran = np.shape(episodes)[1]
    return Segment(first, ran, metrics, {"episode_return": np.asarray(evaluation)})


def worth(kind, episodes, returns, cut):
    """What runs are worth whose updates come in segments of `cut`."""
    number, updates = np.shape(episodes)
    total = Accumulator(kind, number, updates)
    for first in range(0, updates, cut):
        part = slice(first, first + cut)
        total.add(segment(first, episodes[:, part], returns[:, part]))
    return total.result()


def test_the_evaluations_of_a_segment_are_those_after_its_updates():
    plan = Plan(10, 1, (3, 4, 8, 10), 1)
    found = [Segment(first, 4, {}, {}).evaluated(plan) for first in (0, 1, 3, 4, 6)]
    assert found == [[3, 4], [3, 4], [4], [8], [8, 10]]


@pytest.mark.parametrize("cut", [10, 1, 4])
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # 4 4 4 4 8 8 8 8 8 6: the first episode's return counts from the start.
        ("training_curve", 6.2),
        # The last tenth of ten updates is one.
        ("final_return", 6.0),
        ("negative_training_curve", -6.2),
        ("negative_final_return", -6.0),
    ],
)
def test_fitness_of_a_run_whatever_its_segments(kind, expected, cut):
    episodes = np.array([[0, 0, 1, 0, 2, 0, 0, 0, 1, 1]])
    returns = np.array([[NAN, NAN, 4, NAN, 8, NAN, NAN, NAN, 8, 6]])
    found = worth(kind, episodes, returns, cut)
    np.testing.assert_allclose(found, [expected], rtol=1e-6)


@pytest.mark.parametrize("cut", [20, 1, 7])
def test_who_is_slow_to_end_an_episode_is_not_better_for_it(cut):
    # Where returns are negative, a zero would be the best that can be.
    episodes = np.array([[1] * 20, [0] * 18 + [1] * 2, [0] * 19 + [1], [0] * 20])
    returns = np.where(episodes > 0, -100.0, NAN)
    for kind in ("training_curve", "final_return"):
        found = worth(kind, episodes, returns, cut)
        np.testing.assert_allclose(found, [-100, -100, -100, 0], rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "sign"), [("evaluation", 1), ("negative_evaluation", -1)]
)
def test_evaluation_is_the_mean_of_its_episodes(kind, sign):
    total = Accumulator(kind, 2, 4)
    early = np.zeros((2, 1, 3))  # the buffer of a segment without an evaluation
    total.add(segment(0, np.ones((2, 2)), np.ones((2, 2)), early))
    late = np.array([[[1.0, 2.0, 6.0]], [[0.0, 0.0, 0.0]]])
    total.add(segment(2, np.ones((2, 2)), np.ones((2, 2)), late))
    np.testing.assert_array_equal(total.result(), [sign * 3.0, 0.0])


def weighted(curves):
    """The curve weighted by its places, and the evaluations."""
    curve = curves.train["episode_return"]
    places = jnp.arange(curve.shape[0], dtype=curve.dtype)
    return (curve * places).sum() + 1000 * curves.evaluation["episode_return"].sum()


def spread(curves):
    """The deviation of the curve, of many sums."""
    return curves.train["episode_return"].std()


@pytest.mark.parametrize("cut", [10, 1, 4])
def test_a_function_of_ones_own_is_given_whole_curves_whatever_their_segments(cut):
    episodes = np.array([[0, 0, 1, 0, 2, 0, 0, 0, 1, 1], [0] * 10])
    returns = np.where(episodes > 0, [[0, 0, 4, 0, 8, 0, 0, 0, 8, 6]], NAN)
    total = OwnFitness(f"{__name__}:weighted", 2, Plan(10, 1, (3, 10), 1))
    for first in range(0, 10, cut):
        part = slice(first, first + cut)
        slots = np.full((2, 2, 1), 7.0)  # what no evaluation has filled is not shown
        for slot, update in enumerate(u for u in (3, 10) if first < u <= first + cut):
            slots[:, slot] = update
        total.add(segment(first, episodes[:, part], returns[:, part], slots))
    # 4 4 4 4 8 8 8 8 8 6 by 0 to 9; and evaluations of 3 and 10.
    curve = 4 * (1 + 2 + 3) + 8 * (4 + 5 + 6 + 7 + 8) + 6 * 9
    np.testing.assert_array_equal(total.result(), [curve + 13_000, 13_000])


def test_who_else_is_there_changes_no_bit_of_a_function_of_ones_own():
    returns = np.random.default_rng(0).normal(size=(5, 1_000)).astype(np.float32)
    curves, kind = {"episode_return": returns}, f"{__name__}:spread"
    together = own_scores(kind, curves, {})
    alone = [own_scores(kind, {"episode_return": x[None]}, {}) for x in returns]
    np.testing.assert_array_equal(together, np.concatenate(alone))
    np.testing.assert_allclose(together, returns.std(1), rtol=1e-4)
    with jax.enable_x64(True):  # nor does the rest of a program
        wide = {"episode_return": returns.astype(np.float64)}
        np.testing.assert_array_equal(own_scores(kind, wide, {}), together)


@pytest.mark.parametrize(
    ("kind", "worth"), [("training_curve", 1.0), ("negative_training_curve", -1.0)]
)
def test_a_run_with_a_number_that_is_not_finite_has_failed(kind, worth):
    """A metric, or its parameters alone."""
    broken, last = (segment(n, np.ones((3, 2)), np.ones((3, 2))) for n in (0, 2))
    broken.metrics["policy_loss"][1, 1] = np.inf
    last.metrics[PARAMETERS_FINITE] = np.array([[True, True]] * 2 + [[True, False]])
    total = Accumulator(kind, 3, 4)
    total.add(broken)
    total.add(last)
    np.testing.assert_array_equal(total.result(), [worth, NAN, NAN])


def test_members_are_the_mean_over_normalised_environments():
    # Two environments, three members, two rollouts.
    returns = np.array(
        [
            [[100.0, 300.0], [0.0, 0.0], [50.0, 50.0]],
            [[-50.0, -150.0], [-100.0, -100.0], [NAN, 0.0]],
        ],
        np.float32,
    )
    anchors = np.array([[0.0, 200.0], [-200.0, 0.0]], np.float32)
    found = member_scores(returns, anchors, "training_curve")
    # (200/200 + (-100 + 200)/200) / 2; (0 + 0.5) / 2; a failed run fails its member.
    np.testing.assert_allclose(found, [0.75, 0.25, NAN])
    # Whoever is to harm is worth the same with the other sign.
    harm = member_scores(-returns, anchors, "negative_training_curve")
    np.testing.assert_allclose(harm, -found)


@pytest.mark.parametrize(
    ("given", "names", "expected"),
    [
        (None, ["a"], [[0, 1]]),
        (None, ["a", "b"], None),
        ([200], ["a"], [[0, 200]]),
        ([-50, 4], ["a", "b"], [[0, 50], [0, 4]]),
        ([(10, 20)], ["a"], [[10, 20]]),
        ({"b": 2, "a": (1, 3)}, ["a", "b"], [[1, 3], [0, 2]]),
    ],
)
def test_baselines(given, names, expected):
    found = read_baselines(given, names)
    if expected is None:
        assert found is None
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("given", "names", "words"),
    [
        ([1, 2], ["a"], r"for each environment \(a\), by name"),
        ({"c": 1}, ["a"], "or in their order, got {'c': 1}"),
        ([0.0], ["a"], "a takes a return other than 0"),
        ([NAN], ["a"], "a takes a return"),
    ],
)
def test_bad_baselines(given, names, words):
    with pytest.raises(ConfigError, match=words):
        read_baselines(given, names)


def test_an_evolution_whose_members_all_fail_ends_with_a_sentence():
    failed, fine = [np.nan, np.nan], [np.nan, 1.0]
    with pytest.raises(ConfigError, match="generation 1 failed"):
        check_progress(np.array([failed]))
    check_progress(np.array([fine, failed, failed]))
    with pytest.raises(ConfigError, match="generation 4 failed, and of those"):
        check_progress(np.array([fine, failed, failed, failed]))
    check_progress(np.array([failed, failed, failed, fine]))


@pytest.mark.parametrize("returns", [[0.35, -0.31, 0.02], [-0.5, 0.1, 0.1]])
def test_a_measured_baseline_near_zero_is_no_unit(returns):
    """Catch ends near 0 on the way from -1 to 1: divided by 0.02, it would be all."""
    with pytest.raises(ConfigError, match=r"\bb\b.*spread.*baselines="):
        measured_anchors(np.array([[10.0, 11.0, 12.0], returns]), ("a", "b"))

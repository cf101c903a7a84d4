"""Who is told of an evolution, what, and once only."""

import numpy as np
import pytest

from tests.runner.told import Told

from .conftest import POPULATION, ROLLOUTS, evolve

STEPS = POPULATION * ROLLOUTS * 640  # of a generation


def rows_of(*trackers):
    """The rows that trackers were told, in their order."""
    return [row for told in trackers for _, row in told.rows[3]]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A tracker of two generations, one of the third, and the folder."""
    folder = tmp_path_factory.mktemp("tracked") / "out"
    first, second = Told(), Told()
    evolve(out=folder, generations=2, trackers=[first])
    evolve(out=folder, trackers=[second])
    return first, second, folder


@pytest.mark.slow(optimised=False)
def test_a_generation_is_a_row(told, whole):
    first, second, _ = told
    rows = rows_of(first, second)
    assert [row["generation"] for row in rows] == [1, 2, 3]  # None of them twice.
    for name in ("best", "mean", "std", "best_so_far", "sigma"):
        values = [row[name] for row in rows]
        np.testing.assert_array_equal(values, whole.history[name])
    assert [row["env_steps"] for row in rows] == [STEPS, 2 * STEPS, 3 * STEPS]
    returns = [row["return/CartPole-v1"] for row in rows]
    np.testing.assert_allclose(returns, whole.history["returns"][:, 0])
    assert {kind for kind, _ in first.rows[3]} == {"evolution"} and len(first.rows) == 1
    assert first.status == second.status == "finished"


@pytest.mark.slow(optimised=False)
def test_a_tracker_is_told_what_it_is_and_gets_the_files(told):
    first, second, folder = told
    assert first.run.name == folder.name
    assert (first.run.axis, first.run.kind) == ("generation", "evolution")
    assert first.run.config["evolution"]["population"] == POPULATION
    assert second.has_gone_on
    assert set(second.files) >= {
        *("evolution/learned.yaml", "evolution/policy_loss.npz"),
        *("evolution/manifest.json", "figures/evolution.png"),
        "figures/policy_loss.png",
    }


@pytest.mark.slow(optimised=False)
def test_a_late_tracker_is_told_everything(told):
    *_, folder = told
    late = Told()
    late.name = "late"
    evolve(out=folder, trackers=[late])  # It had finished: nothing is trained.
    assert [row["generation"] for row in rows_of(late)] == [1, 2, 3]

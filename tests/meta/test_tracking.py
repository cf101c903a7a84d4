"""Who is told of an evolution, what, and once only."""

import numpy as np
import pytest

import purerl
from purerl.config import ConfigError
from purerl.runner.rows import read_rows
from tests.runner.told import Told

from .conftest import GENERATIONS, POPULATION, ROLLOUTS, evolve

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
def test_json_lines_are_always_written(told):
    *_, folder = told
    rows = read_rows(folder / "metrics")["evolution"]
    assert [row["generation"] for row in rows] == list(range(1, GENERATIONS + 1))
    assert rows[0]["failed"] == 0 and rows[0]["seconds"] > 0


@pytest.mark.slow(optimised=False)
def test_a_late_tracker_is_told_everything_and_lost_lines_come_back(told):
    *_, folder = told
    lines = folder / "metrics" / "rows.jsonl"
    before = lines.read_text()
    lines.unlink()
    late = Told()
    late.name = "late"
    evolve(out=folder, trackers=[late])  # It had finished: nothing is trained.
    assert [row["generation"] for row in rows_of(late)] == [1, 2, 3]
    assert lines.read_text() == before


@pytest.mark.slow(optimised=False)
def test_what_a_tracker_has_missed_is_sent_afterwards(tmp_path, told):
    class Dies(Told):
        def log(self, member, step, row):
            if row["generation"] == 2:
                raise OSError("the server has stopped")
            super().log(member, step, row)

    first, second = Dies(), Told()
    evolve(out=tmp_path / "out", trackers=[first])
    assert purerl.track(tmp_path / "out", [second])
    wanted, *_ = told
    rows = rows_of(first, second)
    assert [row["generation"] for row in rows] == [1, 2, 3]
    assert [row["best"] for row in rows[:2]] == [row["best"] for row in rows_of(wanted)]
    assert second.has_gone_on and second.status == "finished"
    assert second.run.config == first.run.config
    assert set(second.files) == set(wanted.files)


def test_a_tracker_that_cannot_begin_stops_the_evolution_before_it_trains(tmp_path):
    class Broken(Told):
        def begin(self, run):
            raise OSError("no room")

    with pytest.raises(ConfigError, match="tracker 'told' cannot begin"):
        evolve(out=tmp_path / "out", trackers=[Broken()])
    assert not list((tmp_path / "out" / "checkpoints").iterdir())

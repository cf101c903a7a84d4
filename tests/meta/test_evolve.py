"""Evolution as a whole: common random numbers, failures, learning, artifacts."""

import jax
import numpy as np
import pytest

import purerl
from purerl.meta import training as runs
from purerl.report.page import page_of
from purerl.storage import folders
from tests.helpers import assert_same_bits, tiny_config

from .conftest import evolve, outcome


def evolve_toy(**changes):
    """Action 1 pays where it sees +1: a step size that is too small learns nothing."""
    toy = {"env": "probe/action-observation", "entropy_coef": 0.0}
    rate = {"learning_rate": 1e-5, "anneal_learning_rate": False}
    options = {"population": 8, **changes}
    return evolve(tiny_config(**toy, **rate), "learning_rate", **options)


def test_keys_of_rollouts_generations_and_strategy_never_meet():
    key = jax.random.key(0)
    keys = [runs.rollout_keys(key, g, 3) for g in range(4)]
    keys += [jax.numpy.stack(runs.strategy_keys(key, g)) for g in range(4)]
    keys += [runs.baseline_keys(key, 3)]
    # What the strategy begins with is split for its first population; what is split is
    # folded into for the generations.
    keys += [jax.random.split(runs.start_key(key))]
    keys += [jax.vmap(lambda n: jax.random.fold_in(key, n))(np.arange(5))]
    data = np.concatenate([np.asarray(jax.random.key_data(k)) for k in keys])
    assert len({tuple(row) for row in data.tolist()}) == len(data)


@pytest.mark.slow
def test_evolution_finds_a_step_size_that_learns():
    strategy = "open-es(sigma=1.0, learning_rate=1.0, beta1=0.9)"
    result = evolve_toy(strategy=strategy, generations=6, population=8)
    mean = result.history["mean"]
    assert mean[-1] > mean[0] + 0.1
    assert result.learned.learning_rate > 1e-4  # ten times where it began
    assert result.best_fitness == result.history["fitness"].max()
    fitness = result.history["fitness"]
    assert result.best_generation == fitness.max(1).argmax()
    so_far = np.maximum.accumulate(fitness.max(1))
    np.testing.assert_array_equal(result.history["best_so_far"], so_far)


def test_members_that_diverge_are_counted_and_rank_worst():
    # A step size of e^(60 z) of the start: beyond floats for some of every pair.
    result = evolve_toy(strategy="open-es(sigma=60, learning_rate=1)", generations=1)
    failed = np.isnan(result.history["fitness"][0])
    assert 0 < failed.sum() < 8
    assert result.history["failed"][0] == failed.sum()
    assert np.isfinite(result.history["mean"]).all()
    # Larger steps are those that fail: the mean moves away from them.
    assert result.vector[0] < -0.5
    assert np.isfinite(result.best_fitness)


def test_generations_before_one_that_fails_are_kept(whole, tmp_path, monkeypatch):
    def fail_in_the_second(fitness):
        if len(fitness) == 2:
            raise purerl.ConfigError("every member of generation 2 failed.")

    with monkeypatch.context() as patch:
        patch.setattr("purerl.meta.evolve.check_progress", fail_in_the_second)
        with pytest.raises(purerl.ConfigError, match="every member of generation 2"):
            evolve(out=tmp_path)
    assert purerl.load_evolution(tmp_path).done == 1
    rest = evolve(out=tmp_path)
    assert rest.summary["generations_run"] == 2
    assert_same_bits(outcome(rest), outcome(whole))
    assert_same_bits(outcome(purerl.load_evolution(tmp_path)), outcome(whole))


def test_costs_are_those_of_all_generations(tmp_path):
    def costs(folder):
        found = folders.read_summary(folder)
        return {name: found[name] for name in found if name != "generations_run"}

    runs = 6 * 2  # members and rollouts of a generation
    first = evolve(out=tmp_path, generations=1)
    assert first.summary["agents"] == runs
    assert costs(tmp_path).items() <= first.summary.items()
    more = evolve(out=tmp_path, generations=3)
    assert more.summary["agents"] == 3 * runs and more.summary["generations_run"] == 2
    assert more.summary["env_steps"] == 3 * first.summary["env_steps"]
    assert more.summary["train_seconds"] == round(more.history["seconds"].sum(), 2)
    after = costs(tmp_path)
    compiled = [x.summary["compile_seconds"] for x in (first, more)]
    assert after["compile_seconds"] == pytest.approx(sum(compiled))
    again = evolve(out=tmp_path, generations=3)
    assert again.summary["generations_run"] == 0
    assert again.summary["agents"] == 3 * runs and costs(tmp_path) == after
    assert purerl.load_evolution(tmp_path).summary["agents"] == 3 * runs
    page = page_of(again, tmp_path / "page.html").read_text()
    assert f"<td>agents</td><td><code>{3 * runs}</code>" in page


@pytest.mark.slow
def test_several_environments_by_their_measured_baselines():
    constant = {"env": "probe/constant-reward", "num_envs": 4}
    settings = {"generations": 1, "population": 2}
    near_zero = "action-observation .* not clear of zero"
    with pytest.raises(purerl.ConfigError, match=near_zero):
        evolve_toy(environments=[{}, constant], **settings)
    result = evolve_toy(environments=[{"env": "CartPole-v1"}, constant], **settings)
    anchors = result._state.anchors
    assert anchors.shape == (2, 2)
    # Every episode of this one pays 1, whoever plays it.
    np.testing.assert_array_equal(anchors[1], [0.0, 1.0])
    returns = result.history["returns"][0]
    assert returns[1] == 1.0
    expected = (returns[0] / anchors[0, 1] + 1.0) / 2
    assert result.history["mean"][0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_what_is_learned_is_for_the_only_environment():
    changes = {"env": "probe/constant-reward", "num_steps": 8}
    result = evolve_toy(environments=changes, generations=1, population=2)
    assert result.learned.env == "probe/constant-reward"
    assert result.learned.num_steps == 8


def test_what_a_result_refuses():
    result = evolve_toy(generations=1)
    with pytest.raises(purerl.ConfigError, match="not one loss was evolved"):
        _ = result.loss
    with pytest.raises(purerl.ConfigError, match="none was given"):
        result.snapshots()

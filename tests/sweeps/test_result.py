"""What a sweep's result says of members whose arrays are written here."""

import numpy as np
import pytest

from purerl.config import ConfigError
from purerl.losses import ClipDrift
from purerl.report.sweep_data import read_scores, rows
from purerl.space.axes import expand
from purerl.sweeps.groups import member_id
from purerl.sweeps.result import SweepResult
from purerl.sweeps.store import MemberStore
from tests.helpers import tiny_config


def result_of(axes, seeds, design="grid", **arrays):
    """A result whose members have these arrays, `[points * seeds, ...]` each."""
    points = expand(axes, design)
    ids = tuple(member_id(point, seed) for point in points.points for seed in seeds)
    stored = {
        "diverged_at": np.full(len(ids), -1),
        "train/env_steps": np.full((len(ids), 1), 640),
        "train/episode_return": np.zeros((len(ids), 1), np.float32),
    }
    named = {name.replace("__", "/"): np.asarray(x) for name, x in arrays.items()}
    store = MemberStore()
    store.add(ids, {**stored, **named})
    return SweepResult(tiny_config(), points, seeds, store)


def test_a_seed_is_selected_by_all_of_its_digits():
    seeds = (20240101, 20240102, 20240103)
    returns = np.array([[1.0], [2.0], [3.0]], np.float32)
    result = result_of({"gamma": [0.9]}, seeds, train__episode_return=returns)
    for number, seed in enumerate(seeds):
        found = result.sel(seed=seed)
        assert int(found["seed"]) == seed
        assert found["episode_return"].item() == number + 1
    with pytest.raises(ConfigError, match="has no seed=20240104"):
        result.sel(seed=20240104)


def test_a_fraction_is_selected_by_the_nearest_value():
    close = 1e-3 * (1 + 5e-7)
    returns = np.array([[1.0], [2.0]], np.float32)
    axes = {"learning_rate": [1e-3, close]}
    result = result_of(axes, (0,), train__episode_return=returns)
    assert result.sel(learning_rate=1e-3)["episode_return"].item() == 1
    assert result.sel(learning_rate=close)["episode_return"].item() == 2
    rounded = float(np.float32(1e-3))
    assert result.sel(learning_rate=rounded)["episode_return"].item() == 1


def test_matching_points_of_a_zip_design_stay_along_it():
    axes = {"learning_rate": [1e-3, 2e-3, 2e-3], "gamma": [0.9, 0.9, 0.99]}
    returns = np.arange(6, dtype=np.float32)[:, None]
    result = result_of(axes, (7, 8), "zip", train__episode_return=returns)
    found = result.sel(learning_rate=2e-3, seed=8)["episode_return"]
    assert found.dims == ("point", "segment") and found.values.ravel().tolist() == [
        3,
        5,
    ]
    assert result.sel({"gamma": 0.99}, seed=7)["episode_return"].item() == 4
    with pytest.raises(ConfigError, match="point must map names of fields to values"):
        result.sel("first")


@pytest.mark.parametrize("design", ["grid", "zip"])
def test_a_metric_that_is_called_like_an_axis_has_another_name(design):
    axes = {"policy_loss": [ClipDrift(0.1), ClipDrift(0.3)]}
    losses = np.array([[0.5], [0.25]], np.float32)
    result = result_of(axes, (0,), design, train__policy_loss=losses)
    dataset = result.dataset
    assert dataset["train_policy_loss"].values.ravel().tolist() == [0.5, 0.25]
    names = [f"ClipDrift(clip_eps={eps})" for eps in (0.1, 0.3)]
    assert dataset["policy_loss"].values.tolist() == names
    chosen = result.sel(policy_loss=ClipDrift(0.3))
    assert chosen["train_policy_loss"].values.ravel().tolist() == [0.25]
    # Asked for as a metric, it is the metric.
    assert result.scores("policy_loss").values.ravel().tolist() == [0.5, 0.25]
    assert result.best("policy_loss", mode="min").score == 0.25


def test_a_return_that_is_not_a_number_is_the_worst_and_not_left_out():
    nan = np.nan
    played = [[[9.0, 9.0], [nan, 500.0]], [[9.0, 9.0], [450.0, 450.0]]]
    arrays = {
        "evaluation__episode_return": np.array(played, np.float32),
        "evaluation__episode_length": np.ones((2, 2, 2), np.int32),
        "evaluation__env_steps": np.array([[320, 640], [320, 640]]),
    }
    result = result_of({"learning_rate": [1e-3, 1e-4]}, (0,), **arrays)
    scores = result.scores().values.ravel()
    assert np.isnan(scores[0]) and scores[1] == 450.0
    assert result.best().point == {"learning_rate": 1e-4}
    # Tables, pictures and pages say the same.
    shown = read_scores(result.dataset)
    np.testing.assert_array_equal(shown.scores.ravel(), scores)
    assert shown.points[shown.ranking()[0]] == {"learning_rate": 1e-4}
    curve, _ = rows(result.dataset)
    np.testing.assert_array_equal(curve.reshape(2, 2), [[9.0, nan], [9.0, 450.0]])


def test_a_member_that_diverged_is_worth_what_the_worst_returned_on_its_way():
    """Where all others reach the most that can be, it is not worth as much as they."""
    nan = np.nan
    on_the_way = [[20, 500], [30, 500], [0, nan], [40, 498], [20, 498], [30, 498]]
    on_the_way[2][0] = -1e30  # Before a run fails, it may return anything.
    returns = np.array(on_the_way, np.float32)
    diverged = np.array([-1, -1, 1, -1, -1, -1])
    arrays = {"train__episode_return": returns, "diverged_at": diverged}
    arrays["train__env_steps"] = np.full((6, 2), [320, 640])
    axes = {"learning_rate": [1e-2, 1e-3]}
    result = result_of(axes, (0, 1, 2), **arrays)
    assert result.best().point == {"learning_rate": 1e-3}
    assert result.best().score == 498.0
    worst = result.best(mode="min")  # The other way round it is the highest.
    assert worst.point == {"learning_rate": 1e-3} and worst.score == 498.0
    shown = read_scores(result.dataset)
    np.testing.assert_array_equal(shown.filled[0], [500.0, 500.0, 20.0])
    assert shown.points[shown.ranking()[0]] == {"learning_rate": 1e-3}
    # Of a metric that is no return the worst score is all that is known.
    steps = read_scores(result.dataset, "env_steps")
    assert np.isnan(steps.lowest).all()


def test_trackers_know_members_by_points_and_seeds_in_their_order():
    def checksum(rates, seeds):
        return result_of({"learning_rate": rates}, seeds).told().members

    known = checksum([1e-2, 1e-3], (0, 1))
    assert checksum([1e-2, 1e-3], (0, 1)) == known
    assert checksum([1e-3, 1e-2], (0, 1)) != known != checksum([1e-2, 1e-3], (0, 2))


def test_no_two_members_have_one_name_in_trackers():
    """TensorBoard has a folder of each name; names round the values of axes."""
    result = result_of({"learning_rate": [0.1234567, 0.1234568, 0.5]}, (0, 1))
    names = [result._member(number).name for number in range(6)]
    assert names[:2] == [f"learning_rate=0.1235, seed={n}, point=0" for n in (0, 1)]
    assert names[4:] == ["learning_rate=0.5, seed=0", "learning_rate=0.5, seed=1"]
    assert len(set(names)) == 6


def test_of_equal_means_the_point_with_all_scores_comes_first():
    arrays = {"diverged_at": np.array([-1, 0, -1, -1])}
    arrays["train__episode_return"] = np.full((4, 1), 5.0, np.float32)
    result = result_of({"learning_rate": [1e-2, 1e-3]}, (0, 1), **arrays)
    assert result.best().point == {"learning_rate": 1e-3}
    shown = read_scores(result.dataset)
    assert shown.points[shown.ranking()[0]] == {"learning_rate": 1e-3}


def test_members_with_fewer_episodes_and_evaluations_have_their_own_means():
    """Padding counts neither as an episode nor as the last evaluation."""
    points, store = expand({"learning_rate": [1e-3, 1e-4]}), MemberStore()
    for point, shape in zip(points.points, [(2, 3), (1, 2)], strict=True):
        returns = np.arange(np.prod(shape), dtype=np.float32).reshape(1, *shape)
        arrays = {
            "diverged_at": np.array([-1]),
            "train/env_steps": np.array([[640]]),
            "train/episode_return": np.zeros((1, 1), np.float32),
            "evaluation/episode_return": returns,
            "evaluation/episode_length": np.ones((1, *shape), np.int32),
            "evaluation/env_steps": np.arange(1, shape[0] + 1)[None] * 320,
        }
        store.add((member_id(point, 0),), arrays)
    result = SweepResult(tiny_config(), points, (0,), store)
    assert result.scores().values.ravel().tolist() == [4.0, 0.5]
    assert read_scores(result.dataset).scores.ravel().tolist() == [4.0, 0.5]


@pytest.mark.parametrize("design", ["grid", "zip"])
def test_the_best_is_that_of_one_environment(design):
    envs, rates = ["CartPole-v1", "Catch-bsuite"], [1e-2, 1e-3]
    axes = {"env": envs, "learning_rate": rates}
    if design == "zip":
        axes = {"env": [envs[0], envs[0], envs[1], envs[1]], "learning_rate": 2 * rates}
    returns = np.array([[20.0, 9.0], [30.0, 10.0], [1.0, 1.0], [0.5, np.nan]])
    arrays = {"diverged_at": np.array([-1] * 7 + [0])}
    arrays["train__episode_return"] = returns.reshape(-1, 1).astype(np.float32)
    result = result_of(axes, (0, 1), design, **arrays)
    with pytest.raises(ConfigError, match=r"2 environments \(CartPole-v1, Catch-b"):
        result.best()
    with pytest.raises(ConfigError, match=r"best\(env='CartPole-v1'\)"):
        result.best("env_steps")
    first, second = (result.best(env=env) for env in envs)
    assert first.point == {"env": "CartPole-v1", "learning_rate": 1e-3}
    assert (first.score, second.score) == (20.0, 1.0)
    assert second.point == {"env": "Catch-bsuite", "learning_rate": 1e-2}
    assert second.config.env == "Catch-bsuite"
    # What failed is worth the worst of its environment.
    assert result.best(env=envs[1], mode="min").score == 0.5 + 0.25
    with pytest.raises(ConfigError, match="has no env='Pong'"):
        result.best(env="Pong")


def test_one_environment_needs_no_choice():
    returns = np.array([[1.0], [2.0]], np.float32)
    # Also where axes change the task and not its name.
    axes = {"env": ["CartPole-v1"], "env_params.length": [0.5, 1.0]}
    result = result_of(axes, (0,), train__episode_return=returns)
    assert result.best() == result.best(env="CartPole-v1")
    assert result.best().point == {"env": "CartPole-v1", "env_params.length": 1.0}
    result = result_of({"gamma": [0.9, 0.99]}, (0,), train__episode_return=returns)
    with pytest.raises(ConfigError, match="the axes of the sweep has no"):
        result.best(env="CartPole-v1")

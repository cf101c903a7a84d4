import json
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import purerl
from purerl.execution import programs
from purerl.execution.curves import Curves, Segment, first_bad_update
from purerl.scale import hosts
from purerl.sweeps import store
from purerl.sweeps.groups import written
from purerl.sweeps.plan import SweepOptions
from purerl.sweeps.store import compare, describe
from tests.helpers import tiny_config

from .conftest import LANES, RATES, SEGMENT, assert_equal, outline_of, run_sweep


@pytest.mark.slow
def test_compilations_are_the_static_groups(monkeypatch):
    calls = []
    for name in ("begin_to_compile", "compile_for"):
        compile_one = getattr(programs, name)
        count = lambda *args, f=compile_one: calls.append(1) or f(*args)  # noqa: E731
        monkeypatch.setattr(programs, name, count)
    axes = {"learning_rate": [1e-3, 1e-2], "num_envs": [2, 4]}
    axes["algorithm"] = ["ppo", "vpg"]
    result = run_sweep(tiny_config(num_evaluations=1), axes, seeds=2)
    assert result.summary["groups"] == result.summary["compilations"] == 4
    assert len(calls) == 2 * 4  # an `init` and an `advance` each
    assert result.finished and result.summary["members"] == 16
    data = result.dataset
    names = ("learning_rate", "num_envs", "algorithm")
    assert data["episode_return"].dims == (*names, "seed", "segment")
    assert list(data["algorithm"].values) == ["ppo", "vpg"]
    # Four environments make half as many updates; the rest of the rows is NaN.
    rows = data["env_steps"].notnull().sum("segment")
    assert (rows.sel(num_envs=2) == 5).all() and (rows.sel(num_envs=4) == 3).all()
    assert float(data["env_steps"].max()) == 640
    # A metric that only one algorithm has is NaN for the other.
    clipped = result.sel(algorithm="vpg")["clip_fraction"]
    assert clipped.isnull().all()
    assert result.sel(algorithm="ppo")["clip_fraction"].notnull().any()
    best = result.best()
    assert best.config.num_envs == best.point["num_envs"]
    assert best.score == result.scores().mean("seed").max()


@pytest.mark.slow(optimised=False)
def test_a_diverged_member_harms_no_other(tiny, whole):
    rates = [*RATES, 1e38]
    result = run_sweep(tiny, {"learning_rate": rates}, seeds=5)
    for seed in range(5):
        bad = result.sel(learning_rate=1e38, seed=seed)
        first = int(bad["diverged_at"])
        assert 0 <= first < 20
        row = first // SEGMENT
        # Frozen: after the segment in which it happened there is nothing.
        assert bad["policy_loss"][row + 1 :].isnull().all()
        assert bad["episodes"][row + 1 :].isnull().all()
        assert bad["env_steps"].notnull().all()
        late = bad["evaluation_env_steps"] > 32 * (first + 1)
        assert bad["evaluation_return"].where(late, drop=True).isnull().all()
        assert np.isnan(result.scores().sel(learning_rate=1e38, seed=seed))
    for name in whole.names:
        others = result[name].isel(learning_rate=slice(3)).values
        np.testing.assert_array_equal(others, whole[name].values, err_msg=name)
    assert result.best().point["learning_rate"] in RATES
    frame = result.to_dataframe()
    assert (frame["diverged_at"] >= 0).sum() == 5


def test_the_first_bad_update_is_found():
    metrics = {
        "episodes": np.array([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]]),
        "episode_return": np.array(
            [[1, np.nan, 1, 1], [np.nan] * 4, [1, 1, np.nan, 1]], np.float32
        ),
        "loss": np.array([[1, 1, 1, np.inf], [1, 1, 1, 1], [1] * 4], np.float32),
    }
    np.testing.assert_array_equal(first_bad_update(metrics), [3, -1, 2])
    # Losses of a warm-up are undefined, which is not bad.
    warm = metrics | {"gradient_steps": np.array([[0, 0, 0, 0], [0] * 4, [1] * 4])}
    np.testing.assert_array_equal(first_bad_update(warm), [-1, -1, 2])


def test_equal_draws_are_trained_once(tiny, whole):
    axes = {"learning_rate": purerl.choice(RATES[:2])}
    drawn = run_sweep(tiny, axes, design="random", num_points=5, seeds=2)
    assert drawn.summary["members"] == drawn.summary["trained_members"] == 4
    assert drawn.finished
    rates = drawn["episode_return"]["learning_rate"].values
    assert sorted(set(rates)) == RATES[:2]
    for point, rate in enumerate(rates):
        expected = whole.sel(learning_rate=rate)["policy_loss"].values[:2]
        np.testing.assert_array_equal(drawn["policy_loss"].values[point], expected)


@pytest.mark.slow(optimised=False)
def test_results_in_a_folder_are_what_is_in_memory(tiny, whole, tmp_path):
    out = tmp_path / "sweep"
    run_sweep(tiny, {"learning_rate": RATES}, seeds=5, out=out, keep_states=True)
    loaded = purerl.load_sweep(out)
    assert_equal(loaded, whole)
    assert loaded.config == tiny and loaded.seeds == (0, 1, 2, 3, 4)
    assert json.loads(loaded.dataset.attrs["axes"]) == ["learning_rate"]
    # A kept agent acts as the one that `run` trains.
    policy = loaded.policy({"learning_rate": 1e-3}, seed=2)
    widths = {"lanes": LANES, "segment_updates": SEGMENT, "progress": False}
    run = purerl.run(tiny.replace(learning_rate=RATES[0]), seeds=[2], **widths)
    obs = jax.random.normal(jax.random.key(0), (64, 4))
    alone = run.policy(2)(obs)
    assert np.mean(np.asarray(policy(obs) == alone)) > 0.95
    with pytest.raises(purerl.ConfigError, match="no finished member"):
        loaded.state({"learning_rate": 1e-3}, seed=9)
    with pytest.raises(purerl.ConfigError, match="kept no states"):
        whole.state({"learning_rate": 1e-3}, seed=2)


def test_more_updates_per_segment_than_a_run_has_are_a_whole_run(tiny):
    """The folder of such a sweep is its own, in every group."""
    wide = tiny.replace(num_minibatches=1)
    axes = {"num_envs": [2, wide.total_timesteps // (2 * wide.num_steps)]}
    outline, asked = (
        outline_of(wide, axes, 2, segment_updates=length) for length in (4, 3)
    )
    assert [group.length for group in outline.groups] == [4, 2]
    points = [written(point) for point in outline.design.points]
    spec, other = (
        describe(one, points, SweepOptions(wide, axes, segment_updates=length))
        for one, length in ((outline, 4), (asked, 3))
    )
    spec = json.loads(json.dumps(spec))
    assert compare(spec, spec) == []
    assert compare(spec, other) == ["segment_updates is 4 there and 3 here"]


def test_what_a_folder_has_is_not_held_in_memory_too(tiny, tmp_path, monkeypatch):
    add = store.MemberStore.add

    def add_file(self, ids, chunk):
        assert isinstance(chunk, Path)
        add(self, ids, chunk)

    monkeypatch.setattr(store.MemberStore, "add", add_file)
    result = run_sweep(tiny, {"learning_rate": RATES}, seeds=2, out=tmp_path)
    assert result.finished


def test_a_process_compares_its_own_folder_like_the_first(tiny, tmp_path, monkeypatch):
    run_sweep(tiny, {"learning_rate": RATES[:2]}, out=tmp_path)
    monkeypatch.setattr(hosts, "index", lambda: 1)
    with pytest.raises(purerl.ConfigError, match="holds another sweep"):
        run_sweep(tiny.replace(gamma=0.9), {"learning_rate": RATES[:2]}, out=tmp_path)
    with pytest.raises(purerl.ConfigError, match="Add --extend"):
        run_sweep(tiny, {"learning_rate": RATES}, out=tmp_path)


def test_a_changed_sweep_in_a_folder_is_refused_with_the_difference(tiny, tmp_path):
    out = tmp_path / "sweep"
    axes = {"learning_rate": RATES[:2]}
    run_sweep(tiny, axes, seeds=2, out=out)
    turned, more = {"learning_rate": RATES[1::-1]}, {"learning_rate": RATES}
    for config, changed, options, words in (
        (tiny.replace(gamma=0.9), axes, {}, "gamma is 0.99 there and 0.9 here"),
        (tiny, {"learning_rate": RATES[:1]}, {}, r"2 points there and 1 here \(0 new"),
        (tiny, more, {}, r"3 here \(1 new.*--extend"),
        (tiny, turned, {}, r"2 here \(0 new.*in this order"),
        (tiny, axes, {"lanes": 4}, "lanes is 2 there and 4 here"),
    ):
        with pytest.raises(purerl.ConfigError, match=words):
            run_sweep(config, changed, **{"seeds": 2, "out": out, **options})
    # Less than there is cannot be an extension.
    with pytest.raises(purerl.ConfigError, match="Give another folder"):
        run_sweep(tiny, axes, seeds=1, out=out, extend=True)


def test_a_folder_in_which_nothing_could_begin_is_begun_otherwise(tiny, tmp_path):
    axes = {"learning_rate": RATES[:2]}
    with pytest.raises(purerl.ConfigError, match="memory_limit"):
        run_sweep(tiny, axes, lanes=4, memory_limit="3KB", out=tmp_path / "out")
    assert run_sweep(tiny, axes, lanes=2, out=tmp_path / "out").finished


def test_selecting_what_is_not_there(whole):
    with pytest.raises(purerl.ConfigError, match=r"no learning_rate=0.5; it has 0.001"):
        whole.sel(learning_rate=0.5)
    with pytest.raises(purerl.ConfigError, match="no field 'gama'"):
        whole.sel(gama=0.5)
    with pytest.raises(purerl.ConfigError, match="Did you mean 'episode_return'"):
        whole["episode_returns"]
    with pytest.raises(purerl.ConfigError, match="mode must be max or min"):
        whole.best(mode="most")
    assert whole.sel(learning_rate=0.003 * (1 + 1e-9), seed=1).sizes["segment"] == 5


def test_the_score_of_a_loss_is_its_last_row(whole):
    losses = whole.scores("policy_loss").values
    np.testing.assert_array_equal(losses, whole["policy_loss"].values[..., -1])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lanes": "best"}, "lanes must be a positive"),
        ({"extend": 8}, "extend must be True or False, got 8"),
        ({"memory_limit": "10kB"}, "a block of 2 lanes needs .* use fewer lanes"),
    ],
)
def test_bad_options_get_a_sentence(tiny, options, words):
    with pytest.raises(purerl.ConfigError, match=words):
        run_sweep(tiny, {"learning_rate": RATES}, **options)


def test_rows_of_frozen_members_are_unknown_and_counts_stay_exact():
    curves = Curves(SimpleNamespace(evaluate_after=(8,)), 2)
    curves.diverged_at[0] = 2
    ones = np.ones((2, 4), np.float32)
    odd = 2**24 + 1  # More than float32 holds.
    metrics = {
        "env_steps": np.array([[5, 6, 7, 8]] * 2),
        "episodes": np.ones((2, 4), int) * np.array([0, 0, 0, odd]),
        "episode_return": ones * np.array([[1.0], [3.0]], np.float32),
        "episode_length": ones,
        "loss": ones,
    }
    evaluation = {
        "env_steps": np.full((2, 1), 8),
        "episode_return": np.ones((2, 1, 3), np.float32),
    }
    assert curves.add(Segment(4, 4, metrics, evaluation)) == 3.0
    np.testing.assert_array_equal(curves.train["loss"][:, 0], [np.nan, 1.0])
    np.testing.assert_array_equal(curves.train["env_steps"][:, 0], [8, 8])
    np.testing.assert_array_equal(curves.train["episodes"][:, 0], [np.nan, odd])
    assert curves.train["episode_return"][0].dtype == np.float32
    returns = curves.evaluation["episode_return"][:, 0]
    assert np.isnan(returns[0]).all() and (returns[1] == 1).all()
    np.testing.assert_array_equal(curves.diverged_at, [2, -1])

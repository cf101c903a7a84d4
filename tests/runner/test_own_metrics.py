"""Metrics of one's own, `config.metrics`: in every tool, its folder and its command."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import cli
from purerl.execution.curves import OWN, first_bad_update, reduce_segment
from purerl.hooks import with_metrics
from purerl.metrics import BATCH
from purerl.types import Algorithm
from tests.contracts.test_algorithms import small
from tests.helpers import StopAfter, assert_same_bits, tiny_config

HERE = __name__
RATE = purerl.loguniform(1e-4, 1e-2)
QUIET = {"segment_updates": 5, "lanes": 2, "progress": False}


def earned(state, batch, metrics):
    """Rewards of an update: CartPole pays 1 in every step."""
    return batch.reward.sum()


def parity(state, batch, metrics):
    """Nothing is known in every other update."""
    even = state.update % 2 == 0
    return {"odd": jnp.where(even, jnp.nan, 1.0), "twice": 2 * metrics["entropy"]}


def entropy(state, batch, metrics):
    return 0.0


def segment(state, batch, metrics):
    """Has the name of an axis of sweeps."""
    return metrics["entropy"]


def wide(state, batch, metrics):
    return batch.reward


def words(state, batch, metrics):
    return "none"


def broken(state, batch, metrics):
    return batch.no_such_field


def all_earned(curves):
    return curves.train["earned"].sum()


@pytest.fixture(scope="module")
def config():
    return tiny_config(metrics=(earned, f"{HERE}:parity"), num_evaluations=0)


@pytest.fixture(scope="module")
def whole(config):
    return purerl.run(config, seeds=2, **QUIET)


def test_a_run_reports_them_and_is_otherwise_as_without(config, whole):
    assert (whole.metrics["earned"] == 32).all()
    # Updates 1, 3 and 5 of the first five: the mean of what is known.
    assert (whole.metrics["parity.odd"] == 1).all()
    np.testing.assert_allclose(
        whole.metrics["parity.twice"], 2 * whole.metrics["entropy"], rtol=1e-6
    )
    assert (whole.diverged_at == -1).all()
    plain = purerl.run(config.replace(metrics=()), seeds=2, **QUIET)
    assert_same_bits(whole.state, plain.state)
    assert set(whole.metrics) - set(plain.metrics) == {
        "earned",
        "parity.odd",
        "parity.twice",
    }


def test_unknown_numbers_of_ones_own_are_no_divergence():
    metrics = {
        "episodes": np.ones((1, 3), int),
        f"{OWN}half": np.array([[np.nan, np.inf, 4.0]]),
        f"{OWN}none": np.full((1, 3), np.nan),
    }
    assert first_bad_update(metrics).tolist() == [-1]
    row = reduce_segment(metrics, {})
    assert row["half"] == 4 and np.isnan(row["none"])


def test_a_resumed_run_is_the_whole_one_with_the_same_metrics(
    config, whole, tmp_path, capsys
):
    out = tmp_path / "run"
    purerl.run(config, seeds=2, out=out, trackers=[StopAfter(5)], **QUIET)
    named = config.replace(metrics=(f"{HERE}:earned", parity))  # the same functions
    assert purerl.load(out).config.metrics == (f"{HERE}:earned", f"{HERE}:parity")
    resumed = purerl.run(named, seeds=2, out=out, resume=True, **QUIET)
    assert resumed.finished
    assert_same_bits(resumed.state, whole.state)
    assert_same_bits(resumed.metrics["parity.twice"], whole.metrics["parity.twice"])
    with pytest.raises(purerl.ConfigError, match="metrics"):
        plain = config.replace(metrics=())
        purerl.run(plain, seeds=2, out=out, resume=True, **QUIET)


LAB = """
def mean_action(state, batch, metrics):
    return batch.action.mean()
"""


def test_a_command_takes_them_and_a_folder_needs_no_module(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "lab_of_metrics.py").write_text(LAB)
    monkeypatch.chdir(tmp_path)
    words = "train --import lab_of_metrics --metric lab_of_metrics:mean_action"
    words += " --total-timesteps 256 --num-envs 4 --num-steps 16 --seeds 2 --out a"
    words += " --num-minibatches 1 --hidden-sizes 4 --num-evaluations 0"
    assert cli.main(words.split()) == 0
    assert sys.modules.pop("lab_of_metrics")
    assert purerl.load("a").metrics["mean_action"].shape == (2, 4)
    assert purerl.load_run("a").policy(0) is not None
    assert cli.main("evaluate a --episodes 2".split()) == 0
    assert "lab_of_metrics" not in sys.modules
    capsys.readouterr()
    assert cli.main("train --resume a --extend 512".split()) == 2
    said = capsys.readouterr().err
    assert "metrics names lab_of_metrics:mean_action" in said
    assert "--import lab_of_metrics" in said
    words = "train --resume a --extend 512 --import lab_of_metrics"
    assert cli.main(words.split()) == 0
    assert purerl.load("a").metrics["mean_action"].shape == (2, 8)
    assert cli.main(["report", "a", "--out", "page.html"]) == 0
    assert "Own metrics" in (tmp_path / "page.html").read_text()


def test_sweeps_keep_them(config, tmp_path):
    axes = {"learning_rate": [1e-3, 1e-2]}
    swept = purerl.sweep(config, axes, seeds=2, out=tmp_path / "s", **QUIET)
    assert (swept["earned"].values == 32).all()
    assert swept["parity.odd"].shape == (2, 2, 4)
    again = purerl.load(tmp_path / "s")
    np.testing.assert_array_equal(again["earned"].values, swept["earned"].values)


def test_searches_can_seek_them(config):
    """An objective of one's own reads them, beside the metrics of the algorithm."""
    quiet = {"fitness": all_earned, "progress": False}
    evolved = purerl.evolve(
        config, "learning_rate", population=4, generations=1, **quiet
    )
    assert evolved.best_fitness == 640


def test_studies_and_comparisons_keep_them(config, tmp_path):
    # Of segments as long as those of the sweep, which are of the same program.
    options = {"trials": 2, "seeds": 2, "reports": 4, "holdout_seeds": 0}
    options |= {"lanes": 2, "progress": False}
    out = tmp_path / "tuned"
    tuned = purerl.tune(config, {"learning_rate": RATE}, out=out, **options)
    first = tuned.rows[0].metrics
    assert set(first) == {"earned", "parity.odd", "parity.twice"}
    assert first["earned"] == 32 and first["parity.odd"] == 1
    assert purerl.load(out).rows[0].metrics == first

    variants = {"a": {}, "b": {"learning_rate": 1e-3}}
    asked = {"seeds": 2, "measures": ("parity.odd", "earned"), **QUIET}
    compared = purerl.compare(config, variants, **asked)
    assert {row.mean for row in compared.rows if row.measure == "earned"} == {32}
    assert "earned: an own metric" in str(compared.table().caption)
    with pytest.raises(purerl.ConfigError, match=r"measures must be one of .*parity"):
        purerl.compare(config, variants, **{**asked, "measures": ("earnt",)})


@pytest.mark.parametrize(
    ("metrics", "sentence"),
    [
        (("no_lab:x",), r"metrics names no_lab:x: the module 'no_lab' has not been"),
        ((f"{HERE}:nothing",), f"metrics: cannot find {HERE}:nothing"),
        ((f"{HERE}:RATE",), "metrics: .*RATE is no function"),
        ((lambda s, b, m: 0.0,), "metrics must be functions of your own that have a"),
        (("earned",), r"import paths, such as \(\"lab:mean_action\",\), got"),
        (earned, "metrics must be functions of your own"),
        ((entropy,), "'entropy' is reported already"),
        ((segment,), "'segment' is reported already"),  # An axis of sweeps.
        ((earned, f"{HERE}:earned"), "'earned' is reported already"),
        ((wide,), r"wide must be one number, got shape"),
        ((words,), "words must be one number, got str"),
        ((broken,), "broken must be a function .* failed with AttributeError"),
    ],
)
def test_functions_that_measure_nothing_are_refused(metrics, sentence):
    with pytest.raises(purerl.ConfigError, match=sentence):
        purerl.make_train(tiny_config().replace(metrics=metrics))


def test_a_function_that_no_file_can_hold_is_refused_where_there_is_one(tmp_path):
    def inner(state, batch, metrics):
        return 1.0

    config = tiny_config(metrics=(inner,))
    jax.eval_shape(purerl.make_train(config), jax.random.key(0))
    with pytest.raises(purerl.ConfigError, match=r"metrics is .*top level of a module"):
        purerl.run(config, out=tmp_path / "run", **QUIET)


def fake(batch):
    def step(state):
        shown = {} if batch is None else {BATCH: batch}
        return state + 1, {"env_steps": state + 1, **shown}

    return Algorithm(init=lambda key: jnp.int32(0), step=step, act=lambda *_: None)


def test_an_algorithm_of_ones_own_may_show_its_transitions():
    def seen(state, batch, metrics):
        return batch["reward"].mean() + state

    made = with_metrics(fake({"reward": jnp.arange(3.0)}), (seen,), (), None)
    _, metrics = made.step(jnp.int32(4))
    assert set(metrics) == {"env_steps", "seen"} and float(metrics["seen"]) == 6
    with pytest.raises(purerl.ConfigError, match="batch is None where"):
        with_metrics(fake(None), (seen,), (), None).step(jnp.int32(4))


def test_an_agent_on_two_devices_has_the_mean_of_its_parts():
    once = {"total_timesteps": 32, "num_evaluations": 0}
    short = small("vpg", metrics=(mean_action,), **once)
    spread, alone = (
        jax.jit(make(short))(jax.random.key(0)).metrics["mean_action"]
        for make in (purerl.data_parallel, purerl.make_train)
    )
    np.testing.assert_allclose(spread, alone, rtol=1e-6)


def mean_action(state, batch, metrics):
    return batch.action.mean()


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_environments_on_the_host_show_their_transitions(name):
    outside = {"env": "gymnasium/CartPole-v1", "num_evaluations": 0}
    config = small(name, metrics=(earned,), **outside)
    result = purerl.run(config, seeds=1, progress=False)
    assert (result.metrics["earned"] == 32).all()

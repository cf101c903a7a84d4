"""Whole studies of a chain: known scores, work that falls, kills, two workers."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import optuna
import pytest

import purerl
from purerl.cli import main
from purerl.cli.tools import show_study
from purerl.report.page import folder_page
from purerl.storage.files import jsonable
from purerl.tuning import batch
from purerl.tuning import result as results
from purerl.tuning.batch import Batch, Pool
from purerl.tuning.space import TuneOptions
from purerl.tuning.study import Study
from tests.helpers import slow_but, tiny_config
from tests.runner.told import Told

from .conftest import REWARDS, STEPS, tune

AXIS = "env_params.reward"


@pytest.fixture(scope="module")
def found(chain, tmp_path_factory):
    """A study of all rewards, three times each or so, with every file."""
    out = tmp_path_factory.mktemp("tune") / "study"
    axes = {AXIS: list(REWARDS), "gamma": purerl.uniform(0.9, 0.99)}
    result = tune(chain, axes, out=out, trials=12, batch=5, holdout_seeds=3)
    return result, out


def test_scores_are_those_of_the_chain(found):
    # All walk right, so a seed's score is the reward times the share of its starts
    # from which the end is reached in time: the same share in every trial.
    result, _ = found
    shares = np.array([np.array(r.seed_scores) / r.params[AXIS] for r in result.rows])
    np.testing.assert_allclose(shares, np.broadcast_to(shares[0], shares.shape), 1e-5)
    assert 0.2 < shares[0].mean() < 1.0
    for row in result.rows:
        assert row.state == "complete" and row.env_steps == 2 * STEPS
        assert row.score == pytest.approx(np.mean(row.seed_scores))


def test_the_best_is_the_largest_reward_and_the_default_comes_first(found):
    result, _ = found
    assert result.finished and result.best_row is not None
    assert result.best_row.params[AXIS] == 8.0
    best = result.best()
    assert best.config.env_params == {"reward": 8.0}
    assert best.config.gamma == best.point["gamma"]
    assert best.score == result.best_row.score
    assert [row.is_default for row in result.rows] == [True] + [False] * 11
    assert result.rows[0].params == {AXIS: 2.0, "gamma": 0.99}
    assert result.summary["compilations"] == 1  # three batches of one program
    assert result.importance[AXIS] > 0.5


def test_best_and_default_meet_again_on_fresh_seeds(found):
    result, out = found
    held = result.holdout
    assert held is not None and held.seeds == (2, 3, 4)
    np.testing.assert_allclose(held.best.scores, 4 * held.default.scores, 1e-5)
    np.testing.assert_allclose(
        held.difference.mean, held.best.mean - held.default.mean, 1e-6
    )
    assert held.best.low <= held.best.mean <= held.best.high
    stored = json.loads((out / "summary.json").read_text())["holdout"]
    assert stored["best"]["scores"] == held.best.scores.tolist()


def test_a_folder_is_read_as_it_was_written(chain, found):
    result, out = found
    loaded = purerl.load_tune(out, chain)
    assert loaded.rows == result.rows  # also the curves along the way
    assert loaded.best_row == result.best_row and loaded.best() == result.best()
    assert loaded.importance == result.importance and loaded.finished
    stored = jsonable(loaded.holdout)
    assert stored == jsonable(result.holdout)
    assert loaded.summary == result.summary
    # Its environment is an object whose class a module has.
    assert purerl.load_tune(out).rows == result.rows
    with pytest.raises(purerl.ConfigError, match="there is no folder"):
        purerl.load_tune(out / "nothing")


@pytest.mark.slow(optimised=False)
def test_the_same_call_again_trains_nothing_and_more_trials_go_on(chain, found):
    result, out = found
    axes = {AXIS: list(REWARDS), "gamma": purerl.uniform(0.9, 0.99)}
    again = tune(chain, axes, out=out, trials=12, batch=5, holdout_seeds=3)
    assert again.rows == result.rows and again.summary["block_calls"] == 0
    assert purerl.load_tune(out, chain).summary == result.summary  # The times stay.
    assert again.holdout is not None
    more = tune(chain, axes, out=out, trials=14, batch=5)
    assert more.rows[:12] == result.rows and len(more.rows) == 14
    costs = purerl.load_tune(out, chain).summary
    for name in ("env_steps", "compilations", "trained_trials"):
        assert costs[name] == result.summary[name] + more.summary[name] > 0
    with pytest.raises(purerl.ConfigError, match="the axis gamma is"):
        tune(chain, {AXIS: list(REWARDS), "gamma": [0.9]}, out=out)


class Keep:
    """Prunes all but the given trials at a step."""

    def __init__(self, keep, step):
        self.keep, self.step = keep, step

    def prune(self, study, trial):
        return trial.last_step >= self.step and trial.number not in self.keep


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [2, 4])
def test_pruned_trials_cost_nothing_from_then_on(chain, monkeypatch, lanes):
    # Whole blocks are left out, and what remains is packed.
    keep = Keep({1, 4}, step=STEPS // 3)
    monkeypatch.setattr("purerl.tuning.study.make_pruner", lambda *a: keep)
    axes = {AXIS: purerl.uniform(1.0, 9.0)}
    pruned = tune(chain, axes, pruner="median", batch=6, sampler="random", lanes=lanes)
    states = [row.state for row in pruned.rows]
    assert [i for i, s in enumerate(states) if s == "complete"] == [1, 4]
    assert states.count("pruned") == 4
    blocks = 6 * 2 // lanes
    assert pruned.summary["block_calls"] == 2 * blocks + 4 * (blocks // 3)
    assert pruned.summary["env_steps"] == 12 * STEPS // 3 + 4 * STEPS * 2 // 3
    assert pruned.rows[0].env_steps == 2 * STEPS // 3
    # Packing changes no bit of those that go on.
    whole = tune(chain, axes, batch=6, sampler="random", lanes=lanes)
    for i in (1, 4):
        assert pruned.rows[i].seed_scores == whole.rows[i].seed_scores
        assert pruned.rows[i].curve == whole.rows[i].curve


@pytest.mark.parametrize("pruner", slow_but(["median", "hyperband"], "hyperband"))
@pytest.mark.slow(optimised=False)
def test_pruners_stop_the_worse_ones(chain, pruner):
    axes = {AXIS: purerl.uniform(0.5, 9.0)}
    options = {"trials": 20, "batch": 5, "sampler": "random", "reports": 6}
    result = tune(chain, axes, pruner=pruner, **options)
    pruned = [r.params[AXIS] for r in result.rows if r.state == "pruned"]
    complete = [r.params[AXIS] for r in result.rows if r.state == "complete"]
    assert len(pruned) >= 4 and len(pruned) + len(complete) == 20
    assert np.mean(pruned) < np.mean(complete)
    best = max(row.params[AXIS] for row in result.rows)
    assert result.best_row.params[AXIS] == best


def test_a_trial_at_the_end_of_its_budget_is_not_pruned(chain, monkeypatch):
    # Of eight reports a segment is two of twelve updates: six segments are all.
    told: dict[int, list[int]] = {}

    def report(self, trial, score, step):
        steps = told.setdefault(trial.number, [])
        steps.append(step)
        return len(steps) == 6

    monkeypatch.setattr(Study, "report", report)
    found = tune(chain, trials=2, batch=2, reports=8, pruner="median")
    assert [row.state for row in found.rows] == ["complete"] * 2
    steps = [STEPS * eighths // 8 for eighths in (1, 2, 4, 5, 6, 8)]
    assert told == {0: steps, 1: steps}


@pytest.mark.slow
def test_trials_that_diverge_count_as_lost_not_as_crashes(chain):
    axes = {"learning_rate": [1e-3, 1e38], AXIS: [1.0, 2.0]}
    result = tune(
        chain, axes, trials=8, batch=4, sampler="random", fitness="training_curve"
    )
    states = {row.params["learning_rate"]: row.state for row in result.rows}
    assert states == {1e-3: "complete", 1e38: "diverged"}
    assert result.best_row.params["learning_rate"] == 1e-3
    diverged = next(row for row in result.rows if row.state == "diverged")
    assert diverged.env_steps < 2 * STEPS and diverged.score is None


@pytest.mark.slow
def test_values_that_do_not_fit_together_are_refused_one_by_one(chain):
    # Each is fine with the config's own values; 5 steps of 4 are not 8 minibatches.
    axes = {"num_minibatches": [1, 8], "num_steps": [4, 5]}
    result = tune(chain, axes, trials=6, batch=6, sampler="random")
    for row in result.rows:
        fits = (row.params["num_steps"] * 4) % row.params["num_minibatches"] == 0
        assert row.state == ("complete" if fits else "refused")
    refused = [row for row in result.rows if row.state == "refused"]
    assert refused and "num_minibatches" in refused[0].note


def test_a_study_of_refused_trials_alone_says_why_whenever_it_is_called(
    chain, tmp_path
):
    told, axes = Told(), {"num_minibatches": [8], "num_steps": [5, 7]}
    for trackers in ([told], []):
        with pytest.raises(purerl.ConfigError, match="by num_minibatches, got 8"):
            tune(chain, axes, trials=2, out=tmp_path / "s", trackers=trackers)
    assert (told.status, told.ended) == ("failed", [0, 1])
    rows = purerl.load(tmp_path / "s").rows
    assert [row.state for row in rows] == ["refused"] * 2


def test_the_training_curve_is_the_mean_along_the_way(chain):
    options = {"seeds": (0, 1), "fitness": "training_curve", "reports": 6, "lanes": 2}
    batch = Batch(Pool(TuneOptions(chain, {}, **options)), [{AXIS: 8.0}])
    for report in range(1, 7):
        batch.advance(report)
    found = batch.score(0)
    assert found.along.shape == (2, 6)
    np.testing.assert_allclose(found.seeds, found.along.mean(1))


@pytest.mark.slow
def test_without_evaluations_the_training_return_counts(chain):
    config = chain.replace(num_evaluations=0)
    result = tune(config, {AXIS: [2.0, 8.0]}, sampler="random")
    scores = {row.params[AXIS]: row.score for row in result.rows}
    assert scores[8.0] == pytest.approx(4 * scores[2.0]) and scores[2.0] > 0


@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize(
    ("pruner", "call", "sampler"),
    [
        ("hyperband", 3, "random"),
        ("median", 26, "random"),
        ("hyperband", 22, "tpe"),
        pytest.param("hyperband", 26, "random", marks=pytest.mark.slow),
        pytest.param("median", 3, "random", marks=pytest.mark.slow),
        pytest.param("median", 22, "random", marks=pytest.mark.slow),
    ],
)
def test_a_study_that_was_stopped_has_the_same_trials(
    chain, tmp_path, monkeypatch, pruner, call, sampler
):
    axes = {AXIS: purerl.uniform(0.5, 9.0)}
    options = {"trials": 16, "batch": 4, "sampler": sampler, "pruner": pruner}
    whole = tune(chain, axes, **options)
    report, calls = Study.report, []

    def counted(self, *args):
        calls.append(args)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGINT)
        return report(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(Study, "report", counted)
        stopped = tune(chain, axes, out=tmp_path, **options)
    resumed = tune(chain, axes, out=tmp_path, **options)
    assert not stopped.finished and resumed.finished
    assert len({row.state for row in whole.rows}) == 2  # some were pruned
    assert resumed.rows == whole.rows  # also by their numbers
    assert purerl.load_tune(tmp_path, chain).rows == whole.rows


WORKER = """
    import sys
    import purerl
    from tests.tuning.conftest import chain, tune
    import jax
    jax.config.update("jax_compilation_cache_dir", sys.argv[2])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_disable_most_optimizations", True)
    config = chain.__wrapped__().replace(total_timesteps=16 * 600, num_evaluations=6)
    axes = {"env_params.reward": purerl.uniform(0.5, 9.0)}
    result = tune(config, axes, out=sys.argv[1], trials=int(sys.argv[3]))
    print(result.summary["trained_trials"])
"""


def states(out):
    """Of the trials, read beside the workers."""
    try:
        database = sqlite3.connect(f"file:{out}/study.db?mode=ro", uri=True)
        with contextlib.closing(database):
            return [row[0] for row in database.execute("select state from trials")]
    except sqlite3.OperationalError:
        return []


def test_a_waiting_trial_is_taken_by_one_worker(tmp_path, monkeypatch):
    """Also where both have seen it wait: the second look is under the lock."""
    from optuna.storages._rdb import models

    from purerl.tuning import study

    url = study.sqlite_url(tmp_path / "study.db")
    workers = [study._storage(url) for _ in range(2)]
    study = optuna.create_study(storage=workers[0])
    study.enqueue_trial({"x": 1.0})
    trial = study.get_trials(deepcopy=False)[0]._trial_id
    find = models.TrialModel.find_or_raise_by_id

    def slowly(*args, **options):
        found = find(*args, **options)
        time.sleep(0.3)  # the other one looks meanwhile
        return found

    monkeypatch.setattr(models.TrialModel, "find_or_raise_by_id", slowly)
    running = optuna.trial.TrialState.RUNNING
    with ThreadPoolExecutor(2) as pool:
        took = pool.map(lambda w: w.set_trial_state_values(trial, running), workers)
        assert sorted(took) == [False, True]


@pytest.mark.slow
def test_two_workers_share_the_budget(tmp_path):
    out = tmp_path / "study"
    cache = jax.config.jax_compilation_cache_dir
    command = [sys.executable, "-c", textwrap.dedent(WORKER), str(out), cache, "12"]
    pipes = {"stdout": subprocess.PIPE, "text": True}
    workers = [subprocess.Popen(command, **pipes) for _ in range(2)]
    trained = [int(worker.communicate(timeout=180)[0]) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    found = states(out)
    assert sum(trained) == 12 == found.count("COMPLETE")
    assert set(found) <= {"COMPLETE", "FAIL"}
    rows = results.read_trials(out)
    assert len({row.params[AXIS] for row in rows}) == 12  # nobody repeated another's


@pytest.mark.slow(optimised=False)
def test_the_command_line(tmp_path, capsys):
    out = tmp_path / "study"
    words = (
        f"tune --axis learning_rate=loguniform(1e-4,1e-2) --axis gamma=0.9,0.99 "
        f"--trials 3 --seeds 2 --batch 3 --pruner none --sampler random --out {out} "
        "--reports 2 --holdout-seeds 2 --total-timesteps 256 --num-envs 4 "
        "--num-steps 8 --num-minibatches 1 --num-epochs 1 --hidden-sizes 4 "
        "--eval-episodes 2 --eval-max-steps 8 --no-progress"
    ).split()
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "best of 3 trials" in said and "default" in said
    assert "on fresh seeds 2 to 3" in said and "best.yaml" in said
    page = (out / "report.html").read_text()
    assert "Tuning: learning_rate, gamma" in page and "purerl tune --axis" in page
    (out / "report.html").unlink()
    assert main(["report", str(out)]) == 0
    assert (out / "report.html").exists()
    capsys.readouterr()
    config = purerl.serialise.from_yaml(out / "best.yaml")
    assert config.total_timesteps == 256 and config.hidden_sizes == (4,)
    assert main([*words, "--gae-lambda", "0.9"]) == 2
    assert "gae_lambda is 0.95 there and 0.9 here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sampler": "grid"}, "sampler must be one of tpe, random"),
        ({"trials": 0}, "trials must be a positive"),
        ({"holdout_seeds": -1}, "holdout_seeds must be a positive"),
    ],
)
def test_options_that_cannot_be(chain, options, words):
    with pytest.raises(purerl.ConfigError, match=words):
        tune(chain, **options)


def test_a_study_without_a_complete_trial_says_so(tmp_path, capsys):
    out = tmp_path / "study"
    rates = {"learning_rate": [1e38, 2e38]}
    result = tune(tiny_config(), rates, trials=2, batch=2, out=out, holdout_seeds=2)
    assert {row.state for row in result.rows} == {"diverged"}
    shown, sentences = show_study(result)
    words = "no trial is complete, so that there is no best config"
    assert not shown and words in " ".join(sentences)
    assert folder_page(out).exists()


@pytest.mark.usefixtures("unrendered")
def test_a_folder_keeps_its_study_and_its_width(chain, tmp_path):
    """Another study or width is refused in words, and what is there stays."""
    out = tmp_path / "study"
    options = {"trials": 2, "batch": 2, "seeds": 1, "out": out}
    tune(chain, **options)
    before = {path.name: path.read_bytes() for path in out.glob("*.*")}
    for changed, words in [
        ({"study": "other"}, r"study is '.*-ppo' there and 'other'"),
        ({"axes": {"gamma": [0.5, 0.9]}}, "the axis gamma is missing there"),
        ({"lanes": 4}, "holds another study: lanes is 2 there and 4 here"),
    ]:
        with pytest.raises(purerl.ConfigError, match=words):
            tune(chain, **{**options, **changed})
    assert before == {path.name: path.read_bytes() for path in out.glob("*.*")}
    # A width that was chosen by the number of trials side by side stays as well.
    tune(chain, **{**options, "lanes": None, "trials": 3, "batch": 1})
    assert json.loads((out / "manifest.json").read_text())["lanes"] == 2


def test_a_trial_that_does_not_fit_the_memory_is_refused_and_the_others_go_on(chain):
    sizes = [(4,), (3_000_000, 3_000_000)]
    axes = {"hidden_sizes": purerl.choice(sizes)}
    result = tune(chain, axes, trials=4, batch=4, seeds=1, sampler="random")
    states = {row.params["hidden_sizes"]: row.state for row in result.rows}
    assert sorted(states.values()) == ["complete", "refused"]
    refused = next(row for row in result.rows if row.state == "refused")
    assert refused.note.startswith("memory: one agent needs at least")
    assert result.finished and result.best().config.hidden_sizes == (4,)


def test_a_batch_that_does_not_fit_is_refused_with_sizes(chain, monkeypatch):
    monkeypatch.setattr(batch, "worker_limit", lambda *_: 500.0)
    with pytest.raises(purerl.ConfigError, match="are free; ask for smaller") as no:
        tune(chain)
    assert "smaller batches (batch) or fewer seeds" in str(no.value)


def test_a_seed_without_an_episode_has_not_diverged():
    nan = float("nan")
    unknown = [[False, False], [True, False]]
    found = results.compare(3, (7, 8), [[1.0, 2.0], [None, nan]], unknown)
    assert (found.best.diverged, found.default.diverged) == (0, 1)
    assert found.difference.diverged == 1
    assert found.best.mean == 1.5 and np.isnan(found.default.mean)
    assert np.isnan(found.difference.mean)
    assert found.note.startswith("A seed ended no episode")
    stored = json.loads(json.dumps(jsonable(found)))
    assert stored["unknown"] == unknown


def test_a_seed_that_diverged_is_worth_what_the_worst_had_on_its_way():
    found = results.compare(3, (7, 8), [[500.0] * 2, [500.0, None]], lowest=20.0)
    assert (found.best.mean, found.default.mean) == (500.0, 260.0)
    assert found.difference.mean == 240.0
    stored = json.loads(json.dumps(jsonable(found)))
    again = results.read_holdout(stored)
    assert again.default.mean == 260.0 and again.lowest == 20.0
    stored["lowest"] = None
    assert results.read_holdout(stored).default.mean == 500.0

"""The budget, resuming and sharing of a study; nothing is trained here."""

import multiprocessing
import subprocess
import time
import types

import optuna
import pytest
from optuna.trial import TrialState

import purerl
from purerl.train import resolve
from purerl.tuning import result
from purerl.tuning import study as studies
from purerl.tuning.result import differing
from purerl.tuning.space import SAMPLERS, Space, TuneOptions
from purerl.tuning.study import SPEC, _storage, open_study, quiet, sqlite_url
from tests.helpers import slow_but

AXES = {
    "learning_rate": purerl.loguniform(1e-4, 1e-2),
    "gamma": purerl.uniform(0.9, 0.99),
    "num_epochs": [1, 2, 4],
}


@pytest.fixture(autouse=True)
def silent():
    with quiet():
        yield


def opened(url=None, sampler="tpe", budget=10, seed=0, **fields):
    config = purerl.PPOConfig(**fields)
    space = Space(config, AXES)
    asked = {"trials": budget, "seeds": (0, 1), "sampler": sampler, "pruner": None}
    asked |= {"storage": url, "fitness": "final_return", "seed": seed}
    options = TuneOptions(config, AXES, **asked)
    return open_study(space, result.spec(space, options), options, "test")


@pytest.fixture
def url(tmp_path):
    return sqlite_url(tmp_path / "study.db")


def score(params):
    return -abs(params["learning_rate"] - 1e-3) * 1e3 - abs(params["gamma"] - 0.95)


def finish(study, trials):
    for trial in trials:
        value = score(trial.params)
        study.finish(trial, value, {"state": "complete", "seed_scores": [value]})


def complete(study, batch=4):
    while study.counts().finished < study.budget:
        finish(study, study.ask(batch))
    return [row.params for row in study.rows()]


def abandon(study):
    """What a killed process leaves: running trials of a process that is not there."""
    process = subprocess.Popen(["true"])
    process.wait()
    study.me = {**study.me, "pid": process.pid, "started": "0"}
    return study.ask(4)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_equal_studies_have_equal_trials(sampler):
    one, two = complete(opened(sampler=sampler)), complete(opened(sampler=sampler))
    assert one == two
    assert one != complete(opened(sampler=sampler, seed=1))
    assert len({str(params) for params in one}) == 10
    default = resolve(purerl.PPOConfig())  # the first trial has what `auto` stands for
    assert one[0] == {
        "learning_rate": default.learning_rate,
        "gamma": default.gamma,
        "num_epochs": default.num_epochs,
    }


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_killed_study_goes_on_as_if_it_had_not_been(sampler, url):
    whole = complete(opened(sampler=sampler, budget=24))
    first = opened(url, sampler, budget=24)
    for _ in range(3):
        finish(first, first.ask(4))
    lost = [trial.params for trial in abandon(first)]
    second = opened(url, sampler, budget=24)
    assert second.counts().running == 4
    assert second.rescue() == 4
    again = second.ask(8)
    assert [trial.params for trial in again] == lost
    finish(second, again)
    assert complete(second) == whole
    assert second.counts() == (24, 0, 0)


@pytest.mark.parametrize("sampler", slow_but(SAMPLERS, "random"))
def test_a_study_killed_within_a_batch_goes_on_as_if_it_had_not_been(sampler, url):
    """Some trials of the batch had ended: those that come again keep their places."""
    whole = complete(opened(sampler=sampler, budget=32), batch=8)
    first = opened(url, sampler, budget=32)
    finish(first, first.ask(8))
    batch = first.ask(8)
    finish(first, [batch[5], batch[7]])
    first.give_back(batch)
    assert first.counts() == (10, 0, 6)
    finish(first, first.ask(8))
    assert complete(first, batch=8) == whole


@pytest.mark.slow
def test_trials_of_a_silent_machine_come_again(url, monkeypatch):
    now = [0.0]
    clock = types.SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(studies, "time", clock)
    first = opened(url)
    first.me = {**first.me, "home": "elsewhere"}
    first.ask(4)
    second = opened(url)
    second.watch = studies.Watch(grace=120.0)
    assert second.rescue() == 0  # seen for the first time
    now[0] = 100.0
    first.study.set_user_attr("beat:" + first.me["id"], 1)
    assert second.rescue() == 0
    now[0] = 200.0
    assert second.rescue() == 0
    now[0] = 221.0
    assert second.rescue() == 4


@pytest.mark.slow
def test_trials_of_a_running_process_are_left_alone(url):
    first = opened(url)
    first.ask(4)
    second = opened(url)
    assert second.rescue() == 0
    assert len(second.ask(8)) == 6
    assert second.ask(1) == []


@pytest.mark.slow
def test_a_trial_that_kills_every_worker_is_given_up(url):
    study = opened(url, budget=4)
    lost = abandon(study)[1].params
    for _ in range(3):
        study = opened(url, budget=4)
        study.rescue()
        abandon(study)
    study = opened(url, budget=4)
    study.rescue()
    params = complete(study)
    assert study.counts().finished == 4 and lost not in params


@pytest.mark.slow
def test_what_was_taken_away_does_not_count(url):
    first = opened(url)
    slow = abandon(first)
    second = opened(url)
    second.rescue()
    finish(second, second.ask(4))
    assert first.report(slow[0], 1.0, 5)  # to stop
    finish(first, slow)
    assert second.counts().finished == 4


@pytest.mark.slow
def test_a_surplus_trial_is_not_kept(url):
    study = opened(url, budget=3)
    others = opened(url, budget=3)
    assert len(others.ask(3)) == 3
    # As if both had counted at the same moment.
    assert study._within_budget([study._ask_one([])]) == []
    assert study.counts() == (0, 3, 0)
    assert len(study.rows()) == 3


def test_a_heart_beats_until_its_worker_leaves(monkeypatch):
    monkeypatch.setattr(studies, "BEAT_SECONDS", 0.01)
    beats = []

    def beat(number):
        beats.append(number)
        raise OSError("a busy storage")

    with studies.beating(beat):
        while len(beats) < 3:
            time.sleep(0.005)
    last = len(beats)
    time.sleep(0.05)
    assert beats == list(range(1, last + 1))


def test_this_process_runs_and_a_finished_one_does_not():
    assert studies.is_running(studies.identity())
    process = multiprocessing.get_context("spawn").Process(target=int)
    process.start()
    there = {**studies.identity(), "pid": process.pid}
    there["started"] = studies._started(process.pid)
    process.join()
    assert studies.is_running(there) is False
    # A number that has come again belongs to another process.
    assert studies.is_running({**studies.identity(), "started": "1"}) is False


def test_another_study_is_refused_with_the_difference(url):
    opened(url)
    with pytest.raises(purerl.ConfigError, match=r"num_envs is 4 there and 8 here"):
        opened(url, num_envs=8)
    with pytest.raises(purerl.ConfigError, match="seed is 0 there and 1 here"):
        opened(url, seed=1)
    stored = opened(url).study.user_attrs[SPEC]
    new = {**stored, "axes": {"gamma": {"kind": "uniform", "low": 0.5, "high": 0.9}}}
    words = "; ".join(differing(stored, new))
    assert "the axis gamma is {'kind': 'uniform', 'low': 0.9, 'high': 0.99}" in words


def test_a_maker_that_was_killed_before_describing_its_study(url, monkeypatch):
    optuna.create_study(storage=_storage(url), study_name="test", direction="maximize")
    monkeypatch.setattr("purerl.tuning.study.START_SECONDS", 0.0)
    study = opened(url)
    assert study.rows() == [] and len(study.trials()) == 1  # the default waits


@pytest.mark.parametrize(
    "url", ["nonsense", "sqlite:////nowhere/at/all/study.db", "foo://me:secret@host/db"]
)
def test_a_storage_that_cannot_be_used_is_one_sentence(url):
    with pytest.raises(purerl.ConfigError, match="storage: cannot use") as error:
        opened(url)
    assert "secret" not in str(error.value)


def test_lost_trials_teach_the_sampler_and_never_win(url):
    study = opened(url, budget=3)
    trials = study.ask(3)
    study.finish(trials[0], 5.0, {"state": "complete"})
    study.report(trials[1], 9.0, 10)
    study.finish(trials[1], None, {"state": "diverged"})
    study.finish(trials[2], float("nan"), {"state": "unknown"})
    assert [row.state for row in study.rows()] == ["complete", "diverged", "unknown"]
    assert [row.score for row in study.rows()] == [5.0, None, None]
    assert [t.state for t in study.trials()] == [
        TrialState.COMPLETE,
        TrialState.PRUNED,
        TrialState.PRUNED,
    ]


def test_tpe_comes_nearer_than_chance():
    def distance(name):
        params = complete(opened(sampler=name, budget=60), batch=6)
        return -sum(score(p) for p in params[-20:]) / 20

    assert distance("tpe") < 0.3 * distance("random")

"""What every search owes: the same bits however it is stopped, a folder, rows, a page.

The search of one's own in `examples/own_search.py` is held to it like the others.
"""

import os
import signal

import jax
import numpy as np
import pytest

import purerl
from purerl.execution import dry_run
from purerl.search import protocol as store
from purerl.search.protocol import Request, drive
from purerl.train import bind
from tests.docs.pages import ROOT, load
from tests.helpers import assert_same_bits, slow_but, tiny_config

CONFIG = tiny_config(num_evaluations=0, total_timesteps=384)  # twelve updates
AXES = {
    "learning_rate": purerl.loguniform(1e-4, 1e-2),
    "entropy_coef": [0.0, 0.01, 0.1],
}
QUIET = {"progress": False}


def _pbt(**options):
    size = {"population": 4, "ready_updates": 4, "lanes": 2}
    return purerl.pbt(CONFIG, AXES, **size, **QUIET, **options)


def _halving(**options):
    size = {"num_points": 4, "eta": 2, "min_updates": 3, "lanes": 2}
    return purerl.halving(CONFIG, AXES, **size, **QUIET, **options)


SCHEDULE = purerl.ConfigSchedule(
    (0, 4, 8), tuple({"learning_rate": rate} for rate in (1e-3, 1e-2, 1e-4))
)


def _schedules(**options):
    return purerl.train_schedules(CONFIG, SCHEDULE, seeds=3, lanes=2, **options)


OWN = load(
    ROOT / "examples" / "own_search.py"
)  # Once: a class of each loading would be another.
OWN.AGENTS = 4


def _own_search():
    return OWN.random_search(CONFIG)


def _own(**options):
    return drive(_own_search(), lanes=2, **QUIET, **options)


SEARCHES = {"pbt": _pbt, "halving": _halving, "schedules": _schedules, "own": _own}
# How a search goes on and whom it tells is one code: `make test` has one for it.
one_quickly = pytest.mark.parametrize(
    "search", slow_but(SEARCHES, "own"), indirect=True
)


@pytest.fixture(params=SEARCHES)
def search(request):
    return SEARCHES[request.param]


@pytest.fixture(scope="module")
def whole():
    """The outcome of every search that nobody stopped, trained once."""
    found = {}

    def of(search):
        if search not in found:
            found[search] = outcome(search())
        return found[search]

    return of


def outcome(result):
    """All that a search computed."""
    if hasattr(result, "steps"):
        return result.states, result.steps
    return result.state, result.score, result.train


class KilledError(Exception):
    """In place of a kill: nothing after it runs."""


def after_steps(monkeypatch, count, act):
    """Do something right after so many more steps have been written."""
    save, left = store.save_step, [count]

    def save_and_count(*args):
        save(*args)
        left[0] -= 1
        if left[0] == 0:
            act()

    monkeypatch.setattr(store, "save_step", save_and_count)


def kill():
    raise KilledError


@pytest.mark.parametrize("seconds", [0.0, 1e9])
@one_quickly
def test_killed_after_a_step_it_ends_with_the_same_bits(
    search, whole, tmp_path, monkeypatch, seconds
):
    # A kill between a record and its checkpoint; or with no checkpoint at all.
    options = {"out": tmp_path, "checkpoint_seconds": seconds}
    with monkeypatch.context() as patch:
        after_steps(patch, 2, kill)
        with pytest.raises(KilledError):
            search(**options)
    assert_same_bits(outcome(search(**options)), whole(search))


@pytest.mark.parametrize("search", slow_but(SEARCHES, "halving"), indirect=True)
def test_ctrl_c_saves_and_the_same_call_goes_on(
    search, whole, tmp_path, monkeypatch, capsys
):
    with monkeypatch.context() as patch:
        after_steps(patch, 2, lambda: os.kill(os.getpid(), signal.SIGINT))
        if search is _schedules:
            with pytest.raises(purerl.ConfigError, match="stopped before its end"):
                search(out=tmp_path)
        else:
            assert len(search(out=tmp_path).steps) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "stopped; what was done is in" in said and "goes on" in said
    steps, save = [], store.save_step
    keep = lambda *args: steps.append(args[1]) or save(*args)  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setattr(store, "save_step", keep)
        assert_same_bits(outcome(search(out=tmp_path)), whole(search))
        assert steps[0] == 2  # nothing is trained twice
        steps.clear()
        assert_same_bits(outcome(search(out=tmp_path)), whole(search))
        assert steps == []  # it had finished


class Keeps(purerl.Tracker):
    """Keeps the rows that it is told, by member."""

    name, background = "keeps", False

    def __init__(self, rows):
        self.rows = rows
        self.id = "kept"

    def log(self, member, step, row):
        self.rows.append((row["kind"], member, row))


@one_quickly
def test_trackers_are_told_every_row_once_while_it_runs(search, tmp_path, monkeypatch):
    rows, told = [], []
    with monkeypatch.context() as patch:
        after_steps(patch, 2, lambda: told.append(len(rows)) or kill())
        with pytest.raises(KilledError):
            search(out=tmp_path, trackers=[Keeps(rows)], checkpoint_seconds=0.0)
    assert told[0] > 0  # the first step, before the second one has ended
    search(out=tmp_path, trackers=[Keeps(rows)], checkpoint_seconds=0.0)
    places = [(seed, row["update"], row["env_steps"]) for _, seed, row in rows]
    alone: list = []
    search(trackers=[Keeps(alone)])
    assert rows == alone and len(rows) > 3
    assert {kind for kind, _, _ in rows} == {"train"}
    assert all(steps == update * 32 for _, update, steps in places)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"until": 6}, "until of a request must be above 6, what its members have"),
        ({"until": 13}, "until .* or 12, the end of the run, got 13"),
        ({"parents": np.array([0, 1, 2, 4])}, "parents .* a row from 0 to 3"),
        ({"parents": np.array([0, 0, 1, 2])}, "parents .* none twice"),
        ({"parents": np.arange(3)}, "parents .* for each of 4 members"),
        ({"is_copy": np.ones(3, bool)}, "parents .* a truth value for each"),
        ({"evaluation_keys": jax.random.split(jax.random.key(0), 3)}, "a key for each"),
        ({"parents": None, "is_copy": np.ones(4, bool)}, "where there are no parents"),
    ],
)
def test_a_request_that_cannot_be_carried_out_is_refused(changes, words):
    search = _own_search()
    first = search.ask(search.init())
    second = first._replace(until=12, parents=np.arange(4))
    plan = search.bound.plan
    store.check_request(first, None, plan, 6)
    store.check_request(second, first, plan, 6)
    with pytest.raises(purerl.ConfigError, match=words):
        store.check_request(second._replace(**changes), first, plan, 6)


def test_a_dry_run_says_what_a_search_would_cost(monkeypatch, capsys):
    monkeypatch.setattr(dry_run, "rate", lambda *args: 10.0)
    search = _own_search()
    purerl.dry_run(search, lanes=2)
    # Six requests for half a run, of 192 steps, of four agents each.
    assert "4 agents, CartPole-v1: 4.61k environment steps" in capsys.readouterr().out
    with pytest.raises(purerl.ConfigError, match="asks for nothing"):
        purerl.dry_run(search._replace(ask=lambda state: None))


def test_another_search_is_refused_with_the_difference(search, tmp_path, monkeypatch):
    search(out=tmp_path)
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "CONFIG", CONFIG.replace(gae_lambda=0.9))
        with pytest.raises(purerl.ConfigError) as error:
            search(out=tmp_path)
    assert "gae_lambda is 0.95 there and 0.9 here" in str(error.value)


@one_quickly
def test_a_record_of_a_program_that_decided_otherwise_is_refused(search, tmp_path):
    search(out=tmp_path)
    path = sorted((tmp_path / "records").iterdir())[1]
    record = dict(np.load(path))
    np.savez(path, **{**record, "request": record["request"] + 1})
    with pytest.raises(purerl.ConfigError, match="another request than"):
        search(out=tmp_path)


@pytest.mark.slow
def test_an_extended_search_is_the_longer_one(tmp_path, monkeypatch):
    """Whoever asks for more updates gets what a longer search gives, bit for bit."""
    fixed = CONFIG.replace(anneal_learning_rate=False)
    longer = fixed.replace(total_timesteps=768)
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "CONFIG", fixed)
        assert _pbt(out=tmp_path).finished
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "CONFIG", longer)
        with pytest.raises(purerl.ConfigError, match="total_timesteps is 384 there"):
            _pbt(out=tmp_path)
        path = tmp_path / "config.yaml"
        short = path.read_text()
        extended = _pbt(out=tmp_path, extend=True)
        long = path.read_text()
        assert short != long
        path.write_text(short)  # as a kill between the two files leaves it
        _pbt(out=tmp_path, extend=True)
        assert path.read_text() == long
        whole = _pbt()
    assert extended.summary["trained_requests"] == 3
    assert_same_bits(outcome(extended), outcome(whole))
    assert_same_bits(outcome(purerl.load_search(tmp_path)), outcome(whole))


def _search(requests):
    """A search that makes these requests, one after the other."""
    spec = {"config": {}, "options": {}, "seeds": [0]}
    asks = {
        "init": lambda: 0,
        "ask": [*requests, None].__getitem__,
        "tell": lambda told, *_: told + 1,
    }
    return purerl.Search("mine", bind(CONFIG), spec, (1,) * len(requests), 2, 4, **asks)


def _members(count=4, numbers=4):
    rates = np.full(numbers, 1e-3, np.float32)
    keys = jax.random.split(jax.random.key(0), count)
    return purerl.Members(keys, {"learning_rate": rates})


FIRST = Request(_members(), 4)
FOUR = np.arange(4)
SECOND = Request(_members(), 8, FOUR)


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ([Request(_members(4, 3), 4)], "a value for each of 4 members, .*3,"),
        ([Request(_members(), 3)], "a multiple of segment_updates = 4, or 12"),
        ([FIRST, SECOND, SECOND], "above 8, what its members have seen, .*got 8"),
        ([FIRST, Request(_members(), 8, FOUR // 2)], "ascending, none twice, or"),
    ],
)
def test_a_request_that_cannot_be_is_one_sentence(requests, words, tmp_path):
    with pytest.raises(purerl.ConfigError, match=words):
        drive(_search(requests), out=tmp_path, **QUIET)
    if len(requests) == 1:  # nothing was trained: the folder is as before
        assert not (tmp_path / "manifest.json").exists()


def test_a_permutation_is_copied_by_its_rows(tmp_path):
    """With `is_copy` all false members move with their random keys."""
    rates = np.array([1e-4, 1e-3, 3e-3, 1e-2], np.float32)
    keys, order = jax.random.split(jax.random.key(0), 4), np.array([2, 0, 3, 1])
    still, moved = (
        purerl.Members(keys, {"learning_rate": x}) for x in (rates, rates[order])
    )
    first, plain = Request(still, 4), Request(still, 8, FOUR)
    second = Request(moved, 8, order, np.zeros(4, bool))
    one = drive(_search([first, second]), **QUIET)
    other = drive(_search([first, plain]), **QUIET)
    assert_same_bits(one.states, jax.tree.map(lambda x: x[order], other.states))

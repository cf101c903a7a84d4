"""At one lane width and segment length nothing else changes a member's bits."""

import contextlib
import itertools
import os
import signal
import weakref

import jax
import numpy as np
import pytest

import purerl
from purerl.execution import programs as compiled
from purerl.execution.programs import Program
from purerl.scale.devices import Worker
from purerl.sweeps import loop, plan, store
from tests.helpers import tiny_config, tiny_table

from .conftest import RATES, assert_equal, run_sweep

pytestmark = pytest.mark.optimised(slow=True)

AXES = {"learning_rate": RATES}


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [3, 8])
def test_the_size_of_chunks(tiny, whole, blocks, monkeypatch):
    monkeypatch.setattr(plan, "blocks_of_chunk", lambda *args: blocks)
    assert_equal(run_sweep(tiny, AXES, seeds=5), whole)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_one_worker_and_workers_on_two_devices(tiny, whole, monkeypatch, devices):
    # The host is split in two devices: another executable, compiled for the second.
    spread = [Worker(one, i) for i, one in enumerate(jax.local_devices()[:devices])]
    assert len(spread) == devices and len(loop.make_workers()) == 2
    monkeypatch.setattr(loop, "make_workers", lambda: spread)
    assert_equal(run_sweep(tiny, AXES, seeds=5), whole)


@pytest.mark.slow
def test_the_order_of_values_and_the_neighbours(tiny, whole):
    turned = run_sweep(tiny, {"learning_rate": RATES[::-1]}, seeds=[4, 2])
    for rate, seed in itertools.product(RATES, (2, 4)):
        one = turned.sel(learning_rate=rate, seed=seed)
        two = whole.sel(learning_rate=rate, seed=seed)
        for name in one:
            np.testing.assert_array_equal(one[name], two[name])


@pytest.mark.slow
def test_members_that_are_added_to_a_finished_sweep(tiny, whole, tmp_path):
    out = tmp_path / "sweep"
    some = {"learning_rate": RATES[:1]}
    run_sweep(tiny, some, seeds=3, out=out)
    with pytest.raises(purerl.ConfigError, match=r"seeds is .* there.*--extend"):
        run_sweep(tiny, some, seeds=5, out=out)
    more = run_sweep(tiny, some, seeds=5, out=out, extend=True)
    assert more.summary["trained_members"] == 2
    all_ = run_sweep(tiny, AXES, seeds=5, out=out, extend=True)
    assert all_.summary["trained_members"] == 10
    assert_equal(all_, whole)
    assert_equal(purerl.load_sweep(out), whole)


def test_what_is_missing_or_damaged_is_trained_again(tiny, whole, tmp_path, capsys):
    out = tmp_path / "sweep"
    run_sweep(tiny, AXES, seeds=5, out=out)
    files = sorted((out / "chunks").glob("*.npz"))
    assert len(files) == 8  # 15 members in blocks of two
    files[0].unlink()
    data = bytearray(files[1].read_bytes())
    middle = len(data) // 2
    data[middle : middle + 200] = bytes(200)
    files[1].write_bytes(data)
    files[2].write_bytes(b"")
    again = run_sweep(tiny, AXES, seeds=5, out=out)
    assert again.summary["trained_members"] in (5, 6)  # the last block has one member
    assert capsys.readouterr().err.count("is damaged: trained again") == 2
    assert_equal(again, whole)


def test_a_sweep_leaves_its_programs_to_those_who_share_them(tiny):
    with purerl.share_programs():
        first = run_sweep(tiny, AXES, seeds=2)
        again = run_sweep(tiny, AXES, seeds=2)
    assert first.summary["compilations"] == 1
    assert again.summary["compilations"] == 0
    assert_equal(again, first)


class Backwards(contextlib.AbstractContextManager):
    """A pool whose last call runs first."""

    def __init__(self, _):
        pass

    def __exit__(self, *_):
        pass

    def map(self, function, items):
        return [function(item) for item in reversed(items)][::-1]


GROUPED = tiny_table(num_evaluations=0)
GROUPS = {"num_steps": [8, 16], "learning_rate": RATES[:2]}


def test_groups_for_which_there_is_no_room_wait_and_are_the_same(
    monkeypatch, tmp_path, capsys
):
    together = run_sweep(GROUPED, GROUPS, seeds=2)
    # As in a process that can hold one program more, and then none.
    monkeypatch.setattr(compiled, "is_nearly_full", lambda: True)
    programs, most, compile_ = weakref.WeakSet(), [], Program.__init__

    def compile_and_count(self, *args):
        compile_(self, *args)
        programs.add(self)
        most.append(len(programs))

    monkeypatch.setattr(Program, "__init__", compile_and_count)
    # The slowest thread has the first group.
    monkeypatch.setattr(plan, "ThreadPoolExecutor", Backwards)
    out = tmp_path / "sweep"
    with purerl.share_programs():  # Those of other tests are not used.
        one_by_one = run_sweep(GROUPED, GROUPS, seeds=2, out=out, progress=True)
    assert most == [1, 1]
    assert_equal(one_by_one, together)
    assert one_by_one.summary["compilations"] == 2
    assert one_by_one.summary["env_steps"] == together.summary["env_steps"]
    shown = capsys.readouterr().err
    assert "8 members" in shown and "1 groups are compiled after" in shown
    assert "4 of them finished before" in shown and "100%" in shown


def test_ctrl_c_leaves_out_groups_that_wait(monkeypatch, tmp_path):
    together = run_sweep(GROUPED, GROUPS, seeds=2)
    monkeypatch.setattr(compiled, "is_nearly_full", lambda: True)
    out, save, saved = tmp_path / "sweep", store.save, []

    def save_and_interrupt(*args):
        saved.append(save(*args))
        if len(saved) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return saved[-1]

    with monkeypatch.context() as patch, purerl.share_programs():
        patch.setattr(store, "save", save_and_interrupt)
        stopped = run_sweep(GROUPED, GROUPS, seeds=2, out=out)
    assert not stopped.finished and stopped.summary["compilations"] == 1
    assert_equal(run_sweep(GROUPED, GROUPS, seeds=2, out=out), together)


@pytest.mark.slow
def test_a_sweep_has_the_random_numbers_that_a_context_of_jax_asks_for():
    """Its programs are traced in threads of their own, a run's in the caller's."""
    config = tiny_config(num_evaluations=0)
    options = {"seeds": 1, "lanes": 1, "segment_updates": 5, "progress": False}

    def returns():
        run = purerl.run(config, **options).metrics["episode_return"][0]
        swept = purerl.sweep(config, **options)["episode_return"].values.ravel()
        np.testing.assert_array_equal(run.astype(np.float32), swept)
        return swept

    usual = returns()
    with jax.threefry_partitionable(False):
        assert not np.array_equal(returns(), usual)

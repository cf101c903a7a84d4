from types import SimpleNamespace

import jax
import pytest

import purerl
from purerl.execution import memory
from purerl.execution.programs import Members, Program
from purerl.scale.devices import make_workers
from purerl.sweeps import plan
from purerl.train import bind
from tests.helpers import tiny_config, tiny_table

from .conftest import assert_equal


def test_the_bytes_of_blocks_that_are_held_and_of_those_that_are_advanced():
    model = memory.MemoryModel(state=100.0, working=70.0, fixed=30.0)
    assert model.block(8) == 8 * 170 + 30
    assert model.chunk(8, 3) == 3 * 8 * 100 + 8 * 70 + 30
    assert model.chunk(8, 3, busy=2) == 3 * 8 * 100 + 2 * 8 * 70 + 30


@pytest.mark.slow
def test_the_compiler_counts_state_and_replay():
    config = purerl.DQNConfig(
        total_timesteps=4_000, buffer_size=2_000, hidden_sizes=(8,), num_evaluations=0
    )
    bound = bind(config)
    members = Members(jax.random.split(jax.random.key(0), 1), {})
    built = Program(bound, members.block(0, 4), 2, make_workers()[:1])
    counted = built.memory()
    # An item: two observations of four floats, action, reward, two flags.
    replay = 2_000 * (2 * 4 * 4 + 4 + 4 + 1 + 1)
    assert replay < counted.state < 1.1 * replay


def test_lanes_are_halved_until_a_block_fits():
    model = memory.MemoryModel(state=100.0, working=50.0, fixed=0.0)
    assert memory.fit_lanes(model, 8, 1_200.0, is_fixed=False) == 8
    assert memory.fit_lanes(model, 8, 1_199.0, is_fixed=False) == 4
    with pytest.raises(purerl.ConfigError, match="a block of 8 lanes needs"):
        memory.fit_lanes(model, 8, 1_199.0, is_fixed=True)
    with pytest.raises(purerl.ConfigError, match="a block of 1 lane needs"):
        memory.fit_lanes(model, 8, 100.0, is_fixed=False)


@pytest.mark.parametrize(
    ("share", "limit", "seconds", "blocks"),
    [
        (4, 1e12, 0.1, 1),  # fewer blocks than chunks: each a chunk
        (64, 1e12, 0.1, 8),  # 8 chunks of a worker
        (64, 8 * (50 + 3 * 100), 0.1, 3),  # three blocks' states, and one's working
        (64, 8 * (50 + 100), 0.1, 1),
        (320, 1e12, 0.1, 40),
        (320, 1e12, 10.0, 30),  # five minutes
        (320, 1e12, 200.0, 1),
        (320, 1e12, 5_000.0, 1),
    ],
)
def test_blocks_of_a_chunk(share, limit, seconds, blocks):
    model = memory.MemoryModel(state=100.0, working=50.0, fixed=0.0)
    assert plan.blocks_of_chunk(model, 8, share, limit, seconds) == blocks


def test_slow_blocks_are_chunks_of_their_own(tmp_path, monkeypatch):
    """They were an eighth of a worker's work, however long that was."""
    tiny = tiny_table(total_timesteps=64, num_evaluations=0)
    axes = {"learning_rate": [1e-3 * n for n in range(1, 33)]}
    options = {"seeds": 1, "lanes": 1, "progress": False}
    whole = purerl.sweep(tiny, axes, out=tmp_path / "whole", **options)
    measured = plan.rate
    monkeypatch.setattr(plan, "rate", lambda *a: measured(*a) * 1e-9)
    out = tmp_path / "cut"
    cut = purerl.sweep(tiny, axes, out=out, **options)
    assert len(list((out / "chunks").iterdir())) == 32
    assert len(list((tmp_path / "whole" / "chunks").iterdir())) < 32
    assert_equal(cut, whole)
    # What was cut on a slow machine goes on elsewhere, as it is.
    for path in sorted((out / "chunks").iterdir())[:20]:
        path.unlink()
    monkeypatch.setattr(plan, "rate", measured)
    assert_equal(purerl.sweep(tiny, axes, out=out, **options), whole)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *[("2GB", 2e9), ("512MiB", 2**29), ("1.5 GiB", 1.5 * 2**30)],
        *[("GB", None), ("-1GB", None), ("2 gigs", None), ("nan", None)],
    ],
)
def test_bytes_as_people_write_them(text, number):
    if number is not None:
        assert memory.parse_bytes(text) == number
        return
    with pytest.raises(purerl.ConfigError, match="memory_limit must be a positive"):
        memory.parse_bytes(text)


def test_the_search_ends_where_throughput_falls(monkeypatch):
    rates = {1: 10.0, 2: 20.0, 4: 12.0, 8: 11.0, 16: 99.0}
    model = memory.MemoryModel(1, 0, 0)
    made = SimpleNamespace(compile_seconds=0.0, memory=lambda: model)
    cache = SimpleNamespace(get=lambda *args: made)
    monkeypatch.setattr(plan, "current_cache", lambda: cache)
    monkeypatch.setattr(plan, "rate", lambda program, block, *_: rates[block.size])
    workers = len(make_workers())

    def measured(limit):
        widths, limit = list(rates), limit * workers
        return plan.find_lanes(tiny_config(), widths=widths, memory_limit=limit)

    assert [entry.lanes for entry in measured(100.0)] == [1, 2, 4, 8]
    assert plan.best_of(measured(100.0)) == 2
    assert [entry.lanes for entry in measured(3.0)] == [1, 2]  # then the memory ends
    with pytest.raises(purerl.ConfigError, match="not even 1 lanes fit"):
        measured(0.5)

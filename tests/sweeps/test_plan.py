import math
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from rich.console import Console

import purerl
from purerl.cli import main
from purerl.execution import memory
from purerl.execution.members import Members
from purerl.execution.programs import Program
from purerl.scale.devices import make_workers
from purerl.sweeps import lanes as lane_finder
from purerl.sweeps import plan
from purerl.sweeps.console import plan_table
from purerl.train import bind
from tests.helpers import tiny_config

from .conftest import assert_equal, outline_of

GIB = 2.0**30


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


@pytest.mark.slow
def test_memory_does_not_grow_with_the_length_of_a_run():
    # Ten times as many updates in ten times as many segments of the same length.
    found = []
    for steps in (6_400, 64_000):
        config = tiny_config(total_timesteps=steps, num_evaluations=2)
        members = Members(jax.random.split(jax.random.key(0), 2), {})
        built = Program(bind(config), members, 4, make_workers()[:1])
        found.append(built.memory())
    assert found[0].state == found[1].state
    assert found[1].working <= found[0].working * 1.01 + 1_000


def test_measured_lanes_are_no_wider_than_the_members_need(monkeypatch):
    monkeypatch.setattr(lane_finder, "find", lambda *args: 64)
    for seeds, lanes in ((3, 2), (4, 2), (5, 4), (1_000, 64)):
        (group,) = outline_of(tiny_config(), {}, seeds, lanes="auto").groups
        assert group.lanes == lanes


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


def test_slow_blocks_are_chunks_of_their_own(tiny, tmp_path, monkeypatch):
    """They were an eighth of a worker's work, however long that was."""
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
        ("2GB", 2e9),
        ("512MiB", 2**29),
        (1_000, 1e3),
        ("1.5 GiB", 1.5 * GIB),
        ("2t", 2e12),
    ],
)
def test_bytes_as_people_write_them(text, number):
    assert memory.parse_bytes(text) == number


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "0", "2 gigs", "nan"])
def test_bad_bytes_get_a_sentence(text):
    with pytest.raises(purerl.ConfigError, match="memory_limit must be a positive"):
        memory.parse_bytes(text)


def test_peak_memory_sees_what_came_and_went():
    workers = make_workers()
    with memory.PeakMemory(workers) as peak:
        before = memory.memory_in_use(workers)
        block = jnp.ones((64, 2**20), jnp.float32)  # 256 MiB
        block.block_until_ready()
        del block
    assert peak.bytes - before > 0.2 * GIB
    assert 2**30 < memory.available_memory() < 2**50


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "purerl" / "lanes.json"


@pytest.mark.slow
def test_lanes_are_measured_once_and_remembered(cache, monkeypatch):
    config = tiny_config(num_evaluations=0)
    found = purerl.find_lanes(config, widths=[1, 2], seconds=0.01)
    assert [entry.lanes for entry in found] == [1, 2]
    assert all(entry.steps_per_second > 0 for entry in found)
    best = lane_finder.best_of(found)
    assert list(__import__("json").loads(cache.read_text()).values()) == [best]
    monkeypatch.setattr(
        lane_finder, "measure_lanes", lambda *args: pytest.fail("measured again")
    )
    # Numbers and budgets do not change a program's best width.
    changed = config.replace(learning_rate=1e-2, total_timesteps=320)
    # Nor whether they are axes.
    result = purerl.sweep(
        changed, {"gamma": [0.9, 0.99]}, seeds=2, lanes="auto", progress=False
    )
    assert result.summary["lanes"] == [best]


@pytest.fixture
def homeless(monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)


def test_a_user_without_a_home_has_lanes_that_are_not_remembered(
    homeless, monkeypatch, tmp_path, capsys
):
    asked = []
    rates = [lane_finder.LaneRate(2, 10.0, 0.0, 0.0)]
    monkeypatch.setattr(
        lane_finder, "measure_lanes", lambda *a: asked.append(a) or rates
    )
    bound, workers = bind(tiny_config()), make_workers()
    members = Members(jax.random.split(jax.random.key(0), 1), {})
    for _ in range(2):
        assert lane_finder.find(bound, members, 4, workers, math.inf) == 2
    assert len(asked) == 2
    assert main(["lanes", "--total-timesteps", "640"]) == 0
    assert "not remembered, because you have no home folder" in capsys.readouterr().out
    # The folder that is given is enough, and nobody asks for a home.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):
        assert lane_finder.find(bound, members, 4, workers, math.inf) == 2
    assert len(asked) == 4
    assert (tmp_path / "purerl" / "lanes.json").exists()


def test_the_search_ends_where_throughput_falls(monkeypatch):
    rates = {1: 10.0, 2: 20.0, 4: 12.0, 8: 11.0, 16: 99.0}
    monkeypatch.setattr(lane_finder, "rate", lambda p, block, *a: rates[block.size])

    class Built:
        compile_seconds = 0.0

        def __init__(self, bound, block, *args):
            self.size = block.size

        @classmethod
        def get(cls, *args):
            return cls(*args)

        def memory(self):
            return memory.MemoryModel(1, 0, 0)

    monkeypatch.setattr(lane_finder, "current_cache", lambda: Built)
    members = Members(jax.random.split(jax.random.key(0), 1), {})
    found = lane_finder.measure_lanes(None, members, 1, [], list(rates), limit=100.0)
    assert [entry.lanes for entry in found] == [1, 2, 4, 8]
    found = lane_finder.measure_lanes(None, members, 1, [], list(rates), limit=3.0)
    assert [entry.lanes for entry in found] == [1, 2]  # then the memory ends
    with pytest.raises(purerl.ConfigError, match="not even 1 lanes fit"):
        lane_finder.measure_lanes(None, members, 1, [], list(rates), limit=0.5)


@pytest.mark.slow
def test_a_plan_says_what_a_sweep_would_do(cache):
    config = tiny_config(num_evaluations=0)
    axes = {"learning_rate": [1e-3, 1e-2, 1e-1], "num_envs": [2, 4]}
    planned = purerl.plan(config, axes, seeds=4, lanes=2)
    assert [group.num_members for group in planned.groups] == [12, 12]
    assert planned.num_members == 24 and planned.steps == 24 * 640
    assert [group.lanes for group in planned.groups] == [2, 2]
    seconds = planned.seconds()
    assert seconds is not None and 0 < seconds < 100
    per_group = [group.chunk_bytes() for group in planned.groups]
    assert planned.device_bytes() == 2 * max(per_group) > 0


def test_the_table_of_a_plan_of_millions_is_not_cut_off_on_80_columns():
    group = SimpleNamespace(
        num_members=4_000_000,
        group=SimpleNamespace(static={}, steps_each=500_000),
        steps=2e12,
        lanes=128,
        chunk_members=1_054_592,
        chunk_bytes=lambda: 11.2 * 2**30,
        seconds=lambda: 1_760_400.0,
    )
    whole = SimpleNamespace(
        num_members=4_000_000,
        num_workers=1,
        groups=[group],
        design=SimpleNamespace(points=range(1_000_000)),
        seeds=range(4),
    )
    console = Console(width=80)
    with console.capture() as captured:
        console.print(plan_table(whole))
    text = captured.get()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    for words in ("4,000,000", "500,000", "1,054,592", "11.2 GiB", "489:00:00"):
        assert words in text

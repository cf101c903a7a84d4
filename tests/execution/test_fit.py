"""Which width of a block fits, as far as shapes say, and what it takes in time."""

import types

import jax
import jax.numpy as jnp
import pytest

from purerl.execution import dry_run, memory
from purerl.execution.memory import peak_bytes, traced_memory
from purerl.execution.programs import segment_length
from purerl.scale.devices import Worker, make_workers
from purerl.train import bind
from tests.helpers import tiny_config


def test_a_segment_is_as_asked_or_a_hundredth_of_the_run():
    def length(updates, *asked, **segments):
        plan = types.SimpleNamespace(num_updates=updates)
        return segment_length(types.SimpleNamespace(plan=plan), *asked, **segments)

    assert [length(n) for n in (1, 99, 100, 101, 1000)] == [1, 1, 1, 2, 10]
    assert [length(10, asked) for asked in (None, 3, 10, 50)] == [1, 3, 10, 10]
    assert [length(10, segments=n) for n in (1, 3, 4, 10, 20)] == [10, 4, 3, 1, 1]


def peak(function, *shapes):
    zeros = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return peak_bytes(jax.make_jaxpr(function)(*zeros).jaxpr)


def test_an_array_lives_until_it_is_read_for_the_last_time():
    # Both sums are alive with the product, the first one is read again at the end.
    def function(x):
        a = x.sum(0)  # [10], 40 bytes
        b = x.sum(1)  # [100], 400 bytes
        c = jnp.outer(b, b)  # [100, 100], 40,000 bytes; b ends here
        return c.sum() + a.sum()

    assert peak(function, (100, 10)) == pytest.approx(40_000 + 440, abs=800)


def test_what_ends_is_written_over_and_loops_count_once():
    def function(x):
        return jax.lax.fori_loop(0, 50, lambda _, y: jnp.sin(y) + 1.0, x)

    # The caller's array is written over, in every turn; a counter is all there is.
    assert peak(function, (1_000,)) < 100
    # Results that are stacked are held: 50 arrays of 1,000 numbers.
    stacked = lambda x: jax.lax.scan(lambda y, _: (y, y + 1.0), x, None, 50)[1]  # noqa: E731
    assert peak(stacked, (1_000,)) == pytest.approx(4 * 50_000, rel=0.05)


def test_a_segment_needs_its_rollout():
    small, large = (
        traced_memory(bind(tiny_config(num_steps=steps)), 2) for steps in (16, 64)
    )
    assert small.state == large.state
    # At the least the observations and the next ones: 2 environments of 4 numbers.
    assert large.working - small.working >= (64 - 16) * 2 * 4 * 2 * 4


FITTING = [
    (2_048, 2_048 * 150, 2_048),  # all fits in one block
    (2_048, 2_048 * 100 + 1_024 * 50, 1_024),
    (2_048, 1.0, 1_024),  # what the compiler counts decides
    (8_192, 8_192 * 100 + 2_048 * 50, 2_048),  # the states of others are held
    (1, 2_048 * 150 - 1, 1_024),  # a block's own states count in any case
]


@pytest.mark.parametrize(("held", "limit", "lanes"), FITTING)
def test_lanes_are_halved_until_shapes_fit(held, limit, lanes):
    model = memory.MemoryModel(state=100.0, working=50.0, fixed=0.0)
    assert memory.lanes_by_shapes(model, 2_048, held, limit) == lanes


def test_only_wide_blocks_on_accelerators_ask_for_shapes():
    bound, cpu = bind(tiny_config()), types.SimpleNamespace(platform="cpu")
    gpu = types.SimpleNamespace(
        platform="cuda", memory_stats=lambda: {"bytes_limit": 2**20}
    )
    # A MiB would not hold 4,096 agents, and nobody asks.
    assert memory.fitting_lanes(bound, 4_096, 4_096, 2, [Worker(cpu, 0)]) == 4_096
    assert memory.fitting_lanes(bound, 1_024, 1_024, 2, [Worker(gpu, 0)]) == 1_024
    assert memory.fitting_lanes(bound, 4_096, 4_096, 2, [Worker(gpu, 0)]) == 1_024
    assert memory.fitting_lanes(bound, 4_096, 4_096, 2, [Worker(gpu, 0)], 1e12) == 4_096


@pytest.mark.parametrize(
    ("agents", "lanes", "turns"),
    [(1, 1, 1), (1, 16, 1), (8, 8, 1), (9, 8, 2), (17, 8, 3), (16, 8, 2)],
)
def test_lanes_that_only_fill_a_block_take_their_time(
    monkeypatch, agents, lanes, turns
):
    program = types.SimpleNamespace(member_shapes=dict)
    cache = types.SimpleNamespace(get=lambda *arguments: program)
    monkeypatch.setattr(dry_run, "current_cache", lambda: cache)
    monkeypatch.setattr(dry_run, "make_workers", lambda: make_workers()[:1])
    monkeypatch.setattr(dry_run, "rate", lambda *arguments: 1_000.0)
    bound = bind(tiny_config())
    part = dry_run.whole_runs(bound, agents)
    speed, _ = dry_run._measured(part, lanes, None)
    # A block of W lanes takes W thousandths of a second for a step of each.
    assert agents / speed == pytest.approx(turns * lanes / 1_000.0)

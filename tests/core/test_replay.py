"""Uniform replay and n-step windows, against a queue and plain loops."""

from collections import deque
from functools import partial
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import purerl
from purerl.accelerator import rows
from purerl.accelerator.kernels import traced_for
from purerl.replay import batches
from purerl.replay import uniform as replay
from tests.helpers import assert_same_bits, slow_but

add = jax.jit(replay.add)
gather = jax.jit(replay.gather)
gather_n_step = jax.jit(replay.gather_n_step, static_argnums=(2, 3))

# Capacity and items per addition: multiples and not, one round, one item.
SIZES = [
    (1, 1),
    (7, 3),
    (9, 8),
    *(
        pytest.param(*size, marks=pytest.mark.slow)
        for size in [(5, 1), (6, 2), (8, 8), (10, 4), (23, 7)]
    ),
]


class Step(NamedTuple):
    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    next_obs: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


def random_steps(seed, num, done_rate=0.3):
    """Steps with observations as bytes; `next_obs` is like no other's `obs`."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, p=[1 - done_rate, done_rate / 2, done_rate / 2], size=num)
    return Step(
        obs=rng.integers(256, size=(num, 2, 3), dtype=np.uint8),
        action=rng.integers(5, size=num, dtype=np.int32),
        reward=rng.normal(size=num).astype(np.float32),
        next_obs=rng.integers(256, size=(num, 2, 3), dtype=np.uint8),
        terminated=kind == 1,
        truncated=kind == 2,
    )


@partial(jax.jit, static_argnums=2)
def numbers_again(numbers, added, capacity):
    """The numbers of items, from the slots in which they lie."""
    slots = replay.slots_of(numbers, capacity)
    return replay.numbers_in(slots, added, capacity)


def part(steps, start, num):
    return jax.tree.map(lambda x: x[start : start + num], steps)


def one_of(steps):
    return jax.tree.map(lambda x: x[0], steps)


@partial(jax.jit, static_argnums=(1, 2))
def filled(steps, capacity, num):
    """A buffer after rounds of `num` of the steps."""
    rounds = len(steps.reward) // num
    items = jax.tree.map(lambda x: x.reshape(rounds, num, *x.shape[1:]), steps)

    def add(buffer, xs):
        index, items = xs
        return replay.add(buffer, items, index * jnp.uint32(num)), ()

    buffer = replay.init(one_of(steps), capacity)
    indices = jnp.arange(rounds, dtype=jnp.uint32)
    return jax.lax.scan(add, buffer, (indices, items))[0]


@pytest.mark.parametrize(("capacity", "num"), SIZES)
def test_contents_are_those_of_a_queue_after_every_round(capacity, num):
    rounds = 3 * capacity // num + 2
    steps = random_steps(0, rounds * num)
    buffer = replay.init(one_of(steps), capacity)
    queue = deque(maxlen=capacity)
    for added in range(0, rounds * num, num):
        items = part(steps, added, num)
        buffer = add(buffer, items, jnp.uint32(added))
        queue.extend(zip(*items, strict=True))
        after = added + num
        there = int(replay.size(jnp.uint32(after), capacity))
        assert there == len(queue)
        # As many as fit, of which the first are not there to begin with.
        numbers = np.arange(after - capacity, after).astype(np.uint32)
        found = gather(buffer, numbers)
        got = Step(*(np.asarray(x)[-there:] for x in found))
        want = Step(*map(np.stack, zip(*queue, strict=True)))
        # Bytes stay bytes, flags flags.
        chex.assert_trees_all_equal(got, want, strict=True)
        again = numbers_again(numbers, jnp.uint32(after), capacity)
        np.testing.assert_array_equal(again[-there:], numbers[-there:])


def test_the_largest_counter_still_finds_its_slots():
    # 2^32 - 6 = 7 * 613566755 + 5: the items before it lie in slots 3 and 4.
    added = jnp.uint32(2**32 - 6)
    buffer = replay.add(jnp.zeros(7), jnp.array([1.0, 2.0, 3.0]), added)
    np.testing.assert_array_equal(buffer, [3, 0, 0, 0, 0, 1, 2])
    numbers = np.array([2**32 - 6, 2**32 - 5, 2**32 - 4], np.uint32)
    np.testing.assert_array_equal(replay.gather(buffer, numbers), [1, 2, 3])
    found = replay.numbers_in(jnp.array([4, 5, 0]), added + 3, 7)
    np.testing.assert_array_equal(found, np.array([2**32 - 7, *numbers[[0, 2]]]))


# Sampling


@pytest.mark.parametrize(("added", "capacity", "margin"), [(3, 9, 0), (50, 9, 2)])
def test_sampling_reaches_all_that_is_there_and_nothing_else(added, capacity, margin):
    # Every residue of the modulus occurs among a thousand consecutive bits.
    bits = jnp.arange(1000, dtype=jnp.uint32)
    numbers = replay.sample(bits, jnp.uint32(added), capacity, margin)
    expected = range(max(0, added - capacity), added - margin)
    assert sorted(set(np.asarray(numbers).tolist())) == list(expected)


def test_sampling_is_uniform():
    bits = jax.random.bits(jax.random.key(1), (20_000,))
    numbers = replay.sample(bits, jnp.uint32(1234), 37)
    counts = np.bincount(np.asarray(numbers) - (1234 - 37), minlength=37)
    assert len(counts) == 37
    assert scipy.stats.chisquare(counts).pvalue > 0.01


# Windows of n steps


def slow_window(steps, number, n, num_envs, gamma):
    """The same from the list of all steps ever taken."""
    reward, discount = 0.0, 1.0
    for index in range(number, number + n * num_envs, num_envs):
        reward += discount * float(steps.reward[index])
        discount *= gamma
        if steps.terminated[index] or steps.truncated[index]:
            break
    return reward, discount, steps.next_obs[index], steps.terminated[index]


@pytest.mark.parametrize("n", slow_but([1, 2, 5], 2))
@pytest.mark.parametrize(
    "sizes",
    slow_but([(6, 1), (12, 2), (13, 2), (17, 3), (24, 3), (30, 5)], (6, 1), (17, 3)),
)
def test_windows_equal_a_plain_loop_over_everything_that_happened(n, sizes):
    capacity, num_envs = sizes
    margin = (n - 1) * num_envs
    total = num_envs * (2 * capacity // num_envs + 3)
    steps = random_steps(capacity + n, total)
    buffer = filled(steps, capacity, num_envs)
    numbers = np.arange(total - capacity, total - margin, dtype=np.uint32)
    window = jax.device_get(gather_n_step(buffer, numbers, n, num_envs, 0.9))
    np.testing.assert_array_equal(window.first.obs, steps.obs[numbers])
    assert window.next_obs.dtype == np.uint8
    for i, number in enumerate(numbers):
        reward, discount, next_obs, terminated = slow_window(
            steps, number, n, num_envs, 0.9
        )
        np.testing.assert_allclose(window.reward[i], reward, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(window.discount[i], discount, rtol=1e-6)
        np.testing.assert_array_equal(window.next_obs[i], next_obs)
        assert window.terminated[i] == terminated


@pytest.mark.parametrize("prioritised", [False, True])
@pytest.mark.parametrize("added", [12, 34])
def test_batches_are_windows_of_what_has_happened_up_to_the_newest(prioritised, added):
    # An incomplete window would go on in what was overwritten a whole buffer ago.
    n, num_envs, capacity = 3, 2, 16
    sizes = {"buffer_size": capacity, "batch_size": 1_000, "total_timesteps": 400}
    config = purerl.DQNConfig(n_step=n, num_envs=num_envs, gamma=0.5, **sizes)
    config = config.replace(prioritised=prioritised)
    drawn = batches.of_steps(config, None)
    steps = random_steps(0, added)
    buffer, priorities = filled(steps, capacity, num_envs), drawn.grow(drawn.init())
    add_priorities = jax.jit(drawn.add, static_argnums=2)
    for before in range(0, added, num_envs):
        priorities = add_priorities(priorities, jnp.uint32(before), num_envs)
    noise = drawn.draw(jax.random.key(0), ())
    numbers, weight = jax.jit(drawn.sample)(priorities, noise, jnp.uint32(added))
    complete = range(max(0, added - capacity), added - (n - 1) * num_envs)
    assert sorted(set(np.asarray(numbers).tolist())) == list(complete)
    gathered = jax.jit(lambda *args: drawn.batch(*args, lambda obs: obs))
    batch = jax.device_get(gathered(buffer, numbers, weight))
    for place, number in enumerate(np.asarray(numbers)[::50]):
        reward, discount, last, terminated = slow_window(
            steps, number, n, num_envs, 0.5
        )
        found = jax.tree.map(lambda x, at=50 * place: x[at], batch)
        np.testing.assert_allclose(found.reward, reward, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found.next_obs, last)
        assert found.discount == (0 if terminated else discount)


@pytest.mark.parametrize("n", [1, 3])
def test_windows_of_rows_are_those_of_arrays_to_the_last_bit(n):
    steps = random_steps(5, 40)
    # Bytes are no rows: as floats these are.
    steps = steps._replace(
        obs=steps.obs.astype(np.float32), next_obs=steps.next_obs.astype(np.float32)
    )
    arrays = filled(steps, 12, 2)
    empty = jax.tree.map(jnp.zeros_like, arrays)
    assert rows.rows_of(empty) is empty  # On a CPU nothing changes.
    with traced_for("cuda"):
        buffer = rows.rows_of(empty)
    assert isinstance(buffer, rows.Rows) and jax.tree.leaves(buffer)[0].ndim == 2
    for start in range(0, 40, 2):
        two = jax.tree.map(lambda x, start=start: x[start : start + 2], steps)
        buffer = add(buffer, jax.tree.map(jnp.asarray, two), jnp.uint32(start))
    assert_same_bits(rows.items_of(buffer), arrays)
    numbers = jnp.arange(28, 40 - 2 * (n - 1), dtype=jnp.uint32)
    assert_same_bits(
        gather_n_step(buffer, numbers, n, 2, 0.9),
        gather_n_step(arrays, numbers, n, 2, 0.9),
    )


@pytest.mark.parametrize("axes", [(None,), (0,), (None, None), (None, 0), (0, None)])
def test_rows_are_written_at_one_place_and_scattered_only_to_several(axes):
    several = 3, 2
    lead = several[: len(axes)]
    words = jax.random.bits(jax.random.key(0), (*lead, 8, 5))
    new = jax.random.bits(jax.random.key(1), (*lead, 2, 5))
    starts = jnp.array([0, 4, 6]) if axes[0] == 0 else jnp.arange(4, 6)
    starts = starts if 0 in axes else jnp.int32(4)

    def write(words, new, start):
        buffer = rows.write(rows.Rows(words, None), rows.Rows(new, None), start)
        return buffer.words

    for axis in reversed(axes):
        write = jax.vmap(write, (0, 0, axis))
    found = jax.jit(write)(words, new, starts)
    known = np.array(words)
    for agent in np.ndindex(lead):
        place = [i for i, axis in zip(agent, axes, strict=True) if axis == 0]
        start = int(starts[tuple(place)])
        known[agent][start : start + 2] = new[agent]
    np.testing.assert_array_equal(found, known)
    text = jax.jit(write).lower(words, new, starts).as_text()
    assert ("scatter" in text) == (0 in axes)


def test_what_is_large_or_no_word_is_not_made_rows():
    def is_made(**leaves):
        with traced_for("cuda"):
            return isinstance(rows.rows_of(leaves), rows.Rows)

    assert is_made(x=jnp.zeros((4, rows.MOST_WORDS)), y=jnp.zeros((4, 0), bool))
    assert not is_made(x=jnp.zeros((4, rows.MOST_WORDS + 1)))
    assert not is_made(x=jnp.zeros((4, 3)), pixel=jnp.zeros((4, 2), jnp.uint8))
    assert not is_made(x=jnp.zeros((rows.MOST_BYTES // 4 + 1, 1)))

"""Jumanji: its own episodes, flags that say why, masks, and what cannot be had."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs
from purerl.envs.adapters import jumanji
from tests.envs.test_suites import assert_ends_are_told_apart, make

KEY = jax.random.key(0)
# Names of the step counter among Jumanji's observations.
COUNTERS = ("step_count", "step")
STEPS = 6


def _spec(maximum, shape=(), dtype=np.int32, **more):
    return SimpleNamespace(
        minimum=np.zeros((), dtype), maximum=maximum, shape=shape, dtype=dtype, **more
    )


def test_masks_of_choices_and_of_combinations():
    found = [
        (_spec(3), (4,), "Discrete(4)", ()),
        (_spec(4, (2,)), (2, 5), "MultiDiscrete([5, 5])", ()),
        # MultiCVRP's spec has a place more than there are.
        (_spec(5, (2,), np.int16), (2, 5), "MultiDiscrete([5, 5])", ()),
        (_spec(np.array([5, 0, 2]), (3,)), None, "MultiDiscrete([6, 1, 3])", ()),
        (_spec(np.array([3, 9]), (2,)), (4, 10), "Discrete(40)", (4, 10)),
        (_spec(1.0, (2, 2), np.float32), None, "Box(0, 1, (2, 2), float32)", ()),
    ]
    for spec, mask, *expected in found:
        space, combined = jumanji.actions_of(spec, mask)
        assert [repr(space), combined] == expected


@pytest.mark.parametrize(
    ("maximum", "shape", "mask"),
    [(3, (), (5,)), (np.array([99, 199]), (2,), (100, 200)), (3, (2,), (3, 4))],
)
def test_a_mask_that_cannot_be_one_is_refused(maximum, shape, mask):
    with pytest.raises(ValueError, match=r"mask of shape .* choose a smaller"):
        jumanji.actions_of(_spec(maximum, shape), mask)


def test_arrays_of_three_axes_are_pictures_or_rows():
    numbers = np.zeros((6, 3, 3), np.int8)
    spec = _spec(5, (6, 3, 3), np.int8)
    cube: Any = jumanji.space_of({"cube": spec}, {"cube": numbers})
    assert cube["cube"].shape == (6, 9)
    seen = jumanji.member_of(cube, {"cube": numbers})
    assert cube.contains(seen)
    grid: Any = jumanji.space_of({"grid": spec}, {"grid": numbers})
    assert grid["grid"].shape == (6, 3, 3)


def _valid(env, key, obs):
    """A random action among the valid ones."""
    space = env.action_space()
    if "action_mask" not in obs:
        return space.sample(key)
    sizes = [space.n] if hasattr(space, "n") else space.nvec.tolist()
    parts = jnp.split(obs["action_mask"] > 0, np.cumsum(sizes)[:-1])
    chosen = [
        jax.random.categorical(jax.random.fold_in(key, i), jnp.where(mask, 0.0, -1e9))
        for i, mask in enumerate(parts)
    ]
    return chosen[0] if hasattr(space, "n") else jnp.stack(chosen)


def _flat(value):
    """What Jumanji shows as arrays by their path."""
    if dataclasses.is_dataclass(value):
        parts = vars(value)
    elif hasattr(value, "_asdict"):
        parts = value._asdict()
    else:
        return {"": value}
    return {f"/{k}{p}": x for k, v in parts.items() for p, x in _flat(v).items()}


def _ours(value):
    if not isinstance(value, dict):
        return {"": value}
    return {f"/{k}{p}": x for k, v in value.items() for p, x in _ours(v).items()}


def _jumanjis(action, spec):
    """The action that Jumanji takes: of combinations the last choice runs fastest."""
    if np.ndim(spec.generate_value()) and action.ndim == 0:
        parts = []
        for size in np.asarray(spec.num_values)[::-1]:
            parts.insert(0, action % int(size))
            action = action // int(size)
        action = jnp.stack(parts)
    return action.astype(spec.dtype)


def _options(name):
    if not name.startswith("Sokoban"):  # Its other levels would be downloaded.
        return {}
    from jumanji.environments.routing.sokoban.generator import ToyGenerator

    # Its own viewer leaves files open.
    return {"generator": ToyGenerator(), "viewer": SimpleNamespace(close=lambda: None)}


@pytest.mark.filterwarnings("ignore:scatter inputs:FutureWarning")  # Bare BinPack's.
@pytest.mark.slow(optimised=False)
@pytest.mark.parametrize("name", envs.registry.JUMANJI_NAMES)
def test_episodes_are_jumanjis_own(name):
    jumanji = pytest.importorskip("jumanji")
    env = make(f"jumanji/{name}", **_options(name))
    bare = jumanji.make(name, **_options(name))
    params = env.default_params.replace(max_steps_in_episode=STEPS)
    space = env.observation_space(params)

    def play(key):
        start = env.reset(key, params)
        inner, first = bare.reset(key)

        def body(carry, key):
            obs, state, inner = carry
            action = _valid(env, key, obs)
            obs, state, reward, *flags, info = env.step(key, state, action, params)
            after, last = bare.step(inner, _jumanjis(action, bare.action_spec))
            inner = jax.tree.map(lambda x, y: jnp.asarray(x, y.dtype), after, inner)
            final = info["final_observation"]
            there = space.contains(obs) & space.contains(final)
            theirs = _flat(last.observation), last.reward, last.last()
            return (obs, state, inner), ((_ours(final), reward, *flags), theirs, there)

        keys = jax.random.split(key, STEPS + 1)
        seen = jax.lax.scan(body, (*start, inner), keys)[1]
        return (_ours(start[0]), _flat(first.observation)), seen

    with jax.numpy_rank_promotion("allow"):
        found = jax.jit(jax.vmap(play))(jax.random.split(KEY, 3))
    starts, (ours, theirs, there) = jax.tree.map(np.asarray, found)
    obs, reward, terminated, truncated = ours
    assert there.all()
    is_over = terminated | truncated
    # Ours goes on with a fresh episode, and theirs with what is over.
    first = np.cumsum(is_over, 1) - is_over == 0
    np.testing.assert_array_equal(terminated[first], theirs[2][first])
    assert not (terminated & truncated).any() and is_over[:, :STEPS].any(1).all()
    assert truncated[:, STEPS - 1][first[:, STEPS - 1]].sum() == (
        (first & ~terminated)[:, STEPS - 1].sum()
    )
    given = theirs[1].reshape(*reward.shape, -1).sum(-1)
    np.testing.assert_allclose(reward[first], given[first], rtol=1e-6, atol=1e-7)
    _compare(name, *starts, np.zeros(3))
    time = np.broadcast_to(np.arange(STEPS + 1) + 1, first.shape)[first]
    played = ({k: x[first] for k, x in shown.items()} for shown in (obs, theirs[0]))
    _compare(name, *played, time)


def _compare(name, ours, theirs, time):
    """Numbers are Jumanji's, masks are flat, and a counter is a share of the limit."""
    assert ours.keys() == theirs.keys()
    for path, shown in ours.items():
        given = theirs[path]
        if path[1:] in COUNTERS and not name.startswith("Minesweeper"):
            if not name.startswith("Tetris"):  # Jumanji's counter stands at zero there.
                np.testing.assert_array_equal(given, time)
            given = time / STEPS
        if (name, path) == ("TSP-v1", "/position"):
            given = np.where(given < 0, 20, given)  # It starts in none of 20 cities.
        given = np.reshape(given, shown.shape)
        np.testing.assert_allclose(shown, given, rtol=1e-6, err_msg=path)


@pytest.mark.slow(optimised=False)
def test_the_time_limit_truncates():
    """Jumanji says at its limit, with a discount of 0, that the maze terminated."""
    env = make("jumanji/Maze-v0", time_limit=3)
    assert env.default_params.max_steps_in_episode == 3
    step = jax.jit(env.step)
    # The limit is one of the numbers, and so it may be longer than Jumanji's.
    for limit in (3, 5):
        params = env.default_params.replace(max_steps_in_episode=limit)
        start, state = env.reset(KEY, params)
        for i in range(limit):
            again = jax.random.key(1)  # The next maze is drawn from it.
            obs, state, _, *flags, info = step(again, state, jnp.int32(0), params)
            assert flags == [False, i + 1 == limit]
        assert info["final_observation"]["step_count"] == 1.0
        assert obs["step_count"] == 0.0 and (obs["walls"] != start["walls"]).any()


@pytest.mark.slow(optimised=False)
def test_a_collision_terminates_also_on_the_last_step():
    env = make("jumanji/Snake-v1", num_rows=2, num_cols=5)
    params = env.default_params
    obs, state = env.reset(KEY, params)
    assert obs["grid"].shape == (2, 5, 5)  # A wall is always above or below.
    invalid, valid = (
        jnp.int32(int(choose(obs["action_mask"]))) for choose in (np.argmin, np.argmax)
    )
    assert obs["action_mask"][invalid] == 0 and obs["action_mask"][valid] == 1
    step = jax.jit(env.step)
    assert_ends_are_told_apart(step, params, (state, valid), (state, invalid))


@pytest.mark.slow(optimised=False)
def test_a_last_step_with_a_discount_is_no_termination():
    env = make("jumanji/LevelBasedForaging-v0")
    env._endless.time_limit = 2  # As if there were a limit of which nothing is known.
    _, state = env.reset(KEY)
    step = jax.jit(env.step)
    for i in range(2):
        _, state, *_, terminated, truncated, _ = step(KEY, state, jnp.zeros(2, int))
        assert not terminated and truncated == (i == 1)
    assert "its 2 agents" in env.note


@pytest.mark.slow(optimised=False)
def test_limits_that_are_a_part_of_the_task():
    # The rewards fall to zero at the limit, behind which there is nothing.
    rescue = make("jumanji/SearchAndRescue-v0", time_limit=2)
    # There is room for as many steps, and no more.
    trees = make("jumanji/MMST-v0", time_limit=2)
    for env, terminates in ((rescue, True), (trees, False)):
        params = env.default_params.replace(max_steps_in_episode=10)
        _, state = env.reset(KEY, params)
        step = jax.jit(env.step)
        action = jnp.zeros_like(env.action_space().sample(KEY))
        _, state, *_, terminated, truncated, _ = step(KEY, state, action, params)
        assert not terminated and not truncated
        *_, terminated, truncated, _ = step(KEY, state, action, params)
        assert (terminated, truncated) == (terminates, not terminates)

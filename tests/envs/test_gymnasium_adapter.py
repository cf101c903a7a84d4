"""Our environments in Gymnasium: its checker, its vectors, its wrappers, its names."""

import warnings

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from purerl import envs
from purerl.envs.adapters.adapted import as_space
from purerl.envs.adapters.gymnasium_spaces import to_gym_space
from purerl.envs.registry import _OWN
from purerl.envs.spaces import Box, Dict, Discrete, MultiBinary, Tuple
from tests.helpers import slow_but

pytestmark = pytest.mark.usefixtures("lax_rank_promotion")
# The checker's opinions on the task itself; what it is, an adapter cannot change.
UNAVOIDABLE = {
    r"A Box observation space (minimum|maximum) value is -?infinity": (
        *("CartPole-v1", "Cartpole", "cheap-talk/", "brax/inverted_pendulum"),
    ),
    "For Box action spaces, we recommend using a symmetric and normalized": (
        *("Chicken-v0", "IteratedPrisonersDilemma-v0", "MatchingPennies-v0"),
        *("probe/continuous", "Pendulum-v1", "brax/inverted_pendulum"),
    ),
}
GYMNAX = ("Pendulum-v1", "Breakout-MinAtar", "FrozenLake-misc")
# Every kind of observation and of action, and all that compile in no time.
QUICK = (
    *("CartPole-v1", "Doors-v0", "Pendulum-v1", "FrozenLake-misc"),
    *(id for id in _OWN if id.startswith("probe/")),
)


def actions_of(env, num_steps, seed=0):
    env.action_space.seed(seed)
    return [env.action_space.sample() for _ in range(num_steps)]


@pytest.mark.parametrize(
    "id",
    [
        *slow_but([*_OWN, *GYMNAX], *QUICK),
        pytest.param("brax/inverted_pendulum", marks=pytest.mark.slow),
    ],
)
def test_gymnasiums_checker_has_nothing_to_say(id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for opinion, ids in UNAVOIDABLE.items():
            if id.startswith(ids):
                warnings.filterwarnings("ignore", f".*{opinion}")
        check_env(envs.to_gymnasium(id), skip_render_check=True)


@pytest.mark.parametrize(
    "id", slow_but(["Doors-v0", "Pendulum-v1", "probe/memory"], "probe/memory")
)
def test_a_lane_is_the_stream_of_keys_that_it_says(id):
    # By hand: key -> (key, key_reset), then (key, key_step) for every step.
    env = envs.make(id)
    params = env.default_params
    gym_env = envs.to_gymnasium(id)
    obs, info = gym_env.reset(seed=2**32 - 3)
    key, now = jax.random.split(jax.random.key(2**32 - 3))
    expected, state = env.reset(now, params)
    np.testing.assert_allclose(obs, expected, rtol=1e-6)
    assert info == {}
    for action in actions_of(gym_env, 12):
        key, now = jax.random.split(key)
        _, state, reward, terminated, truncated, info = env.step(
            now, state, jnp.asarray(action), params
        )
        ours = gym_env.step(action)
        np.testing.assert_allclose(ours[0], info["final_observation"], atol=1e-5)
        np.testing.assert_allclose(ours[1], reward, rtol=1e-5, atol=1e-6)
        assert ours[2:4] == (bool(terminated), bool(truncated))
        if terminated or truncated:
            break


@pytest.mark.parametrize(
    ("id", "num_steps"),
    [("CartPole-v1", 70), pytest.param("FrozenLake-misc", 40, marks=pytest.mark.slow)],
)
def test_lanes_are_gymnasiums_own_vector_of_single_ones(id, num_steps):
    ours = envs.to_gymnasium_vector(id, num_envs=3)
    makers = [lambda: envs.to_gymnasium(id)] * 3
    theirs = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    _assert_same(ours.reset(seed=7), theirs.reset(seed=7))
    ended = 0
    for actions in actions_of(ours, num_steps):
        mine, other = ours.step(actions), theirs.step(actions)
        _assert_same(mine, other)
        ended += int((mine[2] | mine[3]).sum())
    assert ended >= 3  # every lane went through a reset, or the test says little
    # Unseeded: every lane goes on in its stream.
    _assert_same(ours.reset(), theirs.reset())
    _assert_same(ours.reset(seed=[5, 1, 5]), theirs.reset(seed=[5, 1, 5]))


def _assert_same(ours, theirs):
    """Equal as Gymnasium's users see it: values, dtypes, masks and layout."""
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs)
        ours, theirs = [[each[k] for k in theirs] for each in (ours, theirs)]
    if (
        isinstance(theirs, tuple | list)
        or str(getattr(theirs, "dtype", "")) == "object"
    ):
        for a, b in zip(ours, theirs, strict=True):
            _assert_same(a, b)
    elif theirs is None:
        assert ours is None
    else:
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def test_seeds():
    env = envs.to_gymnasium("CartPole-v1")
    first, second = env.reset(seed=3)[0], env.reset()[0]
    assert env.np_random_seed == 3
    assert not np.array_equal(first, second)  # unseeded resets go on
    np.testing.assert_array_equal(env.reset(seed=3)[0], first)
    np.testing.assert_array_equal(env.reset()[0], second)
    # Without any seed two environments differ.
    fresh = [envs.to_gymnasium("CartPole-v1").reset()[0] for _ in range(2)]
    assert not np.array_equal(*fresh)
    with pytest.raises(gymnasium.error.Error):
        env.reset(seed=-1)
    lanes = envs.to_gymnasium_vector("CartPole-v1", num_envs=3)
    for obs in (lanes.reset(seed=3)[0], lanes.reset()[0]):
        assert len(np.unique(obs, axis=0)) == 3


def test_options_set_numbers_and_are_otherwise_ignored():
    # One step from rest: theta_acc = -(F/m) cos / (l (4/3 - mp cos^2 / m)), so half
    # the length doubles the pole's kick (up to the terms in l * theta_dot^2).
    env = envs.to_gymnasium("CartPole-v1", params={"reset_range": 0.0})
    env.reset(seed=0, options={"whatever": 1})
    kick = env.step(1)[0][3]
    env.reset(options={"params": {"length": 0.25}})
    np.testing.assert_allclose(env.step(1)[0][3], 2 * kick, rtol=1e-5)
    env.reset()  # they stay
    np.testing.assert_allclose(env.step(1)[0][3], 2 * kick, rtol=1e-5)
    with pytest.raises(ValueError, match="change a space of CartPole-v1"):
        env.reset(options={"params": {"x_threshold": 5.0}})
    sticky = envs.wrappers.StickyActions(envs.make("CartPole-v1"), 0.25)
    words = "params of CartPole-v1: StickyActions.* between 0 and 1, got 2.1"
    with pytest.raises(ValueError, match=words):
        envs.to_gymnasium(sticky, params={"sticky_probability": 2.1})
    env_of_wrapped = envs.to_gymnasium(sticky, params={"sticky_probability": 1.0})
    with pytest.raises(ValueError, match=words):
        env_of_wrapped.reset(options={"params": {"sticky_probability": 2.1}})
    wide = envs.to_gymnasium("CartPole-v1", params={"x_threshold": 5.0})
    assert wide.observation_space.high[0] == 10.0

    params = envs.make("CartPole-v1").default_params.replace(max_steps_in_episode=1)
    truncated = envs.to_gymnasium("CartPole-v1", params=params)
    truncated.reset(seed=0)
    assert truncated.step(0)[2:4] == (False, True)


def test_misuse_is_named():
    env = envs.to_gymnasium("Doors-v0", num_doors=2)
    assert env.pure.num_doors == 2
    with pytest.raises(gymnasium.error.ResetNeeded, match="of Doors-v0 is running"):
        env.step(0)
    env.reset(seed=0)
    for action in (5, -1, 0.5, [1]):
        with pytest.raises(gymnasium.error.InvalidAction):
            env.step(action)
    short = envs.to_gymnasium("Doors-v0", params={"max_steps_in_episode": 1})
    short.reset(seed=0)
    assert short.step(np.int64(0))[3] is True
    with pytest.raises(gymnasium.error.ResetNeeded):
        short.step(0)

    lanes = envs.to_gymnasium_vector("Doors-v0", num_envs=2)
    with pytest.raises(gymnasium.error.ResetNeeded):
        lanes.step(np.zeros(2, int))
    with pytest.raises(ValueError, match="3 numbers for 2 lanes"):
        lanes.reset(seed=[1, 2, 3])
    lanes.reset()
    for actions, words in (([0, 0, 0], r"expected \(2,\)"), ([0, 5], r"in 0 \.\. 4")):
        with pytest.raises(gymnasium.error.InvalidAction, match=words):
            lanes.step(np.array(actions))
    with pytest.raises(ValueError, match="they go with an id"):
        envs.to_gymnasium(envs.make("Doors-v0"), num_doors=2)
    with pytest.raises(ValueError, match=r"of Doors-v0 must be one of .*'human'"):
        envs.to_gymnasium("Doors-v0", render_mode="human")


def test_what_is_handed_out_is_the_callers():
    lanes = envs.to_gymnasium_vector("CartPole-v1", num_envs=2)
    obs, _ = lanes.reset(seed=0)
    kept = obs.copy()
    obs[:] = 9.0
    np.testing.assert_array_equal(lanes.reset(seed=0)[0], kept)
    for array in lanes.step(np.zeros(2, int))[:4]:
        array[:] = 1  # writeable


class Drawn(envs.Doors):
    """A picture of one pixel: the agent's column."""

    def render(self, state, params=None):
        return np.full((1, 1, 3), np.asarray(state.agent)[1], np.uint8)


def test_pictures():
    env = envs.to_gymnasium(Drawn(), render_mode="rgb_array")
    assert env.metadata["render_modes"] == ["rgb_array"]
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.render()
    obs, _ = env.reset(seed=0)
    assert env.render()[0, 0, 0] == np.argmax(obs.reshape(15, 15)[14] == 1)
    lanes = envs.to_gymnasium_vector(Drawn(), num_envs=2, render_mode="rgb_array")
    lanes.reset(seed=0)
    frames = lanes.render()
    np.testing.assert_array_equal(frames[0], env.render())
    assert len(frames) == 2
    assert envs.to_gymnasium("probe/chain").metadata == {"render_modes": []}
    assert envs.to_gymnasium(Drawn()).render() is None


def test_names_in_gymnasium():
    names = envs.register_in_gymnasium()
    assert envs.register_in_gymnasium() == names  # again, without a warning
    assert set(names) == set(envs.registered())
    assert names["brax/halfcheetah"] == "purerl/brax-halfcheetah"
    single = gymnasium.make(names["CartPole-v1"])
    assert single.spec.id == "purerl/CartPole-v1"
    obs, _ = single.reset(seed=5)
    plain = envs.to_gymnasium("CartPole-v1")
    np.testing.assert_array_equal(obs, plain.reset(seed=5)[0])
    drawn = gymnasium.make("purerl/Doors-v0", num_doors=2)
    assert drawn.unwrapped.pure.num_doors == 2

    vector = gymnasium.make_vec("purerl/Doors-v0", num_envs=4)
    assert type(vector).__name__ == "GymnasiumVectorEnv"
    assert vector.reset(seed=0)[0].shape == (4, 225)


def test_numbers_and_kinds_of_integers_do_not_retrace():
    traced = []

    class Counted(envs.CartPole):
        def step_env(self, key, state, action, params):
            traced.append(action)
            return super().step_env(key, state, action, params)

    two = envs.to_gymnasium(Counted(), params={"length": 0.7})
    one = envs.to_gymnasium(Counted())
    assert one.programs is two.programs
    one.reset(seed=0)
    one.step(0)
    before = len(traced)
    assert before > 0
    for env in (one, two):
        env.reset(seed=0)
        for action in (0, np.int64(1), np.int32(0)):
            env.step(action)
    assert len(traced) == before

    class Unhashable(envs.CartPole):
        __hash__ = None  # a plain dataclass with fields is so

    mine = envs.to_gymnasium(Unhashable())
    obs, _ = mine.reset(seed=0)
    np.testing.assert_array_equal(obs, two.reset(seed=0)[0])


theirs = gymnasium.spaces
INSIDE = theirs.Tuple((theirs.MultiBinary((1,)), theirs.Discrete(3)))


SPACES = [
    (Box(0, 255, (2,), np.uint8), theirs.Box(0, 255, (2,), np.uint8)),
    (
        Box([0.0, -np.inf], [1.0, 1.0]),
        theirs.Box(np.array([0, -np.inf], np.float32), np.ones(2, np.float32)),
    ),
    (MultiBinary((2, 2)), theirs.MultiBinary((2, 2))),
    (
        Dict({"b": Discrete(2), "a": Tuple((MultiBinary(1), Discrete(3)))}),
        theirs.Dict({"b": theirs.Discrete(2), "a": INSIDE}),
    ),
]


@pytest.mark.parametrize(("space", "expected"), SPACES)
def test_spaces(space, expected):
    assert to_gym_space(space) == expected
    # And back, from Gymnasium's to ours.
    assert repr(as_space(expected)) == repr(space)

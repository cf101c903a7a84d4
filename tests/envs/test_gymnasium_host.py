"""Gymnasium's environments as training on the host sees them."""

import itertools

import chex
import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import purerl
from purerl import envs
from purerl.acting.evaluate import play_episodes
from purerl.envs.adapters.gymnasium_spaces import (
    batch_action,
    from_gym_space,
    from_observation,
)
from purerl.networks.distributions import make_head
from tests.helpers import tiny_config

SPACES = spaces.Dict(
    {
        "picture": spaces.Box(0, 255, (2, 2, 3), np.uint8),
        "number": spaces.Box(-np.inf, np.inf, (2,), np.float64),
        "whole": spaces.Box(-(2**62), 2**62, (), np.int64),
        "choice": spaces.Discrete(3, start=-1),
        "pair": spaces.Tuple(
            (spaces.MultiDiscrete([2, 3], start=[4, 5]), spaces.MultiBinary(2))
        ),
    }
)


class Everything(gymnasium.Env):
    """Observations of all kinds, counted on by the actions; ends after two steps.

    Its infos have another length each time, so that no vector can stack them.
    """

    lengths = itertools.count()

    observation_space = SPACES

    def __init__(self, action_space=None):
        self.action_space = action_space or spaces.MultiDiscrete([2, 3], start=[4, 5])
        self.taken = []

    def _obs(self):
        return {
            "picture": np.full((2, 2, 3), 10 * self.time, np.uint8),
            "number": np.array([self.time, 0.5]),
            "whole": np.array(7 * self.time, np.int64),
            "choice": np.int64(self.time - 1),
            "pair": (np.array([4, 5 + self.time]), np.array([1, 0], np.int8)),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._obs(), {"path": np.zeros(next(self.lengths))}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.taken.append(action)
        self.time += 1
        info = {"path": np.zeros(next(self.lengths))}
        return self._obs(), float(np.sum(action)), False, self.time == 2, info


@pytest.fixture(scope="module", autouse=True)
def registered():
    for kind in (Everything, Parts):
        if f"purerl-test/{kind.__name__}-v0" not in gymnasium.registry:
            gymnasium.register(f"purerl-test/{kind.__name__}-v0", entry_point=kind)


def test_spaces_observations_and_actions():
    env = envs.make("gymnasium/purerl-test/Everything-v0")
    space = env.observation_space()
    assert repr(space.spaces["choice"]) == "Discrete(3)"
    assert repr(space.spaces["pair"]) == "Tuple(MultiDiscrete([2, 3]), MultiBinary(2))"
    lanes = env.start(2)
    first = lanes.reset(0)
    step = lanes.step(np.array([[0, 0], [1, 2]], np.int32))
    last = lanes.step(np.array([[0, 0], [1, 2]], np.int32))
    np.testing.assert_array_equal(step.reward, [4 + 5, 5 + 7])
    seen = first, step.obs, step.next_obs, last.next_obs
    for time, obs in zip((0, 1, 1, 2), seen, strict=True):
        expected = {
            "picture": np.full((2, 2, 3), 10 * time, np.uint8),
            "number": np.float32([time, 0.5]),
            "whole": np.array(7 * time, np.int32),
            "choice": np.array(time, np.int32),
            "pair": (np.array([0, time], np.int32), np.array([1, 0], np.int8)),
        }
        one = jax.tree.map(lambda x: np.asarray(x[1]), obs)
        chex.assert_trees_all_equal(one, expected, strict=True)
        assert space.contains(one)
        for name in ("picture", "number", "whole", "choice"):
            assert space[name].dtype == one[name].dtype
    assert last.truncated.all() and not last.terminated.any()
    np.testing.assert_array_equal(last.obs["whole"], 0)  # of the next episodes
    lanes.close()


# Two stacked frames of 5 x 4 bytes: `100 * frame + 10 * row + column`.
FRAMES = sum(
    x * y for x, y in zip((100, 10, 1), np.indices((2, 5, 4)), strict=True)
).astype(np.uint8)
COLOURS = np.stack([FRAMES, FRAMES + 1, FRAMES + 2], -1)
BOTH = np.concatenate([COLOURS[0], COLOURS[1]], -1)  # [5, 4, frame and colour]
GREY = np.arange(28 * 30).reshape(28, 30).astype(np.uint8)
TABLE = np.zeros((4, 128), np.uint8)  # Too small for a picture.
LARGE = np.array([2**32 + 5, 7])
SEEN = {
    "stacked": (255, FRAMES, np.moveaxis(FRAMES, 0, -1)),
    "grey": (255, GREY, GREY[..., None]),
    "colours": (255, COLOURS, BOTH),
    "turned": (255, np.moveaxis(COLOURS, -1, 1), BOTH),
    "table": (255, TABLE, TABLE),
    "bits": (1, FRAMES // 255, FRAMES // 255),
    "planes": (255, FRAMES.astype(np.float32), FRAMES.astype(np.float32)),
    # What 32 bits do not hold stays at the end of the space.
    "large": (2**40, LARGE, np.array([2**31 - 1, 7], np.int32)),
}


@pytest.mark.parametrize("kind", SEEN)
def test_channels_of_pictures_of_bytes_come_last(kind):
    """The network takes `[height, width, channels]`; Gymnasium stacks frames first."""
    high, theirs, ours = SEEN[kind]
    space = spaces.Box(0, high, theirs.shape, theirs.dtype)
    seen = from_observation(space, np.stack([theirs, theirs]))
    np.testing.assert_array_equal(seen, [ours, ours])
    mine = from_gym_space(space, "observations")
    assert mine.shape == ours.shape and mine.dtype == seen.dtype == ours.dtype
    assert mine.contains(seen[0])


def random_box(seed, dtype):
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.normal(size=(2, 50)) * 10.0 ** rng.integers(-3, 4, 50), axis=0)
    return spaces.Box(*ends.astype(dtype), dtype=dtype)


BOXES = [
    spaces.Box(-0.4, 0.7, (3,), np.float32),
    spaces.Box(-0.1, 0.1, (3,), np.float64),
    spaces.Box(np.array([-np.inf, -0.1]), np.array([0.1, np.inf]), dtype=np.float64),
    *(random_box(seed, dtype) for seed in range(3) for dtype in (np.float32, float)),
]


@pytest.mark.parametrize("box", BOXES, ids=[f"box{i}" for i in range(len(BOXES))])
@pytest.mark.parametrize("policy", ["gaussian", "tanh_gaussian"])
def test_actions_at_the_bounds_are_members(box, policy):
    """Centre plus radius, and bounds of 32 bits, lie beyond the bounds by rounding."""
    if policy == "tanh_gaussian" and not box.is_bounded():
        return
    head = make_head(from_gym_space(box, "actions"), policy)
    size = box.shape[0]
    raw = np.stack([np.full(size, end, np.float32) for end in (-1e4, 0.0, 1e4)])
    action = np.asarray(head.to_env(raw))
    taken = batch_action(box, action)
    assert taken.dtype == box.dtype
    assert all(box.contains(one) for one in taken)
    # Not moved by more than the rounding, the bounds included.
    bounded = box.bounded_below & box.bounded_above
    wide = np.where(bounded, np.maximum(np.abs(box.low), np.abs(box.high)), 1.0)
    assert (np.abs(taken - action) <= 3e-7 * wide).all()
    ends = np.stack([box.low, box.high])[:, bounded]
    found, most = taken[::2, bounded], 3e-7 * wide.max()
    np.testing.assert_allclose(found, ends, rtol=0, atol=most)


INTEGERS = [spaces.Box(0, 3, (2,), dtype) for dtype in (np.int64, np.uint8)]
INTEGERS.append(spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 3, (1,), int))))


@pytest.mark.parametrize("space", INTEGERS)
def test_a_box_of_integers_is_refused_as_actions(space):
    env = "gymnasium/purerl-test/Everything-v0"
    sentence = "actions of gymnasium/purerl-test/Everything-v0 .*integers.*MultiDisc"
    with pytest.raises(ValueError, match=sentence):
        envs.make(env, action_space=space)
    config = purerl.PPOConfig(env=env, env_kwargs={"action_space": space})
    with pytest.raises(purerl.ConfigError, match=sentence):
        purerl.run(config, progress=False)


class Old(Everything):
    """Its `reset` returns no infos, as before Gymnasium."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


def test_a_reset_without_infos_is_not_taken_for_one_with_them():
    gymnasium.register("Old-v0", Old, disable_env_checker=True)
    with pytest.raises(ValueError, match="unpack"):
        envs.make("gymnasium/Old-v0").start(1).reset(0)


def test_only_the_first_episode_of_each_counts():
    """Both actions of CartPole in turn; as Gymnasium's own environment plays it."""
    expected = []
    for seed in (11, 12, 13):
        env = gymnasium.make("CartPole-v1")
        env.reset(seed=seed)
        length, done = 0, False
        while not done:
            *_, terminated, truncated, _ = env.step(length % 2)
            length, done = length + 1, terminated or truncated
        expected.append(length)
    assert len(set(expected)) > 1

    def act(obs, memory):
        return np.full(3, memory % 2), memory + 1

    lanes = envs.make("gymnasium/CartPole-v1").start(3)
    played = play_episodes(lanes, act, 0, 11, 500)
    np.testing.assert_array_equal(played["episode_length"], expected)
    np.testing.assert_array_equal(played["episode_return"], expected)  # 1 a step
    assert played["cut_episodes"] == 0
    short = play_episodes(lanes, act, 0, 11, 5)
    np.testing.assert_array_equal(short["episode_length"], [5, 5, 5])
    assert short["cut_episodes"] == 3
    lanes.close()


class Parts(gymnasium.Env):
    """Actions of several parts; pays the force, and ends after three steps."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    action_space = spaces.Dict(
        {
            "side": spaces.Tuple((spaces.Discrete(2, start=1),)),
            "force": spaces.Box(0.0, 1.0, (1,)),
        }
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.time += 1
        force = float(action["force"].sum())
        return np.zeros(2, np.float32), force, self.time == 3, False, {}


def test_actions_of_several_parts_train_and_play():
    env = "gymnasium/purerl-test/Parts-v0"
    config = tiny_config(env=env, total_timesteps=32, num_evaluations=0)
    result = purerl.run(config, progress=False)
    assert (result.metrics["episode_length"] == 3).all()
    played = purerl.evaluate(result, episodes=2)
    assert (played.episode_length == 3).all() and not played.cut_episodes.any()
    assert np.isfinite(played.episode_return).all()

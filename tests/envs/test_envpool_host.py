"""EnvPool's environments as training on the host sees them."""

import numpy as np
import pytest

import purerl
from purerl import envs

envpool = pytest.importorskip("envpool")
# EnvPool itself, where a test asks it, makes boxes of 32 bits of bounds of 64.
pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting")
CARTPOLE = "envpool/CartPole-v1"
LANES, LIMIT = 4, 40  # a limit that some episodes reach, and others do not


def lean(obs):
    """Push to where the pole leans, which swings it up to a fall in some 40 steps."""
    return (obs[:, 2] > 0).astype(np.int32)


def played(lanes, seed, steps, policy=lean):
    """Observations before the steps, and the steps."""
    obs, rows = lanes.reset(seed), []
    for _ in range(steps):
        action = policy(obs)
        step = lanes.step(action)
        rows.append((obs, action, step))
        obs = step.obs
    return rows


@pytest.fixture(scope="module")
def rows():
    lanes = envs.make(CARTPOLE, max_episode_steps=LIMIT).start(LANES)
    found = played(lanes, 11, 120)
    lanes.close()
    return found


def test_episodes_are_whole_and_cut_at_the_limit(rows):
    """None is longer than the limit, and none but those of that length is cut."""
    lengths = np.zeros(LANES, int)
    cut, fell = 0, 0
    for (obs, _, step), (after, *_) in zip(rows, [*rows[1:], rows[-1]], strict=True):
        done = step.terminated | step.truncated
        lengths += 1
        assert not (step.terminated & step.truncated).any()
        np.testing.assert_array_equal(step.truncated, (lengths == LIMIT) & done)
        np.testing.assert_array_equal(done, step.terminated | (lengths == LIMIT))
        # The next episode begins in the same step, near the middle; others go on.
        assert (np.abs(step.obs[done]) <= 0.05).all()
        np.testing.assert_array_equal(step.obs[~done], step.next_obs[~done])
        assert (step.obs[done] != step.next_obs[done]).all()
        if after is not obs:
            np.testing.assert_array_equal(after, step.obs)
        lengths[done] = 0
        cut, fell = cut + step.truncated.sum(), fell + step.terminated.sum()
    assert cut > 3 and fell > 3


def of_pixels(obs):
    """Any of Breakout's four actions, drawn by the picture."""
    return (obs.reshape(len(obs), -1).sum(1) % 4).astype(np.int32)


@pytest.mark.parametrize(
    ("task", "policy", "options"),
    [
        ("CartPole-v1", lean, {"max_episode_steps": LIMIT}),
        # A lost life ends an episode, and the next one goes on with the game.
        pytest.param(
            "Breakout-v5",
            of_pixels,
            {"episodic_life": True, "max_episode_steps": 90},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_no_step_is_lost_or_doubled(task, policy, options):
    """Bit for bit what EnvPool plays by itself, without the steps that only reset."""
    lanes = envs.make(f"envpool/{task}", **options).start(LANES)
    rows = played(lanes, 11, 150, policy)
    lanes.close()
    pool = envpool.make_gymnasium(task, num_envs=LANES, seed=11, **options)
    obs, _ = pool.reset()
    alone, done = [[] for _ in range(LANES)], np.zeros(LANES, bool)
    for _ in range(len(rows) + 25):
        action = policy(obs)
        found, reward, terminated, truncated, _ = pool.step(action)
        before, after = (np.moveaxis(x, 1, -1) for x in (obs, found))  # channels last
        for i in np.flatnonzero(~done):
            over = terminated[i] or truncated[i]
            alone[i].append((before[i], action[i], after[i], reward[i], over))
        assert (reward[done] == 0).all()
        obs, done = found, terminated | truncated
    ends = 0
    for i in range(LANES):
        mine = [
            (
                obs[i],
                action[i],
                s.next_obs[i],
                s.reward[i],
                s.terminated[i] or s.truncated[i],
            )
            for obs, action, s in rows
        ]
        assert len(mine) == len(rows) <= len(alone[i])
        for one, other in zip(mine, alone[i], strict=False):
            for a, b in zip(one, other, strict=True):
                np.testing.assert_array_equal(a, b)
        ends += sum(row[-1] for row in mine)
    assert ends > 2 * LANES


def test_a_fall_in_the_step_of_the_limit_is_a_fall():
    """EnvPool calls it a truncation, from which training would bootstrap."""

    def push(obs):
        return np.ones(len(obs), np.int32)

    def first_end(limit):
        lanes = envs.make(CARTPOLE, max_episode_steps=limit).start(1)
        steps = [step for *_, step in played(lanes, 5, 20, push)]
        length = next(
            t for t, s in enumerate(steps, 1) if s.terminated[0] or s.truncated[0]
        )
        return length, steps[length - 1]

    natural, last = first_end(100)
    assert 5 < natural < 15 and last.terminated[0]
    for limit, falls in ((natural, True), (natural - 1, False)):
        length, end = first_end(limit)
        flags = end.terminated[0], end.truncated[0]
        assert (length, *flags) == (limit, falls, not falls)
        assert (end.next_obs == last.next_obs).all() == falls
    # What EnvPool itself says.
    pool = envpool.make_gymnasium(
        "CartPole-v1", num_envs=1, seed=5, max_episode_steps=natural
    )
    pool.reset()
    for _ in range(natural):
        *_, terminated, truncated, _ = pool.step(np.ones(1, np.int32))
    assert truncated[0] and not terminated[0]


def test_a_seed_fixes_every_environment():
    env = envs.make(CARTPOLE)
    four, two = env.start(4), env.start(2)
    first = four.reset(7)
    assert len(np.unique(first[:, 0])) == 4
    steps = played(four, 7, 40)
    again = played(four, 7, 40)
    for (obs, action, one), (obs_again, action_again, other) in zip(
        steps, again, strict=True
    ):
        np.testing.assert_array_equal(obs, obs_again)
        np.testing.assert_array_equal(action, action_again)
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
    # Environment i has the seed of the first one plus i, with how many soever.
    np.testing.assert_array_equal(two.reset(9), first[2:])
    assert not np.array_equal(four.reset(8), first)
    assert np.isfinite(four.reset(2**31 - 1)).all()  # the largest that training gives
    four.close()
    two.close()


def test_the_channels_of_pictures_come_last():
    env = envs.make("envpool/Breakout-v5")
    assert repr(env.observation_space()) == "Box(0, 255, (84, 84, 4), uint8)"
    lanes = env.start(1)
    obs = lanes.reset(0)
    assert obs.shape == (1, 84, 84, 4) and obs.dtype == np.uint8
    # The last channel is the newest frame, and the one before it the frame before.
    after = lanes.step(np.array([1])).next_obs
    np.testing.assert_array_equal(after[..., :3], obs[..., 1:])
    lanes.close()


@pytest.mark.parametrize(
    ("id", "options", "sentence"),
    [
        ("CartPole-v9", {}, "EnvPool has no 'CartPole-v9'. Did you mean 'CartPole-v1"),
        ("CartPole-v1", {"gravity": 3}, "cannot be made with these env_kwargs.*gravit"),
        ("CartPole-v1", {"num_envs": 3}, "num_envs in env_kwargs of .* is decided by"),
        ("CartPole-v1", {"max_num_players": 2}, "has up to 2 players, and training"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(id, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        envs.make(f"envpool/{id}", **options)
    config = purerl.PPOConfig(env=f"envpool/{id}", env_kwargs=options)
    with pytest.raises(purerl.ConfigError, match=sentence):
        purerl.run(config, progress=False)

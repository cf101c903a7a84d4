"""Wrappers around observations that are dictionaries, such as those with a mask."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs
from purerl.envs import wrappers
from purerl.envs.cartpole import CartPole
from purerl.envs.spaces import Box, Dict, Discrete
from tests import boxes
from tests.envs.episodes import played

HALVES = {"cart": slice(0, 2), "pole": slice(2, 4)}


def right_of_the_middle(state, params):
    """Pushing to the left is valid right of the middle, and to the right always."""
    while hasattr(state, "inner"):
        state = state.inner
    return jnp.stack([state.x > 0.0, True])


def masked(env):
    return envs.ActionMask(env, right_of_the_middle)


class Halves(CartPole):
    """CartPole whose cart and whose pole are a vector each."""

    def observation_space(self, params=None):
        whole = super().observation_space(params)
        halves = HALVES.items()
        return Dict({n: Box(whole.low[h], whole.high[h], (2,)) for n, h in halves})

    def reset_env(self, key, params):
        obs, state = super().reset_env(key, params)
        return {name: obs[half] for name, half in HALVES.items()}, state

    def step_env(self, key, state, action, params):
        obs, *rest = super().step_env(key, state, action, params)
        return {name: obs[half] for name, half in HALVES.items()}, *rest


def play(env, number=8):
    """Observations, rewards and actions of the first steps of an episode."""
    actions, params = jnp.arange(number) % 2, env.default_params
    (first, _), steps = played(env, params, jax.random.key(0), number, actions)
    assert jax.vmap(env.observation_space(params).contains)(steps.final).all()
    assert jax.tree.structure(first) == jax.tree.structure(steps.final)
    seen = steps.final, steps.reward, steps.action
    rows = [jax.tree.map(lambda x, i=i: x[i], seen) for i in range(number)]
    return [(first, None, None), *rows]


@pytest.mark.parametrize("padding", ["reset", "zero"])
def test_every_key_is_stacked_and_the_mask_is_the_newest(padding):
    inner = masked(Halves())
    env = wrappers.FrameStack(inner, 3, padding)
    stacked, bare = play(env), play(inner)
    for i, (obs, *_) in enumerate(stacked):
        for key in ("cart", "pole"):
            first = bare[0][0][key] * (padding == "reset")
            frames = [bare[j][0][key] if j >= 0 else first for j in range(i - 2, i + 1)]
            np.testing.assert_array_equal(obs[key], np.concatenate(frames))
        np.testing.assert_array_equal(obs["action_mask"], bare[i][0]["action_mask"])
    assert env.observation_space()["cart"].shape == (6,)


def test_the_time_is_a_key_of_its_own():
    inner = masked(CartPole())
    env = wrappers.TimeObservation(inner)
    for i, ((obs, *_), (bare, *_)) in enumerate(
        zip(play(env), play(inner), strict=True)
    ):
        np.testing.assert_allclose(obs["time"], [i / 500], rtol=1e-6)
        assert set(obs) == {"observation", "action_mask", "time"}
        for key, value in bare.items():
            np.testing.assert_array_equal(obs[key], value)


def test_the_previous_action_and_reward_are_a_key_of_their_own():
    inner = masked(CartPole())
    env = wrappers.PreviousActionReward(wrappers.ScaleReward(inner, 0.5))
    for (obs, reward, action), (bare, *_) in zip(play(env), play(inner), strict=True):
        done = [0.0, 0.0] if action is None else np.eye(2)[action]
        expected = [*done, 0.0 if reward is None else 0.5]
        np.testing.assert_array_equal(obs["previous"], np.float32(expected))
        np.testing.assert_array_equal(obs["observation"], bare["observation"])
    space = env.observation_space()["previous"]
    np.testing.assert_array_equal(space.low, [0.0, 0.0, -np.inf])
    np.testing.assert_array_equal(space.high, [1.0, 1.0, np.inf])


class Odd(CartPole):
    """CartPole with a further entry in its space of observations, which is all read."""

    def __init__(self, key, space):
        self.key, self.space = key, space

    def observation_space(self, params=None):
        cart = super().observation_space(params)
        return Dict({"cart": cart, self.key: self.space})


MISFITS = [
    (wrappers.FrameStack, "door", Discrete(3), r"observes Discrete\(3\); put One"),
    (
        wrappers.TimeObservation,
        "time",
        Box(0.0, 1.0, (1,)),
        "has the key 'time' already",
    ),
    *(
        (repeats, "action_mask", Box(0.0, 1.0, (2,)), "may be invalid in")
        for repeats in (wrappers.StickyActions, wrappers.ActionRepeat)
    ),
]


@pytest.mark.parametrize(("kind", "key", "space", "words"), MISFITS)
def test_entries_that_do_not_fit_are_refused_in_a_sentence(kind, key, space, words):
    with pytest.raises(ValueError, match=words):
        kind(Odd(key, space))


def test_the_mask_is_that_of_the_state_which_the_observation_shows():
    inner, key = CartPole(), jax.random.key(0)
    env = masked(inner)
    params = env.default_params
    obs, state = env.reset(key, params)
    plain, _ = inner.reset(key, params)
    np.testing.assert_array_equal(obs["observation"], plain)
    assert env.observation_space(params).contains(obs)
    seen = set()
    for i in range(20):
        key = jax.random.key(i)
        obs, state, *_, info = env.step(key, state, jnp.int32(i % 2), params)
        for one in (obs, info["final_observation"]):
            expected = [int(one["observation"][0] > 0.0), 1]
            np.testing.assert_array_equal(one["action_mask"], expected)
            seen.add(expected[0])
        state = state.replace(x=-state.x)
    assert seen == {0, 1}


def test_what_can_have_no_mask_is_refused():
    with pytest.raises(ValueError, match="mask must be a function, got 3"):
        envs.ActionMask(boxes.PackedCartPole(), 3)
    with pytest.raises(ValueError, match="must be Discrete or MultiDiscrete"):
        envs.ActionMask(boxes.Privileged(is_discrete=False), right_of_the_middle)

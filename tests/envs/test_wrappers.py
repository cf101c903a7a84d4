"""Wrappers against what Python makes of the same episodes, resets inside."""

import dataclasses
from collections import deque
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from purerl import envs
from purerl.envs import wrappers
from purerl.envs.cartpole import CartPole
from purerl.envs.spaces import Box, Discrete, MultiDiscrete
from tests import boxes
from tests.envs.episodes import played

STEPS = 48


@struct.dataclass
class LadderState(envs.EnvState):
    start: jax.Array


@struct.dataclass
class LadderParams(envs.EnvParams):
    max_steps_in_episode: int | jax.Array = 7
    goal: float | jax.Array = 9.0


@dataclasses.dataclass(unsafe_hash=True)
class Ladder(envs.Environment[LadderState, LadderParams]):
    """A start `0 .. 4` is drawn; every action climbs. The reward tells the action."""

    kind: str = "vector"
    continuous: bool = False
    stochastic_transitions: ClassVar[bool] = False

    @property
    def default_params(self):
        return LadderParams()

    def action_space(self, params=None):
        return Box(-2.0, 2.0, (2,)) if self.continuous else Discrete(3)

    def observation_space(self, params=None):
        if self.kind == "discrete":
            return Discrete(16)
        if self.kind == "image":
            return Box(1, 16, (2, 3, 2), np.uint8)
        return Box(0.5, 16.0, (2,))

    def _observe(self, state):
        if self.kind == "discrete":
            return state.start + state.time
        if self.kind == "image":
            first = (state.start + state.time + 1).astype(jnp.uint8)
            return jnp.arange(12, dtype=jnp.uint8).reshape(2, 3, 2) % 3 + first
        return jnp.stack([state.start + 0.5, state.time + 1.0])

    def reset_env(self, key, params):
        state = LadderState(jnp.int32(0), jax.random.randint(key, (), 0, 5))
        return self._observe(state), state

    def step_env(self, key, state, action, params):
        state = LadderState(state.time + 1, state.start)
        executed = jnp.sum(action).astype(jnp.float32)
        reward = executed + 10.0 * state.time
        terminated = state.start + state.time >= params.goal
        return self._observe(state), state, reward, terminated, {"executed": executed}

    def render(self, state, params=None):
        return np.full((1, 1, 3), int(state.time), np.uint8)


@partial(jax.jit, static_argnums=0)
def episodes(env, params):
    return played(env, params, jax.random.key(0), STEPS)


def play(env, params=None):
    """First observation, and `[T]` lists of what `step` returned and of the action.

    Actions and keys are the same for all, so that a wrapper that draws nothing plays
    the bare environment's episodes.
    """
    params = env.default_params if params is None else params
    (first, _), steps = jax.tree.map(np.asarray, episodes(env, params))
    kept = (steps.obs, steps.final, steps.reward, steps.terminated, steps.truncated)
    rows = zip(*kept, steps.info["executed"], steps.action, strict=True)
    return first, list(rows)


def assert_equal(wrapped, expected):
    """What `play` returned equals `(first, [(obs, final, reward, ...)])`."""
    first, steps = wrapped
    np.testing.assert_array_equal(first, expected[0])
    for step, wanted in zip(steps, expected[1], strict=True):
        for mine, theirs in zip(step, wanted, strict=False):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "padding"), [("vector", "reset"), ("image", "reset"), ("image", "zero")]
)
def test_frame_stack(kind, padding):
    bare = Ladder(kind)
    first, steps = play(bare)
    frames: deque = deque(maxlen=3)

    def fill(obs):
        before = obs if padding == "reset" else np.zeros_like(obs)
        frames.extend([before, before, obs])
        return np.concatenate(frames, -1)

    start, wanted = fill(first), []
    for obs, final, reward, terminated, truncated, *_ in steps:
        frames.append(final)
        seen = np.concatenate(frames, -1)
        now = fill(obs) if terminated or truncated else seen
        wanted.append((now, seen, reward, terminated, truncated))
    env = wrappers.FrameStack(bare, 3, padding)
    assert_equal(play(env), (start, wanted))
    space = env.observation_space()
    assert space.dtype == bare.observation_space().dtype
    lowest = bare.observation_space().low.min()
    assert space.low.min() == (0 if padding == "zero" else lowest)
    assert space.contains(jnp.asarray(start))


def test_action_repeat_adds_up_and_stops_at_both_ends():
    bare, n = Ladder(), 3
    params = bare.default_params
    env = wrappers.ActionRepeat(bare, n)
    key_reset, _, key_steps = jax.random.split(jax.random.key(0), 3)
    obs, state = bare.reset_env(key_reset, params)
    wanted, lengths = [], []
    actions = [action for *_, action in play(bare)[1]]
    for action, key in zip(actions, jax.random.split(key_steps, STEPS), strict=True):
        total, count = 0.0, 0
        for _ in range(n):
            final, state, reward, terminated, _ = bare.step_env(
                key, state, action, params
            )
            total, count = total + float(reward), count + 1
            truncated = int(state.time) >= 7 and not bool(terminated)
            if terminated or truncated:
                break
        now = final
        if terminated or truncated:
            now, state = bare.reset_env(key, params)
        wanted.append((now, final, total, bool(terminated), truncated))
        lengths.append(count)
    assert {1, 2} & set(lengths)  # Some were cut short within the repeat.
    assert_equal(play(env), (np.asarray(obs), wanted))
    assert env.time_per_step == 3
    assert wrappers.ActionRepeat(env, 2).time_per_step == 6


def test_time_observation():
    bare = Ladder()
    first, steps = play(bare)
    share, wanted = 0, []
    for obs, final, reward, terminated, truncated, *_ in steps:
        share += 1
        seen = np.append(final, np.float32(share / 7))
        share = 0 if terminated or truncated else share
        now = np.append(obs, np.float32(share / 7))
        wanted.append((now, seen, reward, terminated, truncated))
        assert truncated == (seen[-1] == 1) or terminated
    env = wrappers.TimeObservation(bare)
    assert_equal(play(env), (np.append(first, 0), wanted))
    assert env.observation_space().high[-1] == 1.0


def test_a_terminal_limit_terminates_where_the_environment_is_truncated():
    first, steps = play(Ladder())
    wanted = [
        (obs, final, reward, terminated | truncated, np.False_)
        for obs, final, reward, terminated, truncated, *_ in steps
    ]
    assert_equal(play(wrappers.TerminalLimit(Ladder())), (first, wanted))
    # Also of a wrapper whose state is not that of the environment inside.
    inside = wrappers.FrameStack(Ladder(), 2)
    flags = [step[3:5] for step in play(wrappers.TerminalLimit(inside))[1]]
    assert flags == [step[3:5] for step in wanted]


@pytest.mark.parametrize("continuous", [False, True])
def test_previous_action_and_reward(continuous):
    bare = Ladder(continuous=continuous)
    first, steps = play(bare)
    size, wanted = (2 if continuous else 3), []
    for obs, final, reward, terminated, truncated, _, action in steps:
        told = action if continuous else np.eye(3, dtype=np.float32)[action]
        seen = np.concatenate([final, told, [reward]])
        begun = np.concatenate([obs, np.zeros(size + 1)])
        now = begun if terminated or truncated else seen
        wanted.append((now, seen, reward, terminated, truncated))
    env = wrappers.PreviousActionReward(bare)
    assert_equal(play(env), (np.append(first, np.zeros(size + 1)), wanted))
    space = env.observation_space()
    low, high = ([-2.0] * 2, [2.0] * 2) if continuous else ([0.0] * 3, [1.0] * 3)
    np.testing.assert_array_equal(space.low[2:], [*low, -np.inf])
    np.testing.assert_array_equal(space.high[2:], [*high, np.inf])


PAID = {
    wrappers.ClipReward: (
        {"reward_low": 11.0, "reward_high": 31.0},
        lambda reward: min(max(reward, 11.0), 31.0),
    ),
    wrappers.ScaleReward: ({"reward_factor": 0.25}, lambda reward: 0.25 * reward),
}


@pytest.mark.parametrize("make", PAID)
def test_rewards_are_paid_by_numbers_among_the_parameters(make):
    numbers, pay = PAID[make]
    first, steps = play(Ladder())
    wanted = [(obs, final, pay(reward), *rest) for obs, final, reward, *rest in steps]
    env = make(Ladder())
    assert_equal(play(env, env.default_params.replace(**numbers)), (first, wanted))
    made = make(Ladder(), *numbers.values())
    assert {n: getattr(made.default_params, n) for n in numbers} == numbers
    assert_equal(play(made), (first, wanted))


FORMS = {
    "OneHotObservation": ("discrete", lambda obs: np.eye(16)[obs]),
    "FlattenObservation": ("image", np.ravel),
    "SelectObservation((1,))": ("vector", lambda obs: obs[[1]]),
}


@pytest.mark.parametrize("text", FORMS)
def test_observations_in_another_form(text):
    kind, form = FORMS[text]
    first, steps = play(Ladder(kind))
    wanted = [(form(obs), form(final), *rest) for obs, final, *rest in steps]
    env = envs.wrap(Ladder(kind), (text,))
    assert_equal(play(env), (form(first), wanted))
    assert env.observation_space().dtype == np.float32


def test_a_selection_has_the_bounds_of_what_it_shows():
    both = envs.wrap(CartPole(), ("SelectObservation((2, 0))",)).observation_space()
    high = np.asarray(CartPole().observation_space().high)[[2, 0]]
    np.testing.assert_array_equal(both.high, high)


def test_sticky_actions_stick_with_their_probability():
    """Actions count up, so that every repeated one is seen."""
    env = wrappers.StickyActions(Ladder(continuous=True))
    params = env.default_params.replace(max_steps_in_episode=5_000, goal=1e9)
    num_steps = 4_000
    actions = jnp.stack([jnp.arange(num_steps, dtype=jnp.float32)] * 2, -1) / 2

    @jax.jit
    def play(probability):
        now = params.replace(sticky_probability=probability)
        _, steps = played(env, now, jax.random.key(3), num_steps, actions)
        return steps.info["executed"]

    for probability in (0.0, 0.25, 1.0):
        executed = np.asarray(play(probability))
        is_new = executed == np.arange(num_steps)
        is_old = ~is_new[1:]
        np.testing.assert_array_equal(executed[1:][is_old], executed[:-1][is_old])
        assert is_new[0]
        # Four standard errors of the share of 4,000 draws.
        error = 4 * np.sqrt(probability * (1 - probability) / num_steps)
        assert abs(np.mean(is_old) - probability) <= error


def test_wrappers_compose_and_their_order_counts():
    texts = ("ScaleReward(0.5)", "ClipReward(0, 8)", "FrameStack(2)", "TimeObservation")
    one = envs.wrap(Ladder(), texts)
    obs = play(one)[1][0][0]
    assert obs.shape == (5,) and obs[-1] == np.float32(1 / 7)
    other = envs.wrap(Ladder(), ("ClipReward(0, 8)", "ScaleReward(0.5)"))
    bare = play(Ladder())[1]
    for mine, theirs, plain in zip(play(one)[1], play(other)[1], bare, strict=True):
        assert mine[2] == min(0.5 * plain[2], 8) and theirs[2] == 0.5 * min(plain[2], 8)


def test_numbers_of_the_environment_inside_keep_their_names_and_move_it():
    env = envs.wrap(CartPole(), ("StickyActions(0.1)", "ScaleReward(2.0)"))
    heavy = env.default_params.replace(gravity=12.0, sticky_probability=0.0)
    bare = CartPole().default_params.replace(gravity=12.0)
    key, action = jax.random.key(1), jnp.int32(1)
    _, state = env.reset(key, heavy)
    obs, _, reward, *_ = env.step_env(key, state, action, heavy)
    expected, *_ = CartPole().step_env(key, state.inner, action, bare)
    np.testing.assert_array_equal(obs, expected)
    assert reward == 2.0


def test_pictures_names_and_time_are_those_of_the_environment_inside():
    env = envs.wrap(CartPole(), ("FrameStack(2)", "ScaleReward(2.0)", "StickyActions"))
    assert env.name == "CartPole-v1" and env.stochastic_transitions
    assert not wrappers.FrameStack(CartPole()).stochastic_transitions
    ladder = envs.wrap(Ladder(), ("StickyActions", "FrameStack(2)"))
    _, state = ladder.reset(jax.random.key(0))
    _, state, *_ = ladder.step_env(
        jax.random.key(0), state, jnp.int32(0), ladder.default_params
    )
    assert ladder.has_picture
    assert int(state.time) == 1 and (ladder.render(state) == 1).all()
    assert not envs.wrap(envs.make("probe/memory"), ("FrameStack",)).has_picture


class Foreign:
    """An environment that only resets by itself."""

    default_params = LadderParams()
    reset = step = action_space = observation_space = None


MISFITS = [
    (Foreign(), ("ScaleReward",), "wrap the bare environment"),
    (boxes.Wide(), ("PreviousActionReward",), "PreviousActionReward: actions have"),
    (Ladder("image"), ("SelectObservation((0,))",), "observes"),
    *(
        (CartPole(), (f"SelectObservation({bad})",), "indices must be places in a")
        for bad in ("(4,)", "()", "0")
    ),
    (Ladder(), ("FrameStac(3)",), "Did you mean 'FrameStack"),
    (Ladder(), ("FrameStack 3",), "cannot read 'FrameStack 3'"),
    (Ladder(), ("FrameStack(k=3)",), "unexpected keyword argument 'k'"),
    (Ladder(), ("FrameStack(0)",), "n must be a whole number of at least 1"),
    (Ladder("discrete"), ("FrameStack",), "put OneHotObservation or Flatten"),
    (Ladder(), ("OneHotObservation",), "takes discrete observations"),
    (Ladder(), ("ClipReward(1, -1)",), "reward_low must be less than"),
    (Ladder(), ("ScaleReward", "ScaleReward"), "parameter reward_factor already"),
]


@pytest.mark.parametrize(("env", "texts", "words"), MISFITS)
def test_what_does_not_fit_is_refused_in_a_sentence(env, texts, words):
    with pytest.raises(ValueError, match=words):
        envs.wrap(env, texts)


@dataclasses.dataclass(unsafe_hash=True)
class Doubled(wrappers.RewardWrapper):
    def pay(self, reward, step, params):
        return 2.0 * reward


def test_a_wrapper_of_ones_own_is_found_by_its_name(monkeypatch):
    monkeypatch.setattr("purerl.envs.wrappers.WRAPPERS", dict(wrappers.WRAPPERS))
    with pytest.raises(ValueError, match="no wrapper 'Doubled'"):
        envs.wrap(Ladder(), ("Doubled",))
    envs.register_wrapper("Doubled", Doubled)
    envs.register_wrapper("Doubled", Doubled)  # A cell that runs twice.
    assert isinstance(envs.wrap(Ladder(), ("Doubled",)), Doubled)
    assert not wrappers.are_built_in(("FrameStack(2)", "Doubled"))
    assert wrappers.are_built_in(("FrameStack(2)",))
    with pytest.raises(ValueError, match="already registered"):
        envs.register_wrapper("FrameStack", Doubled)
    with pytest.raises(TypeError, match=r"subclass of envs\.Wrapper"):
        envs.register_wrapper("Other", Ladder)


class Paying(CartPole):
    """Pays what it is made with, and chooses several things at once."""

    def __init__(self, reward=1.0):
        super().__init__()
        self.reward = reward

    def action_space(self, params=None):
        return MultiDiscrete([2, 3])

    def step_env(self, key, state, action, params):
        obs, state, _, *rest = super().step_env(key, state, action[0], params)
        return obs, state, self.reward, *rest


def first_step(env, action):
    first, state = env.reset(jax.random.key(0))
    return first, env.step(jax.random.key(1), state, jnp.array(action))


def test_rewards_of_any_kind_are_changed_as_floats():
    scaled = wrappers.ScaleReward(Paying(jnp.int32(1)), 0.1)
    repeated = wrappers.ActionRepeat(Paying(jnp.bool_(True)), 3)
    for env, paid in ((scaled, 0.1), (repeated, 3.0)):
        found = first_step(env, [0, 2])[1][2]
        assert found.dtype == jnp.float32 and found == np.float32(paid)


def test_the_previous_of_several_choices_is_a_single_one_for_each():
    env = wrappers.PreviousActionReward(Paying(jnp.int32(1)))
    first, (obs, *_) = first_step(env, [1, 2])
    assert first[4:].tolist() == [0.0] * 6
    assert obs[4:].tolist() == [0.0, 1.0, 0.0, 0.0, 1.0, 1.0]
    assert env.observation_space().contains(obs)

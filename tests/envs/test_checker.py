"""`envs.check` finds every kind of broken environment, and passes a sound one."""

import dataclasses
from types import SimpleNamespace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import purerl
from purerl import envs
from purerl.envs.base import Environment, EnvParams, EnvState
from purerl.envs.cartpole import CartPole
from purerl.envs.spaces import Box, Discrete
from tests.helpers import tiny_config


@struct.dataclass
class WalkState(EnvState):
    place: jax.Array


@struct.dataclass
class WalkParams(EnvParams):
    max_steps_in_episode: int = 20
    stride: float = 1.0


class Walk(Environment[WalkState, WalkParams]):
    """A sound environment: a walk on a line; the broken ones change one thing of it."""

    stochastic_transitions: ClassVar[bool] = False
    default_params = WalkParams()

    def reset_env(self, key, params):
        place = jax.random.uniform(key, (), minval=-1.0, maxval=1.0)
        return place[None], WalkState(jnp.int32(0), place)

    def step_env(self, key, state, action, params):
        place = state.place + params.stride * (2.0 * action - 1.0)
        next_state = WalkState(state.time + 1, place)
        return place[None], next_state, -jnp.abs(place), jnp.abs(place) > 3, {}

    def action_space(self, params=None):
        return Discrete(2)

    def observation_space(self, params=None):
        return Box(-4.0 - 1e-4, 4.0 + 1e-4, (1,))


def other(base=Walk, **changes):
    """An environment some of whose functions return something else.

    Each change is `(what the sound one returns, its arguments) -> what is returned`.
    """

    def method(name, change):
        return lambda self, *args: change(
            getattr(super(Broken, self), name)(*args), args
        )

    class Broken(base):
        pass

    for name, change in changes.items():
        setattr(Broken, name, method(name, change))
    return Broken


def put(index, make):
    """A function whose value at an index is another, made of all values."""
    return lambda out, _: (*out[:index], make(out), *out[index + 1 :])


def third(index, value):
    """A step whose value at an index is another in the third step."""

    def step(out, args):
        new = jnp.where(args[1].time == 3, value, out[index])
        return *out[:index], new, *out[index + 1 :]

    return step


def final(make):
    """A step with another final observation."""
    return put(5, lambda out: {**out[5], "final_observation": make(out)})


def first(make):
    """A reset with another observation."""
    return put(0, lambda out: make(out[0]))


def space(*arguments, **options):
    """Another observation space."""
    return lambda *_: Box(*arguments, **options)


def closed(space, _):
    """An action space that contains nothing."""
    space.contains = lambda x: jnp.asarray(False)
    return space


def in_parts(space, _):
    return envs.spaces.Dict({"x": space, "y": envs.spaces.Tuple((space,))})


def limit(reached):
    """Another end of time than after the step of the limit."""
    return lambda _, args: reached(args[0].time, args[1].max_steps_in_episode)


def over(past):
    """A step that terminates at the time limit too."""
    return lambda out, args: (
        *out[:3],
        out[3] | past(out[1].time, args[3].max_steps_in_episode),
        out[4],
    )


def never_at_the_limit(out, args):
    """A step that terminates nothing at the time limit."""
    time, most = out[1].time, args[3].max_steps_in_episode
    return *out[:3], (jnp.abs(out[1].place) > 0) & (time < most), out[4]


class WeaklyTyped(Walk):
    def reset_env(self, key, params):
        obs, state = super().reset_env(key, params)
        return obs, state.replace(time=0)

    def step_env(self, key, state, action, params):
        state = state.replace(time=state.time.astype(jnp.int32))
        return super().step_env(key, state, action, params)


class ParamsMustBeConcrete(Walk):
    def step_env(self, key, state, action, params):
        numbers = params.replace(stride=float(params.stride))
        return super().step_env(key, state, action, numbers)


class SaysNothingOfWind(Walk):
    """Draws in a step, and says that it does not."""

    def step_env(self, key, state, action, params):
        wind = 0.2 * jax.random.uniform(key)
        state = state.replace(place=state.place - wind)
        return super().step_env(key, state, action, params)


class Decides(CartPole):
    """Python looks at a number that is traced."""

    def step_env(self, key, state, action, params):
        return super().step_env(key, state, 1 if action > 0 else 0, params)


def whole(out):
    """CartPole's state with a whole number."""
    return out[1].replace(x=jnp.int32(1))


def holed(obs):
    """First observations some of which are infinite."""
    return jnp.where(obs > 0.5, jnp.inf, obs)


@dataclasses.dataclass
class NoPytree:
    place: Any


@struct.dataclass
class NamedParams(WalkParams):
    label: str = "walk"


class ParamsHoldText(Walk):
    default_params = NamedParams()


class NoMethod(Walk):
    action_space = Discrete(2)


class Unsure(Walk):
    """Says that chance is in its steps, so that nothing can be compared."""

    stochastic_transitions: ClassVar[bool] = True


RANDOM = np.random.default_rng(0)
HALF = put(0, lambda out: out[0].astype(jnp.float16))
INFINITE = other(step_env=third(2, jnp.inf))
OTHERS = {
    "x": first(lambda obs: {"x": obs}),
    "y": first(lambda obs: {"x": obs, "y": (jnp.concatenate([obs, obs]),)}),
}
BROKEN = [
    (other(reset_env=lambda out, _: out if out[0] else ()), "reset cannot be traced"),
    (Decides, "without Python decisions"),
    (ParamsMustBeConcrete, "step cannot be traced"),
    (WeaklyTyped, "weakly typed"),
    (other(CartPole, step_env=put(1, whole)), r"x is float32\[\], .* int32\[\]"),
    (other(CartPole, reset_env=put(1, lambda out: vars(out[1]))), "has no attribute"),
    (other(CartPole, reset_env=lambda out, _: out[0]), "expected obs, state"),
    (other(reset=put(1, lambda out: NoPytree(0))), "reset cannot be traced"),
    (other(observation_space=space(-9.0, 9.0, (2,))), r"shape \(1,\).*\(2,\)"),
    (other(step_env=first(lambda x: jnp.append(x, 0))), r"step returns .* \(2,\)"),
    (other(reset_env=HALF), "dtype float16, expected .* float32"),
    (other(observation_space=in_parts, reset_env=OTHERS["x"]), "parts {'x'}, .*'y'"),
    (other(observation_space=in_parts, reset_env=OTHERS["y"]), r"'y' at 0 .* \(2,\)"),
    (INFINITE, "a reward was infinite or NaN"),
    (other(step=put(3, lambda out: out[3] * 1.0)), r"terminated as float32\[\], exp"),
    (other(step_env=put(2, lambda out: out[2][None])), r"reward of float32\[1\]"),
    (other(step_env=put(2, lambda _: None)), "reward of a Python NoneType, expected"),
    (other(step=put(4, lambda out: out[3] | out[4])), "were both true"),
    (other(step=final(lambda out: out[0])), "differs from the one that step_env"),
    (other(step=put(5, lambda _: {})), "expected 'final_observation' too"),
    (other(step=lambda out, _: out[:5]), "step returned 5 values, expected 6"),
    (other(observation_space=space(-2.0, 2.0, (1,))), "outside the observation space"),
    (other(action_space=closed), "does not contain its own sample"),
    (other(action_space=lambda *_: (0, 1)), "without `sample`, expected one of envs"),
    (NoMethod, r"action_space\(params\) raised TypeError: .* a method"),
    (other(is_truncated=limit(lambda t, most: t >= most - 1)), "lasted 4 .* exactly 5"),
    (other(step_env=over(lambda t, most: t >= most)), r"True .* = 1 and False with .*"),
    (other(step_env=over(lambda t, most: t == most)), "Remove the comparison of"),
    (other(step_env=put(2, lambda out: out[2] + RANDOM.uniform())), "different episod"),
    (SaysNothingOfWind, "another outcome with another key, .* set it to True"),
    (ParamsHoldText, r"params.label is a str, expected an array"),
]
SLOW = [
    (
        other(observation_space=space(-np.inf, np.inf, (1,)), reset_env=first(holed)),
        "an observation was infinite or NaN",
    ),
    (other(Unsure, step=final(lambda out: out[0])), "always equals the first one of"),
    (other(Unsure, step=final(lambda out: out[0] / 2)), "in the middle of an episode"),
    (other(is_truncated=limit(lambda t, most: t > most)), "at least 6 .* exactly 5"),
    (other(step_env=never_at_the_limit), "False with .* = 1 and True with"),
    (other(is_truncated=limit(lambda t, most: t < 0)), "lasted at least 6 steps"),
]


def test_a_sound_environment_passes():
    envs.check(Walk())


def test_a_limit_that_is_meant_to_terminate_may():
    ended = envs.wrappers.TerminalLimit(Walk())
    envs.check(ended)
    assert envs.wrappers.ScaleReward(ended, 0.5).terminal_limit
    assert not envs.wrappers.ScaleReward(Walk(), 0.5).terminal_limit


@pytest.mark.slow
def test_a_limit_may_be_drawn_at_every_reset():
    env = envs.wrappers.Randomised(Walk())
    limits = purerl.randomisation.Uniform(3.0, 9.0)
    envs.check(env, env.default_params.replace(max_steps_in_episode=limits))


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [*BROKEN, *(pytest.param(*row, marks=pytest.mark.slow) for row in SLOW)],
)
def test_a_broken_environment_is_found(broken, sentence):
    with pytest.raises(envs.EnvCheckError, match=f"{broken().name}: .*{sentence}"):
        envs.check(broken())


UNCHECKABLE = [
    (3, {}, "int without reset, step, default_params"),
    ("CartPole-v1", {}, r"make the .* first: envs.make\('CartPole-v1'"),
    (Walk(), {"params": {"stride": 0.5}}, "params of Walk must be a WalkParams"),
    (Walk(), {"num_steps": 0}, "num_steps must be at least 1, got 0"),
]


@pytest.mark.parametrize(("env", "options", "words"), UNCHECKABLE)
def test_what_cannot_be_checked_is_refused(env, options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        envs.check(env, **options)


CONTRACT = ("default_params", "action_space", "observation_space", "reset", "step")


def test_an_object_with_the_contract_is_checked_without_being_an_environment():
    def plain(env):
        return SimpleNamespace(**{name: getattr(env, name) for name in CONTRACT})

    envs.check(plain(Walk()))
    with pytest.raises(envs.EnvCheckError, match="infinite or NaN"):
        envs.check(plain(INFINITE()))


class SeesASide(Walk):
    """Sees one truth value: whether it is on the right."""

    def reset_env(self, key, params):
        _, state = super().reset_env(key, params)
        return state.place[None] > 0, state

    def step_env(self, key, state, action, params):
        _, state, *rest = super().step_env(key, state, action, params)
        return state.place[None] > 0, state, *rest

    def observation_space(self, params=None):
        return Box(0, 1, (1,), bool)


def test_observations_may_be_truth_values():
    envs.check(SeesASide())
    forgets = other(SeesASide, step=final(lambda out: ~out[5]["final_observation"]))
    with pytest.raises(envs.EnvCheckError, match="final_observation"):
        envs.check(forgets())


def test_an_action_space_that_is_none_gets_a_sentence():
    env = other(CartPole, action_space=lambda *_: 3)()
    with pytest.raises(purerl.ConfigError, match="actions must be of a space"):
        purerl.make_train(tiny_config(env=env))

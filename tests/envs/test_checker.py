"""`envs.check` finds every kind of broken environment, and passes a sound one."""

import dataclasses
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


class DecidesInPython(Walk):
    def step_env(self, key, state, action, params):
        if state.place > 0:
            state = state.replace(place=-state.place)
        return super().step_env(key, state, action, params)


class ResetDecidesInPython(Walk):
    def reset_env(self, key, params):
        obs, state = super().reset_env(key, params)
        return (obs, state) if state.place > 0 else (-obs, state)


class WeaklyTyped(Walk):
    def reset_env(self, key, params):
        obs, state = super().reset_env(key, params)
        return obs, state.replace(time=0)

    def step_env(self, key, state, action, params):
        state = state.replace(time=state.time.astype(jnp.int32))
        return super().step_env(key, state, action, params)


class StateChangesShape(Walk):
    def step(self, key, state, action, params=None):
        state = state.replace(place=state.place.reshape(-1)[0])
        out = super().step(key, state, action, params)
        return out[0], out[1].replace(place=out[1].place[None]), *out[2:]


class ObservationOfAnotherShape(Walk):
    def observation_space(self, params=None):
        return Box(-9.0, 9.0, (2,))


class ObservationOfAnotherDtype(Walk):
    def reset_env(self, key, params):
        obs, state = super().reset_env(key, params)
        return obs.astype(jnp.float16), state


class InfiniteReward(Walk):
    def step_env(self, key, state, action, params):
        out = super().step_env(key, state, action, params)
        return *out[:2], jnp.where(state.time == 3, jnp.inf, out[2]), *out[3:]


class InfiniteObservation(Walk):
    def step_env(self, key, state, action, params):
        out = super().step_env(key, state, action, params)
        return jnp.where(state.time == 3, jnp.nan, out[0]), *out[1:]


class FloatFlag(Walk):
    def step(self, key, state, action, params=None):
        out = super().step(key, state, action, params)
        return *out[:3], out[3].astype(jnp.float32), *out[4:]


class VectorReward(Walk):
    def step_env(self, key, state, action, params):
        out = super().step_env(key, state, action, params)
        return *out[:2], out[2][None], *out[3:]


class BothFlags(Walk):
    def step(self, key, state, action, params=None):
        out = super().step(key, state, action, params)
        return *out[:4], out[3] | out[4], out[5]


class LosesTheFinalObservation(Walk):
    def step(self, key, state, action, params=None):
        out = super().step(key, state, action, params)
        return *out[:5], {**out[5], "final_observation": out[0]}


class LosesItWithChance(LosesTheFinalObservation):
    stochastic_transitions: ClassVar[bool] = True


class ChangesItMidEpisode(Walk):
    stochastic_transitions: ClassVar[bool] = True

    def step(self, key, state, action, params=None):
        out = super().step(key, state, action, params)
        return *out[:5], {
            **out[5],
            "final_observation": out[5]["final_observation"] / 2,
        }


class HasNoFinalObservation(Walk):
    def step(self, key, state, action, params=None):
        out = super().step(key, state, action, params)
        return *out[:5], {}


class FiveValues(Walk):
    def step(self, key, state, action, params=None):
        out = super().step(key, state, action, params)
        return *out[:3], out[3] | out[4], out[5]


class LeavesItsSpace(Walk):
    def observation_space(self, params=None):
        return Box(-2.0, 2.0, (1,))


class RefusesItsOwnAction(Walk):
    def action_space(self, params=None):
        space = Discrete(2)
        space.contains = lambda x: jnp.asarray(False)
        return space


class PartIsMissing(Walk):
    def observation_space(self, params=None):
        inner = super().observation_space(params)
        return envs.spaces.Dict({"x": inner, "y": envs.spaces.Tuple((inner,))})

    def reset_env(self, key, params):
        obs, state = super().reset_env(key, params)
        return self.parts(obs), state

    def parts(self, obs):
        return {"x": obs}


class PartOfAnotherShape(PartIsMissing):
    def parts(self, obs):
        return {"x": obs, "y": (jnp.concatenate([obs, obs]),)}


class NotASpace(Walk):
    def action_space(self, params=None):
        return (0, 1)


class OneStepTooLong(Walk):
    def is_truncated(self, state, params):
        return state.time > params.max_steps_in_episode


class OneStepTooShort(Walk):
    def is_truncated(self, state, params):
        return state.time >= params.max_steps_in_episode - 1


class IgnoresTheLimit(Walk):
    def is_truncated(self, state, params):
        return state.time < 0


class HiddenChance(Walk):
    def step_env(self, key, state, action, params):
        out = super().step_env(key, state, action, params)
        return out[0], out[1], out[2] + np.random.default_rng().uniform(), *out[3:]


class ParamsMustBeConcrete(Walk):
    def step_env(self, key, state, action, params):
        return super().step_env(
            key, state, action, params.replace(stride=float(params.stride))
        )


class WeightsLanesByTheirNumber(Walk):
    """Right alone; in a batch of parameters, lanes differ."""

    def step(self, key, state, action, params=None):
        out = super().step(key, state, action, params)
        return *out[:2], _add_lane_number(out[2], params.stride), *out[3:]


@jax.custom_batching.custom_vmap
def _add_lane_number(x, stride):
    del stride
    return x


@_add_lane_number.def_vmap
def _(axis_size, in_batched, x, stride):
    # The batch over keys leaves the parameters alone; the one over parameters not.
    del stride
    lanes = jnp.arange(axis_size, dtype=x.dtype) if in_batched[1] else 0.0
    return x + lanes, True


@dataclasses.dataclass
class NoPytree:
    place: Any


class StateIsNoPytree(Walk):
    def reset(self, key, params=None):
        return super().reset(key, params)[0], NoPytree(0)


@struct.dataclass
class NamedParams(WalkParams):
    label: str = "walk"


class ParamsHoldAString(Walk):
    default_params = NamedParams()


def test_a_sound_environment_passes():
    envs.check(Walk())


@struct.dataclass
class ComparedByArrays(WalkState):
    def __eq__(self, other):
        return bool((self.place == other.place).all())


@pytest.mark.slow
def test_so_does_one_whose_states_have_an_equality_of_their_own():
    class Compared(Walk):
        def reset_env(self, key, params):
            obs, state = super().reset_env(key, params)
            return obs, ComparedByArrays(state.time, state.place)

        def step_env(self, key, state, action, params):
            obs, after, *rest = super().step_env(key, state, action, params)
            return obs, ComparedByArrays(after.time, after.place), *rest

    envs.check(Compared())


@pytest.mark.slow
def test_so_does_one_with_chance_in_its_steps():
    class Windy(Walk):
        stochastic_transitions: ClassVar[bool] = True

        def step_env(self, key, state, action, params):
            wind = jax.random.uniform(key, (), minval=-0.5, maxval=0.5)
            state = state.replace(place=state.place + wind)
            return super().step_env(key, state, action, params)

        def observation_space(self, params=None):
            return Box(-5.0, 5.0, (1,))

    envs.check(Windy())


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (DecidesInPython, "step cannot be traced"),
        (ResetDecidesInPython, "reset cannot be traced"),
        (WeaklyTyped, "step was traced 2 times"),
        (StateChangesShape, "a state .* which a loop cannot carry"),
        (ObservationOfAnotherShape, r"observation of shape \(1,\).*\(2,\)"),
        (ObservationOfAnotherDtype, "dtype float16, expected .* float32"),
        (PartIsMissing, r"observation with the parts {'x'}, expected a dict .*'y'"),
        (PartOfAnotherShape, r"observation at 'y' at 0 of shape \(2,\)"),
        (InfiniteReward, "a reward was infinite or NaN"),
        pytest.param(
            InfiniteObservation,
            "a observation was infinite or NaN",
            marks=pytest.mark.slow,
        ),
        (FloatFlag, r"terminated as float32\[\], expected one truth value"),
        (VectorReward, r"reward of float32\[1\], expected one float"),
        (BothFlags, "terminated and truncated were both true"),
        (LosesTheFinalObservation, "differs from the one that step_env returns"),
        pytest.param(
            LosesItWithChance,
            "always equals the first one of the next episode",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ChangesItMidEpisode,
            "in the middle of an episode it differs from obs",
            marks=pytest.mark.slow,
        ),
        (HasNoFinalObservation, "expected 'final_observation' too"),
        (FiveValues, "step returned 5 values, expected 6"),
        (LeavesItsSpace, "outside the observation space"),
        (RefusesItsOwnAction, "does not contain its own sample"),
        (NotASpace, "without `sample`, expected one of envs.spaces"),
        pytest.param(
            OneStepTooLong,
            "lasted at least 6 steps, expected .* exactly 5",
            marks=pytest.mark.slow,
        ),
        (OneStepTooShort, "lasted 4 steps, expected truncation after exactly 5"),
        pytest.param(
            IgnoresTheLimit, "lasted at least 6 steps", marks=pytest.mark.slow
        ),
        (HiddenChance, "the same key gave two different episodes"),
        (ParamsMustBeConcrete, "step cannot be traced"),
        pytest.param(
            WeightsLanesByTheirNumber,
            "equal parameters in two lanes",
            marks=pytest.mark.slow,
        ),
        (StateIsNoPytree, "reset cannot be traced"),
        (ParamsHoldAString, r"params.label is a str, expected an array"),
    ],
)
def test_a_broken_environment_is_found(broken, sentence):
    with pytest.raises(envs.EnvCheckError, match=f"{broken.__name__}: .*{sentence}"):
        envs.check(broken())


def test_an_object_without_the_contract_is_refused():
    with pytest.raises(TypeError, match="int without reset, step, default_params"):
        envs.check(3)
    with pytest.raises(TypeError, match=r"make the .* first: envs.make\('CartPole-v1'"):
        envs.check("CartPole-v1")


@pytest.mark.slow
def test_a_class_is_refused_with_what_to_call():
    with pytest.raises(TypeError, match=r"env is the class Walk; call it .*: Walk\(\)"):
        envs.check(Walk)


def test_an_object_with_the_contract_is_checked_without_being_an_environment():
    class Plain:
        def __init__(self, inner):
            self.inner = inner
            self.default_params = inner.default_params
            self.action_space = inner.action_space
            self.observation_space = inner.observation_space
            self.reset = inner.reset
            self.step = inner.step

    envs.check(Plain(Walk()))
    with pytest.raises(envs.EnvCheckError, match="infinite or NaN"):
        envs.check(Plain(InfiniteReward()))


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


class ForgetsTheLastSide(SeesASide):
    def step(self, key, state, action, params=None):
        *most, info = super().step(key, state, action, params)
        return *most, {**info, "final_observation": ~info["final_observation"]}


def test_observations_may_be_truth_values():
    envs.check(SeesASide())
    with pytest.raises(envs.EnvCheckError, match="final_observation"):
        envs.check(ForgetsTheLastSide())


class _IntegerPosition(CartPole):
    """The position becomes a whole number in a step."""

    def step_env(self, key, state, action, params):
        obs, state, *rest = super().step_env(key, state, action, params)
        return obs, state.replace(x=jnp.int32(1)), *rest


class _LongObservation(CartPole):
    """A step's observation has a number more than the space says."""

    def step_env(self, key, state, action, params):
        obs, *rest = super().step_env(key, state, action, params)
        return jnp.append(obs, 0.0), *rest


class _DictState(CartPole):
    """The state is a dict, which the physics does not expect."""

    def reset_env(self, key, params):
        obs, state = super().reset_env(key, params)
        return obs, dict(vars(state))


class _Stateless(CartPole):
    """A reset returns no state."""

    def reset_env(self, key, params):
        return super().reset_env(key, params)[0]


class _SaysNothingOfWind(Walk):
    """Draws in a step, and says that it does not."""

    def step_env(self, key, state, action, params):
        wind = 0.2 * jax.random.uniform(key)
        return super().step_env(
            key, state.replace(place=state.place - wind), action, params
        )


class _SpaceIsNoMethod(Walk):
    action_space = Discrete(2)


class _PaysNothing(Walk):
    def step_env(self, key, state, action, params):
        obs, state, _, *rest = super().step_env(key, state, action, params)
        return obs, state, None, *rest


class _LongNumbers(Walk):
    def observation_space(self, params=None):
        return Box(-5.0, 5.0, (1,), np.float64)


class _Decides(CartPole):
    """Python looks at a number that is traced."""

    def step_env(self, key, state, action, params):
        return super().step_env(key, state, 1 if action > 0 else 0, params)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (_IntegerPosition(), r"whose x is float32\[\], and step_env one .* int32\[\]"),
        (_LongObservation(), r"step_env returned an observation of shape \(5,\)"),
        (_DictState(), "AttributeError: 'dict' object has no attribute"),
        (_Stateless(), "reset returns one array, expected two: obs, state"),
        (_Decides(), "without Python decisions"),
        (_SaysNothingOfWind(), "another outcome with another key, .* set it to True"),
        (_SpaceIsNoMethod(), r"action_space\(params\) raised TypeError: .* a method"),
        (_PaysNothing(), "reward of a Python NoneType, expected one float"),
        (_LongNumbers(), "float64. JAX keeps such numbers as float32: give the space"),
    ],
)
def test_what_breaks_a_step_is_named(env, words):
    with pytest.raises(envs.EnvCheckError, match=words):
        envs.check(env)


def test_arguments_of_the_check_that_cannot_be():
    with pytest.raises(TypeError, match="params of Walk must be a WalkParams, got a d"):
        envs.check(Walk(), params={"stride": 0.5})
    with pytest.raises(ValueError, match="num_steps must be at least 1, got 0"):
        envs.check(Walk(), num_steps=0)


def test_an_action_space_that_is_none_gets_a_sentence():
    class Plain(CartPole):
        def action_space(self, params=None):
            return 3

    with pytest.raises(purerl.ConfigError, match="actions must be members of a space"):
        purerl.make_train(tiny_config(env=Plain()))

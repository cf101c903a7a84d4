"""Observations in another form, or with something beside them."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from ..base import Array, Obs, Step
from ..options import one_of, whole_number
from ..spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, num_choices
from .base import (
    MASK,
    ObservationWrapper,
    Wrapper,
    WrapperState,
    box_of,
    numpy_of,
    unwrap,
    vector_of,
)

Mask = Callable[[Any, Any], Array]


@dataclasses.dataclass(unsafe_hash=True)
class OneHotObservation(ObservationWrapper):
    """An observation out of N as a vector `[N]` with a single 1, float32.

    Attributes:
        env: The environment inside; its observations are discrete.
    """

    def observe(self, obs: Obs, state: Any, params: Any) -> Array:
        """Return the vector."""
        space: Any = self.env.observation_space(params)
        return jax.nn.one_hot(obs, space.n, dtype=jnp.float32)

    def observation_space(self, params: Any = None) -> Box:
        """Return 0 .. 1 for each of the N."""
        space = self.env.observation_space(self._params(params))
        if not isinstance(space, Discrete):
            raise ValueError(
                f"OneHotObservation takes discrete observations, but {self.env.name} "
                f"observes {space}: leave it out."
            )
        return Box(0.0, 1.0, (space.n,))


@dataclasses.dataclass(unsafe_hash=True)
class FlattenObservation(ObservationWrapper):
    """An array as a vector of float32, row after row.

    Attributes:
        env: The environment inside; its observations are arrays.
    """

    def observe(self, obs: Obs, state: Any, params: Any) -> Array:
        """Return the vector."""
        return jnp.ravel(obs).astype(jnp.float32)

    def observation_space(self, params: Any = None) -> Box:
        """Return the bounds of the environment inside, in a row."""
        space = box_of(self.env, self._params(params), "FlattenObservation")
        xp = numpy_of(space.low, space.high)
        return Box(xp.ravel(space.low), xp.ravel(space.high), (np.size(space.low),))


@dataclasses.dataclass(unsafe_hash=True)
class SelectObservation(ObservationWrapper):
    """Some numbers of a vector: the others are hidden, so that a memory is of use.

    `SelectObservation((0, 1))` is Pendulum without its velocity.

    Attributes:
        env: The environment inside; its observations are vectors.
        indices: Places of the numbers that are shown, in their order.
    """

    indices: tuple[int, ...]

    def check(self) -> None:
        """Refuse places that a vector does not have."""
        space = box_of(self.env, self.env.default_params, "SelectObservation")
        places = range(space.shape[0] if len(space.shape) == 1 else 0)
        is_tuple = isinstance(self.indices, tuple) and self.indices
        if not is_tuple or not set(self.indices) <= set(places):
            raise ValueError(
                "SelectObservation: indices must be places in a vector, such as (0, 1),"
                f" got {self.indices!r}, and {self.env.name} observes {space}."
            )

    def observe(self, obs: Obs, state: Any, params: Any) -> Array:
        """Return the numbers that are shown."""
        return jnp.stack([obs[i] for i in self.indices])

    def observation_space(self, params: Any = None) -> Box:
        """Return the bounds of the numbers that are shown."""
        space = box_of(self.env, self._params(params), "SelectObservation")
        chosen = np.asarray(self.indices)
        low, high = space.low[chosen], space.high[chosen]
        return Box(low, high, (len(chosen),), space.dtype)


@struct.dataclass
class FrameStackState(WrapperState):
    """The state of the environment inside, and what was seen.

    Attributes:
        frames: `[..., n * C]`, the last n observations, the newest last; of a
            dictionary those of every key but the mask of actions.
    """

    frames: Any


@dataclasses.dataclass(unsafe_hash=True)
class FrameStack(Wrapper):
    """The last n observations, side by side along the last axis, the newest last.

    `[H, W, C]` becomes `[H, W, n * C]`, and `[D]` becomes `[n * D]`. Mnih et al.
    (2015), "Human-level control through deep reinforcement learning", stack four.

    Every entry of a dictionary is stacked by itself, but for `action_mask`: the mask is
    that of the newest observation, because actions are taken now.

    Attributes:
        env: The environment inside; its observations are arrays, or a dictionary of
            arrays.
        n: Number of observations.
        padding: Kind of what stands in place of observations from before the episode:
            `reset` repeats the first one, which is the default of Gymnasium's
            FrameStackObservation too; `zero` has zeros.
    """

    n: int = 4
    padding: str = "reset"
    has_state: ClassVar[bool] = True

    def check(self) -> None:
        """Check the number, the padding and the observations."""
        self.n = whole_number("FrameStack: n", self.n, least=1)
        one_of("FrameStack: padding", self.padding, ("reset", "zero"))
        self.observation_space()

    def reset_env(self, key: Array, params: Any) -> tuple[Obs, FrameStackState]:
        """Start an episode; the key is consumed."""
        obs, inner = self.env.reset_env(key, params)

        def repeat(new: Array) -> Array:
            before = new if self.padding == "reset" else jnp.zeros_like(new)
            return jnp.concatenate([*[before] * (self.n - 1), new], axis=-1)

        return self._shown(obs, inner, lambda seen: jax.tree.map(repeat, seen))

    def step_env(
        self, key: Array, state: FrameStackState, action: Array, params: Any
    ) -> Step:
        """Take one step; the oldest observation makes room for the new one."""

        def push(old: Array, new: Array) -> Array:
            return jnp.concatenate([old[..., new.shape[-1] :], new], axis=-1)

        obs, inner, *rest = self.env.step_env(key, state.inner, action, params)
        pushed = partial(jax.tree.map, push, state.frames)
        return *self._shown(obs, inner, pushed), *rest  # type: ignore[return-value]

    def _shown(
        self, obs: Obs, inner: Any, stacked: Callable[[Any], Any]
    ) -> tuple[Obs, FrameStackState]:
        """The stacked observation, the mask of actions as it is, and the state."""
        if not isinstance(obs, dict):
            frames = stacked(obs)
            return frames, FrameStackState(inner, frames)
        frames = stacked({key: value for key, value in obs.items() if key != MASK})
        return {**obs, **frames}, FrameStackState(inner, frames)

    def observation_space(self, params: Any = None) -> Box | Dict:
        """Return n times the space of the environment inside, along the last axis."""
        space = self.env.observation_space(self._params(params))
        if not isinstance(space, Dict):
            return self._stacked(space)
        parts = space.spaces.items()
        return Dict({k: x if k == MASK else self._stacked(x) for k, x in parts})

    def _stacked(self, space: Any) -> Box:
        """The space of n observations of another one."""
        if not isinstance(space, Box) or not space.shape:
            raise ValueError(
                f"FrameStack stacks along the last axis, but {self.env.name} observes "
                f"{space}; put OneHotObservation or FlattenObservation before it."
            )
        xp, low, high = numpy_of(space.low, space.high), space.low, space.high
        if self.padding == "zero":
            low, high = xp.minimum(low, 0), xp.maximum(high, 0)
        shape = (*space.shape[:-1], space.shape[-1] * self.n)
        low, high = (xp.concatenate([bound] * self.n, -1) for bound in (low, high))
        return Box(low, high, shape, space.dtype)


@dataclasses.dataclass(unsafe_hash=True)
class PreviousActionReward(Wrapper):
    """The previous action and the previous reward, after the observation.

    An observation that is a dictionary gets them under the key `previous`, `[A + 1]`
    float32, the action first.

    A discrete action stands there as a vector with a single 1. All of it is zero at the
    reset. Agents with a memory that have to find out what the task is are given both;
    Duan et al. (2016), "RL^2", and Wang et al. (2016), "Learning to reinforcement
    learn", do so across episodes, while here the numbers begin anew with each episode.

    Attributes:
        env: The environment inside; its observations are vectors of floats, or
            dictionaries.
    """

    def check(self) -> None:
        """Check the observations and the actions."""
        actions: Any = self.action_space()
        if hasattr(actions, "spaces"):
            raise ValueError(f"PreviousActionReward: actions have parts, {actions}.")
        self.observation_space()

    def reset_env(self, key: Array, params: Any) -> tuple[Obs, Any]:
        """Start an episode; the key is consumed."""
        obs, state = self.env.reset_env(key, params)
        size = self._box(params).shape[0]
        return _beside(obs, "previous", jnp.zeros(size, _dtype(obs))), state

    def step_env(self, key: Array, state: Any, action: Array, params: Any) -> Step:
        """Take one step, after which its action and reward are the previous ones."""
        obs, state, reward, *rest = self.env.step_env(key, state, action, params)
        dtype, sizes = _dtype(obs), _choices(self.action_space(params))
        numbers = [jnp.ravel(jnp.asarray(action, dtype))]
        if sizes:
            both = zip(jnp.ravel(action), sizes, strict=True)
            numbers = [jax.nn.one_hot(x, size, dtype=dtype) for x, size in both]
        earned = jnp.asarray(reward, dtype)[None]
        shown = _beside(obs, "previous", jnp.concatenate([*numbers, earned]))
        return shown, state, reward, *rest  # type: ignore[return-value]

    def observation_space(self, params: Any = None) -> Box | Dict:
        """Return the space of the environment inside, and those of action and reward.

        Zeros, as they are at the reset, are in it.
        """
        params = self._params(params)
        return _space_beside(self, params, "previous", self._box(params))

    def _box(self, params: Any) -> Box:
        """The space `[A + 1]` of the numbers for an action, and of a reward."""
        actions: Any = self.action_space(params)
        if not isinstance(actions, Box):
            size = sum(_choices(actions)) or int(np.prod(actions.shape))
            actions = Box(0.0, 1.0, (size,))
        xp = numpy_of(actions.low, actions.high)
        low = xp.append(xp.minimum(actions.low, 0), -xp.inf)
        high = xp.append(xp.maximum(actions.high, 0), xp.inf)
        return Box(low, high, low.shape)


def _choices(actions: Any) -> list[int]:
    """The numbers of choices of actions that are shown as vectors with a single 1."""
    if isinstance(actions, Discrete):
        return [actions.n]
    is_several = isinstance(actions, MultiDiscrete)
    return [int(size) for size in np.ravel(actions.nvec)] if is_several else []


def _dtype(obs: Any) -> Any:
    """The type of the numbers: that of a vector, or float32 in a dictionary."""
    return jnp.float32 if isinstance(obs, dict) else obs.dtype


def _beside(obs: Any, key: str, numbers: Array) -> Obs:
    """The observation with the numbers after it, or under a key of their own."""
    if isinstance(obs, dict):
        return {**obs, key: numbers}
    return jnp.concatenate([obs, numbers])


def _space_beside(wrapper: Wrapper, params: Any, key: str, box: Box) -> Box | Dict:
    """The space of what `_beside` makes of the observations inside a wrapper."""
    who, env = type(wrapper).__name__, wrapper.env
    space = env.observation_space(params)
    if isinstance(space, Dict):
        if key in space.spaces:
            raise ValueError(f"{who}: {env.name} has the key {key!r} already.")
        return Dict({**space.spaces, key: box})
    space = vector_of(env, params, who)
    xp = numpy_of(space.low, space.high, box.low, box.high)
    low, high = (
        xp.concatenate(both) for both in ((space.low, box.low), (space.high, box.high))
    )
    return Box(low, high, low.shape, space.dtype)


@dataclasses.dataclass(unsafe_hash=True)
class TimeObservation(ObservationWrapper):
    """The share of the time limit that is over, after the observation.

    An observation that is a dictionary gets it under the key `time`, `[1]` float32.

    `time / max_steps_in_episode` is 0 at the reset and 1 in the last observation of an
    episode that is truncated. Pardo et al. (2018), "Time limits in reinforcement
    learning": where an episode really ends at the limit, the time left belongs to the
    state. (purerl bootstraps at time limits, so that it mostly needs no such number.)

    Attributes:
        env: The environment inside; its observations are vectors of floats, or
            dictionaries.
    """

    def observe(self, obs: Obs, state: Any, params: Any) -> Obs:
        """Return the observation and the share."""
        # A level, and a number that is drawn at the reset, has its own limit.
        limit = unwrap(self.env, params, state)[1].max_steps_in_episode
        share = jnp.asarray(state.time, jnp.float32) / limit
        return _beside(obs, "time", share.astype(_dtype(obs))[None])

    def observation_space(self, params: Any = None) -> Box | Dict:
        """Return the space of the environment inside, and 0 .. 1."""
        params = self._params(params)
        return _space_beside(self, params, "time", Box(0.0, 1.0, (1,)))


@dataclasses.dataclass(unsafe_hash=True)
class ActionMask(ObservationWrapper):
    """An environment whose observations say which actions are valid.

    An observation `x` becomes `{"observation": x, "action_mask": mask}`, and one that
    is a dictionary gets the key beside its own. That is what agents of purerl read.

    The mask is a function of the state, because a first observation comes without an
    `info`: what an environment puts in `info["action_mask"]` it computes from its
    state.

    Attributes:
        env: Environment inside, whose actions are `Discrete` or `MultiDiscrete`.
        mask: Function `(state, params) -> bool [A]`, true for valid actions; of
            `MultiDiscrete(nvec)` it has `sum(nvec)` values, those of each component
            side by side. `params` are those of the episode, drawn ones among them.
    """

    mask: Mask = None  # type: ignore[assignment]

    def check(self) -> None:
        """Check the function and the actions."""
        if not callable(self.mask):
            raise ValueError(f"ActionMask: mask must be a function, got {self.mask!r}.")
        self.observation_space()

    @property
    def name(self) -> str:
        """The name of the environment inside, with `masked/` before it."""
        return f"masked/{self.env.name}"

    def observe(self, obs: Obs, state: Any, params: Any) -> dict[str, Any]:
        """Return the observation with the mask beside it."""
        parts = obs if isinstance(obs, dict) else {"observation": obs}
        _, drawn, _ = unwrap(self.env, params, state)
        mask = jnp.asarray(self.mask(state, drawn)).astype(jnp.int8)
        return {**parts, MASK: mask}

    def observation_space(self, params: Any = None) -> Dict:
        """Return the space inside, and that of the mask."""
        space: Any = self.env.observation_space(self._params(params))
        parts = space.spaces if isinstance(space, Dict) else {"observation": space}
        actions = self.env.action_space(self._params(params))
        size = num_choices(actions)
        if not size:
            raise ValueError(
                "actions must be Discrete or MultiDiscrete to have a mask, got "
                f"{actions}."
            )
        return Dict({**parts, MASK: MultiBinary(size)})

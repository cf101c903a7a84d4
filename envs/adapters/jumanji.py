"""Environments of Jumanji (Bonnet et al. 2024); the only module that imports it."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from ..base import Array, EnvParams, Obs, Step
from ..spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space
from ..wrappers.base import MASK
from .adapted import UNLIMITED, Adapted, SuiteState, as_arrays, cast_like
from .packages import check_name

_NEVER = np.iinfo(np.int32).max
# Names of the step counter among the observations.
_COUNTERS = ("step_count", "step")
# Classes whose rewards fall to zero at the time limit, which so is a part of the task.
_LIMIT_IS_THE_TASK = ("SearchAndRescue",)
# Classes whose state has a place for each step until the time limit.
_LIMIT_IS_A_SIZE = ("MMST",)
# Classes whose `position` is -1 before the first move, which their spec leaves out.
_STARTS_NOWHERE = ("TSP",)


MOST_COMBINATIONS = 10_000
"""Combinations that a mask may speak of: a network has an output for each of them."""


PICTURES = ("grid",)
"""Fields of three axes that are a height, a width and channels."""


@struct.dataclass
class JumanjiState(SuiteState):
    """The state of an episode of Jumanji.

    Attributes:
        cut: `[]` bool, whether Jumanji ended the episode without a termination.
    """

    cut: Array


class JumanjiEnvironment(Adapted):
    """An environment of Jumanji 1.1 under this package's contract.

    * action: Jumanji's. Where its mask speaks of combinations of choices, such as the
      place and the turn of a block, these are numbered and are one choice.
    * observation: a dictionary of Jumanji's fields, of which `action_mask` says which
      actions are valid. A step counter is the share of the time limit that is over.
    * reward: Jumanji's; where there is one for each of several agents, their sum.
    * terminated: Jumanji's last step with a discount of 0. truncated: at
      `max_steps_in_episode`, which is Jumanji's `time_limit`. At that limit most of
      Jumanji's environments would have said that they terminated.

    Attributes:
        wrapped: Environment object of Jumanji.
    """

    stochastic_transitions: ClassVar[bool] = False  # Jumanji's state holds a key.

    def __init__(self, jumanji_name: str, **options: Any) -> None:
        """Make the environment.

        Args:
            jumanji_name: Name with version, such as `Snake-v1`.
            **options: Keywords of Jumanji's class, such as `num_rows`; `time_limit` is
                the default of `max_steps_in_episode`.

        Raises:
            ValueError: there is no such environment or option, its files cannot be
                downloaded, or its mask cannot be one of this package.
        """
        self.id = f"jumanji/{jumanji_name}"
        self.wrapped = _made(jumanji_name, options)
        kind = type(self.wrapped).__name__
        limit = getattr(self.wrapped, "time_limit", None)
        self._default_limit = UNLIMITED if limit is None else int(limit)
        is_fixed = kind in (*_LIMIT_IS_THE_TASK, *_LIMIT_IS_A_SIZE)
        self._most_steps = self._default_limit if is_fixed else _NEVER
        self._endless = copy.copy(self.wrapped)
        if limit is not None and kind not in _LIMIT_IS_THE_TASK:
            self._endless.time_limit = _NEVER
        self.num_rewards = int(np.prod(self.wrapped.reward_spec.shape))
        spec = self.wrapped.observation_spec
        inner: Any = space_of(spec, spec.generate_value())
        parts = dict(inner.spaces) if isinstance(inner, Dict) else {}
        mask = parts[MASK].shape if MASK in parts else None
        try:
            self._actions, self._combined = actions_of(self.wrapped.action_spec, mask)
        except ValueError as error:
            raise ValueError(f"{self.name} {error}") from None
        counters = parts.keys() & _COUNTERS if limit is not None else set()
        self._counters = tuple(sorted(counters))
        parts |= {name: Box(0.0, 1.0, ()) for name in self._counters}
        if mask is not None:
            actions: Any = self._actions
            size = getattr(actions, "n", 0) or np.sum(getattr(actions, "nvec", 0))
            parts[MASK] = MultiBinary(int(size))
        if kind in _STARTS_NOWHERE:
            parts["position"] = Discrete(parts["position"].n + 1)
        self._space = Dict(parts) if parts else inner

    @property
    def note(self) -> str:
        """Says where a reward is a sum over agents."""
        if self.num_rewards == 1:
            return ""
        return f"Its reward is the sum of those of its {self.num_rewards} agents."

    @property
    def default_params(self) -> EnvParams:
        """The time limit: Jumanji's, or `UNLIMITED` where it has none."""
        return EnvParams(self._default_limit)

    def reset_env(self, key: Array, params: EnvParams) -> tuple[Obs, JumanjiState]:
        """Start an episode; the key is consumed."""
        with _as_jumanji_is_written():
            inner, first = self._endless.reset(key)
        state = JumanjiState(jnp.int32(0), as_arrays(inner), jnp.bool_(False))
        return self._shown(first.observation, state, params), state

    def step_env(
        self, key: Array, state: JumanjiState, action: Array, params: EnvParams
    ) -> Step:
        """Take one step; what is random in it is drawn from the state."""
        # Jumanji's states can be written into, and MMST does: hand it a new one.
        before = jax.tree.map(lambda x: x, state.inner)
        if self._combined:
            action = jnp.stack(jnp.unravel_index(action, self._combined))
        action = jnp.asarray(action).astype(self.wrapped.action_spec.dtype)
        with _as_jumanji_is_written():
            inner, last = self._endless.step(before, action)
        is_over = jnp.asarray(last.last(), bool).reshape(())
        # One agent's own end, with a discount of 0, is none of the episode's.
        goes_on = jnp.max(jnp.asarray(last.discount)) > 0
        inner = cast_like(inner, state.inner)
        after = JumanjiState(state.time + 1, inner, is_over & goes_on)
        obs = self._shown(last.observation, after, params)
        reward = jnp.sum(jnp.asarray(last.reward, jnp.float32))
        info = dict(as_arrays(last.extras or {}))
        return obs, after, reward, is_over & ~goes_on, info

    def is_truncated(self, state: JumanjiState, params: EnvParams) -> Array:
        """Return whether the time limit is reached, or Jumanji cut the episode."""
        return (state.time >= self._limit(params)) | state.cut

    def action_space(self, params: Any = None) -> Space:
        """Return Jumanji's choices, numbered where their combinations have a mask."""
        return self._actions

    def observation_space(self, params: Any = None) -> Space:
        """Return a space for each of Jumanji's fields."""
        return self._space

    def _limit(self, params: EnvParams) -> Array:
        return jnp.minimum(params.max_steps_in_episode, self._most_steps)

    def _shown(self, obs: Any, state: JumanjiState, params: EnvParams) -> Obs:
        if self._counters:
            share = state.time.astype(jnp.float32) / self._limit(params)
            obs = {**(parts_of(obs) or {}), **dict.fromkeys(self._counters, share)}
        return member_of(self._space, obs)


@contextlib.contextmanager
def _as_jumanji_is_written() -> Iterator[None]:
    """Trace what adds arrays of several ranks, and BinPack's floats among integers."""
    with jax.numpy_rank_promotion("allow"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "scatter inputs", FutureWarning)
        yield


def _made(name: str, options: dict[str, Any]) -> Any:
    """Return Jumanji's environment object, or one sentence on why there is none."""
    with warnings.catch_warnings():
        # What its dependencies announce is nothing that a user of Jumanji can act on.
        warnings.simplefilter("ignore")
        from jumanji.registration import make, registered_environments

    check_name("Jumanji", name, registered_environments())
    try:
        return make(name, **options)
    except OSError as error:  # The levels of Sokoban are not in the package.
        first = str(error).split("\n")[0].split(". ")[0]
        raise ValueError(
            f"jumanji/{name} needs levels, which Jumanji could not download from "
            f"Hugging Face ({first})."
        ) from None


def parts_of(value: Any) -> dict[str, Any] | None:
    """Return the parts of an observation by name.

    Args:
        value: A named tuple, a dataclass or a dictionary; anything else, such as an
            array, has no parts.
    """
    if isinstance(value, dict):
        return value
    if hasattr(value, "_asdict"):
        return value._asdict()
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: getattr(value, name) for name in names}
    return None


def space_of(spec: Any, example: Any, field: str = "") -> Space:
    """Return the space of the values that a spec describes.

    A `DiscreteArray` is one choice. A `BoundedArray` is a number of its type between
    its bounds. Whole numbers without bounds become floats, whose bounds are infinite.
    Networks here take three axes for a picture; of the arrays that are none, such as
    the faces of a cube, the last two axes become one.

    Args:
        spec: Spec of an observation or of one part.
        example: A value that the spec describes, which knows the names of parts.
        field: Name of the part.
    """
    parts = parts_of(example)
    if parts is not None:
        return Dict({key: space_of(spec[key], x, key) for key, x in parts.items()})
    shape = tuple(int(size) for size in spec.shape)
    if len(shape) == 3 and field not in (*PICTURES, MASK):
        shape = (shape[0], shape[1] * shape[2])
    if hasattr(spec, "num_values") and shape == ():
        return Discrete(int(spec.num_values))
    if spec.dtype == np.bool_:
        return MultiBinary(shape) if shape else Discrete(2)
    if not hasattr(spec, "minimum"):
        return Box(-np.inf, np.inf, shape)
    bounds = (np.broadcast_to(x, spec.shape) for x in (spec.minimum, spec.maximum))
    low, high = (bound.reshape(shape) for bound in bounds)
    return Box(low, high, shape, spec.dtype)


def member_of(space: Any, value: Any) -> Any:
    """Return an observation as a member of its space.

    Args:
        space: Space of the observation, see `space_of`.
        value: Jumanji's observation, whose parts come back as dictionaries.
    """
    if isinstance(space, Dict):
        parts = parts_of(value) or {}
        return {key: member_of(space[key], parts[key]) for key in space.spaces}
    if isinstance(space, Discrete):  # -1 is none of the others: the last member.
        value = jnp.where(jnp.asarray(value) < 0, space.n - 1, value)
    return jnp.asarray(value).astype(space.dtype).reshape(space.shape)


def actions_of(
    spec: Any, mask: tuple[int, ...] | None
) -> tuple[Space, tuple[int, ...]]:
    """Return the space of a spec's actions, and the choices that are combined in it.

    A mask may speak of every combination of choices, such as the place and the turn of
    a block: then the combinations are numbered and are one choice. Where it speaks of
    every choice by itself, such as that of each agent, they stay several choices.

    Args:
        spec: Jumanji's spec of actions.
        mask: Shape of the mask among the observations; None without a mask.

    Raises:
        ValueError: the mask is that of no such actions, or of too many combinations.
    """
    if not np.issubdtype(spec.dtype, np.integer):
        low, high = np.asarray(spec.minimum), np.asarray(spec.maximum)
        return Box(low, high, spec.shape, spec.dtype), ()
    counts = np.broadcast_to(np.asarray(spec.maximum) + 1, spec.shape)
    nvec = tuple(int(n) for n in counts.reshape(-1))
    num_combinations = int(np.prod(nvec))
    if spec.shape == () and mask in (None, nvec):
        return Discrete(nvec[0]), ()
    if mask is None:
        return MultiDiscrete(nvec), ()
    if mask == nvec and num_combinations <= MOST_COMBINATIONS:
        return Discrete(num_combinations), nvec
    if spec.shape and mask[:-1] == spec.shape and mask != nvec:
        # A number without a place in the mask is no action: the spec of MultiCVRP has
        # one more than there are places.
        return MultiDiscrete(mask[-1:] * len(nvec)), ()
    raise ValueError(
        f"has a mask of shape {mask} for actions of {nvec} choices, and one must be of "
        f"each choice, or of at most {MOST_COMBINATIONS:,} combinations: choose a "
        "smaller environment."
    )

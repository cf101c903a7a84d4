"""Numbers of an environment that are drawn anew: distributions, and levels."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from ..base import Array, Obs
from ..spaces import Box, Dict, Space, Tuple
from .base import Wrapper, WrapperState, numpy_of

# No draw of an environment is this long, so that the key for the numbers, which is
# folded from that of the reset, is none of those that the environment makes of it.
_NUMBERS = 0xD0A1_2A2D
_LEVEL = 0x1E7E_1000  # The same for the key of a level.


class Distribution:
    """A number that is drawn: a pytree that is called with a key.

    A subclass is a `flax.struct.dataclass`. It stands in the place of a number among
    the parameters of `Randomised`.

    Attributes:
        group: Name that is shared by the distributions which draw with the same key;
            empty for a key of its own.
    """

    group: str = ""

    def __call__(self, key: Array) -> Array:
        """Draw a number, `[]`; the key is consumed."""
        raise NotImplementedError

    def ends(self) -> tuple[Any, Any]:
        """Return the smallest and the largest number that can be drawn."""
        raise NotImplementedError


@struct.dataclass
class RandomisedState(WrapperState):
    """The state of the environment inside, and the numbers of this episode.

    Attributes:
        drawn: Numbers that were drawn, by their (dotted) name.
    """

    drawn: dict[str, Array]


@dataclasses.dataclass(unsafe_hash=True)
class Randomised(Wrapper):
    """An environment whose parameters may be distributions, drawn at every reset.

    Parameters are those of the environment inside, with a `Distribution` in the place
    of any number. Without one it is the environment inside, bit for bit: the same keys
    reach it. A parameter that is a whole number takes the nearest one to what is drawn.

    Spaces are as wide as the smallest and the largest numbers make them.

    Attributes:
        env: The environment inside.
    """

    has_state: ClassVar[bool] = True

    def reset_env(self, key: Array, params: Any) -> tuple[Obs, RandomisedState]:
        """Draw the numbers and start an episode with them; the key is consumed."""
        drawn = self._draw(jax.random.fold_in(key, _NUMBERS), params)
        obs, inner = self.env.reset_env(key, put_in(params, drawn))
        return obs, RandomisedState(inner, drawn)

    def inner_params(self, state: RandomisedState, params: Any) -> Any:
        """Return the numbers with those that were drawn among them."""
        return put_in(params, state.drawn)

    def action_space(self, params: Any = None) -> Space:
        """Return the action space, as wide as the numbers can make it."""
        low, high = self._ends(params)
        return _hull(self.env.action_space(low), self.env.action_space(high))

    def observation_space(self, params: Any = None) -> Space:
        """Return the observation space, as wide as the numbers can make it."""
        low, high = self._ends(params)
        return _hull(self.env.observation_space(low), self.env.observation_space(high))

    def _draw(self, key: Array, params: Any) -> dict[str, Array]:
        found = distributions(params)
        if not found:
            return {}
        defaults = dict(_named(self.env.default_params))
        drawn = {}
        keys = jax.random.split(key, len(found))
        shared: dict[str, Array] = {}  # Key of each group: that of its first.
        for key_one, (name, distribution) in zip(keys, found.items(), strict=True):
            if distribution.group:
                key_one = shared.setdefault(distribution.group, key_one)
            dtype = jax.dtypes.canonicalize_dtype(jnp.result_type(defaults[name]))
            value = jnp.asarray(distribution(key_one))
            if jnp.issubdtype(dtype, jnp.integer):
                value = jnp.round(value)
            drawn[name] = value.astype(dtype)
        return drawn

    def _ends(self, params: Any) -> tuple[Any, Any]:
        """The parameters with the smallest and with the largest numbers."""
        params = self._params(params)
        found = distributions(params)
        if not found:
            return params, params
        ends = {name: distribution.ends() for name, distribution in found.items()}
        low, high = ({n: both[i] for n, both in ends.items()} for i in (0, 1))
        return put_in(params, low), put_in(params, high)


@dataclasses.dataclass(unsafe_hash=True)
class RandomisedOnce(Randomised):
    """Random numbers that stay: an environment draws them once for all its episodes.

    Every `reset` draws. `step` starts the next episode with the numbers of the last
    one, so that its reset is its own: there is no pool of resets for it.

    Attributes:
        env: The environment inside.
    """

    steps_without_reset: ClassVar[bool] = False
    # Only the start of the next episode is special.
    keeps_last_state: ClassVar[bool] = True  # type: ignore[assignment]

    step = Wrapper._step_with_the_same_numbers
    reset_again = Wrapper._reset_with_the_same_numbers


def distributions(params: Any) -> dict[str, Distribution]:
    """Return the distributions among some parameters, by their dotted names."""
    return {n: value for n, value in _named(params) if isinstance(value, Distribution)}


def put_in(params: Any, drawn: dict[str, Any]) -> Any:
    """Return parameters with numbers in the place of distributions.

    Args:
        params: Parameters, distributions among them.
        drawn: Numbers by the dotted names of the distributions.
    """
    if not drawn:
        return params
    return jax.tree_util.tree_map_with_path(
        lambda path, value: drawn.get(_name(path), value),
        params,
        is_leaf=lambda value: isinstance(value, Distribution),
    )


def drawn_params(state: Any) -> dict[str, Array]:
    """Return the numbers that were drawn for the episode of a state, by name.

    Args:
        state: State of a `Randomised` environment, of one episode or of a batch.
    """
    return dict(state.drawn)


def _named(params: Any) -> list[tuple[str, Any]]:
    leaves = jax.tree_util.tree_leaves_with_path(
        params, is_leaf=lambda value: isinstance(value, Distribution)
    )
    return [(_name(path), value) for path, value in leaves]


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _hull(low: Space, high: Space) -> Space:
    """The smallest space that has two of the same kind in it."""
    if isinstance(low, Dict) and isinstance(high, Dict):
        return Dict({key: _hull(low[key], high[key]) for key in high.spaces})
    if isinstance(low, Tuple) and isinstance(high, Tuple):
        return Tuple(tuple(map(_hull, low.spaces, high.spaces)))
    if not (isinstance(low, Box) and isinstance(high, Box)):
        return high
    xp = numpy_of(low.low, high.low, low.high, high.high)
    bottom, top = xp.minimum(low.low, high.low), xp.maximum(low.high, high.high)
    return Box(bottom, top, high.shape, high.dtype)


@struct.dataclass
class LevelState(WrapperState):
    """The state of the environment inside, and the level of this episode.

    Attributes:
        level: Parameters of the environment inside in this episode.
    """

    level: Any


@dataclasses.dataclass(unsafe_hash=True)
class RandomLevels(Wrapper):
    """An environment in which every reset draws a level: domain randomisation.

    A level is all parameters of the environment inside, as its `draw_level` draws them.
    The state of an episode has its level, so that each of many environments can have
    its own.

    Attributes:
        env: The environment inside, with `draw_level`.
    """

    has_state: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse an environment without levels."""
        if not self.env.has_levels:
            raise ValueError(
                f"{self.env.name} has no levels: {type(self).__name__} needs an "
                "environment with draw_level, such as Maze-v0."
            )

    def draw_level(self, key: Array, params: Any) -> Any:
        """Draw a level; the key is consumed."""
        return jax.tree.map(_as_array, self.env.draw_level(key, params))

    def drawn(self, params: Any) -> Any:
        """Return which numbers `draw_level` draws: a bool for every leaf of `params`.

        The others, such as a time limit, come out as they went in, and belong to no
        level.

        Args:
            params: Numbers of the environment.
        """
        leaves = jax.tree.map(_as_array, params)
        traced = jax.make_jaxpr(self.draw_level)(jax.random.key(0), leaves).jaxpr
        given = {id(variable) for variable in traced.invars}
        found = [id(variable) not in given for variable in traced.outvars]
        return jax.tree.unflatten(jax.tree.structure(leaves), found)

    def reset_env(self, key: Array, params: Any) -> tuple[Obs, LevelState]:
        """Draw a level and start an episode in it; the key is consumed."""
        level = self.draw_level(jax.random.fold_in(key, _LEVEL), params)
        return self.reset_in(key, level)

    def reset_in(self, key: Array, level: Any) -> tuple[Obs, LevelState]:
        """Start an episode in a level; the key is consumed.

        Args:
            key: Random key, consumed.
            level: Parameters of the environment inside, as `draw_level` returns them.
        """
        obs, inner = self.env.reset_env(key, level)
        return obs, LevelState(inner, level)

    def inner_params(self, state: LevelState, params: Any) -> Any:
        """Return the level of this episode, which has all numbers."""
        return state.level


@dataclasses.dataclass(unsafe_hash=True)
class RepeatedLevels(RandomLevels):
    """Random levels that stay: all episodes of an environment have its first level.

    Every `reset` draws. `step` starts the next episode in the level of the last one, so
    that its reset is its own: there is no pool of resets for it.

    Attributes:
        env: The environment inside, with `draw_level`.
    """

    steps_without_reset: ClassVar[bool] = False

    step = Wrapper._step_with_the_same_numbers
    reset_again = Wrapper._reset_with_the_same_numbers


def _as_array(number: Any) -> Array:
    """A number of a level as an array whose type does not depend on how it came."""
    return jnp.asarray(number, jax.dtypes.canonicalize_dtype(jnp.result_type(number)))

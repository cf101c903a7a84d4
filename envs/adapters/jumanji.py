"""Environments of Jumanji (Bonnet et al. 2024); the only module that imports it."""

from __future__ import annotations

import contextlib
import copy
import difflib
import inspect
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from ..base import Array, Environment, EnvParams, EnvState, Obs, Step
from ..spaces import Box, Dict, Discrete, MultiBinary, Space
from .adapted import as_arrays, cast_like
from .jumanji_spaces import MASK, actions_of, member_of, parts_of, space_of
from .packages import refused_options

with warnings.catch_warnings():
    # What its dependencies announce is nothing that a user of Jumanji can act on.
    warnings.simplefilter("ignore")
    from jumanji.registration import make, registered_environments

UNLIMITED = 100_000
"""Time limit where Jumanji has none: its games end by themselves before that."""

_NEVER = np.iinfo(np.int32).max
# Names of the step counter among the observations.
_COUNTERS = ("step_count", "step")
# Classes whose rewards fall to zero at the time limit, which so is a part of the task.
_LIMIT_IS_THE_TASK = ("SearchAndRescue",)
# Classes whose state has a place for each step until the time limit.
_LIMIT_IS_A_SIZE = ("MMST",)
# Classes whose `position` is -1 before the first move, which their spec leaves out.
_STARTS_NOWHERE = ("TSP",)


@struct.dataclass
class JumanjiState(EnvState):
    """The state of an episode of Jumanji.

    Attributes:
        inner: Jumanji's own state.
        cut: `[]` bool, whether Jumanji ended the episode without a termination.
    """

    inner: Any
    cut: Array


class JumanjiEnvironment(Environment[JumanjiState, EnvParams]):
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
        self.jumanji_name = jumanji_name
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
            self._actions = actions_of(self.wrapped.action_spec, mask)
        except ValueError as error:
            raise ValueError(f"{self.name} {error}") from None
        counters = parts.keys() & _COUNTERS if limit is not None else set()
        self._counters = tuple(sorted(counters))
        parts |= {name: Box(0.0, 1.0, ()) for name in self._counters}
        if mask is not None:
            parts[MASK] = MultiBinary(self._actions.mask_size)
        if kind in _STARTS_NOWHERE:
            parts["position"] = Discrete(parts["position"].n + 1)
        self._space = Dict(parts) if parts else inner

    @property
    def name(self) -> str:
        """`jumanji/` and Jumanji's name."""
        return f"jumanji/{self.jumanji_name}"

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
        with _as_jumanji_is_written():
            inner, last = self._endless.step(before, self._actions.to_jumanji(action))
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
        return self._actions.space

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
    known = sorted(registered_environments())
    if name not in known:
        folded = {one.casefold(): one for one in known}
        found = difflib.get_close_matches(name.casefold(), folded, n=2, cutoff=0.5)
        near = "".join(f"{folded[one]}, " for one in found)
        raise ValueError(
            f"jumanji_name {name!r} is none of Jumanji's: choose {near}"
            f"{'or another ' if near else 'one '}of {', '.join(known)}."
        )
    try:
        return make(name, **options)
    except TypeError as error:
        if not options:
            raise
        taken = inspect.signature(type(make(name))).parameters
        known = [option for option in taken if option != "viewer"]
        raise refused_options(f"jumanji/{name}", options, error, known) from None
    except OSError as error:  # The levels of Sokoban are not in the package.
        first = str(error).split("\n")[0].split(". ")[0]
        raise ValueError(
            f"jumanji/{name} needs levels, which Jumanji could not download from "
            f"Hugging Face ({first}): make it where that can be reached, or choose "
            "another environment."
        ) from None

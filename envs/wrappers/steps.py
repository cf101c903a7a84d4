"""Actions and rewards that are others than those of the environment inside."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from ..base import RAW_REWARD, Array, Obs, Step, select_tree
from ..options import whole_number
from ..spaces import zeros
from .base import MASK, Wrapper, WrapperState, check_number


def _check_no_mask(wrapper: Wrapper) -> None:
    """Refuse to repeat actions that are not always valid."""
    if MASK in getattr(wrapper.env.observation_space(), "spaces", ()):
        who, env = type(wrapper).__name__, wrapper.env.name
        raise ValueError(f"{who}: the action before may be invalid in {env}.")


@dataclasses.dataclass(unsafe_hash=True)
class ActionRepeat(Wrapper):
    """A wrapper that takes every action n times and adds up the rewards.

    It stops within the n steps where the episode terminates or its time limit is
    reached. The limit stays one of the environment inside: `max_steps_in_episode`
    counts its steps, of which an agent decides every n-th.

    Attributes:
        env: The environment inside, all of whose actions are always valid.
        n: Number of steps for which an action is taken.
    """

    n: int = 4

    def check(self) -> None:
        """Refuse a mask of actions, and anything but a whole number of at least 1."""
        _check_no_mask(self)
        self.n = whole_number("ActionRepeat: n", self.n, least=1)

    @property
    def time_per_step(self) -> int:
        """N times that of the environment inside."""
        return self.n * self.env.time_per_step

    def step_env(self, key: Array, state: Any, action: Array, params: Any) -> Step:
        """Take up to n steps."""

        def once(state: Any, number: Any, before: Step | None = None) -> Step:
            key_now = jax.random.fold_in(key, number)
            taken = self.env.step_env(key_now, state, action, params)
            obs, state, more, terminated, info = taken
            # Truth values would not add up, and bytes would begin anew after 255.
            more = jnp.asarray(more, jnp.float32)
            if before is not None:
                more = before[2] + more
                if RAW_REWARD in info:
                    raw = before[4][RAW_REWARD] + info[RAW_REWARD]
                    info = {**info, RAW_REWARD: raw}
            return obs, state, more, terminated, info

        def again(last: Step, number: Array) -> tuple[Step, None]:
            _, state, _, terminated, _ = last
            is_over = terminated | self.env.is_truncated(state, params)
            return select_tree(is_over, last, once(state, number, last)), None

        return jax.lax.scan(again, once(state, 0), jnp.arange(1, self.n))[0]


@struct.dataclass
class StickyActionsState(WrapperState):
    """The state of the environment inside, and what was done.

    Attributes:
        action: Action that was executed last, a pytree where it has several parts.
        is_first: `[]` bool, whether no action has been executed in this episode.
    """

    action: Any
    is_first: Array


@dataclasses.dataclass(unsafe_hash=True)
class StickyActions(Wrapper):
    """A wrapper that with some probability repeats the action before.

    Machado et al. (2018), "Revisiting the Arcade Learning Environment", section 5.1,
    with a probability of 0.25. The first action of an episode is always executed,
    because there is no action without effect that every environment has.

    The probability is the parameter `sticky_probability`.

    Attributes:
        env: The environment inside, all of whose actions are always valid.
        probability: Default of `sticky_probability`, between 0 and 1.
    """

    probability: float = 0.25
    has_state: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse an environment in which the action before may be invalid."""
        _check_no_mask(self)

    def numbers(self) -> dict[str, float]:
        """Return `sticky_probability`."""
        probability = check_number("StickyActions", "probability", self.probability)
        return {"sticky_probability": probability}

    def check_numbers(self, numbers: Mapping[str, Any]) -> None:
        """Refuse what is no probability."""
        value = numbers["sticky_probability"]
        if not 0 <= value <= 1:
            raise ValueError(
                f"StickyActions: sticky_probability must lie between 0 and 1, got "
                f"{value:g}."
            )

    @property
    def stochastic_transitions(self) -> bool:  # type: ignore[override]
        """Always: chance decides which action is executed."""
        return True

    def reset_env(self, key: Array, params: Any) -> tuple[Obs, StickyActionsState]:
        """Start an episode; the key is consumed."""
        obs, inner = self.env.reset_env(key, params)
        nothing = zeros(self.action_space(params))
        return obs, StickyActionsState(inner, nothing, jnp.asarray(True))

    def step_env(
        self, key: Array, state: StickyActionsState, action: Array, params: Any
    ) -> Step:
        """Take one step with the new action or the one before."""
        key_stick, key_step = jax.random.split(key)
        sticks = jax.random.bernoulli(key_stick, params.sticky_probability)
        sticks = sticks & ~state.is_first
        action = jax.tree.map(
            lambda old, new: jnp.where(sticks, old, jnp.asarray(new, old.dtype)),
            state.action,
            action,
        )
        obs, inner, *rest = self.env.step_env(key_step, state.inner, action, params)
        after = StickyActionsState(inner, action, jnp.zeros_like(state.is_first))
        return obs, after, *rest  # type: ignore[return-value]


class StepInside(NamedTuple):
    """A step of the environment inside, whatever is paid for it.

    Attributes:
        state: State before the step.
        action: Action that was taken.
        obs: Observation after it, before any reset.
        next_state: State after it.
        terminated: `[]` bool, whether the episode ended there.
    """

    state: Any
    action: Any
    obs: Obs
    next_state: Any
    terminated: Array


@dataclasses.dataclass(unsafe_hash=True)
class RewardWrapper(Wrapper):
    """A wrapper that pays something else, and leaves the game alone.

    An agent learns from what is paid. Its `episode_return` and its evaluations count
    the rewards of the game, and `shaped_return` those that it was paid.
    """

    shapes_rewards: ClassVar[bool] = True  # type: ignore[assignment]

    @property
    def note(self) -> str:
        """What is counted, after the note of the environment inside."""
        words = (
            "episode_return and evaluations count the rewards of the game, "
            "shaped_return what the wrappers pay for them"
        )
        inside = self.env.note
        return inside if words in inside else f"{inside} {words}".strip()

    def pay(self, reward: Array, step: StepInside, params: Any) -> Array:
        """Return what is paid for a step in place of a reward, float32 `[]`.

        Args:
            reward: Reward of the environment inside, float32 `[]`.
            step: The step, for a payment that depends on more.
            params: Numbers of the environment, the wrapper's own among them.
        """
        raise NotImplementedError

    def step_env(self, key: Array, state: Any, action: Array, params: Any) -> Step:
        """Take one step."""
        taken = self.env.step_env(key, state, action, params)
        obs, after, reward, terminated, info = taken
        # Whole numbers and Python's own become floats before they are changed.
        reward = jnp.asarray(reward, jnp.float32)
        step = StepInside(state, action, obs, after, terminated)
        paid = self.pay(reward, step, params)
        return obs, after, paid, terminated, {RAW_REWARD: reward, **info}


@dataclasses.dataclass(unsafe_hash=True)
class ClipReward(RewardWrapper):
    """Rewards between two bounds, as Mnih et al. (2015) clip them to -1 .. 1.

    The bounds are the parameters `reward_low` and `reward_high`.

    Attributes:
        env: The environment inside.
        low: Default of `reward_low`.
        high: Default of `reward_high`.
    """

    low: float = -1.0
    high: float = 1.0

    def numbers(self) -> dict[str, float]:
        """Return `reward_low` and `reward_high`."""
        low = check_number("ClipReward", "low", self.low, finite=False)
        high = check_number("ClipReward", "high", self.high, finite=False)
        return {"reward_low": low, "reward_high": high}

    def check_numbers(self, numbers: Mapping[str, Any]) -> None:
        """Refuse a lower bound that is not below the upper one."""
        low, high = numbers["reward_low"], numbers["reward_high"]
        if not low < high:
            raise ValueError(
                f"ClipReward: reward_low must be less than reward_high, got {low:g} "
                f"and {high:g}."
            )

    def pay(self, reward: Array, step: StepInside, params: Any) -> Array:
        """Return the reward within the bounds."""
        return jnp.clip(reward, params.reward_low, params.reward_high)


@dataclasses.dataclass(unsafe_hash=True)
class ScaleReward(RewardWrapper):
    """Rewards times a number, the parameter `reward_factor`.

    Attributes:
        env: The environment inside.
        factor: Default of `reward_factor`.
    """

    factor: float = 1.0

    def numbers(self) -> dict[str, float]:
        """Return `reward_factor`."""
        return {"reward_factor": check_number("ScaleReward", "factor", self.factor)}

    def pay(self, reward: Array, step: StepInside, params: Any) -> Array:
        """Return the reward times the number."""
        return reward * params.reward_factor


@dataclasses.dataclass(unsafe_hash=True)
class TerminalLimit(Wrapper):
    """The time limit terminates the episode, where it would truncate it.

    Nothing is worth anything after a termination, and a truncated episode is valued as
    if it went on. Where a lifetime is the task, as in bandits with a number of pulls,
    the return is to be made within it. Pardo et al. (2018), "Time limits in
    reinforcement learning", call the two time-aware learning and partial-episode
    bootstrapping; an agent of the first kind should see the time that is left, as with
    `TimeObservation`, where the observation does not tell it.

    Attributes:
        env: The environment inside.
    """

    terminal_limit: ClassVar[bool] = True  # type: ignore[assignment]

    def step_env(self, key: Array, state: Any, action: Array, params: Any) -> Step:
        """Take a step, which terminates at the time limit too."""
        taken = self.env.step_env(key, state, action, params)
        obs, state, reward, terminated, info = taken
        is_over = terminated | self.env.is_truncated(state, params)
        return obs, state, reward, is_over, info

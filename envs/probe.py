"""Probe environments: tiny tasks whose exact values are known.

Each isolates one thing a learner must do, so a learner that fails one of them names
its own bug: the value head (constant reward), its input (reward follows the
observation), discounting (delayed), the policy (reward follows the action), both
(action must match the observation), memory (it must match the first observation),
scaling of continuous actions, and the time limit (`ChainMDP`). The idea is Andy
Jones's (2021, "Debugging RL, without the agonizing pain"); rejax's tests use a similar
set.

All of them but the chain terminate; the time limit never acts in them.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from .base import Array, Environment, EnvParams, EnvState, Obs, Step
from .options import whole_number
from .spaces import Box, Discrete, Space


@struct.dataclass
class ProbeState(EnvState):
    """The sign that decides what an episode shows or rewards.

    Attributes:
        sign: `[]` float32, +1 or -1, what the episode shows (0: nothing).
    """

    sign: Array


@struct.dataclass
class ProbeParams(EnvParams):
    """Numbers of a probe.

    Attributes:
        max_steps_in_episode: Time limit, which a probe that terminates never reaches.
        reward: Size of the reward.
    """

    max_steps_in_episode: int | Array = 10
    reward: float | Array = 1.0


@dataclasses.dataclass(unsafe_hash=True)
class Probe(Environment[ProbeState, ProbeParams]):
    """The base of the probes: one number observed, two actions, no chance in a step.

    A probe says with `pay` what its last step pays, times the parameter `reward`.

    Attributes:
        shows_sign: Whether the first observation is a sign that is drawn, else 0.
    """

    stochastic_transitions: ClassVar[bool] = False
    shows_sign: ClassVar[bool] = False

    @property
    def default_params(self) -> ProbeParams:
        """The default parameters, with a reward of 1."""
        return ProbeParams()

    def action_space(self, params: ProbeParams | None = None) -> Space:
        """Return the space of two actions."""
        return Discrete(2)

    def observation_space(self, params: ProbeParams | None = None) -> Box:
        """Return the space of one number in -1 .. 1."""
        return Box(-1.0, 1.0, (1,))

    def reset_env(self, key: Array, params: ProbeParams) -> tuple[Obs, ProbeState]:
        """Show the sign, or nothing."""
        sign = jnp.float32(0.0)
        if self.shows_sign:
            sign = jax.random.rademacher(key, (), jnp.float32)
        return sign[None], ProbeState(jnp.int32(0), sign)

    def step_env(
        self, key: Array, state: ProbeState, action: Array, params: Any
    ) -> Step:
        """Pay in the last step, which ends the episode."""
        is_last = self.is_last(state, params)
        paid = self.pay(state, action, params) * params.reward
        reward = jnp.where(is_last, paid, 0.0).astype(jnp.float32)
        next_state = ProbeState(state.time + 1, state.sign)
        return self.later_obs(state), next_state, reward, is_last, {}

    def pay(self, state: ProbeState, action: Array, params: Any) -> Any:
        """Return the reward of the last step, before `reward` scales it."""
        raise NotImplementedError

    def is_last(self, state: ProbeState, params: Any) -> Array:
        """Return whether the step ends the episode; the first one does."""
        return jnp.asarray(True)

    def later_obs(self, state: ProbeState) -> Array:
        """Return the observation after a step: the sign again."""
        return state.sign[None]


@dataclasses.dataclass(unsafe_hash=True)
class ConstantRewardProbe(Probe):
    """One step, reward 1 whatever is done. V = 1."""

    def pay(self, state: ProbeState, action: Array, params: ProbeParams) -> float:
        """Return 1."""
        return 1.0


@dataclasses.dataclass(unsafe_hash=True)
class ObservationRewardProbe(Probe):
    """One step, the observation is +-1 and the reward equals it. V(o) = o."""

    shows_sign: ClassVar[bool] = True

    def pay(self, state: ProbeState, action: Array, params: ProbeParams) -> Array:
        """Return what was shown."""
        return state.sign


@dataclasses.dataclass(unsafe_hash=True)
class DelayedRewardProbe(ConstantRewardProbe):
    """Two steps, observations 0 then 1, reward 1 for the second. V = gamma, then 1."""

    def is_last(self, state: ProbeState, params: ProbeParams) -> Array:
        """Return whether it is the second step."""
        return state.time == 1

    def later_obs(self, state: ProbeState) -> Array:
        """Return 1."""
        return jnp.ones(1)


@dataclasses.dataclass(unsafe_hash=True)
class ActionRewardProbe(Probe):
    """One step, action 1 pays +1, action 0 pays -1. Best return 1."""

    def pay(self, state: ProbeState, action: Array, params: ProbeParams) -> Array:
        """Pay for the action alone."""
        return jnp.where(action == 1, 1.0, -1.0)


@dataclasses.dataclass(unsafe_hash=True)
class ActionObservationProbe(Probe):
    """One step, the observation is +-1; action 1 is right for +1, action 0 for -1.

    Right pays +1, wrong -1. Best return 1; ignoring either side averages 0.
    """

    shows_sign: ClassVar[bool] = True

    def pay(self, state: ProbeState, action: Array, params: ProbeParams) -> Array:
        """Pay for agreement of action and sign."""
        return jnp.where((action == 1) == (state.sign > 0), 1.0, -1.0)


@struct.dataclass
class MemoryProbeParams(ProbeParams):
    """Numbers of the memory probe.

    Attributes:
        blanks: Observations of 0 after the sign, at least 1; an episode has
            `blanks + 1` steps.
    """

    blanks: int | Array = 3


@dataclasses.dataclass(unsafe_hash=True)
class MemoryProbe(ActionObservationProbe):
    """The sign is shown once, at the start; the action after the blanks must match it.

    Right pays +1, wrong -1, and the actions before count for nothing. Best return 1,
    `V = gamma^(blanks - time)`. The observation on which the last action is chosen is
    0 for either sign, so whoever sees nothing else averages exactly 0. Where
    `continuous`, an action in -1 .. 1 is paid its product with the sign.

    Attributes:
        continuous: Actions are numbers, for algorithms that need such.
    """

    continuous: bool = False

    @property
    def default_params(self) -> MemoryProbeParams:
        """The default parameters, with three blanks."""
        return MemoryProbeParams()

    def action_space(self, params: MemoryProbeParams | None = None) -> Space:
        """Return two actions, or an interval."""
        return Box(-1.0, 1.0, (1,)) if self.continuous else Discrete(2)

    def pay(self, state: ProbeState, action: Array, params: ProbeParams) -> Array:
        """Pay for agreement of action and sign."""
        if self.continuous:
            return state.sign * jnp.clip(action[0], -1.0, 1.0)
        return super().pay(state, action, params)

    def is_last(self, state: ProbeState, params: MemoryProbeParams) -> Array:
        """Return whether it is the step after the last blank."""
        return state.time == params.blanks

    def later_obs(self, state: ProbeState) -> Array:
        """Return 0."""
        return jnp.zeros(1)


@struct.dataclass
class ContinuousProbeParams(ProbeParams):
    """Numbers of the continuous probe; the range of actions is not symmetric.

    Attributes:
        low: Smallest action.
        high: Largest action.
        target: Best action where the observation is 0.
        target_slope: Growth of the best action with the observation.
    """

    low: float | Array = -1.0
    high: float | Array = 3.0
    target: float | Array = 1.5
    target_slope: float | Array = 1.0


@dataclasses.dataclass(unsafe_hash=True)
class ContinuousProbe(Probe):
    """One step, one continuous action in [-1, 3], best at 2.5 (o = 1), 0.5 (o = -1).

    Reward -(a - (1.5 + o))^2, so the best return is 0 and the best constant action
    averages -1. Actions outside the range are clipped to it. An agent that takes the
    range for [-1, 1] cannot reach 2.5.
    """

    shows_sign: ClassVar[bool] = True

    @property
    def default_params(self) -> ContinuousProbeParams:
        """Actions in [-1, 3]."""
        return ContinuousProbeParams()

    def action_space(self, params: ContinuousProbeParams | None = None) -> Box:
        """Return the space of one number between `low` and `high`."""
        params = self.default_params if params is None else params
        return Box(params.low, params.high, (1,))

    def pay(
        self, state: ProbeState, action: Array, params: ContinuousProbeParams
    ) -> Array:
        """Charge the squared distance to the best action."""
        best = params.target + params.target_slope * state.sign
        taken = jnp.clip(action[0], params.low, params.high)
        return -((taken - best) ** 2)


@struct.dataclass
class ChainState(EnvState):
    """The place of the walk.

    Attributes:
        position: `[]` int32; `length` means past the end.
    """

    position: Array


@struct.dataclass
class ChainParams(EnvParams):
    """Numbers of the chain.

    Attributes:
        max_steps_in_episode: Time limit; shorter than the chain, so that it acts.
        reward: Reward for leaving the last position.
    """

    max_steps_in_episode: int | Array = 3
    reward: float | Array = 1.0


@dataclasses.dataclass(unsafe_hash=True)
class ChainMDP(Environment[ChainState, ChainParams]):
    """Walk right along `length` positions; only leaving the last one pays.

    * observation: float32 `[length]`, one-hot position; all zeros past the end. Time
      is not observed.
    * action: two, or one number in -1 .. 1 where `continuous`; all walk right.
    * start: uniform over the positions.
    * terminated: past the end, with the reward. truncated: at the time limit.

    The time limit is no part of the task (Pardo et al. 2018, "Time Limits in
    Reinforcement Learning"), so V(i) = reward * gamma^(length - 1 - i), whatever the
    limit. A learner that takes truncation for termination gets other values.

    Attributes:
        length: Number of positions, at least 2.
        continuous: Actions are numbers, for algorithms that need such.
    """

    length: int = 5
    continuous: bool = False

    stochastic_transitions: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the length: with one position there is nothing to look ahead to."""
        self.length = whole_number("length", self.length, least=2)

    @property
    def default_params(self) -> ChainParams:
        """A limit of half the length, rounded up: 3 for 5 positions."""
        return ChainParams(max_steps_in_episode=(self.length + 1) // 2)

    def reset_env(self, key: Array, params: ChainParams) -> tuple[Obs, ChainState]:
        """Start anywhere, with equal chances."""
        position = jax.random.randint(key, (), 0, self.length, dtype=jnp.int32)
        return self._observe(position), ChainState(jnp.int32(0), position)

    def step_env(
        self, key: Array, state: ChainState, action: Array, params: ChainParams
    ) -> Step:
        """Walk one position to the right."""
        position = state.position + 1
        terminated = position >= self.length
        reward = jnp.where(terminated, params.reward, 0.0).astype(jnp.float32)
        next_state = ChainState(state.time + 1, position)
        return self._observe(position), next_state, reward, terminated, {}

    def action_space(self, params: ChainParams | None = None) -> Space:
        """Return a space of actions that do the same: two, or those of an interval."""
        return Box(-1.0, 1.0, (1,)) if self.continuous else Discrete(2)

    def observation_space(self, params: ChainParams | None = None) -> Box:
        """Return the space of a one-hot vector."""
        return Box(0.0, 1.0, (self.length,))

    def optimal_values(
        self, gamma: float, params: ChainParams | None = None
    ) -> np.ndarray:
        """Compute V `[length]` = reward * gamma^(length - 1 - i)."""
        params = self.default_params if params is None else params
        steps_to_go = np.arange(self.length - 1, -1, -1)
        return float(params.reward) * gamma**steps_to_go

    def _observe(self, position: Array) -> Array:
        return jax.nn.one_hot(position, self.length, dtype=jnp.float32)

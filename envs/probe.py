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

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from .base import Environment, EnvParams, EnvState, Info
from .chain import ChainMDP as ChainMDP
from .spaces import Box, Discrete, Space

Step = tuple[jax.Array, "ProbeState", jax.Array, jax.Array, Info]


@struct.dataclass
class ProbeState(EnvState):
    """The sign that decides what an episode shows or rewards.

    Attributes:
        sign: `[]` float32, +1 or -1, what the episode shows (0: nothing).
    """

    sign: jax.Array


@struct.dataclass
class ProbeParams(EnvParams):
    """Numbers of a probe.

    Attributes:
        max_steps_in_episode: Time limit, which a probe that terminates never reaches.
        reward: Size of the reward.
    """

    max_steps_in_episode: int | jax.Array = 10
    reward: float | jax.Array = 1.0


@dataclasses.dataclass(unsafe_hash=True)
class Probe(Environment[ProbeState, ProbeParams]):
    """The base of the probes: one number observed, two actions, no chance in a step."""

    stochastic_transitions: ClassVar[bool] = False

    @property
    def default_params(self) -> ProbeParams:
        """The default parameters, with a reward of 1."""
        return ProbeParams()

    def action_space(self, params: ProbeParams | None = None) -> Space:
        """Return the space of two actions."""
        del params
        return Discrete(2)

    def observation_space(self, params: ProbeParams | None = None) -> Box:
        """Return the space of one number in -1 .. 1."""
        del params
        return Box(-1.0, 1.0, (1,))

    def reset_env(
        self, key: jax.Array, params: ProbeParams
    ) -> tuple[jax.Array, ProbeState]:
        """Start with nothing to see: the observation is 0."""
        del key, params
        return jnp.zeros(1), ProbeState(jnp.int32(0), jnp.float32(0.0))


@dataclasses.dataclass(unsafe_hash=True)
class ConstantRewardProbe(Probe):
    """One step, reward 1 whatever is done. V = 1."""

    def step_env(
        self, key: jax.Array, state: ProbeState, action: jax.Array, params: ProbeParams
    ) -> Step:
        """End the episode, pay the reward.

        Args:
            key: Random key, which is not used.
            state: State of the running episode.
            action: Action of the agent, which is not used.
            params: Numbers of the environment.
        """
        del key, action
        return _end(state, jnp.zeros(1), 1.0, params)


@dataclasses.dataclass(unsafe_hash=True)
class ObservationRewardProbe(Probe):
    """One step, the observation is +-1 and the reward equals it. V(o) = o."""

    def reset_env(
        self, key: jax.Array, params: ProbeParams
    ) -> tuple[jax.Array, ProbeState]:
        """Draw and show the sign."""
        del params
        return _show_sign(key)

    def step_env(
        self, key: jax.Array, state: ProbeState, action: jax.Array, params: ProbeParams
    ) -> Step:
        """End the episode, pay what was shown.

        Args:
            key: Random key, which is not used.
            state: State of the running episode.
            action: Action of the agent, which is not used.
            params: Numbers of the environment.
        """
        del key, action
        return _end(state, state.sign[None], state.sign, params)


@dataclasses.dataclass(unsafe_hash=True)
class DelayedRewardProbe(Probe):
    """Two steps, observations 0 then 1, reward 1 for the second. V = gamma, then 1."""

    def step_env(
        self, key: jax.Array, state: ProbeState, action: jax.Array, params: ProbeParams
    ) -> Step:
        """Show 1; pay and end on the second step.

        Args:
            key: Random key, which is not used.
            state: State of the running episode.
            action: Action of the agent, which is not used.
            params: Numbers of the environment.
        """
        del key, action
        is_last = state.time == 1
        reward = jnp.where(is_last, params.reward, 0.0).astype(jnp.float32)
        next_state = ProbeState(state.time + 1, jnp.float32(0.0))
        return jnp.ones(1), next_state, reward, is_last, {}


@dataclasses.dataclass(unsafe_hash=True)
class ActionRewardProbe(Probe):
    """One step, action 1 pays +1, action 0 pays -1. Best return 1."""

    def step_env(
        self, key: jax.Array, state: ProbeState, action: jax.Array, params: ProbeParams
    ) -> Step:
        """End the episode, pay for the action alone.

        Args:
            key: Random key, which is not used.
            state: State of the running episode.
            action: Action of the agent.
            params: Numbers of the environment.
        """
        del key
        return _end(state, jnp.zeros(1), jnp.where(action == 1, 1.0, -1.0), params)


@dataclasses.dataclass(unsafe_hash=True)
class ActionObservationProbe(Probe):
    """One step, the observation is +-1; action 1 is right for +1, action 0 for -1.

    Right pays +1, wrong -1. Best return 1; ignoring either side averages 0.
    """

    def reset_env(
        self, key: jax.Array, params: ProbeParams
    ) -> tuple[jax.Array, ProbeState]:
        """Draw and show the sign."""
        del params
        return _show_sign(key)

    def step_env(
        self, key: jax.Array, state: ProbeState, action: jax.Array, params: ProbeParams
    ) -> Step:
        """End the episode, pay for agreement of action and sign.

        Args:
            key: Random key, which is not used.
            state: State of the running episode.
            action: Action of the agent.
            params: Numbers of the environment.
        """
        del key
        agrees = (action == 1) == (state.sign > 0)
        return _end(state, state.sign[None], jnp.where(agrees, 1.0, -1.0), params)


@struct.dataclass
class MemoryProbeParams(ProbeParams):
    """Numbers of the memory probe.

    Attributes:
        blanks: Observations of 0 after the sign, at least 1; an episode has
            `blanks + 1` steps.
    """

    blanks: int | jax.Array = 3


@dataclasses.dataclass(unsafe_hash=True)
class MemoryProbe(Probe):
    """The sign is shown once, at the start; the action after the blanks must match it.

    Right pays +1, wrong -1, and the actions before count for nothing. Best return 1,
    `V = gamma^(blanks - time)`. The observation on which the last action is chosen is
    0 for either sign, so whoever sees nothing else averages exactly 0.
    """

    @property
    def default_params(self) -> MemoryProbeParams:
        """The default parameters, with three blanks."""
        return MemoryProbeParams()

    def reset_env(
        self, key: jax.Array, params: MemoryProbeParams
    ) -> tuple[jax.Array, ProbeState]:
        """Draw and show the sign."""
        del params
        return _show_sign(key)

    def step_env(
        self,
        key: jax.Array,
        state: ProbeState,
        action: jax.Array,
        params: MemoryProbeParams,
    ) -> Step:
        """Show nothing; after the last blank end the episode and pay for agreement.

        Args:
            key: Random key, which is not used.
            state: State of the running episode.
            action: Action of the agent.
            params: Numbers of the environment.
        """
        del key
        is_last = state.time == params.blanks
        agrees = (action == 1) == (state.sign > 0)
        paid = jnp.where(agrees, params.reward, -params.reward)
        reward = jnp.where(is_last, paid, 0.0).astype(jnp.float32)
        next_state = ProbeState(state.time + 1, state.sign)
        return jnp.zeros(1), next_state, reward, is_last, {}


@struct.dataclass
class ContinuousProbeParams(ProbeParams):
    """Numbers of the continuous probe; the range of actions is not symmetric.

    Attributes:
        low: Smallest action.
        high: Largest action.
        target: Best action where the observation is 0.
        target_slope: Growth of the best action with the observation.
    """

    low: float | jax.Array = -1.0
    high: float | jax.Array = 3.0
    target: float | jax.Array = 1.5
    target_slope: float | jax.Array = 1.0


@dataclasses.dataclass(unsafe_hash=True)
class ContinuousProbe(Probe):
    """One step, one continuous action in [-1, 3], best at 2.5 (o = 1), 0.5 (o = -1).

    Reward -(a - (1.5 + o))^2, so the best return is 0 and the best constant action
    averages -1. Actions outside the range are clipped to it. An agent that takes the
    range for [-1, 1] cannot reach 2.5.
    """

    @property
    def default_params(self) -> ContinuousProbeParams:
        """Actions in [-1, 3]."""
        return ContinuousProbeParams()

    def action_space(self, params: ContinuousProbeParams | None = None) -> Box:
        """Return the space of one number between `low` and `high`."""
        params = self.default_params if params is None else params
        return Box(params.low, params.high, (1,))

    def reset_env(
        self, key: jax.Array, params: ContinuousProbeParams
    ) -> tuple[jax.Array, ProbeState]:
        """Draw and show the sign."""
        del params
        return _show_sign(key)

    def step_env(
        self,
        key: jax.Array,
        state: ProbeState,
        action: jax.Array,
        params: ContinuousProbeParams,
    ) -> Step:
        """End the episode, charge the squared distance to the best action.

        Args:
            key: Random key, which is not used.
            state: State of the running episode.
            action: Action of the agent.
            params: Numbers of the environment.
        """
        del key
        best = params.target + params.target_slope * state.sign
        taken = jnp.clip(action[0], params.low, params.high)
        return _end(state, state.sign[None], -((taken - best) ** 2), params)


def _show_sign(key: jax.Array) -> tuple[jax.Array, ProbeState]:
    sign = jax.random.rademacher(key, (), jnp.float32)
    return sign[None], ProbeState(jnp.int32(0), sign)


def _end(
    state: ProbeState,
    obs: jax.Array,
    reward: float | jax.Array,
    params: ProbeParams,
) -> Step:
    """Terminate; `reward` is scaled by `params.reward`."""
    reward = jnp.asarray(reward * params.reward, jnp.float32)
    next_state = ProbeState(state.time + 1, state.sign)
    return obs, next_state, reward, jnp.asarray(True), {}

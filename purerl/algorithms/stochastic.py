"""The policies of SAC and MPO, which are sampled: `tanh` of a Gaussian, or logits.

Their critics have two forms: values of an observation and an action in [-1, 1], or
values of all discrete actions.
"""

from functools import partial
from typing import Any, Protocol

import flax.linen as nn
import jax.numpy as jnp

from purerl import networks
from purerl.acting import exploration, observe, rollout
from purerl.acting.observe import obs_shape
from purerl.algorithms import continuous
from purerl.algorithms.actor_critic import ActorCriticState, Learner
from purerl.networks.distributions import Head
from purerl.types import Array, PyTree


class StochasticParts(Protocol):
    """The parts of an algorithm with such a policy, a `NamedTuple`."""

    @property
    def config(self) -> Any:
        """Config of the agent."""
        ...

    @property
    def obs_space(self) -> Any:
        """Observation space of the environment."""
        ...

    @property
    def head(self) -> Head:
        """Distribution of discrete actions, or the range of continuous ones."""
        ...

    @property
    def actor(self) -> nn.Module:
        """Network of logits, or of a Gaussian."""
        ...

    @property
    def critics(self) -> nn.Module:
        """Networks of the values of all actions, or of a given one."""
        ...


def init_params(parts: StochasticParts, keys: Array) -> dict[str, PyTree]:
    """Return fresh parameters of `actor` and `critics`.

    Args:
        parts: Networks and environments of the algorithm.
        keys: Two random keys, consumed.
    """
    obs = observe.example(parts.obs_space)
    action = jnp.zeros((1, parts.head.num_outputs))
    judged = [obs] if parts.head.is_discrete else [obs, action]
    return networks.init_params(
        keys, {"actor": (parts.actor, [obs]), "critics": (parts.critics, judged)}
    )


def act(
    parts: StochasticParts,
    state: ActorCriticState,
    obs: Array,
    key: Array | None = None,
) -> Array:
    """Return the policy's action on observations `[..., *obs_shape]`.

    Args:
        parts: Networks and environments of the algorithm.
        state: State of one agent.
        obs: Observations as the environment gives them.
        key: Random key, consumed; without one the action is the deterministic one:
            the likeliest, or `tanh` of the mean.
    """
    head = parts.head
    features = observe.prepare(parts, state.obs_moments, obs)
    outputs: Any = parts.actor.apply(state.params["actor"], features)
    raw = head.mode(outputs) if key is None else head.sample(outputs, key)
    return head.to_env(raw if head.is_discrete else jnp.tanh(raw))


def explore(
    parts: StochasticParts, learner: Learner, features: Any, noise: Array, step: Array
) -> Array:
    """Return a sampled action as it is stored; see `off_policy.OffPolicyHooks`.

    Args:
        parts: Networks and environments of the algorithm.
        learner: Learner of one agent.
        features: `[B, ...]` features of the observations.
        noise: `[B, ...]` noise of the actions.
        step: `[B]` environment steps done; nothing here depends on them.
    """
    del step
    outputs: Any = parts.actor.apply(learner.params["actor"], features)
    raw = parts.head.choose(outputs, noise)
    return raw if parts.head.is_discrete else jnp.tanh(raw)


def random_action(parts: StochasticParts) -> rollout.Draw:
    """Return the function that draws the actions of the warm-up."""
    num = parts.head.num_outputs
    if not parts.head.is_discrete:
        return partial(continuous.random_action, num_actions=num)
    choices = exploration.choices_of(obs_shape(parts.obs_space), num)
    return partial(exploration.draw_action, num_actions=choices)

"""Exploration of value-based policies: epsilon-greedy, and its schedules.

Every environment tosses its own coin: one coin for the batch makes all environments
random together, and their samples as dependent as they can be.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer

from purerl.accelerator import columns
from purerl.config import ConfigError, TrainConfig, config_dataclass, dynamic, static
from purerl.fields import AUTO, FRACTION, POSITIVE, Check, one_of
from purerl.networks import observe
from purerl.types import Array

SCHEDULES = ("linear", "inverse_time", "constant")
# A uniform number is drawn below this where the number of valid actions is not known.
MANY = 2**31 - 1
SHARE = Check(lambda x: 0 < x <= 1, "must be greater than 0 and at most 1")


class Coin(NamedTuple):
    """The randomness of epsilon-greedy actions.

    Attributes:
        toss: `[...]` float32, uniform in [0, 1); below epsilon the agent explores.
        action: `[...]` int32, the uniform action, or a number that `valid_action` makes
            one.
    """

    toss: Array
    action: Array


@config_dataclass
class EpsilonConfig(TrainConfig):
    """Fields of epsilon-greedy exploration."""

    epsilon_schedule: str = static("linear", "Form of the decay.", one_of(*SCHEDULES))
    epsilon_start: float = dynamic(1.0, "Share of random actions at first.", FRACTION)
    epsilon_end: float = dynamic(
        0.05, "Share of random actions at the end of the decay.", FRACTION
    )
    epsilon_fraction: float = dynamic(
        0.5, "Share of the run over which exploration decays.", SHARE, moves=False
    )
    epsilon_steps: float = dynamic(
        AUTO,
        "Environment steps of the linear decay, or that halve the inverse-time "
        "one; auto takes epsilon_fraction of total_timesteps.",
        POSITIVE,
        moves=False,
    )

    def automatic(self, env: Any) -> dict[str, Any]:
        """Return the decay's length in environment steps."""
        del env
        return {"epsilon_steps": self.epsilon_fraction * self.total_timesteps}


def check_share(config: Any) -> None:
    """Refuse a share of the run that a given number of steps makes idle.

    Args:
        config: Resolved config with `epsilon_fraction`, `epsilon_steps` and
            `total_timesteps`.

    Raises:
        ConfigError: naming both, and how to choose one.
    """
    share, steps = config.epsilon_fraction, config.epsilon_steps
    if isinstance(share, Tracer) or isinstance(steps, Tracer):
        return
    default = type(config)().epsilon_fraction
    if share != default and steps != share * config.total_timesteps:
        raise ConfigError(
            f"epsilon_fraction={share:g} and epsilon_steps={steps:g} contradict one "
            "another: leave one of them out."
        )


def draw_coin(key: Array, shape: tuple[int, ...] = (), *, num_actions: int) -> Coin:
    """Draw a coin per environment, both sides from one draw of bits.

    Args:
        shape: Shape of the coins, one per environment.
        num_actions: Number of actions from which the uniform one is drawn.
    """
    toss, choice = jax.random.bits(key, (2, *shape))
    # A float32 holds 24 bits: the next multiple of 2^-24 below the uniform number.
    return Coin(
        (toss >> 8).astype(jnp.float32) * 2.0**-24, _action(choice, num_actions)
    )


def draw_action(key: Array, shape: tuple[int, ...] = (), *, num_actions: int) -> Array:
    """Draw uniform actions, int32 `[*shape]`.

    Args:
        shape: Shape of the actions, one per environment.
        num_actions: Number of actions from which they are drawn.
    """
    return _action(jax.random.bits(key, shape), num_actions)


def _action(bits: Array, num_actions: int) -> Array:
    # The modulus favours no action by more than n / 2^32; `randint` draws four times.
    return (bits % jnp.uint32(num_actions)).astype(jnp.int32)


def choices_of(obs_shape: Any, num_actions: int) -> int:
    """Return of how many a coin's uniform number is: the actions, or `MANY`.

    Args:
        obs_shape: Shape of the features of one observation.
        num_actions: Number of actions, valid or not.
    """
    return MANY if observe.has_mask(obs_shape) else num_actions


def valid_action(obs: Any, number: Array) -> Array:
    """Return the action that a uniform number stands for, int32 `[...]`.

    Among `m` valid actions it is the one with the number modulo `m`, which favours none
    by more than m / 2^31.

    Args:
        obs: Features of the observations, with a mask `[..., n]` or without.
        number: `[...]` int32 of `choices_of` many; without a mask, the action itself.
    """
    mask = observe.mask_of(obs)
    if mask is None:
        return number
    return _one_of(mask, number)


def _one_of(mask: Array, number: Array) -> Array:
    """The index among those of `mask` `[..., n]` that a uniform number stands for."""
    place = number % jnp.maximum(mask.sum(-1, dtype=jnp.int32), 1)
    rank = jnp.cumsum(mask, -1, dtype=jnp.int32)
    return jnp.argmax(rank > place[..., None], -1).astype(jnp.int32)


def is_best(values: Array) -> Array:
    """Return which actions have the largest value, bool `[..., n]`; several may."""
    return values == values.max(-1, keepdims=True)


def best_at_random(values: Array, number: Array) -> Array:
    """Return an action with the largest value, of several one at random.

    Args:
        values: `[..., n]` values of the actions.
        number: `[...]` int32, uniform in 0 .. 2^31 - 1; it decides among equals, and
            favours none by more than n / 2^31.

    Returns:
        int32 `[...]`.
    """
    return _one_of(is_best(values), number)


def policy_of(values: Array, epsilon: Array | float) -> Array:
    """Return the probabilities of an epsilon-greedy policy, float32 `[..., n]`.

    Args:
        values: `[..., n]`; actions with the largest value share what is greedy.
        epsilon: `[]`, the probability of a uniform action (which may be greedy too).
    """
    best = is_best(values)
    greedy = best / best.sum(-1, keepdims=True)
    return (1.0 - epsilon) * greedy + epsilon / values.shape[-1]


def epsilon_greedy(
    q_values: Array, coin: Coin, epsilon: Array | float, obs: Any = None
) -> Array:
    """Return the greedy action, or with probability epsilon a uniform one.

    Args:
        q_values: `[..., n]` action values; far below the others for invalid actions.
        coin: `[...]` randomness of the choices.
        epsilon: `[...]`, the probability of a uniform action (which may be greedy too).

    Returns:
        int32 `[...]`.
    """
    greedy = columns.argmax(q_values)
    return jnp.where(coin.toss < epsilon, valid_action(obs, coin.action), greedy)


def act(q_values: Array, obs: Any, epsilon: Array | float, key: Array | None) -> Array:
    """Return the greedy action, or with a key the epsilon-greedy one, int32 `[...]`.

    Args:
        q_values: `[..., n]` action values; far below the others for invalid actions.
        epsilon: `[]`, the probability of a uniform action (which may be greedy too).
        key: Random key, consumed; without one the action is the greedy one.
    """
    if key is None:
        return jnp.argmax(q_values, -1).astype(jnp.int32)
    *shape, num_actions = q_values.shape
    choices = num_actions if observe.mask_of(obs) is None else MANY
    coin = draw_coin(key, tuple(shape), num_actions=choices)
    return epsilon_greedy(q_values, coin, epsilon, obs)


def epsilon_of(config: Any, step: Array) -> Array:
    """Return epsilon after `step` environment steps of a config; see `epsilon_at`.

    Args:
        step: `[...]` environment steps done, of any number type.
    """
    return epsilon_at(
        config.epsilon_schedule,
        step,
        start=config.epsilon_start,
        end=config.epsilon_end,
        steps=config.epsilon_steps,
    )


def epsilon_of_update(config: Any, update: Array) -> Array:
    """Return the epsilon of a whole update, float32 `[]`: that of its first step.

    Args:
        update: `[]` int32, number of updates done.
    """
    return epsilon_of(config, update.astype(jnp.float32) * config.steps_per_update)


def epsilon_at(
    schedule: str,
    step: Array,
    *,
    start: Array | float,
    end: Array | float,
    steps: Array | float,
) -> Array:
    """Return epsilon after `step` environment steps.

        linear:        start + (end - start) * min(t / steps, 1)   (Mnih et al. 2015)
        inverse_time:  end + (start - end) / (1 + t / steps)
        constant:      end

    Args:
        schedule: One of `SCHEDULES`.
        step: `[...]` environment steps done, of any number type.
        start: Epsilon at step 0.
        end: Epsilon after the decay.
        steps: Length of the linear decay, or the number of steps that halves the
            inverse-time one.

    Returns:
        float32 `[...]`.
    """
    t = step.astype(jnp.float32) / steps
    if schedule == "linear":
        return start + (end - start) * jnp.minimum(t, 1.0)
    if schedule == "inverse_time":
        return end + (start - end) / (1.0 + t)
    return jnp.zeros_like(t) + end

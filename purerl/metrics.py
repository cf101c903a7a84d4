"""Metrics: the count that each averages over, and so where it is defined.

An average over something that did not happen (no episode ended, the policy took no
step) is undefined, and undefined is not the same as wrong. So every such metric stands
beside the count of what it is averaged over, and whoever reads it looks at the count
first. A number that is not finite although its count is positive is a real one: the
member has diverged. A new mean over gradient steps needs no line here.

What is *reported* of training holds the averages over episodes (`HELD`): where no
episode ended in a row, the last known number stands again, beside a count of 0. So no
curve drops the agents whose episodes are long, which often are the good ones. Before an
agent's first episode has ended there is nothing to hold, and the number is NaN.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.types import Metrics

# The count beside a metric. A metric that is not listed, or one of the policy where an
# algorithm reports no count of policy steps, is averaged over gradient steps, and is
# defined in every update of an algorithm that does not report these either.
COUNT_OF = {
    "episode_return": "episodes",
    "shaped_return": "episodes",
    "episode_length": "episodes",
    "policy_loss": "policy_steps",
    "entropy": "policy_steps",
}
HELD = tuple(name for name, count in COUNT_OF.items() if count == "episodes")
# The entry in which an update shows the transitions `[T, B, ...]` that it collected, to
# functions of the user's own: see `purerl.hooks`.
BATCH = "batch"
# Counts of one update, beside `gradient_steps`, which counts from the run's beginning.
PER_UPDATE = ("episodes", "policy_steps", "passes")
SINCE_START = ("env_steps", "gradient_steps", "bad_transitions")
# Numbers of the config that move are known in every update, also before the first
# gradient step; those inside a part have a dot in their name (`policy_loss.clip_eps`).
_MOVING = ("learning_rate", "epsilon", "importance_exponent")


def count_of(name: str, metrics: Mapping[str, Any]) -> str | None:
    """Return name of the count that says where a metric is defined.

    Args:
        metrics: Everything that is reported beside it, by name.

    Returns:
        A name in `metrics`, or None for a metric that is always defined.
    """
    if name in (*PER_UPDATE, *SINCE_START) or "." in name or name.endswith(_MOVING):
        return None
    own = COUNT_OF.get(name, "gradient_steps")
    return next((n for n in (own, "gradient_steps") if n in metrics), None)


def is_defined(name: str, metrics: Mapping[str, Any]) -> Any:
    """Return whether a metric is defined, shaped as its count; True without a count.

    Args:
        metrics: Everything that is reported beside it, by name: numbers or arrays.
    """
    count = count_of(name, metrics)
    return True if count is None else metrics[count] > 0


def held(metrics: Metrics) -> Metrics:
    """Return the metrics `[U]` of a run with those of `HELD` held where none is new."""
    count = metrics["episodes"]
    last = jax.lax.cummax(jnp.where(count > 0, jnp.arange(len(count)), -1))
    return metrics | {
        name: jnp.where(last >= 0, metrics[name][last], jnp.nan)
        for name in HELD
        if name in metrics
    }


def averages(sums: Metrics, counts: Metrics) -> Metrics:
    """Compute averages `[]` from sums, each by its own count; NaN where that is 0.

    Args:
        sums: Sums over an update, `[]` each.
        counts: Number of `gradient_steps` of the update, perhaps of `policy_steps`.
    """
    found = {}
    for name, total in sums.items():
        count = counts[count_of(name, counts) or "gradient_steps"]
        mean = total / jnp.maximum(count, 1).astype(total.dtype)
        found[name] = jnp.where(count > 0, mean, jnp.nan)
    return found


def decimals(*values: Any) -> int:
    """Return how many decimal places scores need: one, two below 10, three up to 1.

    All returns of a task may lie between 0 and 1, where one place tells nothing apart.

    Args:
        *values: Numbers or arrays that stand in one table, text or line.
    """
    numbers = np.abs(np.concatenate([np.ravel(np.asarray(x, float)) for x in values]))
    size = float(numbers[np.isfinite(numbers)].max(initial=0.0))
    return 1 if size >= 10 or size == 0 else 2 if size > 1 else 3

"""Runs without a score: what they are worth is the caller's decision.

A run that diverged has a NaN (infinities count as NaN too). No function guesses what it
is worth; `nan` says it:

* `"raise"` (default): a `ConfigError` with their number;
* `"worst"`: the lowest finite score of its task, over all groups that are compared;
  this is what a failure deserves when configurations are compared;
* a number: that score, such as the lowest return the task can give;
* `"drop"`: left out, and counted in `Estimate.missing`. Beware: an algorithm whose bad
  runs die looks better than it is.

Sweeps, studies and comparisons also know what their runs returned on their way, and
share `worst_of`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from purerl.config import ConfigError, shown

Missing = str | float
POLICIES = ("raise", "worst", "drop")


def resolve(
    *groups: Any, nan: Missing, gaps: bool = False
) -> tuple[list[np.ndarray], int]:
    """Apply a policy for missing scores to groups that are compared.

    Args:
        *groups: Scores of each group, `[S, M]` or `[S]`, of the same tasks.
        nan: The policy, see the module.
        gaps: Whether a task (here a point in time) may have no score at all.

    Returns:
        The groups `[S, M]` in double precision, NaN where a run is to be left out; and
        how many scores were missing.

    Raises:
        ConfigError: see the module; or shapes that do not fit.
    """
    tables = [_table(group) for group in groups]
    if len({table.shape[1] for table in tables}) > 1:
        shapes = " and ".join(str(table.shape) for table in tables)
        raise ConfigError(
            f"scores must be of the same tasks, got shapes {shapes}. Give arrays "
            "[runs, tasks] with the same number of tasks."
        )
    tables = [np.where(np.isfinite(table), table, np.nan) for table in tables]
    everything = np.concatenate(tables)
    missing = int(np.isnan(everything).sum())
    if not isinstance(nan, str):
        if not np.isfinite(nan):
            raise ConfigError(f"nan must be a finite score, got {nan!r}.")
        return [np.where(np.isnan(table), nan, table) for table in tables], missing
    check_choice("nan", nan, POLICIES)
    if nan == "raise" and missing:
        raise ConfigError(
            f"scores: {missing} of {everything.size} are not finite. Say what such a "
            'run is worth: nan="worst", nan="drop", or a number.'
        )
    kept = tables if nan == "drop" else [everything]
    if not gaps and any(np.isnan(table).all(0).any() for table in kept):
        raise ConfigError(
            "scores: a task has no finite score, so it has no worst one and none "
            "to keep. Leave the task out, or give nan a number."
        )
    if nan == "worst":
        worst = worst_of(everything)
        tables = [np.where(np.isnan(table), worst, table) for table in tables]
    return tables, missing


def worst_of(scores: np.ndarray, lowest: Any = np.nan) -> np.ndarray:
    """Return what a run is worth in its task that has no score, `[M]`.

    That is the lowest score, or a lower return that a run with a score has had on its
    way. By the scores alone a run that failed would be worth as much as the others
    where these have all reached the most that can be.

    Args:
        scores: Scores of all runs that are compared, `[..., M]`.
        lowest: The lowest return on the way, from `lowest_of`, `[M]` or one number; NaN
            where it is not known.

    Returns:
        Numbers `[M]`; NaN where a task has no score.
    """
    flat = scores.reshape(-1, scores.shape[-1])
    low = np.min(np.where(np.isfinite(flat), flat, np.inf), axis=0)
    return np.where(np.isfinite(low), np.fmin(low, lowest), np.nan)


def lowest_of(returns: Any, failed: Any = False) -> float:
    """Return the lowest of some returns; NaN where none is a finite number.

    Args:
        returns: Returns of runs on their way, an array `[..., T]`.
        failed: Whether each run has failed, `[...]`. The returns of such a run are left
            out: they may be any number before they are none.
    """
    values = np.asarray(returns, float)
    counts = np.isfinite(values) & ~np.asarray(failed, bool)[..., None]
    low = np.min(values, initial=np.inf, where=counts)
    return float(low) if np.isfinite(low) else np.nan


def as_numbers(name: str, values: Any) -> np.ndarray:
    """Read numbers in double precision, or refuse them with one sentence."""
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ConfigError(
            f"{name} must be numbers, equally many of each run, got {shown(values)}."
        ) from None


def _table(scores: Any) -> np.ndarray:
    """Scores as `[S, M]`."""
    table = as_numbers("scores", scores)
    if table.ndim not in (1, 2) or not table.size:
        raise ConfigError(
            f"scores must be [runs] or [runs, tasks], got shape {table.shape}. Reduce "
            "other axes first, for example episodes.mean(-1)."
        )
    return table.reshape(len(table), -1)


def check_share(name: str, value: float) -> None:
    """Refuse what is not between 0 and 1, such as a confidence of 95."""
    if not 0 < value < 1:
        raise ConfigError(f"{name} must be between 0 and 1, got {value!r}.")


def check_choice(field: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse a value that is not among the choices."""
    if value not in choices:
        raise ConfigError(
            f"{field} must be one of {', '.join(choices)}, got {value!r}."
        )

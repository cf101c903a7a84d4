"""The kinds of fitness by which members are compared: one name for each.

* `training_curve`: the mean of the curve of returns over the whole run.
* `final_return`: the return at the end of the time that is judged.
* `evaluation`: the mean return of fresh episodes of the deterministic policy, after
  training.

`negative_` before one of them turns its sign. A tool takes those that it can measure.
How each measures them, over which episodes and how long an end is, stands in the
glossary (`docs/glossary.md`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from purerl.config import ConfigError
from purerl.runner.deprecated import warn_renamed

TRAINING_CURVE = "training_curve"
FINAL_RETURN = "final_return"
EVALUATION = "evaluation"
MEASURES = (TRAINING_CURVE, FINAL_RETURN, EVALUATION)
NEGATIVE = "negative_"
# Names of before: of PBT and successive halving, and of tuning.
_RENAMED = {
    "episode_return": FINAL_RETURN,
    "final": FINAL_RETURN,
    "auc": TRAINING_CURVE,
}


def check_fitness(kind: str, accepted: Sequence[str], name: str = "fitness") -> str:
    """Return the kind of fitness that was asked for, by its name of today.

    Args:
        kind: The kind that was asked for; a deprecated name gives a warning.
        accepted: The kinds that the caller can measure.
        name: The name of the argument, for the sentences.

    Raises:
        ConfigError: naming the kinds that are accepted.
    """
    known = current_name(kind)
    if known not in accepted:
        raise ConfigError(f"{name} must be one of {', '.join(accepted)}, got {kind!r}.")
    if known != kind:
        warn_renamed(f"{name}={kind!r}", repr(known))
    return known


def current_name(kind: Any) -> Any:
    """Return the name of today of a kind that may have been written before."""
    return _RENAMED.get(kind, kind) if isinstance(kind, str) else kind


def with_current_name(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a folder with today's name of the fitness, where they have one.

    Args:
        options: The options as they were written, perhaps with a deprecated name.
    """
    if "fitness" not in options:
        return dict(options)
    return {**options, "fitness": current_name(options["fitness"])}

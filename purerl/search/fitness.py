"""The kinds of fitness by which members are compared: one name for each.

* `training_curve`: the mean of the curve of returns over the whole run.
* `final_return`: the return at the end of the time that is judged.
* `evaluation`: the mean return of fresh episodes of the deterministic policy, after
  training.

`negative_` before one of them turns its sign. A tool takes those that it can measure.
How each measures them, over which episodes and how long an end is, stands in the
glossary (`docs/glossary.md`).
"""

from collections.abc import Sequence

from purerl.config import ConfigError

TRAINING_CURVE = "training_curve"
FINAL_RETURN = "final_return"
EVALUATION = "evaluation"
MEASURES = (TRAINING_CURVE, FINAL_RETURN, EVALUATION)
NEGATIVE = "negative_"


def check_fitness(kind: str, accepted: Sequence[str], name: str = "fitness") -> str:
    """Return the kind of fitness that was asked for, if the caller can measure it.

    Raises:
        ConfigError: naming the kinds that are accepted.
    """
    if kind not in accepted:
        raise ConfigError(f"{name} must be one of {', '.join(accepted)}, got {kind!r}.")
    return kind

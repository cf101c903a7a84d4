"""The value that `best()` of every result returns, or begins with."""

from typing import Any, NamedTuple

from purerl.config import TrainConfig


class Best(NamedTuple):
    """The best of what was trained.

    Attributes:
        point: Values that tell it from the others, by name of the field.
        score: The score that it was judged by. The best of many is favoured by luck:
            judge it afresh, with `purerl.compare`, before you compare it with anything.
        config: The config that trains it.
    """

    point: dict[str, Any]
    score: float
    config: TrainConfig

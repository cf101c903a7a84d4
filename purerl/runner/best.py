"""What `best()` of every result returns, or what that extends."""

from typing import Any, NamedTuple

from purerl.config import TrainConfig


class Best(NamedTuple):
    """The best of what was trained.

    Attributes:
        point: What tells it from the others: name of a field -> value.
        score: What it was judged by. The best of many is favoured by luck: judge it
            afresh, with `purerl.compare`, before you compare it with anything.
        config: A config that trains it.
    """

    point: dict[str, Any]
    score: float
    config: TrainConfig

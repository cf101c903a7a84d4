"""The number of searches: the argument `searches`, and its old name."""

from collections.abc import Sequence
from typing import TypeVar

from purerl.config import ConfigError
from purerl.runner.deprecated import warn_renamed

Searches = int | Sequence[int]
_Asked = TypeVar("_Asked", bound=Searches)


def read_searches(
    searches: _Asked | None, seeds: _Asked | None, prefix: str = ""
) -> _Asked | int:
    """Return the searches that were asked for: a number, or the seed of each.

    Args:
        searches: What was asked for; one search where nothing was.
        seeds: What was asked for by the name of before.
        prefix: The text before the names in the sentences.

    Raises:
        ConfigError: both were given.
    """
    if seeds is None:
        return 1 if searches is None else searches
    if searches is not None:
        raise ConfigError(
            f"{prefix}seeds is the old name of {prefix}searches; give "
            f"{prefix}searches alone."
        )
    warn_renamed(f"{prefix}seeds", f"{prefix}searches")
    return seeds

"""The names of the terms of `extra_loss`."""

import re
from collections.abc import Mapping
from typing import Any

from flax.core import FrozenDict

from purerl.config.errors import ConfigError


def named_terms(value: Any) -> Any:
    """Return several terms by name, one term as it is.

    Raises:
        ConfigError: two terms have one name, or a name is no word.
    """
    if isinstance(value, list | tuple):
        names = [name_of(term) for term in value]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ConfigError(
                f"extra_loss has two terms {twice[0]!r}, and each is reported by its "
                f"name; name them: {{'first_{twice[0]}': ..., "
                f"'second_{twice[0]}': ...}}."
            )
        value = dict(zip(names, value, strict=True))
    if not isinstance(value, Mapping):
        return value
    odd = [n for n in value if not (isinstance(n, str) and n.isidentifier())]
    if odd:
        raise ConfigError(f"the names of extra_loss must be words, got {odd[0]!r}.")
    return FrozenDict(value) if value else None


def name_of(term: Any) -> str:
    """Return the name of a term that was given none: its class, in small letters."""
    words = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"
    return re.sub(words, "_", type(term).__name__).lower()

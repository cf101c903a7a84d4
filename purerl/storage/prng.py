"""The implementation of random keys: results of two of them do not fit together.

A folder's manifest has it under `prng_impl`. One without that entry has the default.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from purerl.config import ConfigError
from purerl.scale.host import DEFAULT_IMPL, impl_here

ENTRY = "prng_impl"  # Of a manifest.


def refuse_other_keys(where: str, theirs: str, here: str) -> None:
    """Refuse to go on with random keys of one implementation where there is another.

    Args:
        where: What has the keys, as the sentence begins.
        theirs: The implementation of its keys.
        here: The implementation of the keys that are made here.

    Raises:
        ConfigError: naming both.
    """
    if theirs != here:
        raise ConfigError(
            f"{where} has random keys of {theirs}, and this process makes those of "
            f"{here}, with which nothing goes on as it began. Set "
            f"JAX_DEFAULT_PRNG_IMPL={theirs}, or "
            f"jax.config.update('jax_default_prng_impl', {theirs!r}), to go on with it."
        )


def check_keys(where: str, stored: Mapping[str, Any]) -> None:
    """Refuse to go on with a folder where keys of another implementation are made.

    Args:
        where: What is gone on with, as the sentence begins.
        stored: The manifest of the folder.

    Raises:
        ConfigError: naming both.
    """
    refuse_other_keys(where, stored.get(ENTRY, DEFAULT_IMPL), impl_here())


@contextlib.contextmanager
def keys_of(stored: Mapping[str, Any]) -> Iterator[None]:
    """Make random keys of a folder's implementation, in this thread.

    Args:
        stored: The manifest of the folder.
    """
    with jax.default_prng_impl(stored.get(ENTRY, impl_here())):
        yield

"""The way random numbers are made: results of two ways do not fit together.

A folder's manifest has the implementation of its keys under `prng_impl`, and where
Threefry's numbers follow the size of an array (JAX before 0.5, or
`JAX_THREEFRY_PARTITIONABLE=0`), `threefry_partitionable` as well. One without these
entries has the defaults.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from purerl.config import ConfigError
from purerl.scale.host import DEFAULT_IMPL, impl_here

# Entries of a manifest.
ENTRY = "prng_impl"
PARTITIONABLE = "threefry_partitionable"


def unusual() -> dict[str, Any]:
    """Return what this process makes random numbers with, where it is no default."""
    found: dict[str, Any] = {}
    if impl_here() != DEFAULT_IMPL:
        found[ENTRY] = impl_here()
    if not _is_partitionable():
        found[PARTITIONABLE] = False
    return found


def _is_partitionable() -> bool:
    return bool(jax.config.jax_threefry_partitionable)  # type: ignore[attr-defined]


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
    """Refuse to go on with a folder where random numbers are made in another way.

    Args:
        where: What is gone on with, as the sentence begins.
        stored: The manifest of the folder.

    Raises:
        ConfigError: naming both.
    """
    refuse_other_keys(where, stored.get(ENTRY, DEFAULT_IMPL), impl_here())
    theirs, here = stored.get(PARTITIONABLE, True), _is_partitionable()
    if theirs != here:
        raise ConfigError(
            f"{where} has random numbers of jax_threefry_partitionable={theirs}, and "
            f"this process makes those of {here}, with which nothing goes on as it "
            f"began. Set JAX_THREEFRY_PARTITIONABLE={int(theirs)} to go on with it."
        )


@contextlib.contextmanager
def keys_of(stored: Mapping[str, Any]) -> Iterator[None]:
    """Make random keys of a folder's implementation, in this thread.

    Args:
        stored: The manifest of the folder.
    """
    with jax.default_prng_impl(stored.get(ENTRY, impl_here())):
        yield

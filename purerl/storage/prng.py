"""The way random numbers are made: results of two ways do not fit together.

A folder's manifest has the implementation of its keys under `prng_impl`; one without
that entry has the default. Whether Threefry's numbers follow the size of an array
(`JAX_THREEFRY_PARTITIONABLE=0`) is under `threefry_partitionable`; of a folder without
that entry nobody knows it.
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


def made_with() -> dict[str, Any]:
    """Return the way in which this process makes random numbers, for a manifest."""
    return {ENTRY: impl_here(), PARTITIONABLE: _is_partitionable()}


def unusual() -> dict[str, Any]:
    """Return what of `made_with` is not JAX's default."""
    usual = {ENTRY: DEFAULT_IMPL, PARTITIONABLE: True}
    return {name: x for name, x in made_with().items() if x != usual[name]}


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
    here = _is_partitionable()
    theirs = stored.get(PARTITIONABLE, here)
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

"""The checks of a search and its requests, made before anything is trained."""

import json
from typing import Any

import jax
import numpy as np

from purerl.config import ConfigError, shown
from purerl.search.protocol import Request, Search
from purerl.storage import folders
from purerl.tracing import refuse_traced
from purerl.train import Plan

# Entries that the folder of a search adds to its `spec`.
ADDED = (
    "kind",
    "format",
    "lanes",
    "lanes_asked",
    "segment_updates",
    "segment_updates_asked",
    "device",
    "versions",
    "prng_impl",
)
# What the folder of a search cannot be called: these are no searches.
TAKEN = ("run", "sweep", "tune", "evolution", folders.COMPARISON)


def check_search(search: Search) -> None:
    """Refuse a search whose folder could not be read again.

    Raises:
        ConfigError: no search, or inside a function that JAX traces; `spec` lacks an
            entry, has one that the folder adds, or holds what is no plain value; or
            `kind` is that of something else.
    """
    if not isinstance(search, Search):
        raise ConfigError(
            f"search must be a purerl.Search, got {shown(search)}; make one as "
            "examples/own_search.py does."
        )
    refuse_traced(f"a {search.kind} search", search.bound.asked)
    if search.kind in TAKEN:
        raise ConfigError(
            f"kind of a search must be none of {', '.join(TAKEN)}, got "
            f"{search.kind!r}: a folder of that kind holds no search."
        )
    lacking = [
        name for name in ("config", "options", "seeds") if name not in search.spec
    ]
    if lacking:
        raise ConfigError(
            f"spec of a search must have config, options and seeds, it lacks "
            f"{', '.join(lacking)}."
        )
    added = [name for name in ADDED if name in search.spec]
    if added:
        raise ConfigError(
            f"spec of a search must not have {', '.join(added)}: the folder adds that."
        )
    try:
        json.dumps(search.spec)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"spec of a search must be plain values that JSON can hold ({error}); "
            "write arrays as lists and losses as text (purerl.serialise)."
        ) from None


def check_request(
    request: Request, before: Request | None, plan: Plan, length: int
) -> None:
    """Refuse a request that cannot be carried out as it stands.

    Args:
        request: The request.
        before: The request before it; None if it is the first.
        plan: Plan of every member's run.
        length: Updates of one compiled call, K.

    Raises:
        ConfigError: naming the field, what it is and what it must be.
    """
    size = request.members.size
    if size < 1:
        raise ConfigError("members of a request must be at least one, got none.")
    _check_until(request, before, plan, length)
    for path, leaf in jax.tree_util.tree_leaves_with_path(request.members.overrides):
        if not np.ndim(leaf) or np.shape(leaf)[0] != size:
            name = jax.tree_util.keystr(path)
            raise ConfigError(
                f"overrides of a request must have a value for each of its {size} "
                f"members, {name} has the shape {np.shape(leaf)}."
            )
    keys = request.evaluation_keys
    if keys is not None and np.shape(keys) != (size,):
        raise ConfigError(
            f"evaluation_keys of a request must be a key for each of its {size} "
            f"members, got the shape {np.shape(keys)}."
        )
    _check_parents(request, before, size)


def _check_until(
    request: Request, before: Request | None, plan: Plan, length: int
) -> None:
    until, total = request.until, plan.num_updates
    first = 0 if before is None or request.parents is None else before.until
    if not first < until <= total:
        raise ConfigError(
            f"until of a request must be above {first}, what its members have seen, "
            f"and at most {total}, the updates of the run, got {until}."
        )
    if until % length and until != total:
        raise ConfigError(
            f"until of a request must be a multiple of segment_updates = {length}, or "
            f"{total}, the end of the run, got {until}."
        )


def _check_parents(request: Request, before: Request | None, size: int) -> None:
    parents, is_copy = request.parents, request.is_copy
    if parents is None:
        if is_copy is not None:
            raise ConfigError("is_copy of a request without parents must be None.")
        return
    if before is None:
        raise ConfigError(
            "parents of the first request must be None: nobody has been trained yet."
        )
    rows, past = np.asarray(parents), before.members.size
    is_whole = rows.ndim == 1 and np.issubdtype(rows.dtype, np.integer)
    if not is_whole or rows.shape != (size,) or not ((0 <= rows) & (rows < past)).all():
        raise ConfigError(
            f"parents of a request must be a row from 0 to {past - 1} of the request "
            f"before for each of its {size} members, got {_brief(parents)}."
        )
    if is_copy is not None:
        mask = np.asarray(is_copy)
        if mask.dtype != bool or mask.shape != (size,) or size != past:
            raise ConfigError(
                f"is_copy of a request must be {past} truth values, and its members as "
                f"many as before, got {_brief(is_copy)} for {size} members."
            )
    elif (np.diff(rows) <= 0).any():
        raise ConfigError(
            "parents of a request must ascend, none twice, where nobody is a copy: "
            f"give is_copy to move or copy members, got {_brief(parents)}."
        )


def _brief(values: Any) -> str:
    text = str(np.asarray(values).tolist())
    return text if len(text) < 80 else f"{text[:70]}..."

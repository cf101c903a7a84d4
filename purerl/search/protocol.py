"""A search is a pair of pure functions, `ask` and `tell`, as an algorithm is.

`ask` looks at the search's state and says which members to train, and how far. `tell`
takes what came of it and gives the next state. Neither trains, draws from a hidden
source or touches a file. So the outcomes of all requests are everything that a stopped
search needs in order to go on: asking and telling them again gives its state.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl.config import ConfigError, shown
from purerl.execution.cohort import FreshReturns
from purerl.execution.programs import Members
from purerl.storage import folders
from purerl.tracing import refuse_traced
from purerl.train import Bound, Plan
from purerl.types import Array, HostMetrics

# A pytree of arrays on the host, such as a NamedTuple.
State = Any
# Number of a member, and the numbers of its row.
Row = tuple[int, dict[str, Any]]


class Request(NamedTuple):
    """A request to train members on, up to a number of updates.

    Attributes:
        members: Keys and hyperparameters of the members, `[N]`.
        until: Number of finished updates to reach; a multiple of the segment length,
            or the end of the run.
        parents: Row `[N]`, for every member, of the request before whose state it goes
            on with; None where all begin anew. Members are copied (as many as before)
            or left out (rows ascending, none twice).
        is_copy: Whether a member goes on with a random key of its own, the one in
            `members`, `[N]` bool; None for none. A copy with its parent's key would
            repeat what the parent does.
        evaluation_keys: Keys `[N]` of a fresh evaluation at the end; None for none.
    """

    members: Members
    until: int
    parents: np.ndarray | None = None
    is_copy: np.ndarray | None = None
    evaluation_keys: Array | None = None


class Outcome(NamedTuple):
    """The outcome of a request, on the host.

    Attributes:
        train: Training metrics by name, rows `[N, R]`, one per segment.
        evaluation: Evaluations that the config planned by name, rows `[N, K, ...]`;
            empty where there were none.
        diverged_at: The first update with a number that was not finite, `[N]`, or -1.
        keys: Data `[N, words]` of the keys that the members drew from.
        fresh: The fresh evaluation at the end, if one was asked for.
        score: What the search's `score` made of the rest, `[N]`, if it has one.
    """

    train: HostMetrics
    evaluation: HostMetrics
    diverged_at: np.ndarray
    keys: np.ndarray
    fresh: FreshReturns | None = None
    score: np.ndarray | None = None

    @property
    def diverged(self) -> np.ndarray:
        """The members with a number that was not finite, `[N]` bool."""
        return self.diverged_at >= 0

    def last_row(self, member: int) -> dict[str, Any]:
        """Return the last training metrics of a member, but its environment steps."""
        last = {name: rows[member, -1].item() for name, rows in self.train.items()}
        last.pop("env_steps", None)
        return last

    @property
    def evaluation_steps(self) -> int:
        """Environment steps of fresh and of planned evaluations."""
        lengths = [self.evaluation.get("episode_length", 0.0)]
        if self.fresh is not None:
            lengths.append(self.fresh.env_steps)
        return sum(int(np.nansum(x, dtype=np.float64)) for x in lengths)


class Step(NamedTuple):
    """A turn of a search.

    Attributes:
        request: The request of the step.
        outcome: The outcome of the request.
        before: The search's state when it asked.
        after: The search's state after it was told.
    """

    request: Request
    outcome: Outcome
    before: State
    after: State


class Search(NamedTuple):
    """A search: the requests of what to train, and the use of their outcomes.

    Attributes:
        kind: Name of the search, `pbt` for example; it stands in the folder.
        bound: Config, environment and plan that all members share.
        spec: All that fixes the result beside the lanes and the segment length, as
            plain values: at least `config`, `options` and `seeds`.
        steps: Environment steps that each request trains, as far as is known before:
            as many numbers as there are requests.
        lanes: Width of a block, W, where nobody asks for another one.
        segment_updates: Updates of one compiled call, K, where nobody asks for another
            number; `until` of every request is a multiple of K, or the end.
        init: Gives the state before the first request.
        ask: Gives the next request; None when the search has ended.
        tell: Gives the state after a request, from the state before, the request and
            its outcome. Raises a ConfigError where no state can be made, such as when
            all members diverged.
        score: Gives the scores `[N]` of an outcome that the folder is to keep, so that
            it is read without what made them.
        rows: Gives the rows of a step for trackers, at most one per member.
        names: Names of the members by number, as trackers show them.
    """

    kind: str
    bound: Bound
    spec: dict[str, Any]
    steps: tuple[int, ...]
    lanes: int
    segment_updates: int
    init: Callable[[], State]
    ask: Callable[[State], Request | None]
    tell: Callable[[State, Request, Outcome], State]
    score: Callable[[Outcome], np.ndarray] | None = None
    rows: Callable[[Step], list[Row]] = lambda step: []
    names: Mapping[int, str] = MappingProxyType({})


# What the folder of a search cannot be called: these are no searches.
TAKEN = ("run", "sweep", "tune", "evolution", folders.COMPARISON)


def check_search(search: Search) -> None:
    """Refuse a search whose folder could not be read again.

    Raises:
        ConfigError: no search, or inside a function that JAX traces; `spec` lacks an
            entry, or `kind` is that of something else.
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
    if missing := {"config", "options", "seeds"} - search.spec.keys():
        raise ConfigError(
            f"spec of a search must have {', '.join(sorted(missing))}; it has "
            f"{', '.join(search.spec)}."
        )


def check_request(
    request: Request, before: Request | None, plan: Plan, length: int
) -> None:
    """Refuse a request that cannot be carried out as it stands.

    Raises:
        ConfigError: naming the field, what it is and what it must be.
    """

    def must(holds: Any, name: str, words: str, got: Any) -> None:
        if not holds:
            raise ConfigError(f"{name} of a request must be {words}, got {got}.")

    size, until, total = request.members.size, request.until, plan.num_updates
    parents, is_copy, keys = request.parents, request.is_copy, request.evaluation_keys
    must(size > 0, "members", "at least one", "none")
    first = 0 if before is None or parents is None else before.until
    must(
        first < until <= total and (until % length == 0 or until == total),
        "until",
        f"above {first}, what its members have seen, and a multiple of segment_updates "
        f"= {length}, or {total}, the end of the run",
        until,
    )
    for path, leaf in jax.tree_util.tree_leaves_with_path(request.members.overrides):
        shape, name = np.shape(leaf), f"overrides{jax.tree_util.keystr(path)}"
        must(shape[:1] == (size,), name, f"a value for each of {size} members", shape)
    if keys is not None:
        shape, words = np.shape(keys), f"a key for each of {size} members"
        must(shape == (size,), "evaluation_keys", words, shape)
    if before is None or parents is None:
        first = "None in the first request, and is_copy where there are no parents"
        must(parents is None and is_copy is None, "parents", first, parents)
        return
    rows, mask, past = np.asarray(parents), np.asarray(is_copy), before.members.size
    is_whole = rows.shape == (size,) and np.issubdtype(rows.dtype, np.integer)
    is_row = is_whole and ((0 <= rows) & (rows < past)).all()
    ascends = is_row and is_copy is None and (np.diff(rows) > 0).all()
    must(
        ascends or (is_row and mask.dtype == bool and mask.shape == (size,) == (past,)),
        "parents",
        f"a row from 0 to {past - 1} of the request before for each of {size} members, "
        "ascending, none twice, or beside is_copy, a truth value for each of as many "
        f"members as before ({past})",
        f"{parents} and {is_copy}",
    )

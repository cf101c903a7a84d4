"""A search is a pair of pure functions, `ask` and `tell`, as an algorithm is.

`ask` looks at the search's state and says which members to train, and how far. `tell`
takes what came of it and gives the next state. Neither trains, draws from a hidden
source or touches a file. So the outcomes of all requests are everything that a stopped
search needs in order to go on: asking and telling them again gives its state.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from purerl.execution.cohort import Evaluation
from purerl.execution.members import Members
from purerl.train import Bound
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
    """

    train: HostMetrics
    evaluation: HostMetrics
    diverged_at: np.ndarray
    keys: np.ndarray
    fresh: Evaluation | None = None

    @property
    def diverged(self) -> np.ndarray:
        """The members with a number that was not finite, `[N]` bool."""
        return self.diverged_at >= 0

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
        rows: Gives the rows of a step for trackers, at most one per member.
        names: Names of the members by number, as trackers show them.
        remarks: Sentences that a person should read before training begins.
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
    rows: Callable[[Step], list[Row]] = lambda step: []
    names: Mapping[int, str] = MappingProxyType({})
    remarks: tuple[str, ...] = ()

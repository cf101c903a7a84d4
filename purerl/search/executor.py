"""Trains what a search asks for: a cohort that lives from one request to the next."""

from purerl.execution.cache import current_cache
from purerl.execution.cohort import Cohort, OnSegment, make_cohort, train_until
from purerl.execution.curves import Curves
from purerl.metrics import HELD
from purerl.search.check import check_request
from purerl.search.protocol import Outcome, Request
from purerl.train import Bound
from purerl.types import PyTree


class Executor:
    """Carries out the requests of one search.

    Args:
        bound: Config, environment and plan of all members.
        lanes: Width of a block, W.
        length: Updates of one compiled call, K.
    """

    def __init__(self, bound: Bound, lanes: int, length: int) -> None:
        self.bound, self.lanes, self.length = bound, lanes, length
        # Members that begin anew are trained by the program that there is.
        self._programs = current_cache()
        self._cohort: Cohort | None = None
        self._before: Request | None = None
        self._compile_seconds = 0.0

    @property
    def compile_seconds(self) -> float:
        """Seconds spent compiling so far."""
        seconds = self._cohort.compile_seconds if self._cohort else 0.0
        return self._compile_seconds + seconds

    def run(
        self,
        request: Request,
        last: Outcome | None = None,
        on_segment: OnSegment = lambda *_: None,
    ) -> Outcome:
        """Train the members of a request, then evaluate them.

        Args:
            request: The members, and how far to train them.
            last: The outcome of the request before, whose last returns are held; None
                for the first request.
            on_segment: Is told of progress after every segment.

        Raises:
            ConfigError: the request cannot be carried out as it stands, or the members
                do not fit the memory.
        """
        check_request(request, self._before, self.bound.plan, self.length)
        cohort = self._prepared(request)
        self._before = request
        held = {}
        if last is not None and request.parents is not None:
            held = {name: last.train[name][request.parents, -1] for name in HELD}
        curves = Curves(self.bound.plan, cohort.size, held)
        train_until(cohort, request.until, curves, on_segment)
        keys = request.evaluation_keys
        return Outcome(
            train=curves.train,
            evaluation=curves.evaluation,
            diverged_at=curves.diverged_at,
            keys=cohort.key_data(),
            fresh=None if keys is None else cohort.evaluate(keys),
        )

    def compile(self, request: Request) -> None:
        """Compile what a request needs, before it is carried out."""
        check_request(request, self._before, self.bound.plan, self.length)
        if self._cohort is None:
            self._cohort = self._fresh(request)

    def restore(self, request: Request, states: PyTree) -> None:
        """Be as after a request was carried out.

        Args:
            request: The request.
            states: States of its members as of `states`.
        """
        self._cohort = self._fresh(request)
        self._cohort.restore(states, request.until)
        self._before = request

    def states(self) -> PyTree:
        """States of the members of the last request, on the host."""
        assert self._cohort is not None, "nothing has been trained yet"
        return self._cohort.gather()

    def _fresh(self, request: Request) -> Cohort:
        if self._cohort is not None:
            self._compile_seconds += self._cohort.compile_seconds
            self._cohort = None  # Its memory is needed for the next one.
        return make_cohort(
            self.bound,
            request.members,
            self.lanes,
            self.length,
            cache=self._programs,
        )

    def _prepared(self, request: Request) -> Cohort:
        """The cohort with the members of a request, as they begin."""
        parents = request.parents
        if parents is None:
            cohort = self._cohort
            if cohort is None or cohort.update > 0:
                cohort = self._fresh(request)
            cohort.init()
            self._cohort = cohort
            return cohort
        cohort = self._cohort
        assert cohort is not None, "the first request has no parents"
        if request.is_copy is not None:
            cohort.copy(parents, request.members.keys, request.is_copy)
        elif len(parents) < cohort.size:
            cohort.keep(parents)
        cohort.set_overrides(request.members.overrides)
        return cohort

"""The time between checkpoints: so much of it that saving takes little of a run."""

import contextlib
import time
from collections.abc import Iterator

# Saving gets a tenth of the time in between: less than a tenth of all time.
SHARE = 10.0


class Pace:
    """The time that passes between checkpoints.

    Args:
        seconds: The least time from the end of a save to the next one; ten times what
            the last save took, where that is longer. 0: every one is due.
    """

    def __init__(self, seconds: float) -> None:
        self._least, self._took = seconds, 0.0
        self._saved_at = time.monotonic()

    def is_due(self) -> bool:
        """Return whether it is time for a checkpoint."""
        wait = max(self._least, SHARE * self._took) if self._least else 0.0
        return time.monotonic() - self._saved_at >= wait

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Measure the time that a save takes, also one that fails."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._saved_at = time.monotonic()
            self._took = self._saved_at - began

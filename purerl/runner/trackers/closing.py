"""Objects that close themselves when the call that uses them fails."""

from types import TracebackType
from typing import Self


class ClosesOnFailure:
    """A context that is closed with a status when its body raises.

    Where the body ends well, `close` is for the caller, who knows the status.
    """

    def close(self, status: str) -> None:
        """Close with a status: `finished`, `interrupted` or `failed`."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            stopped = issubclass(kind, KeyboardInterrupt)
            self.close("interrupted" if stopped else "failed")

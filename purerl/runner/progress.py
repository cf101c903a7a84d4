"""The progress of a run: a bar on a terminal, lines elsewhere."""

import math
import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from purerl.execution.format import STDERR, format_count, format_duration
from purerl.metrics import decimals

LINES = 10  # A run whose output is no terminal prints so many lines.


class Reporter:
    """Shows steps per second, mean return and time left.

    Args:
        total_steps: Environment steps of all members of the whole run.
        done_steps: Number of these that were finished before (a resumed run).
        console: Console to write to; standard error unless given.
        enabled: Whether anything is shown.

    Attributes:
        is_live: Whether there is a bar, which moves.
    """

    def __init__(
        self,
        total_steps: int,
        done_steps: int = 0,
        console: Console | None = None,
        enabled: bool = True,
    ) -> None:
        self.console = console or Console(file=STDERR)
        self.enabled = enabled
        self.total, self.start_steps = total_steps, done_steps
        self.is_live = enabled and self.console.is_terminal
        self._bar = Progress(
            TextColumn("[bold]training"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[rate]}", style="cyan", markup=False),
            TextColumn("{task.fields[returns]}", style="cyan", markup=False),
            TextColumn("{task.fields[left]}", style="cyan", markup=False),
            console=self.console,
        )
        self._next_line = 0.0
        self._began = time.perf_counter()

    def info(self, text: str) -> None:
        """Print a line with rich's markup above the bar, where progress is shown."""
        if self.enabled:
            self._print(text)

    def table(self, renderable: RenderableType) -> None:
        """Print a table, where progress is shown."""
        if self.enabled:
            self.console.print(renderable)

    def notify(self, text: str) -> None:
        """Print a line whether progress is shown or not; brackets are no markup."""
        self._print(escape(text))

    def _print(self, text: str) -> None:
        """Print a line that is not cut, so that it can be copied."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        if self.is_live:
            self._task = self._bar.add_task(
                "",
                total=self.total,
                completed=self.start_steps,
                rate="",
                returns="",
                left="",
            )
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.is_live:
            self._bar.stop()

    def update(self, done_steps: float, latest: float | str) -> None:
        """Move the bar: a segment has ended.

        Args:
            done_steps: Number of environment steps that are finished.
            latest: The mean return of the segment, or other words about it.
        """
        if not self.enabled:
            return
        elapsed = max(time.perf_counter() - self._began, 1e-9)
        rate = (done_steps - self.start_steps) / elapsed
        left = (self.total - done_steps) / rate if rate > 0 else math.inf
        text: dict[str, Any] = {
            "rate": f"{format_count(rate)} steps/s",
            "returns": latest if isinstance(latest, str) else _returns(latest),
            "left": f"{format_duration(left)} left",
        }
        if self.is_live:
            self._bar.update(self._task, completed=done_steps, **text)
            return
        share = done_steps / self.total
        if share >= self._next_line or done_steps >= self.total:
            self._next_line = (math.floor(share * LINES) + 1) / LINES
            self.info(f"{share:4.0%}  {'  '.join(text.values())}")


def _returns(mean: float) -> str:
    """The mean return of the episodes that ended; NaN where none has."""
    if math.isnan(mean):
        return "no episode ended"
    return f"return {mean:.{decimals(mean)}f}"

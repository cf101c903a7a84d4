"""The progress of a run: a bar on a terminal or in a notebook, lines elsewhere."""

import html
import math
import time
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from purerl.execution.format import STDERR, format_count, format_duration, in_notebook
from purerl.metrics import decimals

LINES = 10  # A run whose output is no terminal prints so many lines.
PAUSE = 0.1  # Seconds between two states of a notebook's bar, at least.


class Cell:
    """A bar in the output of a notebook's cell, which is replaced."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = 0.0

    def bar(self, share: float, words: str, *, is_last: bool = False) -> None:
        """Move the bar, with words behind it; not every call is shown."""
        if not is_last and time.perf_counter() - self._shown < PAUSE:
            return
        self._shown = time.perf_counter()
        text, look = f"{share:.0%}  {words}", "width:16em;vertical-align:middle"
        bar = f'<progress value="{share:.4f}" style="{look}"></progress>'
        data = {
            "text/html": f"<div>{bar} <small>{html.escape(text)}</small></div>",
            "text/plain": text,
        }
        if self._handle is None:
            from IPython.display import display

            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


class Reporter:
    """Shows steps per second, mean return and time left.

    Args:
        total_steps: Environment steps of all members of the whole run.
        done_steps: Number of these that were finished before (a resumed run).
        console: Console to write to; standard error unless given.
        enabled: Whether anything is shown.
        cell: Output of a notebook's cell to go on in; a new one in a notebook.

    Attributes:
        is_live: Whether there is a bar, which moves.
        cell: Output of a notebook's cell, if this is one and has no other console.
    """

    def __init__(
        self,
        total_steps: int,
        done_steps: int = 0,
        console: Console | None = None,
        enabled: bool = True,
        cell: Cell | None = None,
    ) -> None:
        self.cell = cell or (Cell() if console is None and in_notebook() else None)
        self.console = console or Console(file=STDERR)
        self.enabled = enabled
        self.total, self.start_steps = total_steps, done_steps
        is_bar = self.cell is None and self.console.is_terminal
        self.is_live = enabled and (is_bar or self.cell is not None)
        self._bar = Progress(
            TextColumn("[bold]training"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[words]}", style="cyan", markup=False),
            console=self.console,
        )
        self._next_line, self._last = 0.0, (0.0, "")
        self._began = time.perf_counter()

    def info(self, text: str) -> None:
        """Print a line with rich's markup above the bar, where progress is shown."""
        if self.enabled:
            self._print(text)

    def notify(self, text: str) -> None:
        """Print a line whether progress is shown or not; brackets are no markup."""
        self._print(escape(text))

    def _print(self, text: str) -> None:
        """Print a line that is not cut, so that it can be copied."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        if self.is_live and self.cell is None:
            self._task = self._bar.add_task(
                "", total=self.total, completed=self.start_steps, words=""
            )
            self._bar.start()
        return self

    def __exit__(self, *error: Any) -> None:
        if self.is_live and self.cell is not None:
            share, words = self._last
            spent = format_duration(time.perf_counter() - self._began)
            self.cell.bar(share, f"{words}in {spent}", is_last=True)
        elif self.is_live:
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
        returns = latest
        if not isinstance(latest, str):
            returns = f"return {latest:.{decimals(latest)}f}"
            returns = "no episode ended" if math.isnan(latest) else returns
        words = f"{format_count(rate)} steps/s  {returns}  "
        line, share = f"{words}{format_duration(left)} left", done_steps / self.total
        if self.cell is not None:
            self._last = share, words
            self.cell.bar(share, line)
        elif self.is_live:
            self._bar.update(self._task, completed=done_steps, words=line)
        elif share >= self._next_line or done_steps >= self.total:
            self._next_line = (math.floor(share * LINES) + 1) / LINES
            self.info(f"{share:4.0%}  {line}")

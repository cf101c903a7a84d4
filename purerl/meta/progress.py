"""The progress of an evolution as a person sees it: a bar, or lines."""

import math
import time
from typing import Any

from purerl.execution.format import format_count, format_duration
from purerl.runner.progress import LINES, Reporter


class EvolutionReporter(Reporter):
    """Shows the generation, best and mean fitness, agents and frames per second.

    Args:
        generations: The number of generations of the whole evolution.
        done: The number of generations that were finished before.
        runs: The number of training runs of a generation.
        steps: Environment steps of a generation.
        enabled: Whether to show anything.
    """

    def __init__(
        self, generations: int, done: int, runs: int, steps: int, enabled: bool
    ) -> None:
        super().__init__(generations * runs, done * runs, enabled=enabled)
        self.generations, self.done, self.runs, self.steps = (
            generations,
            done,
            runs,
            steps,
        )
        self._runs_now = 0
        self._words = ""

    def ran(self, runs: int) -> None:
        """Count some runs of the generation that have ended, and show them."""
        self._runs_now += runs
        if self.enabled and self._live:
            self._bar.update(
                self._task, completed=self._completed(), **self._fields(self._words)
            )

    def generation(self, best: float, mean: float, failed: int) -> None:
        """Show that a generation has ended.

        Args:
            best: The fitness of its best member.
            mean: The mean fitness of its members.
            failed: The number of its members that failed.
        """
        self.done += 1
        self._runs_now = 0
        self._words = f"best {best:.4g}  mean {mean:.4g}"
        if failed:
            self._words += f"  failed {failed}"
        if not self.enabled:
            return
        fields = self._fields(self._words)
        if self._live:
            self._bar.update(self._task, completed=self._completed(), **fields)
            return
        share = self.done / self.generations
        if share >= self._next_line or self.done >= self.generations:
            self._next_line = (math.floor(share * LINES) + 1) / LINES
            self.info("  ".join(fields.values()))

    def _completed(self) -> int:
        return self.done * self.runs + self._runs_now

    def _fields(self, words: str) -> dict[str, Any]:
        elapsed = max(time.perf_counter() - self._began, 1e-9)
        rate = (self._completed() - self.start_steps) / elapsed
        left = (self.total - self._completed()) / rate if rate > 0 else math.inf
        frames = rate * self.steps / self.runs
        return {
            "returns": f"generation {self.done:,}/{self.generations:,}  {words}",
            "rate": f"{format_count(rate)} agents/s  {format_count(frames)} steps/s",
            "left": f"{format_duration(left)} left",
        }

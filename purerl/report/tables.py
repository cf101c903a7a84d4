"""Tables for the terminal."""

from collections.abc import Callable
from typing import Any

import numpy as np
from rich.table import Table

from purerl.metrics import decimals
from purerl.report.statistics import mean_interval, nanmean
from purerl.runner.result import RunResult

DIVERGED = "[red]diverged[/red]"


def run_table(result: RunResult) -> Table:
    """Tabulate final evaluation and training return of every agent, and their mean.

    Beside the mean is its 95% interval; of fewer than ten agents, their range. A run
    without evaluations has the training return alone. Agents that diverged are marked,
    and are not in the mean.
    """
    env = result.config.env
    name = env if isinstance(env, str) else type(env).__name__
    training = last_known(result.metrics["episode_return"])
    final = result.evaluation.get("episode_return")
    if final is None:
        return _training_table(name, result, training)
    is_kept = result.diverged_at < 0
    number = _writer(final[is_kept, -1], training[is_kept])
    table = Table(title=f"{name}: deterministic policy at the end of training")
    for header in ("seed", "evaluation", "worst episode", "best episode", "training"):
        table.add_column(header, justify="right")
    rows = zip(result.seeds, final[:, -1], training, result.diverged_at, strict=True)
    for seed, episodes, last, update in rows:
        if update >= 0:
            table.add_row(str(seed), DIVERGED, f"in update {update + 1:,}", "-", "-")
            continue
        numbers = (episodes.mean(), episodes.min(), episodes.max(), last)
        table.add_row(str(seed), *map(number, numbers))
    if is_kept.sum() > 1:
        means = final[is_kept, -1].mean(-1)
        found = mean_interval(means)
        words = f"{found.words}:", f"{number(found.low)} to {number(found.high)}"
        table.add_section()
        table.add_row(
            _mean_of(is_kept),
            f"[bold]{number(means.mean())}[/bold]",
            *(("no spread", "") if found.low == found.high else words),
            number(nanmean(training[is_kept])),
        )
    return table


def _mean_of(is_kept: np.ndarray) -> str:
    """The heading of the mean, which says of how many agents where some diverged."""
    return "mean" if is_kept.all() else f"mean of {is_kept.sum()}"


def _training_table(name: str, result: RunResult, training: np.ndarray) -> Table:
    """The last training returns `[S]`, and what makes an evaluation of such a run."""
    is_kept = result.diverged_at < 0
    table = Table(
        title=f"{name}: last episodes of training",
        caption="num_evaluations=0: purerl evaluate RUN plays the trained policy",
        min_width=68,
    )
    for header in ("seed", "training"):
        table.add_column(header, justify="right")
    number = _writer(training[is_kept])
    rows = zip(result.seeds, training, result.diverged_at, strict=True)
    for seed, last, update in rows:
        lost = f"{DIVERGED} in update {update + 1:,}"
        table.add_row(str(seed), number(last) if update < 0 else lost)
    if is_kept.sum() > 1:
        table.add_section()
        table.add_row(_mean_of(is_kept), number(nanmean(training[is_kept])))
    return table


def episodes_table(
    title: str,
    seeds: tuple[int, ...],
    returns: np.ndarray,
    diverged_at: np.ndarray | None = None,
) -> Table:
    """Tabulate mean, spread and extremes of returns, a row per seed.

    Args:
        title: Title of the table.
        seeds: Seeds of the S agents.
        returns: Returns of E episodes of each agent, `[S, E]`.
        diverged_at: `[S]` updates in which agents diverged, -1 for none: these are in
            no mean. None where none has.
    """
    if diverged_at is None:
        diverged_at = np.full(len(seeds), -1)
    is_kept = diverged_at < 0
    table = Table(title=title)
    for header in ("seed", "mean", "std", "worst", "best"):
        table.add_column(header, justify="right")
    number = _writer(returns)
    for seed, episodes, update in zip(seeds, returns, diverged_at, strict=True):
        numbers = (episodes.mean(), episodes.std(), episodes.min(), episodes.max())
        lost = f"{DIVERGED} in update {update + 1:,}"
        cells = [*map(number, numbers)] if update < 0 else [lost, "", "", ""]
        table.add_row(str(seed), *cells)
    if is_kept.sum() > 1:
        table.add_section()
        kept = returns[is_kept]
        means = kept.mean(-1)
        table.add_row(
            "all" if is_kept.all() else f"{is_kept.sum()} agents",
            f"[bold]{number(means.mean())}[/bold]",
            number(means.std()),
            number(kept.min()),
            number(kept.max()),
        )
    return table


def last_known(values: np.ndarray) -> np.ndarray:
    """Return the last known number of each row `[S, U]`, NaN where there is none."""
    known = np.isfinite(values)
    last = values.shape[1] - 1 - np.argmax(known[:, ::-1], axis=1)
    return values[np.arange(len(values)), last]


def _writer(*values: Any) -> Callable[[Any], str]:
    """Return what writes numbers with the decimal places that all of a table need."""
    places = decimals(*values)
    return lambda value: f"{value:,.{places}f}" if np.isfinite(value) else "-"

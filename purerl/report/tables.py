"""Tables of runs and sweeps, for the terminal and for pages."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from purerl.execution.format import with_noun
from purerl.metrics import decimals
from purerl.population.search import BestMember
from purerl.report import statistics
from purerl.report.plots import env_of
from purerl.report.statistics import mean_interval, nanmean
from purerl.report.sweep_data import Scores, env_name, label, read_scores, short
from purerl.runner.arguments import seeds_named
from purerl.runner.result import RunResult
from purerl.space.axes import in_words
from purerl.tuning.result import Holdout, TuneResult, count_of

if TYPE_CHECKING:
    import xarray as xr

# Configurations that the terminal shows, and whose scores say how all are rounded.
TOP = 10


def table(
    title: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[Any]],
    caption: str = "",
    *,
    mean: Sequence[str] = (),
    styles: Mapping[int, str] = MappingProxyType({}),
) -> Table:
    """Return a table for the terminal, whose cells stand to the right.

    Args:
        title: What stands over it.
        headings: Heading of each column.
        rows: Cells of each row; None is an empty one, NaN a dash.
        caption: What stands under it.
        mean: Cells of a last row, under a line.
        styles: Style of some rows, by their numbers.
    """
    # At least as wide as its title, which wraps otherwise.
    found = Table(title=title, caption=caption, min_width=len(title))
    for name in headings:
        found.add_column(name, justify="right", overflow="fold")
    for number, row in enumerate(rows):
        found.add_row(*map(_cell, row), style=styles.get(number, ""))
    if mean:
        found.add_section()
        found.add_row(*mean)
    return found


def _cell(value: Any) -> str:
    is_unknown = isinstance(value, float) and not np.isfinite(value)
    return "" if value is None else "-" if is_unknown else label(value)


def agents_of(
    result: RunResult,
) -> tuple[list[str], list[list[str]], Callable[[Any], str]]:
    """Return the final evaluation and training return of every agent of a run.

    A run without evaluations has the training return alone. Of an agent that diverged
    there is no number, but the update in which it did.

    Returns:
        Heading of each column, cells of each agent, in words, and a function that
        writes a number as those of the cells are written.
    """
    headings = ["seed", "training"]
    numbers = result.metrics["episode_return"][:, -1:]
    final = result.evaluation.get("episode_return")
    if final is not None:
        headings = ["seed", "evaluation", "worst episode", "best episode", "training"]
        last = final[:, -1]
        columns = (last.mean(-1), last.min(-1), last.max(-1), *numbers.T)
        numbers = np.stack(columns, axis=1)
    number = _writer(numbers[result.diverged_at < 0])
    return headings, _rows_of(result, numbers, number), number


def _rows_of(
    agents: Any, numbers: np.ndarray, number: Callable[[Any], str]
) -> list[list[str]]:
    """Seed and numbers of each agent, or the update in which it diverged."""
    rows = []
    for seed, values, update in zip(
        agents.seeds, numbers, agents.diverged_at, strict=True
    ):
        cells = [*map(number, values)]
        if update >= 0:
            cells = [f"diverged in update {update + 1:,}", *[""] * (len(cells) - 1)]
        rows.append([str(seed), *cells])
    return rows


def _agents_table(
    agents: Any, title: str, headings: Sequence[str], rows: Any, *words: str, mean: Any
) -> Table:
    """A table of agents, those that diverged in red, and the mean of the others."""
    is_lost = agents.diverged_at >= 0
    kept = int((~is_lost).sum())
    name = "mean" if not is_lost.any() else f"mean of {kept}"
    return table(
        title,
        headings,
        rows,
        "\n".join(filter(None, words)),
        mean=[name, *mean] if kept > 1 else (),
        styles=dict.fromkeys(np.flatnonzero(is_lost).tolist(), "red"),
    )


def run_table(result: RunResult) -> Table:
    """Tabulate final evaluation and training return of every agent, and their mean.

    Below is the mean's 95% interval; of fewer than ten agents, their range. Agents that
    diverged are marked, and are not in the mean.
    """
    final, is_kept = result.evaluation.get("episode_return"), result.diverged_at < 0
    headings, rows, number = agents_of(result)
    mean = [number(nanmean(result.metrics["episode_return"][is_kept, -1]))]
    title, caption = "deterministic policy at the end of training", ""
    if final is None:
        title = "last episodes of training"
        caption = "num_evaluations=0: purerl evaluate RUN plays the trained policy"
    elif is_kept.sum() > 1:
        means = final[is_kept, -1].mean(-1)
        middle, found = number(means.mean()), mean_interval(means)
        mean = [f"[bold]{middle}[/bold]", "", "", *mean]
        ends = f"{found.words}: {number(found.low)} to {number(found.high)}"
        ends = "no spread" if found.low == found.high else ends
        caption = f"mean evaluation {middle} ({ends})"
    words, title = (caption, last_cut_note(result)), f"{env_of(result)}: {title}"
    return _agents_table(result, title, headings, rows, *words, mean=mean)


def last_cut_note(result: RunResult) -> str:
    """Return the `cut_note` of the last evaluation; empty without evaluations."""
    last = {name: rows[:, -1] for name, rows in result.evaluation.items()}
    return cut_note(last) if last else ""


def cut_note(evaluation: Mapping[str, np.ndarray]) -> str:
    """Say how many episodes of an evaluation were cut; empty where none was.

    Args:
        evaluation: What `purerl.types.Evaluation` lists, with any axes in front.
    """
    cut = int(evaluation["cut_episodes"].sum())
    if not cut:
        return ""
    lengths = evaluation["episode_length"]
    steps = int(np.nanmax(lengths))  # Those that were cut are the longest.
    return (
        f"{cut:,} of {lengths.size:,} episodes still ran after {steps:,} steps and "
        "count with what they had earned (eval_max_steps)"
    )


def episodes_table(played: Any) -> Table:
    """Tabulate mean, spread and extremes of returns, a row per seed.

    Args:
        played: What `purerl.evaluate` returns. Agents that diverged are in no mean.
    """
    returns, measures = played.episode_return, (np.mean, np.std, np.min, np.max)
    number = _writer(returns)
    numbers = np.stack([measure(returns, axis=1) for measure in measures], axis=1)
    kept = returns[played.diverged_at < 0]
    mean = [number(measure(kept)) for measure in measures] if kept.size else []
    headings = ("seed", "mean", "std", "worst", "best")
    rows = _rows_of(played, numbers, number)
    words = cut_note(played._asdict())
    return _agents_table(played, played.title, headings, rows, words, mean=mean)


def best_rows(
    scores: Scores, most: int | None = None
) -> tuple[list[str], list[list[Any]]]:
    """Return headings and rows of the configurations, the best first.

    A row is the values of the axes; mean, its interval or range, and IQM in words; and
    the number of members without a score.

    A member that diverged or is missing counts as the worst score of the sweep, or as
    a lower return that one which did not diverge has had on its way; a configuration
    without any rows is left out.

    Args:
        scores: The scores of a sweep.
        most: Number of rows at most; all if not given.
    """
    heading = statistics.heading_of(scores.scores.shape[1])
    ranking, filled = scores.ranking(), scores.filled
    places = decimals(filled[ranking[:TOP]])
    rows = []
    for place in ranking[:most]:
        interval = statistics.mean_interval(filled[place])
        numbers = (
            f"{filled[place].mean():,.{places}f}",
            interval.text(places, heading),
            f"{statistics.aggregate(filled[place], 'iqm'):,.{places}f}",
        )
        values = [scores.points[place][name] for name in scores.names]
        lost = int((~np.isfinite(scores.scores[place])).sum())
        rows.append([*values, *numbers, lost])
    return [*map(short, scores.names), "mean", heading, "IQM", "lost"], rows


def trials_table(result: TuneResult, most: int = TOP) -> Table:
    """Return the best trials of a study."""
    headings, rows = result.headings_and_rows()
    return table(f"best of {count_of(result.rows)}", headings, rows[:most])


def holdout_table(holdout: Holdout) -> Table:
    """Return a table of a study's best and default on fresh seeds."""
    title = f"on fresh {seeds_named(holdout.seeds)}"
    return table(title, *holdout.headings_and_rows(), caption=holdout.note)


def best_table(dataset: "xr.Dataset", top: int = TOP) -> Table:
    """Tabulate the best configurations: mean, its interval or range, IQM, lost members.

    What counts for a lost member, and which are left out, is that of `best_rows`.

    Args:
        dataset: Dataset of a sweep.
        top: Number of configurations at most.

    Raises:
        ConfigError: no score yet.
    """
    scores = read_scores(dataset)
    num, seeds = scores.scores.shape
    headings, shown = best_rows(scores, top)
    missing = f"; {scores.missing}" if scores.missing else ""
    title = (
        f"{env_name(dataset)}: best {len(shown)} of "
        f"{with_noun(num, 'configuration')}, {with_noun(seeds, 'seed')} each{missing}"
    )
    rows = [[*cells, lost or None] for *cells, lost in shown]
    return table(title, headings, rows, styles={0: "bold"})


def member_rows(best: Sequence[BestMember]) -> tuple[list[str], list[list[Any]]]:
    """Return headings and rows of the best members of searches, with their points."""
    rows = [
        [
            *(one.seed, one.member, f"{one.score:,.{decimals(one.score)}f}"),
            *map(in_words, one.point.values()),
        ]
        for one in best
    ]
    names = list(best[0].point) if best else []
    return ["seed", "member", "score", *names], rows


def schedule_rows(best: BestMember) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of the hyperparameters that led to a member's state."""
    schedule = best.schedule.merged()
    rows = [
        [f"{first:,}", *map(in_words, values.values())]
        for first, values in zip(schedule.first_updates, schedule.values, strict=True)
    ]
    return ["from update", *best.point], rows


def rung_rows(dataset: "xr.Dataset") -> tuple[list[str], list[list[int]]]:
    """Return headings and rows of how many members of each bracket reached each rung.

    Args:
        dataset: The dataset of successive halving.
    """
    trained, brackets = dataset["trained_updates"].values, dataset["bracket"].values
    updates = dataset["updates"].values.tolist()
    rows = []
    for bracket in np.unique(brackets):
        mine = trained[:, brackets == bracket]
        rows.append([int(bracket), *(int((mine >= u).sum()) for u in updates)])
    return ["bracket", *(with_noun(u, "update") for u in updates)], rows


def _writer(*values: Any) -> Callable[[Any], str]:
    """Return what writes numbers with the decimal places that all of a table need."""
    places = decimals(*values)
    return lambda value: f"{value:,.{places}f}" if np.isfinite(value) else "-"

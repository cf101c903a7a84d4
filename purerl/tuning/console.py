"""The sentences and tables of a study on the terminal."""

from collections.abc import Sequence

from rich.table import Table

from purerl.execution.format import format_count, format_duration, with_noun
from purerl.report.statistics import heading_of, mean_interval, text_of
from purerl.report.sweep_data import short
from purerl.space.labels import in_a_line, in_words
from purerl.tuning.result import Holdout, Row, TuneResult, best_of


def batch_line(rows: Sequence[Row], total: int) -> str:
    """Return a line that says where the study stands."""
    states = [row.state for row in rows]
    done = sum(state not in ("running", "waiting") for state in states)
    parts = [f"{done}/{total} trials"]
    for state in ("pruned", "diverged", "refused", "unknown", "running"):
        if state in states:
            parts.append(f"{states.count(state)} {state}")
    best = best_of(rows)
    if best is not None:
        settings = in_a_line(best.params)
        parts.append(f"best {best.score:,.4g} (trial {best.number}: {settings})")
    return "; ".join(parts)


def best_table(result: TuneResult, most: int = 10) -> Table:
    """Return the best complete trials and the default one, with intervals."""
    complete = [row for row in result.rows if row.state == "complete"]
    complete.sort(key=lambda row: (-(row.score or 0.0), row.number))
    shown = complete[:most]
    shown += [row for row in complete[most:] if row.is_default]
    done = sum(row.state not in ("running", "waiting") for row in result.rows)
    table = Table(title=f"best of {with_noun(done, 'trial')}")
    table.add_column("trial", justify="right")
    for name in result.rows[0].params if result.rows else ():
        table.add_column(short(name), justify="right", overflow="fold")
    table.add_column("mean", justify="right", no_wrap=True)
    seeds = max((len(row.seed_scores) for row in shown), default=0)
    table.add_column(heading_of(seeds), justify="right", no_wrap=True)
    for row in shown:
        name = f"{row.number} (default)" if row.is_default else str(row.number)
        cells = [in_words(x) for x in row.params.values()]
        table.add_row(name, *cells, f"{row.score:,.2f}", _interval(row))
    return table


def _interval(row: Row) -> str:
    import numpy as np

    known = np.array([x for x in row.seed_scores if x is not None], float)
    interval = mean_interval(known)
    return interval.text(2, heading_of(len(row.seed_scores)))


def holdout_rows(holdout: Holdout) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of best, default and their difference on fresh seeds."""
    heading = heading_of(len(holdout.seeds))
    rows = []
    for name, scores in (
        (f"trial {holdout.trial}", holdout.best),
        ("default", holdout.default),
        ("difference", holdout.difference),
    ):
        ends = text_of(scores.low, scores.high, heading, 2, heading)
        rows.append([name, f"{scores.mean:,.2f}", ends, str(scores.diverged)])
    return ["", "mean", heading, "diverged"], rows


def holdout_table(holdout: Holdout) -> Table:
    """Return a table of best and default on fresh seeds."""
    seeds = holdout.seeds
    title = f"on fresh seeds {seeds[0]} to {seeds[-1]}"
    table = Table(title=title, caption=holdout.note or None)
    headings, rows = holdout_rows(holdout)
    for header in headings:
        table.add_column(header, justify="right" if header else "left")
    for row in rows:
        table.add_row(*row)
    return table


def warnings(result: TuneResult) -> list[str]:
    """Return sentences about trials that came to nothing, and a fruitless search."""
    reasons = {
        "diverged": "met numbers that are not finite; they count as the worst",
        "refused": "have values that cannot be trained together; they count as the "
        "worst",
        "unknown": "ended no episode, so nothing is known of them; train longer, or "
        "set num_evaluations",
    }
    sentences = []
    for state, words in reasons.items():
        rows = [row for row in result.rows if row.state == state]
        if rows:
            note = f" (first: {rows[0].note})" if rows[0].note else ""
            sentences.append(f"{len(rows)} trials {words}{note}")
    if result.finished and result.best_row is None:
        sentences.append(
            "no trial is complete, so that there is no best config; give axes nearer "
            "to the config's own values, or longer training"
        )
    if result.best_row is not None and result.best_row.is_default:
        sentences.append("no trial was better than the default")
    return sentences


def end_line(result: TuneResult) -> str:
    """Return a line that says how the call went."""
    numbers = result.summary
    return (
        f"{with_noun(numbers['trained_trials'], 'trial')} trained, "
        f"{format_count(numbers['env_steps'])} steps in "
        f"{format_duration(numbers['seconds'])}; compiled "
        f"{with_noun(numbers['compilations'], 'program')} in "
        f"{numbers['compile_seconds']:.1f} s"
    )

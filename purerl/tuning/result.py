"""The result of a study: rows, the best config, a comparison on fresh seeds, files."""

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purerl import serialise
from purerl.atomic import write_atomic
from purerl.config import ConfigError, TrainConfig
from purerl.report.statistics import heading_of, mean_interval, text_of
from purerl.report.statistics.missing import worst_of
from purerl.runner.result import Best
from purerl.runner.trackers.base import Ended, Member, TrackedRun, files_of, name_of
from purerl.runner.trackers.group import Files, Group
from purerl.storage import folders
from purerl.storage.files import CHECKSUM

TABLE = "trials.csv"
# The states of finished trials.
STATES = ("complete", "pruned", "diverged", "refused", "unknown")


class Row(NamedTuple):
    """One trial of a study.

    Attributes:
        number: The number of the trial in the study. One that was stopped and trained
            again keeps it; Optuna's own number of it is then another.
        state: The state of the trial: `complete`, `pruned`, `diverged`, `refused` (its
            values together cannot be trained), `unknown` (no episode ended), `running`
            or `waiting`.
        score: The mean over the seeds, of complete trials.
        params: Values of the axes; what is no number by its label.
        seed_scores: Scores, one per seed, None where there is none.
        env_steps: Environment steps trained, over all seeds.
        curve: The mean score over the seeds, by environment steps of one agent that had
            been trained when it was reported.
        is_default: Whether the trial has the config's own values.
        note: More about the trial's state.
    """

    number: int
    state: str
    score: float | None
    params: dict[str, Any]
    seed_scores: tuple[float | None, ...]
    env_steps: int
    curve: dict[int, float]
    is_default: bool
    note: str


class HeldOutScores(NamedTuple):
    """Scores of a config on seeds that the study never saw.

    Attributes:
        scores: The score of each seed, `[S]`; NaN where it diverged.
        mean: The mean of the scores, a seed that diverged counting as `compare` says.
        low: The lower end of the mean's 95% interval; of fewer than ten scores, the
            lower end of their range.
        high: The upper end of the same interval or range.
        diverged: The number of seeds that diverged.
    """

    scores: np.ndarray
    mean: float
    low: float
    high: float
    diverged: int


class Holdout(NamedTuple):
    """Best and default on the same fresh seeds.

    Attributes:
        trial: The number of the best trial.
        seeds: Seeds that both were trained with.
        best: Scores of the best trial.
        default: Scores of the config's own values.
        difference: The best minus the default, seed by seed.
        unknown: Whether each seed, of best and of default, has ended no episode. Then
            no mean is known.
        lowest: The lowest score on the way of those that did not fail; NaN where it is
            not known.
    """

    trial: int
    seeds: tuple[int, ...]
    best: HeldOutScores
    default: HeldOutScores
    difference: HeldOutScores
    unknown: tuple[tuple[bool, ...], ...] = ()
    lowest: float = np.nan

    @property
    def note(self) -> str:
        """A sentence to show beside the means; empty where none has such a seed."""
        if np.any(self.unknown):
            return (
                "A seed ended no episode, so nothing is known of the mean; train "
                "longer, or set num_evaluations."
            )
        if not self.difference.diverged or np.isnan(self.difference.mean):
            return ""
        return (
            "A seed that diverged counts as the worst score of both, or as the lowest "
            "that any seed has had on its way."
        )

    def headings_and_rows(self) -> tuple[list[str], list[list[str]]]:
        """Return the comparison as a table: the best, the default, the difference."""
        heading = heading_of(len(self.seeds))
        rows = []
        for name, scores in (
            (f"trial {self.trial}", self.best),
            ("default", self.default),
            ("difference", self.difference),
        ):
            ends = text_of(scores.low, scores.high, heading, 2, heading)
            rows.append([name, f"{scores.mean:,.2f}", ends, str(scores.diverged)])
        return ["", "mean", heading, "diverged"], rows


class TuneResult(NamedTuple):
    """A study's outcome.

    Attributes:
        rows: Rows of all trials, by number.
        best_config: The config of the best trial; None before any is complete.
        best_row: The row of the best trial; None before any is complete.
        holdout: The comparison of best and default, once the study is finished.
        importance: The share of each axis in what makes a trial good.
        finished: Whether as many trials as asked for have finished.
        summary: Numbers of this call: steps, seconds, compilations.
        out: The folder, if any.
    """

    rows: tuple[Row, ...]
    best_config: TrainConfig | None
    best_row: Row | None
    holdout: Holdout | None
    importance: dict[str, float]
    finished: bool
    summary: dict[str, Any]
    out: Path | None

    def best(self) -> Best:
        """Return the best trial: its point, its score over seeds, its config.

        Raises:
            ConfigError: no trial is complete.
        """
        if self.best_config is None or self.best_row is None:
            raise ConfigError("no trial of the study is complete yet.")
        row = self.best_row
        return Best(dict(row.params), float(row.score or 0.0), self.best_config)


def best_of(rows: Sequence[Row]) -> Row | None:
    """Return the complete trial with the highest score, the first of equals."""
    complete = [row for row in rows if row.state == "complete"]
    return max(complete, key=lambda row: (row.score, -row.number), default=None)


def held_out_scores(
    scores: np.ndarray, filled: np.ndarray, diverged: np.ndarray
) -> HeldOutScores:
    """Return statistics of scores.

    Args:
        scores: The score of each seed, `[S]`; NaN where it has none.
        filled: The score of each seed, `[S]`, with what a seed that diverged is worth
            in its place; NaN where nothing is known.
        diverged: Whether each seed diverged, `[S]`.
    """
    count = int(diverged.sum())
    if not filled.size or np.isnan(filled).any():
        return HeldOutScores(scores, np.nan, np.nan, np.nan, count)
    interval = mean_interval(filled)
    low, high = float(interval.low), float(interval.high)
    return HeldOutScores(scores, float(filled.mean()), low, high, count)


def compare(
    trial: int,
    seeds: Sequence[int],
    best: Sequence[float | None],
    default: Sequence[float | None],
    unknown: Sequence[Sequence[bool]] | None = None,
    lowest: float | None = None,
) -> Holdout:
    """Return the comparison of two lists of scores, one per seed each.

    A seed that diverged counts as the worst score of both lists, or as the lowest that
    any seed has had on its way: left out, a config whose bad runs diverge would look
    better than it is. Where a seed has ended no episode, nothing is known of the mean.

    Args:
        trial: The number of the best trial.
        seeds: Seeds that both were trained with.
        best: Scores of the best trial, one per seed; None and NaN where there is none.
        default: Scores of the config's own values, one per seed; None and NaN where
            there is none.
        unknown: Whether each seed without a score, of best and of default, has only
            ended no episode; all diverged where not given.
        lowest: The lowest score on the way of those that did not fail, if it is known.
    """
    lowest = np.nan if lowest is None else lowest
    raw = [np.array([np.nan if x is None else x for x in s]) for s in (best, default)]
    raw = [np.where(np.isfinite(scores), scores, np.nan) for scores in raw]
    is_unknown = [
        np.zeros(len(scores), bool) if unknown is None else np.asarray(unknown[i], bool)
        for i, scores in enumerate(raw)
    ]
    worst = worst_of(np.concatenate(raw)[:, None], lowest)
    filled = [np.where(np.isnan(scores), worst, scores) for scores in raw]
    filled = [np.where(u, np.nan, x) for u, x in zip(is_unknown, filled, strict=True)]
    lost = [np.isnan(x) & ~u for u, x in zip(is_unknown, raw, strict=True)]
    return Holdout(
        trial,
        tuple(seeds),
        best=held_out_scores(raw[0], filled[0], lost[0]),
        default=held_out_scores(raw[1], filled[1], lost[1]),
        difference=held_out_scores(
            raw[0] - raw[1], filled[0] - filled[1], lost[0] | lost[1]
        ),
        unknown=tuple(tuple(u.tolist()) for u in is_unknown),
        lowest=lowest,
    )


def read_holdout(stored: Mapping[str, Any]) -> Holdout:
    """Return a comparison from the plain values of `holdout_dict`."""
    scores = [stored[name]["scores"] for name in ("best", "default")]
    known = {name: stored[name] for name in ("unknown", "lowest")}
    return compare(stored["trial"], stored["seeds"], *scores, **known)


def holdout_dict(holdout: Holdout) -> dict[str, Any]:
    """Return a comparison as plain values."""
    return {
        "trial": holdout.trial,
        "seeds": list(holdout.seeds),
        "unknown": [list(seeds) for seeds in holdout.unknown] or None,
        "lowest": _plain(holdout.lowest),
        **{
            name: {
                "mean": _plain(part.mean),
                "low": _plain(part.low),
                "high": _plain(part.high),
                "ends": heading_of(len(part.scores)),
                "diverged": part.diverged,
                "scores": [_plain(score) for score in part.scores],
            }
            for name in ("best", "default", "difference")
            for part in [getattr(holdout, name)]
        },
    }


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


# Numbers of a call that a study has as the sum over its calls.
_COSTS = (
    *("trained_trials", "env_steps", "block_calls"),
    *("compilations", "compile_seconds", "seconds"),
)


def write(folder: Path, result: TuneResult) -> None:
    """Write trials.csv, best.yaml and summary.json, each atomically."""
    write_atomic(folder / TABLE, csv_text(result.rows))
    if result.best_config is not None:
        serialise.to_yaml(result.best_config, folder / "best.yaml")
    numbers = result.summary
    facts = {
        **{name: numbers[name] for name in ("trials", *STATES)},
        "best_trial": result.best_row.number if result.best_row else None,
        "importance": result.importance,
        "holdout": holdout_dict(result.holdout) if result.holdout else None,
    }
    folders.write_summary(folder, facts, numbers, numbers["block_calls"] > 0, _COSTS)


def csv_text(rows: Sequence[Row]) -> str:
    """Return the trials as a table, a line each.

    The name of the last column, which is empty, is a checksum of the whole table.
    """
    axes = list(rows[0].params) if rows else []
    seeds = max((len(row.seed_scores) for row in rows), default=0)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["number", "state", "score", *axes]
        + [f"score_{i}" for i in range(seeds)]
        + ["env_steps", "default", "note", "curve", CHECKSUM]
    )
    for row in rows:
        scores = [*row.seed_scores, *[None] * (seeds - len(row.seed_scores))]
        writer.writerow(
            [
                row.number,
                row.state,
                row.score,
                *row.params.values(),
                *scores,
                row.env_steps,
                int(row.is_default),
                row.note,
                json.dumps(row.curve),
                "",
            ]
        )
    heading, end, lines = text.getvalue().partition("\n")
    return f"{heading}:{_digest(text.getvalue())}{end}{lines}"


def checked(text: str) -> str:
    """Return the table that `csv_text` wrote, without its checksum.

    Raises:
        ValueError: the checksum is missing or differs.
    """
    heading, end, lines = text.partition("\n")
    heading, _, digest = heading.rpartition(":")
    table = f"{heading}{end}{lines}"
    if digest != _digest(table):
        raise ValueError("its checksum differs")
    return table


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def tracked(config: TrainConfig, folder: Path | None) -> TrackedRun:
    """Return what trackers are told of a study: a nested run per trial."""
    config_, name = serialise.to_dict(config), name_of(folder, "tune")
    return TrackedRun(name, config_, {}, folder, is_sweep=True, kind="tune")


def tell(group: Group, rows: Sequence[Row]) -> None:
    """Tell trackers the finished trials among some."""
    ended = [row for row in rows if row.state in STATES]
    group.add([row.number for row in ended], lambda: map(_ended, ended))


def _ended(row: Row) -> Ended:
    """A finished trial as trackers are told it.

    `train/score` is its mean score over the seeds along the way, `trial/score` that of
    the seeds at its end, with their extremes.
    """
    rows: list[tuple[str, dict[str, Any]]] = [
        ("train", {"env_steps": step, "score": score})
        for step, score in sorted(row.curve.items())
    ]
    last = {
        "env_steps": max(row.curve, default=0),
        "score": list(row.seed_scores),
        "total_env_steps": row.env_steps,
    }
    params = {**row.params, "trial": row.number, "state": row.state}
    member = Member(f"trial={row.number}", None, params)
    return Ended(row.number, member, [*rows, ("trial", last)])


def tracked_files(result: TuneResult) -> Files:
    """Return what makes the files of a finished study that trackers keep."""
    return files_of(
        result.out if result.finished else None,
        study=(TABLE, "best.yaml", folders.SUMMARY),
        figures=("*.png",),
        sweep=(folders.CONFIG, folders.MANIFEST),
    )

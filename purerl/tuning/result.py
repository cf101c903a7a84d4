"""The result of a study, and its folder.

config.yaml      the base config
manifest.json    axes, seeds, how it is searched, versions, device
study.db         Optuna's study, where no other storage is given
trials.json      the trials, after every batch
best.yaml        the best config, for `purerl train --config`
summary.json     numbers of the study, costs of all its calls, the comparison
*.png            history, importance, contour, slice
"""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purerl import auto, serialise
from purerl.acting.environment import resolve_env
from purerl.config import ConfigError, TrainConfig
from purerl.execution.format import say, with_noun
from purerl.report import plots
from purerl.report.shown import Shown, View, columns_of, stated
from purerl.report.statistics import heading_of, mean_interval, text_of, worst_of
from purerl.runner import manifest
from purerl.runner.arguments import check_seeds, stored_folder
from purerl.runner.options import FIXED, TOLD
from purerl.runner.result import Best
from purerl.runner.trackers.base import (
    Member,
    Piece,
    TrackedRun,
    ended,
    files_of,
    name_of,
)
from purerl.runner.trackers.group import Group, Told
from purerl.space.axes import from_dict, in_a_line
from purerl.storage import folders
from purerl.storage.files import jsonable, read_json, write_json
from purerl.storage.folders import FIELD, differences
from purerl.tuning.space import Space, TuneOptions

TABLE = "trials.json"
_REMEDY = "Run the study again, which writes it anew."
# The states of finished trials.
STATES = ("complete", "pruned", "diverged", "refused", "unknown")


class Row(NamedTuple):
    """One trial of a study.

    Attributes:
        number: The number of the trial in the study. One that was stopped and trained
            again keeps it.
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
        metrics: Own metrics of the last row by name, means over the seeds.
    """

    number: int
    state: str
    score: float | None
    params: dict[str, Any]
    seed_scores: tuple[float | None, ...] = ()
    env_steps: int = 0
    curve: dict[int, float] = {}  # noqa: RUF012  (a NamedTuple's, never changed)
    is_default: bool = False
    note: str = ""
    metrics: dict[str, float] = {}  # noqa: RUF012

    @property
    def has_ended(self) -> bool:
        """Whether the trial neither waits nor is trained."""
        return self.state in STATES


def read_row(values: Mapping[str, Any]) -> Row:
    """Return the row of plain values by name, as JSON has them."""
    curve = {int(step): score for step, score in values.get("curve", {}).items()}
    seeds = tuple(values.get("seed_scores", ()))
    return Row(**{**values, "curve": curve, "seed_scores": seeds})


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
        unknown: Whether each seed, of best and of default, has ended no episode,
            `[2, S]`. Then no mean is known.
        lowest: The lowest score on the way of those that did not fail; NaN where it is
            not known.
    """

    trial: int
    seeds: tuple[int, ...]
    best: HeldOutScores
    default: HeldOutScores
    difference: HeldOutScores
    unknown: np.ndarray
    lowest: float

    @property
    def note(self) -> str:
        """A sentence to show beside the means; empty where none has such a seed."""
        if self.unknown.any():
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
        heading, rows = heading_of(len(self.seeds)), []
        names = (f"trial {self.trial}", "default", "difference")
        every = (self.best, self.default, self.difference)
        for name, scores in zip(names, every, strict=True):
            ends = text_of(scores.low, scores.high, heading, 2, heading)
            rows.append([name, f"{scores.mean:,.2f}", ends, str(scores.diverged)])
        return ["", "mean", heading, "diverged"], rows


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TuneResult(Shown):
    """A study's outcome.

    Attributes:
        space: The axes that the study searches.
        rows: Rows of all trials, by number.
        holdout: The comparison of best and default, once the study is finished.
        importance: The share of each axis in what makes a trial good.
        finished: Whether as many trials as asked for have finished.
        summary: Numbers of this call: steps, seconds, compilations.
        out: The folder, if any.
    """

    space: Space
    rows: tuple[Row, ...]
    holdout: Holdout | None
    importance: dict[str, float]
    finished: bool
    summary: dict[str, Any]
    out: Path | None

    @property
    def best_row(self) -> Row | None:
        """The row of the best trial; None before any is complete."""
        return best_of(self.rows)

    def view(self) -> View:
        """Return what the study tells of itself."""
        best, fresh = self.best_row, self.holdout
        facts = [stated(self.finished, count_of(self.rows), self.out)]
        if best is not None:
            facts.append(f"best: {in_a_line(best.params)}; score {best.score:,.4g}")
        if fresh is not None:
            means = fresh.best.mean, fresh.default.mean
            facts.append("on fresh seeds: best {:,.4g}, default {:,.4g}".format(*means))
        return View(
            ", ".join(self.space.axes),
            facts,
            lambda ax=None: plots.study_history(self.rows, ax),
            self._columns,
            "score",
        )

    def _columns(self) -> dict[str, Any]:
        """Number, values of the axes, score and state of every trial."""
        return columns_of(
            [
                {"trial": row.number, **row.params, "score": row.score}
                | {"state": row.state, "env_steps": row.env_steps}
                | {"note": "default" if row.is_default else row.note}
                for row in self.rows
            ]
        )

    def best(self) -> Best:
        """Return the best trial: its point, its score over seeds, its config.

        Raises:
            ConfigError: no trial is complete.
        """
        row = self.best_row
        if row is None:
            raise ConfigError("no trial of the study is complete yet.")
        point = self.space.point(row.params)
        return Best(point, float(row.score or 0.0), self.space.config_at(point))


def count_of(rows: Sequence[Row]) -> str:
    """Return the number of trials, and of those in each state."""
    states = [row.state for row in rows]
    counts = (f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return f"{with_noun(len(rows), 'trial')} ({', '.join(counts)})"


def best_of(rows: Sequence[Row]) -> Row | None:
    """Return the complete trial with the highest score, the first of equals."""
    complete = [row for row in rows if row.state == "complete"]
    return max(complete, key=lambda row: (row.score, -row.number), default=None)


def compare(
    trial: int,
    seeds: Sequence[int],
    scores: Any,
    unknown: Any = False,
    lowest: float | None = None,
) -> Holdout:
    """Return the comparison of the best and the default.

    A seed that diverged counts as the worst score of both, or as the lowest that any
    seed has had on its way: left out, a config whose bad runs diverge would look better
    than it is. Where a seed has ended no episode, nothing is known of the mean.

    Args:
        trial: The number of the best trial.
        seeds: Seeds that both were trained with.
        scores: Scores of the best trial and of the config's own values, `[2, S]`; None
            and NaN where there is none.
        unknown: Whether each seed without a score has only ended no episode, `[2, S]`.
        lowest: The lowest score on the way of those that did not fail, if it is known.
    """
    scores = np.array(scores, float)  # None becomes NaN.
    scores = np.where(np.isfinite(scores), scores, np.nan)
    unknown = np.broadcast_to(np.asarray(unknown, bool), scores.shape)
    lowest = np.nan if lowest is None else lowest
    worst = worst_of(scores.reshape(-1, 1), lowest)
    filled = np.where(unknown, np.nan, np.where(np.isnan(scores), worst, scores))
    lost = np.isnan(scores) & ~unknown

    def held_out(scores: np.ndarray, filled: np.ndarray, lost: np.ndarray) -> Any:
        mean = low = high = np.nan
        if filled.size and not np.isnan(filled).any():
            interval = mean_interval(filled)
            mean, low, high = map(float, (filled.mean(), interval.low, interval.high))
        return HeldOutScores(scores, mean, low, high, int(lost.sum()))

    own, others = map(held_out, scores, filled, lost)
    difference = held_out(scores[0] - scores[1], filled[0] - filled[1], lost.any(0))
    return Holdout(trial, tuple(seeds), own, others, difference, unknown, lowest)


def read_holdout(stored: Mapping[str, Any]) -> Holdout:
    """Return a comparison from its values as JSON has them."""
    scores = [stored[name]["scores"] for name in ("best", "default")]
    known = (stored[name] for name in ("unknown", "lowest"))
    return compare(stored["trial"], stored["seeds"], scores, *known)


# Numbers of a call that a study has as the sum over its calls.
_COSTS = (
    *("trained_trials", "env_steps", "block_calls"),
    *("compilations", "compile_seconds", "seconds"),
)


def write(folder: Path, result: TuneResult) -> None:
    """Write trials.json, best.yaml and summary.json, each atomically."""
    write_trials(folder, result.rows)
    if result.best_row is not None:
        serialise.to_yaml(result.best().config, folder / "best.yaml")
    numbers = result.summary
    facts = {
        **{name: numbers[name] for name in ("trials", *STATES)},
        "best_trial": result.best_row.number if result.best_row else None,
        "importance": result.importance,
        "holdout": jsonable(result.holdout),
    }
    folders.write_summary(folder, facts, numbers, numbers["block_calls"] > 0, _COSTS)


def write_trials(folder: Path, rows: Sequence[Row]) -> None:
    """Write trials.json."""
    write_json(folder / TABLE, {"trials": [row._asdict() for row in rows]})


def read_trials(folder: Path) -> list[Row]:
    """Return the rows that `write_trials` wrote.

    Raises:
        ConfigError: there are none, or they are damaged.
    """
    path = folder / TABLE
    if not path.exists():
        raise ConfigError(
            f"there is no {path}: no trial of the study has finished yet, or it was "
            f"deleted. {_REMEDY}"
        )
    return [read_row(row) for row in read_json(path, _REMEDY)["trials"]]


def told(
    config: TrainConfig,
    folder: Path | None,
    trials: int,
    rows: Sequence[Row],
    is_finished: bool = False,
) -> Told:
    """Return what trackers are told of a study: a nested run per trial.

    Args:
        config: The base config.
        folder: The folder of the study, if it writes one.
        trials: The number of trials that are to finish.
        rows: Trials, of which those that have ended are told.
        is_finished: Whether the study has all of them.
    """
    config_, name = serialise.to_dict(config), name_of(folder, KIND)
    files = files_of(
        folder if is_finished else None,
        study=(TABLE, "best.yaml", folders.SUMMARY),
        figures=("*.png",),
        sweep=(folders.CONFIG, folders.MANIFEST),
    )
    return Told(
        TrackedRun(name, config_, {}, folder, is_sweep=True, kind=KIND),
        trials,
        lambda group: tell(group, rows),
        files,
        is_finished,
    )


def tell(group: Group, rows: Sequence[Row]) -> None:
    """Tell trackers the finished trials among some."""
    known = [row for row in rows if row.has_ended]
    group.add([row.number for row in known], lambda: map(_ended, known))


def _ended(row: Row) -> Piece:
    """A finished trial as trackers are told it.

    `train/score` is its mean score over the seeds along the way, `trial/score` that of
    the seeds at its end, with their extremes.
    """
    rows: list[dict[str, Any]] = [
        {"kind": "train", "env_steps": step, "score": score}
        for step, score in sorted(row.curve.items())
    ]
    last = {
        "kind": "trial",
        "env_steps": max(row.curve, default=0),
        "score": list(row.seed_scores),
        **row.metrics,
        "total_env_steps": row.env_steps,
    }
    params = {**row.params, "trial": row.number, "state": row.state}
    member = Member(f"trial={row.number}", None, params)
    return ended(row.number, member, [*rows, last])


FORMAT, KIND = 2, "tune"
DATABASE = "study.db"


def open_folder(
    folder: Path, space: Space, options: TuneOptions, name: str, lanes: int
) -> dict[str, Any]:
    """Start a study's folder, or go on with it; return the manifest that holds.

    Args:
        folder: The folder of the study.
        space: The axes that it searches.
        options: The options of this call, of which some may be others than before.
        name: The name of the study in its storage.
        lanes: The width of a block, where the folder has none yet.

    Raises:
        ConfigError: it holds something else, another study or width, or has other
            random keys, or cannot be written.
    """
    config = options.config
    about = {
        "kind": KIND,
        **spec(space, options),
        "told": options.kept(TOLD),
        "auto": auto.values(config, auto.resolve(config, resolve_env(config))),
        "study": name,
        "lanes": lanes,
        "lanes_asked": options.lanes,
    }
    return folders.open_folder(folder, about, compare=differing, told=("told",))


def differing(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return what differs between the specifications of two studies, in words."""
    parts = {"config": FIELD, "axes": "the axis {}", "options": FIELD}
    return differences(stored, new, parts, free=("auto", "told"))


def spec(space: Space, options: TuneOptions) -> dict[str, Any]:
    """Return what makes scores of a study comparable: none of it may change."""
    return {
        "format": FORMAT,
        "config": serialise.to_dict(options.config),
        "axes": space.to_dict(),
        "seeds": list(check_seeds(options.seeds)),
        "options": options.kept(FIXED),
    }


def load_tune(folder: str | Path, config: TrainConfig | None = None) -> TuneResult:
    """Read a study's folder, finished or not.

    Args:
        folder: The folder that `purerl.tune` wrote.
        config: The base config in place of the stored one, where no file can hold it.

    Raises:
        ConfigError: it holds no study, nothing has finished yet, or it is damaged.
    """
    folder = stored_folder(folder)
    stored = folders.load_kind(folder, KIND, FORMAT)
    config, is_whole = manifest.read_or_stand_in(folder, stored, "load_tune", config)
    space = Space(config, from_dict(stored["axes"]))
    if not is_whole:
        space.config = config.replace(env=config.env.name)
    numbers = folders.read_summary(folder)
    holdout = numbers.pop("holdout", None)
    rows = read_trials(folder)
    done = sum(row.has_ended for row in rows)
    if done < numbers.get("trials", 0):
        raise ConfigError(
            f"{folder / TABLE} has {done} trials that ended, and "
            f"{folder / folders.SUMMARY} has {numbers['trials']}. {_REMEDY}"
        )
    trials = stored["told"]["trials"]
    if done >= trials and not numbers:
        say(f"{folder / folders.SUMMARY} is missing. {_REMEDY}")
    return TuneResult(
        space=space,
        rows=tuple(rows),
        holdout=read_holdout(holdout) if holdout else None,
        importance=numbers.pop("importance", {}),
        finished=done >= trials,
        summary={k: v for k, v in numbers.items() if k != "best_trial"},
        out=folder,
    )


def told_of_study(folder: Path) -> Told:
    """Return what trackers are told of a study's folder.

    Raises:
        ConfigError: no trial has finished.
    """
    result, stored = load_tune(folder), folders.load(folder)
    if not any(row.has_ended for row in result.rows):
        raise ConfigError(f"no trial of the study in {folder} has finished yet.")
    trials = int(stored["told"]["trials"])
    return told(result.space.config, folder, trials, result.rows, result.finished)


def check_study(folder: Path, known: Callable[[], Sequence[Row]]) -> None:
    """Refuse to go on with a study that has lost trials of its folder.

    Args:
        folder: The folder of the study.
        known: Reads the trials of its storage.

    Raises:
        ConfigError: the storage lacks a trial that the table has, or has another one.
    """
    done: list[Row] = []
    with contextlib.suppress(ConfigError):  # There is none, or it is written anew.
        done = [row for row in read_trials(folder) if row.has_ended]
    told = len(done)
    with contextlib.suppress(ConfigError):
        told = max(told, folders.read_summary(folder).get("trials", 0))
    try:
        found = {row.number: row for row in known()} if told else {}
    except Exception as error:  # Anything: its text may be another by a byte.
        raise study_is_damaged(folder, f"{type(error).__name__}: {error}") from None
    odd = [row.number for row in done if found.get(row.number) != row]
    if odd or len(found) < told:
        trial = odd[0] if odd else len(found)
        raise study_is_damaged(folder, f"trial {trial} is missing or another one")


def study_is_damaged(folder: Path, why: str) -> ConfigError:
    """Return the error for a storage that is not the one of the folder's study."""
    return ConfigError(
        f"{folder / DATABASE} (or the storage in its place) is not that of the study "
        f"in {folder}: {why.splitlines()[0][:200]}. Put back a copy of it, or give "
        "another folder; what had finished is in the folder, and stays."
    )

"""The result of a comparison: scores with labels, statistics, one table, a folder.

config.yaml       the config that the settings change, for people
manifest.json     settings, environments, seeds, measures, versions, device
trained/          scores of every setting in every environment, as they were finished
comparison.csv    the table
comparison.png    a picture of the learning curves
"""

import csv
import io
import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.markup import escape
from rich.table import Table

from purerl.atomic import write_atomic
from purerl.config import ConfigError, shown
from purerl.execution.format import say, with_noun
from purerl.metrics import decimals
from purerl.report import plots, statistics
from purerl.report.plots import Line, comparison_lines
from purerl.report.shown import Shown, View, columns_of
from purerl.report.statistics import heading_of, text_of
from purerl.runner.arguments import stored_folder
from purerl.runner.trackers.base import (
    Member,
    Piece,
    TrackedRun,
    ended,
    files_of,
    name_of,
)
from purerl.runner.trackers.group import Group, Told
from purerl.storage import folders
from purerl.storage.files import DAMAGE, load_arrays, save_arrays

if TYPE_CHECKING:
    import xarray as xr

KIND, FORMAT = folders.COMPARISON, 4
TRAINED = "trained"  # The folder of scores, a file per setting and environment.
FILES = ("comparison.csv", "comparison.png")
# What a comparison says of itself.
ABOUT = ("settings", "environments", "baseline", "options", "seeds")
# One for all environments, one for each in their order, or by their names.
Numbers = float | Sequence[float] | Mapping[str, float]


ALL = "all environments"
# The share of comparisons without any difference in which a setting is called clear.
ERRORS = 0.05
BOLD = (
    "bold: clear of zero at 5%, for all settings of an environment and measure together"
)
# What a heading calls a measure, and what it is taken over.
WORDS = {
    "training_curve": ("area", "under the training curve, by its length"),
    "final_return": ("final return", "over the last tenth of training"),
    "evaluation": ("evaluation", "of the deterministic policy, after training"),
}


class Trained(NamedTuple):
    """The scores of training with one setting in one environment.

    Attributes:
        measures: Values by name of the measure, `[S]` float32, NaN where a run met a
            number that was not finite.
        curve: The mean return of the episodes that ended in each piece of the run,
            `[S, T]`; the last one before where none did, and at first the first one.
            NaN from the piece on in which the run met a number that was not finite.
        steps: Environment steps at the end of the pieces, `[T]`.
    """

    measures: dict[str, np.ndarray]
    curve: np.ndarray
    steps: np.ndarray


# By environment and setting.
Known = Mapping[tuple[str, str], Trained]


def save_scores(folder: Path, id: str, trained: Trained) -> None:
    """Write the scores of a setting, atomically."""
    measures = {f"measure_{name}": x for name, x in trained.measures.items()}
    arrays = {"curve": trained.curve, "steps": trained.steps, **measures}
    save_arrays(folder / TRAINED / f"{id}.npz", {**arrays, "id": np.array(id)})


def load_scores(folder: Path, id: str) -> Trained | None:
    """Return what `save_scores` wrote; None where there is nothing, or it is damaged.

    Its name is in it too: a file may be exchanged with another.
    """
    try:
        stored = load_arrays(folder / TRAINED / f"{id}.npz")
        curve, steps, own = (stored.pop(name) for name in ("curve", "steps", "id"))
    except DAMAGE:
        return None
    measures = {name.removeprefix("measure_"): x for name, x in stored.items()}
    return Trained(measures, curve, steps) if str(own) == id else None


def read_numbers(
    field: str, numbers: Numbers, environments: Sequence[str]
) -> np.ndarray:
    """Read a finite number for each environment, `[E]`.

    Raises:
        ConfigError: an environment has none, or there is one too many.
    """
    given: Any = numbers
    if isinstance(given, Mapping):
        is_whole = set(given) == set(environments)
        given = [given[name] for name in environments] if is_whole else np.nan
    found = statistics.as_numbers(field, given)
    if found.shape not in ((), (len(environments),)) or not np.isfinite(found).all():
        raise ConfigError(
            f"{field} must be a finite number, or one for each environment, in their "
            f"order or by name, got {shown(numbers)}."
        )
    return np.broadcast_to(found, len(environments))


def short(measure: str) -> str:
    """Return what a heading calls a measure: its own name for an own metric."""
    return WORDS.get(measure, (measure,))[0]


class Row(NamedTuple):
    """One setting in one environment, by one measure; intervals are of 95%.

    Of fewer than ten runs there are no intervals: the ends of a mean, an interquartile
    mean and a difference are then the range of the runs, and `better` has none.

    Attributes:
        environment: Name of the environment; `all environments` takes them together.
        measure: The name of the measure in `purerl.meta.fitness.KINDS`.
        setting: Name of the setting.
        seeds: Number of runs.
        failed: Number of these runs that met a number that was not finite. They count
            as the worst score of any setting there, or as a lower return that a run
            which did not fail has had on its way.
        mean: Mean over runs, with its interval; NaN over all environments, whose
            returns have no common unit.
        iqm: Interquartile mean over runs, with its interval; NaN over all environments.
        difference: Mean over seeds of the score minus the baseline's with the same key;
            over all environments in units of the baseline's mean return in each, or of
            the spread (standard deviation) of all settings' scores there, where the
            mean is nearer to zero than that. NaN for the baseline itself.
        better: Probability that a run scores higher than one of the baseline's, ties
            half; over all environments their mean.
        is_clear: Whether the difference is clear of zero, at 5% for all settings of
            this environment and measure together (Holm 1979); never of fewer than ten
            runs.
    """

    environment: str
    measure: str
    setting: str
    seeds: int
    failed: int
    mean: float
    mean_low: float
    mean_high: float
    iqm: float
    iqm_low: float
    iqm_high: float
    difference: float
    difference_low: float
    difference_high: float
    better: float
    better_low: float
    better_high: float
    is_clear: bool


class Comparison(Shown):
    """The outcome of `purerl.compare`.

    Args:
        about: Descriptions of N `settings` and E `environments`, by name, `baseline`,
            `options` and `seeds`, as plain values.
        found: Scores by environment and setting.
        out: The folder, if any.
        finished: Whether every setting that was asked for has been trained.

    Attributes:
        settings: Names of the settings, N of them.
        baseline: The name of the setting that others are compared with.
        environments: Names of the environments, E of them.
        measures: Kinds of `purerl.meta.fitness`.
        seeds: Numbers of the held-out seeds, S of them.
        seed: The number from whose key the held-out seeds' keys come.
        about: Descriptions of the settings and environments, as plain values.
        found: Scores by environment and setting.
        out: The folder, if any.
        finished: Whether every setting that was asked for has been trained.
    """

    def __init__(
        self,
        about: Mapping[str, Any],
        found: Known,
        out: Path | None = None,
        finished: bool = True,
    ) -> None:
        self.about, self.found, self.out = dict(about), found, out
        self.finished = finished
        self.settings = tuple(about["settings"])
        self.environments = tuple(about["environments"])
        self.baseline = about["baseline"]
        self.seed, self.seeds = about["options"]["seed"], tuple(about["seeds"])
        self.measures = tuple(about["options"]["measures"])

    @cached_property
    def scores(self) -> dict[str, np.ndarray]:
        """Scores by measure, `[E, N, S]`, NaN where a run failed."""
        return {
            name: self._all(lambda x, n=name: x.measures[n]) for name in self.measures
        }

    @cached_property
    def curves(self) -> dict[str, np.ndarray]:
        """Mean returns in each piece of the run by environment, `[N, S, T]`.

        NaN after a run has failed, and after the last piece of one that has fewer.
        """
        found = self._all(lambda trained: trained.curve)
        return dict(zip(self.environments, found, strict=True))

    @cached_property
    def steps(self) -> dict[str, np.ndarray]:
        """Environment steps at the end of each piece by environment, `[N, T]`.

        NaN after the last piece of a run that has fewer than others.
        """
        found = self._all(lambda trained: trained.steps)
        return dict(zip(self.environments, found, strict=True))

    def _all(self, read: Callable[[Trained], np.ndarray]) -> np.ndarray:
        """An array of every setting in every environment, `[E, N, ...]`.

        NaN after the ends of those that are shorter along the last axis.
        """
        rows = [
            [read(self.found[place, name]) for name in self.settings]
            for place in self.environments
        ]
        sizes = {values.shape[-1] for row in rows for values in row}
        if len(sizes) == 1:
            return np.array(rows)
        shape = (len(rows), len(self.settings), *rows[0][0].shape[:-1], max(sizes))
        padded = np.full(shape, np.nan)
        for place, row in enumerate(rows):
            for number, values in enumerate(row):
                padded[place, number, ..., : values.shape[-1]] = values
        return padded

    @property
    def subject(self) -> str:
        """The subject for titles: the one field that all settings change."""
        changed = {tuple(values or ()) for values in self.about["settings"].values()}
        fields = next(iter(changed)) if len(changed) == 1 else ()
        return fields[0] if len(fields) == 1 else "settings"

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Statistics of every setting, by measure and environment; see `Row`."""
        places = {name: [number] for number, name in enumerate(self.environments)}
        if len(places) > 1:
            places[ALL] = list(range(len(places)))
        rows = list[Row]()
        for measure, values in self.scores.items():
            for name, where in places.items():
                # [N, S, E]: one group of runs per setting, one task per environment.
                raw = np.moveaxis(values[where], 0, -1).astype(float)
                floors = self._lowest_of(measure)[where]
                base = self.settings.index(self.baseline)
                found = rows_of(raw, floors, self.settings, base)
                rows += [Row(name, measure, *row) for row in found]
        return tuple(rows)

    def _lowest_of(self, measure: str) -> np.ndarray:
        """The lowest score on the way of a run that did not fail, `[E]`.

        NaN of an own metric, which is no return.
        """
        if measure not in WORDS:
            return np.full(len(self.environments), np.nan)
        failed = ~np.isfinite(np.stack(list(self.scores.values())))  # [K, E, N, S]
        returns = zip(self.curves.values(), np.any(failed, axis=0), strict=True)
        return np.array([statistics.lowest_of(*both) for both in returns])

    def normalised(
        self, measure: str, *, low: Numbers, high: Numbers
    ) -> dict[str, np.ndarray]:
        """Return scores on one scale in all environments, for statistics over tasks.

        Each array is what `purerl.report.statistics` takes: S runs of M tasks, which
        are the environments in their order. A run that failed counts as in `rows`.

        Args:
            measure: The kind of measure, one of `measures`.
            low: The return that becomes 0, such as that of a random policy: a number by
                name of the environment, one for each in their order, or one for all.
            high: The return that becomes 1, such as that of a good policy; as `low`.

        Returns:
            Scores `[S, M]` by name of the setting; NaN in an environment in which every
            run failed.

        Raises:
            ConfigError: an unknown measure, an environment without a number, or a
                number of `high` that is not above that of `low`.
        """
        statistics.check_choice("measure", measure, self.measures)
        raw = np.moveaxis(self.scores[measure], 0, -1).astype(float)  # [N, S, M]
        worst = statistics.worst_of(raw, self._lowest_of(measure))
        filled = np.where(np.isnan(raw), worst, raw)
        least = read_numbers("low", low, self.environments)
        most = read_numbers("high", high, self.environments)
        if not (least < most).all():
            raise ConfigError(
                f"high must be above low in every environment, got {most.tolist()} and "
                f"{least.tolist()} for {', '.join(self.environments)}."
            )
        return dict(zip(self.settings, (filled - least) / (most - least), strict=True))

    def row(self, environment: str, measure: str, setting: str) -> Row:
        """Return one of the rows.

        Args:
            environment: The name of the environment, or `ALL` of them.
            measure: The kind of measure.
            setting: The name of the setting.

        Raises:
            ConfigError: there is none such.
        """
        wanted = (environment, measure, setting)
        for row in self.rows:
            if (row.environment, row.measure, row.setting) == wanted:
                return row
        raise ConfigError(
            f"there is no row of {environment!r}, {measure!r} and {setting!r}; see "
            "environments, measures and settings of the comparison."
        )

    def table(self) -> Table:
        """Return all statistics as one table for the terminal.

        Bold: the difference is clear of zero, see `Row.is_clear`.
        """
        seeds, words = len(self.seeds), [*notes(self.rows)]
        if any(row.is_clear for row in self.rows):
            words.append(BOLD)
        table = Table(
            title=f"{self.subject} on {with_noun(seeds, 'held-out seed')}, in brackets "
            f"{heading_of(seeds)}; differences from {self.baseline}",
            caption="\n".join(words),
            title_justify="left",
            caption_justify="left",
        )
        # On a narrow terminal names are folded, and ends go to a second line.
        for header in headings(self.rows):
            side = "left" if header == "setting" else "right"
            table.add_column(header, justify=side, overflow="fold")
        before = None
        for row in self.rows:
            if (row.environment, row.measure) != before:
                before = row.environment, row.measure
                table.add_section()
                heading = escape(f"{row.environment}, {short(row.measure)}")
                table.add_row(f"[bold]{heading}[/bold]")
            setting, *numbers = map(escape, cells_of(row, heading_of(seeds)))
            if row.is_clear:
                numbers[2] = f"[bold]{numbers[2]}[/bold]"
            table.add_row(f"  {setting}", *numbers[: len(table.columns) - 1])
        return table

    def lines(self, metric: str) -> dict[str, list[Line]]:
        """Return a line per setting, by environment; see `Shown`."""
        if metric != "episode_return":
            raise ConfigError(
                f"metric: a comparison has the returns of training alone, not {metric}."
            )
        return comparison_lines(self.dataset)

    def headings_and_rows(self) -> tuple[list[str], list[list[str]]]:
        """Return the table for people, ends of intervals in brackets."""
        named, heading = headings(self.rows), heading_of(len(self.seeds))
        rows = []
        for row in self.rows:
            cells = cells_of(row, heading)[: len(named)]
            rows.append([row.environment, short(row.measure), *cells])
        return ["environment", "measure", *named], rows

    def view(self) -> View:
        """Return what the comparison tells of itself."""
        seeds = with_noun(len(self.seeds), "held-out seed")
        settings = with_noun(len(self.settings), "setting")
        ends = heading_of(len(self.seeds))
        facts = [f"{settings}, {seeds} each; differences from {self.baseline}"]
        facts.append(f"in brackets: {ends}")
        return View(
            f"{self.subject} in {', '.join(self.environments)}",
            facts,
            lambda ax=None: plots.comparison_figure(self.dataset, ax),
            lambda: columns_of([row._asdict() for row in self.rows]),
        )

    @cached_property
    def dataset(self) -> "xr.Dataset":
        """Scores by environment, setting and seed; curves by piece, padded with NaN."""
        import xarray as xr

        dims = ("environment", "setting", "seed")
        curves = np.array(list(self.curves.values()), float)
        steps = np.array(list(self.steps.values()), float)
        return xr.Dataset(
            {
                **{name: (dims, values) for name, values in self.scores.items()},
                "curve": ((*dims, "piece"), curves),
                "env_steps": (("environment", "setting", "piece"), steps),
            },
            {
                "environment": list(self.environments),
                "setting": list(self.settings),
                "seed": list(self.seeds),
            },
            {"baseline": self.baseline},
        )

    def told(self) -> Told:
        """Return what trackers are told: a nested run per environment and setting."""
        config = next(iter(self.about["environments"].values()))
        name = name_of(self.out, KIND)
        # Of each call of one folder the settings may be others.
        known = [self.about["environments"], self.about["settings"]]
        return Told(
            TrackedRun(name, config, {}, self.out, is_sweep=True, kind=KIND),
            len(self.environments) * len(self.settings),
            lambda group: self.tell(group, list(self.found)),
            files_of(self.out, comparison=(folders.MANIFEST, *FILES)),
            self.finished,
            zlib.crc32(json.dumps(known, default=str).encode()),
        )

    def tell(self, group: Group, places: Sequence[tuple[str, str]]) -> None:
        """Tell trackers of settings that have been trained in an environment."""
        pairs = [(place, name) for place in self.environments for name in self.settings]
        numbers = {pair: pairs.index(pair) for pair in places}
        group.add(
            numbers.values(),
            lambda: [self._ended(number, *pair) for pair, number in numbers.items()],
        )

    def _ended(self, number: int, environment: str, setting: str) -> Piece:
        """Rows of all seeds together: means under the name itself, and extremes."""
        scores = self.found[environment, setting]
        rows: list[dict[str, Any]] = [
            {"kind": "train", "env_steps": int(step), "episode_return": values.tolist()}
            for step, values in zip(scores.steps, scores.curve.T, strict=True)
        ]
        measures = {name: values.tolist() for name, values in scores.measures.items()}
        last = {"kind": "measure", "env_steps": int(scores.steps[-1])}
        where = {"environment": environment, "setting": setting}
        several = len(self.environments) > 1
        title = f"{environment}, {setting}" if several else setting
        changes = self.about["settings"][setting] or {}
        member = Member(title, None, {**where, **changes})
        return ended(number, member, [*rows, {**last, **measures}])

    def save(self) -> None:
        """Write the table as CSV and a picture of the curves into the folder."""
        assert self.out is not None
        table, picture = (self.out / name for name in FILES)
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([Row._fields, *self.rows])
        write_atomic(table, text.getvalue())
        plots.save(self.plot(), picture)


def load_comparison(folder: str | Path) -> Comparison:
    """Read what `purerl.compare` wrote.

    Raises:
        ConfigError: there is no comparison, or its baseline has not been trained.
    """
    folder = stored_folder(folder)
    stored = folders.load_kind(folder, KIND, FORMAT)
    found: dict[tuple[str, str], Trained] = {}
    lost: set[str] = set()
    for environment, ids in stored[TRAINED].items():
        for setting, id in ids.items():
            if trained := load_scores(folder, id):
                found[environment, setting] = trained
                continue
            lost.add(setting)
            say(
                f"{folder / TRAINED / id}.npz is missing or damaged, so {setting} is "
                "left out; repeat the call that wrote it: only that is trained."
            )
    if stored["baseline"] in lost:
        raise ConfigError(f"the comparison in {folder} has no scores of its baseline.")
    about = {name: stored[name] for name in ABOUT}
    about["settings"] = {n: x for n, x in about["settings"].items() if n not in lost}
    return Comparison(about, found, folder, finished=not lost)


def find_comparison(folder: Path) -> Comparison | None:
    """Return the comparison in `transfer` in an evolution's folder; None if none.

    Raises:
        ConfigError: it is damaged.
    """
    path = folder / "transfer"
    return load_comparison(path) if folders.is_begun(path) else None


def told_of_comparison(folder: Path) -> Told:
    """Return what trackers are told of a comparison's folder.

    Raises:
        ConfigError: the comparison has not ended.
    """
    result = load_comparison(folder)
    if not result.finished:
        raise ConfigError(f"the comparison in {folder} has not ended; repeat its call.")
    return result.told()


RESAMPLES = 2_000  # Of each difference, so that as many lie beyond an interval's end.


def notes(rows: Sequence[Row]) -> list[str]:
    """Return sentences on what the numbers of the rows mean."""
    measures = dict.fromkeys(row.measure for row in rows)
    own = ("", "an own metric, its mean over training")
    words = [f"{short(name)}: {WORDS.get(name, own)[1]}" for name in measures]
    if any(row.environment == ALL for row in rows):
        words.append(
            f"{ALL}: differences in units of the baseline's mean, or "
            "of the spread of all settings where that is larger"
        )
    return words


def headings(rows: Sequence[Row]) -> list[str]:
    """Return the headings of `cells`, of which the last counts runs that failed."""
    any_failed = any(row.failed for row in rows)
    named = ["setting", "mean", "IQM", "difference", "P(better)"]
    return [*named, "failed"] if any_failed else named


def cells_of(row: Row, heading: str) -> list[str]:
    """Return a row's cells, setting first, with the ends of intervals in brackets.

    Args:
        row: The row.
        heading: What the reader has been told that the ends in brackets are.
    """
    return [
        row.setting,
        _interval(row, "mean", heading),
        _interval(row, "iqm", heading),
        _interval(row, "difference", heading, sign="+"),
        _interval(row, "better", heading, digits=2),
        str(row.failed or ""),
    ]


def _interval(
    row: Row, name: str, heading: str, sign: str = "", digits: int | None = None
) -> str:
    """A number and its interval, or the range of few runs; a dash without a number."""
    value, low, high = (getattr(row, name + end) for end in ("", "_low", "_high"))
    if not math.isfinite(value):
        return "-"
    digits = decimals(value, low, high) if digits is None else digits
    ends = text_of(low, high, heading_of(row.seeds), digits, heading, sign)
    text = f"{value:{sign},.{digits}f}"
    return text if ends == "-" else f"{text} ({ends})"


def rows_of(
    raw: np.ndarray, floors: np.ndarray, settings: Sequence[str], baseline: int
) -> list[tuple[Any, ...]]:
    """Return the fields of `Row` from `setting` on, for every setting.

    Args:
        raw: Scores `[N, S, E]`, NaN where a run failed.
        floors: The lowest return on the way in each environment, see `lowest_of`.
        settings: Names of the settings, N of them.
        baseline: The number of the setting that others are compared with.
    """
    # All NaN in an environment in which every run failed.
    filled = np.where(np.isnan(raw), statistics.worst_of(raw, floors), raw)
    is_one_task = filled.shape[-1] == 1
    base = filled[baseline]
    # A mean return near zero says nothing of the scale of an environment's returns, so
    # a unit is at least the spread of all scores: a baseline of 0.02 on the way from -1
    # to 1 would else outweigh all other environments.
    scale = np.maximum(np.abs(base.mean(0)), filled.std((0, 1)))
    unit = np.ones(1) if is_one_task else scale
    has_unit = bool((unit > 0).all())
    gaps = {
        name: (filled[number] - base) / unit
        for number, name in enumerate(settings)
        if number != baseline and has_unit and np.isfinite(filled[number]).all()
    }
    clear = clear_of_zero(gaps)
    rows = []
    for number, name in enumerate(settings):
        scores, nothing = filled[number], statistics.Estimate(np.nan, np.nan, np.nan)
        mean, iqm, gap, better = [nothing] * 4
        if is_one_task and np.isfinite(scores).all():
            both = statistics.estimates(scores, ("mean", "iqm"))
            mean, iqm = both["mean"], both["iqm"]
        if name in gaps:
            gap = statistics.estimate(gaps[name], "mean")
            better = statistics.probability_of_improvement(scores, base)
        failed = int((~np.isfinite(raw[number])).sum())
        ends = [float(x) for e in (mean, iqm, gap, better) for x in e[:3]]
        rows.append((name, scores.size, failed, *ends, name in clear))
    return rows


def clear_of_zero(gaps: Mapping[str, np.ndarray]) -> set[str]:
    """Return the settings whose mean difference is not zero (Holm 1979).

    Of k differences that are left, those are clear whose interval of the confidence
    `1 - ERRORS / k` lies on one side of zero, and of which Student's t is as unlikely;
    then fewer are left, and so on. So no setting at all is called clear by chance in
    95% of comparisons, however many there are. The intervals alone would not do: they
    end at the range of ten differences, however high their confidence.

    Args:
        gaps: Differences from the baseline by setting, `[S, E]`.
    """
    # All have the same runs: ten that are all equal are enough, too.
    if not gaps or not all(map(statistics.has_interval, gaps.values())):
        return set()
    chances = {name: chance_of(values) for name, values in gaps.items()}
    left, clear = set(gaps), set[str]()
    while left:
        # Asked first: it costs nothing, and few of many settings pass it.
        rare = [name for name in gaps if chances[name] < ERRORS / len(left)]
        found = _off_zero(gaps, [name for name in rare if name in left], len(left))
        if not found:
            break
        clear |= found
        left -= found
    return clear


def _off_zero(
    gaps: Mapping[str, np.ndarray], names: Sequence[str], left: int
) -> set[str]:
    """Those of some settings whose interval, one of `left`, lies on one side of zero.

    What a setting is resampled with does not depend on the others, so that the fewer
    resamples of later rounds are the first ones of the first round.
    """
    if not names:
        return set()
    options = {"confidence": 1 - ERRORS / left, "resamples": RESAMPLES * left}
    tables = [gaps[name].reshape(len(gaps[name]), -1) for name in names]
    if tables[0].shape[1] == 1:
        # One column per setting: they all share the weights of the resamples.
        found = statistics.mean_interval(np.concatenate(tables, 1), **options)
        off = (found.low > 0) | (found.high < 0)
    else:
        ends = [statistics.estimate(table, "mean", **options) for table in tables]
        off = [end.low > 0 or end.high < 0 for end in ends]
    return {name for name, is_off in zip(names, off, strict=True) if is_off}


def chance_of(differences: np.ndarray) -> float:
    """Return how likely a mean as far from zero is by chance (Student 1908).

    Args:
        differences: Differences `[S, E]` or `[S]`; those of a seed are averaged first.
    """
    from scipy.special import stdtr

    by_seed = differences.reshape(len(differences), -1).mean(1)
    mean, spread = abs(by_seed.mean()), by_seed.std(ddof=1)
    if spread == 0:
        return float(mean == 0)
    t = mean / spread * np.sqrt(len(by_seed))
    return float(2 * stdtr(len(by_seed) - 1, -t))

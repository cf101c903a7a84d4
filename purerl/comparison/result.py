"""The result of a comparison: scores with labels, statistics, one table."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from purerl import serialise
from purerl.comparison import saved
from purerl.comparison.environments import Task
from purerl.comparison.held_out import Scores
from purerl.comparison.normalised import Numbers, normalise
from purerl.comparison.rows import filled_scores, make_rows
from purerl.comparison.settings import Setting, described
from purerl.comparison.training import Options
from purerl.config import ConfigError, part_kind
from purerl.report import plots
from purerl.report.comparison import Row, make_table
from purerl.report.statistics.missing import check_choice, lowest_of
from purerl.runner.arguments import stored_folder
from purerl.storage import folders

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.figure import Figure
    from rich.table import Table


class Comparison:
    """The outcome of `purerl.compare`.

    Args:
        about: Descriptions of N `settings` and E `environments`, by name, as plain
            values.
        baseline: The name of the setting that others are compared with.
        seeds: Numbers of the held-out seeds, S of them.
        seed: The number from whose key the held-out seeds' keys come.
        scores: Scores by measure, `[E, N, S]`, NaN where a run failed.
        curves: Mean returns in each piece of the run by environment, `[N, S, T]`.
        steps: Environment steps at the end of each piece by environment, `[N, T]`.

    Attributes:
        settings: Names of the settings, N of them.
        baseline: The name of the setting that others are compared with.
        environments: Names of the environments, E of them.
        measures: Kinds of `purerl.meta.fitness`.
        seeds: Numbers of the held-out seeds, S of them.
        seed: The number from whose key the held-out seeds' keys come.
        scores: Scores by measure, `[E, N, S]`, NaN where a run failed.
        curves: Mean returns in each piece of the run by environment, `[N, S, T]`; NaN
            after the last piece of a setting that has fewer than others.
        steps: Environment steps at the end of each piece by environment, `[N, T]`; NaN
            after the last piece of a setting that has fewer than others.
        about: Descriptions of the settings and environments, as plain values.
    """

    def __init__(
        self,
        about: Mapping[str, Mapping[str, Any]],
        baseline: str,
        seeds: Sequence[int],
        seed: int,
        scores: Mapping[str, np.ndarray],
        curves: Mapping[str, np.ndarray],
        steps: Mapping[str, np.ndarray],
    ) -> None:
        self.about, self.baseline = dict(about), baseline
        self.settings = tuple(about["settings"])
        self.environments, self.measures = tuple(about["environments"]), tuple(scores)
        self.seeds, self.seed = tuple(seeds), seed
        self.scores, self.curves, self.steps = dict(scores), dict(curves), dict(steps)

    @classmethod
    def of(
        cls,
        settings: Sequence[Setting],
        tasks: Sequence[Task],
        options: Options,
        baseline: str | None,
        found: Mapping[tuple[str, str], Scores],
    ) -> "Comparison":
        """Make a comparison from the scores of every environment and setting.

        Args:
            settings: The settings.
            tasks: Environments with their configs.
            options: Options with which the settings were trained.
            baseline: The name of the setting that others are compared with; the first
                if not given.
            found: The scores, by names of environment and setting.
        """
        names, environments = [s.name for s in settings], [p.name for p in tasks]
        scores = {
            measure: np.stack(
                [[found[e, n].measures[measure] for n in names] for e in environments]
            )
            for measure in options.measures
        }
        curves = {e: _padded([found[e, n].curve for n in names]) for e in environments}
        steps = {e: _padded([found[e, n].steps for n in names]) for e in environments}
        changed = {x for s in settings for p in s.pieces for x in p.values}
        losses = {name for name in changed if part_kind(name) in ("loss", "rule")}
        about = {
            "settings": {setting.name: described(setting) for setting in settings},
            # The compared losses and rules are left out: they may be networks.
            "environments": {
                task.name: {
                    name: value
                    for name, value in serialise.to_dict(task.config).items()
                    if name not in losses
                }
                for task in tasks
            },
        }
        seeds, seed = options.seeds, options.seed
        return cls(about, baseline or names[0], seeds, seed, scores, curves, steps)

    @property
    def subject(self) -> str:
        """The subject for titles: the one field that all settings change."""
        changed = {tuple(values or ()) for values in self.about["settings"].values()}
        fields = next(iter(changed)) if len(changed) == 1 else ()
        return fields[0] if len(fields) == 1 else "settings"

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Statistics of every setting, by environment and measure; see `Row`."""
        return make_rows(
            self.scores, self.environments, self.settings, self.baseline, self._lowest
        )

    @cached_property
    def _lowest(self) -> list[float]:
        """The lowest return on the way of a run that did not fail, by environment."""
        failed = ~np.isfinite(np.stack(list(self.scores.values())))  # [K, E, N, S]
        return [
            lowest_of(self.curves[e], failed[:, n].any(0))
            for n, e in enumerate(self.environments)
        ]

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
        check_choice("measure", measure, self.measures)
        raw = np.moveaxis(self.scores[measure], 0, -1).astype(float)  # [N, S, M]
        filled = filled_scores(raw, np.asarray(self._lowest, float))
        found = normalise(filled, self.environments, low, high)
        return dict(zip(self.settings, found, strict=True))

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
            f"there is no row of {environment!r}, {measure!r} and {setting!r}; there "
            f"are environments {', '.join(self.environments)}, measures "
            f"{', '.join(self.measures)} and settings {', '.join(self.settings)}."
        )

    def table(self) -> "Table":
        """Return all statistics as one table for the terminal.

        Bold: the difference is clear of zero, see `Row.is_clear`.
        """
        return make_table(self.rows, subject=self.subject, baseline=self.baseline)

    def to_dataframe(self) -> "pd.DataFrame":
        """Return a line per row of `rows`."""
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=list(Row._fields))

    @cached_property
    def dataset(self) -> "xr.Dataset":
        """Scores by environment, setting and seed; curves by piece, padded with NaN."""
        import xarray as xr

        dims = ("environment", "setting", "seed")
        named = self.environments
        curves = _padded([self.curves[name].astype(float) for name in named])
        steps = _padded([self.steps[name].astype(float) for name in named])
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

    def plot(self) -> "Figure":
        """Draw learning curves of all settings, a panel per environment."""
        return plots.comparison_figure(self.dataset)

    def save(self, folder: str | Path) -> Path:
        """Write `comparison.json`, `.csv`, `.png` and the curves as `.npz`.

        Raises:
            OSError: the folder cannot be written to.
        """
        values = {
            "baseline": self.baseline,
            "seeds": list(self.seeds),
            "seed": self.seed,
            **self.about,
            "scores": {name: saved.plain(x) for name, x in self.scores.items()},
            "steps": {name: saved.plain(x) for name, x in self.steps.items()},
        }
        curves = {name: self.curves[name] for name in self.environments}
        folder = Path(folder)
        saved.write(folder, saved.Stored(values, curves, self.rows), self.plot())
        return folder


def load_comparison(folder: str | Path) -> Comparison:
    """Read what `purerl.compare` wrote, or `purerl.compare_losses` at any time.

    Raises:
        ConfigError: there is no comparison, it is damaged, or of another version.
    """
    values, curves, _ = saved.read(stored_folder(folder))
    return Comparison(
        {name: values[name] for name in ("settings", "environments")},
        values["baseline"],
        values["seeds"],
        values["seed"],
        # None becomes NaN.
        {n: np.array(x, float).astype(np.float32) for n, x in values["scores"].items()},
        curves,
        {n: np.array(x, float) for n, x in values["steps"].items()},
    )


def find_comparison(folder: Path) -> Comparison | None:
    """Return the comparison in an evolution's folder or its `transfer`; None if none.

    Raises:
        ConfigError: it is damaged.
    """
    for path in (folder / "transfer", folder):
        if folders.holds_comparison(path):
            return load_comparison(path)
    return None


def _padded(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays `[..., T]` of different T as one, NaN after the ends of the shorter."""
    longest = max(values.shape[-1] for values in arrays)
    if all(values.shape[-1] == longest for values in arrays):
        return np.stack(arrays)

    def padded(values: np.ndarray) -> np.ndarray:
        gap = [(0, 0)] * (values.ndim - 1) + [(0, longest - values.shape[-1])]
        is_whole = np.issubdtype(values.dtype, np.integer)
        values = values.astype(float) if is_whole else values
        return np.pad(values, gap, constant_values=np.nan)

    return np.stack([padded(values) for values in arrays])

"""What a comparison of losses found: scores with labels, statistics, one table."""

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from purerl import serialise
from purerl.config import ConfigError, TrainConfig
from purerl.losses import artifact
from purerl.meta.contestants import Entry
from purerl.meta.held_out import Scores
from purerl.report import plots, statistics
from purerl.report.comparison import ALL, Row, make_table
from purerl.report.statistics.missing import resolve
from purerl.storage import arrays, kinds

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.figure import Figure
    from rich.table import Table

KIND, FILE, FORMAT = kinds.COMPARISON, kinds.COMPARISON_FILE, 1


class LossComparison:
    """The outcome of `purerl.compare_losses`.

    Attributes:
        field: of the config that the losses stand in.
        baseline: name of the loss that others are compared with.
        losses: names, L of them.
        environments: names, E of them.
        measures: kinds of `purerl.meta.fitness`.
        seeds: numbers of the held-out seeds, S of them.
        seed: from whose key these come.
        scores: measure -> `[E, L, S]`, NaN where a run failed.
        curves: environment -> `[L, S, T]`, mean return in each piece of the run.
        steps: environment -> `[T]`, environment steps at the end of each piece.
        about: what the losses and environments are, as plain values.
    """

    def __init__(
        self,
        field: str,
        baseline: str,
        losses: Sequence[str],
        environments: Sequence[str],
        seeds: Sequence[int],
        seed: int,
        scores: Mapping[str, np.ndarray],
        curves: Mapping[str, np.ndarray],
        steps: Mapping[str, np.ndarray],
        about: Mapping[str, Any],
    ) -> None:
        self.field, self.baseline = field, baseline
        self.losses, self.environments = tuple(losses), tuple(environments)
        self.measures, self.seeds, self.seed = tuple(scores), tuple(seeds), seed
        self.scores, self.curves, self.steps = dict(scores), dict(curves), dict(steps)
        self.about = dict(about)

    @classmethod
    def of(
        cls,
        field: str,
        entries: Sequence[Entry],
        environments: Mapping[str, TrainConfig],
        seeds: Sequence[int],
        seed: int,
        baseline: str,
        found: Mapping[tuple[str, str], Scores],
    ) -> "LossComparison":
        """From the scores of every environment and loss."""
        names = [entry.name for entry in entries]
        first = found[next(iter(environments)), names[0]]
        scores = {
            measure: np.stack(
                [[found[e, n].measures[measure] for n in names] for e in environments]
            )
            for measure in first.measures
        }
        curves = {e: np.stack([found[e, n].curve for n in names]) for e in environments}
        steps = {e: found[e, names[0]].steps for e in environments}
        about = {
            "losses": {entry.name: _described(entry) for entry in entries},
            # Without the loss in question, which may be a network.
            "environments": {
                name: {k: v for k, v in serialise.to_dict(one).items() if k != field}
                for name, one in environments.items()
            },
        }
        return cls(
            field, baseline, names, list(environments), seeds, seed, scores, curves,
            steps, about,
        )  # fmt: skip

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Statistics of every loss, by environment and measure; see `Row`."""
        found = []
        for measure in self.measures:
            for place, environment in enumerate(self.environments):
                found += self._rows(measure, environment, slice(place, place + 1))
            if len(self.environments) > 1:
                found += self._rows(measure, ALL, slice(None))
        return tuple(found)

    def row(self, environment: str, measure: str, loss: str) -> Row:
        """One of the rows.

        Raises:
            ConfigError: there is none such.
        """
        for row in self.rows:
            if (row.environment, row.measure, row.loss) == (environment, measure, loss):
                return row
        raise ConfigError(
            f"there is no row of {environment!r}, {measure!r} and {loss!r}; there are "
            f"environments {', '.join(self.environments)}, measures "
            f"{', '.join(self.measures)} and losses {', '.join(self.losses)}."
        )

    def _rows(self, measure: str, environment: str, places: slice) -> list[Row]:
        # [L, S, E]: one group of runs per loss, one task per environment.
        raw = np.moveaxis(self.scores[measure][places], 0, -1).astype(float)
        filled = _filled(raw)
        one = filled.shape[-1] == 1
        base = filled[self.losses.index(self.baseline)]
        unit = np.ones(1) if one else _units(filled, base)
        rows = []
        for number, name in enumerate(self.losses):
            own, nothing = filled[number], statistics.Estimate(np.nan, np.nan, np.nan)
            mean, iqm, gap, better = [nothing] * 4
            known = np.isfinite(own).all()
            if known and one:
                both = statistics.estimates(own, ("mean", "iqm"))
                mean, iqm = both["mean"], both["iqm"]
            if known and name != self.baseline and (unit > 0).all():
                gap = statistics.estimate((own - base) / unit, "mean")
                better = statistics.probability_of_improvement(own, base)
            numbers = [x for e in (mean, iqm, gap, better) for x in e[:3]]
            failed = int((~np.isfinite(raw[number])).sum())
            rows.append(
                Row(environment, measure, name, own.size, failed, *map(float, numbers))
            )
        return rows

    def table(self) -> "Table":
        """All statistics as one table for the terminal.

        Bold: the interval of the difference lies on one side of zero.
        """
        return make_table(self.rows, field=self.field, baseline=self.baseline)

    def to_dataframe(self) -> "pd.DataFrame":
        """A line per row of `rows`."""
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=list(Row._fields))

    @cached_property
    def dataset(self) -> "xr.Dataset":
        """Scores by environment, loss and seed; curves, padded with NaN, by piece."""
        import xarray as xr

        dims = ("environment", "loss", "seed")
        longest = max(len(steps) for steps in self.steps.values())

        def padded(values: np.ndarray) -> np.ndarray:
            gap = [(0, 0)] * (values.ndim - 1) + [(0, longest - values.shape[-1])]
            return np.pad(values.astype(float), gap, constant_values=np.nan)

        curves = np.stack([padded(self.curves[name]) for name in self.environments])
        steps = np.stack([padded(self.steps[name]) for name in self.environments])
        return xr.Dataset(
            {
                **{name: (dims, values) for name, values in self.scores.items()},
                "curve": ((*dims, "piece"), curves),
                "env_steps": (("environment", "piece"), steps),
            },
            {
                "environment": list(self.environments),
                "loss": list(self.losses),
                "seed": list(self.seeds),
            },
            {"field": self.field, "baseline": self.baseline},
        )

    def plot(self) -> "Figure":
        """Learning curves of all losses, a panel per environment."""
        return plots.comparison_figure(self.dataset)

    def save(self, folder: str | Path) -> Path:
        """Write `transfer.json`, `.csv`, `.png` and the curves as `.npz`.

        Raises:
            OSError: the folder cannot be written to.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        values = {
            "kind": KIND,
            "format": FORMAT,
            "field": self.field,
            "baseline": self.baseline,
            "seeds": list(self.seeds),
            "seed": self.seed,
            **self.about,
            "scores": {name: _plain(x) for name, x in self.scores.items()},
            "steps": {name: x.tolist() for name, x in self.steps.items()},
            "rows": [_plain_row(row) for row in self.rows],
        }
        curves = {f"curve{i}": self.curves[e] for i, e in enumerate(self.environments)}
        arrays.save(folder / "transfer.npz", curves)
        serialise.write_atomic(folder / "transfer.csv", self._csv())
        plots.save(self.plot(), folder / "transfer.png")
        # Last: who finds it finds the others.
        serialise.write_atomic(folder / FILE, json.dumps(values, indent=1))
        return folder

    def _csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(self.rows)
        return text.getvalue()


def load_comparison(folder: str | Path) -> LossComparison:
    """Read what `LossComparison.save` wrote.

    Raises:
        ConfigError: there is no comparison, it is damaged, or of another version.
    """
    folder = Path(folder)
    try:
        values = json.loads((folder / FILE).read_text())
        if (values["kind"], values["format"]) != (KIND, FORMAT):
            raise ValueError(f"it is {values['kind']}, format {values['format']}")
        names = list(values["environments"])
        stored = arrays.load(folder / "transfer.npz")
        curves = {name: stored[f"curve{i}"] for i, name in enumerate(names)}
        scores = {n: _array(x) for n, x in values["scores"].items()}
        steps = {n: np.asarray(x) for n, x in values["steps"].items()}
    except (*arrays.DAMAGE, TypeError) as error:
        raise ConfigError(
            f"cannot read a comparison of losses in {folder} ({error}); give the out "
            "folder of purerl.compare_losses."
        ) from None
    return LossComparison(
        values["field"],
        values["baseline"],
        list(values["losses"]),
        names,
        values["seeds"],
        values["seed"],
        scores,
        curves,
        steps,
        {name: values[name] for name in ("losses", "environments")},
    )


def find_comparison(folder: Path) -> LossComparison | None:
    """The comparison in an evolution's folder, in it or in `transfer`; None if none.

    Raises:
        ConfigError: it is damaged.
    """
    for place in (folder / "transfer", folder):
        if (place / FILE).exists():
            return load_comparison(place)
    return None


def _units(filled: np.ndarray, base: np.ndarray) -> np.ndarray:
    """What differences are divided by in each environment, `[E]`.

    A mean return near zero says nothing of the scale of an environment's returns, so it
    is at least the spread of all scores `[L, S, E]`: a baseline of 0.02 on the way from
    -1 to 1 would else outweigh all other environments.
    """
    return np.maximum(np.abs(base.mean(0)), filled.std((0, 1)))


def _filled(raw: np.ndarray) -> np.ndarray:
    """Scores `[L, S, E]` with the worst of their environment where a run failed.

    All NaN in an environment in which every run failed.
    """
    if np.isnan(raw).all((0, 1)).any():
        return np.full_like(raw, np.nan)
    groups, _ = resolve(*raw, nan="worst")
    return np.stack(groups)


def _described(entry: Entry) -> dict[str, Any]:
    """What a loss is: text for people, and a digest that tells networks apart."""
    found = {}
    for name, value in entry.changes.items():
        if name.endswith("_loss"):
            digest = hashlib.sha256(artifact.pack(value)).hexdigest()
            found[name] = {"loss": serialise.loss_text(value), "sha256": digest}
        else:
            found[name] = serialise.plain(value, name)
    return found


def _plain(values: np.ndarray) -> Any:
    """Nested lists, null where there is no number."""
    if values.ndim > 1:
        return [_plain(part) for part in values]
    return [float(x) if np.isfinite(x) else None for x in values]


def _array(values: Any) -> np.ndarray:
    return np.asarray(values, dtype=float).astype(np.float32)  # None becomes NaN


def _plain_row(row: Row) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not np.isfinite(value) else value
        for name, value in row._asdict().items()
    }

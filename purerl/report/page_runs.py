"""Pages of runs and of searches for hyperparameters."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from purerl import serialise
from purerl.config import ConfigError
from purerl.report import plots
from purerl.report.html import (
    Section,
    about,
    figure_html,
    table_html,
    write_page,
)
from purerl.report.saved import read_result
from purerl.report.sweep_data import is_log, label, short
from purerl.report.tables import last_known
from purerl.runner import manifest
from purerl.runner.result import RunResult, summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def run_page(run: RunResult | str | Path, path: str | Path | None = None) -> Path:
    """Report of one run.

    Args:
        run: what `purerl.run` returned, or the folder it wrote.
        path: of the page; `report.html` in the run's folder if not given.

    Raises:
        ConfigError: no run in the folder.
        OSError: the page cannot be written.
    """
    facts: dict[str, Any] = {}
    if isinstance(run, RunResult):
        result, config = run, serialise.to_dict(run.config)
    else:
        stored = manifest.load_run(Path(run))
        result, config = read_result(Path(run)), stored["config"]
        versions = stored.get("versions", {})
        facts["versions"] = ", ".join(f"{n} {v}" for n, v in versions.items())
        facts["device"] = stored.get("device", "")
    if path is None and result.out is None:
        raise ConfigError("path: say where to write the page; the run has no folder.")
    path = Path(path) if path else Path(str(result.out)) / "report.html"
    numbers = summary(result)
    for name in ("agents", "env_steps", "evaluation_mean"):
        if name in numbers:
            facts[name] = f"{numbers[name]:,}"
    if result.train_seconds:
        compiling, training = result.compile_seconds, result.train_seconds
        facts["seconds"] = f"{compiling:.1f} compiling, {training:.1f} training"
    curve = figure_html(plots.run_curve(result))
    sections = [Section("Learning curve", curve)]
    final = result.evaluation.get("episode_return")
    if final is not None and len(result.seeds) > 1:
        scores = {"evaluation": final[:, -1].mean(-1)}
        figure = plots.score_groups(scores, title="Final evaluation of every seed")
        sections.append(Section("Seeds", figure_html(figure)))
    sections.append(Section("Agents", _agents(result)))
    folder = str(result.out) if result.out else "FOLDER"
    load = f"import purerl\n\nrun = purerl.load_run({folder!r})\n"
    load += "print(run.config, run.seeds, run.update)"
    sections.append(about(config, load, **facts))
    return write_page(path, f"Run: {config.get('env')}", *sections)


def tuning_page(
    trials: Sequence[Any],
    path: str | Path,
    *,
    title: str = "Tuning",
    config: Mapping[str, Any] | None = None,
    figures: Mapping[str, "Figure"] | None = None,
    mode: str = "max",
    load: str = "",
    **facts: Any,
) -> Path:
    """Report of a search for hyperparameters.

    Args:
        trials: mappings (or objects with attributes) with `params`, a mapping, and
            `value`, a number or None; what else they hold becomes columns.
        path: of the page.
        title: of the page.
        config: the base config, plain values.
        figures: by caption.
        mode: `"max"` or `"min"`: which values are better.
        load: Python that reads the trials.
        **facts: further lines about it.

    Raises:
        ConfigError: trials without `params` and `value`, or another mode.
        OSError: the page cannot be written.
    """
    if mode not in ("max", "min"):
        raise ConfigError(f"mode must be max or min, got {mode!r}.")
    rows = [_trial(trial) for trial in trials]
    if not rows:
        raise ConfigError("trials: there are none to report.")
    values = np.array(
        [np.nan if r["value"] is None else r["value"] for r in rows], float
    )
    sign = 1.0 if mode == "max" else -1.0
    ranked = np.argsort(np.where(np.isfinite(values), -sign * values, np.inf))
    names = list(dict.fromkeys(name for row in rows for name in row["params"]))
    extra = list(dict.fromkeys(n for r in rows for n in r if n not in _KNOWN))
    table = [
        [
            int(i),
            *(rows[i]["params"].get(name) for name in names),
            values[i],
            *(rows[i].get(name) for name in extra),
        ]
        for i in ranked
    ]
    body = table_html(["trial", *map(short, names), "value", *extra], table)
    progress = figure_html(_progress(values, sign), "Line: best so far.")
    if np.isfinite(values).any():
        progress += figure_html(_against(rows, names, values, int(ranked[0])))
    progress += "".join(figure_html(f, name) for name, f in (figures or {}).items())
    best = rows[ranked[0]]
    words = ", ".join(f"{short(n)}={label(v)}" for n, v in best["params"].items())
    return write_page(
        path,
        title,
        Section("Trials", body),
        Section("Search", progress),
        about(config or {}, load, trials=len(rows), mode=mode, **facts),
        note=f"Best: {words}; value {values[ranked[0]]:,.4g}.",
    )


_KNOWN = ("params", "value")


def _trial(trial: Any) -> dict[str, Any]:
    if isinstance(trial, Mapping):
        found = dict(trial)
    elif hasattr(trial, "_asdict"):
        found = trial._asdict()
    else:
        found = dict(getattr(trial, "__dict__", {}))
    if not isinstance(found.get("params"), Mapping) or "value" not in found:
        raise ConfigError(
            "trials must each hold params (a mapping) and value (a number or None), "
            f"got {type(trial).__name__} with {', '.join(found) or 'neither'}."
        )
    return found


def _agents(result: RunResult) -> str:
    training = last_known(result.metrics["episode_return"])
    final = result.evaluation.get("episode_return")
    rows = []
    for member, seed in enumerate(result.seeds):
        episodes = final[member, -1] if final is not None else np.array([np.nan])
        numbers = (episodes.mean(), episodes.min(), episodes.max(), training[member])
        rows.append([seed, *(round(float(x), 3) for x in numbers)])
    headers = ["seed", "evaluation", "worst episode", "best episode", "training"]
    return table_html(headers, rows)


def _progress(values: np.ndarray, sign: float) -> "Figure":
    from matplotlib.ticker import MaxNLocator

    from purerl.report.plots import style

    figure = style.new_figure()
    axes = figure.subplots()
    known = np.where(np.isfinite(values), sign * values, -np.inf)
    so_far = sign * np.maximum.accumulate(known)
    so_far[~np.isfinite(so_far)] = np.nan
    numbers = np.arange(len(values))
    axes.plot(numbers, values, "o", color=style.COLOURS[0], ms=4.5, alpha=0.9)
    axes.step(numbers, so_far, where="post", color=style.COLOURS[1], lw=1.8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.finish(axes, "Value by trial", "trial", "value")
    return figure


def _against(
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    values: np.ndarray,
    best: int,
) -> "Figure":
    """Values against each hyperparameter."""
    from purerl.report.plots import style
    from purerl.report.plots.axes import make_panels

    different = {n: len({str(row["params"].get(n)) for row in rows}) for n in names}
    names = [name for name in names if different[name] > 1] or list(names)
    figure, panels = make_panels(len(names))
    for axes, name in zip(panels, names, strict=True):
        given = [row["params"].get(name) for row in rows]
        numeric = all(style.is_number(value) for value in given)
        kinds = sorted(set(given)) if numeric else list(dict.fromkeys(map(str, given)))
        axis = style.scale_axis(axes, kinds, log=is_log(kinds))
        where = dict(zip(kinds, axis, strict=True))
        places = [where[v if numeric else str(v)] for v in given]
        axes.plot(places, values, "o", color=style.COLOURS[0], ms=4.5, alpha=0.9)
        axes.plot(places[best], values[best], "*", color=style.COLOURS[1], ms=15)
        style.finish(axes, x=short(name))
    panels[0].set_ylabel("value", color=style.INK)
    return figure

"""Pages of runs."""

from pathlib import Path
from typing import Any

import numpy as np

from purerl import serialise
from purerl.config import ConfigError, TrainConfig
from purerl.execution.format import format_bytes, program, quoted
from purerl.metrics import decimals
from purerl.report import plots, tables
from purerl.report.html import (
    Section,
    about,
    code_html,
    figure_html,
    made_with,
    note_html,
    table_html,
    video_html,
    write_page,
)
from purerl.report.rendering import can_render
from purerl.report.saved import read_result
from purerl.runner import manifest
from purerl.runner.result import RunResult, summary
from purerl.runner.rows import WORTHLESS

MAX_VIDEO = 20_000_000  # Bytes of a video that a page holds.


def run_page(run: RunResult | str | Path, path: str | Path | None = None) -> Path:
    """Write the report of one run.

    Args:
        run: The result of `purerl.run`, or the folder that it wrote.
        path: The path of the page; `report.html` in the run's folder if not given.

    Raises:
        ConfigError: no run in the folder.
        OSError: the page cannot be written.
    """
    if isinstance(run, RunResult):
        result, config = run, serialise.to_dict(run.config)
    else:
        config = manifest.load_run(Path(run))["config"]
        result = read_result(Path(run))
    if path is None and result.out is None:
        raise ConfigError("path: say where to write the page; the run has no folder.")
    path = Path(path) if path else Path(str(result.out)) / "report.html"
    facts: dict[str, Any] = made_with(result.out)
    numbers = summary(result)
    for name in ("agents", "env_steps", "evaluation_mean"):
        if numbers.get(name) is not None:
            number = numbers[name]
            places = decimals(number) if isinstance(number, float) else 0
            facts[name] = f"{number:,.{places}f}"
    facts["diverged"] = result.divergence
    facts["cut"] = tables.last_cut_note(result)
    if result.train_seconds:
        compiling, training = result.compile_seconds, result.train_seconds
        facts["seconds"] = f"{compiling:.1f} compiling, {training:.1f} training"
    curve = figure_html(plots.run_curve(result))
    sections = [Section("Learning curve", curve)]
    if np.isfinite(result.scores()).any() and len(result.seeds) > 1:
        scores = {"evaluation": result.scores()}
        figure = plots.score_groups(scores, title="Final evaluation of every seed")
        sections.append(Section("Seeds", figure_html(figure)))
    agents = tables.agents_of(result)
    sections.append(Section("Agents", table_html(agents.headings, agents.rows)))
    if result.out is not None:
        videos = _videos(result.out, result.config)
        if videos:
            sections.append(Section("Videos", videos))
    folder = str(result.out) if result.out else "FOLDER"
    load = f"import purerl\n\nrun = purerl.load_run({folder!r})\n"
    load += "print(run.config, run.seeds, run.update)"
    sections.append(about(config, load, **facts))
    note = f"{result.divergence}. {WORTHLESS}" if result.divergence else ""
    note = note[:1].upper() + note[1:]
    return write_page(path, f"Run: {config.get('env')}", *sections, note=note)


def _videos(folder: Path, config: TrainConfig) -> str:
    """The videos in a run's folder, or the command that writes one, if one can."""
    paths = sorted([*folder.glob("*.gif"), *folder.glob("*.mp4")])
    pages = sorted(folder.glob("video*.html"))
    shown = []
    for path in paths:
        size = path.stat().st_size
        if size <= MAX_VIDEO:
            shown.append(video_html(path, path.name))
        else:
            shown.append(note_html(f"{path.name} is large ({format_bytes(size)})."))
    shown += [note_html(f"Open {path.name} in a browser.") for path in pages]
    if not shown and can_render(config):
        command = f"{program()} render {quoted(folder)}"
        shown = [note_html("There is no video of this run yet. To write one:")]
        shown.append(code_html(command))
    return "".join(shown)

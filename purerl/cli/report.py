"""`purerl report`: the page of whatever a folder holds, one HTML file."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from purerl.cli import flags
from purerl.cli.options import option
from purerl.config import ConfigError
from purerl.report.load_folder import load
from purerl.storage import folders


@dataclasses.dataclass(kw_only=True)
class Report:
    """Write the page of whatever a folder holds, also while it goes on."""

    folder: Annotated[tyro.conf.Positional[Path], option("Folder to write of.")]
    out: Annotated[
        Path | None, option("Page to write; FOLDER/report.html if not given.")
    ] = None


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    options = flags.parse(Report, argv, "report")
    path = write(options.folder, options.out)
    print(f"written to {path}")
    return 0


def write(folder: Path, path: Path | None = None, kind: str = "") -> Path:
    """Write the page of whatever a folder holds.

    Args:
        folder: The folder.
        path: The path of the page; `report.html` in the folder if not given.
        kind: The kind of result, of `purerl.storage.folders`, for a folder that holds
            two: a comparison may be written into that of an evolution.

    Raises:
        ConfigError: it holds none of them, or nothing yet.
    """
    path = path or folder / "report.html"
    kind = kind or folders.kind_of(folder)
    if kind not in _PAGES and (folder / "records").is_dir():
        return _own_search(folder, path)
    if kind not in _PAGES:
        raise ConfigError(folders.refusal(folder, kind, ", for which there is no page"))
    return _PAGES[kind](folder, path)


def _run(folder: Path, path: Path) -> Path:
    from purerl.report import page

    return page.run_page(folder, path)


def _sweep(folder: Path, path: Path) -> Path:
    from purerl.report import page
    from purerl.report.html import made_with

    return page.sweep_page(
        load(folder).dataset,
        path,
        load=f"import purerl\n\nresult = purerl.load_sweep({str(folder)!r})",
        **made_with(folder),
    )


def _search(folder: Path, path: Path) -> Path:
    from purerl import serialise
    from purerl.report import page
    from purerl.report.html import made_with

    result = load(folder)
    if not result.steps:
        raise ConfigError(
            f"the search in {folder} has saved nothing yet. Run its command again."
        )
    best = []
    for seed in result.seeds if result.finished else ():
        try:
            winner = result.best(seed)
        except ConfigError:  # All of its members diverged.
            continue
        schedule = winner.schedule.merged()
        pieces = list(zip(schedule.first_updates, schedule.values, strict=True))
        best.append(
            page.BestRow(
                seed, winner.member, winner.score, winner.point, winner.lineage, pieces
            )
        )
    return page.population_page(
        page.Population(
            folders.kind_of(folder), result.dataset, list(result.space.axes), best
        ),
        path,
        config=serialise.to_dict(result.config),
        load=f"import purerl\n\nresult = purerl.load_search({str(folder)!r})",
        state="finished" if result.finished else "not finished",
        training_steps=f"{result.training_steps:,}",
        evaluation_steps=f"{result.evaluation_steps:,}",
        **made_with(folder),
    )


def _own_search(folder: Path, path: Path) -> Path:
    """The page of a search that purerl knows nothing of but its folder."""
    from purerl.report import page
    from purerl.report.html import made_with
    from purerl.search.folder import read_outcomes

    stored = folders.load(folder)
    outcomes = read_outcomes(folder)
    kind, config = str(stored["kind"]), stored["config"]
    options = ", ".join(f"{k}={v}" for k, v in stored.get("options", {}).items())
    return page.search_page(
        outcomes,
        path,
        kind=kind,
        config=config,
        options=options,
        **made_with(folder),
    )


def _study(folder: Path, path: Path) -> Path:
    from purerl.report.page_study import study_page
    from purerl.tuning.saved import read

    study = read(folder)
    return study_page(study.result, study.space, study.stored, path)


def _evolution(folder: Path, path: Path) -> Path:
    from purerl.comparison.result import find_comparison
    from purerl.report import page

    return page.evolution_page(load(folder), path, transfer=find_comparison(folder))


def _comparison(folder: Path, path: Path) -> Path:
    from purerl.comparison import saved
    from purerl.comparison.result import load_comparison
    from purerl.report import page

    command = saved.read(folder).values.get("command", "")
    # Not `load`, which reads the evolution where the folder holds one too.
    return page.comparison_page(
        load_comparison(folder), path, folder=str(folder), command=command
    )


_PAGES = {
    "run": _run,
    "sweep": _sweep,
    "pbt": _search,
    "halving": _search,
    "tune": _study,
    "evolution": _evolution,
    folders.COMPARISON: _comparison,
}

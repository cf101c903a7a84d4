"""The pages of searches: population-based training, successive halving, any other."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from purerl.report import plots
from purerl.report.html import Section, about, figure_html, table_html, write_page
from purerl.search.protocol import Outcome

if TYPE_CHECKING:
    import xarray as xr


class BestRow(NamedTuple):
    """The best member of a search, as a page shows it.

    Attributes:
        seed: Seed of the search.
        member: Number of the member.
        score: The member's score at the end.
        hyper: The member's hyperparameters at the end, by name.
        lineage: The members `[R]` whose training led to the member's state.
        schedule: Updates at which the member's hyperparameters changed, and their
            values.
    """

    seed: int
    member: int
    score: float
    hyper: Mapping[str, Any]
    lineage: np.ndarray
    schedule: Sequence[tuple[int, Mapping[str, Any]]]


class Population(NamedTuple):
    """A search over hyperparameters, as a page shows it.

    Attributes:
        kind: The kind of search, `pbt` or `halving`.
        dataset: The dataset of its result.
        names: Names of the axes.
        best: The best member of every search that has one.
    """

    kind: str
    dataset: "xr.Dataset"
    names: Sequence[str]
    best: Sequence[BestRow]


def population_page(
    found: Population,
    path: str | Path,
    *,
    config: Mapping[str, Any],
    load: str,
    **facts: Any,
) -> Path:
    """Write the page of population-based training, or of successive halving.

    Args:
        found: The search, and what it found.
        path: Path of the page.
        config: The base config of every member, as plain values.
        load: Python code that reads the search.
        **facts: Further lines about the search.

    Raises:
        OSError: the page cannot be written.
    """
    sections = [Section("Best members", _best_table(found.best, found.names))]
    own: dict[str, Any] = {"axes": ", ".join(found.names)}
    if found.kind == "halving":
        title = "Successive halving"
        sections += _halving_sections(found)
    else:
        title = "Population-based training"
        sections += _pbt_sections(found)
        parents = found.dataset["parent"].values[:, :-1]
        everyone = np.arange(found.dataset.sizes["member"])
        own["copies"] = int((parents != everyone).sum())
    return _write(title, path, sections, config, load, {**own, **facts})


def _pbt_sections(found: Population) -> list[Section]:
    """Scores, hyperparameters, and the schedule of the best of all members."""
    dataset, names, best = found.dataset, found.names, found.best
    lineages = {row.seed: row.lineage for row in best}
    bold = "Faint: every member. Bold: the training that led to the best member."
    scores = plots.population_scores(dataset, lineages)
    values = plots.population_values(dataset, names, lineages)
    sections = [
        Section("Scores", figure_html(scores, bold)),
        Section("Hyperparameters", figure_html(values, bold)),
    ]
    if best:
        first = max(best, key=lambda row: row.score)
        title = f"Schedule of member {first.member}, seed {first.seed}"
        rows = [[start, *(v[n] for n in names)] for start, v in first.schedule]
        sections.append(Section(title, table_html(["from update", *names], rows)))
    return sections


def _halving_sections(found: Population) -> list[Section]:
    """Rungs, scores, and hyperparameters."""
    larger = "A dot per member; larger ones were trained longer."
    values = plots.halving_values(found.dataset, found.names)
    return [
        Section("Rungs", table_html(*rung_rows(found.dataset))),
        Section("Scores", figure_html(plots.halving_scores(found.dataset))),
        Section("Hyperparameters", figure_html(values, larger)),
    ]


def search_page(
    outcomes: Sequence[Outcome],
    path: str | Path,
    *,
    kind: str,
    config: Mapping[str, Any],
    **facts: Any,
) -> Path:
    """Write the page of any other search: the outcome of every request.

    Args:
        outcomes: The outcomes of the requests, in their order.
        path: Path of the page.
        kind: The kind of search, as the search calls itself.
        config: The base config of every member, as plain values.
        **facts: Further lines about the search.

    Raises:
        OSError: the page cannot be written.
    """
    headers = ["request", "members", "env steps", "best", "mean", "diverged"]
    scores = [_scores(outcome) for outcome in outcomes]
    rows = []
    for number, (outcome, score) in enumerate(zip(outcomes, scores, strict=True)):
        steps = int(outcome.train["env_steps"][:, -1].max())
        known = score[np.isfinite(score)]
        ends = (known.max(), known.mean()) if known.size else (np.nan, np.nan)
        numbers = [round(float(x), 3) for x in ends]
        rows.append([number, len(score), steps, *numbers, int(outcome.diverged.sum())])
    caption = "A dot per member and request: fresh episodes, or else training returns."
    sections = [
        Section("Scores", figure_html(plots.request_scores(scores), caption)),
        Section("Requests", table_html(headers, rows)),
    ]
    return _write(kind[:1].upper() + kind[1:], path, sections, config, "", facts)


def _scores(outcome: Outcome) -> np.ndarray:
    """The mean return of each member `[N]`; NaN where nothing is known."""
    if outcome.fresh is not None:
        return np.where(outcome.diverged, np.nan, outcome.fresh.episode_return)
    return outcome.train["episode_return"][:, -1]


def _best_table(best: Sequence[BestRow], names: Sequence[str]) -> str:
    rows = [
        [row.seed, row.member, round(row.score, 3), *(row.hyper[n] for n in names)]
        for row in best
    ]
    return table_html(["seed", "member", "score", *names], rows)


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
    return ["bracket", *(f"{u:,} updates" for u in updates)], rows


def _write(
    title: str,
    path: str | Path,
    sections: Sequence[Section],
    config: Mapping[str, Any],
    load: str,
    facts: Mapping[str, Any],
) -> Path:
    note = (
        "A score at the end favours the lucky: train what was found again with fresh "
        "seeds (purerl.train_schedules) before you compare it with anything."
    )
    env = str(config.get("env", ""))
    about_it = about(config, load, **facts)
    return write_page(path, f"{title}: {env}", *sections, about_it, note=note)

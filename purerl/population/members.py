"""The members of a search: their scores and ranks, how they are named and described."""

import dataclasses
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purerl import auto, serialise
from purerl.config import TrainConfig
from purerl.execution.curves import weighted_mean
from purerl.population.space import Space
from purerl.runner import manifest
from purerl.runner.options import FIXED, Repeated, Saved, option, seeds_option
from purerl.search.fitness import EVALUATION, FINAL_RETURN, check_fitness
from purerl.search.protocol import Outcome, Row, Step
from purerl.space.design import read_search_axes
from purerl.storage import folders

KINDS = (FINAL_RETURN, EVALUATION)


@dataclasses.dataclass(frozen=True)
class SearchOptions(Saved):
    """Options of every search over hyperparameters."""

    config: TrainConfig
    axes: Mapping[str, Any] = option(
        dataclasses.MISSING,
        "Dynamic field that the search varies, NAME=VALUES; may be repeated: "
        "learning_rate=loguniform(1e-5,1e-2); gamma=uniform(0.9,0.999); "
        "entropy_coef=0,0.01,0.1.",
        doc="Distributions by (dotted) name of the dynamic field: `purerl.loguniform`, "
        "`purerl.uniform`, `purerl.choice`, or a list of values (see "
        "`purerl.population.space.perturb` for how each moves).",
        flag="axis",
        kind=Repeated,
        read=read_search_axes,
    )
    _: dataclasses.KW_ONLY
    searches: int | Sequence[int] = seeds_option(
        1, "Number of searches, independent of one another.", name="searches"
    )


def fitness_option(default: str) -> Any:
    """Return the option of the kind of fitness by which members are compared."""
    return option(
        default,
        "Score that members are compared by: final_return (of planned evaluations if "
        "there are any, else of training), or evaluation (of fresh episodes).",
        doc="The kind of fitness. `final_return`: the last evaluation that the config "
        "planned since the milestone before, else the return of the training episodes "
        "since then. `evaluation`: `config.eval_episodes` fresh episodes at every "
        "milestone that judges, the same ones for all members of a search; then "
        "`num_evaluations=0` saves the planned ones.",
        check=lambda name, value: check_fitness(value, KINDS, name),
        keep=FIXED,
    )


class Fitness(NamedTuple):
    """Scores of members, `[...]` each.

    Attributes:
        score: The score of each member, greater is better; NaN where nothing is known,
            or where the member diverged.
        diverged: Whether a number of the member was not finite after the milestone
            before.
    """

    score: np.ndarray
    diverged: np.ndarray


def measure(outcome: Outcome, kind: str) -> Fitness:
    """Return the fitness of members at a milestone.

    Args:
        outcome: The outcome since the milestone before, of `[N]` members.
        kind: The kind of fitness. `evaluation`: fresh episodes of the deterministic
            policy, the same ones for all members of a search. `final_return`: the last
            evaluation that the config planned in the outcome; else the mean return of
            the episodes that ended in training, or the last known one where none did.
    """
    if kind == EVALUATION:
        assert outcome.fresh is not None
        score = outcome.fresh.episode_return.astype(np.float64)
    elif "episode_return" in outcome.evaluation:
        score = outcome.evaluation["episode_return"][:, -1].mean(-1, dtype=np.float64)
    else:
        # Nothing is counted of a member that has diverged.
        episodes = np.nan_to_num(outcome.train["episodes"].astype(np.float64))
        returns = outcome.train["episode_return"]
        has_new = episodes.any(1)
        score = np.where(has_new, weighted_mean(returns, episodes), returns[:, -1])
    diverged = outcome.diverged
    if kind == EVALUATION or "episode_return" in outcome.evaluation:
        # An evaluation always has a return: one that is no number is a bad sign.
        diverged = diverged | ~np.isfinite(score)
    return Fitness(np.where(diverged, np.nan, score), diverged)


def ranking(fitness: Fitness) -> np.ndarray:
    """Return places in an array `[P]`, the best first.

    Those of whom nothing is known come after the others, the diverged ones last. Equals
    are ranked by their number: the same input has one ranking.
    """
    status = np.where(fitness.diverged, 2, np.where(np.isnan(fitness.score), 1, 0))
    score = np.where(status == 0, fitness.score, 0.0)
    return np.lexsort((np.arange(len(score)), -score, status))


def spec_of(
    space: Space, seeds: tuple[int, ...], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all that fixes a search's result, as plain values."""
    return {
        "config": serialise.to_dict(space.config),
        "auto": space.bound.automatic,
        "axes": space.to_dict(),
        "options": dict(options),
        "seeds": list(seeds),
    }


def stored_search(folder: Path | None, kind: str) -> dict[str, Any]:
    """Return the manifest of the search in a folder; empty where there is none."""
    if folder is None or not folders.is_begun(folder):
        return {}
    stored = folders.load(folder)
    return stored if stored.get("kind") == kind else {}


def with_stored_values(
    folder: Path | None, kind: str, config: TrainConfig, axes: Container[str]
) -> TrainConfig:
    """Return the config with what `auto` stood for in a search that is to be extended.

    A search that goes on keeps what it began with, such as the number of steps over
    which exploration decays, also where that follows the length of a run.
    """
    stored = stored_search(folder, kind)
    values = {**stored.get("config", {}), **stored.get("auto", {})}
    fixed = {
        name: value
        for name, value in values.items()
        if not any(field in axes for field in auto.followed_by(name))
    }
    return manifest.with_values_of({"config": fixed}, config)


def names_of(seeds: tuple[int, ...], size: int) -> dict[int, str]:
    """Return names of the members of all searches, `size` each, by their number."""
    return {
        search * size + number: f"seed={seed}-member={number}"
        for search, seed in enumerate(seeds)
        for number in range(size)
    }


def rows_of(space: Space, numbers: np.ndarray, step: Step) -> list[Row]:
    """Return a row per member: its last metrics, its score, its hyperparameters.

    Args:
        space: Axes that are searched.
        numbers: The number of each member of the step, `[N]`.
        step: The step, whose states have `hyper` by number, and `score` `[N]`.
    """
    outcome, rows = step.outcome, []
    for row, number in enumerate(numbers.tolist()):
        last = {name: x[row, -1].item() for name, x in outcome.train.items()}
        last.pop("env_steps", None)
        hyper = {name: float(x[number]) for name, x in step.before.hyper.items()}
        named = {f"hyper_{n}": v for n, v in space.values(hyper).items()}
        numeric = {n: v for n, v in named.items() if isinstance(v, int | float)}
        rows.append((number, {**last, **numeric, **_score(step, row)}))
    return rows


def _score(step: Step, row: int) -> dict[str, float]:
    """The member's score, where one is known."""
    score = float(step.after.score[row])
    return {"score": score} if np.isfinite(score) else {}

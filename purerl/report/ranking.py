"""Agents of a run by rank: the best, the one in the middle, the worst."""

from collections.abc import Sequence

import numpy as np

from purerl.config import ConfigError
from purerl.runner.arguments import seeds_named
from purerl.types import HostMetrics

RANKS = ("best", "median", "worst")


def last_returns(evaluation: HostMetrics) -> np.ndarray | None:
    """Return the mean return of every agent's last evaluation, `[S]`; None without.

    Args:
        evaluation: Evaluations by name, `[S, T, E]`, as `RunResult.evaluation`.
    """
    returns = evaluation.get("episode_return")
    if returns is None or returns.shape[1] == 0:
        return None
    return np.asarray(returns)[:, -1].mean(-1)


def ranked(seeds: Sequence[int], scores: np.ndarray) -> dict[str, int]:
    """Return the seed of each of `RANKS`; of an even number the lower middle one.

    Args:
        seeds: Seeds of the agents.
        scores: Scores of the agents, `[S]`; one that is not a number is the worst.
    """
    filled = np.where(np.isfinite(scores), scores, -np.inf)
    order = np.argsort(-filled, kind="stable")
    places = (order[0], order[len(order) // 2], order[-1])
    return {rank: seeds[place] for rank, place in zip(RANKS, places, strict=True)}


def chosen_seeds(
    seeds: Sequence[int],
    scores: np.ndarray | None,
    asked: str | int | Sequence[int] | None,
) -> list[tuple[int, str]]:
    """Choose agents; each once, with its rank where it has one.

    Args:
        seeds: Seeds of the run.
        scores: Scores of the agents, `[S]`; None without an evaluation.
        asked: Ranks, seeds, a text of both with commas; None for all ranks.

    Raises:
        ConfigError: no such agent, nothing that ranks them, or something else.
    """
    if scores is None and asked is None and len(seeds) <= len(RANKS):
        return [(seed, "") for seed in seeds]
    words = _words(asked)
    ranks: dict[str, int] = {}
    if scores is not None:
        ranks = ranked(seeds, scores)
    elif any(word in RANKS for word in words):
        raise ConfigError(
            "the run has no evaluation that ranks its agents; name seeds of it, which "
            f"has {seeds_named(seeds)} (--seeds {seeds[0]})."
        )
    found: dict[int, str] = {}
    for word in words:
        seed = ranks[word] if word in ranks else _seed(word, seeds)
        found.setdefault(seed, "")
    # With one agent, or two, a rank is that of the first name that fits.
    for rank in ("best", "worst", "median"):
        seed = ranks.get(rank)
        if seed in found and not found[seed] and len(seeds) > 1:
            found[seed] = rank
    return list(found.items())


def _words(asked: str | int | Sequence[int] | None) -> list[str]:
    if asked is None:
        return list(RANKS)
    if isinstance(asked, str):
        parts = asked.split(",")
    else:  # One number, also one of numpy, or several.
        parts = map(str, np.atleast_1d(np.asarray(asked)).tolist())
    words = [part.strip() for part in parts]
    if not words or not all(words):
        raise ConfigError(
            f"seeds must be {', '.join(RANKS)} or seeds of the run, got {asked!r}; for "
            "example 'best,worst' or '0,3'."
        )
    return words


def _seed(word: str, seeds: Sequence[int]) -> int:
    if word.isdigit() and int(word) in seeds:
        return int(word)
    raise ConfigError(
        f"seeds: {word!r} is neither one of {', '.join(RANKS)} nor a seed of this run, "
        f"which has {seeds_named(seeds)}."
    )

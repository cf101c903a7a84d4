"""Tools that train many configs and judge them: what each is asked of a row.

A tool returns None if the row passes, or the sentence with which the library refuses
the row, which it has tested.
"""

from typing import Any

import numpy as np
import pytest

import purerl
from purerl.comparison.result import Comparison
from purerl.config import ConfigError
from purerl.meta import training as evolutions
from tests.contracts.tools.rows import PIECES, make_row
from tests.contracts.tools.subject import CLOSE, SEEDS, SMALL, Subject

COMPARED: dict[str, Any] = {
    "seeds": SEEDS,
    "measures": ("training_curve", "evaluation"),
    **SMALL,
}


def sweep(subject: Subject) -> None:
    """`purerl.sweep`: no member diverged, and each is the run of its settings."""
    name, rate = subject.rate
    result = purerl.sweep(
        subject.config,
        {name: [rate]},
        seeds=SEEDS,
        segment_updates=subject.length,
        keep_states=True,
        **SMALL,
    )
    assert result.finished
    assert (result["diverged_at"] == -1).all(), result["diverged_at"].values
    scores = result.scores().values[0]
    alone = np.asarray(subject.vmapped.evaluation["episode_return"]).mean((1, 2))
    np.testing.assert_allclose(scores, alone, **CLOSE)
    best = result.best()
    assert best.point == {name: rate}
    assert best.score == pytest.approx(scores.mean())


def tune(subject: Subject) -> None:
    """`purerl.tune`: every trial is complete, the first of them the config itself."""
    result = purerl.tune(
        subject.config,
        subject.axes,
        trials=2,
        seeds=1,
        batch=2,
        pruner=None,
        reports=PIECES,
        holdout_seeds=2,
        **SMALL,
    )
    assert [row.state for row in result.rows] == ["complete"] * 2
    assert result.best_row is not None and result.best().score == result.best_row.score
    scores = [row.score for row in result.rows]
    assert np.isfinite(scores).all() and result.best_row.score == max(scores)
    assert result.rows[0].is_default
    alone = np.asarray(subject.vmapped.evaluation["episode_return"])[0].mean()
    np.testing.assert_allclose(scores[0], alone, **CLOSE)
    assert result.holdout is not None
    assert result.holdout.best.diverged == result.holdout.default.diverged == 0


def pbt(subject: Subject) -> None:
    """`purerl.pbt`: nobody diverged, and the worst copied the best."""
    result = purerl.pbt(
        subject.config,
        subject.axes,
        population=4,
        ready_updates=subject.length,
        quantile=0.25,
        **SMALL,
    )
    assert result.finished and len(result.milestones) == PIECES
    dataset = result.dataset
    assert not dataset["diverged"].values.any()
    scores = dataset["score"].values[0]
    copied = (dataset["parent"].values[0] != np.arange(4)).sum(-1)
    # Of equals, and where no episode has ended yet, nobody is the worst.
    differ = [bool(np.isfinite(x).any() and np.ptp(x) != 0) for x in scores]
    assert copied.tolist() == [*map(int, differ[:-1]), 0]
    assert np.isfinite(result.best().score)


def halving(subject: Subject) -> None:
    """`purerl.halving`: nobody diverged, and half were dropped at every rung."""
    result = purerl.halving(
        subject.config,
        subject.axes,
        num_points=4,
        eta=2,
        min_updates=subject.length,
        brackets="one",
        **SMALL,
    )
    assert result.finished
    assert np.isfinite(result.best().score)
    assert not any(step.after.diverged.any() for step in result.steps)
    alive = [step.request.members.size for step in result.steps]
    assert alive == [4, 2, 1, 1]  # half of them at the first piece and at the second


def evolve(subject: Subject) -> None:
    """`purerl.evolve` of a hyperparameter: all members were worth something."""
    _evolve(subject, subject.config, [subject.rate[0]])


def evolve_loss(subject: Subject) -> str | None:
    """`purerl.evolve` of every loss that the algorithm has, beside its own."""
    names = list(subject.other_losses)
    if not names:
        with pytest.raises(ConfigError, match="no field 'value_loss'") as refused:
            _evolve(subject, subject.config, ["value_loss"])
        return str(refused.value)
    others = subject.config.replace(**subject.other_losses)
    if subject.has_own_loss:
        with pytest.raises(ConfigError, match=r"loss of (its|their) own") as refused:
            _evolve(subject, others, names)
        return str(refused.value)
    _evolve(subject, others, names)
    named = {"own": {}, "evolved from": subject.other_losses}
    found = purerl.compare(
        subject.config, named, segment_updates=subject.length, **COMPARED
    )
    _check_comparison(found)
    return None


def _evolve(subject: Subject, config: Any, names: list[str]) -> None:
    check_evolution(
        purerl.evolve(
            config,
            names,
            population=4,
            generations=1,
            fitness="evaluation",
            segment_updates=subject.length,
            **SMALL,
        )
    )


def published_evolution(name: str) -> None:
    """An evolution's preset, in a generation of two short runs."""
    values = evolutions.load_preset(name)
    row = make_row(name, values["config"])
    chosen = {n: values[n] for n in ("strategy", "fitness") if n in values}
    check_evolution(
        purerl.evolve(
            row.config,
            values["evolve"],
            population=2,
            generations=1,
            segment_updates=row.length,
            **chosen,
            **SMALL,
        )
    )


def check_evolution(result: purerl.EvolutionResult) -> None:
    """A generation in which nobody failed, and of which the strategy was told."""
    assert result.finished
    np.testing.assert_array_equal(result.history["failed"], [0])
    assert np.isfinite(result.history["fitness"]).all()
    assert int(result._state.strategy.generation_counter) == 1
    assert np.isfinite(result.vector).all()


def compare(subject: Subject) -> None:
    """`purerl.compare`: no run failed, and equal settings score the same."""
    name, rate = subject.rate
    own = {name: rate}
    settings = {"own": own, "same": own, "less": {name: rate / 2}}
    result = purerl.compare(
        subject.config, settings, segment_updates=subject.length, **COMPARED
    )
    _check_comparison(result, same=True)


def _check_comparison(result: Comparison, same: bool = False) -> None:
    assert [row.failed for row in result.rows] == [0] * (2 * len(result.settings))
    for scores in result.scores.values():
        assert np.isfinite(scores).all()
        if same:
            np.testing.assert_array_equal(scores[0, 0], scores[0, 1])

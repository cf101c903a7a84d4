"""The numbers that a run reads, found in its traced program.

Nobody has to say which numbers an option leaves idle, or which are read when an agent
is made and never again: a program's outputs depend on them, or they do not.
"""

import dataclasses
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from purerl.config import ConfigError
from purerl.tracing import read_by, shape_of, shapes_of
from purerl.types import Overrides, PyTree

# Answers that are kept: a search asks again for what a sweep has asked.
_KEPT = 256
_answers: dict[Hashable, frozenset[str]] = {}


def read_by_start(run: Any, values: Overrides) -> frozenset[str]:
    """Return the names of the numbers that are read when an agent is made.

    Args:
        run: Config and environment, a `purerl.train.Bound`.
    """
    return _kept(_start, run, values)


def read_by_updates(run: Any, values: Overrides) -> frozenset[str]:
    """Return the names of the numbers that updates read."""
    return _kept(_updates, run, values)


def check_may_move(run: Any, values: Overrides, asked: str) -> None:
    """Refuse to move numbers that no update of a run reads, or that have to stay.

    Args:
        values: A value of each number by (dotted) name.
        asked: What was to move them, for the message.

    Raises:
        ConfigError: naming the number, and why it cannot move.
    """
    read = frozenset(values) if run.env.on_host else read_by_updates(run, values)
    still = [name for name in values if name not in read]
    if still and still[0] not in read_by_start(run, values):
        raise ConfigError(nothing_reads(still[0], run, f"within a run, {asked}"))
    fields = dataclasses.fields(run.config)
    stays = {field.name for field in fields if field.metadata.get("stays")}
    reasons = dict.fromkeys(still, "it is read at the start of a run only") | {
        name: "what was learned means something else with another number"
        for name in values
        if name in stays
    }
    for name, reason in reasons.items():
        raise ConfigError(
            f"{name} cannot move within a run, {asked}: {reason}. Give it one number "
            "for the whole run; purerl.sweep, purerl.halving and purerl.tune search it."
        )


def check_metrics(run: Any) -> None:
    """Refuse functions of `config.metrics` that cannot measure an update, by shapes.

    Raises:
        ConfigError: saying what one returned, or that it is not there.
    """
    _kept(_measured, run, {})


def nothing_reads(name: str, run: Any, where: str) -> str:
    """Return the sentence that says that nothing reads a number.

    Args:
        name: Name of the number.
        where: Where it was to have an effect.
    """
    return (
        f"{name} has no effect {where}: with the other settings of this "
        f"{type(run.config).__name__}, in {run.env.name}, nothing in a run reads "
        "it. Turn on the option that reads it, or leave it out."
    )


def first_state(run: Any, values: Overrides) -> PyTree:
    """Return the shapes of the state that an agent with these numbers begins with."""
    return jax.eval_shape(partial(_init, run), shapes_of(values), jax.random.key(0))


def _init(run: Any, values: Overrides, key: Any) -> PyTree:
    return run.algorithm(run.at(values)).init(key)


def _step(run: Any, values: Overrides, state: PyTree) -> PyTree:
    return run.algorithm(run.at(values)).step(state)


def _measured(run: Any, values: Overrides) -> frozenset[str]:
    _, metrics = jax.eval_shape(partial(_step, run), values, first_state(run, values))
    return frozenset(metrics)


def _start(run: Any, values: Overrides) -> frozenset[str]:
    return read_by(partial(_init, run), values, jax.random.key(0))


def _updates(run: Any, values: Overrides) -> frozenset[str]:
    return read_by(partial(_step, run), values, first_state(run, values))


def _kept(
    kind: Callable[[Any, Overrides], frozenset[str]],
    run: Any,
    values: Overrides,
) -> frozenset[str]:
    """Return the answer to a question, from memory where it was asked before."""
    leaves, structure = jax.tree.flatten(run.asked)
    asked, form = jax.tree.flatten(values)
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        return kind(run, values)
    try:
        numbers = tuple((np.shape(x), np.asarray(x).tobytes()) for x in leaves)
        shapes = tuple((shape_of(x).shape, str(shape_of(x).dtype)) for x in asked)
        question = (kind, structure, numbers, form, shapes)
        hash(question)
    except TypeError:  # A part of the user's own that cannot be hashed.
        return kind(run, values)
    if question not in _answers:
        if len(_answers) >= _KEPT:
            del _answers[next(iter(_answers))]
        _answers[question] = kind(run, values)
    return _answers[question]

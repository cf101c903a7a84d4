"""The kinds of fitness by which members are compared: one name for each.

* `training_curve`: the mean of the curve of returns over the whole run.
* `final_return`: the return at the end of the time that is judged.
* `evaluation`: the mean return of fresh episodes of the deterministic policy, after
  training.

`negative_` before one of them turns its sign. A tool takes those that it can measure.
How each measures them, over which episodes and how long an end is, stands in the
glossary (`docs/glossary.md`).

A function of one's own is known by its import path, `lab.objectives:area`. It makes a
number of one agent's `AgentCurves` in JAX; the greater it is, the better.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl.config import ConfigError
from purerl.networks.modules import imported_at, is_importable, path_of
from purerl.precision import in_32_bits
from purerl.runner.options import option
from purerl.train import Bound, make_segment
from purerl.types import HostMetrics, Metrics

TRAINING_CURVE = "training_curve"
FINAL_RETURN = "final_return"
EVALUATION = "evaluation"
MEASURES = (TRAINING_CURVE, FINAL_RETURN, EVALUATION)
NEGATIVE = "negative_"
_EXAMPLE = "lab.objectives:area"


class AgentCurves(NamedTuple):
    """What a fitness of one's own is given: the curves of one agent.

    Attributes:
        train: Training metrics by name, `[R]`: a row for every update in an evolution,
            for every segment since the last judgement in a search.
        evaluation: Evaluations that the config planned in that time, rows by name
            `[K, ...]`; of `episode_return` and `episode_length` `[K, episodes]`.
    """

    train: Metrics | HostMetrics
    evaluation: Metrics | HostMetrics


def check_fitness(kind: str, accepted: Sequence[str], name: str = "fitness") -> str:
    """Return the kind of fitness that was asked for, if the caller can measure it.

    Raises:
        ConfigError: naming the kinds that are accepted.
    """
    if kind not in accepted:
        raise ConfigError(f"{name} must be one of {', '.join(accepted)}, got {kind!r}.")
    return kind


def read_fitness(kind: Any, accepted: Sequence[str], name: str = "fitness") -> str:
    """Return a kind of fitness, or the import path of a function of one's own.

    Args:
        kind: A kind, a function, or its import path.
        accepted: The kinds that the caller can measure.
        name: Name of the option.

    Raises:
        ConfigError: neither; or a function that no other program could import.
    """
    if callable(kind) and not is_importable(kind):
        raise ConfigError(
            f"{name} is {kind!r}, which no file can hold: give a function that is "
            "defined at the top level of a module."
        )
    kind = path_of(kind) if callable(kind) else kind
    if not is_own(kind):
        return check_fitness(kind, accepted, name)
    if not callable(found := imported_at(name, kind, _EXAMPLE)):
        raise ConfigError(f"{name} must name a function, and {kind} is {found!r}.")
    return kind


def fitness_option(
    default: str, accepted: Sequence[str], help: str, keep: str = ""
) -> Any:
    """Return the option of a kind of fitness, of which a tool can measure some."""
    return option(
        default,
        help,
        doc=f"{help} The function, or its import path, takes "
        "`purerl.search.fitness.AgentCurves` in JAX.",
        kind=str,
        check=lambda name, kind: read_fitness(kind, accepted, name),
        keep=keep,
    )


def is_own(kind: Any) -> bool:
    """Return whether a fitness is a function of one's own."""
    return isinstance(kind, str) and ":" in kind


def sign_of(kind: str) -> float:
    """Return -1 for a kind of fitness that turns the sign of returns, otherwise 1."""
    return -1.0 if kind.startswith(NEGATIVE) and not is_own(kind) else 1.0


def check_own(kind: str, bound: Bound) -> None:
    """Refuse a function of one's own that fails, before anything is trained.

    Raises:
        ConfigError: it fails on an agent's curves, or makes no single number of them.
    """
    if not is_own(kind):
        return
    segment = make_segment(bound)
    state = jax.eval_shape(segment.init, jax.random.key(0))
    _, *shapes = jax.eval_shape(
        lambda state: segment.advance(state, 0, bound.plan.num_updates), state
    )
    curves = AgentCurves(*shapes)
    wanted = f"fitness {kind} must make one number of an agent's curves, but it"
    try:
        found = jax.eval_shape(imported_at("fitness", kind, _EXAMPLE), curves)
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"{wanted} failed with {type(error).__name__}: {first}; train has "
            f"{', '.join(curves.train)}, evaluation {', '.join(curves.evaluation)}."
        ) from error
    shape = getattr(found, "shape", type(found).__name__)
    if shape != ():
        raise ConfigError(f"{wanted} returned {shape}; reduce it, such as by .mean().")


@in_32_bits
def own_scores(kind: str, train: HostMetrics, evaluation: HostMetrics) -> np.ndarray:
    """Return what a function of one's own makes of agents, `[N]`.

    Args:
        kind: The import path of the function.
        train: Training metrics by name, `[N, R]`.
        evaluation: Evaluations by name, `[N, K, ...]`.

    Returns:
        Float64, NaN where the number is not finite, or the function reads evaluations
        and there are none yet.
    """
    function = imported_at("fitness", kind, _EXAMPLE)
    try:
        scores = np.asarray(_by_agent(function)(AgentCurves(train, evaluation)))
    except LookupError:
        if evaluation:
            raise
        # `check_own` gave it those that are planned: it waits for the first of them.
        return np.full(len(train["episode_return"]), np.nan)
    return np.where(np.isfinite(scores), scores, np.nan).astype(np.float64)


@functools.cache
def _by_agent(function: Callable[[AgentCurves], Any]) -> Callable[[Any], Any]:
    """The function of many agents: one after another, so that no bit depends on N."""
    return jax.jit(functools.partial(jax.lax.map, function))

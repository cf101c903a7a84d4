"""Hooks: a user's functions of the state, gathered while an agent trains.

Hooks become part of the compiled program. Without them it is the same as ever, and
nothing in it calls back to the host.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from purerl.config import ConfigError
from purerl.types import Algorithm, Metrics, PyTree

# The entry of an evaluation that holds what `observe` returned.
OBSERVED = "observed"


class Hooks(NamedTuple):
    """Functions that are called while an agent trains.

    Attributes:
        observe: `(state) -> pytree of arrays`, called at every evaluation.
        metrics: `(state, metrics) -> dict of scalars`, called after every update with
            the update's metrics, to which the scalars are added.
    """

    observe: Callable[[PyTree], PyTree] | None = None
    metrics: Callable[[PyTree, Metrics], Metrics] | None = None


NO_HOOKS = Hooks()


def with_metrics(algorithm: Algorithm, hooks: Hooks) -> Algorithm:
    """Return the algorithm whose step adds the metrics of the hooks to its own."""
    measure = hooks.metrics
    if measure is None:
        return algorithm

    def step(state: PyTree) -> tuple[PyTree, Metrics]:
        new, metrics = algorithm.step(state)
        # A copy is handed out: a function may change a dict that it is given.
        return new, metrics | dict(measure(new, dict(metrics)))

    return algorithm._replace(step=step)


def observations(hooks: Hooks, state: PyTree) -> dict[str, Any]:
    """Return what an evaluation is to hold beside its episodes."""
    return {} if hooks.observe is None else {OBSERVED: hooks.observe(state)}


def check_hooks(hooks: Hooks, algorithm: Algorithm, num_evaluations: int) -> None:
    """Refuse hooks that cannot be part of the program, by their shapes.

    Args:
        hooks: The hooks.
        algorithm: The algorithm without them, on one device.
        num_evaluations: Evaluations of the run.

    Raises:
        ConfigError: naming the hook, and what it returned.
    """
    for name, hook in zip(hooks._fields, hooks, strict=True):
        if hook is not None and not callable(hook):
            raise ConfigError(f"{name} must be a function, got {hook!r}.")
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    if hooks.observe is not None:
        if num_evaluations == 0:
            raise ConfigError(
                "observe is called at every evaluation, and num_evaluations is 0; set "
                "it to the number of times that you want to observe."
            )
        _shapes_of("observe", hooks.observe, state)
    if hooks.metrics is not None:
        state, own = jax.eval_shape(algorithm.step, state)
        _check_metrics(_shapes_of("metrics", hooks.metrics, state, own), own)


def _shapes_of(name: str, hook: Callable[..., PyTree], *arguments: PyTree) -> PyTree:
    """The shapes of what a hook returns."""
    try:
        return jax.eval_shape(hook, *arguments)
    except (
        TypeError,
        ValueError,
        AttributeError,
        LookupError,
        jax.errors.JAXTypeError,
    ) as error:
        raise ConfigError(
            f"{name} must be a function from traced arrays to a pytree of arrays; on "
            f"this agent's state it failed with {type(error).__name__}: {error}"
        ) from error


def _check_metrics(found: Any, own: Metrics) -> None:
    """Scalars under names of their own."""
    if not isinstance(found, Mapping) or not all(isinstance(n, str) for n in found):
        raise ConfigError(
            "metrics must return a dict from names to scalars, got "
            f"{type(found).__name__}."
        )
    for name, value in found.items():
        shape = getattr(value, "shape", None)
        if shape != ():
            raise ConfigError(
                f"metrics: {name!r} has shape {shape}, expected a scalar; reduce it, or"
                " gather it at evaluations with observe."
            )
        if name in own:
            raise ConfigError(
                f"metrics: {name!r} is a metric of the algorithm already; give yours "
                "another name."
            )

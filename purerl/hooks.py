"""Functions of the user's in the compiled program: own metrics, and `observe`.

`config.metrics` holds functions `(state, batch, metrics)`, or their import paths, which
are called after every update with the state that it leaves, the transitions that it has
collected, and its metrics. What one returns is reported under the function's name:
`mean_action`, or, of a mapping, `mean_action.left` and so on.

A path is looked up where the update is traced, so that a folder can be read, and its
policies act, without the module. Nothing in the program calls back to the host, and
without functions it is the same as ever.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.config import ConfigError
from purerl.learning.averages import after, pmean
from purerl.metrics import BATCH
from purerl.networks.modules import imported_at
from purerl.types import Algorithm, Array, Hosted, Metrics, PyTree

# The entry of an evaluation that holds what `observe` returned.
OBSERVED = "observed"
# What rows of a folder, and the arrays of results, hold beside metrics.
_TAKEN = ("update", "seed", "kind", "crc", "point", "segment", "episode", "diverged_at")
_FAULTS = (
    *(TypeError, ValueError, AttributeError, LookupError),
    jax.errors.JAXTypeError,
)


def name_of(metric: Any) -> str:
    """Return the name of a function: what its number is reported under."""
    path = metric if isinstance(metric, str) else metric.__name__
    return path.replace(":", ".").rpartition(".")[2]


def is_taken(name: str) -> bool:
    """Return whether rows or results have something else of that name."""
    return name in _TAKEN or name.startswith("evaluation")


def reports(name: str, metrics: Sequence[Any]) -> bool:
    """Return whether the functions `config.metrics` report a metric of that name."""
    return name.partition(".")[0] in map(name_of, metrics)


def with_metrics(
    algorithm: Algorithm,
    metrics: Sequence[Any],
    taken: Collection[str],
    axis_name: str | None,
) -> Algorithm:
    """Return the algorithm whose updates report own metrics too.

    An algorithm shows the transitions of an update in its metrics, as the entry
    `purerl.metrics.BATCH`, where `config.metrics` has functions.

    Args:
        algorithm: The algorithm.
        metrics: Functions, or their import paths.
        taken: Names that are reported beside the metrics of the algorithm.
        axis_name: Axis over which an agent is spread; its devices' numbers are
            averaged.
    """

    def measured(made: tuple[PyTree, Metrics]) -> tuple[PyTree, Metrics]:
        state, own = made[0], dict(made[1])
        batch, found = own.pop(BATCH, None), {}
        known = {*own, *taken}
        for metric in metrics:
            name = name_of(metric)
            if name in known or is_taken(name):
                raise ConfigError(
                    f"metrics: {name!r} is reported already; give your function another"
                    " name."
                )
            known.add(name)
            found |= _measure(metric, name, state, batch, own)
        # Averages over devices must come one after another: see `averages`.
        done = jnp.stack([jnp.asarray(x, jnp.float32) for x in own.values()]).sum()
        return state, own | pmean(after(found, done, axis_name), axis_name)

    def hosted(update: Array) -> Hosted:
        assert algorithm.hosted is not None
        pieces = algorithm.hosted(update)
        return pieces._replace(finish=lambda *work: measured(pieces.finish(*work)))

    return algorithm._replace(
        step=lambda state: measured(algorithm.step(state)),
        hosted=algorithm.hosted and hosted,
    )


def _measure(
    metric: Any, name: str, state: PyTree, batch: Any, own: Metrics
) -> dict[str, Array]:
    """What a function makes of an update, float32 `[]` each, by reported name."""
    function = metric
    if isinstance(metric, str):
        function = imported_at("metrics", metric, "lab:mean_action")
    if not callable(function):
        raise ConfigError(f"metrics: {metric} is no function, but {function!r}.")
    try:
        # A copy is handed out: a function may change a dict that it is given.
        value = function(state, batch, dict(own))
    except _FAULTS as error:
        raise ConfigError(
            f"metrics: {name} must be a function (state, batch, metrics) from traced "
            "arrays to a number, or to numbers by name; it failed with "
            f"{type(error).__name__}: {error}. batch is None where the metrics of the "
            f"algorithm have no entry {BATCH!r}."
        ) from error
    named = {name: value}
    if isinstance(value, Mapping):
        named = {f"{name}.{k}": x for k, x in value.items()}
    for at, number in named.items():
        is_array = isinstance(number, bool | int | float | np.ndarray | jax.Array)
        if not is_array or jnp.shape(number) != ():
            shape = f"shape {jnp.shape(number)}" if is_array else type(number).__name__
            raise ConfigError(f"metrics: {at} must be one number, got {shape}.")
    return {at: jnp.asarray(x, jnp.float32) for at, x in named.items()}


def check_observe(
    observe: Callable[[PyTree], PyTree], algorithm: Algorithm, num_evaluations: int
) -> None:
    """Refuse a function `observe` that cannot be part of the program, by its shapes.

    Args:
        observe: `(state) -> pytree of arrays`, called at every evaluation.
        algorithm: The algorithm, on one device.
        num_evaluations: Evaluations of the run.

    Raises:
        ConfigError: saying what it returned, or that it would never be called.
    """
    if num_evaluations == 0:
        raise ConfigError("observe needs evaluations, and num_evaluations is 0.")
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    try:
        jax.eval_shape(observe, state)
    except _FAULTS as error:
        raise ConfigError(
            "observe must be a function from traced arrays to a pytree of arrays; on "
            f"this agent's state it failed with {type(error).__name__}: {error}"
        ) from error

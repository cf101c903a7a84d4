"""Schedules: numbers of a config that follow the share of the run that is over.

A schedule stands where a config has a number, at the top (`learning_rate`) or inside a
part (`policy_loss.clip_eps`, `optimiser.b1`). It is a callable pytree:
`schedule(share)` is the number at a share of the run, and its own numbers are leaves,
which can be swept, vmapped and evolved under names such as `learning_rate.start`.

The share is the number of updates done over those of the whole run: 0 in the first
update, and just below 1 in the last. Within an update nothing moves.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.core import Tracer

from purerl.config import Check, ConfigError, dynamic, shortest
from purerl.registry import Registry
from purerl.types import Array
from purerl.types import Schedule as Schedule

_PART = Check(lambda x: 0 < x < 1, "must be greater than 0 and less than 1")
_UNTIL = Check(lambda x: 0 < x <= 1, "must be greater than 0 and at most 1")
_SHARES = Check(
    lambda x: bool(np.all(np.diff([0.0, *x, 1.0]) > 0)),
    "must be shares of the run between 0 and 1 that ascend",
)
Tree = TypeVar("Tree")


@struct.dataclass
class Constant(Schedule):
    """A schedule that has the same number in the whole run, as a plain number does.

    Attributes:
        value: Number.
    """

    value: float = dynamic(0.0, "Number of the whole run.")

    def __call__(self, share: Array) -> Array:
        """Return the number at a share of the run, `[]`."""
        return self.value + jnp.zeros_like(share)


@struct.dataclass
class _FromTo(Schedule):
    """The numbers of a schedule that goes from one number to another."""

    start: float = dynamic(1.0, "Number at the beginning of the run.")
    end: float = dynamic(0.0, "Number from until on.")
    until: float = dynamic(1.0, "Share of the run after which it stays.", _UNTIL)

    def _mix(self, left: Array) -> Array:
        """Return the number where a share `left` of the way is still to go."""
        return self.start * left + self.end * (1.0 - left)


@struct.dataclass
class Linear(_FromTo):
    """A straight line from one number to another, which then stays.

    `anneal_learning_rate=True` is `Linear(learning_rate, 0.0)`, except for DQN, whose
    flag counts gradient steps.

    Attributes:
        start: Number at the beginning of the run.
        end: Number from `until` on.
        until: Share of the run after which the number stays, up to 1.
    """

    def __call__(self, share: Array) -> Array:
        """Return the number at a share of the run, `[]`."""
        # The terms of `learning.optimiser.annealed`, which compilers round alike then:
        # down to 0 it is the same number bit for bit. It ends at exactly `end`.
        left = jnp.maximum(0.0, 1.0 - share / self.until)
        return self._mix(left)


@struct.dataclass
class Cosine(_FromTo):
    """Half a wave of the cosine from one number to another (Loshchilov, Hutter 2017).

    `end + (start - end) (1 + cos(pi t)) / 2`, with `t` the share of `until`
    (arXiv:1608.03983, equation 5).

    Attributes:
        start: Number at the beginning of the run.
        end: Number from `until` on.
        until: Share of the run after which the number stays, up to 1.
    """

    def __call__(self, share: Array) -> Array:
        """Return the number at a share of the run, `[]`."""
        left = 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.minimum(share / self.until, 1.0)))
        return self._mix(left)


@struct.dataclass
class WarmUp(Schedule):
    """A straight line up to where another schedule begins, and then that schedule.

    The other schedule has the rest of the run for its own: its share is 0 when the
    warm-up ends and 1 when the run does.

    Attributes:
        fraction: Share of the run that the warm-up takes.
        then: Schedule or number that follows the warm-up.
        start: Number at the beginning of the run.
    """

    fraction: float = dynamic(0.05, "Share of the run that it takes.", _PART)
    then: Any = dynamic(1.0, "What follows, a schedule or a number.")
    start: float = dynamic(0.0, "Number at the beginning of the run.")

    def __call__(self, share: Array) -> Array:
        """Return the number at a share of the run, `[]`."""
        done = jnp.minimum(share / self.fraction, 1.0)
        rest = jnp.maximum(share - self.fraction, 0.0) / (1.0 - self.fraction)
        later = self.then(rest) if isinstance(self.then, Schedule) else self.then
        # While it warms up `rest` is 0, so that this is the first number of `then`.
        return self.start * (1.0 - done) + later * done


@struct.dataclass
class Piecewise(Schedule):
    """Numbers that follow one another, each for a part of the run.

    Attributes:
        values: Numbers, one more than there are changes.
        changes: Shares of the run at which the next number begins, ascending.
    """

    values: tuple[float, ...] = dynamic((1.0, 0.1), "Numbers that follow one another.")
    changes: tuple[float, ...] = dynamic(
        (0.5,), "Shares of the run at which the next number begins.", _SHARES
    )

    def __post_init__(self) -> None:
        if not all(isinstance(x, tuple) for x in (self.values, self.changes)):
            return  # JAX puts other things in their place.
        if len(self.values) != len(self.changes) + 1:
            raise ConfigError(
                f"Piecewise needs one number more than changes, got {self.values!r} "
                f"and {self.changes!r}; for example Piecewise((1e-3, 1e-4), (0.5,))."
            )

    def __call__(self, share: Array) -> Array:
        """Return the number at a share of the run, `[]`."""
        number = jnp.asarray(self.values[0], jnp.float32)
        for change, value in zip(self.changes, self.values[1:], strict=True):
            number = jnp.where(share >= change, value, number)
        return number


@struct.dataclass
class Share(Schedule):
    """The share of the run itself: 0 at the beginning, 1 at the end.

    For a part that is to know how much of the run is over. It is
    `Linear(0.0, 1.0)` without numbers, so that evolving all numbers of the part leaves
    the clock alone.
    """

    def __call__(self, share: Array) -> Array:
        """Return the share of the run, `[]`."""
        return jnp.asarray(share, jnp.float32)


SCHEDULES: dict[str, type] = {
    cls.__name__: cls for cls in (Constant, Linear, Cosine, WarmUp, Piecewise, Share)
}
_registry = Registry(
    "schedule", "schedules", "purerl.schedules.register", SCHEDULES, Schedule
)


def register(name: str, cls: type) -> None:
    """Let configs with a schedule of class `cls` be written to files and read back.

    Args:
        name: Name in files and on command lines, such as `"Sawtooth"`.
        cls: A `flax.struct.dataclass` that derives from `Schedule`.

    Raises:
        ConfigError: no such class, no name, or either is taken.
    """
    _registry.register(name, cls)


def is_moving(tree: Any) -> bool:
    """Return whether there is a schedule anywhere in a config."""
    return bool(named(tree))


def named(tree: Any) -> dict[str, Schedule]:
    """Return the schedules of a config by dotted name, as `policy_loss.clip_eps`."""
    pairs = jax.tree_util.tree_leaves_with_path(tree, is_leaf=_is_schedule)
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): value
        for path, value in pairs
        if _is_schedule(value)
    }


def at(tree: Tree, share: Array | float) -> Tree:
    """Return a config with the numbers in place of its schedules.

    Args:
        tree: Config, or a part of one.
        share: `[]`, share of the run that is over.
    """
    return _map_schedules(lambda schedule: schedule(jnp.float32(share)), tree)


def at_start(tree: Tree) -> Tree:
    """Return a config with the first number of every schedule, for checks."""

    def first(schedule: Schedule) -> Any:
        if any(isinstance(x, Tracer) for x in jax.tree.leaves(schedule)):
            return schedule(jnp.float32(0.0))
        with jax.ensure_compile_time_eval():
            return shortest(schedule(jnp.float32(0.0)))

    return _map_schedules(first, tree) if is_moving(tree) else tree


def _map_schedules(change: Callable[[Schedule], Any], tree: Tree) -> Tree:
    return jax.tree.map(
        lambda x: change(x) if _is_schedule(x) else x, tree, is_leaf=_is_schedule
    )


def _is_schedule(value: Any) -> bool:
    return isinstance(value, Schedule)


def annealed_rates(config: Any) -> dict[str, Any]:
    """Return the step sizes by name that `anneal_learning_rate` speaks for."""
    if not getattr(config, "anneal_learning_rate", False):
        return {}
    return {
        name: value
        for name, value in vars(config).items()
        if name.endswith("learning_rate")
        and name != "anneal_learning_rate"
        and value is not None
    }


def without_flags(config: Tree) -> Tree:
    """Return a config whose step sizes are annealed by schedules, not by a flag.

    Where one step size is a schedule, `anneal_learning_rate` no longer speaks for it.
    It still does for the others, as the `Linear` that it stands for.

    Args:
        config: Config of any algorithm.
    """
    rates = annealed_rates(config)
    if not any(map(_is_schedule, rates.values())):
        return config
    lines = {
        name: Linear(value, 0.0)
        for name, value in rates.items()
        if not _is_schedule(value)
    }
    return config.replace(anneal_learning_rate=False, **lines)  # type: ignore[attr-defined]

"""The hyperparameters that a population searches: draws, steps, overrides.

On the host a population's hyperparameters are arrays by name: numbers, or for a choice
the places of its values. A program takes them as overrides.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.config import ConfigError, TrainConfig, checks_together
from purerl.space.axes import (
    Axis,
    Choice,
    FieldAxes,
    LogUniform,
    ends,
    expand,
    in_a_line,
    is_whole,
    split,
)
from purerl.sweeps.groups import group_points
from purerl.types import Array, Overrides

# Name of an axis -> `[...]`: its numbers, or places in its choice, one per member.
Hyper = dict[str, np.ndarray]

# Streams of random numbers beside those that draw the first points.
_EXPLORE = 1


class Space(FieldAxes):
    """Axes that one program searches, all of them over dynamic fields.

    Attributes:
        bound: The environment and plan that all members share.
        group: The program of all members, with the point at the low ends of the axes.
    """

    def __init__(self, config: TrainConfig, axes: Mapping[str, Any]) -> None:
        super().__init__(config, axes)
        static, _ = split(config, dict.fromkeys(self.axes))
        if static:
            raise ConfigError(
                f"the axis {next(iter(static))!r} is static: it fixes the program, and "
                "a population shares one program. Sweep it with purerl.sweep."
            )
        # What is drawn: numbers, or of a choice the places of its values.
        self._numbers = {
            name: Choice(tuple(range(len(axis.values))))
            if isinstance(axis, Choice)
            else axis
            for name, axis in self.axes.items()
        }
        # Every end and every choice is tried: nothing between them can be worse.
        low = {name: ends(axis)[0] for name, axis in self.axes.items()}
        (self.group,) = group_points(config, [low])
        self.bound = self.group.bound
        self._stacked: dict[str, Any] = {}
        for name, axis in self.axes.items():
            values = [{**low, name: value} for value in ends(axis)]
            group, *others = group_points(config, values)
            if others:
                raise ConfigError(
                    f"the values of the axis {name!r} differ in structure, so they "
                    "need several programs, and a population shares one: search each "
                    "alone."
                )
            self._stacked[name] = group.overrides[name]

    def draws(self, num: int, seeds: Sequence[int]) -> Hyper:
        """Draw `num` points of each search: those of a sweep with its `design_seed`.

        Returns:
            Hyperparameters `[S * num]` by name, the points fastest.

        Raises:
            ConfigError: numbers of a point are wrong together, see
                `TrainConfig.check_numbers`.
        """
        points = [
            point
            for seed in seeds
            for point in expand(self._numbers, "random", num, seed).points
        ]
        for point in points:
            self._check_together(point)
        return {
            name: np.asarray([point[name] for point in points], np.float64)
            for name in self.axes
        }

    def explore(
        self,
        hyper: Mapping[str, float],
        stream: tuple[int, ...],
        factors: tuple[float, ...],
        resample_probability: float,
    ) -> dict[str, float]:
        """Return a member's hyperparameters, each moved a step or drawn anew.

        Where they would be wrong together, the member keeps what it has.
        """
        moved = {}
        for name, axis in self.axes.items():
            word = zlib.crc32(name.encode())
            rng = np.random.default_rng([*stream, _EXPLORE, word])
            if rng.random() < resample_probability:
                moved[name] = float(self._numbers[name].draw(rng))
            else:
                factor = factors[int(rng.integers(len(factors)))]
                moved[name] = perturb(axis, float(hyper[name]), factor)
        try:
            self._check_together(moved)
        except ConfigError:
            return {name: float(hyper[name]) for name in self.axes}
        return moved

    def _check_together(self, hyper: Mapping[str, float]) -> None:
        """Check a member's numbers together, where its algorithm has such a check."""
        if not checks_together(self.config):
            return
        values = self.values(hyper)
        try:
            self.bound.at(split(self.config, values)[1])
        except ConfigError as error:
            raise ConfigError(f"at {in_a_line(values)}: {error}") from None

    def overrides(self, hyper: Hyper) -> Overrides:
        """Return what a program takes, leaves `[N, ...]` from arrays `[N]`."""
        overrides = {}
        for name, axis in self.axes.items():
            if isinstance(axis, Choice):
                choices = hyper[name].astype(int)
                stacked = self._stacked[name]
                overrides[name] = jax.tree.map(lambda x, i=choices: x[i], stacked)
            else:
                overrides[name] = hyper[name].astype(np.float32)
        return overrides

    def values(self, hyper: Mapping[str, float]) -> dict[str, Any]:
        """Return a member's hyperparameters as a person writes them."""
        values: dict[str, Any] = {}
        for name, axis in self.axes.items():
            number = hyper[name]
            if isinstance(axis, Choice):
                values[name] = axis.values[int(number)]
            else:
                values[name] = int(number) if is_whole(axis) else float(number)
        return values

    def labelled(self, name: str, numbers: np.ndarray) -> np.ndarray:
        """Return an axis's numbers as results show them, a choice's values by name."""
        axis = self.axes[name]
        if not isinstance(axis, Choice):
            return numbers
        is_number = all(isinstance(x, int | float) for x in self.names[name])
        table = np.asarray(self.names[name], float if is_number else object)
        return table[numbers.astype(int)]


def perturb(axis: Axis, value: float, factor: float) -> float:
    """Move a hyperparameter a step, within its bounds.

    * log-uniform: `value * factor` (Jaderberg et al. 2017, section 4).
    * uniform: `value + log(factor) (high - low) / 2`, the same step wherever the value
      is: a product would hardly move small values, and never cross zero.
    * whole numbers: likewise, and by one at least.
    * choice: to the next value, or from factors below 1 to the one before; at the end
      it turns back.
    """
    if isinstance(axis, Choice):
        last = len(axis.values) - 1
        position = int(value) + (1 if factor > 1 else -1)
        return float(0 if last == 0 else last - 1 if position > last else abs(position))
    if isinstance(axis, LogUniform):
        moved = value * factor
    else:
        moved = value + math.log(factor) * (axis.high - axis.low) / 2
    if is_whole(axis):
        moved = round(moved)
        if moved == value:
            moved += 1 if factor > 1 else -1
    return float(min(max(moved, axis.low), axis.high))


_EVALUATION = 2**32 - 3
_CHILD = 2**32 - 4
# 2**32 - 5 and below: see `purerl.execution.rekey`.
HELD_OUT = 2**32 - 1
"""A milestone that no search reaches: its episodes evaluate what a search has found."""


def _folded(seeds: Any, *numbers: Any) -> Array:
    """Return keys `[N]` of seeds, into which numbers are folded one after the other."""
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
    for number in numbers:
        number = jnp.broadcast_to(jnp.asarray(number, jnp.uint32), keys.shape)
        keys = jax.vmap(jax.random.fold_in)(keys, number)
    return keys


def member_keys(seeds: tuple[int, ...], size: int) -> Array:
    """Return keys `[S * size]` of the members of every search, the members fastest."""
    return _folded(np.repeat(seeds, size), np.tile(np.arange(size), len(seeds)))


def evaluation_keys(seeds: np.ndarray, milestone: int) -> Array:
    """Return keys `[N]` of the evaluations at a milestone, one for each search.

    All members of a search play the same episodes, so that only the members differ.
    """
    return _folded(seeds, _EVALUATION, milestone)


def child_keys(seeds: np.ndarray, milestone: int, members: np.ndarray) -> Array:
    """Return keys `[N]` of members that go on as copies of others after a milestone.

    Args:
        seeds: The seed of each member's search, `[N]`.
        milestone: The number of the milestone.
        members: The number of each member in its search, `[N]`.
    """
    return _folded(seeds, _CHILD, milestone, members)

"""The records and aliases that every other room shares.

Axes: `T` steps of a rollout, `B` parallel environments, `N = T * B` samples,
`U` updates, `K` evaluations, `E` evaluation episodes.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeAlias

import jax
import numpy as np

Array: TypeAlias = jax.Array
PyTree: TypeAlias = Any
Metrics: TypeAlias = dict[str, jax.Array]
HostMetrics: TypeAlias = dict[str, np.ndarray]
Overrides: TypeAlias = dict[str, Any]


# To a type checker a schedule is whatever number it stands in place of.
_Number: Any = Any if TYPE_CHECKING else object


class Schedule(_Number):
    """A number that follows the share of the run that is over.

    A schedule is a `flax.struct.dataclass` that derives from this class. It stands
    where a config has a number; see `purerl.schedules`.
    """

    def __call__(self, share: Array) -> Array:
        """Return the number at a share of the run, `[]` between 0 and 1."""
        raise NotImplementedError(
            f"{type(self).__name__} must have __call__(share), which returns the "
            "number at a share of the run between 0 and 1."
        )


class Evaluation(NamedTuple):
    """Episodes of the deterministic policy.

    Attributes:
        episode_return: Undiscounted returns, `[E]`.
        episode_length: Lengths in steps, `[E]`.
        cut_episodes: Number of the episodes that still ran after the most steps of an
            evaluation, or that a bad transition ended, int32 `[]`. They count with what
            they had earned by then.
    """

    episode_return: Array
    episode_length: Array
    cut_episodes: Array


class TrainResult(NamedTuple):
    """The result of a whole training run.

    Attributes:
        state: Final algorithm state, a pytree of arrays (see `make_policy`).
        metrics: `[U]` each: `env_steps`, `episodes` that ended in the update, their
            mean `episode_return` and `episode_length`, and the losses and diagnostics
            of the algorithm. Where `episodes` is 0 the last known return and length
            stand again; NaN before the first episode has ended.
        evaluation: `env_steps` `[K]`, and of the deterministic policy what
            `Evaluation` lists, with an axis `[K]` in front. Returns are NaN where the
            agent's parameters are not finite.
        observed: Values that the hook `observe` returned at each evaluation, leaves
            `[K, ...]`; None without one.
    """

    state: PyTree
    metrics: Metrics
    evaluation: Metrics
    observed: PyTree = None


class AgentState(Protocol):
    """The part of an algorithm's state that the training loop reads: a NamedTuple.

    An algorithm adds its parameters, environments and replay; see
    `docs/adding-algorithm.md`.
    """

    @property
    def key(self) -> Array:
        """The agent's key `[]`; it never changes, see `purerl.keys`."""
        ...

    @property
    def update(self) -> Array:
        """Updates done, int32 `[]`."""
        ...

    def _replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, as every NamedTuple does."""
        ...


class Recurrence(NamedTuple):
    """The functions by which a policy acts that remembers the episode so far.

    Attributes:
        init: `(shape) -> memory` of `[*shape]` episodes that are about to begin: all
            leaves `[*shape, ...]`, and zero.
        act: `(state, obs, memory, key=None) -> (action, memory)`; deterministic
            without a key. The memory holds the observations of this episode before
            `obs`, and then `obs` too.
    """

    init: Callable[[tuple[int, ...]], PyTree]
    act: Callable[..., tuple[Array, PyTree]]


class Hosted(NamedTuple):
    """One update in pieces, between which the host steps the environments.

    In an update the host acts and learns `R` times, with `T` steps of `B` environments
    each time. With the same transitions the pieces make what `Algorithm.step` makes:
    they are its own functions, and draw from the same keys.

    Attributes:
        num_rounds: Number R of rounds of an update.
        num_steps: Number T of steps.
        begin: `(state) -> (work, memory, noise)`: what the pieces hand on, the memory
            of the running episodes `[B, ...]`, and the noise of all actions, leaves
            `[R, T, B, ...]`.
        act: `(work, obs, memory, noise) -> ((action, outputs, env action), memory)`,
            with one noise for each of `B` environments; actions as `Transition` has
            them, and the policy's outputs in the place of their log-probabilities.
        learn: `(work, number, played) -> (work, report)`, after the steps of round
            `number`, int32 `[]`; see `acting.rollout.Played`.
        finish: `(work, reports) -> (state, metrics)`; reports have leaves `[R, ...]`.
        restart: `(state, obs) -> state` of which all episodes begin with `obs`
            `[B, ...]`, whatever was going on.
    """

    num_rounds: int
    num_steps: int
    begin: Callable[[PyTree], tuple[PyTree, PyTree, PyTree]]
    act: Callable[..., tuple[tuple[PyTree, PyTree, Array], PyTree]]
    learn: Callable[..., tuple[PyTree, PyTree]]
    finish: Callable[[PyTree, PyTree], tuple[PyTree, Metrics]]
    restart: Callable[[PyTree, PyTree], PyTree]


class Algorithm(NamedTuple):
    """An algorithm bound to its config and environment: three pure functions.

    Attributes:
        init: `(key) -> state`, which has what `AgentState` lists.
        step: `(state) -> (state, metrics)`, one update: a `lax.scan` body.
        act: `(state, obs, key=None) -> action`; deterministic without a key. Of a
            policy that remembers it refuses to act.
        recurrence: Functions by which a policy with a memory acts, where it has one.
        hosted: `(update) -> Hosted`, the same update in pieces, for environments that
            are stepped on the host; `update` int32 `[]` updates have been done, and
            only numbers depend on it. None for an algorithm that has no such pieces.
    """

    init: Callable[[Array], PyTree]
    step: Callable[[PyTree], tuple[PyTree, Metrics]]
    act: Callable[..., Array]
    recurrence: Recurrence | None = None
    hosted: Callable[[Array], Hosted] | None = None

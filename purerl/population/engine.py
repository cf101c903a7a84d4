"""The lanes of a population: advance, judge, copy, drop.

Nothing here chooses. A member's bits depend on its key, its hyperparameters, W and K,
and on the states it was handed: not on who else is there, or was.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl.acting.environment import bind_params
from purerl.acting.evaluate import evaluate_recurrent
from purerl.acting.policy import recurrence_of
from purerl.algorithms import entry_of
from purerl.population import streams
from purerl.runner.programs import Members, Programs
from purerl.scale.devices import compile_for, run_blocks
from purerl.sweeps.execute import Curves, record
from purerl.train import Bound
from purerl.types import Array, HostMetrics, Overrides, PyTree


class Judged(NamedTuple):
    """A fresh look at members, `[N]` each.

    Attributes:
        episode_return: mean of the evaluation's episodes.
        env_steps: that the evaluation took.
    """

    episode_return: np.ndarray
    env_steps: np.ndarray


class Stretch(NamedTuple):
    """What happened between two marks.

    Attributes:
        train: metric -> rows `[N, R]`, one per segment.
        evaluation: name -> rows `[N, K, ...]` of evaluations that the config planned;
            empty where there were none.
        diverged: `[N]` bool, a number was not finite.
        diverged_at: `[N]` the first update at which, or -1.
        judged: at its end, if asked for.
    """

    train: HostMetrics
    evaluation: HostMetrics
    diverged: np.ndarray
    diverged_at: np.ndarray
    judged: Judged | None


# Told after every segment: members, the update reached, their mean return.
OnSegment = Callable[[int, int, float], None]


class Engine:
    """A population's states on the devices, in blocks of W lanes.

    Args:
        bound: what all members share.
        members: the population; it may get smaller, never larger.
        lanes: W.
        length: K, updates of one compiled call.
    """

    def __init__(self, bound: Bound, members: Members, lanes: int, length: int) -> None:
        self.bound, self.length = bound, length
        self.programs = Programs(bound, members, lanes, length)
        self._judge = _Judge(bound)
        self.update = 0
        self.states: list[PyTree] = []

    @property
    def compile_seconds(self) -> float:
        """Time spent tracing and compiling so far."""
        return self.programs.compile_seconds + self._judge.compile_seconds

    def init(self) -> None:
        """Initial states of all members."""
        self.states = self.programs.init()

    def restore(self, members: Members, states: PyTree, update: int) -> None:
        """Go on with some members' states, from the host, at an update."""
        self.programs = self.programs.with_members(members)
        self.states = self.programs.scatter(states)
        self.update = update

    def gather(self) -> PyTree:
        """All members' states on the host, leaves `[N, ...]`."""
        return self.programs.gather(self.states)

    def set_overrides(self, overrides: Overrides) -> None:
        """Other hyperparameters from the next update on."""
        keys = self.programs.members.keys
        self.programs.members = Members(keys, overrides)

    def advance(
        self, until: int, on_segment: OnSegment, judge_keys: Array | None = None
    ) -> Stretch:
        """Train up to an update, then look at the members.

        Args:
            until: a multiple of K, or the end of the run.
            on_segment: is told of progress.
            judge_keys: `[N]` of fresh evaluations; without them there are none.
        """
        plan, num = self.bound.plan, self.programs.members.size
        curves = Curves({}, {}, np.full(num, -1))
        while self.update < until:
            first = self.update
            ran = min(self.length, plan.num_updates - first)
            self.states, metrics, evaluation = self.programs.advance(self.states, first)
            metrics = {name: values[:, :ran] for name, values in metrics.items()}
            mean = record(curves, metrics, evaluation, first, plan)
            self.update = first + ran
            on_segment(num, ran, mean)
        judged = self._judge(self.programs, self.states, judge_keys)
        train = {name: np.stack(rows, 1) for name, rows in curves.train.items()}
        evaluation = {n: np.stack(rows, 1) for n, rows in curves.evaluation.items()}
        at = curves.diverged_at
        return Stretch(train, evaluation, at >= 0, at, judged)

    def copy(self, parents: np.ndarray, keys: Array) -> None:
        """Every member goes on with its parent's state; copies get keys of their own.

        The states pass through the host: a parent may lie on another device, a
        checkpoint needs them there anyway, and a copy of whole blocks on the device
        would need twice the memory.

        Args:
            parents: `[N]`, the member's own number where it goes on as it is.
            keys: `[N]` fresh ones, used for copies only: with its parent's key a copy
                would repeat what the parent does.
        """
        renewed = parents != np.arange(len(parents))
        if not renewed.any():
            return
        states = jax.tree.map(lambda x: x[parents], self.gather())
        states = streams.renew(states, renewed, keys)
        self.states = []  # Their memory is needed for the new ones.
        self.states = self.programs.scatter(states)

    def keep(self, alive: np.ndarray) -> None:
        """Only some members go on, in as few blocks as hold them.

        Args:
            alive: numbers of members, ascending, at least one.
        """
        members = self.programs.members
        if len(alive) == members.size:
            return
        states = jax.tree.map(lambda x: x[alive], self.gather())
        kept = jax.tree.map(lambda x: x[alive], members)
        self.states = []
        self.restore(kept, states, self.update)

    def keys(self) -> np.ndarray:
        """Key data `[N, words]` that the members draw from."""
        blocks = zip(self.programs.blocks, self.states, strict=True)
        return np.concatenate(
            [np.asarray(jax.random.key_data(s.key))[: b.size] for b, s in blocks]
        )


class _Judge:
    """Compiled: how do fresh episodes end?"""

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self.compile_seconds = 0.0
        self._play: dict[Any, Any] = {}

    def __call__(
        self, programs: Programs, states: Sequence[PyTree], keys: Array | None
    ) -> Judged | None:
        if keys is None:
            return None
        if not self._play:
            self._play = self._compiled(partial(_evaluate, self._bound), programs)
        items = list(zip(programs.blocks, states, strict=True))

        def one(worker: Any, item: Any) -> Any:
            del worker
            block, state = item
            device = block.worker.device
            members = programs.members.block(block.start, programs.lanes)
            index = np.arange(block.start, block.start + programs.lanes)
            block_keys = keys[np.minimum(index, len(keys) - 1)]
            args = jax.device_put((members.overrides, block_keys), device)
            played = self._play[device](state, *args)
            return [np.asarray(x)[: block.size] for x in played]

        parts = zip(*run_blocks(programs.workers, items, one), strict=True)
        return Judged(*(np.concatenate(part) for part in parts))

    def _compiled(
        self, function: Callable[..., Any], programs: Programs
    ) -> dict[Any, Any]:
        began = time.perf_counter()
        compiled = _compile(function, programs)
        self.compile_seconds += time.perf_counter() - began
        return compiled


def _evaluate(
    bound: Bound, state: PyTree, overrides: Overrides, key: Array
) -> tuple[Array, Array]:
    """Mean return of fresh episodes of the deterministic policy, and their steps."""
    config = bound.at(overrides)
    recurrence = recurrence_of(entry_of(config).make(config, bound.env))
    result = evaluate_recurrent(
        bound.env,
        bind_params(bound.env, config.env_params),
        partial(recurrence.act, state),
        recurrence.init((config.eval_episodes,)),
        key,
        num_episodes=config.eval_episodes,
        max_steps=bound.plan.eval_max_steps,
    )
    return result.episode_return.mean(), result.episode_length.sum()


def _compile(function: Callable[..., Any], programs: Programs) -> dict[Any, Any]:
    """`vmap(function)` over blocks, for every device.

    Args:
        function: Function of one member's state, its overrides and a key.
        programs: Programs whose blocks it will see.
    """
    lanes = programs.lanes

    def args_for(device: Any) -> tuple:
        place = jax.sharding.SingleDeviceSharding(device)

        def shape(leaf: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(
                (lanes, *leaf.shape), leaf.dtype, sharding=place
            )

        state = jax.tree.map(shape, programs.member_shapes())
        members = jax.device_put(programs.members.block(0, lanes), device)
        return state, members.overrides, members.keys

    return compile_for(jax.jit(jax.vmap(function)), programs.workers, args_for)

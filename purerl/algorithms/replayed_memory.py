"""Memories of actor-critics that learn from replayed sequences.

An actor-critic with a memory is the one without it, whose networks see memories in the
place of observations:

    h_t = core(h_{t-1}, o_t)      pi(a | h_t)
    g_t = core'(g_{t-1}, o_t)     Q_i(g_t, a)

Actor and critics have a memory each, with parameters and target networks of their own,
and all critics read the same one. That is the architecture of Ni et al. (2022,
"Recurrent Model-Free RL Can Be a Strong Baseline for Many POMDPs", arXiv:2110.05038),
after the recurrent deterministic policy gradient of Heess et al. (2015,
arXiv:1512.04455). The sequences, the memories stored before them and the burn-in are
those of R2D2 (Kapturowski et al. 2019); the rules of `memory` hold.

A batch of `R` sequences of `L` steps is a `Batch` of `N = L * R` samples, step by step.
Its observations are `Now` and `Next`, which a `WithMemory` makes features of, so that
losses and targets are written once for agents with and without a memory.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl import networks
from purerl.acting import rollout
from purerl.algorithms.memory import CORE, CRITIC_CORE, Memory
from purerl.learning import sequences
from purerl.learning.sequences import Sequences, flatten, swap
from purerl.networks import observe
from purerl.networks.memories import Kind
from purerl.replay import batches
from purerl.replay import uniform as ring
from purerl.replay.batches import Batch
from purerl.types import Array, Metrics, PyTree

HEAD = "head"
# The weight of a sequence's largest TD error in its priority, against their mean: that
# of R2D2.
ETA = 0.9


class Now(NamedTuple):
    """The observations of sequences on which actions were chosen, `[N]`."""

    rows: Sequences


class Next(NamedTuple):
    """The observations after steps of sequences, before any reset, `[N]`.

    Attributes:
        rows: The sequences.
        last: `[N]` uint32, numbers of the steps; None for every sample's own.
    """

    rows: Sequences
    last: Array | None


class WithMemory(NamedTuple):
    """A network on a memory of its own: applied like any other, to `Now` and `Next`.

    Attributes:
        core: Network from observations to memories.
        kind: Kind of the memory.
        owner: `actor` or `critic`, whose stored memories sequences begin with.
        head: Network of what the memory shows.
    """

    core: Any
    kind: Kind
    owner: str
    head: Any

    def apply(self, params: PyTree, obs: Now | Next, *more: Array) -> Any:
        """Return the head's outputs `[N, ...]`, or `[S, N, ...]` of such actions.

        Args:
            params: Parameters of `core` and `head`.
            obs: Observations of sequences.
            *more: Further inputs of the head: actions `[N, A]` or `[S, N, A]`.
        """
        seen = self._seen_in(params[CORE], obs)
        if more and more[0].ndim > 2:
            lead = more[0].shape[:-1]
            seen = jax.tree.map(
                lambda x: jnp.broadcast_to(x[None], (*lead, *x.shape[1:])), seen
            )
        return self.head.apply(params[HEAD], seen, *more)

    def step(self, params: PyTree, obs: Any, memory: PyTree) -> tuple[Any, PyTree]:
        """Return the head's outputs on observations, and the memory with them in it."""
        memory = self.core.apply(params[CORE], obs, memory)
        return self.head.apply(params[HEAD], self.seen(memory, obs)), memory

    def seen(self, memory: PyTree, obs: Any) -> Any:
        """Return what the head sees of a memory with an observation in it."""
        return observe.beside_mask(self.kind.read(memory), obs)

    def _seen_in(self, core: PyTree, obs: Now | Next) -> Any:
        """What the head sees at every sample, `[N, ...]`."""
        rows = obs.rows._replace(memory=getattr(obs.rows.memory, self.owner))
        if isinstance(obs, Now):
            prepared = jax.tree.map(swap, rows.batch.obs)
            found = sequences.remember(self.core, self.kind, core, rows)
            return flatten(self.seen(found, prepared))
        each = sequences.remember_each(self.core, self.kind, core, rows)
        prepared = jax.tree.map(swap, rows.batch.next_obs)
        seen = flatten(self.seen(self.core.apply(core, prepared, each), prepared))
        if obs.last is None:
            return seen
        return jax.tree.map(lambda x: x[obs.last], seen)


def repeated(obs: Any, num: int) -> Any:
    """Return observations `[num, N, ...]` of `[N, ...]`; of sequences as they are."""
    if isinstance(obs, Now | Next):
        return obs
    return jax.tree.map(lambda x: jnp.broadcast_to(x[None], (num, *x.shape)), obs)


def mask_of(obs: Any) -> Array | None:
    """Return the mask of a batch's observations, in any order; None without one."""
    return observe.mask_of(obs.rows.batch.obs if isinstance(obs, Now) else obs)


def init_params(
    key: Array, made: dict[str, tuple[Any, list[Any]]]
) -> dict[str, PyTree]:
    """Initialise networks, with a memory or without; see `networks.init_params`."""
    apart: dict[str, tuple[nn.Module, list[Any]]] = {}
    for name, (network, inputs) in made.items():
        if not isinstance(network, WithMemory):
            apart[name] = network, inputs
            continue
        obs, *more = inputs
        one = network.kind.blank((1,))
        apart[f"{name}.{CORE}"] = network.core, [obs, one]
        apart[f"{name}.{HEAD}"] = network.head, [network.seen(one, obs), *more]
    found = networks.init_params(key, apart)
    return {
        name: {part: found[f"{name}.{part}"] for part in (CORE, HEAD)}
        if isinstance(network, WithMemory)
        else found[name]
        for name, (network, _) in made.items()
    }


def example(memory: Memory, obs: Any) -> tuple[Now, Next]:
    """Return a sequence of one step as a batch has it, of an observation `[1, ...]`."""
    first = jnp.zeros((1, 1), bool)
    one = jax.tree.map(lambda x: x[None], obs)
    steps = batches.Item(one, (), (), one, (), ())  # type: ignore[arg-type]
    rows = Sequences(memory.blank(1), first, steps)
    return Now(rows), Next(rows, None)


def make_replay(config: Any, axis_name: str | None) -> batches.Replay:
    """Make the replay of sequences, whose batches are those of single steps."""
    replay = batches.of_sequences(config, axis_name)

    def batch(*given: Any) -> Batch:
        return as_batch(config, *replay.batch(*given))

    return replay._replace(batch=batch)


def as_batch(config: Any, rows: Sequences, weight: Array) -> Batch:
    """Return sequences as samples `[N]`, each with the `n_step` steps from it on.

    A window ends with its episode, or with the sequence.

    Args:
        rows: Sequences `[R, L, ...]` of `batches.Item`.
        weight: `[R]` weights of the sequences.
    """
    steps = rows.batch._replace(obs=(), next_obs=())
    length = steps.reward.shape[1]
    steps = flatten(jax.tree.map(swap, steps))
    reward, terminated, last = steps.reward, steps.terminated, None
    discount: Any = config.gamma
    if config.n_step > 1:
        total, num = length * weight.shape[0], jnp.uint32(weight.shape[0])
        numbers = jnp.arange(total, dtype=jnp.uint32)
        later = jnp.arange(config.n_step, dtype=jnp.uint32) * num
        every = jnp.minimum(numbers[None] + later[:, None], jnp.uint32(total - 1))
        is_cut = steps.truncated | ((numbers >= total - num) & ~terminated)
        window = (x[every] for x in (reward, terminated, is_cut))
        reward, discount, terminated, last = ring.sum_rewards(
            tuple(window), numbers, later, config.gamma
        )
    obs: Any = Now(rows)
    next_obs: Any = Next(rows, last)
    return Batch(
        obs=obs,
        action=steps.action,
        reward=reward,
        next_obs=next_obs,
        discount=jnp.where(terminated, 0.0, discount),
        weight=jnp.tile(weight, length),
    )


def recall(
    memory: Memory, learner: Any, prepare: Callable, before: Any, played: rollout.Played
) -> rollout.Played:
    """Return a rollout with the critics' memories; see `Memory.recall`."""
    core = {CRITIC_CORE: learner.params["critics"][CORE]}
    return memory.recall(core, before, prepare(played.transitions.obs), played)


def by_sequence(config: Any, learn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a gradient step that reports what the priorities of sequences are."""

    def learn_sequences(*given: Any) -> tuple[Any, Array, Metrics]:
        learner, td_error, metrics = learn(*given)
        each = td_error.reshape(config.sequence_length, -1)
        return learner, batches.sequence_priority(each, ETA), metrics

    return learn_sequences

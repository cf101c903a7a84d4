"""The memory of an agent: its fields, its networks, and what learning sees of it.

A memory carries `h_t = core(h_{t-1}, o_t)` along the episode, and actor, critic or
action values are heads on it. Three rules follow from that:

* `h_{-1} = 0` before an episode's first observation. It is cleared by the flag of the
  step that *precedes* the observation, in acting and in learning alike. (Learning with
  the flag that follows trains another network than the one that acted.)
* A gradient step runs the memory over whole sequences again, from the memory with
  which each began, so a minibatch is some sequences with all their steps. Gradients
  stop at the start of a sequence.
* A time limit bootstraps on `V(core(h_t, o'_{t+1}))`: the observation before the reset,
  seen by the memory of the episode that it belongs to.

What the critic alone sees must never get into the memory on which actions are chosen.
So a critic with other keys of the observation than the actor's has a second memory of
the same kind and size, with parameters of its own:

    h_t = GRU(h_{t-1}, o_t)      pi(a | h_t)     o_t by actor_keys
    g_t = GRU'(g_{t-1}, s_t)     V(g_t)          s_t by critic_keys

This is the asymmetric actor-critic of Pinto et al. (2018, arXiv:1710.06542) with the
two recurrent networks of OpenAI et al. (2018, arXiv:1808.00177). A value of the present
state alone, without a memory, would bias the policy's gradient (Baisero & Amato 2022,
arXiv:2105.11674). The second memory is of no use to whoever acts: it runs over a
rollout after it was played, and no policy has it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax

from purerl import networks
from purerl.accelerator.kernels import forget
from purerl.acting import rollout
from purerl.acting.rollout import Memories, of_actor
from purerl.algorithms import network_config
from purerl.algorithms.network_config import ObservedConfig
from purerl.config import config_dataclass, is_auto, number_of, static
from purerl.fields import AUTO, NON_NEGATIVE, POSITIVE, SIZES, WIDTH, Check
from purerl.learning import sequences
from purerl.learning.sequences import Sequences
from purerl.networks import memories, observe
from purerl.networks.memories import Kind
from purerl.types import PyTree

NONE = "none"
MEMORY = Check(
    lambda x: (
        isinstance(x, nn.Module)
        or (isinstance(x, str) and x in (NONE, *memories.NAMES))
    ),
    f"must be one of none, {', '.join(memories.NAMES)}, a memory module such as "
    "purerl.networks.memories.LRU(64), or its import path such as "
    "purerl.networks.memories:LRU(features=64)",
)
CORE = "core"
CRITIC_CORE = "critic_core"
"""The name of the parameters of a memory that is the critic's own."""
CRITIC_FEATURES = "<features of the critic>"
"""The key of what the critic remembers, beside what the actor does."""


def has_memory(config: Any) -> bool:
    """Return whether an algorithm with a config remembers the episode."""
    memory = getattr(config, "memory", NONE)
    return isinstance(memory, nn.Module) or memory != NONE


@config_dataclass
class MemoryFields(ObservedConfig):
    """Fields of a memory between the torso and the heads."""

    memory: Any = static(
        NONE,
        f"Memory after the torso: none, {', '.join(memories.NAMES)}; or a module of "
        "sequences, or its import path.",
        MEMORY,
    )
    memory_size: int = static(128, "Units of a memory by name.", WIDTH)
    head_sizes: tuple[int, ...] = static(
        (), "Units of each hidden layer between the memory and its heads.", SIZES
    )
    sequence_length: int = static(
        AUTO,
        "Steps of a sequence from which a memory learns; num_steps where it is auto.",
        POSITIVE,
    )
    burn_in: int = static(
        0, "Steps before a sequence that only update its stored memory.", NON_NEGATIVE
    )


@config_dataclass
class MemoryConfig(MemoryFields):
    """Fields of an algorithm that learns from rollouts and may have a memory."""

    @property
    def samples_per_update(self) -> int:
        """The number of steps, or of sequences, from which minibatches are drawn."""
        if not has_memory(self):
            return self.steps_per_update
        if is_auto(self.sequence_length):
            return self.num_envs
        return self.steps_per_update // self.sequence_length

    @property
    def sequential_steps(self) -> int:
        """Dependent operations of one update; a gradient step runs through time too."""
        config: Any = self
        num_steps = in_time = number_of(config, "num_steps")
        if not has_memory(self):
            in_time = 1
        elif not is_auto(self.sequence_length):
            in_time = self.sequence_length + self.burn_in
        gradient_steps = number_of(config, "num_epochs")
        return (
            num_steps + gradient_steps * number_of(config, "num_minibatches") * in_time
        )


class Memory(NamedTuple):
    """The networks of a memory.

    Attributes:
        core: Network from observations to memories.
        kind: Kind of the memory: its beginning, and the part that heads see.
        critic_core: Network from observations to the critic's own memories; None where
            the critic reads those of `core`.
    """

    core: Any
    kind: Kind
    critic_core: Any = None

    def blank(self, num_envs: int) -> PyTree:
        """Return what a state remembers of `[B]` episodes that are about to begin."""
        zeros = self.kind.blank((num_envs,))
        return zeros if self.critic_core is None else Memories(zeros, zeros)

    def head_shape(self, shape: Any) -> Any:
        """Return the shape of what `seen` returns of observations of a shape."""
        has_own = self.critic_core is not None
        return observe.head_shape(self.kind.size, shape, has_own)

    def seen(self, memory: PyTree, obs: Any) -> Any:
        """Return what heads take: memories `[..., H]`, beside the mask of `obs` if any.

        Args:
            memory: Memories with the observation in them; with `critic_core` those of
                both, of which the critic's is None where only the actor is asked.
            obs: Features of the observation.
        """
        read = self.kind.read
        if self.critic_core is None:
            return observe.beside_mask(read(memory), obs)
        features = observe.beside_mask(read(memory.actor), obs, always=True)
        if memory.critic is None:
            return features
        return {**features, CRITIC_FEATURES: read(memory.critic)}

    def seen_by_actor(self, memory: PyTree, obs: Any) -> Any:
        """Return what the actor takes of its own memory, as `seen` does of both."""
        own = memory if self.critic_core is None else Memories(memory, None)
        return self.seen(own, obs)

    def judged(self, params: PyTree, memory: PyTree, obs: Any) -> PyTree:
        """Return what the critic sees when an observation follows remembered ones.

        Args:
            params: Parameters by network.
            memory: Memories `[..., H]` before the observations.
            obs: `[..., *obs_shape]` prepared observations.
        """
        if self.critic_core is None:
            return self.seen(self.core.apply(params[CORE], obs, memory), obs)
        critic = self.critic_core.apply(params[CRITIC_CORE], obs, memory.critic)
        return self.seen(memory._replace(critic=critic), obs)

    def recall(
        self, params: PyTree, before: Memories, obs: Any, played: rollout.Played
    ) -> rollout.Played:
        """Return a rollout with the critic's own memories beside those of the actor.

        As with everything that a rollout leaves, nothing of them has a derivative.

        Args:
            params: Parameters with which the rollout was played.
            before: Memories before the rollout.
            obs: `[T, B, ...]` prepared observations of the rollout.
            played: The rollout, with the memories of the actor.
        """
        transitions = played.transitions
        done = transitions.terminated | transitions.truncated
        first, batch = sequences.first_of(done), transitions._replace(obs=obs)
        rows = sequences.whole(before.critic, first, batch)
        core = params[CRITIC_CORE]
        each = sequences.remember_each(self.critic_core, self.kind, core, rows)
        each = jax.lax.stop_gradient(each)
        last = forget(jax.tree.map(lambda x: x[-1], each), done[-1])
        memory, kept = Memories(played.memory, last), Memories(played.memories, each)
        return played._replace(memory=memory, memories=kept)

    def rows(
        self, config: Any, before: PyTree, played: rollout.Played, batch: Any
    ) -> Sequences:
        """Return a rollout as sequences; see `Agent.rows_of`."""
        transitions = played.transitions
        first = sequences.first_of(transitions.terminated | transitions.truncated)
        if config.sequence_length == config.num_steps:
            return sequences.whole(before, first, batch)
        lengths = config.sequence_length, config.burn_in
        return sequences.cut(before, played.memories, first, batch, *lengths)

    def samples(self, params: PyTree, rows: Sequences) -> Any:
        """Return the steps `[R, L, ...]` of sequences with what heads see as `obs`."""
        seen = jax.tree.map(sequences.swap, self.unroll(params, rows))
        return rows.batch._replace(obs=seen)

    def steps(self, params: PyTree, rows: Sequences) -> Any:
        """Return the steps `[R, L, ...]` with what heads see before and after each.

        Unlike `samples` this goes step by step, as what follows a step before any reset
        goes on from its whole memory.
        """
        obs, next_obs = jax.tree.map(
            sequences.swap, (rows.batch.obs, rows.batch.next_obs)
        )
        now = self._each(sequences.remember_each, params, rows)
        then = self.core.apply(params[CORE], next_obs, of_actor(now))
        if self.critic_core is not None:
            own = self.critic_core.apply(params[CRITIC_CORE], next_obs, now.critic)
            then = Memories(then, own)
        seen = self.seen(now, obs), self.seen(then, next_obs)
        seen, next_seen = jax.tree.map(sequences.swap, seen)
        return rows.batch._replace(obs=seen, next_obs=next_seen)

    def begun(self, params: PyTree, rows: Sequences) -> Sequences:
        """Return sequences as they are after their burn-in, and without it."""
        return rows._replace(memory=self.start(params, rows), burn_in=None)

    def start(self, params: PyTree, rows: Sequences) -> PyTree:
        """Return the memories with which sequences begin; see `sequences.start`."""
        return self._each(sequences.start, params, rows)

    def unroll(self, params: PyTree, rows: Sequences) -> Any:
        """Run over sequences; return what heads see of the memory, `[L, R, ...]`."""
        obs = jax.tree.map(sequences.swap, rows.batch.obs)
        return self.seen(self._each(sequences.remember, params, rows), obs)

    def _each(self, function: Callable, params: PyTree, rows: Sequences) -> Any:
        """What a function of `sequences` returns, of both memories where there are."""
        if self.critic_core is None:
            return function(self.core, self.kind, params[CORE], rows)
        actor, critic = (rows._replace(memory=memory) for memory in rows.memory)
        return Memories(
            function(self.core, self.kind, params[CORE], actor),
            function(self.critic_core, self.kind, params[CRITIC_CORE], critic),
        )


def build(config: Any, shape: Any) -> Memory | None:
    """Make the memory of a config; None where it has none.

    Args:
        config: Config of the agent.
        shape: Shape of the features of one observation.
    """
    if not has_memory(config):
        return None
    kind = memories.kind_of(config.memory, config.memory_size)
    critic_core = None
    if critic_has_own(config, shape):
        critic_core = kind.core(network_config.torso_of(config, shape, "critic"))
    return Memory(kind.core(network_config.torso_of(config, shape)), kind, critic_core)


def value_network(
    config: Any, memory: Memory | None, shape: Any, num_actions: int
) -> nn.Module:
    """Make the action values of observations, or of what a memory shows of them.

    Args:
        config: Config of the agent.
        memory: Memory between torso and head, if there is one.
        shape: Shape of the features of one observation.
        num_actions: Number of the actions.
    """
    shape = shape if memory is None else memory.head_shape(shape)
    is_masked = observe.has_mask(shape)
    network = network_config.whole(config, "critic", shape)
    if network is None:
        sizes, stream = getattr(config, "head_sizes", ()), None
        if memory is None:
            torso = network_config.torso_of(config, shape, "critic")
        else:
            layers = network_config.dense_layers(config, sizes)
            torso = observe.viewed(layers, shape)
        if memory is not None and getattr(config, "dueling", False):
            width = (memory.kind.size, *sizes)[-1:]
            stream = partial(network_config.dense_layers, config, width)
        network = networks.DiscreteCritic(
            torso,
            num_actions,
            stream,
            stream is not None,
            is_masked,
            config.critic_gain,
        )
    return networks.Masked(network) if is_masked else network


def critic_has_own(config: Any, shape: Any) -> bool:
    """Return whether the critic sees other keys of the observation than the actor."""
    by_actor, by_critic = (
        observe.visible(shape, network_config.keys_of(config, name))
        for name in ("actor", "critic")
    )
    return by_actor != by_critic

"""The memory of an agent, and the critic's own where it sees more than the actor.

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

from typing import Any, NamedTuple

import jax

from purerl.acting import rollout
from purerl.algorithms import memory_config, network_config
from purerl.learning import sequences
from purerl.learning.sequences import Sequences
from purerl.networks import composite
from purerl.networks.memories import Kind
from purerl.networks.recurrent import forget
from purerl.types import PyTree

CORE = "core"
CRITIC_CORE = "critic_core"
"""The name of the parameters of a memory that is the critic's own."""
CRITIC_FEATURES = "<features of the critic>"
"""The key of what the critic remembers, beside what the actor does."""


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


class Memories(NamedTuple):
    """The memories of an actor and of a critic that has its own."""

    actor: PyTree
    critic: PyTree


def build(config: Any, shape: Any) -> Memory | None:
    """Make the memory of a config; None where it has none.

    Args:
        config: Config of the agent.
        shape: Shape of the features of one observation.
    """
    if not memory_config.has_memory(config):
        return None
    kind = memory_config.kind_of(config)
    critic_core = None
    if critic_has_own(config, shape):
        critic_core = kind.core(network_config.torso_of(config, shape, "critic"))
    return Memory(kind.core(network_config.torso_of(config, shape)), kind, critic_core)


def critic_has_own(config: Any, shape: Any) -> bool:
    """Return whether the critic sees other keys of the observation than the actor."""
    by_actor, by_critic = (
        composite.visible(shape, network_config.keys_of(config, name))
        for name in ("actor", "critic")
    )
    return by_actor != by_critic


def blank(memory: Memory, num_envs: int) -> PyTree:
    """Return what a state remembers of `[B]` episodes that are about to begin."""
    zeros = memory.kind.blank((num_envs,))
    return zeros if memory.critic_core is None else Memories(zeros, zeros)


def of_actor(memory: PyTree) -> PyTree:
    """Return the memory on which actions are chosen, of those of a state."""
    return memory.actor if isinstance(memory, Memories) else memory


def seen(memory: Memory, memories: PyTree, obs: Any) -> Any:
    """Return what heads take: memories `[..., H]`, beside the mask of `obs` if any.

    Args:
        memory: Networks of the memory.
        memories: Memories with the observation in them; with `critic_core` those of
            both, of which the critic's is None where only the actor is asked.
        obs: Features of the observation.
    """
    if memory.critic_core is None:
        return composite.beside_mask(memory.kind.read(memories), obs)
    features = composite.beside_mask(memory.kind.read(memories.actor), obs, always=True)
    if memories.critic is None:
        return features
    return {**features, CRITIC_FEATURES: memory.kind.read(memories.critic)}


def seen_by_actor(memory: Memory, memories: PyTree, obs: Any) -> Any:
    """Return what the actor takes of its own memory, as `seen` does of both."""
    has_own = memory.critic_core is not None
    return seen(memory, Memories(memories, None) if has_own else memories, obs)


def judged(memory: Memory, params: PyTree, memories: PyTree, obs: Any) -> PyTree:
    """Return what the critic sees when an observation follows remembered ones.

    Args:
        memory: Networks of the memory.
        params: Parameters by network.
        memories: Memories `[..., H]` before the observations.
        obs: `[..., *obs_shape]` prepared observations.
    """
    if memory.critic_core is None:
        after = memory.core.apply(params[CORE], obs, memories)
    else:
        core = params[CRITIC_CORE]
        critic = memory.critic_core.apply(core, obs, memories.critic)
        after = memories._replace(critic=critic)
    return seen(memory, after, obs)


def recall(
    memory: Memory, params: PyTree, before: Memories, obs: Any, played: rollout.Played
) -> rollout.Played:
    """Return a rollout with the critic's own memories beside those of the actor.

    As with everything that a rollout leaves, nothing of them has a derivative.

    Args:
        memory: Networks of the memory, with the critic's core.
        params: Parameters with which the rollout was played.
        before: Memories before the rollout.
        obs: `[T, B, ...]` prepared observations of the rollout.
        played: The rollout, with the memories of the actor.
    """
    transitions = played.transitions
    done = transitions.terminated | transitions.truncated
    rows = sequences.whole(
        before.critic, sequences.first_of(done), transitions._replace(obs=obs)
    )
    core = params[CRITIC_CORE]
    each = sequences.remember_each(memory.critic_core, memory.kind, core, rows)
    each = jax.lax.stop_gradient(each)
    last = forget(jax.tree.map(lambda x: x[-1], each), done[-1])
    return played._replace(
        memory=Memories(played.memory, last), memories=Memories(played.memories, each)
    )


def start(memory: Memory, params: PyTree, rows: Sequences) -> PyTree:
    """Return the memories with which sequences begin; see `sequences.start`."""
    if memory.critic_core is None:
        return sequences.start(memory.core, memory.kind, params[CORE], rows)
    of_actor, of_critic = _by_memory(rows)
    core, critic_core = params[CORE], params[CRITIC_CORE]
    return Memories(
        sequences.start(memory.core, memory.kind, core, of_actor),
        sequences.start(memory.critic_core, memory.kind, critic_core, of_critic),
    )


def unroll(memory: Memory, params: PyTree, rows: Sequences) -> Any:
    """Run the memory over sequences, and return what heads see of it, `[L, R, ...]`.

    Args:
        memory: Networks of the memory.
        params: Parameters by network.
        rows: The sequences, from where each begins.
    """
    core, kind = memory.core, memory.kind
    if memory.critic_core is None:
        obs, found = sequences.remember(core, kind, params[CORE], rows)
        return seen(memory, found, obs)
    of_actor, of_critic = _by_memory(rows)
    obs, actor = sequences.remember(core, kind, params[CORE], of_actor)
    _, critic = sequences.remember(
        memory.critic_core, kind, params[CRITIC_CORE], of_critic
    )
    return seen(memory, Memories(actor, critic), obs)


def _by_memory(rows: Sequences) -> tuple[Sequences, Sequences]:
    """The sequences with the memories of the actor, and with those of the critic."""
    actor, critic = rows.memory
    return rows._replace(memory=actor), rows._replace(memory=critic)


def head_shape(memory: Memory, shape: Any) -> Any:
    """Return the shape of what `seen` returns of observations of a shape."""
    has_own = memory.critic_core is not None
    return composite.head_shape(memory.kind.size, shape, has_own)

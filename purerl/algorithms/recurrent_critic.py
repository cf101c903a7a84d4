"""A critic with a memory of its own, beside an actor that sees less.

As long as actor and critic of recurrent PPO see the same, one memory serves both. What
the critic alone sees must never get into the memory on which actions are chosen. So a
critic with other keys of the observation than the actor's has a second memory of the
same kind, of the same size, with parameters of its own:

    h_t = GRU(h_{t-1}, o_t)      pi(a | h_t)     o_t by actor_keys
    g_t = GRU'(g_{t-1}, s_t)     V(g_t)          s_t by critic_keys

This is the asymmetric actor-critic of Pinto et al. (2018, arXiv:1710.06542) with the
two recurrent networks of OpenAI et al. (2018, arXiv:1808.00177). A value of the present
state alone, without a memory, would bias the policy's gradient (Baisero & Amato 2022,
arXiv:2105.11674).

The second memory is of no use to whoever acts. It runs over a rollout after it was
played, and neither a policy after training nor an evaluation has it.
"""

from typing import Any, NamedTuple

import flax.linen as nn
import jax

from purerl.acting import observe, rollout
from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape
from purerl.algorithms import memory_config, network_config
from purerl.algorithms.on_policy_networks import CRITIC_CORE, make_critic
from purerl.learning import sequences
from purerl.learning.sequences import Sequences
from purerl.networks import composite
from purerl.networks.memories import Kind
from purerl.networks.recurrent import forget
from purerl.types import Array, PyTree

# The key of what the critic remembers, beside what the actor does.
_CRITIC = "<features of the critic>"


class Memories(NamedTuple):
    """The memories of an actor and of a critic that has its own.

    Attributes:
        actor: Memory on which actions are chosen.
        critic: Memory of which the critic tells the value.
    """

    actor: PyTree
    critic: PyTree


def has_own(config: Any, shape: Any) -> bool:
    """Return whether the critic sees other keys than the actor.

    Args:
        config: Config of the agent, whose keys are checked.
        shape: Shape of the features of one observation.
    """
    by_actor = composite.visible(shape, config.actor_keys)
    return by_actor != composite.visible(shape, config.critic_keys)


def check(config: Any, env: Environment) -> None:
    """Refuse a torso or a memory that does not fit what the critic alone sees.

    Args:
        config: Config of the agent, whose keys and whose actor are checked.
        env: Environment, from `resolve_env`.

    Raises:
        ConfigError: naming the module, the shapes and the remedy.
    """
    shape = obs_shape(env.observation_space(env.default_params))
    if has_own(config, shape):
        network_config.check_torso(config, env, "critic")
        memory_config.check_own(config, env, "critic")


def make_head(config: Any, size: int) -> nn.Module:
    """Make the network from what `seen` returns to values.

    Args:
        config: Config of the agent.
        size: Number of features of a memory.
    """
    layers = network_config.dense_layers(config, config.head_sizes)
    return composite.Part(make_critic(config, (size,), layers), _CRITIC)


def of_actor(memory: PyTree) -> PyTree:
    """Return the memory on which actions are chosen, of those of a state."""
    return memory.actor if isinstance(memory, Memories) else memory


def seen(kind: Kind, memory: Memories, obs: Any) -> dict[str, Array]:
    """Return what the heads take: both memories, beside the mask of `obs` if any.

    Args:
        kind: Kind of the memories.
        memory: Memories `[..., H]`; that of the critic is None where only the actor is
            asked.
        obs: Features of the observation.
    """
    features = composite.beside_mask(kind.read(memory.actor), obs, always=True)
    if memory.critic is None:
        return features
    return {**features, _CRITIC: kind.read(memory.critic)}


def recall(parts: Any, state: Any, played: rollout.Played) -> rollout.Played:
    """Return a rollout with the critic's memories beside those of the actor.

    As with everything that a rollout leaves, nothing of them has a derivative.

    Args:
        parts: Networks of recurrent PPO, with the critic's core.
        state: State with which the rollout was played.
        played: The rollout, with the memories of the actor.
    """
    transitions = played.transitions
    done = transitions.terminated | transitions.truncated
    obs = observe.prepare(parts.heads, state.obs_moments, transitions.obs)
    rows = sequences.whole(
        state.memory.critic, sequences.first_of(done), transitions._replace(obs=obs)
    )
    params = state.params[CRITIC_CORE]
    each = sequences.remember_each(parts.critic_core, parts.kind, params, rows)
    each = jax.lax.stop_gradient(each)
    last = forget(jax.tree.map(lambda x: x[-1], each), done[-1])
    return played._replace(
        memory=Memories(played.memory, last), memories=Memories(played.memories, each)
    )


def start(parts: Any, params: PyTree, rollouts: Sequences) -> Memories:
    """Return both memories with which sequences begin; see `sequences.start`.

    Args:
        parts: Networks of recurrent PPO, with the critic's core.
        params: Parameters of both cores, by name.
        rollouts: The sequences, with memories of both.
    """
    of_actor, of_critic = _by_memory(rollouts)
    core, critic_core = params["core"], params[CRITIC_CORE]
    return Memories(
        sequences.start(parts.core, parts.kind, core, of_actor),
        sequences.start(parts.critic_core, parts.kind, critic_core, of_critic),
    )


def remember(
    parts: Any, params: PyTree, rollouts: Sequences
) -> tuple[PyTree, Memories]:
    """Run both memories over sequences, each from where it begins.

    Args:
        parts: Networks of recurrent PPO, with the critic's core.
        params: Parameters of both cores, by name.
        rollouts: The sequences, with memories of both.

    Returns:
        Observations `[L, R, ...]`, and the memories with each of them.
    """
    of_actor, of_critic = _by_memory(rollouts)
    obs, actor = sequences.remember(parts.core, parts.kind, params["core"], of_actor)
    _, critic = sequences.remember(
        parts.critic_core, parts.kind, params[CRITIC_CORE], of_critic
    )
    return obs, Memories(actor, critic)


def _by_memory(rollouts: Sequences) -> tuple[Sequences, Sequences]:
    """The sequences with the memories of the actor, and with those of the critic."""
    actor, critic = rollouts.memory
    return rollouts._replace(memory=actor), rollouts._replace(memory=critic)

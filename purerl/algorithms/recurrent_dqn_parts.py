"""The networks of recurrent DQN, and what they see; see `recurrent_dqn`."""

from functools import partial
from typing import Any, NamedTuple

from purerl import auto, networks
from purerl.acting import exploration, rollout
from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape
from purerl.algorithms import memory_config, network_config
from purerl.algorithms.recurrent_dqn_config import RecurrentDQNConfig
from purerl.networks import composite
from purerl.networks.memories import Kind
from purerl.replay import sequences as replay
from purerl.replay.batches import Replay
from purerl.types import Array, PyTree


class Parts(NamedTuple):
    """The parts of recurrent DQN, bound once in Python.

    Attributes:
        config: Config with the environment's numbers, `auto` resolved.
        stepper: Environments.
        obs_space: Observation space of the environment.
        num_actions: Number of actions.
        core: Network from observations to memories.
        kind: Kind of the memory: its beginning, and the part that the head sees.
        head: Network from memories to values.
        replay: Functions that sample sequences.
    """

    config: RecurrentDQNConfig
    stepper: rollout.Stepper
    obs_space: Any
    num_actions: int
    core: Any
    kind: Kind
    head: Any
    replay: Replay


def build(
    config: RecurrentDQNConfig, env: Environment, axis_name: str | None = None
) -> Parts:
    """Build networks, environment and replay of a config.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread.
    """
    config = auto.resolve(config, env)
    stepper = rollout.make_stepper(config, env, axis_name)
    obs_space = env.observation_space(stepper.params)
    action_space: Any = env.action_space(stepper.params)
    kind = memory_config.kind_of(config)
    shape, num_actions = obs_shape(obs_space), int(action_space.n)
    return Parts(
        config=config,
        stepper=stepper,
        obs_space=obs_space,
        num_actions=num_actions,
        core=kind.core(network_config.torso_of(config, shape)),
        kind=kind,
        head=_head(config, kind.size, shape, num_actions),
        replay=replay.replay_of(config, axis_name),
    )


def _head(config: RecurrentDQNConfig, size: int, of_obs: Any, num_actions: int) -> Any:
    """The network from memories of `size` numbers to a value per action."""
    shape = composite.head_shape(size, of_obs)
    is_masked = composite.has_mask(shape)
    network = network_config.whole(config, "critic", shape)
    if network is None:
        layers = network_config.dense_layers(config, config.head_sizes)
        width = (size, *config.head_sizes)[-1:]
        stream = partial(network_config.dense_layers, config, width)
        network = networks.DiscreteCritic(
            composite.viewed(layers, shape),
            num_actions,
            stream if config.dueling else None,
            gain=config.critic_gain,
            masked=is_masked,
        )
    return networks.Masked(network) if is_masked else network


def draw_coin(parts: Parts, key: Array, shape: tuple[int, ...]) -> exploration.Coin:
    """Draw the randomness of epsilon-greedy actions.

    Args:
        parts: Networks, environments and config; see `build`.
        key: Random key, consumed.
        shape: Shape of the coins, one for each environment and step.
    """
    choices = exploration.choices_of(obs_shape(parts.obs_space), parts.num_actions)
    return exploration.draw_coin(key, shape, num_actions=choices)


def values(
    parts: Parts, params: PyTree, obs: Any, memory: PyTree
) -> tuple[Array, PyTree]:
    """Return the values `[..., n]` of all actions, and the memory with `obs` in it.

    Args:
        parts: Networks, environments and config; see `build`.
        params: Parameters of `core` and of the head, `q`.
        obs: Features `[..., *obs_shape]` of observations.
        memory: Memory `[..., ...]` of the episodes before them.
    """
    memory = parts.core.apply(params["core"], obs, memory)
    q: Any = parts.head.apply(params["q"], seen(parts, memory, obs))
    return q, memory


def seen(parts: Parts, memory: PyTree, obs: Any) -> Any:
    """Return what the head sees: a memory, beside the mask of `obs` if it has one.

    Args:
        parts: Networks, environments and config; see `build`.
        memory: Memory with the observations in it.
        obs: Features of the observations.
    """
    return composite.beside_mask(parts.kind.read(memory), obs)

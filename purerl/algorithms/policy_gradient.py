"""Actor and critic of the algorithms that follow the gradient of a policy.

PPO, PLR and VPG have all of it, LPG the actor. Here are their fields, what these refuse
together, the networks, and the values of a rollout (`estimate`). How a rollout is
collected and what surrounds an update is `on_policy`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from purerl import networks
from purerl.accelerator.kernels import traced_for_cpu
from purerl.acting import rollout
from purerl.acting.rollout import Transition
from purerl.algorithms import network_config, on_policy
from purerl.algorithms.memory import CRITIC_FEATURES, Memory
from purerl.algorithms.network_config import ActorConfig
from purerl.algorithms.on_policy import Agent, Behaviour, OnPolicyState
from purerl.config import config_dataclass, dynamic, static
from purerl.envs.base import Environment
from purerl.fields import FRACTION, NON_NEGATIVE, POSITIVE, one_of
from purerl.learning import averages, optimiser
from purerl.learning.returns import gae
from purerl.losses.value import SquaredError
from purerl.networks import observe
from purerl.networks.distributions import Head, make_policy_head
from purerl.networks.observe import obs_shape
from purerl.optimisers.first_order import Adam
from purerl.types import Array, PyTree

# Numbers of the observations whose values an accelerator computes in one batch with the
# values of those that follow: half the kernels, and twice the memory while it lasts.
MOST_AT_ONCE = 2**18
POLICIES = ("auto", "categorical", "gaussian", "tanh_gaussian")


@config_dataclass
class PolicyGradientConfig(ActorConfig):
    """Fields that every on-policy actor-critic has."""

    num_steps: int = static(128, "Steps per environment and update.", POSITIVE)
    gae_lambda: float = dynamic(0.95, "Trace decay of the advantage.", FRACTION)
    value_loss: Any = dynamic(SquaredError(), "Loss of the critic.")
    entropy_coef: float = dynamic(0.0, "Weight of the entropy bonus.", NON_NEGATIVE)
    optimiser: Any = dynamic(Adam(), "Optimiser of the networks.")
    anneal_learning_rate: bool = static(False, "Decay the step size linearly to 0.")
    normalize_rewards: bool = static(False, "Divide rewards by the std of returns.")
    clip_rewards: float = dynamic(10.0, "Largest normalised reward.", POSITIVE)
    policy: str = static("auto", "Distribution of actions.", one_of(*POLICIES))
    log_std_init: float = static(0.0, "Initial log standard deviation.")
    state_dependent_std: bool = static(False, "Let the actor output the log std too.")
    shared_torso: bool = static(False, "Give actor and critic one common torso.")


def make_critic(config: Any, shape: Any, torso: nn.Module | None = None) -> nn.Module:
    """Make the network from observations to values; arguments as of `make_actor`."""
    own = network_config.whole(config, "critic", shape)
    if own is not None:
        return own
    torso = torso or network_config.torso_of(config, shape, "critic")
    return networks.Critic(torso, config.critic_gain)


def make_agent(
    config: Any,
    env: Environment,
    axis_name: str | None = None,
    make_critic: Callable[[Any, Any], nn.Module] = make_critic,
) -> Agent:
    """Bind actor, critic and environments of a config.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread.
        make_critic: `(config, shape of features) -> critic` of an agent without memory.
    """
    agent = on_policy.make_agent(config, env, axis_name)
    config, memory, shape = agent.config, agent.memory, obs_shape(agent.obs_space)
    policy = getattr(config, "policy", "auto")
    head = make_policy_head(env.action_space(agent.stepper.params), policy)
    if memory is None:
        actor, critic = make_actor(config, head, shape), make_critic(config, shape)
    else:
        actor, critic = _heads_on(memory, config, head, shape)
    on_features = None
    if config.shared_torso:
        on_features, critic = of_features(actor, shape), of_features(critic, shape)
    return agent._replace(
        networks={"actor": actor, "critic": critic},
        behaviour=behaviour_of(head),
        on_features=on_features,
        head=head,
    )


def behaviour_of(head: Head) -> Behaviour:
    """Return how actions are drawn from an actor's distribution, noise by noise."""

    def explore(outputs: Any, obs: Any, noise: Any) -> tuple[Any, Any, Any]:
        del obs
        raw = head.choose(outputs, noise)
        return raw, outputs, head.to_env(raw)

    def decide(outputs: Any, obs: Any, key: Array | None) -> Array:
        del obs
        return head.to_env(
            head.mode(outputs) if key is None else head.sample(outputs, key)
        )

    return Behaviour("actor", head.noise, lambda update: explore, decide, head.log_prob)


def make_actor(
    config: Any, head: Head, shape: Any, torso: nn.Module | None = None
) -> nn.Module:
    """Make the network from observations to what the head takes.

    Args:
        config: Config of the agent.
        head: Distribution of the actions.
        shape: Shape of the features of one observation.
        torso: Torso to use in place of the config's own.
    """
    finish = None if head.is_discrete else lambda outputs: networks.Gaussian(*outputs)
    actor = network_config.whole(config, "actor", shape, finish)
    if actor is None:
        torso = torso or network_config.torso_of(config, shape, "actor")
        num, gain = head.num_outputs, config.actor_gain
        if head.is_discrete:
            actor = networks.CategoricalActor(torso, num, gain)
        elif config.state_dependent_std:
            actor = networks.StateGaussianActor(
                torso, num, gain=gain, log_std_init=config.log_std_init
            )
        else:
            actor = networks.GaussianActor(torso, num, config.log_std_init, gain)
    return networks.Masked(actor) if observe.has_mask(shape) else actor


def _heads_on(
    memory: Memory, config: Any, head: Head, shape: Any
) -> tuple[nn.Module, nn.Module]:
    """Actor and critic of what a memory shows of observations."""
    seen = memory.head_shape(shape)
    layers = network_config.dense_layers(config, config.head_sizes)
    actor = make_actor(config, head, seen, observe.viewed(layers, seen))
    if memory.critic_core is None:
        return actor, make_critic(config, seen, observe.viewed(layers, seen))
    critic = make_critic(config, (memory.kind.size,), layers)
    return actor, observe.View(critic, CRITIC_FEATURES)


def of_features(network: nn.Module, shape: Any) -> nn.Module:
    """Return a network with the same head, of what `Agent.inputs` returns."""
    if isinstance(network, networks.Masked):
        return network.clone(module=of_features(network.module, shape))
    heads = observe.head_shape(1, shape)
    return network.clone(torso=observe.viewed(networks.Features(), heads))


class Estimates(NamedTuple):
    """The critic's estimates on a rollout, `[T, B, ...]`.

    Attributes:
        obs: Prepared observations.
        reward: Reward, scaled if the config says so.
        value: Values `V(s_t)`.
        next_value: Values `V(s'_t)` of the observations before any reset.
    """

    obs: Array
    reward: Array
    value: Array
    next_value: Array


class Batch(NamedTuple):
    """The samples of a gradient step, `[N, ...]`; observations are prepared already."""

    obs: Array
    action: Array
    log_prob: Array
    value: Array
    advantage: Array
    target: Array


def estimate(
    agent: Agent, state: OnPolicyState, played: rollout.Played
) -> tuple[Estimates, averages.RewardScale]:
    """Compute the values and rewards of a rollout, from which advantages are made.

    Returns:
        Estimates `[T, B, ...]`, and the statistics of returns with this rollout in.
    """
    config, transitions = agent.config, played.transitions
    critic, params, memory = agent.critic, state.params, agent.memory

    def value_of(seen: Any) -> Any:
        return critic.apply(params["critic"], agent.inputs(params, seen))

    prepare = partial(observe.prepare, agent, state.obs_moments)
    obs = prepare(transitions.obs)
    # A time limit bootstraps on the value of the observation before any reset.
    next_obs = prepare(transitions.next_obs)
    is_small = isinstance(obs, Array) and obs.size <= MOST_AT_ONCE
    if memory is not None:
        # Memories are those of the episode that `next_obs` ends or goes on with.
        now = memory.seen(played.memories, obs)
        then = memory.judged(params, played.memories, next_obs)
        value, next_value = value_of(now), value_of(then)
    elif is_small and not traced_for_cpu():
        value, next_value = value_of(jnp.stack([obs, next_obs]))
    else:
        value, next_value = value_of(obs), value_of(next_obs)
    reward, scale = transitions.reward, state.reward_scale
    if config.normalize_rewards:
        scale, reward = averages.scale_rewards(
            scale,
            reward,
            transitions.terminated | transitions.truncated,
            gamma=config.gamma,
            clip=config.clip_rewards,
            axis_name=agent.axis_name,
        )
    return Estimates(obs, reward, value, next_value), scale


def advantages(agent: Agent, seen: Estimates, transitions: Transition) -> Array:
    """Return the generalised advantage estimates of a rollout, `[T, B]`."""
    return gae(
        seen.reward,
        seen.value,
        seen.next_value,
        transitions.terminated,
        transitions.truncated,
        gamma=agent.config.gamma,
        gae_lambda=agent.config.gae_lambda,
    )


def outputs(agent: Agent, params: PyTree, seen: Any) -> tuple[Any, Array, PyTree]:
    """Return what the head takes, the values `[N]`, and how active the units were.

    Args:
        agent: Networks, environments and config.
        params: Parameters of `actor` and `critic`.
        seen: Prepared observations or what a memory shows, `[N, ...]`.

    Returns:
        Outputs, values, and the mean absolute output of every unit by the names of the
        networks; None where the optimiser does not see it.
    """
    if agent.forward is not None:
        return agent.forward(params, seen)
    inputs = agent.inputs(params, seen)
    actor, critic = agent.on_features or agent.actor, agent.critic
    if not optimiser.sees_activity(agent.config.optimiser):
        found = actor.apply(params["actor"], inputs)
        return found, critic.apply(params["critic"], inputs), None  # type: ignore[return-value]
    found, of_actor = _noted(actor, params["actor"], inputs)
    value, of_critic = _noted(critic, params["critic"], inputs)
    return found, value, {"actor": of_actor, "critic": of_critic}


def _noted(network: nn.Module, params: PyTree, inputs: Any) -> tuple[Any, PyTree]:
    """Return the outputs of a network, and what it notes of its units."""
    found, noted = network.apply(params, inputs, mutable=networks.COLLECTION)
    return found, noted.get(networks.COLLECTION, {})

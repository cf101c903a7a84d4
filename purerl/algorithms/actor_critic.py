"""The common part of TD3, SAC and MPO: fields, networks, acting, optimisers.

They differ in what the critics are fitted to and how the policy maximises them.
Policies, critics and the replay buffer know continuous actions in [-1, 1] only; the
environment gets them scaled to its bounds. Discrete actions have a policy of logits,
and critics that value all of them at once. With a memory, actor and critics are the
same networks on memories in place of observations; see `replayed_memory`.

Parameters stay layers inside an update, not one flat vector as in `dqn`: layers of 256
units fill a kernel each, and taking them out of a vector would copy them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from purerl import networks
from purerl.accelerator import twins
from purerl.acting import rollout
from purerl.algorithms import (
    checks,
    network_config,
    off_policy,
    replay_config,
    replayed_memory,
)
from purerl.algorithms import memory as memories
from purerl.algorithms.memory import NONE, MemoryFields
from purerl.algorithms.network_config import ActorConfig
from purerl.algorithms.off_policy import Agent, Hooks, Learner, State
from purerl.algorithms.pieces import reject_stateless_act
from purerl.algorithms.replay_config import OffPolicyConfig
from purerl.config import ConfigError, check_idle, config_dataclass, dynamic, static
from purerl.envs.base import Environment
from purerl.envs.spaces import without_far_ends
from purerl.fields import (
    FRACTION,
    POSITIVE_OR_NONE,
    SIZES,
    Check,
)
from purerl.keys import init_keys
from purerl.learning import optimiser
from purerl.losses import extra
from purerl.networks import layers, observe
from purerl.networks.distributions import (
    Gaussian,
    check_real,
    is_discrete,
    log_tanh_slope,
)
from purerl.optimisers import Adam
from purerl.replay import batches
from purerl.types import Algorithm, Array, PyTree, Recurrence

LARGEST_LOG_STD = 2.0
LOG_STD = Check(lambda x: x < LARGEST_LOG_STD, "must be less than 2")
# From the name of some parameters to the prefix of their fields in a config.
_PREFIXES = {
    "actor": "actor",
    "critics": "critic",
    "log_temperature": "temperature",
    "duals": "dual",
}


@config_dataclass
class ActorCriticConfig(OffPolicyConfig, ActorConfig, MemoryFields):
    """Fields of actor-critics with a replay buffer."""

    env: Any = "Pendulum-v1"
    buffer_size: int = 1_000_000
    learning_rate: float = 3e-4
    actor_learning_rate: float | None = dynamic(
        None, "Step size of the policy; None takes learning_rate.", POSITIVE_OR_NONE
    )
    critic_learning_rate: float | None = dynamic(
        None, "Step size of the critics; None takes learning_rate.", POSITIVE_OR_NONE
    )
    tau: float = dynamic(
        0.005, "Share of the online networks in an update of the targets.", FRACTION
    )
    optimiser: Any = dynamic(Adam(), "Optimiser of the networks.")
    hidden_sizes: tuple[int, ...] = static(
        (256, 256), "Units of each hidden layer.", SIZES
    )
    critic_hidden_sizes: tuple[int, ...] = static(
        (), "Units of each hidden layer of critics; () takes hidden_sizes.", SIZES
    )
    memory: Any = NONE
    memory_size: int = 128
    head_sizes: tuple[int, ...] = (256,)
    sequence_length: int = 16
    burn_in: int = 8


def validate(config: Any, env: Environment) -> None:
    """Check the fields of an actor-critic, and what it cannot act or learn in.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    _check_sequences(config)
    replay_config.validate(config)
    space: Any = env.action_space(env.default_params)
    is_choice, has_std = hasattr(space, "n"), hasattr(config, "log_std_min")
    if is_choice and has_std:
        num = int(space.n)
        outputs, words = (num,), f"logits of {num} actions"
    elif is_discrete(space):
        needed = "continuous actions"
        if has_std:
            needed += ", or one discrete action at a time"
        other = checks.instead_of_values(space)
        raise ConfigError(
            f"{type(config).__name__} needs {needed}, got {space} of {env.name}; use "
            f"{'DQNConfig or SACConfig' if is_choice else other}."
        )
    else:
        _check_bounds(config, env, space)
        num = int(np.prod(space.shape, dtype=int))
        outputs, words = (num,), f"actions of {num} numbers, before their tanh"
        if has_std:
            outputs = [(num,), (num,)]
            words = f"a pair of mean and log standard deviation of {num} numbers"
    actor, judged = (outputs, words), None if is_choice else (num,)
    values, words = (
        ((num,), f"values of {num} actions") if is_choice else ((), "a value")
    )
    if outputs := num_outputs(config):
        values, words = (*values, outputs), f"{outputs} numbers of the return each"
    wanted = {"actor": actor, "critic": (values, words)}
    checks.check_networks(config, env, wanted, judged)


def _check_sequences(config: Any) -> None:
    """Refuse sequences that do not fit rounds and batches."""
    if not memories.has_memory(config):
        idle = "sequence_length", "burn_in"
        check_idle(config, idle, "memory", "memory='gru'")
        return
    if config.num_steps != 1:
        raise ConfigError(
            f"num_steps must be 1 with a memory, got {config.num_steps}: a round is a "
            "sequence of every environment; set sequence_length."
        )
    if config.batch_size % config.sequence_length:
        raise ConfigError(
            f"batch_size must be divisible by sequence_length "
            f"({config.sequence_length}) with a memory, got {config.batch_size}."
        )
    replay_config.validate_sequences(config)


def _check_bounds(config: Any, env: Environment, space: Any) -> None:
    """Refuse actions to whose bounds nothing can be scaled."""
    check_real(space)
    ends = [without_far_ends(getattr(space, end, np.inf)) for end in ("low", "high")]
    if not all(np.all(np.isfinite(end)) for end in ends):
        raise ConfigError(
            f"{type(config).__name__} needs bounded actions of one box, which it "
            f"scales from [-1, 1], got {space} of {env.name}; bound them in a wrapper, "
            "or use PPOConfig."
        )


def build(config: Any, env: Environment, axis_name: str | None = None) -> Agent:
    """Build networks, environment and replay of a config.

    Args:
        axis_name: Mapped axis over which this agent's environments are spread.
    """
    if getattr(config, "crossq", False) and axis_name is not None:
        raise ConfigError(
            "crossq must be False where one agent is spread over devices: the "
            "statistics of a batch would be those of one device's part."
        )
    has_memory = memories.has_memory(config)
    replay = replayed_memory.make_replay if has_memory else batches.of_steps
    agent = off_policy.make_agent(config, env, axis_name, "auto", replay)
    config, head = agent.config, agent.head
    shape, num = observe.obs_shape(agent.obs_space), head.num_outputs
    memory = replayed_memory.build(config, shape) if has_memory else None
    if memory is not None:
        shape = observe.head_shape(memory.kind.size, shape)
    nets = {
        "actor": make_actor(config, shape, num, head.is_discrete),
        "critics": make_critics(config, shape, num if head.is_discrete else None),
    }
    if memory is not None:
        nets = replayed_memory.with_memories(memory, **nets)
    return agent._replace(**nets)


def layers_of(config: Any, shape: Any, field: str) -> nn.Module:
    """Make what a network has below its head: a torso, or the layers on a memory."""
    if memories.has_memory(config):
        dense = network_config.dense_layers(config, config.head_sizes)
        return observe.viewed(dense, shape)
    sizes = None
    if field == "critic":
        sizes = config.critic_hidden_sizes or config.hidden_sizes
    return network_config.torso_of(config, shape, field, sizes)


def make_actor(config: Any, shape: Any, num: int, is_discrete: bool) -> nn.Module:
    """Make the policy of `num` discrete actions or dimensions.

    It returns logits; or a mean and a log standard deviation, which is clipped, where
    the config has `log_std_min`; or else an action in [-1, 1].
    """
    low, high = getattr(config, "log_std_min", None), LARGEST_LOG_STD

    def finish(outputs: Any) -> Any:
        if is_discrete:
            return outputs
        if low is None:
            return jnp.tanh(outputs)
        return Gaussian(outputs[0], jnp.clip(outputs[1], low, high))

    actor = network_config.whole(config, "actor", shape, finish)
    if actor is None:
        torso, gain = layers_of(config, shape, "actor"), config.actor_gain
        if is_discrete:
            actor = networks.CategoricalActor(torso, num, gain)
        elif low is None:
            actor = networks.TanhActor(torso, num, gain)
        else:
            if getattr(config, "crossq", False):
                torso = torso.clone(batch_norm=True)
            actor = networks.StateGaussianActor(torso, num, low, high, gain)
    is_masked = is_discrete and observe.has_mask(shape)
    return networks.Masked(actor) if is_masked else actor


def make_critics(config: Any, shape: Any, num_actions: int | None = None) -> nn.Module:
    """Make the critics: two side by side, or an ensemble in one.

    What is no vector, and what a torso of the user's own sees, is made features before
    it stands beside the action, as a memory has done already.

    Args:
        num_actions: Discrete actions, which are all valued at once; None where
            the action is an input.
    """
    has_memory = memories.has_memory(config)
    sizes = config.critic_hidden_sizes or config.hidden_sizes

    def make() -> nn.Module:
        own = network_config.whole(config, "critic", shape)
        if own is not None:
            return own
        if num_actions is not None:
            torso = layers_of(config, shape, "critic")
            gain, outputs = config.critic_gain, num_outputs(config)
            return networks.DiscreteCritic(
                torso, num_actions, gain=gain, num_outputs=outputs
            )
        chosen = network_config.chosen_torso(config, "critic")
        return networks.ActionCritic(
            config.head_sizes if has_memory else sizes,
            config.activation,
            config.layer_norm,
            None if has_memory else network_config.encoder_of(config, shape),
            network_config.dtype_of(config),
            config.torso_gain,
            config.critic_gain,
            num_outputs(config) or 0,
            getattr(config, "crossq", False),
            "simba" if chosen == "simba" and not has_memory else "mlp",
        )

    if is_stacked(config):
        return networks.Ensemble(make, config.num_critics)
    return networks.Twin(make)


def num_outputs(config: Any) -> int | None:
    """Return the quantiles or atoms of a critic's value; None for one number."""
    quantiles = getattr(config, "num_quantiles", 0)
    return quantiles or getattr(config, "num_atoms", 0) or None


def uses_subset(config: Any) -> bool:
    """Return whether the critics of the target are drawn anew in every step."""
    return 0 < getattr(config, "critic_subset", 0) < config.num_critics


def is_stacked(config: Any) -> bool:
    """Return whether the critics' parameters lie side by side in one array each."""
    return getattr(config, "num_critics", 2) != 2 or uses_subset(config)


def init(
    agent: Agent,
    key: Array,
    targets: tuple[str, ...],
    **more: PyTree,
) -> State:
    """Make fresh networks, their copies as targets, and an empty buffer.

    Args:
        key: Random key of the agent.
        targets: Names of the parameters that have a target network.
        **more: What is learned beside `actor` and `critics`, by name.
    """
    keys = init_keys(key, 3)
    obs = observe.example(agent.obs_space)
    action = jnp.zeros((1, agent.head.num_outputs))
    judged = [obs] if agent.head.is_discrete else [obs, action]
    made = {"actor": (agent.actor, [obs]), "critics": (agent.critics, judged)}
    params = replayed_memory.init_params(keys[:2], made)
    seen = obs, obs
    if agent.memory is not None:
        seen = replayed_memory.example(agent.memory, obs)
    params = off_policy.with_heads(agent, params, seen, key) | more
    learner = Learner(
        params=params,
        target_params={name: params[name] for name in targets},
        opt_state={
            name: optimiser_of(agent.config, name).init(params[name]) for name in params
        },
    )
    memory = ()
    if agent.memory is not None:
        num_envs = rollout.per_device(agent.config.num_envs, agent.stepper.axis_name)
        memory = agent.memory.blank(num_envs)
    return off_policy.init_state(agent, key, keys[2], learner, memory)


def enter(
    make_hooks: Callable[[Agent], Hooks],
    agent: Agent,
    state: State,
) -> tuple[Hooks, Learner, Callable[[Learner], Learner]]:
    """Return what an update of a state works with; see `off_policy.Enter`.

    On an accelerator two critics may be one network, see `accelerator.twins`.

    Args:
        make_hooks: Function that makes an algorithm's part of the learner.
    """
    learner = Learner(state.params, state.target_params, state.opt_state)
    # Terms of the user's own see two critics as they are.
    critics = None if agent.terms else twins.as_one(agent.config, agent.critics)
    if critics is None:
        return make_hooks(agent), learner, lambda learner: learner
    hooks = make_hooks(agent._replace(critics=critics))
    return hooks, twins.joined(learner), twins.separated


def algorithm(
    agent: Agent,
    init: Callable[[Any, Array], State],
    enter: off_policy.Enter,
    decide: Callable[[Agent, Any, Array | None], Array],
) -> Algorithm:
    """Return the algorithm of an agent, with a memory or without.

    Args:
        init: Function `(agent, key) -> state`.
        enter: Function that opens an update, see `enter`.
        decide: Function `(agent, outputs of the actor, key) -> action`, see `decide`.
    """
    if agent.memory is not None:
        recurrence = Recurrence(agent.memory.kind.blank, partial(act, agent, decide))
        return off_policy.algorithm(
            agent, init, enter, reject_stateless_act, recurrence
        )

    def act_alone(
        agent: Agent, state: State, obs: Array, key: Array | None = None
    ) -> Array:
        return act(agent, decide, state, obs, (), key)[0]

    return off_policy.algorithm(agent, init, enter, act_alone)


def act(
    agent: Agent,
    decide: Callable[[Agent, Any, Array | None], Array],
    state: State,
    obs: Array,
    memory: PyTree,
    key: Array | None = None,
) -> tuple[Array, PyTree]:
    """Return an action on observations `[..., *obs_shape]`, and the memory with them.

    Args:
        obs: Observations as the environment gives them.
        memory: Memory `[..., ...]` of the episode before `obs`; () without one.
        key: Random key, consumed; without one the action is the deterministic one.
    """
    features = observe.prepare(agent, state.obs_moments, obs)
    outputs, memory = _outputs(agent, state.params["actor"], features, memory)
    return decide(agent, outputs, key), memory


def decide(agent: Agent, outputs: Any, key: Array | None) -> Array:
    """Return the action of a stochastic policy, of the outputs of its network.

    Without a key that is the likeliest, or `tanh` of the mean.
    """
    head = agent.head
    raw = head.mode(outputs) if key is None else head.sample(outputs, key)
    return head.to_env(raw if head.is_discrete else jnp.tanh(raw))


def _outputs(
    agent: Agent, params: PyTree, obs: Any, memory: PyTree
) -> tuple[Any, PyTree]:
    """Outputs of the actor on prepared observations, and the memory with them in it."""
    if agent.memory is None:
        return agent.actor.apply(params, obs), memory
    return agent.actor.step(params, obs, memory)


def sampled(agent: Agent, outputs: Any, noise: Array) -> Array:
    """Return the actions of a stochastic policy, of noise, as they are stored."""
    raw = agent.head.choose(outputs, noise)
    return raw if agent.head.is_discrete else jnp.tanh(raw)


def make_hooks(
    agent: Agent,
    learn: Callable[..., Any],
    draw_noise: rollout.Draw,
    choose: Callable[[Agent, Any, Array], Array] = sampled,
    **parts: Any,
) -> Hooks:
    """Return an algorithm's part of the learner, with a memory from sequences.

    Args:
        learn: One gradient step, see `off_policy.Hooks`.
        draw_noise: Its random numbers.
        choose: `(agent, outputs of the actor, noise) -> actions as they are stored`.
        **parts: Other fields of the hooks.
    """

    def explore(
        learner: Learner, obs: Any, memory: PyTree, noise: Array, step: Array
    ) -> tuple[Array, PyTree]:
        del step
        outputs, memory = _outputs(agent, learner.params["actor"], obs, memory)
        return choose(agent, outputs, noise), memory

    if agent.memory is not None:
        learn = replayed_memory.by_sequence(agent.config, learn)
        parts["recall"] = partial(replayed_memory.recall, agent.memory)
    return Hooks(agent, agent.head.noise, explore, draw_noise, learn, **parts)


def squash(outputs: Gaussian, noise: Array) -> tuple[Array, Array]:
    """Squash actions into [-1, 1]; return them and their log-densities there.

        a = tanh(u),   u = mu + sigma e
        log pi(a) = sum_j [log N(e_j; 0, 1) - log sigma_j - log(1 - tanh(u_j)^2)]

    The Gaussian's density is taken of the noise, so nothing is divided by a standard
    deviation that rounding has swallowed.

    Args:
        outputs: `[..., A]` each, outputs of the policy.
        noise: `[..., A]` standard normal noise e.

    Returns:
        Actions `[..., A]`, log-densities `[...]`.
    """
    raw = outputs.mean + jnp.exp(outputs.log_std) * noise
    log_normal = -0.5 * (jnp.square(noise) + np.log(2 * np.pi)) - outputs.log_std
    return jnp.tanh(raw), (log_normal - log_tanh_slope(raw)).sum(-1)


def taken_values(agent: Agent, critics: PyTree, batch: batches.Batch) -> Any:
    """Return the critics' values of the batch's actions: a pair, or an ensemble's."""
    if not agent.head.is_discrete:
        return agent.critics.apply(critics, batch.obs, batch.action)
    values: Any = agent.critics.apply(critics, batch.obs)

    def taken(one: Array) -> Array:
        place = batch.action.reshape(-1, *(1,) * (one.ndim - 1))
        return jnp.take_along_axis(one, place, 1)[:, 0]

    if isinstance(values, tuple):
        return tuple(map(taken, values))
    return jax.vmap(taken)(values)


def descend(
    config: ActorCriticConfig, learner: Learner, grads: dict[str, PyTree]
) -> Learner:
    """Take one step on the parameters that `grads` names, each by its own optimiser."""
    params, opt_state = dict(learner.params), dict(learner.opt_state)
    for name, gradient in grads.items():
        if learner.pull:
            gradient = jax.tree.map(jnp.add, gradient, learner.pull[name])
        updates, opt_state[name] = optimiser_of(config, name).update(
            gradient, opt_state[name], params[name]
        )
        params[name] = optax.apply_updates(params[name], updates)
    return learner._replace(params=params, opt_state=opt_state)


def descend_heads(agent: Agent, learner: Learner) -> Learner:
    """Take one step on the networks that the user's own terms have."""
    names = extra.heads_of(agent.terms)
    zeros = {n: jax.tree.map(jnp.zeros_like, learner.params[n]) for n in names}
    return descend(agent.config, learner, zeros)


def put_statistics(
    config: ActorCriticConfig, learner: Learner, name: str, statistics: PyTree
) -> Learner:
    """Return the learner with new running statistics of batch normalisation.

    Those of frozen parts stay what they were. `statistics` are empty where there are
    none, see `layers.forward`.
    """
    if not statistics:
        return learner
    old = learner.params[name]
    new = layers.put_statistics(old, statistics)
    is_frozen = optimiser.frozen_in(config.frozen, name)
    if is_frozen is not None:
        new = jax.tree.map(lambda f, o, n: o if f else n, is_frozen(old), old, new)
    return learner._replace(params={**learner.params, name: new})


def optimiser_of(config: Any, name: str) -> optax.GradientTransformation:
    """Return the optimiser of some parameters, with their step size.

    It clips where the config has `max_grad_norm`. A step size that the config lacks, or
    that is None there, is that of all networks.

    Args:
        name: Name of the parameters.
    """
    rate = getattr(config, f"{_PREFIXES.get(name, name)}_learning_rate", None)
    # Weight decay, or steps by the sign of the gradient, would pull the temperature and
    # multipliers away from where they belong.
    chosen = config.optimiser if name in ("actor", "critics") else Adam()
    still = config.frozen
    if getattr(config, "crossq", False):
        still = (*still, *layers.STATISTICS)
    return optimiser.make(
        chosen if name == "actor" else optimiser.without_noise(chosen),
        config.learning_rate if rate is None else rate,
        getattr(config, "max_grad_norm", None),
        frozen=optimiser.frozen_in(still, name),
        # Where nothing is ever clipped, only the critics' norm is reported.
        measured=name == "critics" or hasattr(config, "max_grad_norm"),
    )

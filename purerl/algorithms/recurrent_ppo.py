"""Proximal policy optimisation with a memory, for environments that hide their state.

A GRU (`recurrent.GRU`) carries `h_t = GRU(h_{t-1}, o_t)` along the episode, and actor
and critic are heads on it: `pi(a | h_t)` and `V(h_t)`. Other memories take its place by
name or as modules, see `networks.memories`. The objective is PPO's (see
`ppo`); what a memory adds is where it begins, and three rules follow from that:

* `h_{-1} = 0` before an episode's first observation. It is cleared by the flag of the
  step that *precedes* the observation, in acting and in learning alike. (Learning with
  the flag that follows trains another network than the one that acted.)
* A gradient step runs the GRU over whole rollouts again, from the memory with which
  each began, so a minibatch is some environments with all their steps. Shorter
  sequences (`sequence_length`) begin with the memory that was stored before them,
  which `burn_in` steps bring up to date.
* A time limit bootstraps on `V(GRU(h_t, o'_{t+1}))`: the observation before the reset,
  seen by the memory of the episode that it belongs to.

Gradients flow through the steps of a sequence and stop at its start.

A critic that sees other keys of the observation than the actor (`critic_keys`) has a
memory of its own: see `recurrent_critic`.

Defaults are the sizes and numbers of PureJaxRL's `ppo_rnn.py` (Lu et al. 2022) for
CartPole-v1: an embedding, a GRU and two heads of 128 units with relu. Its heads' hidden
layers start at gain 2, ours at sqrt(2). Where actions are continuous, which its script
does not know, observations and rewards are normalised and there is no entropy bonus, as
in `ppo`; the sizes stay, because a gradient step goes through all steps of a rollout.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl import networks
from purerl.acting import observe, rollout
from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape
from purerl.acting.policy import reject_stateless_act
from purerl.algorithms import (
    memory_config,
    network_config,
    on_policy,
    pieces,
    ppo,
    recurrent_critic,
)
from purerl.algorithms.on_policy import Batch
from purerl.algorithms.on_policy_networks import CRITIC_CORE, make_actor, make_critic
from purerl.algorithms.ppo import PPOConfig
from purerl.algorithms.recurrent_critic import Memories
from purerl.config import POSITIVE, SIZES, ConfigError, config_dataclass, one_of, static
from purerl.keys import init_keys, update_keys
from purerl.learning import normalise, optimiser, sequences
from purerl.learning.minibatches import minimise, pass_means
from purerl.learning.returns import gae
from purerl.learning.sequences import Sequences
from purerl.networks import composite
from purerl.networks.memories import Kind
from purerl.types import (
    Algorithm,
    Array,
    Hosted,
    Metrics,
    PyTree,
    Recurrence,
    Transition,
)


@config_dataclass
class RecurrentPPOConfig(PPOConfig):
    """Proximal policy optimisation with a memory."""

    num_steps: int = static(128, "Steps per environment and update.", POSITIVE)
    num_epochs: int = static(4, "Passes over the rollout per update.", POSITIVE)
    num_minibatches: int = static(
        4, "Gradient steps per pass; each takes whole environments.", POSITIVE
    )
    hidden_sizes: tuple[int, ...] = static(
        (128,), "Units of each hidden layer before the memory.", SIZES
    )
    memory: Any = memory_config.memory_field("gru")
    memory_size: int = memory_config.size_field()
    sequence_length: int = memory_config.length_field()
    burn_in: int = memory_config.burn_in_field()
    critic_keys: tuple[str, ...] = static(
        (),
        "Keys of a dictionary observation that the critic sees; none for all. Where "
        "they are others than the actor's, the critic has a memory of its own.",
    )
    head_sizes: tuple[int, ...] = static(
        (128,),
        "Units of each hidden layer between the memory and actor or critic.",
        SIZES,
    )
    activation: str = static(
        "relu",
        "Activation function after each hidden layer.",
        one_of(*networks.ACTIVATIONS),
    )

    @property
    def samples_per_update(self) -> int:
        """The number of sequences from which minibatches are drawn."""
        return memory_config.num_sequences(self)

    @property
    def sequential_steps(self) -> int:
        """Dependent operations of one update: a gradient step runs through time too."""
        length = memory_config.steps_of_gradient(self)
        return self.num_steps + self.num_epochs * self.num_minibatches * length

    def automatic(self, env: Environment) -> dict[str, Any]:
        """Return PPO's numbers; a sequence is a whole rollout."""
        return {**super().automatic(env), "sequence_length": self.num_steps}


class Parts(NamedTuple):
    """The parts of recurrent PPO, bound once in Python.

    Attributes:
        core: Network from observations to memories.
        kind: Kind of the memory: its beginning, and the part that heads see.
        heads: Everything of PPO, with an actor and a critic of memories.
        critic_core: Network from observations to the critic's own memories; None where
            the critic reads those of `core`.
    """

    core: Any
    kind: Kind
    heads: on_policy.Parts[Any]
    critic_core: Any = None


class RecurrentPPOState(NamedTuple):
    """Everything that training carries, arrays only.

    Attributes:
        params: Parameters of `core`, `actor` and `critic`, and of `critic_core` where
            there is one.
        opt_state: State of the optimiser.
        obs_moments: Statistics of observations.
        reward_scale: Statistics of returns.
        envs: The environments between two steps.
        memory: Memory of the running episodes before `envs.obs`, leaves `[B, H]`; zero
            where that is an episode's first. With `critic_core` the `Memories` of
            both.
        key: Random key of the agent, which never changes; every update's key is folded
            from it.
        update: `[]` int32, number of updates done.
    """

    params: dict[str, PyTree]
    opt_state: PyTree
    obs_moments: PyTree
    reward_scale: normalise.RewardScale
    envs: rollout.EnvCarry
    memory: PyTree
    key: Array
    update: Array


def validate(config: RecurrentPPOConfig, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    memory_config.check_sequences(config)
    size = memory_config.checked_size(config, env)
    check_heads(config, size)
    ppo.validate(config, env, (size,))
    recurrent_critic.check(config, env)


def check_heads(config: RecurrentPPOConfig, size: int) -> None:
    """Refuse networks that would not see the memory.

    Args:
        config: Config of the agent.
        size: Number of what heads see of the memory.

    Raises:
        ConfigError: naming the field and the remedy.
    """
    if config.shared_torso:
        raise ConfigError(
            "shared_torso must be False, got True: actor and critic of recurrent PPO "
            "share the torso and the memory wherever they see the same keys; leave it "
            "out."
        )
    for field in ("actor", "critic"):
        is_named = network_config.own(config, field) is None
        if is_named and not network_config.is_auto(config, field):
            raise ConfigError(
                f"{field} must be auto or a flax module of memories [N, "
                f"{size}], got {getattr(config, field)!r}, a torso of "
                "observations; give it as torso."
            )


def make(
    config: RecurrentPPOConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Build recurrent PPO for a config and an environment; see `build`.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread, if any.
    """
    parts = build(config, env, axis_name)
    return Algorithm(
        init=partial(init, parts),
        step=partial(step, parts),
        act=reject_stateless_act,
        recurrence=Recurrence(partial(init_memory, parts), partial(act, parts)),
        hosted=partial(hosted, parts),
    )


def build(
    config: RecurrentPPOConfig, env: Environment, axis_name: str | None = None
) -> Parts:
    """Build networks and environment of a config.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread.
    """
    whole = on_policy.build(config, env, axis_name)
    seen = obs_shape(whole.obs_space)
    torso = network_config.torso_of(config, seen)
    kind = memory_config.kind_of(config)
    is_apart = recurrent_critic.has_own(config, seen)
    shape = composite.head_shape(kind.size, seen, is_apart)
    layers = network_config.dense_layers(config, config.head_sizes)
    layers = composite.viewed(layers, shape)
    actor = make_actor(config, whole.head, shape, layers)
    critic_core = None
    if is_apart:
        critic = recurrent_critic.make_head(config, kind.size)
        critic_core = kind.core(network_config.torso_of(config, seen, "critic"))
    else:
        critic = make_critic(config, shape, layers)
    heads = whole._replace(actor=actor, critic=critic, on_inputs=actor)
    return Parts(kind.core(torso), kind, heads, critic_core)


def init(parts: Parts, key: Array) -> RecurrentPPOState:
    """Make fresh networks, environments and memories; the key is kept in the state."""
    config, heads = parts.heads.config, parts.heads
    keys = init_keys(key, 3)
    num_envs = rollout.per_device(config.num_envs, heads.axis_name)
    memory = init_memory(parts, (num_envs,))
    obs = observe.example(heads.obs_space)
    remembered = jax.tree.map(lambda x: x[:1], memory)
    seen = _seen(parts, _of_both(parts, remembered), obs)
    modules: dict[str, Any] = {
        "core": (parts.core, [obs, remembered]),
        "actor": (heads.actor, [seen]),
        "critic": (heads.critic, [seen]),
    }
    if parts.critic_core is not None:
        modules[CRITIC_CORE] = (parts.critic_core, [obs, remembered])
    params = networks.init_params(keys[:2], modules)
    optim = ppo.optimiser_of(config, params)
    return RecurrentPPOState(
        params=params,
        opt_state=optim.init(optimiser.flatten(params)[0]),
        obs_moments=observe.init_moments(heads.obs_space),
        reward_scale=normalise.RewardScale(
            normalise.init_moments(), jnp.zeros(num_envs)
        ),
        envs=rollout.init_envs(heads.stepper, keys[2], num_envs),
        memory=_of_both(parts, memory),
        key=key,
        update=jnp.int32(0),
    )


def init_memory(parts: Parts, shape: tuple[int, ...]) -> PyTree:
    """Return the actor's memory of episodes about to begin: zeros `[*shape, ...]`."""
    return parts.kind.blank(shape)


def _of_both(parts: Parts, memory: PyTree) -> PyTree:
    """A memory that actor and critic begin with, as a state holds it."""
    return memory if parts.critic_core is None else Memories(memory, memory)


def step(parts: Parts, state: RecurrentPPOState) -> tuple[RecurrentPPOState, Metrics]:
    """Make one update: collect, estimate advantages, minimise."""
    keys = update_keys(state, 4)
    return learn(parts, state, collect(parts, state, keys[:3]), keys)


def learn(
    parts: Parts, state: RecurrentPPOState, played: rollout.Played, keys: Array
) -> tuple[RecurrentPPOState, Metrics]:
    """Estimate the advantages of a rollout, and minimise; return state and metrics.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State with which the rollout was collected.
        played: The rollout, from `collect`.
        keys: Keys of the update, the first three of which the rollout has used.
    """
    heads = parts.heads
    envs, memory, transitions, memories, episodes = played
    rollouts, reward_scale = make_sequences(parts, state, transitions, memories)
    params, opt_state, losses = fit(parts, state, rollouts, keys[3])
    seen = on_policy.flatten(rollouts.batch)
    metrics = on_policy.report(heads, state.update, episodes, seen, losses)
    new = RecurrentPPOState(
        params=params,
        opt_state=opt_state,
        obs_moments=on_policy.observe(
            heads, state.obs_moments, transitions.obs, metrics["explained_variance"]
        ),
        reward_scale=reward_scale,
        envs=envs,
        memory=memory,
        key=state.key,
        update=state.update + 1,
    )
    return new, metrics


def act(
    parts: Parts,
    state: RecurrentPPOState,
    obs: Array,
    memory: PyTree,
    key: Array | None = None,
) -> tuple[Array, PyTree]:
    """Return the policy's action on observations `[..., *obs_shape]`.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State of one agent.
        obs: Observations as the environment gives them.
        memory: Memory of the episode before `obs`, leaves `[..., H]`; `init_memory` at
            its start.
        key: Random key, consumed; without one the action is the deterministic one.

    Returns:
        The action, and the memory with `obs` in it.
    """
    head = parts.heads.head
    prepared = observe.prepare(parts.heads, state.obs_moments, obs)
    memory = remember(parts, state.params, prepared, memory)
    seen = _seen_by_actor(parts, memory, prepared)
    outputs = parts.heads.actor.apply(state.params["actor"], seen)
    raw = head.mode(outputs) if key is None else head.sample(outputs, key)
    return head.to_env(raw), memory


def collect(parts: Parts, state: RecurrentPPOState, key: Array) -> rollout.Played:
    """Run the policy for `T` steps in every environment.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State of one agent.
        key: Random key, or three of them; see `rollout.collect`.

    Returns:
        As `rollout.unroll_recurrent`.
    """
    played = rollout.collect_recurrent(
        parts.heads.stepper,
        state.envs,
        recurrent_critic.of_actor(state.memory),
        policy(parts, state),
        key,
        parts.heads.config.num_steps,
    )
    return _completed(parts, state, played)


def policy(parts: Parts, state: RecurrentPPOState) -> rollout.Policy:
    """Return how the networks of a state choose actions while they are trained."""
    return rollout.Policy(
        partial(_choose, parts, state.params),
        partial(observe.prepare, parts.heads, state.obs_moments),
        parts.heads.head.noise,
    )


def _completed(
    parts: Parts, state: RecurrentPPOState, played: rollout.Played
) -> rollout.Played:
    """A rollout with what its steps did not wait for: see `on_policy.with_log_prob`."""
    transitions = on_policy.with_log_prob(parts.heads.head, played.transitions)
    played = played._replace(transitions=transitions)
    if parts.critic_core is None:
        return played
    return recurrent_critic.recall(parts, state, played)


def hosted(parts: Parts, update: Array) -> Hosted:
    """Return an update in pieces, for environments on the host.

    Args:
        parts: Networks, environments and config; see `build`.
        update: `[]` int32, number of updates done; nothing here depends on it.
    """
    del update

    def then(
        state: RecurrentPPOState, played: rollout.Played, keys: Array
    ) -> tuple[RecurrentPPOState, Metrics]:
        return learn(parts, state, _completed(parts, state, played), keys)

    def restart(state: RecurrentPPOState, obs: Any) -> RecurrentPPOState:
        memory = jax.tree.map(jnp.zeros_like, state.memory)
        return on_policy.restart(state, obs)._replace(memory=memory)

    return pieces.of_recurrent_rollout(
        parts.heads.config,
        partial(policy, parts),
        then,
        restart,
        lambda state: recurrent_critic.of_actor(state.memory),
    )


def make_sequences(
    parts: Parts, state: RecurrentPPOState, transitions: Transition, memories: PyTree
) -> tuple[Sequences, normalise.RewardScale]:
    """Compute values, advantages and targets of a rollout.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State before the rollout.
        transitions: `[T, B, ...]` transitions of the rollout.
        memories: Memories on which the actions were chosen, leaves `[T, B, H]`.

    Returns:
        What to learn from, and the statistics of returns with this rollout in.
    """
    config, heads, params = parts.heads.config, parts.heads, state.params
    prepare = partial(observe.prepare, heads, state.obs_moments)
    # The critic ignores a mask that stands beside the memory.
    seen = _seen(parts, memories, transitions.obs)
    value: Any = heads.critic.apply(params["critic"], seen)
    # `memories` are those of the episode that `next_obs` ends or goes on with.
    next_memories = _judged(parts, params, prepare(transitions.next_obs), memories)
    next_seen = _seen(parts, next_memories, transitions.next_obs)
    next_value: Any = heads.critic.apply(params["critic"], next_seen)

    reward, scale = transitions.reward, state.reward_scale
    done = transitions.terminated | transitions.truncated
    if config.normalize_rewards:
        scale, reward = normalise.scale_rewards(
            scale,
            reward,
            done,
            gamma=config.gamma,
            clip=config.clip_rewards,
            axis_name=heads.axis_name,
        )
    advantage = gae(
        reward,
        value,
        next_value,
        transitions.terminated,
        transitions.truncated,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
    )
    batch = Batch(
        obs=prepare(transitions.obs),
        action=transitions.action,
        log_prob=transitions.log_prob,
        value=value,
        advantage=ppo.standardised(heads, advantage),
        target=advantage + value,
    )
    first = sequences.first_of(done)
    if config.sequence_length == config.num_steps:
        return sequences.whole(state.memory, first, batch), scale
    lengths = config.sequence_length, config.burn_in
    return sequences.cut(state.memory, memories, first, batch, *lengths), scale


def fit(
    parts: Parts, state: RecurrentPPOState, rollouts: Sequences, key: Array
) -> tuple[PyTree, PyTree, Metrics]:
    """Take epochs of minibatch gradient steps; return mean losses and diagnostics.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State before the update.
        rollouts: Rollouts of all environments, from the memories at their beginnings.
        key: Random key, consumed.
    """
    passes = ppo.make_passes(parts.heads, state.params, state.update)
    params, opt_state, metrics = minimise(
        partial(loss, parts),
        state.params,
        state.opt_state,
        rollouts,
        key,
        passes._replace(begin=partial(begun, parts)),
    )
    return params, opt_state, pass_means(metrics)


def begun(parts: Parts, params: PyTree, rollouts: Sequences) -> Sequences:
    """Return rollouts as they are after their burn-in, and without it.

    Args:
        parts: Networks, environments and config; see `build`.
        params: Parameters with which the memories are brought up to date.
        rollouts: Rollouts of some environments.
    """
    if parts.critic_core is None:
        memory = sequences.start(parts.core, parts.kind, params["core"], rollouts)
    else:
        memory = recurrent_critic.start(parts, params, rollouts)
    return rollouts._replace(memory=memory, burn_in=None)


def loss(parts: Parts, params: PyTree, rollouts: Sequences) -> tuple[Array, Metrics]:
    """Return PPO's loss, with the memories in place of the observations.

    Args:
        parts: Networks, environments and config; see `build`.
        params: Parameters of `core`, `actor` and `critic`.
        rollouts: Rollouts of the environments of a minibatch.
    """
    return ppo.loss(parts.heads, params, samples(parts, params, rollouts))


def samples(parts: Parts, params: PyTree, rollouts: Sequences) -> Batch:
    """Return the samples `[N, ...]` of rollouts, with memories as observations.

    Args:
        parts: Networks, environments and config; see `build`.
        params: Parameters of `core`, `actor` and `critic`.
        rollouts: Rollouts of some environments.
    """
    if parts.critic_core is None:
        obs, memories = sequences.remember(
            parts.core, parts.kind, params["core"], rollouts
        )
    else:
        obs, memories = recurrent_critic.remember(parts, params, rollouts)
    seen = jax.tree.map(sequences.swap, _seen(parts, memories, obs))
    return on_policy.flatten(rollouts.batch._replace(obs=seen))


def remember(parts: Parts, params: PyTree, prepared: Any, memory: PyTree) -> PyTree:
    """Return the actor's memory with an observation in it.

    Args:
        parts: Networks, environments and config; see `build`.
        params: Parameters of `core`, `actor` and `critic`.
        prepared: `[..., *obs_shape]` prepared observations.
        memory: Memory before the observations, leaves `[..., H]`.
    """
    return parts.core.apply(params["core"], prepared, memory)


def _judged(parts: Parts, params: PyTree, prepared: Any, memories: PyTree) -> PyTree:
    """The memories with observations in what the critic sees of them."""
    if parts.critic_core is None:
        return remember(parts, params, prepared, memories)
    core = params[CRITIC_CORE]
    critic = parts.critic_core.apply(core, prepared, memories.critic)
    return memories._replace(critic=critic)


def _choose(
    parts: Parts, params: PyTree, obs: Any, memory: PyTree, noise: Array
) -> tuple[tuple[Array, Any, Array], PyTree]:
    """Sample with one noise per environment: raw action, outputs, env action."""
    head = parts.heads.head
    memory = remember(parts, params, obs, memory)
    seen = _seen_by_actor(parts, memory, obs)
    outputs = parts.heads.actor.apply(params["actor"], seen)
    raw = head.choose(outputs, noise)
    return (raw, outputs, head.to_env(raw)), memory


def _seen(parts: Parts, memory: PyTree, obs: Any) -> Any:
    """Return the heads' input: a memory `[..., H]`, beside the mask of `obs` if any."""
    if parts.critic_core is None:
        return composite.beside_mask(parts.kind.read(memory), obs)
    return recurrent_critic.seen(parts.kind, memory, obs)


def _seen_by_actor(parts: Parts, memory: PyTree, obs: Any) -> Any:
    """Return the actor's input by its own memory, as `_seen` does by both."""
    is_apart = parts.critic_core is not None
    return _seen(parts, Memories(memory, None) if is_apart else memory, obs)

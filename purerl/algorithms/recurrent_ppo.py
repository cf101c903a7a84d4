"""Proximal policy optimisation with a memory, for environments that hide their state.

A GRU (`recurrent.GRU`) carries `h_t = GRU(h_{t-1}, o_t)` along the episode, and actor
and critic are heads on it: `pi(a | h_t)` and `V(h_t)`. The objective is PPO's (see
`ppo`); what a memory adds is where it begins, and three rules follow from that:

* `h_{-1} = 0` before an episode's first observation. It is cleared by the flag of the
  step that *precedes* the observation, in acting and in learning alike. (Learning with
  the flag that follows trains another network than the one that acted.)
* A gradient step runs the GRU over whole rollouts again, from the memory with which
  each began, so a minibatch is some environments with all their steps.
* A time limit bootstraps on `V(GRU(h_t, o'_{t+1}))`: the observation before the reset,
  seen by the memory of the episode that it belongs to.

Gradients flow through the `T` steps of a rollout and stop at its start.

Defaults are the sizes and numbers of PureJaxRL's `ppo_rnn.py` (Lu et al. 2022) for
CartPole-v1: an embedding, a GRU and two heads of 128 units with relu. Its heads' hidden
layers start at gain 2, ours at sqrt(2). Where actions are continuous, which its script
does not know, observations and rewards are normalised and entropy earns nothing, as in
`ppo`; the sizes stay, because a gradient step goes through all steps of a rollout.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl import networks
from purerl.acting import rollout
from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape
from purerl.acting.policy import reject_stateless_act
from purerl.algorithms import on_policy, ppo
from purerl.algorithms.on_policy import Batch
from purerl.algorithms.ppo import PPOConfig
from purerl.config import POSITIVE, ConfigError, config_dataclass, one_of, static
from purerl.keys import init_key, update_key
from purerl.learning import normalise, optimiser
from purerl.learning.minibatches import Passes, minimise
from purerl.learning.returns import gae
from purerl.networks.recurrent import GRU
from purerl.types import Algorithm, Array, Metrics, PyTree, Recurrence, Transition


@config_dataclass
class RecurrentPPOConfig(PPOConfig):
    """Proximal policy optimisation with a memory."""

    num_steps: int = static(128, "Steps per environment and update.", POSITIVE)
    num_epochs: int = static(4, "Passes over the rollout per update.", POSITIVE)
    num_minibatches: int = static(
        4, "Gradient steps per pass; each takes whole environments.", POSITIVE
    )
    hidden_sizes: tuple[int, ...] = static(
        (128,), "Units of each hidden layer before the memory."
    )
    memory_size: int = static(128, "Units of the memory.", POSITIVE)
    head_sizes: tuple[int, ...] = static(
        (128,), "Units of each hidden layer between the memory and actor or critic."
    )
    activation: str = static(
        "relu", "After each hidden layer.", one_of(*networks.ACTIVATIONS)
    )

    @property
    def samples_per_update(self) -> int:
        """What minibatches are drawn from: sequences, one per environment."""
        return self.num_envs

    @property
    def sequential_steps(self) -> int:
        """Dependent operations of one update: a gradient step runs through time too."""
        return self.num_steps * (1 + self.num_epochs * self.num_minibatches)


class Parts(NamedTuple):
    """What is bound once, in Python.

    Attributes:
        core: Network from observations to memories.
        heads: Everything of PPO, with an actor and a critic of memories.
    """

    core: GRU
    heads: on_policy.Parts[Any]


class RecurrentPPOState(NamedTuple):
    """Everything that training carries, arrays only.

    Attributes:
        params: Parameters of `core`, `actor` and `critic`.
        opt_state: State of the optimiser.
        obs_moments: Statistics of observations.
        reward_scale: Statistics of returns.
        envs: The environments between two steps.
        memory: `[B, H]` memory of the running episodes before `envs.obs`; zero where
            that is an episode's first.
        key: Random key of the agent, which never changes; every update's key is folded
            from it.
        update: `[]` int32, number of updates done.
    """

    params: dict[str, PyTree]
    opt_state: PyTree
    obs_moments: normalise.Moments
    reward_scale: normalise.RewardScale
    envs: rollout.EnvCarry
    memory: Array
    key: Array
    update: Array


class Sequences(NamedTuple):
    """A rollout to learn from, one row per environment.

    Attributes:
        memory: `[B, H]` memory before the first observation.
        first: `[B, T]` bool, the observation is the first of an episode that began
            within the rollout.
        batch: `[B, T, ...]`.
    """

    memory: Array
    first: Array
    batch: Batch


def validate(config: RecurrentPPOConfig, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    num_envs, minibatches = config.num_envs, config.num_minibatches
    if num_envs % minibatches:
        fits = [p for p in range(1, num_envs + 1) if num_envs % p == 0]
        below = max(p for p in fits if p < minibatches)
        above = min((p for p in fits if p > minibatches), default=below)
        nearest = " or ".join(str(p) for p in dict.fromkeys((below, above)))
        raise ConfigError(
            f"num_envs ({num_envs}) must be divisible by num_minibatches, got "
            f"{minibatches}: a minibatch takes whole environments; nearest: {nearest}."
        )
    sizes = config.head_sizes
    is_sizes = isinstance(sizes, tuple) and all(type(n) is int for n in sizes)
    if not is_sizes or min(sizes, default=1) < 1:
        raise ConfigError(
            f"head_sizes must be positive whole numbers, got {sizes!r}; "
            "for example (128,), or () for none."
        )
    ppo.validate(config, env)


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
    torso = networks.make_torso(
        config.torso, obs_shape(whole.obs_space), config.hidden_sizes, config.activation
    )
    head = networks.MLP(config.head_sizes, config.activation)
    heads = whole._replace(
        actor=whole.actor.clone(torso=head), critic=whole.critic.clone(torso=head)
    )
    return Parts(GRU(torso, config.memory_size), heads)


def init(parts: Parts, key: Array) -> RecurrentPPOState:
    """Make fresh networks, environments and memories; the key is kept in the state."""
    config, heads = parts.heads.config, parts.heads
    key_networks, key_env = jax.random.split(init_key(key))
    num_envs = rollout.per_device(config.num_envs, heads.axis_name)
    shape = obs_shape(heads.obs_space)
    memory = init_memory(parts, (num_envs,))
    obs, remembered = jnp.zeros((1, *shape)), memory[:1]
    params = networks.init_params(
        key_networks,
        {
            "core": (parts.core, [obs, remembered]),
            "actor": (heads.actor, [remembered]),
            "critic": (heads.critic, [remembered]),
        },
    )
    optim = _optimiser(config, config.learning_rate)
    return RecurrentPPOState(
        params=params,
        opt_state=optim.init(optimiser.flatten(params)[0]),
        obs_moments=normalise.init_moments(shape),
        reward_scale=normalise.RewardScale(
            normalise.init_moments(), jnp.zeros(num_envs)
        ),
        envs=rollout.init_envs(heads.stepper, key_env, num_envs),
        memory=memory,
        key=key,
        update=jnp.int32(0),
    )


def init_memory(parts: Parts, shape: tuple[int, ...]) -> Array:
    """Return the memory `[*shape, H]` of episodes that are about to begin: zeros."""
    return jnp.zeros((*shape, parts.heads.config.memory_size))


def step(parts: Parts, state: RecurrentPPOState) -> tuple[RecurrentPPOState, Metrics]:
    """Make one update: collect, estimate advantages, minimise."""
    heads = parts.heads
    key_roll, key_fit = jax.random.split(update_key(state))
    envs, memory, transitions, memories, episodes = collect(parts, state, key_roll)
    sequences, reward_scale = make_sequences(parts, state, transitions, memories)
    params, opt_state, losses = fit(parts, state, sequences, key_fit)
    samples = on_policy.flatten(sequences.batch)
    metrics = on_policy.report(heads, state.update, episodes, samples, losses)
    new = RecurrentPPOState(
        params=params,
        opt_state=opt_state,
        obs_moments=on_policy.observe(
            heads, state.obs_moments, transitions.obs, metrics
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
    memory: Array,
    key: Array | None = None,
) -> tuple[Array, Array]:
    """Return the policy's action on observations `[..., *obs_shape]`.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State of one agent.
        obs: Observations as the environment gives them.
        memory: `[..., H]` memory of the episode before `obs`; `init_memory` at its
            start.
        key: Random key, consumed; without one the action is the deterministic one.

    Returns:
        The action, and the memory with `obs` in it.
    """
    head = parts.heads.head
    prepared = on_policy.prepare(parts.heads, state.obs_moments, obs)
    memory = remember(parts, state.params, prepared, memory)
    outputs = parts.heads.actor.apply(state.params["actor"], memory)
    raw = head.mode(outputs) if key is None else head.sample(outputs, key)
    return head.to_env(raw), memory


def collect(
    parts: Parts, state: RecurrentPPOState, key: Array
) -> tuple[rollout.EnvCarry, Array, Transition, Array, rollout.Episodes]:
    """Run the policy for `T` steps in every environment.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State of one agent.
        key: Random key, consumed.

    Returns:
        As `rollout.unroll_recurrent`.
    """
    heads = parts.heads
    num_envs = state.memory.shape[0]
    randomness = rollout.draw_randomness(
        heads.stepper, key, heads.config.num_steps, num_envs, heads.head.noise
    )
    envs, memory, transitions, memories, episodes = rollout.unroll_recurrent(
        heads.stepper,
        state.envs,
        state.memory,
        partial(_choose, parts, state.params),
        partial(on_policy.prepare, heads, state.obs_moments),
        randomness.inputs,
        randomness.restart,
    )
    transitions = on_policy.with_log_prob(heads.head, transitions)
    return envs, memory, transitions, memories, episodes


def make_sequences(
    parts: Parts, state: RecurrentPPOState, transitions: Transition, memories: Array
) -> tuple[Sequences, normalise.RewardScale]:
    """Compute values, advantages and targets of a rollout.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State before the rollout.
        transitions: `[T, B, ...]`.
        memories: `[T, B, H]` on which the actions were chosen.

    Returns:
        What to learn from, and the statistics of returns with this rollout in.
    """
    config, heads, params = parts.heads.config, parts.heads, state.params
    prepare = partial(on_policy.prepare, heads, state.obs_moments)
    value: Any = heads.critic.apply(params["critic"], memories)
    # `memories` are those of the episode that `next_obs` ends or goes on with.
    next_memories = remember(parts, params, prepare(transitions.next_obs), memories)
    next_value: Any = heads.critic.apply(params["critic"], next_memories)

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
        advantage=advantage,
        target=advantage + value,
    )
    # The flag precedes the observation; that of the last rollout's last step has
    # cleared `state.memory` already.
    first = jnp.concatenate([jnp.zeros_like(done[:1]), done[:-1]])
    rows = jax.tree.map(_swap, (first, batch))
    return Sequences(state.memory, *rows), scale


def fit(
    parts: Parts, state: RecurrentPPOState, sequences: Sequences, key: Array
) -> tuple[PyTree, PyTree, Metrics]:
    """Take epochs of minibatch gradient steps; return mean losses and diagnostics.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State before the update.
        sequences: Rollouts of all environments, from the memories at their beginnings.
        key: Random key, consumed.
    """
    config, heads = parts.heads.config, parts.heads
    rate = on_policy.annealed(heads, config.learning_rate, state.update)
    params, opt_state, metrics = minimise(
        partial(loss, parts),
        state.params,
        state.opt_state,
        sequences,
        key,
        Passes(
            optim=_optimiser(config, rate),
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
            axis_name=heads.axis_name,
        ),
    )
    means = {name: values.mean() for name, values in metrics.items()}
    # The whole update's divergence: how far the last pass left the old policy.
    means["approx_kl_last"] = metrics["approx_kl"][-1].mean()
    return params, opt_state, means


def loss(parts: Parts, params: PyTree, sequences: Sequences) -> tuple[Array, Metrics]:
    """Return PPO's loss, with the GRU's memories in place of the observations.

    Args:
        parts: Networks, environments and config; see `build`.
        params: Parameters of `core`, `actor` and `critic`.
        sequences: Rollouts of the environments of a minibatch.
    """
    obs, first = jax.tree.map(_swap, (sequences.batch.obs, sequences.first))
    memories: Any = parts.core.apply(
        params["core"], obs, sequences.memory, first, method="unroll"
    )
    samples = on_policy.flatten(sequences.batch._replace(obs=_swap(memories)))
    return ppo.loss(parts.heads, params, samples)


def remember(parts: Parts, params: PyTree, prepared: Array, memory: Array) -> Array:
    """Return the memory `[..., H]` with an observation in it.

    Args:
        parts: Networks, environments and config; see `build`.
        params: Parameters of `core`, `actor` and `critic`.
        prepared: `[..., *obs_shape]` prepared observations.
        memory: `[..., H]` memory before the observations.
    """
    return parts.core.apply(params["core"], prepared, memory)  # type: ignore[return-value]


def _choose(
    parts: Parts, params: PyTree, obs: Array, memory: Array, noise: Array
) -> tuple[tuple[Array, Any, Array], Array]:
    """Sample with one noise per environment: raw action, outputs, env action."""
    head = parts.heads.head
    memory = remember(parts, params, obs, memory)
    outputs = parts.heads.actor.apply(params["actor"], memory)
    raw = head.choose(outputs, noise)
    return (raw, outputs, head.to_env(raw)), memory


def _swap(x: Array) -> Array:
    """`[T, B, ...]` as `[B, T, ...]`, and back."""
    return jnp.swapaxes(x, 0, 1)


def _optimiser(
    config: RecurrentPPOConfig, learning_rate: Array | float
) -> optax.GradientTransformation:
    return optimiser.adam(
        learning_rate, max_grad_norm=config.max_grad_norm, eps=config.adam_eps
    )

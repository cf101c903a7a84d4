"""Parallel Q-learning with a memory, for environments that hide their state.

Action values `Q(h_t, a)` are a head on a memory `h_t` of the episode so far, as actor
and critic are in `recurrent_ppo`, whose three rules hold here too: the memory is
cleared by the flag of the step before an observation, a gradient step runs it over
sequences again, and a time limit bootstraps on the observation before the reset, seen
by the memory of the episode that it belongs to. The rest is `pqn`: epsilon-greedy
rollouts, lambda-returns with the network that collected them, and regression on these
without a replay buffer and without a target network (Gallici et al. 2024,
arXiv:2407.04811, whose PQN-RNN this is).

The authors' script learns from the last steps of the rollout before too
(`MEMORY_WINDOW`), and computes the returns anew in every gradient step. Here a rollout
begins with the memory that was stored before it, and `burn_in` gives the sequences
after the first such steps. Defaults are those of `pqn`, with a GRU in the place of the
second hidden layer.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl import auto, networks
from purerl.acting import exploration, observe, rollout
from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape
from purerl.acting.policy import reject_stateless_act
from purerl.algorithms import memory_config, network_config, pieces, pqn
from purerl.algorithms.recurrent_pqn_config import RecurrentPQNConfig
from purerl.keys import init_keys, update_keys
from purerl.learning import diagnostics, optimiser, sequences
from purerl.learning.returns import q_lambda
from purerl.learning.sequences import Sequences
from purerl.losses import value_error
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


class Parts(NamedTuple):
    """The parts of recurrent PQN, bound once in Python.

    Attributes:
        config: Config with the environment's numbers, `auto` resolved.
        core: Network from observations to memories.
        kind: Kind of the memory: its beginning, and the part that heads see.
        values: Everything of PQN, with a network of memories.
    """

    config: RecurrentPQNConfig
    core: Any
    kind: Kind
    values: pqn.Parts


class RecurrentPQNState(NamedTuple):
    """Everything that training carries, arrays only.

    Attributes:
        params: Parameters of `core` and of the values, `q`.
        opt_state: State of the optimiser.
        obs_moments: Statistics of observations, see `observe.init_moments`.
        envs: The environments between two steps.
        memory: Memory `[B, ...]` of the running episodes before `envs.obs`; zero where
            that is an episode's first.
        key: Random key of the agent, which never changes; every update's key is folded
            from it.
        update: `[]` int32, number of updates done.
    """

    params: dict[str, PyTree]
    opt_state: PyTree
    obs_moments: PyTree
    envs: rollout.EnvCarry
    memory: PyTree
    key: Array
    update: Array


def make(
    config: RecurrentPQNConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Build recurrent PQN for a config and an environment; see `build`.

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
        recurrence=Recurrence(parts.kind.blank, partial(act, parts)),
        hosted=partial(hosted, parts),
    )


def build(
    config: RecurrentPQNConfig, env: Environment, axis_name: str | None = None
) -> Parts:
    """Build networks and environment of a config.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread.
    """
    config = auto.resolve(config, env)
    whole = pqn.build(config.replace(critic="auto"), env, axis_name)
    seen = obs_shape(whole.obs_space)
    kind = memory_config.kind_of(config)
    shape = composite.head_shape(kind.size, seen)
    network = network_config.whole(config, "critic", shape)
    if network is None:
        layers = network_config.dense_layers(config, config.head_sizes)
        network = networks.DiscreteCritic(
            composite.viewed(layers, shape), whole.num_actions, gain=config.critic_gain
        )
    if composite.has_mask(shape):
        network = networks.Masked(network)
    core = kind.core(network_config.torso_of(config, seen))
    return Parts(config, core, kind, whole._replace(network=network))


def init(parts: Parts, key: Array) -> RecurrentPQNState:
    """Make fresh networks, environments and memories; the key is kept in the state."""
    values = parts.values
    config, keys = parts.config, init_keys(key, 3)
    num_envs = rollout.per_device(config.num_envs, values.axis_name)
    memory = parts.kind.blank((num_envs,))
    obs = observe.example(values.obs_space)
    remembered = jax.tree.map(lambda x: x[:1], memory)
    params = networks.init_params(
        keys[:2],
        {
            "core": (parts.core, [obs, remembered]),
            "q": (values.network, [_seen(parts, remembered, obs)]),
        },
    )
    optim = pqn.optimiser_of(config, config.learning_rate, params)
    return RecurrentPQNState(
        params=params,
        opt_state=optim.init(optimiser.flatten(params)[0]),
        obs_moments=observe.init_moments(values.obs_space),
        envs=rollout.init_envs(values.stepper, keys[2], num_envs),
        memory=memory,
        key=key,
        update=jnp.int32(0),
    )


def step(parts: Parts, state: RecurrentPQNState) -> tuple[RecurrentPQNState, Metrics]:
    """Make one update: collect, compute lambda-returns, regress on them."""
    keys = update_keys(state, 4)
    return learn(parts, state, collect(parts, state, keys[:3]), keys)


def learn(
    parts: Parts, state: RecurrentPQNState, played: rollout.Played, keys: Array
) -> tuple[RecurrentPQNState, Metrics]:
    """Regress on the lambda-returns of a rollout; return state and metrics.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State with which the rollout was collected.
        played: The rollout, from `collect`.
        keys: Keys of the update, the first three of which the rollout has used.
    """
    envs, memory, transitions, memories, episodes = played
    rows = make_sequences(parts, state, transitions, memories)
    params, opt_state, losses = pqn.fit(
        parts.values, state, rows, keys[3], partial(loss, parts)
    )
    obs_moments, metrics = pqn.report(
        parts.values, state, transitions, episodes, losses
    )
    new = RecurrentPQNState(
        params, opt_state, obs_moments, envs, memory, state.key, state.update + 1
    )
    return new, metrics


def act(
    parts: Parts,
    state: RecurrentPQNState,
    obs: Array,
    memory: PyTree,
    key: Array | None = None,
) -> tuple[Array, PyTree]:
    """Return the greedy action, or with a key the epsilon-greedy one at `epsilon_end`.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State of one agent.
        obs: Observations as the environment gives them.
        memory: Memory `[..., ...]` of the episode before `obs`.
        key: Random key, consumed; without one the action is the deterministic one.

    Returns:
        The action, and the memory with `obs` in it.
    """
    prepared = observe.prepare(parts.values, state.obs_moments, obs)
    q, memory = _values(parts, state.params, prepared, memory)
    return exploration.act(q, prepared, parts.config.epsilon_end, key), memory


def collect(parts: Parts, state: RecurrentPQNState, key: Array) -> rollout.Played:
    """Act epsilon-greedily for `num_steps` steps in every environment.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State of one agent; its network does not change meanwhile.
        key: Random key, or three of them; see `rollout.collect`.

    Returns:
        As `rollout.unroll_recurrent`.
    """
    return rollout.collect_recurrent(
        parts.values.stepper,
        state.envs,
        state.memory,
        policy(parts, state),
        key,
        parts.config.num_steps,
    )


def policy(parts: Parts, state: RecurrentPQNState) -> rollout.Policy:
    """Return how the networks of a state choose actions while they are trained."""
    values = parts.values
    epsilon = exploration.epsilon_of_update(parts.config, state.update)

    def explore(obs: Any, memory: PyTree, coin: Any) -> Any:
        q, memory = _values(parts, state.params, obs, memory)
        action = exploration.epsilon_greedy(q, coin, epsilon, obs)
        return (action, (), action), memory

    return rollout.Policy(
        explore,
        partial(observe.prepare, values, state.obs_moments),
        partial(exploration.draw_coin, num_actions=pqn.choices(values)),
    )


def hosted(parts: Parts, update: Array) -> Hosted:
    """Return an update in pieces, for environments on the host.

    Args:
        parts: Networks, environments and config; see `build`.
        update: `[]` int32, number of updates done; nothing here depends on it.
    """
    del update

    def restart(state: RecurrentPQNState, obs: Any) -> RecurrentPQNState:
        memory = jax.tree.map(jnp.zeros_like, state.memory)
        return state._replace(envs=pieces.first_step(state.envs, obs), memory=memory)

    return pieces.of_recurrent_rollout(
        parts.config,
        partial(policy, parts),
        partial(learn, parts),
        restart,
        lambda state: state.memory,
    )


def make_sequences(
    parts: Parts, state: RecurrentPQNState, transitions: Transition, memories: PyTree
) -> Sequences:
    """Compute the lambda-returns of a rollout, and cut it into sequences.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State with which the rollout was collected.
        transitions: `[T, B, ...]` transitions of the rollout.
        memories: Memories `[T, B, ...]` on which the actions were chosen.
    """
    config = parts.config
    prepare = partial(observe.prepare, parts.values, state.obs_moments)
    # `memories` are those of the episode that `next_obs` ends or goes on with.
    next_obs = prepare(transitions.next_obs)
    next_q, _ = _values(parts, state.params, next_obs, memories)
    target = q_lambda(
        transitions.reward,
        next_q.max(-1),
        transitions.terminated,
        transitions.truncated,
        gamma=config.gamma,
        trace_decay=config.trace_decay,
    )
    batch = pqn.Batch(prepare(transitions.obs), transitions.action, target)
    done = transitions.terminated | transitions.truncated
    first = sequences.first_of(done)
    if config.sequence_length == config.num_steps:
        return sequences.whole(state.memory, first, batch)
    lengths = config.sequence_length, config.burn_in
    return sequences.cut(state.memory, memories, first, batch, *lengths)


def loss(parts: Parts, params: PyTree, rows: Sequences) -> tuple[Array, Metrics]:
    """Return the scalar loss of a minibatch of sequences and its metrics.

    Args:
        parts: Networks, environments and config; see `build`.
        params: Parameters of `core` and `q`.
        rows: Sequences of the minibatch.
    """
    obs, memories = sequences.remember(parts.core, parts.kind, params["core"], rows)
    q: Any = parts.values.network.apply(params["q"], _seen(parts, memories, obs))
    action, target = (
        sequences.swap(rows.batch.action),
        sequences.swap(rows.batch.target),
    )
    value = jnp.take_along_axis(q, action[..., None], -1).reshape(-1)
    target = target.reshape(-1)
    errors = value_error(parts.config.value_loss, value, target)
    metrics = diagnostics.means({"value_loss": errors, "q_value": value})
    return metrics["value_loss"], metrics


def _values(
    parts: Parts, params: PyTree, prepared: Any, memory: PyTree
) -> tuple[Array, PyTree]:
    """Values of all actions, and the memory with an observation in it."""
    memory = parts.core.apply(params["core"], prepared, memory)
    seen = _seen(parts, memory, prepared)
    q: Any = parts.values.network.apply(params["q"], seen)
    return q, memory


def _seen(parts: Parts, memory: PyTree, obs: Any) -> Any:
    """Return the head's input: a memory, beside the mask of `obs` if it has one."""
    return composite.beside_mask(parts.kind.read(memory), obs)

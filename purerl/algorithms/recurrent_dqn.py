"""Deep Q-learning with a memory, from a replay buffer of sequences.

"Recurrent Experience Replay in Distributed Reinforcement Learning" (R2D2; Kapturowski
et al. 2019), on one machine and with environments in step. Action values `Q(h_t, a)`
are a head on a memory `h_t` of the episode so far. An update takes `L` steps
(`sequence_length`) epsilon-greedily in every environment, puts them into the buffer as
one sequence for each, with the memory of that moment, and takes `gradient_steps`
gradient steps on batches of sequences. Each of them runs the memory over `burn_in`
steps before a sequence, from the memory that was stored there and without a gradient,
and then minimises over the steps of the sequences

    J = E[w mean_t loss(Q(h_t, a_t), y_t)]
    y_t = f(r_t + ... + gamma^(m-1) r_(t+m-1) + gamma^m f^-1(Q'(h'_(t+m), a*)))

with `m = n_step` steps, or as many as there are to the end of the episode or of the
sequence, and no value after a step that terminated. `Q'` is the target network with a
memory `h'` of its own, run over the same observations, and `a* = argmax_a Q(h_(t+m),
a)`, or without `double` the target network's own choice. `f` is the identity, or with
`value_rescaling` the transformation of Pohlen et al. (2018). `prioritised` samples
sequences in proportion to `(eta max_t |delta_t| + (1 - eta) mean_t |delta_t|)^alpha` of
their last TD errors, and weighs the loss by `w`.

The three rules of `recurrent_ppo` hold here too: the memory is cleared by the flag of
the step before an observation, in the burn-in and in the sequence; a gradient step runs
it over sequences again; and a time limit bootstraps on the observation before the
reset, seen by the memory of the episode that it belongs to.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl import networks
from purerl.acting import exploration, observe, rollout
from purerl.acting.environment import Environment
from purerl.acting.policy import reject_stateless_act
from purerl.algorithms import off_policy, pieces
from purerl.algorithms.recurrent_dqn_config import RecurrentDQNConfig
from purerl.algorithms.recurrent_dqn_learner import (
    Learner,
    make_optimiser,
    report,
    take_steps,
)
from purerl.algorithms.recurrent_dqn_parts import (
    Parts,
    build,
    draw_coin,
    seen,
    values,
)
from purerl.keys import init_keys, update_keys
from purerl.learning import optimiser
from purerl.learning.branches import change_if, change_where
from purerl.replay import sequences as replay
from purerl.replay import uniform as ring
from purerl.tracing import traced_for_cpu
from purerl.types import Algorithm, Array, Hosted, Metrics, PyTree, Recurrence


class RecurrentDQNState(NamedTuple):
    """Everything that training carries, arrays only.

    Attributes:
        params: Parameters of the online network: of `core`, and of the values, `q`.
        target_params: Parameters of the target network.
        opt_state: State of the optimiser.
        buffer: `replay.Stored` with leaves `[C / B, B, ...]`, a column for every
            environment.
        priorities: `batches.Kept` of the sequences, where replay is prioritised.
        obs_moments: Statistics of observations; empty where they are not normalised.
        envs: The environments between two steps.
        memory: Memory `[B, ...]` of the running episodes before `envs.obs`; zero where
            that is an episode's first.
        key: Random key of the agent, which never changes; every update's key is folded
            from it.
        update: `[]` int32, number of updates done.
    """

    params: dict[str, PyTree]
    target_params: dict[str, PyTree]
    opt_state: PyTree
    buffer: replay.Stored
    priorities: PyTree
    obs_moments: PyTree
    envs: rollout.EnvCarry
    memory: PyTree
    key: Array
    update: Array


def make(
    config: RecurrentDQNConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Build recurrent DQN for a config and an environment; see `build`.

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


def init(parts: Parts, key: Array) -> RecurrentDQNState:
    """Make a fresh network, its copy as the target, an empty buffer and memories."""
    config, keys = parts.config, init_keys(key, 3)
    num_envs = rollout.per_device(config.num_envs, parts.stepper.axis_name)
    memory = parts.kind.blank((num_envs,))
    obs = observe.example(parts.obs_space)
    one = jax.tree.map(lambda x: x[:1], memory)
    params = networks.init_params(
        keys[:2],
        {
            "core": (parts.core, [obs, one]),
            "q": (parts.head, [seen(parts, one, obs)]),
        },
    )
    flat, restore = optimiser.flatten(params)
    envs = rollout.init_envs(parts.stepper, keys[2], num_envs)
    capacity = rollout.per_device(config.capacity, parts.stepper.axis_name)
    example = jax.eval_shape(partial(_example, parts), envs, memory)
    is_normalised = config.normalize_observations
    return RecurrentDQNState(
        params=params,
        target_params=params,
        opt_state=make_optimiser(config, restore).init(flat),
        buffer=ring.by_env(ring.init(example, capacity), num_envs),
        priorities=parts.replay.init(),
        obs_moments=observe.init_moments(parts.obs_space) if is_normalised else (),
        envs=envs,
        memory=memory,
        key=key,
        update=jnp.int32(0),
    )


def _example(parts: Parts, envs: rollout.EnvCarry, memory: PyTree) -> replay.Stored:
    """Return one item of the right shapes for the buffer."""
    num = parts.config.sequence_length
    obs = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], (num, *x.shape[1:])), envs.obs)
    flag = jnp.zeros(num, bool)
    steps = off_policy.Item(
        obs, jnp.zeros(num, jnp.int32), jnp.zeros(num), obs, flag, flag
    )
    return replay.Stored(jax.tree.map(lambda x: x[0], memory), steps)


def step(parts: Parts, state: RecurrentDQNState) -> tuple[RecurrentDQNState, Metrics]:
    """Make one update: collect sequences, remember them, take the gradient steps."""
    keys = update_keys(state, pieces.NUM_KEYS)
    return learn(parts, state, collect(parts, state, keys[:3]), keys)


def collect(parts: Parts, state: RecurrentDQNState, key: Array) -> rollout.Played:
    """Act epsilon-greedily for `sequence_length` steps in every environment.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State of one agent; its network does not change meanwhile.
        key: Random key, or three of them; see `rollout.collect`.

    Returns:
        As `rollout.unroll_recurrent`.
    """
    return rollout.collect_recurrent(
        parts.stepper,
        state.envs,
        state.memory,
        policy(parts, state),
        key,
        parts.config.sequence_length,
    )


def policy(parts: Parts, state: RecurrentDQNState) -> rollout.Policy:
    """Return how the network of a state chooses actions while it is trained."""
    epsilon = exploration.epsilon_of_update(parts.config, state.update)

    def explore(obs: Any, memory: PyTree, coin: Any) -> Any:
        q, memory = values(parts, state.params, obs, memory)
        action = exploration.epsilon_greedy(q, coin, epsilon, obs)
        return (action, (), action), memory

    prepare = partial(observe.prepare, parts, state.obs_moments)
    return rollout.Policy(explore, prepare, partial(draw_coin, parts))


def act(
    parts: Parts,
    state: RecurrentDQNState,
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
    prepared = observe.prepare(parts, state.obs_moments, obs)
    q, memory = values(parts, state.params, prepared, memory)
    return exploration.act(q, prepared, parts.config.epsilon_end, key), memory


def hosted(parts: Parts, update: Array) -> Hosted:
    """Return an update in pieces, for environments on the host.

    Args:
        parts: Networks, environments and config; see `build`.
        update: `[]` int32, number of updates done.
    """
    return pieces.of_recurrent_rollout(
        parts.config,
        partial(policy, parts),
        partial(learn, parts),
        partial(restart, update),
        lambda state: state.memory,
    )


def restart(update: Array, state: RecurrentDQNState, obs: PyTree) -> RecurrentDQNState:
    """Return the state with all episodes begun anew.

    The last step of every environment is marked as cut, so that the memory of a burn-in
    is cleared after it.

    Args:
        update: `[]` int32, number of updates done.
        state: State of one agent.
        obs: First observations `[B, ...]`.
    """
    steps = state.buffer.steps
    rows = steps.truncated.shape[0]
    newest = jnp.where(update > 0, (update - 1) % rows, rows)
    is_last = (jnp.arange(rows) == newest)[:, None] & ~steps.terminated[..., -1]
    truncated = steps.truncated.at[..., -1].set(steps.truncated[..., -1] | is_last)
    return state._replace(
        buffer=state.buffer._replace(steps=steps._replace(truncated=truncated)),
        envs=pieces.first_step(state.envs, obs),
        memory=jax.tree.map(jnp.zeros_like, state.memory),
    )


def learn(
    parts: Parts, state: RecurrentDQNState, played: rollout.Played, keys: Array
) -> tuple[RecurrentDQNState, Metrics]:
    """Remember a rollout, and learn from sequences of the buffer where that is due.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State with which the rollout was collected.
        played: The rollout, from `collect`.
        keys: Keys of the update, the first three of which the rollout has used.
    """
    config, axis = parts.config, parts.stepper.axis_name
    num_envs = played.envs.episode_return.shape[0]
    before = state.update.astype(jnp.uint32) * jnp.uint32(num_envs)
    stored = replay.store(
        state.memory, played.memories, played.transitions, config.burn_in
    )
    buffer = ring.add(ring.in_order(state.buffer), stored, before)
    priorities = parts.replay.grow(state.priorities)
    priorities = parts.replay.add(priorities, before, num_envs)
    moments = state.obs_moments
    if config.normalize_observations:
        obs = observe.to_features(parts.obs_space, played.transitions.obs)
        moments = observe.merge_moments(parts.obs_space, moments, obs, axis)

    params, restore = optimiser.flatten(state.params)
    target_params, _ = optimiser.flatten(state.target_params)
    learner = Learner(params, target_params, state.opt_state, priorities)
    due = state.update >= config.first_update
    change = partial(
        take_steps,
        parts,
        restore,
        partial(observe.prepare, parts, moments),
        buffer,
        state.update,
        keys[3],
    )
    # Priorities are not computed to be thrown away.
    if traced_for_cpu() or config.prioritised:
        learner, sums = change_if(due, change, learner, like=state.key)
    else:
        learner, sums = change_where(due, change, learner)

    metrics = report(parts, state.update, played.episodes, sums)
    new = RecurrentDQNState(
        params=restore(learner.params),
        target_params=restore(learner.target_params),
        opt_state=learner.opt_state,
        buffer=ring.by_env(buffer, num_envs),
        priorities=parts.replay.keep(learner.priorities, metrics["episodes"]),
        obs_moments=moments,
        envs=played.envs,
        memory=played.memory,
        key=state.key,
        update=state.update + 1,
    )
    return new, metrics

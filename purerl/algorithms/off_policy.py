"""The learner of every algorithm with a replay buffer: act, store, learn.

An update is `rounds_per_update` rounds. In each, every environment takes `num_steps`
steps with the exploring policy, or with a memory those of a sequence. They go into the
replay buffer, and then gradient steps are taken on batches from it. What is due when
follows from the number of the round, one number that all vmapped agents share: the
warm-up ends by a branch that stays a branch, and no agent waits for another.

All that is random in an update is drawn before its rounds, in wide kernels. With
environments on the host the same functions are called round by round, see `hosted`.

An algorithm is an `Agent` and the `Hooks` that act and learn.
Axes: `R` rounds, `T` steps, `B` environments on this device, `G` gradient steps of a
round, `N` samples of a batch.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import auto
from purerl.accelerator import kernels
from purerl.accelerator.rows import items_of, rows_of
from purerl.acting import exploration, rollout
from purerl.algorithms import own_terms
from purerl.algorithms.memory import reject_stateless_act
from purerl.algorithms.replay_config import ReplayConfig
from purerl.envs.base import Environment
from purerl.keys import several, update_keys
from purerl.learning.averages import after, pmean
from purerl.learning.branches import StepCount, add_gradient, change_if, change_where
from purerl.metrics import averages
from purerl.networks import observe
from purerl.networks.distributions import Head, make_head
from purerl.replay import batches
from purerl.replay import uniform as ring
from purerl.replay.batches import Batch as Batch
from purerl.types import Algorithm, Array, Hosted, Metrics, PyTree, Recurrence

# The most gradient steps of a round that are unrolled on an accelerator, whose program
# then knows which of them move the policy, and needs no branch.
MOST_UNROLLED = 4
# An update needs keys for actions, environments and restarts, for replay, and for
# learning.
NUM_KEYS = 5


class Agent(NamedTuple):
    """The parts of an algorithm, bound once in Python: structure, and numbers.

    Attributes:
        config: The numbers, `auto` resolved; leaves may be traced.
        stepper: The environments.
        obs_space: Observation space of the environment.
        head: Distribution of discrete actions, or the range of continuous ones.
        replay: Functions that sample batches.
        terms: The user's own terms of the loss by name, see `own_terms`.
        network: Network of action values, of observations or of memories.
        kind: What is learned of each action.
        memory: Networks of the memory.
        actor: Network of the policy: logits, or actions or a Gaussian before tanh.
        critics: Networks of the values of all actions, or of a given one in [-1, 1].
    """

    config: Any
    stepper: rollout.Stepper
    obs_space: Any
    head: Head
    replay: batches.Replay
    terms: own_terms.Terms
    network: Any = None
    kind: Any = None
    memory: Any = None
    actor: Any = None
    critics: Any = None


def make_agent(
    config: Any,
    env: Environment,
    axis_name: str | None,
    policy: str,
    make_replay: Callable[[Any, str | None], batches.Replay] = batches.of_steps,
) -> Agent:
    """Bind a config and an environment to an agent that has no networks yet.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread.
        policy: Kind of the head, see `make_head`.
        make_replay: Function of the config and the axis that makes the replay.
    """
    config = auto.resolve(config, env)
    stepper = rollout.make_stepper(config, env, axis_name)
    obs_space = env.observation_space(stepper.params)
    head = make_head(env.action_space(stepper.params), policy)
    replay, terms = make_replay(config, axis_name), own_terms.terms_of(config)
    return Agent(config, stepper, obs_space, head, replay, terms)


class State(NamedTuple):
    """Everything that training carries, arrays only.

    Attributes:
        params: Parameters of everything that learns.
        target_params: Parameters of the networks that have targets.
        opt_state: State of the optimisers.
        buffer: `batches.Item` or `batches.Stored`, leaves `[C / B, B, ...]`: a column
            for every environment.
        envs: The environments between two steps.
        key: Random key of the agent, which never changes; every update's key is folded
            from it.
        update: `[]` int32, number of updates done.
        priorities: `batches.Kept` of the items; empty where replay is uniform.
        obs_moments: Statistics of the observations that were acted on; empty where
            they are not normalised.
        memory: Memory `[B, ...]` of the running episodes before `envs.obs`; empty for
            an agent without one.
    """

    params: PyTree
    target_params: PyTree
    opt_state: PyTree
    buffer: Any
    envs: rollout.EnvCarry
    key: Array
    update: Array
    priorities: PyTree = ()
    obs_moments: PyTree = ()
    memory: PyTree = ()


class Learner(NamedTuple):
    """The part of the state that a gradient step changes.

    Within a step `pull` is the gradient of the user's own terms, of the form of
    `params`, which is added to that of the algorithm; () without terms.
    """

    params: PyTree
    target_params: PyTree
    opt_state: PyTree
    pull: PyTree = ()


# What of a learner a state keeps.
_LEARNED = Learner._fields[:3]


def _own(params: PyTree, batch: Batch) -> tuple[PyTree, own_terms.Samples]:
    """Parameters by network and samples as an algorithm of single steps has them."""
    return params, own_terms.Samples(**batch._asdict())


class Experience(NamedTuple):
    """The part of the state that acting changes; see `State`.

    Between two updates every leaf either has an axis of environments, along which
    devices share it, or is the same on all devices. Inside an update a device has a
    buffer `[C, ...]` and priorities of its own.
    """

    buffer: Any
    envs: rollout.EnvCarry
    priorities: PyTree = ()
    obs_moments: PyTree = ()
    memory: PyTree = ()


class Hooks(NamedTuple):
    """The functions that an algorithm adds to the learner.

    Attributes:
        agent: The algorithm's networks, environments, replay and config.
        draw_action: `(key, shape) -> noise [*shape, ...]` of exploring actions.
        explore: `(learner, obs [B, ...], memory, noise [B, ...], step [B]) ->
            (action [B, ...], memory)`: the action as it is stored, chosen on prepared
            observations at the given environment step.
        draw_noise: `(key, shape) -> noise [*shape, ...]` of gradient steps;
            `jax.random.split` for those that draw their own.
        learn: `(learner, batch, noise, count) -> (learner, td_error [N], metrics)`,
            one gradient step; `count` says where the step stands among all. A metric of
            the policy is 0 where the policy took no step.
        draw_shared: `(key, shape) -> choices [*shape, ...]` of gradient steps that all
            devices make alike; the noise of `learn` is then a pair, these second.
        recall: `(learner, prepare, before, played) -> played` with the memories of what
            never acts beside those of the actor; None where there are none.
        shown: `(learner.params, batch) -> (parameters by network, samples)`, what the
            user's own terms see.
    """

    agent: Agent
    draw_action: rollout.Draw
    explore: Callable[..., tuple[Array, PyTree]]
    draw_noise: rollout.Draw
    learn: Callable[[Any, Any, PyTree, StepCount], tuple[Any, Array, Metrics]]
    draw_shared: rollout.Draw | None = None
    recall: Callable[..., rollout.Played] | None = None
    shown: Callable[[PyTree, Any], tuple[PyTree, own_terms.Samples]] = _own


# `(agent, state) -> (hooks, learner, leave)`: what an update works with, its parameters
# in the form in which they learn, and `leave(learner)`, which brings them back.
Enter = Callable[[Agent, State], tuple[Hooks, Learner, Callable[[Learner], Learner]]]


def algorithm(
    agent: Agent,
    init: Callable[[Any, Array], State],
    enter: Enter,
    act: Callable[..., tuple[Any, PyTree]],
) -> Algorithm:
    """Return the algorithm of an agent: its own `init`, `enter` and `act` in the loop.

    Args:
        init: Function `(agent, key) -> state`; see `init_state`.
        act: Function `(agent, state, obs, memory, key=None) -> (action, memory)`, with
            the empty memory () where the agent has none.
    """

    def act_alone(state: State, obs: Any, key: Array | None = None) -> Any:
        return act(agent, state, obs, (), key)[0]

    recurrence = None
    if agent.memory is not None:
        recurrence = Recurrence(agent.memory.kind.blank, partial(act, agent))
    return Algorithm(
        init=partial(init, agent),
        step=partial(step, agent, enter),
        act=reject_stateless_act if recurrence else act_alone,
        recurrence=recurrence,
        hosted=partial(hosted, agent, enter),
    )


def init_state(agent: Agent, key: Array, key_env: Array, learner: Learner) -> State:
    """Return the first state of an agent, with an empty buffer.

    Args:
        key: Random key, which is kept in the state.
        key_env: Random key of the environments, consumed.
        learner: Fresh parameters, targets and states of the optimisers.
    """
    experience = init_experience(agent, key_env)
    learned = {name: getattr(learner, name) for name in _LEARNED}
    return State(**learned, **experience._asdict(), key=key, update=jnp.int32(0))


def init_experience(agent: Agent, key: Array) -> Experience:
    """Start environments with an empty buffer; the key is consumed."""
    config, axis = agent.config, agent.stepper.axis_name
    num_envs = rollout.per_device(config.num_envs, axis)
    memory = () if agent.memory is None else agent.memory.blank(num_envs)
    envs = rollout.init_envs(agent.stepper, key, num_envs)
    items = jax.eval_shape(partial(_examples, agent), envs, memory)
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), items)
    capacity = rollout.per_device(config.capacity, axis)
    is_normalised = config.normalize_observations
    return Experience(
        buffer=ring.by_env(ring.init(one, capacity), num_envs),
        envs=envs,
        priorities=agent.replay.init(),
        obs_moments=observe.init_moments(agent.obs_space) if is_normalised else (),
        memory=memory,
    )


def _examples(agent: Agent, envs: rollout.EnvCarry, memory: PyTree) -> PyTree:
    """Items of a round, for their shapes."""
    num_steps, num_envs = agent.config.round_steps, envs.episode_return.shape[0]
    shape = (num_steps, num_envs)

    def each_step(x: Array) -> Array:
        return jnp.broadcast_to(x[None], (num_steps, *x.shape))

    obs, memories = jax.tree.map(each_step, (envs.obs, memory))
    action = random_action(agent, jax.random.key(0), shape)
    flag, number = jnp.zeros(shape, bool), jnp.zeros(shape)
    steps = rollout.Transition(obs, action, number, number, obs, flag, flag)
    return agent.replay.store(memory, memories, steps)


def random_action(agent: Agent, key: Array, shape: tuple[int, ...] = ()) -> Array:
    """Draw uniform actions `[*shape, ...]` as they are stored; the key is consumed.

    Continuous ones lie in [-1, 1]; of discrete ones `exploration.valid_action` makes
    valid ones where a mask excludes some.
    """
    head = agent.head
    if not head.is_discrete:
        whole = (*shape, head.num_outputs)
        return jax.random.uniform(key, whole, minval=-1.0, maxval=1.0)
    return exploration.draw_action(key, shape, num_actions=num_choices(agent))


def num_choices(agent: Agent) -> int:
    """Return the number of choices that a random discrete action is drawn from."""
    num_actions = agent.head.num_outputs
    return exploration.choices_of(observe.obs_shape(agent.obs_space), num_actions)


def step(agent: Agent, enter: Enter, state: State) -> tuple[State, Metrics]:
    """Make one update of a state: rounds of acting, storing and learning."""
    hooks, learner, leave = enter(agent, state)
    keys = update_keys(state, NUM_KEYS)
    experience = experience_of(state)
    learner, experience, metrics = run(hooks, learner, experience, keys, state.update)
    return _after(state, leave(learner), experience), metrics


def experience_of(state: State) -> Experience:
    """Return what a state carries beside the learner."""
    return Experience(*(getattr(state, name) for name in Experience._fields))


def _after(state: State, learner: Learner, experience: Experience) -> State:
    learned = {name: getattr(learner, name) for name in _LEARNED}
    return state._replace(**learned, **experience._asdict(), update=state.update + 1)


def run(
    hooks: Hooks, learner: Any, experience: Experience, key: Array, update: Array
) -> tuple[Any, Experience, Metrics]:
    """Make one update: rounds of acting, storing and learning.

    Args:
        experience: Experience before the update.
        key: Random key, or five: the three of a rollout (see `rollout.collect`), that
            of replay and that of learning. Consumed.
        update: `[]` int32, number of updates done; the same for all vmapped agents.

    Returns:
        Learner, experience, and metrics. Losses are means over the update's gradient
        steps (those of the policy over its `policy_steps`), undefined (NaN) where the
        count of these is 0; a NaN of a step that was taken stays one.
    """
    config, stepper = hooks.agent.config, hooks.agent.stepper
    rounds = config.rounds_per_update
    num_envs = experience.envs.episode_return.shape[0]
    keys = several(key, NUM_KEYS)
    randomness = rollout.draw_randomness(
        stepper,
        experience.envs,
        keys[:3],
        rounds * config.round_steps,
        partial(draw_actions, hooks),
    )
    inputs = by_round(config, randomness.inputs)
    noise = draw_learning(hooks, keys[3], keys[4])
    experience = opened(hooks, experience)
    pack, unpack = kernels.carry_packers(experience.envs, axes=1)
    experience = experience._replace(envs=pack(experience.envs))

    def one_round(carry: tuple, xs: tuple) -> tuple[tuple, Any]:
        learner, experience = carry
        experience = experience._replace(envs=unpack(experience.envs))
        number, (noise_act, inputs_env), noise_learn = xs
        player = policy(hooks, learner, experience.obs_moments)
        steps = numbers_of_steps(hooks, number, num_envs)
        drawn = randomness._replace(inputs=((noise_act, steps), inputs_env))
        before = rollout.of_actor(experience.memory)
        played = rollout.unroll(stepper, experience.envs, before, player, drawn)
        experience = remember(hooks, learner, experience, number, played)
        (learner, priorities), metrics = learn_if_due(
            hooks, learner, experience, number, noise_learn, key
        )
        experience = experience._replace(
            priorities=priorities, envs=pack(experience.envs)
        )
        return (learner, experience), (played.episodes, metrics, shown(hooks, played))

    first = update.astype(jnp.uint32) * jnp.uint32(rounds)
    numbers = first + jnp.arange(rounds, dtype=jnp.uint32)
    (learner, experience), reports = kernels.scan(
        one_round, (learner, experience), (numbers, inputs, noise)
    )
    experience = experience._replace(envs=unpack(experience.envs))
    metrics = report(hooks, first, *reports)
    return learner, closed(hooks, experience, num_envs, metrics), metrics


def opened(hooks: Hooks, experience: Experience) -> Experience:
    """Return the experience as it is inside an update."""
    return experience._replace(
        buffer=rows_of(ring.in_order(experience.buffer)),
        priorities=hooks.agent.replay.grow(experience.priorities),
    )


def closed(
    hooks: Hooks, experience: Experience, num_envs: int, metrics: Metrics
) -> Experience:
    """Return the experience as it is between two updates, after their averages."""
    keep = hooks.agent.replay.keep
    return experience._replace(
        buffer=ring.by_env(items_of(experience.buffer), num_envs),
        priorities=keep(experience.priorities, metrics["episodes"]),
    )


def draw_actions(hooks: Hooks, key: Array, shape: tuple[int, ...]) -> PyTree:
    """Draw the noise of exploring actions, and the actions of the warm-up if any."""
    if hooks.agent.config.warm_up_steps is None:
        return hooks.draw_action(key, shape)
    key_action, key_random = jax.random.split(key)
    random = random_action(hooks.agent, key_random, shape)
    return hooks.draw_action(key_action, shape), random


def by_round(config: ReplayConfig, steps: PyTree) -> PyTree:
    """Return leaves `[R, T, ...]` of what an update's steps have, `[R * T, ...]`."""
    lead = config.rounds_per_update, config.round_steps
    return jax.tree.map(lambda x: x.reshape(*lead, *x.shape[1:]), steps)


def numbers_of_steps(hooks: Hooks, number: Array, num_envs: int) -> Array:
    """Return the numbers of the environment steps of a round, uint32 `[T, B]`."""
    config, axis = hooks.agent.config, hooks.agent.stepper.axis_name
    first = number * jnp.uint32(config.steps_per_round)
    index = jnp.arange(num_envs, dtype=jnp.uint32)
    if axis is not None:
        index = index + jax.lax.axis_index(axis).astype(jnp.uint32) * num_envs
    rows = jnp.arange(config.round_steps, dtype=jnp.uint32) * config.num_envs
    return first + rows[:, None] + index[None]


def policy(hooks: Hooks, learner: Any, moments: PyTree = ()) -> rollout.Player:
    """Return how actions are chosen: at random in the warm-up, then by exploring.

    A step's noise is that of `draw_actions` and the step's number.
    """
    agent, warm_up_steps = hooks.agent, hooks.agent.config.warm_up_steps

    def act(obs: Any, memory: PyTree, noise: tuple) -> Any:
        drawn, step = noise
        random = None
        if warm_up_steps is not None:
            drawn, random = drawn
        action, memory = hooks.explore(learner, obs, memory, drawn, step)
        if random is not None:
            # The warm-up ends at an exact step: some environments may still be in it,
            # others not.
            random = exploration.valid_action(obs, random)
            warming_up = step < warm_up_steps
            extra = (1,) * (action.ndim - 1)
            action = jnp.where(warming_up.reshape(-1, *extra), random, action)
        return (action, (), agent.head.to_env(action)), memory

    prepare = partial(observe.prepare, agent, moments)
    return rollout.Player(act, prepare, partial(draw_actions, hooks))


def remember(
    hooks: Hooks,
    learner: Any,
    experience: Experience,
    number: Array,
    played: rollout.Played,
) -> Experience:
    """Put the steps of round `number` into the buffer, and their priorities."""
    agent, axis = hooks.agent, hooks.agent.stepper.axis_name
    if hooks.recall is not None:
        prepare = partial(observe.prepare, agent, experience.obs_moments)
        played = hooks.recall(learner, prepare, experience.memory, played)
    if agent.memory is not None:
        played = rollout.without_bad(played)
    transitions = played.transitions
    items = agent.replay.store(experience.memory, played.memories, transitions)
    num = jax.tree.leaves(items)[0].shape[0]
    added = number * jnp.uint32(num)
    moments = experience.obs_moments
    if agent.config.normalize_observations:
        # Every observation that was acted on counts once. The one after the last step
        # of an episode is stored, but it is not in the statistics.
        features = observe.to_features(agent.obs_space, transitions.obs)
        moments = observe.merge_moments(agent.obs_space, moments, features, axis)
    return Experience(
        buffer=ring.add(experience.buffer, items, added),
        envs=played.envs,
        priorities=agent.replay.add(experience.priorities, added, num),
        obs_moments=moments,
        memory=played.memory,
    )


def draw_learning(hooks: Hooks, key_replay: Array, key_learn: Array) -> PyTree:
    """Draw batches and noise of an update's gradient steps, `[R, G, ...]`."""
    config, axis = hooks.agent.config, hooks.agent.stepper.axis_name
    shape = (config.rounds_per_update, config.gradient_steps_per_round)
    key_shared = key_learn
    if hooks.draw_shared is not None:
        key_learn, key_shared = jax.random.split(key_learn)
    if axis is not None:
        index = jax.lax.axis_index(axis)
        key_replay, key_learn = (
            jax.random.fold_in(key, index) for key in (key_replay, key_learn)
        )
    drawn = hooks.agent.replay.draw(key_replay, shape)
    own = own_terms.key_of(key_learn) if hooks.agent.terms else None
    noise = hooks.draw_noise(key_learn, shape)
    if hooks.draw_shared is not None:
        noise = (noise, hooks.draw_shared(key_shared, shape))
    if own is not None:
        noise = (noise, jax.random.split(own, shape))
    return drawn, noise


def learn_if_due(
    hooks: Hooks,
    learner: Any,
    experience: Experience,
    number: Array,
    noise: PyTree,
    key: Array,
) -> tuple[tuple[Any, PyTree], Metrics]:
    """Take the gradient steps of a round, or nothing during the warm-up.

    Args:
        number: `[]` uint32, number of the round.
        noise: Random numbers of the round's gradient steps, `[G, ...]`.
        key: Key of the update; see `branches.change_if`.

    Returns:
        Learner and priorities, and the sums of the metrics.
    """
    due = number >= jnp.uint32(hooks.agent.config.first_round)
    learn = partial(_learn, hooks, experience, number, noise)
    carry = (learner, experience.priorities)
    # Priorities are as large as the buffer, so they are not computed to be thrown away.
    if kernels.traced_for_cpu() or jax.tree.leaves(experience.priorities):
        return change_if(due, learn, carry, like=key)
    if hooks.agent.memory is not None:  # Gradient steps through time are not unrolled.
        return change_where(due, learn, carry)
    return learn(carry, due)


def _learn(
    hooks: Hooks,
    experience: Experience,
    number: Array,
    noise: PyTree,
    carry: tuple[Any, PyTree],
    is_due: Array | None = None,
) -> tuple[tuple[Any, PyTree], Metrics]:
    """Take the gradient steps of a round with learner and priorities; sum metrics.

    Args:
        number: `[]` uint32, number of the round.
        noise: Random numbers of the gradient steps, `[G, ...]`.
        is_due: `[]` bool, where the steps are computed in any case: whether they count.
    """
    agent = hooks.agent
    config, replay, axis = agent.config, agent.replay, agent.stepper.axis_name
    per_round = jnp.uint32(rollout.per_device(config.items_per_round, axis))
    added = (number + 1) * per_round
    before = config.gradient_steps_before(number)
    prepare = partial(observe.prepare, agent, experience.obs_moments)
    steps = config.gradient_steps_per_round

    def take(learner: Any, batch: Any, noise: PyTree, index: Any) -> Any:
        known = int(index) if isinstance(index, np.integer) else None
        count = StepCount(before + index, steps, known)
        if not agent.terms:
            learner, td_error, metrics = hooks.learn(learner, batch, noise, count)
            return learner, (td_error, metrics)
        noise, key = noise
        learner, found = _pulled(hooks, learner, batch, count, key)
        batch = after(batch, next(iter(found.values())), axis)
        learner, td_error, metrics = hooks.learn(learner, batch, noise, count)
        learner = learner._replace(pull=())
        return learner, (td_error, {**metrics, **found})

    def one_step(carry: tuple, xs: tuple) -> tuple[tuple, Metrics]:
        learner, priorities = carry
        index, (noise_replay, noise_learn) = xs
        numbers, weight = replay.sample(priorities, noise_replay, added)
        batch = replay.batch(experience.buffer, numbers, weight, prepare)
        change = partial(take, batch=batch, noise=noise_learn, index=index)
        if is_due is None:
            learner, (td_error, metrics) = change(learner)
        else:
            # The choice is made in each step, not around all of them, so that the
            # optimiser's kernels make it.
            learner, (td_error, metrics) = change_where(is_due, change, learner)
        priorities = replay.update(priorities, numbers, td_error)
        return (learner, priorities), metrics

    if is_due is None or steps > MOST_UNROLLED:
        indices = jnp.arange(steps, dtype=jnp.uint32)
        carry, metrics = kernels.scan(one_step, carry, (indices, noise))
    else:
        indices = np.arange(steps, dtype=np.uint32)
        carry, metrics = kernels.scan_unrolled(one_step, carry, (indices, noise))
    return carry, {name: values.sum(0) for name, values in metrics.items()}


def shown(hooks: Hooks, played: rollout.Played) -> PyTree:
    """Return the transitions of a round where own metrics see them; otherwise ()."""
    return played.transitions if hooks.agent.config.metrics else ()


def _pulled(
    hooks: Hooks, learner: Learner, batch: Any, count: StepCount, key: Array
) -> tuple[Learner, Metrics]:
    """Return the learner with the gradient of the user's own terms, and their means."""
    agent = hooks.agent

    def loss(params: PyTree) -> tuple[Array, Metrics]:
        named, samples = hooks.shown(params, batch)
        return own_terms.added(agent.terms, named, samples, apply_of(agent), key)

    zeros = jax.tree.map(jnp.zeros_like, learner.params)
    found = add_gradient(zeros, loss, learner.params, count.number, key)
    pull, metrics = pmean(found, agent.stepper.axis_name)
    return learner._replace(pull=pull), metrics


def apply_of(agent: Agent) -> own_terms.Apply:
    """Return how terms call the networks of an agent."""
    known = {"q": agent.network, "actor": agent.actor, "critics": agent.critics}
    return own_terms.applying({n: one for n, one in known.items() if one is not None})


def with_heads(
    agent: Agent, params: PyTree, seen: tuple[Any, Any], key: Array
) -> PyTree:
    """Return fresh parameters by network with those that terms have beside them.

    Args:
        seen: Two observations `[1, ...]` as the networks see them, the second after a
            step.
        key: The agent's key.
    """
    if not own_terms.heads_of(agent.terms):
        return params
    action = jnp.zeros_like(random_action(agent, jax.random.key(0), (1,)))
    return own_terms.with_heads(agent.terms, params, seen, action, apply_of(agent), key)


def report(
    hooks: Hooks, first: Array, episodes: rollout.Episodes, sums: Metrics, batch: PyTree
) -> Metrics:
    """Return the metrics of the update that began with round `first`.

    Args:
        first: `[]` uint32, number of the first round.
        episodes: Ends of the episodes, `[R, T, B]`.
        sums: Sums of the metrics of each round's gradient steps, `[R]`.
        batch: What is shown to own metrics, `[R, T, B, ...]`.
    """
    config, axis = hooks.agent.config, hooks.agent.stepper.axis_name
    end = first + jnp.uint32(config.rounds_per_update)
    counts = _counts(hooks, config.gradient_steps_before(first), end)
    sums = {name: values.sum(0) for name, values in sums.items()}
    losses = averages(sums, counts)
    # Averages over devices must come one after another: see `averages`.
    episodes = after(episodes, next(iter(losses.values())), axis)
    return {
        "env_steps": end * jnp.uint32(config.steps_per_round),
        "gradient_steps": config.gradient_steps_before(end),
        **{name: counts[name] for name in counts if name != "gradient_steps"},
        **rollout.episode_metrics(episodes, axis),
        **losses,
        **rollout.shown(batch),
    }


def _counts(hooks: Hooks, before: Array, end: Array) -> Metrics:
    """The counts of what happened in an update: the weights of its averages."""
    config = hooks.agent.config
    after_it = config.gradient_steps_before(end)
    counts = {"gradient_steps": after_it - before}
    # Gradient steps per step of the policy, the last of which moves it, if it waits.
    if period := getattr(config, "policy_delay", None):
        delay = jnp.uint32(period)
        counts["policy_steps"] = (after_it // delay - before // delay).astype(jnp.int32)
    return counts


class Work(NamedTuple):
    """The values that one piece of a hosted update hands on to the next.

    Attributes:
        state: State before the update, without its experience.
        learner: The learner, in the form in which it learns.
        experience: Experience as it is inside an update.
        noise: Random numbers of the gradient steps, `[R, G, ...]`.
    """

    state: State
    learner: Learner
    experience: Experience
    noise: PyTree


def hosted(agent: Agent, enter: Enter, update: Array) -> Hosted:
    """Return an update in pieces, for environments on the host; see `types.Hosted`.

    Args:
        update: `[]` int32, number of updates done.
    """
    config = agent.config
    rounds, num_envs = config.rounds_per_update, config.num_envs
    first = jnp.asarray(update).astype(jnp.uint32) * jnp.uint32(rounds)

    def begin(state: State) -> tuple[Work, PyTree, PyTree]:
        """Draw the randomness of all rounds, and open the replay buffer."""
        hooks, learner, _ = enter(agent, state)
        keys = update_keys(state, NUM_KEYS)
        noise = draw_actions(hooks, keys[0], (rounds * config.round_steps, num_envs))
        numbers = first + jnp.arange(rounds, dtype=jnp.uint32)
        count = partial(numbers_of_steps, hooks, num_envs=num_envs)
        experience = experience_of(state)
        work = Work(
            state._replace(**dict.fromkeys(Experience._fields, ())),
            learner,
            opened(hooks, experience),
            draw_learning(hooks, keys[3], keys[4]),
        )
        drawn = by_round(config, noise), jax.vmap(count)(numbers)
        return work, rollout.of_actor(state.memory), drawn

    def act(work: Work, obs: Any, memory: PyTree, noise: PyTree) -> Any:
        """Choose actions with the policy as it is in this round."""
        hooks, *_ = enter(agent, work.state)
        chooser = policy(hooks, work.learner, work.experience.obs_moments)
        return chooser.act(chooser.prepare(obs), memory, noise)

    def learn(work: Work, number: Array, played: rollout.Played) -> tuple[Work, Any]:
        """Remember the steps of a round, and learn where that is due."""
        hooks, *_ = enter(agent, work.state)
        now = first + jnp.asarray(number).astype(jnp.uint32)
        experience = remember(hooks, work.learner, work.experience, now, played)
        noise = jax.tree.map(lambda x: x[number], work.noise)
        (learner, priorities), sums = learn_if_due(
            hooks, work.learner, experience, now, noise, work.state.key
        )
        experience = experience._replace(priorities=priorities)
        work = work._replace(learner=learner, experience=experience)
        return work, (played.episodes, sums, shown(hooks, played))

    def finish(work: Work, reports: Any) -> tuple[State, Metrics]:
        """Close the replay buffer, and return the state and the update's metrics."""
        hooks, _, leave = enter(agent, work.state)
        metrics = report(hooks, first, *reports)
        experience = closed(hooks, work.experience, num_envs, metrics)
        return _after(work.state, leave(work.learner), experience), metrics

    def restart(state: State, obs: PyTree) -> State:
        """Return the state with all episodes begun anew, the running ones cut."""
        added = first * jnp.uint32(config.items_per_round // num_envs)
        return state._replace(
            buffer=batches.cut_newest(state.buffer, added),
            envs=rollout.first_step(state.envs, obs),
            memory=jax.tree.map(jnp.zeros_like, state.memory),
        )

    return Hosted(rounds, config.round_steps, begin, act, learn, finish, restart)

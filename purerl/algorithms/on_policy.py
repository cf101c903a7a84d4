"""The learner of every algorithm that learns from the rollout it has just collected.

An update collects `T` steps in `B` environments with the current policy (`collect`),
learns from them, and reports. What is learned is the algorithm: its `learn` gets the
rollout and returns parameters and metrics (`Learned`). Everything else is here: the
state, acting, environments on the host, and a memory, which may be none at all.

Statistics of observations and rewards are frozen while a rollout is collected and
learned from, and move on afterwards: see `averages`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from purerl import auto, networks
from purerl.accelerator.kernels import traced_for_cpu
from purerl.acting import rollout
from purerl.acting.rollout import Memories, of_actor
from purerl.algorithms import memory as memories
from purerl.algorithms import own_terms
from purerl.algorithms.memory import CRITIC_CORE, Memory
from purerl.envs.base import Environment
from purerl.keys import init_keys, update_keys
from purerl.learning import averages, optimiser
from purerl.learning.averages import after, pmean
from purerl.learning.minibatches import (
    PLAIN_STEPS_OF_TURN,
    Passes,
    minimise,
    pass_means,
)
from purerl.learning.sequences import flatten
from purerl.metrics import BATCH
from purerl.networks import observe
from purerl.networks.observe import obs_shape, to_features
from purerl.types import Algorithm, Array, Hosted, Metrics, PyTree, Recurrence

# An update has keys for actions, environments, restarts and learning at least.
NUM_KEYS = 4


class Behaviour(NamedTuple):
    """How an agent turns the outputs of its network into actions.

    Attributes:
        network: Name of the network that acts, among the parameters.
        noise: `(key, (T, B)) -> noise` of the actions of a rollout.
        explore: `(update) -> ((outputs, obs, noise) -> (action as it is stored, what is
            kept of the outputs, action of the environment))`, while the agent learns.
        decide: `(outputs, obs, key) -> action of the environment`, afterwards;
            deterministic where the key is None.
        log_prob: `(outputs, action) -> [...]`; None where nothing reads it.
    """

    network: str
    noise: rollout.Draw
    explore: Callable[[Array], Callable[[Any, Any, Any], tuple[Any, Any, Any]]]
    decide: Callable[[Any, Any, Array | None], Array]
    log_prob: Callable[[Any, Array], Array] | None = None


class Agent(NamedTuple):
    """An agent, bound once in Python: structure, and the config's numbers.

    Attributes:
        config: Config, whose leaves may be traced.
        stepper: The environments.
        obs_space: Observation space of the environment.
        memory: Networks of the memory; None for an agent that remembers nothing.
        num_updates: Updates of the whole run.
        axis_name: Mapped axis over which this agent's environments are spread, if any.
        terms: The user's own terms of the loss, if there are any.
        networks: Networks by name, that which acts among them. They see prepared
            observations, or the memory; a critic that shares the actor's torso sees its
            features, see `inputs`.
        behaviour: How actions are chosen, a `Behaviour`.
        on_features: The actor from the torso's features; None without a shared torso.
        head: Distribution of the actions; None for action values.
        few_kernels: Form of `learning.minibatches.minimise` for an accelerator, and a
            form of `policy_gradient.outputs` where it sets `forward`; the algorithm's
            mathematics are the same. None for an algorithm that has none.
        forward: See `few_kernels`; `(params, seen) -> (outputs, values, None)`.
    """

    config: Any
    stepper: rollout.Stepper
    obs_space: Any
    memory: Memory | None
    num_updates: int
    axis_name: str | None
    terms: own_terms.OwnTerms | None
    networks: Any = None
    behaviour: Any = None
    on_features: nn.Module | None = None
    head: Any = None
    few_kernels: Callable[..., tuple[PyTree, PyTree, Metrics]] | None = None
    forward: Callable[[Any, Any], tuple[Any, Array, None]] | None = None

    @property
    def actor(self) -> Any:
        """The network from what it sees to what the head takes."""
        return self.networks["actor"]

    @property
    def critic(self) -> Any:
        """The network of values."""
        return self.networks["critic"]

    def inputs(self, params: PyTree, seen: Any) -> Any:
        """Return what the critic and the actor's head take.

        Args:
            seen: `[..., *obs_shape]` prepared observations, or what a memory shows.
        """
        if self.on_features is None:
            return seen
        return self.actor.apply(params["actor"], seen, method=_features)

    def rows_of(self, state: Any, played: rollout.Played, batch: Any) -> Any:
        """Return the samples `[T, B, ...]` of a rollout as the rows of minibatches.

        Without a memory these are steps, `[N, ...]`. With one they are `Sequences`,
        whole rollouts or pieces of `sequence_length` steps, each from the memory before
        it.

        Args:
            state: State with which the rollout was collected.
            played: The rollout.
            batch: NamedTuple of samples `[T, B, ...]`, with the field `obs`.
        """
        if self.memory is None:
            seen, space = played.transitions.obs, self.obs_space
            # A space of other numbers may see the same truth values, and scale them.
            if observe.are_truth_values(seen) and space.dtype == bool:
                # Until `samples_of` they are a quarter of the memory of their features.
                batch = batch._replace(obs=seen)
            return flatten(batch)
        return self.memory.rows(self.config, state.memory, played, batch)

    def samples_of(self, params: PyTree, rows: Any) -> Any:
        """Return samples `[N, ...]` of rows, whose `obs` is what the networks see."""
        if self.memory is None:
            if observe.are_truth_values(rows.obs):
                return rows._replace(obs=rows.obs.astype(jnp.float32))
            return rows
        return flatten(self.memory.samples(params, rows))


class OnPolicyState(NamedTuple):
    """Everything that training carries, arrays only.

    Attributes:
        params: Parameters by network. A torso that actor and critic share is among
            those of the actor; a memory has `core`, and the critic's own `critic_core`.
        opt_state: State of the optimiser, or of several.
        obs_moments: Statistics of observations, see `observe.init_moments`.
        reward_scale: Statistics of returns.
        envs: The environments between two steps.
        memory: Memory `[B, ...]` of the running episodes before `envs.obs`, zero where
            that is an episode's first; () without one.
        key: Random key of the agent, which never changes; every update's key is folded
            from it.
        update: `[]` int32, number of updates done.
        level_buffer: Levels that PLR replays; () elsewhere. It is not called `buffer`:
            checkpoints let a field of that name grow with the run.
    """

    params: dict[str, PyTree]
    opt_state: PyTree
    obs_moments: PyTree
    reward_scale: averages.RewardScale
    envs: rollout.EnvCarry
    memory: PyTree
    key: Array
    update: Array
    level_buffer: PyTree = ()


class Learned(NamedTuple):
    """What an algorithm makes of a rollout.

    Attributes:
        params: Parameters after the update.
        opt_state: State of the optimiser.
        metrics: Metrics of learning, `[]` each, averages over devices.
        reward_scale: Statistics of returns with this rollout in; None if not used.
        value_and_target: Values and their targets, `[N]` each, whose explained variance
            is reported; None without a critic.
    """

    params: dict[str, PyTree]
    opt_state: PyTree
    metrics: Metrics
    reward_scale: averages.RewardScale | None = None
    value_and_target: tuple[Array, Array] | None = None


Learn = Callable[[Agent, OnPolicyState, rollout.Played, Array], Learned]
"""`(agent, state, rollout, key) -> Learned`, the algorithm."""


def make_agent(config: Any, env: Environment, axis_name: str | None) -> Agent:
    """Bind a config and an environment to an agent that has no heads yet.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread.
    """
    config = auto.resolve(config, env)
    stepper = rollout.make_stepper(config, env, axis_name)
    obs_space = env.observation_space(stepper.params)
    memory = memories.build(config, obs_shape(obs_space))
    num_updates = max(1, config.total_timesteps // config.steps_per_update)
    terms = own_terms.of_config(config)
    return Agent(config, stepper, obs_space, memory, num_updates, axis_name, terms)


def algorithm(
    agent: Agent,
    learn: Learn,
    init_optimiser: Callable[[PyTree], PyTree] | None = None,
) -> Algorithm:
    """Return the algorithm that learns by `learn`.

    Args:
        learn: What an update makes of its rollout.
        init_optimiser: Function from the parameters by network to `opt_state`; the one
            optimiser of `gradient_step` where not given.
    """

    def of_one(params: PyTree) -> PyTree:
        return _optimiser(agent, params).init(optimiser.flatten(params)[0])

    def act_alone(state: OnPolicyState, obs: Any, key: Array | None = None) -> Any:
        return act(agent, state, obs, (), key)[0]

    recurrence = None
    if agent.memory is not None:
        recurrence = Recurrence(agent.memory.kind.blank, partial(act, agent))
    return Algorithm(
        init=partial(init, agent, init_optimiser or of_one),
        step=partial(step, agent, learn),
        act=memories.reject_stateless_act if recurrence else act_alone,
        recurrence=recurrence,
        hosted=partial(hosted, agent, learn),
    )


def _optimiser(agent: Agent, params: PyTree, update: Any = 0) -> Any:
    """The optimiser of all networks in an update, on one flat vector."""
    make = optimiser.of_config if agent.terms is None else agent.terms.optimiser
    return make(agent.config, params, partial(learning_rate, agent, update=update))


def init(
    agent: Agent, init_optimiser: Callable[[PyTree], PyTree], key: Array
) -> OnPolicyState:
    """Make fresh networks, environments and memories; the key is kept in the state."""
    keys = init_keys(key, 3)
    num_envs = rollout.per_device(agent.config.num_envs, agent.axis_name)
    obs = observe.example(agent.obs_space)
    modules: dict[str, tuple[nn.Module, list[Any]]] = {}
    memory, seen = (), obs
    if agent.memory is not None:
        memory = agent.memory.blank(num_envs)
        before = jax.tree.map(lambda x: x[:1], memory)
        seen = agent.memory.seen(before, obs)
        modules["core"] = agent.memory.core, [obs, of_actor(before)]
    for name, module in agent.networks.items():
        modules[name] = module, [seen]
    if agent.on_features is not None:
        draw = partial(agent.actor.init_with_output, method=_features)
        shapes, _ = jax.eval_shape(draw, jax.random.key(0), obs)
        features = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        modules["critic"] = agent.critic, [features]
    if agent.memory is not None and agent.memory.critic_core is not None:
        modules[CRITIC_CORE] = agent.memory.critic_core, [obs, before.critic]
    params = networks.init_params(keys[:2], modules)
    if agent.terms is not None:
        params = agent.terms.with_heads(agent, params, seen, key)
    return OnPolicyState(
        params=params,
        opt_state=init_optimiser(params),
        obs_moments=observe.init_moments(agent.obs_space),
        reward_scale=averages.RewardScale(averages.init_moments(), jnp.zeros(num_envs)),
        envs=rollout.init_envs(agent.stepper, keys[2], num_envs),
        memory=memory,
        key=key,
        update=jnp.int32(0),
    )


def step(
    agent: Agent, learn: Learn, state: OnPolicyState
) -> tuple[OnPolicyState, Metrics]:
    """Make one update: collect a rollout, and learn from it."""
    keys = update_keys(state, NUM_KEYS)
    return learn_and_report(
        agent, learn, state, collect(agent, state, keys[:3]), keys[3]
    )


def learn_and_report(
    agent: Agent, learn: Learn, state: OnPolicyState, played: rollout.Played, key: Array
) -> tuple[OnPolicyState, Metrics]:
    """Learn from a rollout; return the state after the update and its metrics."""
    config, axis = agent.config, agent.axis_name
    learned = learn(agent, state, played, key)
    # Averages over devices must come one after another: see `averages`.
    episodes = after(played.episodes, list(learned.metrics.values())[-1], axis)
    metrics = rollout.episode_metrics(episodes, axis) | learned.metrics
    last = metrics["episode_return"]
    if learned.value_and_target is not None:
        value, target = after(learned.value_and_target, last, axis)
        last = averages.explained_variance(value, target, axis)
        metrics["explained_variance"] = last
    steps = (state.update + 1).astype(jnp.uint32)
    metrics["env_steps"] = steps * jnp.uint32(config.steps_per_update)
    scale = state.reward_scale if learned.reward_scale is None else learned.reward_scale
    moments = state.obs_moments
    if config.normalize_observations:
        seen = to_features(agent.obs_space, played.transitions.obs)
        seen = after(seen, last, axis)
        moments = observe.merge_moments(agent.obs_space, moments, seen, axis)
    new = state._replace(
        params=learned.params,
        opt_state=learned.opt_state,
        obs_moments=moments,
        reward_scale=scale,
        envs=played.envs,
        memory=played.memory,
        update=state.update + 1,
    )
    if config.metrics:
        transitions: Any = played.transitions
        metrics[BATCH] = transitions
    return new, metrics


def collect(agent: Agent, state: OnPolicyState, key: Array) -> rollout.Played:
    """Run the policy for `num_steps` steps in every environment.

    Args:
        state: State of one agent, whose networks do not change meanwhile.
        key: Random key, or three of them; see `rollout.draw_randomness`. Consumed.

    Returns:
        Transitions `[T, B, ...]` with observations as the environment gave them, none
        of them bad, and the memories on which actions were chosen.
    """
    played = rollout.collect(
        agent.stepper,
        state.envs,
        of_actor(state.memory),
        policy(agent, state),
        key,
        agent.config.num_steps,
    )
    return _completed(agent, state, played)


def policy(agent: Agent, state: OnPolicyState) -> rollout.Player:
    """Return how the networks of a state choose actions while they are trained."""
    name = agent.behaviour.network
    network, params = agent.networks[name], state.params
    explore = agent.behaviour.explore(state.update)

    def choose(obs: Any, memory: PyTree, noise: Any) -> tuple[Any, PyTree]:
        memory, seen = _remember(agent, params, obs, memory)
        return explore(network.apply(params[name], seen), obs, noise), memory

    return rollout.Player(
        choose,
        partial(observe.prepare, agent, state.obs_moments),
        agent.behaviour.noise,
    )


def _remember(
    agent: Agent, params: PyTree, obs: Any, memory: PyTree
) -> tuple[PyTree, Any]:
    """The memory with an observation in it, and what the acting network sees."""
    if agent.memory is None:
        return memory, obs
    memory = agent.memory.core.apply(params["core"], obs, memory)
    own = memory if agent.memory.critic_core is None else Memories(memory, None)
    return memory, agent.memory.seen(own, obs)


def _completed(
    agent: Agent, state: OnPolicyState, played: rollout.Played
) -> rollout.Played:
    """A rollout with what its steps did not wait for, computed for all of them at once.

    The steps of a rollout follow one another. So they keep the policy's outputs, of
    which the log-probabilities are made here, and the critic's own memory runs here.
    """
    log_prob, transitions = agent.behaviour.log_prob, played.transitions
    if log_prob is not None:
        found = log_prob(transitions.log_prob, transitions.action)
        played = played._replace(transitions=transitions._replace(log_prob=found))
    if agent.memory is None or agent.memory.critic_core is None:
        return played
    obs = observe.prepare(agent, state.obs_moments, transitions.obs)
    return agent.memory.recall(state.params, state.memory, obs, played)


def act(
    agent: Agent,
    state: OnPolicyState,
    obs: Array,
    memory: PyTree,
    key: Array | None = None,
) -> tuple[Array, PyTree]:
    """Return the policy's action, and the memory `[..., H]` with `obs` in it.

    Args:
        state: State of one agent.
        obs: `[..., *obs_shape]` observations as the environment gives them.
        memory: Memory of the episode before `obs`; () without one.
        key: Random key, consumed; without one the action is the deterministic one.
    """
    name = agent.behaviour.network
    prepared = observe.prepare(agent, state.obs_moments, obs)
    memory, seen = _remember(agent, state.params, prepared, memory)
    outputs = agent.networks[name].apply(state.params[name], seen)
    return agent.behaviour.decide(outputs, prepared, key), memory


def hosted(agent: Agent, learn: Learn, update: Array) -> Hosted:
    """Return an update in pieces, for environments on the host; see `types.Hosted`."""
    del update  # Nothing here depends on the number of updates done.

    def then(
        state: OnPolicyState, played: rollout.Played, keys: Array
    ) -> tuple[OnPolicyState, Metrics]:
        return learn_and_report(
            agent, learn, state, _completed(agent, state, played), keys[3]
        )

    return of_rollout(
        agent.config,
        partial(policy, agent),
        then,
        restart,
        lambda state: of_actor(state.memory),
    )


def of_rollout(
    config: Any,
    policy: Callable[[Any], rollout.Player],
    learn: Callable[[Any, rollout.Played, Array], tuple[Any, Metrics]],
    restart: Callable[[Any, PyTree], Any],
    memory_of: Callable[[Any], PyTree] = lambda state: (),
) -> Hosted:
    """Put together an update that learns from one rollout, from its functions.

    Args:
        policy: `(state) -> Player`, see `rollout.Player`.
        learn: `(state, played, keys) -> (state, metrics)`, what follows the rollout;
            it has the policy's outputs in the place of log-probabilities.
        restart: `(state, obs) -> state` whose episodes begin anew.
        memory_of: `(state) -> memory` of the running episodes; () without one.
    """

    def begin(state: Any) -> tuple[Any, PyTree, PyTree]:
        key = update_keys(state, NUM_KEYS)[0]
        noise = policy(state).draw(key, (config.num_steps, config.num_envs))
        return state, memory_of(state), jax.tree.map(lambda x: x[None], noise)

    def act(state: Any, obs: Any, memory: PyTree, noise: PyTree) -> Any:
        chooser = policy(state)
        return chooser.act(chooser.prepare(obs), memory, noise)

    def learn_from(
        state: Any, number: Array, played: rollout.Played
    ) -> tuple[Any, Metrics]:
        del number  # There is one round.
        return learn(state, rollout.without_bad(played), update_keys(state, NUM_KEYS))

    def finish(state: Any, reports: Metrics) -> tuple[Any, Metrics]:
        return state, jax.tree.map(lambda x: x[0], reports)

    return Hosted(1, config.num_steps, begin, act, learn_from, finish, restart)


def restart(state: OnPolicyState, obs: Any) -> OnPolicyState:
    """Return the state with all episodes begun anew by observations `[B, ...]`."""
    blank = jnp.zeros_like(state.reward_scale.running)
    return state._replace(
        envs=rollout.first_step(state.envs, obs),
        memory=jax.tree.map(jnp.zeros_like, state.memory),
        reward_scale=state.reward_scale._replace(running=blank),
    )


def _features(actor: Any, obs: Any) -> Any:
    network = actor.module if isinstance(actor, networks.Masked) else actor
    return observe.beside_mask(network.torso(obs), obs)


def learning_rate(agent: Agent, rate: Array | float, update: Array) -> Array | float:
    """Return a step size as it is, or decayed linearly over the run."""
    if not agent.config.anneal_learning_rate:
        return rate
    return optimiser.annealed(rate, update, agent.num_updates)


def fit(
    agent: Agent,
    state: OnPolicyState,
    played: rollout.Played,
    loss: Callable,
    batch: Any,
    key: Array,
) -> tuple[PyTree, PyTree, Metrics]:
    """Take epochs of minibatch gradient steps on a rollout.

    They end early where the config has a `target_kl`, and a pass's last minibatch finds
    the policy beyond it.

    Args:
        loss: `(agent, params, rows) -> (scalar, metrics)`, of rows of `Agent.rows_of`.
        batch: NamedTuple of samples `[T, B, ...]`, with the field `obs`.
        key: Random key, consumed.

    Returns:
        Parameters, the optimiser's state, and the means of the metrics.
    """
    config, limit = agent.config, getattr(agent.config, "target_kl", None)
    passes = Passes(
        optim=_optimiser(agent, state.params, state.update),
        num_epochs=config.num_epochs,
        num_minibatches=config.num_minibatches,
        axis_name=agent.axis_name,
        is_last=None if limit is None else lambda last: last["approx_kl"] > limit,
        tells=agent.head is not None and optimiser.sees_activity(config.optimiser),
        steps_of_turn=1 if agent.memory else PLAIN_STEPS_OF_TURN,
        begin=agent.memory.begun if agent.memory else None,
    )
    if agent.terms is None:
        rows = agent.rows_of(state, played, batch)
    else:
        loss, rows, passes = agent.terms.beside(
            agent, state, played, loss, batch, passes, key
        )
    descend = partial(minimise, partial(loss, agent))
    is_plain = agent.memory or agent.terms or traced_for_cpu()
    if agent.few_kernels is not None and not is_plain:
        descend = partial(agent.few_kernels, agent, loss)
    start = state.params, state.opt_state
    params, opt_state, metrics = descend(*start, rows, key, passes)
    return params, opt_state, pass_means(metrics)


def gradient_step(
    agent: Agent,
    state: OnPolicyState,
    played: rollout.Played,
    loss: Callable[[PyTree, Any], tuple[Array, Metrics]],
    batch: Any,
) -> tuple[PyTree, PyTree, Metrics]:
    """Take one gradient step of all networks; for many of them see `minibatches`.

    Args:
        played: The rollout, which terms of the user's own see.
        loss: `(params, batch) -> (scalar, metrics)`.
        batch: Samples of the rollout.

    Returns:
        Parameters, the optimiser's state, and metrics with `grad_norm`.
    """
    flat, restore = optimiser.flatten(state.params)

    def flat_loss(flat: Array) -> tuple[Array, Metrics]:
        return loss(restore(flat), batch)

    grads, metrics = jax.grad(flat_loss, has_aux=True)(flat)
    if agent.terms is not None:
        add = agent.terms.over(agent, state, played, NUM_KEYS)
        grads, found = add(grads, restore, flat)
        metrics = {**metrics, **found}
    grads, metrics = pmean((grads, metrics), agent.axis_name)
    optim = _optimiser(agent, state.params, state.update)
    updates, opt_state = optim.update(grads, state.opt_state, flat)
    metrics["grad_norm"] = optimiser.grad_norm(opt_state)
    params = restore(optax.apply_updates(flat, updates))  # type: ignore[arg-type]
    return params, opt_state, metrics

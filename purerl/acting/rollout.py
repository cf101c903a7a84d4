"""Stepping many environments: auto-reset, episode statistics, bad transitions.

A transition is *bad* if its reward or observation is not a finite number.

Physics breaks now and then. One such number in a loss is the end of an agent, so a bad
transition is cut where it is made: its environment starts anew, it is counted, and it
carries both flags, `terminated` and `truncated`, which no other transition does. Its
numbers are replaced by finite ones.

A rollout that is learned from whole has other transitions in the place of the bad ones
(`replaced`); a replay buffer keeps them, with weight zero in every loss.

Of an environment whose observations are whole numbers or truth values only rewards can
be bad. To have other pictures in the place of its own would be kernels in every step
and a copy of the rollout.

Axes: `T` steps, `B` environments of one agent on this device.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.lax import stop_gradient

from purerl.accelerator import kernels
from purerl.accelerator.kernels import forget
from purerl.config import TrainConfig
from purerl.envs.base import RAW_REWARD, Environment, outcome
from purerl.keys import env_draw, env_keys, several
from purerl.learning.averages import psum
from purerl.learning.sequences import flatten
from purerl.metrics import BATCH
from purerl.types import Array, Metrics, PyTree

Number = TypeVar("Number", int, Array)
# A function from a key and a shape to noise with that leading shape.
Draw = Callable[[Array, tuple[int, ...]], PyTree]
# The name of the arrays that a derivative through updates keeps and does not compute
# again.
ROLLOUT = "rollout"
# Fresh starts of a rollout are drawn before it if they take no more than this.
PRECOMPUTED_BYTES = 2**20


class Transition(NamedTuple):
    """One step of every environment; fields `[B, ...]`, or `[T, B, ...]` stacked.

    Attributes:
        obs: Observation on which the action was chosen.
        action: The policy's raw action (before it is clipped or squashed).
        log_prob: Log-probability of `action` under the policy that chose it.
        reward: Reward of the step, as the environment gave it.
        next_obs: Observation after the step and *before* any reset.
        terminated: The episode ended in a state of value zero.
        truncated: The episode was cut (time limit); true with `terminated` only where
            the transition is bad.
    """

    obs: Array
    action: Array
    log_prob: Array
    reward: Array
    next_obs: Array
    terminated: Array
    truncated: Array


class EnvCarry(NamedTuple):
    """The environments between two steps.

    Attributes:
        state: Environment states, leaves `[B, ...]`.
        obs: `[B, ...]` what the policy sees next (after any reset).
        episode_return: `[B]` sum of rewards of the running episode; NaN where its first
            observation was not finite, so that its first step is bad.
        episode_length: `[B]` int32 steps of the running episode.
        bad: `[B]` int32 bad transitions since the run began.
        shaped_return: `[B]` sum of what the running episode was paid, where wrappers
            pay other rewards than the game; otherwise ().
    """

    state: PyTree
    obs: Array
    episode_return: Array
    episode_length: Array
    bad: Array
    shaped_return: PyTree = ()


class Start(NamedTuple):
    """The beginning of an episode, as an `EnvCarry` has it."""

    obs: Array
    state: PyTree
    episode_return: Array


class StepOutput(NamedTuple):
    """The outcome of one step of all environments, `[B, ...]` each.

    After a bad transition `next_obs` is the first observation of the next episode, or
    what it was where observations have no floats.
    """

    reward: Array
    next_obs: Array
    terminated: Array
    truncated: Array
    episode_return: Array
    episode_length: Array
    shaped_return: PyTree = ()


class Episodes(NamedTuple):
    """The ends of episodes in a rollout, `[T, B]` each, and what went wrong.

    Attributes:
        done: Whether an episode ended, other than by a bad transition.
        returns: Sum of the episode's rewards until then.
        lengths: Steps of the episode until then.
        bad: `[B]` bad transitions since the run began, after the rollout.
        shaped: Sum of what was paid until then, where that is not `returns`; or ().
    """

    done: Array
    returns: Array
    lengths: Array
    bad: Array
    shaped: PyTree = ()

    @property
    def paid(self) -> Array:
        """The returns from which the agent learns, `[T, B]`."""
        return self.shaped if jax.tree.leaves(self.shaped) else self.returns


class Memories(NamedTuple):
    """The memories of an actor and of a critic that has its own."""

    actor: PyTree
    critic: PyTree


def of_actor(memory: PyTree) -> PyTree:
    """Return the memory on which actions are chosen, of those of a state."""
    return memory.actor if isinstance(memory, Memories) else memory


class Played(NamedTuple):
    """Some steps of all environments, taken on the device or on the host.

    Attributes:
        envs: The environments after the last step.
        memory: Memory of the running episodes `[B, ...]`, zero where the last step
            ended one.
        transitions: `[T, B, ...]`, with the policy's outputs in place of `log_prob`.
        memories: Memories `[T, B, ...]` on which each action was chosen.
        episodes: The ends of the episodes.
    """

    envs: EnvCarry
    memory: PyTree
    transitions: Transition
    memories: PyTree
    episodes: Episodes


class Player(NamedTuple):
    """The choice of actions in an update, inside the program or from the host.

    Attributes:
        act: `(prepared obs [B, ...], memory, noise [B, ...]) -> ((raw action, outputs,
            env action), memory)`; one without a memory hands on what it gets. The
            transitions of a rollout have the outputs, from which a log-probability can
            be computed, in the place of the log-probability.
        prepare: Function from an observation to the policy's input (cast, normalised).
        draw: Function that draws the noise of the actions, `(key, (T, B)) -> noise`.
    """

    act: Callable[..., Any]
    prepare: Callable[[Array], Array]
    draw: Draw


class Stepper(NamedTuple):
    """An environment with its numbers and the way its episodes restart."""

    env: Environment
    params: PyTree
    reset_scheme: str
    reset_pool_size: int
    axis_name: str | None


def make_stepper(
    config: TrainConfig, env: Environment, axis_name: str | None
) -> Stepper:
    """Make the environment as a config wants it stepped.

    Args:
        config: Config of the agent, whose `env_params` are all numbers of the
            environment, or None, see `environment.with_params`; they may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which an agent's environments are spread, if any.
    """
    params = env.default_params if config.env_params is None else config.env_params
    return Stepper(env, params, config.reset_scheme, config.reset_pool_size, axis_name)


def per_device(number: Number, axis_name: str | None) -> Number:
    """Return this device's share of one agent's environments or samples."""
    if axis_name is None:
        return number
    return number // jax.lax.axis_size(axis_name)


def init_envs(stepper: Stepper, key: Array, num_envs: int) -> EnvCarry:
    """Start `num_envs` episodes.

    Args:
        num_envs: Number B of environments on this device.
    """
    keys = env_keys(key, (num_envs,), stepper.axis_name)
    reset = _starter(stepper.env, stepper.env.reset)
    carry = carry_of(jax.vmap(reset, (0, None))(keys, stepper.params))
    if not stepper.env.shapes_rewards:
        return carry
    return carry._replace(shaped_return=jnp.zeros(num_envs))


def carry_of(start: Start, before: EnvCarry | None = None) -> EnvCarry:
    """Return environments whose episodes all begin.

    Args:
        start: Starts `[B, ...]`.
        before: The environments until now, whose bad transitions are counted.
    """
    none = jnp.zeros(start.episode_return.shape, jnp.int32)
    carry = EnvCarry(start.state, start.obs, start.episode_return, none, none)
    if before is None:
        return carry
    blank = jax.tree.map(jnp.zeros_like, before.shaped_return)
    return carry._replace(bad=before.bad, shaped_return=blank)


def first_step(envs: EnvCarry, obs: PyTree) -> EnvCarry:
    """Return environments on the host whose episodes all begin.

    Args:
        envs: The environments before, whose bad transitions are counted.
        obs: First observations `[B, ...]`.
    """
    return carry_of(jax.vmap(start_of)(obs, ()), envs)


def start_of(obs: PyTree, state: PyTree) -> Start:
    """Return the start of one episode; an observation that is not finite marks it."""
    total = jnp.where(is_finite(obs), jnp.float32(0), jnp.float32(jnp.nan))
    finite = jax.tree.map(
        lambda x: jnp.where(jnp.isfinite(x), x, 0) if has_floats(x) else x, obs
    )
    return Start(finite, state, total)


def _starter(env: Environment, reset: Callable[..., Any]) -> Callable[..., Start]:
    """A `reset`, `reset_env` or `reset_again` that returns a `Start`."""

    def start(*given: Any) -> Start:
        obs, state = reset(*given)
        return start_of(obs, state)

    return start


def draw_pool(stepper: Stepper, key: Array) -> Start:
    """Draw `[reset_pool_size, ...]` starts; consume the key."""
    keys = jax.random.split(key, stepper.reset_pool_size)
    reset = _starter(stepper.env, stepper.env.reset_env)
    return jax.vmap(reset, (0, None))(keys, stepper.params)


def make_restarts(
    stepper: Stepper, states: PyTree, key_pool: Array, keys: Array
) -> tuple[PyTree, Callable[[PyTree], tuple[Array, Start]]]:
    """Draw where the episodes of a rollout restart, before it as far as that pays.

    A random number costs a narrow kernel in every step of the loop, or a share of one
    wide kernel before it. Fresh starts are drawn before the loop where they are small,
    in it where their memory would count.

    With the pool, every rollout draws new start states and its episodes take random
    ones: over a run starts come from the environment's own distribution, within a
    rollout two episodes may share a start.

    Args:
        states: States of the environments before the rollout.
        key_pool: Random key, consumed where there is a pool.
        keys: `[T, B]` random keys, consumed.

    Returns:
        Inputs `[T, B, ...]` of the loop, and a function from a step's inputs to the
        keys of `step_env` `[B]` and the starts `[B, ...]`. An environment that resets
        by itself has the same starts in all steps, for those after a bad transition.
    """
    env, params = stepper.env, stepper.params
    if env.resets_by_itself:
        keys_start = env_keys(key_pool, keys.shape[1:], stepper.axis_name)
        again = jax.vmap(_starter(env, env.reset_again), (0, 0, None))
        fallback = again(keys_start, states, params)
        return keys, lambda keys_t: (keys_t, fallback)
    reset = jax.vmap(_starter(env, env.reset_env), (0, None))
    split = keys, keys
    has_pool = stepper.reset_scheme == "pool"
    # As in `Environment.step`, a key has only one use if transitions are not random.
    if has_pool or env.stochastic_transitions:
        pairs = jax.vmap(jax.vmap(jax.random.split))(keys)
        split = pairs[..., 0], pairs[..., 1]
    if has_pool:
        size = stepper.reset_pool_size
        keys_step, keys_pick = split
        pool = draw_pool(stepper, key_pool)
        pick = jax.vmap(jax.vmap(lambda k: jax.random.randint(k, (), 0, size)))
        return (keys_step, pick(keys_pick)), lambda inputs: (
            inputs[0],
            jax.tree.map(lambda x: x[inputs[1]], pool),
        )
    keys_step, keys_reset = split
    key = jax.eval_shape(lambda: jax.random.key(0))
    one = jax.tree.leaves(jax.eval_shape(stepper.env.reset_env, key, params))
    start_bytes = sum(x.size * x.dtype.itemsize for x in one)
    if start_bytes * keys.size <= PRECOMPUTED_BYTES:
        starts = jax.vmap(reset, (0, None))(keys_reset, params)
        return (keys_step, starts), lambda inputs: inputs
    return split, lambda inputs: (inputs[0], reset(inputs[1], params))


def step_without_reset(
    env: Environment, params: PyTree, key: jax.Array, state: PyTree, action: jax.Array
) -> tuple[Any, PyTree, jax.Array, jax.Array, jax.Array, jax.Array]:
    """Take one step of one environment, which leaves an ended episode as it ended.

    An environment that can only step with a reset returns the next episode's state
    with the last one's observation: enough for those who look at nothing after the end,
    and for others see `keeps_last_state`.

    Args:
        env: Environment to step.
        params: Numbers of the environment.
        state: State of the running episode.
        action: Action of the environment.

    Returns:
        `obs, state, reward, terminated, truncated, raw`, the flags never both true,
        with the reward of the game, which is `reward` where no wrapper has changed it.
    """
    obs, state, reward, terminated, truncated, info = outcome(
        env, key, state, action, params
    )
    reward = jnp.asarray(reward, jnp.float32)
    raw = _raw(env, info, reward)
    return obs, state, reward, terminated, truncated & ~terminated, raw


def _raw(env: Environment, info: Any, reward: Array) -> Array:
    """The reward of the game, before wrappers have changed it."""
    return info.get(RAW_REWARD, reward) if env.shapes_rewards else reward


def step_envs(
    stepper: Stepper, carry: EnvCarry, action: Array, keys: Array, starts: Start
) -> tuple[EnvCarry, StepOutput]:
    """Step every environment once, and restart those whose episode ended.

    Args:
        carry: Environments before the step.
        action: `[B, ...]` actions of the environment.
        keys: `[B]` random keys, consumed.
        starts: `[B, ...]` starts of the next episodes.
    """
    step = jax.vmap(_step_and_restart, (None, None, 0, 0, 0, 0))
    after = step(stepper.env, stepper.params, carry, action, keys, starts)
    return kernels.computed_once(after, axes=1)


def _step_and_restart(
    env: Environment,
    params: PyTree,
    carry: EnvCarry,
    action: Array,
    key: Array,
    start: Start,
) -> tuple[EnvCarry, StepOutput]:
    """One environment's step, going on from `start` where the episode ended."""
    if not env.resets_by_itself:
        next_obs, state, reward, terminated, truncated, raw = step_without_reset(
            env, params, key, carry.state, action
        )
        obs = next_obs
    else:
        obs, state, reward, terminated, truncated, info = env.step(
            key, carry.state, action, params
        )
        next_obs = info["final_observation"]
        truncated = truncated & ~terminated  # A foreign environment may set both.
        reward = reward.astype(jnp.float32)
        raw = _raw(env, info, reward)
    total = carry.episode_return + raw
    paid = jax.tree.map(lambda x: x + reward, carry.shaped_return)
    is_good = is_finite(next_obs, total, paid)
    if env.resets_by_itself:
        start = _where(is_good, start_of(obs, state), start)
    terminated, truncated = terminated | ~is_good, truncated | ~is_good
    done = terminated | truncated
    obs, state, begun = _where(done, start, Start(obs, state, total))
    length = carry.episode_length + 1
    output = StepOutput(
        jnp.where(is_good, reward, 0.0),
        _where(is_good, next_obs, obs) if has_floats(next_obs) else next_obs,
        terminated,
        truncated,
        total,
        length,
        paid,
    )
    length = jnp.where(done, 0, length)
    paid = jax.tree.map(lambda x: jnp.where(done, 0.0, x), paid)
    return EnvCarry(state, obs, begun, length, carry.bad + ~is_good, paid), output


def _where(condition: Array, on_true: Any, on_false: Any) -> Any:
    """One of two pytrees."""

    def one(x: Array, y: Array) -> Array:
        if len(kernels.numbers_of(x)) == 1:
            return jnp.where(condition, x, y)
        pairs = zip(kernels.numbers_of(x), kernels.numbers_of(y), strict=True)
        return jnp.stack([jnp.where(condition, *pair) for pair in pairs])

    return jax.tree.map(one, on_true, on_false)


class RolloutRandomness(NamedTuple):
    """The random numbers of the next steps of the environments, drawn before them.

    Attributes:
        inputs: Pytree with leaves `[T, B, ...]`: noise of the actions and inputs of the
            steps.
        restart: Function from a step's inputs to its keys and restarts, see
            `make_restarts`.
    """

    inputs: tuple[PyTree, PyTree]
    restart: Callable[[PyTree], tuple[Array, Start]]


def draw_randomness(
    stepper: Stepper,
    envs: EnvCarry,
    key: Array,
    num_steps: int,
    draw: Draw,
) -> RolloutRandomness:
    """Draw what `unroll` plays: one wide kernel before the loop for many narrow ones.

    Args:
        envs: The environments before these steps.
        key: Random key, or the three of the actions, the environments and the pool of
            restarts, `[3]`; consumed.
        draw: `(key, (T, B)) -> noise` of the actions.
    """
    key_act, key_env, key_pool = several(key, 3)
    shape, axis_name = (num_steps, *envs.episode_return.shape), stepper.axis_name
    noise = env_draw(draw, key_act, shape, axis_name)
    keys_env = env_keys(key_env, shape, axis_name)
    inputs, restart = make_restarts(stepper, envs.state, key_pool, keys_env)
    return RolloutRandomness((noise, inputs), restart)


def unroll(
    stepper: Stepper,
    carry: EnvCarry,
    memory: PyTree,
    player: Player,
    randomness: RolloutRandomness,
) -> Played:
    """Run a policy with randomness that is drawn; what it leaves has no derivative.

    Args:
        memory: `[B, ...]` memory of the running episodes before `carry.obs`.
        player: Functions that prepare observations and choose actions.
        randomness: Noise of the actions, and inputs and restarts of the steps.

    Returns:
        What the steps left; a memory on which an action was chosen is never cleared by
        that step's end.
    """
    start = stop_gradient((carry, memory))
    pack, unpack = kernels.carry_packers(start, axes=1)

    def step(
        before: PyTree, xs: tuple[PyTree, PyTree]
    ) -> tuple[PyTree, tuple[Transition, PyTree, Array, Array, PyTree]]:
        carry, memory = unpack(before)
        noise_t, inputs_t = xs
        keys_t, starts = randomness.restart(inputs_t)
        # Here derivatives end, so that no environment is differentiated.
        (raw, outputs, action), memory = stop_gradient(
            player.act(player.prepare(carry.obs), memory, noise_t)
        )
        after, out = step_envs(stepper, carry, action, keys_t, starts)
        transition = Transition(
            obs=kernels.columns_first(carry.obs),
            action=raw,
            log_prob=outputs,
            reward=out.reward,
            next_obs=kernels.columns_first(out.next_obs),
            terminated=out.terminated,
            truncated=out.truncated,
        )
        kept = forget(memory, out.terminated | out.truncated)
        ends = out.episode_return, out.episode_length, out.shaped_return
        return pack((after, kept)), (transition, memory, *ends)

    inputs = randomness.inputs
    turn = kernels.steps_of_turn(carry, 1, inputs)
    end, (batch, *others) = kernels.scan(step, pack(start), inputs, turn)
    pair, like = (batch.obs, batch.next_obs), (carry.obs, carry.obs)
    obs, next_obs = kernels.columns_last(pair, like)
    outputs = batch._replace(obs=obs, next_obs=next_obs), *others
    batch, memories, returns, lengths, shaped = checkpoint_name(outputs, ROLLOUT)
    carry, memory = unpack(end)
    # A bad transition has both flags, and ends no episode that counts.
    done = batch.terminated ^ batch.truncated
    ends = Episodes(done, returns, lengths, carry.bad, shaped)
    return Played(carry, memory, batch, memories, ends)


def collect(
    stepper: Stepper,
    carry: EnvCarry,
    memory: PyTree,
    player: Player,
    key: Array,
    num_steps: int,
) -> Played:
    """Run a policy for `T = num_steps` steps in every environment.

    Args:
        memory: `[B, ...]` memory of the running episodes before `carry.obs`; () for a
            policy without one.
        player: Functions that prepare observations, draw noise and choose actions.
        key: Random key, or the three of the actions, the environments and the pool of
            restarts, `[3]`; consumed.

    Returns:
        As `unroll`, but none of the transitions is bad; observations are as the
        environment gave them.
    """
    randomness = draw_randomness(stepper, carry, key, num_steps, player.draw)
    played = unroll(stepper, carry, memory, player, randomness)
    return without_bad(played)


def without_bad(played: Played) -> Played:
    """Return steps of which none is bad; see `replaced`."""
    transitions, memories = replaced(played.transitions, played.memories)
    return played._replace(transitions=transitions, memories=memories)


def shown(batch: PyTree) -> dict[str, Any]:
    """Return the entry of the metrics that shows an update's transitions, if any.

    Args:
        batch: Transitions `[R, T, B, ...]`, or ().
    """
    if not jax.tree.leaves(batch):
        return {}
    return {BATCH: replaced(flatten(batch))[0]}


def is_bad(record: Any) -> Array:
    """Return which transitions are bad, bool, of the shape of the flags.

    Args:
        record: A `Transition`, an item of a replay buffer, or what else has both flags.
    """
    return record.terminated & record.truncated


def has_floats(tree: PyTree) -> bool:
    """Return whether a pytree has numbers that may not be finite."""
    return any(jnp.issubdtype(x.dtype, jnp.floating) for x in jax.tree.leaves(tree))


def is_finite(*trees: PyTree) -> Array:
    """Return whether all floating-point numbers of some pytrees are finite, `[]`."""
    found = jnp.bool_(True)
    for leaf in filter(has_floats, jax.tree.leaves(trees)):
        for number in kernels.numbers_of(leaf):
            found = found & jnp.isfinite(number).all()
    return found


def replaced(
    transitions: Transition, memories: PyTree = ()
) -> tuple[Transition, PyTree]:
    """Put other transitions of a rollout in the place of the bad ones.

    The step before a bad one is truncated: what follows its observation is unknown. The
    place of the bad one takes the next step of its environment, which begins an
    episode; where that is bad too, the same step of an environment beside it, or the
    step before. It counts as an episode of one step. Where all of these are bad, an
    episode of one step remains that earned nothing and led nowhere.

    With a memory a step can only stand where its episode begins, so that nothing but
    the next step takes the place, and not in the first step of a rollout, whose memory
    has not been cleared. Elsewhere the bad one stays, as a truncated step that earned
    nothing and led nowhere, and the step before it is not cut.

    Where observations have no floats only rewards can be bad. Then a bad transition
    stays, as a truncated step that earned nothing.

    Args:
        transitions: `[T, B, ...]` transitions, flags of bad ones both true.
        memories: Memories `[T, B, ...]` on which the actions were chosen; () without.

    Returns:
        Transitions of which none is bad, and the memories that belong to them.
    """
    bad = is_bad(transitions)
    if not has_floats(transitions.obs):
        return transitions._replace(terminated=transitions.terminated & ~bad), memories
    good = ~bad
    # By rolling alone, as a gather is kernels of its own on an accelerator.
    sources = [
        (jnp.roll(good.at[0].set(False), -1, 0), -1, 0),
        (jnp.roll(good, 1, 1), 1, 1),
        (jnp.roll(good.at[-1].set(False), 1, 0), 1, 0),
    ]

    begins_anew = bad
    if jax.tree.leaves(memories):
        follows = sources[0][0].at[0].set(False)
        sources, begins_anew = [(follows, -1, 0)], bad & follows

    def fill(x: Array, last: Array) -> Array:
        shape = *bad.shape, *(1,) * (x.ndim - 2)
        found = last
        for is_there, by, axis in reversed(sources):
            found = jnp.where(is_there.reshape(shape), jnp.roll(x, by, axis), found)
        return jnp.where(bad.reshape(shape), found, x)

    cut = jnp.roll(begins_anew.at[0].set(False), -1, 0)
    given = transitions, memories
    otherwise = transitions._replace(next_obs=transitions.obs), memories
    filled, memories = jax.tree.map(fill, given, otherwise)
    terminated = filled.terminated & ~filled.truncated
    truncated = (filled.truncated | cut | bad) & ~terminated
    return filled._replace(terminated=terminated, truncated=truncated), memories


def episode_metrics(episodes: Episodes, axis_name: str | None) -> Metrics:
    """Count bad transitions, and average over the episodes that ended; NaN without any.

    Args:
        episodes: Ends of the episodes of a rollout.
        axis_name: Mapped axis over which environments are spread, if any.
    """
    done, returns, lengths, counted, shaped = episodes
    count, return_sum, length_sum, broken, paid = psum(
        (
            # A float holds the count exactly up to 2^24 episodes per update.
            done.sum(dtype=jnp.float32),
            jnp.where(done, returns, 0.0).sum(),
            jnp.where(done, lengths, 0).sum().astype(jnp.float32),
            # Of several rounds the last one counts.
            counted.reshape(-1, counted.shape[-1])[-1].sum().astype(jnp.float32),
            jax.tree.map(lambda x: jnp.where(done, x, 0.0).sum(), shaped),
        ),
        axis_name,
    )
    some = jnp.maximum(count, 1.0)
    sums = {"episode_return": return_sum, "episode_length": length_sum}
    if jax.tree.leaves(shaped):
        sums["shaped_return"] = paid
    return {
        "bad_transitions": broken.astype(jnp.uint32),
        "episodes": count.astype(jnp.int32),
        **{n: jnp.where(count > 0, x / some, jnp.nan) for n, x in sums.items()},
    }

"""Deep Q-learning (Mnih et al. 2015) and the extensions that pay.

A network estimates the value of every discrete action. Acting is epsilon-greedy, and
each gradient step minimises, on a batch from the replay buffer,

    L = E[w loss(Q(s, a), y)],    y = r + gamma^n (1 - terminated) Q'(s', a*)

with the target network `Q'` and `a* = argmax_a Q'(s', a)`, or, with `double`, the
online network's choice `argmax_a Q(s', a)` (van Hasselt et al. 2016). `dueling` splits
the network into value and advantages (Wang et al. 2016); `n_step` sums n rewards
before bootstrapping; `prioritised` samples in proportion to the last TD error and
weighs the loss by `w` (Schaul et al. 2016). `r` and `s'` end with their episode, and a
time limit bootstraps: see `off_policy.Batch`.

What is learned of an action, and its loss, is `values`: the mean above, or the
distribution of returns, whose mean then chooses actions (C51, QR-DQN, IQN; a file each
in `action_values`). `noisy` explores by noise in the network's weights, drawn anew for
every environment and step and for every network of a gradient step (Fortunato et al.
2018). `munchausen` makes targets soft and adds the policy's log-probability to rewards
(Vieillard et al. 2020). C51 and noise with `double`, `dueling`, `n_step` and
`prioritised` are Rainbow (Hessel et al. 2018).

Defaults are those of CleanRL's `dqn.py` for CartPole-v1 (Huang et al. 2022): a buffer
of 10,000, batches of 128, a gradient step every 10 environment steps and a new target
every 50 gradient steps, layers of 120 and 84 units, epsilon from 1 to 0.05 over half of
the run. Not as there: the double estimator; one step of ten environments between
gradient steps, in place of ten of one; learning begins after 1,000 steps (there
10,000); gradients are clipped at a norm of 10 (there not at all) and are those of half
the squared error (Adam does not notice the half, the clipping does); layers start
orthogonal.
"""

from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from purerl import auto, networks
from purerl.acting import exploration, observe, rollout
from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape
from purerl.algorithms import action_values, off_policy, off_policy_pieces
from purerl.algorithms.action_values import munchausen
from purerl.algorithms.action_values.network import make_network
from purerl.algorithms.dqn_config import DQNConfig as DQNConfig
from purerl.algorithms.dqn_config import validate as validate
from purerl.algorithms.off_policy import Batch, Experience
from purerl.algorithms.off_policy_pieces import Split
from purerl.keys import init_keys
from purerl.learning import optimiser
from purerl.learning.branches import StepCount
from purerl.learning.collectives import pmean
from purerl.learning.parts import frozen_in
from purerl.networks import composite, heads
from purerl.optimisers.first_order import is_known
from purerl.tracing import traced_for_cpu
from purerl.types import Algorithm, Array, Hosted, Metrics, PyTree


class Parts(NamedTuple):
    """The parts of DQN, bound once in Python: structure, and the config's numbers."""

    config: DQNConfig
    stepper: rollout.Stepper
    obs_space: Any
    num_actions: int
    network: nn.Module
    kind: action_values.ActionValues


class Draws(NamedTuple):
    """The random numbers of a gradient step.

    Attributes:
        levels: Levels of the distributions, where the network takes them.
        online: Random key of the online network's noise; None without noise.
        target: Random key of the target network's noise; None without noise.
        chooser: Random key of the online network's noise where it chooses actions; None
            without noise.
    """

    levels: action_values.Levels = action_values.Levels()
    online: Array | None = None
    target: Array | None = None
    chooser: Array | None = None


NOTHING = Draws()


class DQNState(NamedTuple):
    """Everything that training carries, arrays only.

    Attributes:
        params: Parameters of the online network.
        target_params: Parameters of the target network.
        opt_state: State of the optimiser.
        buffer: `off_policy.Item` with leaves `[C / B, B, ...]`, a column for every
            environment.
        priorities: `batches.Kept` of the items, where replay is prioritised.
        envs: The environments between two steps.
        key: Random key of the agent, which never changes; every update's key is folded
            from it.
        update: `[]` int32, number of updates done.
        obs_moments: Statistics of observations, where they are normalised.
    """

    params: PyTree
    target_params: PyTree
    opt_state: PyTree
    buffer: off_policy.Item
    priorities: PyTree
    envs: rollout.EnvCarry
    key: Array
    update: Array
    obs_moments: PyTree = ()


class Learner(NamedTuple):
    """The part of the state that a gradient step changes; networks as vectors `[P]`."""

    params: Array
    target_params: Array
    opt_state: PyTree


def make(
    config: DQNConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Build DQN for a config and an environment; see `build`.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread, if any.
    """
    parts = build(config, env, axis_name)
    return Algorithm(
        partial(init, parts),
        partial(step, parts),
        partial(act, parts),
        hosted=partial(hosted, parts),
    )


def build(config: DQNConfig, env: Environment, axis_name: str | None = None) -> Parts:
    """Build network and environment of a config: what the functions below work with.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread.
    """
    config = auto.resolve(config, env)
    stepper = rollout.make_stepper(config, env, axis_name)
    obs_space = env.observation_space(stepper.params)
    action_space: Any = env.action_space(stepper.params)
    num_actions = int(action_space.n)
    network = make_network(config, obs_shape(obs_space), num_actions)
    kind = action_values.make(config)
    return Parts(config, stepper, obs_space, num_actions, network, kind)


def init(parts: Parts, key: Array) -> DQNState:
    """Make a fresh network, its copy as the target, an empty buffer."""
    keys = init_keys(key, 3)
    example = observe.example(parts.obs_space)
    inputs = [example, *_levels(parts.kind.acting_levels)]
    params = networks.init_params(keys[:2], {"q": (parts.network, inputs)})["q"]
    flat, restore = optimiser.flatten(params)
    experience = off_policy.init(make_hooks(parts, restore), keys[2])
    return DQNState(
        params=params,
        target_params=params,
        opt_state=_optimiser(parts, restore).init(flat),
        buffer=experience.buffer,
        priorities=experience.priorities,
        envs=experience.envs,
        key=key,
        update=jnp.int32(0),
        obs_moments=experience.obs_moments,
    )


def step(parts: Parts, state: DQNState) -> tuple[DQNState, Metrics]:
    """Make one update: rounds of acting, storing and learning."""
    return off_policy_pieces.step(split(parts, state), state)


def split(parts: Parts, state: DQNState) -> Split:
    """Return what an update of a state is made of."""
    form = _form(parts.config)
    params, opt_state, restore, leave = optimiser.enter(
        state.params, state.opt_state, form
    )
    target_params, *_ = optimiser.enter(state.target_params, (), form)

    def join(learner: Learner, experience: Experience) -> DQNState:
        params, opt_state = leave(learner.params, learner.opt_state)
        return DQNState(
            params=params,
            target_params=restore(learner.target_params),
            opt_state=opt_state,
            buffer=experience.buffer,
            priorities=experience.priorities,
            envs=experience.envs,
            key=state.key,
            update=state.update + 1,
            obs_moments=experience.obs_moments,
        )

    learner = Learner(params, target_params, opt_state)
    experience = off_policy.experience_of(state)
    return Split(make_hooks(parts, restore), learner, experience, join)


def _form(config: DQNConfig) -> optimiser.Form | None:
    """Return how parameters are held while they learn: None for one flat vector.

    Layers that are cut out of a vector are a kernel each, and an accelerator's product
    adds a bias only where that is an array of its own.
    """
    if traced_for_cpu() or config.frozen or not is_known(config.optimiser):
        return None
    return optimiser.Form(lambda params: params, lambda params: params)


def hosted(parts: Parts, update: Array) -> Hosted:
    """Return an update in pieces, for environments on the host.

    Args:
        parts: Networks, environments and config; see `build`.
        update: `[]` int32, number of updates done.
    """
    return off_policy_pieces.of_rounds(parts.config, partial(split, parts), update)


def act(parts: Parts, state: DQNState, obs: Array, key: Array | None = None) -> Array:
    """Return the greedy action, or with a key an exploring one.

    It is the epsilon-greedy action at `epsilon_end`, or, with `noisy`, the greedy one
    of a noisy network, whose noise is the same for all observations of a call.

    Args:
        parts: Networks, environments and config; see `build`.
        state: State of one agent.
        obs: `[..., *obs_shape]` observations as the environment gives them.
        key: Random key, consumed; without one the action is the deterministic one.
    """
    features = observe.prepare(parts, state.obs_moments, obs)
    noise, coin = (key, None) if parts.config.noisy else (None, key)
    q = values_of(parts, state.params, features, noise)
    return exploration.act(q, features, parts.config.epsilon_end, coin)


def evaluate(
    parts: Parts,
    params: PyTree,
    obs: Any,
    levels: Array | None = None,
    noise: Array | None = None,
) -> Array:
    """Return the network's outputs, see `action_values`.

    Args:
        parts: Networks, environments and config; see `build`.
        params: Parameters of the network.
        obs: `[..., *obs_shape]` features of observations.
        levels: `[..., M]` or `[M]` levels of distributions, where it takes them.
        noise: Random key of the noise, consumed; without one, weights are the means.
    """
    rngs = None if noise is None else {heads.NOISE: noise}
    outputs: Any = parts.network.apply(params, obs, *_levels(levels), rngs=rngs)
    return outputs


def values_of(
    parts: Parts, params: PyTree, obs: Any, noise: Array | None = None
) -> Array:
    """Return the values `[..., n]` by which actions are chosen; see `evaluate`.

    Args:
        parts: Networks, environments and config; see `build`.
        params: Parameters of the network.
        obs: `[..., *obs_shape]` features of observations.
        noise: Random key of the noise, consumed; without one, weights are the means.
    """
    return _valid(
        parts, evaluate(parts, params, obs, parts.kind.acting_levels, noise), obs
    )


def _valid(parts: Parts, outputs: Array, obs: Any) -> Array:
    """The values of outputs, far below the others for invalid actions."""
    mask = composite.mask_of(obs)
    q = parts.kind.values(outputs)
    # A network of expected values already has the mask around it.
    if mask is None or parts.config.values == "expected":
        return q
    return composite.exclude(q, mask)


def _levels(levels: Array | None) -> tuple[Array, ...]:
    return () if levels is None else (levels,)


def make_hooks(parts: Parts, restore: Any) -> off_policy.OffPolicyHooks:
    """Make DQN's part of the off-policy loop.

    Args:
        parts: Networks, environments and config; see `build`.
        restore: Function from a flat vector to the network's parameters.
    """
    config = parts.config
    shape = obs_shape(parts.obs_space)
    choices = exploration.choices_of(shape, parts.num_actions)

    def explore(learner: Learner, features: Any, noise: Any, step: Array) -> Array:
        if config.noisy:  # `noise` is a key for each environment.
            each = jax.vmap(partial(values_of, parts, restore(learner.params)))
            q = each(features, noise)
            return jnp.argmax(q, -1).astype(jnp.int32)
        epsilon = exploration.epsilon_of(config, step)
        q = values_of(parts, restore(learner.params), features)
        return exploration.epsilon_greedy(q, noise, epsilon, features)

    draw_coin = partial(exploration.draw_coin, num_actions=choices)
    return off_policy.OffPolicyHooks(
        config=config,
        stepper=parts.stepper,
        obs_space=parts.obs_space,
        replay=off_policy.replay_of(config, parts.stepper.axis_name),
        draw_action=jax.random.split if config.noisy else draw_coin,
        explore=explore,
        random_action=partial(exploration.draw_action, num_actions=choices),
        to_env=lambda action: action,
        draw_learning=(
            jax.random.split if _is_random(config) else lambda key, shape: ()
        ),
        learn=partial(learn, parts, restore),
    )


def learn(
    parts: Parts,
    restore: Any,
    learner: Learner,
    batch: Batch,
    noise: Any,
    count: StepCount,
) -> tuple[Learner, Array, Metrics]:
    """Take one gradient step, and update the target network where that is due.

    Args:
        parts: Networks, environments and config; see `build`.
        restore: Function from a flat vector to the network's parameters.
        learner: Learner before the step.
        batch: Batch from the replay buffer.
        noise: Random key where levels or noise are drawn, consumed; else not used.
        count: Where the step stands among all.
    """
    config, axis = parts.config, parts.stepper.axis_name
    draws = draw(parts, noise, batch.reward.shape[0])
    target = td_target(parts, restore, learner, batch, draws)
    minimise = jax.grad(partial(loss, parts, restore), has_aux=True)
    grads, (priority, metrics) = minimise(learner.params, batch, target, draws)
    grads, metrics = pmean((grads, metrics), axis)
    updates, opt_state = _optimiser(parts, restore, count.number).update(
        grads, learner.opt_state, learner.params
    )
    params: Any = optax.apply_updates(learner.params, updates)
    metrics["grad_norm"] = optimiser.grad_norm(opt_state)
    due = count.completes(config.target_update_interval)
    target_params = optimiser.polyak(
        learner.target_params, params, jnp.where(due, config.tau, 0.0)
    )
    return Learner(params, target_params, opt_state), priority, metrics


def draw(parts: Parts, key: Any, num: int) -> Draws:
    """Draw what is random in a gradient step.

    Args:
        parts: Networks, environments and config; see `build`.
        key: Random key, consumed; not used where nothing is random.
        num: Number of samples.
    """
    if not _is_random(parts.config):
        return NOTHING
    keys = jax.random.split(key, 4)
    levels = parts.kind.draw_levels(keys[0], num)
    return Draws(levels, *keys[1:]) if parts.config.noisy else Draws(levels)


def _is_random(config: DQNConfig) -> bool:
    """Return whether a gradient step draws noise or levels."""
    return config.noisy or config.values == "implicit"


def td_target(
    parts: Parts,
    restore: Any,
    learner: Learner,
    batch: Batch,
    draws: Draws = NOTHING,
) -> Array:
    """Return what the outputs are to become, for means `y = r + discount * Q'(s', a*)`.

    Args:
        parts: Networks, environments and config; see `build`.
        restore: Function from a flat vector to the network's parameters.
        learner: Online and target network, as flat vectors.
        batch: Batch from the replay buffer.
        draws: Random numbers of the gradient step.
    """
    config, kind, slow = parts.config, parts.kind, restore(learner.target_params)
    outputs = evaluate(parts, slow, batch.next_obs, draws.levels.target, draws.target)
    if config.double:
        chooser = restore(learner.params)
        q = values_of(parts, chooser, batch.next_obs, draws.chooser)
    elif kind.acting_levels is not None:  # Actions are chosen at levels of their own.
        q = values_of(parts, slow, batch.next_obs, draws.target)
    else:
        q = _valid(parts, outputs, batch.next_obs)
    if not config.munchausen:
        following = kind.of_best(outputs, q)
        return kind.target(batch.reward, batch.discount, following)
    now = values_of(parts, slow, batch.obs, draws.target)
    soft = munchausen.soft_policy(q, config.munchausen_tau)
    reward = munchausen.reward(
        munchausen.soft_policy(now, config.munchausen_tau),
        soft,
        batch,
        alpha=config.munchausen_alpha,
        clip=config.munchausen_clip,
    )
    return kind.target(reward, batch.discount, kind.of_policy(outputs, soft.policy))


def loss(
    parts: Parts,
    restore: Any,
    params: Array,
    batch: Batch,
    target: Array,
    draws: Draws = NOTHING,
) -> tuple[Array, tuple[Array, Metrics]]:
    """Return the scalar loss of a batch, its priorities `[N]` and metrics.

    Args:
        parts: Networks, environments and config; see `build`.
        restore: Function from a flat vector to the network's parameters.
        params: Parameters of the online network, as a flat vector.
        batch: Batch from the replay buffer.
        target: `[N, ...]` targets of the outputs.
        draws: Random numbers of the gradient step.
    """
    levels, kind = draws.levels.online, parts.kind
    outputs = evaluate(parts, restore(params), batch.obs, levels, draws.online)
    outputs = kind.pick(outputs, batch.action)
    error = kind.loss(outputs, target, levels)
    total = (batch.weight * error).mean()
    metrics = {"value_loss": total, "q_value": kind.values(outputs).mean()}
    return total, (kind.priority(outputs, target, error), metrics)


def _optimiser(
    parts: Parts, restore: Any, count: Array | int = 0
) -> optax.GradientTransformation:
    """The optimiser of the flat vector, at the step size of gradient step `count`."""
    config = parts.config
    rate: Any = config.learning_rate
    if config.anneal_learning_rate:
        rate = optimiser.annealed(rate, jnp.asarray(count), config.total_gradient_steps)
    return optimiser.make(
        config.optimiser,
        rate,
        config.max_grad_norm,
        restore,
        frozen_in(config.frozen),
    )

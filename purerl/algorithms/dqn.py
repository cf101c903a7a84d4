"""Deep Q-learning (Mnih et al. 2015) and the extensions that pay.

A network estimates the value of every discrete action. Acting is epsilon-greedy, and
each gradient step minimises, on a batch from the replay buffer,

    L = E[w loss(Q(s, a), y)],    y = r + gamma^n (1 - terminated) Q'(s', a*)

with the target network `Q'` and `a* = argmax_a Q'(s', a)`, or, with `double`, the
online network's choice `argmax_a Q(s', a)` (van Hasselt et al. 2016). `dueling` splits
the network into value and advantages (Wang et al. 2016); `n_step` sums n rewards
before bootstrapping; `prioritised` samples in proportion to the last TD error and
weighs the loss by `w` (Schaul et al. 2016). `r` and `s'` end with their episode, and a
time limit bootstraps: see `batches.Batch`. `clip_targets` keeps `y` within what returns
can be, as in hindsight replay (Andrychowicz et al. 2017).

What is learned of an action, and its loss, is `values`: the mean above, or the
distribution of returns, whose mean then chooses actions (C51, QR-DQN, IQN; see
`action_values`). `noisy` explores by noise in the network's weights, drawn anew for
every environment and step and for every network of a gradient step (Fortunato et al.
2018). `munchausen` makes targets soft and adds the policy's log-probability to rewards
(Vieillard et al. 2020). C51 and noise with `double`, `dueling`, `n_step` and
`prioritised` are Rainbow (Hessel et al. 2018).

Defaults are those of CleanRL's `dqn.py` for CartPole-v1 (Huang et al. 2022), and of its
`c51.py` for the atoms: a buffer
of 10,000, batches of 128, a gradient step every 10 environment steps and a new target
every 50 gradient steps, layers of 120 and 84 units, epsilon from 1 to 0.05 over half of
the run. Not as there: the double estimator; one step of ten environments between
gradient steps, in place of ten of one; learning begins after 1,000 steps (there
10,000); gradients are clipped at a norm of 10 (there not at all) and are those of half
the squared error (Adam does not notice the half, the clipping does); layers start
orthogonal. QR-DQN has 200 quantiles in its paper and IQN 64 levels on both sides; the
numbers here are for small networks.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.core import Tracer

from purerl import networks
from purerl.accelerator.kernels import traced_for_cpu
from purerl.acting import exploration
from purerl.acting.exploration import EpsilonConfig
from purerl.algorithms import (
    action_values,
    checks,
    network_config,
    off_policy,
    own_terms,
    replay_config,
)
from purerl.algorithms.off_policy import Agent, Hooks, Learner, State
from purerl.algorithms.replay_config import PrioritisedConfig, ReplayConfig
from purerl.config import ConfigError, check_idle, config_dataclass, dynamic, static
from purerl.envs.base import Environment
from purerl.fields import (
    FRACTION,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_OR_NONE,
    SIZES,
    Check,
    one_of,
)
from purerl.keys import init_keys
from purerl.learning import optimiser
from purerl.learning.averages import pmean
from purerl.learning.branches import StepCount
from purerl.losses import SquaredError, extra
from purerl.networks import heads as head_layers
from purerl.networks import observe
from purerl.optimisers import Adam
from purerl.optimisers.first_order import is_known
from purerl.replay.batches import Batch
from purerl.types import Algorithm, Array, Metrics, PyTree

SEVERAL = Check(lambda x: x >= 2, "must be at least 2")
NON_POSITIVE = Check(lambda x: x <= 0, "must be 0 or less")
# Fields that are read where an option is on.
_MUNCHAUSEN = ("munchausen_alpha", "munchausen_tau", "munchausen_clip")
_QUANTILES = ("num_quantiles", "kappa", "num_tau_samples", "num_tau_prime_samples")


@config_dataclass
class QConfig(EpsilonConfig, ReplayConfig):
    """Fields of Q-learning from replay, with a memory or without."""

    num_envs: int = 10
    target_update_interval: int = static(
        50, "Gradient steps between updates of the target networks.", POSITIVE
    )
    tau: float = dynamic(
        1.0, "Share of the online networks in an update of the targets.", FRACTION
    )
    max_grad_norm: float | None = dynamic(
        10.0, "Largest norm of a gradient; None for no bound.", POSITIVE_OR_NONE
    )
    optimiser: Any = dynamic(Adam(), "Optimiser of the network.")
    anneal_learning_rate: bool = static(False, "Decay the step size linearly to 0.")
    double: bool = static(True, "Let the online network choose the target's action.")


@config_dataclass
class DQNConfig(QConfig, PrioritisedConfig):
    """Deep Q-learning, its distributional kinds and its extensions."""

    buffer_size: int = 10_000
    batch_size: int = 128
    dueling: bool = static(
        False, "Split the network into value and advantages, with a hidden layer each."
    )
    values: str = static(
        "expected",
        "Statistic of the return that is learned: its mean (DQN), a "
        "distribution over atoms (C51), quantiles (QR-DQN), or quantiles at "
        "drawn levels (IQN).",
        one_of(*action_values.KINDS),
    )
    num_atoms: int = static(101, "Atoms where values is categorical (C51).", SEVERAL)
    value_min: float = dynamic(-100.0, "Lowest atom, in units of return.", stays=True)
    value_max: float = dynamic(100.0, "Highest atom, in units of return.", stays=True)
    clip_targets: float | None = dynamic(
        None,
        "Largest absolute target: 1 / (1 - gamma) where rewards are at most 1; "
        "None for no bound.",
        POSITIVE_OR_NONE,
    )
    num_quantiles: int = static(51, "Quantiles where values is quantile.", POSITIVE)
    num_tau_samples: int = static(
        8, "Levels of the prediction where values is implicit (IQN).", POSITIVE
    )
    num_tau_prime_samples: int = static(
        8, "Levels of the target where values is implicit (IQN).", POSITIVE
    )
    kappa: float = dynamic(
        1.0, "TD error at which the Huber loss of quantiles turns linear.", POSITIVE
    )
    noisy: bool = static(
        False,
        "Explore by noise in the weights of the head, which gets a hidden "
        "layer, in place of epsilon.",
    )
    noisy_sigma: float = static(
        0.5, "Noise at first, times the root of a layer's inputs.", NON_NEGATIVE
    )
    munchausen: bool = static(
        False, "Add the policy's log-probability to rewards; targets are soft."
    )
    munchausen_alpha: float = dynamic(
        0.9, "Share of the log-probability that is added.", FRACTION
    )
    munchausen_tau: float = dynamic(
        0.03, "Temperature of the policy, in units of return.", POSITIVE
    )
    munchausen_clip: float = dynamic(
        -1.0, "Lowest value of temperature times log-probability.", NON_POSITIVE
    )
    hidden_sizes: tuple[int, ...] = static(
        (120, 84), "Units of each hidden layer.", SIZES
    )


def validate(config: DQNConfig, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    replay_config.validate(config)
    exploration.check_share(config)
    _check_values(config)
    checks.check_values(config, env, action_values.num_outputs(config))
    # Presets have the numbers of priorities beside `prioritised`.
    if not config.munchausen:
        check_idle(config, _MUNCHAUSEN, "munchausen", "munchausen=True")
    if not config.noisy:
        check_idle(config, ("noisy_sigma",), "noisy", "noisy=True")
    if config.values == "expected":
        check_idle(config, _QUANTILES, "values", "values='quantile' or 'implicit'")


def _check_values(config: DQNConfig) -> None:
    """Refuse fields that contradict the kind of action values, or one another."""
    low, high = config.value_min, config.value_max
    known = not (isinstance(low, Tracer) or isinstance(high, Tracer))
    if config.values == "categorical" and known and low >= high:
        raise ConfigError(
            f"value_min must be less than value_max, got {low:g} and {high:g}: the "
            "atoms lie between them; take the range of discounted returns."
        )
    if config.values != "expected" and not isinstance(config.value_loss, SquaredError):
        raise ConfigError(
            f"value_loss must be SquaredError() with values={config.values!r}, which "
            f"has a loss of its own, got {config.value_loss!r}."
        )
    if config.munchausen and (config.double or config.n_step > 1):
        raise ConfigError(
            f"munchausen needs double=False and n_step=1, got {config.double} and "
            f"{config.n_step}: its target has no largest value, and replay keeps no "
            "log-probabilities of the steps between."
        )
    options = {name: getattr(config, name) for name in ("dueling", "noisy")}
    options["values='implicit'"] = config.values == "implicit"
    chosen = [name for name, is_on in options.items() if is_on]
    if chosen and network_config.own(config, "critic") is not None:
        module = network_config.described(config, "critic")
        raise ConfigError(
            f"critic must not be a whole network of your own with {chosen[0]}, got "
            f"{module}; give the layers before the head as torso."
        )


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


def make(
    config: DQNConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Build DQN for a config and an environment; see `build`."""
    agent = build(config, env, axis_name)
    return off_policy.algorithm(agent, init, enter, act)


def build(config: DQNConfig, env: Environment, axis_name: str | None = None) -> Agent:
    """Build network, environment and replay, as `off_policy.make_agent` does."""
    agent = off_policy.make_agent(config, env, axis_name, "categorical")
    config, shape = agent.config, observe.obs_shape(agent.obs_space)
    network = action_values.make_network(config, shape, agent.head.num_outputs)
    return agent._replace(network=network, kind=action_values.make(config))


def init(agent: Agent, key: Array) -> State:
    """Make a fresh network, its copy as the target, an empty buffer."""
    keys = init_keys(key, 3)
    inputs = [observe.example(agent.obs_space)]
    if agent.kind.acting_levels is not None:
        inputs.append(agent.kind.acting_levels)
    params = networks.init_params(keys[:2], {"q": (agent.network, inputs)})
    params = off_policy.with_heads(agent, params, (inputs[0], inputs[0]), key)
    # What the user's own terms have lies beside the collection of the one network.
    params = {**params.pop("q"), **params}
    return off_policy.init_state(agent, key, keys[2], fresh(agent.config, params))


def fresh(config: QConfig, params: PyTree) -> Learner:
    """Return the learner of fresh networks, which are their own targets at first."""
    flat, restore = optimiser.flatten(params)
    return Learner(params, params, make_optimiser(config, restore).init(flat))


def enter(agent: Agent, state: State) -> tuple[Hooks, Learner, Any]:
    """Return what an update of a state works with; see `off_policy.Enter`.

    On an accelerator networks stay layers: those that are cut out of a vector are a
    kernel each, and a product adds a bias only where that is an array of its own.
    """
    config, form = agent.config, optimiser.Form(lambda x: x, lambda x: x)
    is_whole = config.frozen or agent.terms or not is_known(config.optimiser)
    if traced_for_cpu() or is_whole:
        form = None
    return enter_flat(make_hooks, agent, state, form)


def enter_flat(
    make_hooks: Any, agent: Agent, state: State, form: optimiser.Form | None = None
) -> tuple[Hooks, Learner, Any]:
    """Return what an update works with: networks are a flat vector `[P]` each.

    Args:
        make_hooks: `(agent, restore) -> hooks`, with the way back from the vector.
        agent: Networks, environments, replay and config.
        form: Form of the networks that is not one flat vector.
    """
    params, opt_state, restore, leave = optimiser.enter(
        state.params, state.opt_state, form
    )
    target_params, *_ = optimiser.enter(state.target_params, (), form)

    def left(learner: Learner) -> Learner:
        params, opt_state = leave(learner.params, learner.opt_state)
        return Learner(params, restore(learner.target_params), opt_state)

    learner = Learner(params, target_params, opt_state)
    return make_hooks(agent, restore), learner, left


def make_hooks(agent: Agent, restore: Any) -> Hooks:
    """Make DQN's part of the learner."""
    config, num = agent.config, off_policy.num_choices(agent)
    draw_coin = partial(exploration.draw_coin, num_actions=num)

    def explore(
        learner: Learner, obs: Any, memory: PyTree, noise: Any, step: Array
    ) -> tuple[Array, PyTree]:
        if config.noisy:  # `noise` is a key for each environment.
            each = jax.vmap(partial(values_of, agent, restore(learner.params)))
            return jnp.argmax(each(obs, noise), -1).astype(jnp.int32), memory
        q = values_of(agent, restore(learner.params), obs)
        epsilon = exploration.epsilon_of(config, step)
        return exploration.epsilon_greedy(q, noise, epsilon, obs), memory

    return Hooks(
        agent=agent,
        draw_action=jax.random.split if config.noisy else draw_coin,
        explore=explore,
        draw_noise=jax.random.split if _is_random(config) else lambda key, shape: (),
        learn=partial(learn, agent, restore),
        shown=partial(_shown, restore),
    )


def _shown(restore: Any, flat: Array, batch: Batch) -> tuple[PyTree, extra.Samples]:
    """Parameters by network and samples, as the user's own terms see them."""
    params = dict(restore(flat))
    q = {"params": params.pop("params")}
    return {"q": q, **params}, extra.Samples(**batch._asdict())


def act(agent: Agent, state: State, obs: Array, key: Array | None = None) -> Array:
    """Return the greedy action, or with a key an exploring one.

    It is the epsilon-greedy action at `epsilon_end`, or, with `noisy`, the greedy one
    of a noisy network, whose noise is the same for all observations of a call.

    Args:
        obs: `[..., *obs_shape]` observations as the environment gives them.
        key: Random key, consumed; without one the action is the deterministic one.
    """
    features = observe.prepare(agent, state.obs_moments, obs)
    noise, coin = (key, None) if agent.config.noisy else (None, key)
    q = values_of(agent, state.params, features, noise)
    return exploration.act(q, features, agent.config.epsilon_end, coin)


def evaluate(
    agent: Agent,
    params: PyTree,
    obs: Any,
    levels: Array | None = None,
    noise: Array | None = None,
) -> Array:
    """Return the network's outputs, see `action_values`.

    Args:
        params: Parameters of the network.
        obs: `[..., *obs_shape]` features of observations.
        levels: `[..., M]` or `[M]` levels of distributions, where it takes them.
        noise: Random key of the noise, consumed; without one, weights are the means.
    """
    rngs = None if noise is None else {head_layers.NOISE: noise}
    if agent.terms:
        params = {"params": params["params"]}  # without the networks of terms
    more = () if levels is None else (levels,)
    outputs: Any = agent.network.apply(params, obs, *more, rngs=rngs)
    return outputs


def values_of(
    agent: Agent, params: PyTree, obs: Any, noise: Array | None = None
) -> Array:
    """Return the values `[..., n]` by which actions are chosen; see `evaluate`."""
    outputs = evaluate(agent, params, obs, agent.kind.acting_levels, noise)
    return _valid(agent, outputs, obs)


def _valid(agent: Agent, outputs: Array, obs: Any) -> Array:
    """The values of outputs, far below the others for invalid actions."""
    mask = observe.mask_of(obs)
    q = agent.kind.values(outputs)
    # A network of expected values already has the mask around it.
    if mask is None or agent.config.values == "expected":
        return q
    return observe.exclude(q, mask)


def learn(
    agent: Agent,
    restore: Any,
    learner: Learner,
    batch: Batch,
    noise: Any,
    count: StepCount,
) -> tuple[Learner, Array, Metrics]:
    """Take one gradient step, and update the target network where that is due.

    Args:
        noise: Random key where levels or noise are drawn, consumed; else not used.
    """
    draws = draw(agent, noise, batch.reward.shape[0])
    target = td_target(agent, restore, learner, batch, draws)
    minimised = partial(loss, agent, restore, batch=batch, target=target, draws=draws)
    return descend(agent, restore, minimised, learner, count)


def descend(
    agent: Agent, restore: Any, loss: Any, learner: Learner, count: StepCount
) -> tuple[Learner, Array, Metrics]:
    """Take a step of the optimiser, and update the target network where that is due.

    Args:
        agent: Networks, environments, replay and config, a `QConfig`.
        restore: Function from a flat vector to the networks' parameters.
        loss: Function `(params) -> (loss [], (priority, metrics))`.
    """
    config = agent.config
    grads, (priority, metrics) = jax.grad(loss, has_aux=True)(learner.params)
    grads, metrics = pmean((grads, metrics), agent.stepper.axis_name)
    if agent.terms:
        grads = jax.tree.map(jnp.add, grads, learner.pull)
    optim = make_optimiser(config, restore, count.number)
    updates, opt_state = optim.update(grads, learner.opt_state, learner.params)
    params: Any = optax.apply_updates(learner.params, updates)
    metrics["grad_norm"] = optimiser.grad_norm(opt_state)
    due = count.completes(config.target_update_interval)
    target_params = optimiser.polyak(
        learner.target_params, params, jnp.where(due, config.tau, 0.0)
    )
    return Learner(params, target_params, opt_state), priority, metrics


def draw(agent: Agent, key: Any, num: int) -> Draws:
    """Draw what is random in a gradient step on `num` samples; the key is consumed."""
    if not _is_random(agent.config):
        return NOTHING
    keys = jax.random.split(key, 4)
    levels = agent.kind.draw_levels(keys[0], num)
    return Draws(levels, *keys[1:]) if agent.config.noisy else Draws(levels)


def _is_random(config: DQNConfig) -> bool:
    """Return whether a gradient step draws noise or levels."""
    return config.noisy or config.values == "implicit"


def td_target(
    agent: Agent,
    restore: Any,
    learner: Learner,
    batch: Batch,
    draws: Draws = NOTHING,
) -> Array:
    """Return what the outputs are to become, for means `y = r + discount * Q'(s', a*)`.

    Args:
        learner: Online and target network, as flat vectors.
    """
    config, kind, slow = agent.config, agent.kind, restore(learner.target_params)
    outputs = evaluate(agent, slow, batch.next_obs, draws.levels.target, draws.target)
    if config.double:
        chooser = restore(learner.params)
        q = values_of(agent, chooser, batch.next_obs, draws.chooser)
    elif kind.acting_levels is not None:  # Actions are chosen at levels of their own.
        q = values_of(agent, slow, batch.next_obs, draws.target)
    else:
        q = _valid(agent, outputs, batch.next_obs)
    if not config.munchausen:
        following = kind.of_best(outputs, q)
        return kind.target(batch.reward, batch.discount, following)
    now = values_of(agent, slow, batch.obs, draws.target)
    reward, policy = munchausen(config, now, q, batch)
    return kind.target(reward, batch.discount, kind.of_policy(outputs, policy))


def munchausen(
    config: DQNConfig, now: Array, following: Array, batch: Batch
) -> tuple[Array, Array]:
    """Return rewards `[N]` and a policy `[N, n]` (arXiv:2007.14430, equation 4).

        y = r + alpha [tau log pi(a|s)]_clip^0
              + gamma sum_a' pi'(a'|s') (Q'(s', a') - tau log pi(a'|s'))

    with `pi = softmax(Q' / tau)` of the target network: all but the sum of `Q'`. For a
    distribution of returns that sum is over distributions, as in M-IQN (appendix B),
    and all of them are moved by the same entropy.

    Args:
        now: `[N, n]` values of the actions on the observations.
        following: `[N, n]` those on the observations after the steps.
    """
    temperature = config.munchausen_tau
    log_now, log_following = (
        jax.nn.log_softmax(q / temperature) for q in (now, following)
    )
    policy = jnp.exp(log_following)
    taken = jnp.take_along_axis(temperature * log_now, batch.action[:, None], -1)[:, 0]
    bonus = config.munchausen_alpha * jnp.clip(taken, config.munchausen_clip, 0.0)
    entropy = -(policy * (temperature * log_following)).sum(-1)
    return batch.reward + bonus + batch.discount * entropy, policy


def loss(
    agent: Agent,
    restore: Any,
    params: Array,
    batch: Batch,
    target: Array,
    draws: Draws = NOTHING,
) -> tuple[Array, tuple[Array, Metrics]]:
    """Return the scalar loss of a batch, its priorities `[N]` and metrics.

    Args:
        params: Parameters of the online network, as a flat vector.
        target: `[N, ...]` targets of the outputs.
    """
    levels, kind = draws.levels.online, agent.kind
    outputs = evaluate(agent, restore(params), batch.obs, levels, draws.online)
    outputs = kind.pick(outputs, batch.action)
    error = kind.loss(outputs, target, levels)
    total = (batch.weight * error).mean()
    metrics = {"value_loss": total, "q_value": kind.values(outputs).mean()}
    return total, (kind.priority(outputs, target, error), metrics)


def make_optimiser(
    config: QConfig, restore: Any, count: Array | int = 0
) -> optax.GradientTransformation:
    """Return the optimiser of the flat vector at the step size of step `count`."""
    rate: Any = config.learning_rate
    if config.anneal_learning_rate:
        rate = optimiser.annealed(rate, jnp.asarray(count), config.total_gradient_steps)
    frozen = optimiser.frozen_in(config.frozen)
    heads = extra.heads_of(extra.terms_of(config))

    def own(restore: Any) -> optax.GradientTransformation:
        clip = config.max_grad_norm
        return optimiser.make(config.optimiser, rate, clip, restore, frozen)

    if not heads:
        return own(restore)
    return optimiser.beside(own, own_terms.of_heads(config, rate), restore, heads)

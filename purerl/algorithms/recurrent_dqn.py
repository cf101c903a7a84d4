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

The three rules of `memory` hold here too: the memory is cleared by the flag of
the step before an observation, in the burn-in and in the sequence; a gradient step runs
it over sequences again; and a time limit bootstraps on the observation before the
reset, seen by the memory of the episode that it belongs to.

Returns of five steps and the priorities are those of R2D2, the exponent of the
importance weights is that of Acme's R2D2. Exploration and learning have the numbers of
`dqn`: with sequences of 16 steps, a gradient step on 32 of them for every 40
environment steps replays as many steps for each step of the environment.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from purerl import networks
from purerl.acting import exploration
from purerl.algorithms import (
    checks,
    dqn,
    network_config,
    off_policy,
    own_terms,
    replay_config,
)
from purerl.algorithms import memory as memories
from purerl.algorithms.dqn import QConfig, descend, enter_flat, fresh
from purerl.algorithms.memory import CORE, MemoryFields
from purerl.algorithms.off_policy import Agent, Hooks, Learner, State
from purerl.config import ConfigError, check_idle, config_dataclass, dynamic, static
from purerl.envs.base import Environment
from purerl.fields import FRACTION, LAYERS, NON_NEGATIVE, POSITIVE
from purerl.keys import init_keys
from purerl.learning import returns, sequences, small_networks
from purerl.learning.branches import StepCount
from purerl.learning.sequences import Sequences, swap
from purerl.losses import value_error
from purerl.networks import observe
from purerl.replay import batches
from purerl.types import Algorithm, Array, Metrics, PyTree

_PRIORITIES = ("priority_eta", "priority_exponent", "importance_exponent")


@config_dataclass
class RecurrentDQNConfig(QConfig, MemoryFields):
    """Deep Q-learning with a memory, from a replay buffer of sequences (R2D2)."""

    sequence_length: int = 16
    burn_in: int = 8
    buffer_size: int = 10_000
    batch_size: int = static(32, "Sequences of one gradient step.", POSITIVE)
    gradient_steps: int = 4
    n_step: int = 5
    dueling: bool = static(
        False, "Split the network into value and advantages, with a hidden layer each."
    )
    value_rescaling: bool = static(
        False, "Learn values on the scale of sign(x) (sqrt(|x| + 1) - 1) + 0.001 x."
    )
    prioritised: bool = static(False, "Sample in proportion to TD errors.")
    priority_eta: float = dynamic(
        0.9, "Weight of a sequence's largest TD error, against their mean.", FRACTION
    )
    priority_exponent: float = dynamic(0.9, "Power of the priority.", NON_NEGATIVE)
    importance_exponent: float = dynamic(
        0.6, "Power of the importance weights at first; it grows to 1.", FRACTION
    )
    hidden_sizes: tuple[int, ...] = static(
        (128,), "Units of each hidden layer before the memory.", LAYERS
    )
    memory: Any = "gru"
    memory_size: int = 128
    head_sizes: tuple[int, ...] = ()

    @property
    def capacity(self) -> int:
        """Sequences that the buffer holds.

        A multiple of `num_envs`, so that every environment has slots of its own.
        """
        return self.buffer_size // self.steps_per_update * self.num_envs


def validate(config: RecurrentDQNConfig, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    if not memories.has_memory(config):
        raise ConfigError(
            "memory must be that of a recurrent network, got 'none'; use DQNConfig."
        )
    replay_config.validate_sequences(config)
    replay_config.validate_learning(config)
    exploration.check_share(config)
    checks.check_values(config, env)
    if config.dueling and network_config.own(config, "critic") is not None:
        raise ConfigError(
            "dueling must be False where critic is a whole network of your own, got "
            f"{network_config.described(config, 'critic')}."
        )
    if not config.prioritised:
        check_idle(config, _PRIORITIES, "prioritised", "prioritised=True")


def make(
    config: RecurrentDQNConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Build recurrent DQN for a config and an environment; see `build`."""
    return off_policy.algorithm(build(config, env, axis_name), init, enter, dqn.act)


def build(
    config: RecurrentDQNConfig, env: Environment, axis_name: str | None = None
) -> Agent:
    """Build networks, environment and replay, as `off_policy.make_agent` does."""
    replay = batches.of_sequences
    agent = off_policy.make_agent(config, env, axis_name, "categorical", replay)
    config, shape = agent.config, observe.obs_shape(agent.obs_space)
    memory = memories.build(config, shape)
    assert memory is not None
    network = memories.value_network(config, memory, shape, agent.head.num_outputs)
    return agent._replace(memory=memory, network=network)


def init(agent: Agent, key: Array) -> State:
    """Make a fresh network, its copy as the target, an empty buffer and memories."""
    keys = init_keys(key, 3)
    obs, one = observe.example(agent.obs_space), agent.memory.blank(1)
    made = {
        CORE: (agent.memory.core, [obs, one]),
        "q": (agent.network, [agent.memory.seen(one, obs)]),
    }
    params = networks.init_params(keys[:2], made)
    seen = agent.memory.seen(one, obs)
    params = off_policy.with_heads(agent, params, (seen, seen), key)
    learner = fresh(agent.config, params)
    return off_policy.init_state(agent, key, keys[2], learner)


def make_hooks(agent: Agent, restore: Any) -> Hooks:
    """Make recurrent DQN's part of the learner: DQN's, which learns otherwise."""
    return dqn.make_hooks(agent, restore)._replace(
        learn=partial(learn, agent, restore), shown=partial(_shown, agent, restore)
    )


def _shown(
    agent: Agent, restore: Any, flat: Array, batch: tuple[Sequences, Array]
) -> tuple[PyTree, own_terms.Samples]:
    """Parameters by network and samples, as the user's own terms see them."""
    (rows, weight), params = batch, restore(flat)
    steps = agent.memory.steps(params, rows)
    samples = own_terms.Samples(
        obs=steps.obs,
        action=steps.action,
        reward=steps.reward,
        next_obs=steps.next_obs,
        discount=agent.config.gamma * (1.0 - steps.terminated),
        weight=jnp.broadcast_to(weight[:, None], steps.reward.shape),
    )
    return params, sequences.flatten(samples)


enter = partial(enter_flat, make_hooks)


def learn(
    agent: Agent,
    restore: Any,
    learner: Learner,
    batch: tuple[Sequences, Array],
    noise: Any,
    count: StepCount,
) -> tuple[Learner, Array, Metrics]:
    """Take one gradient step, and update the target network where that is due.

    Args:
        learner: Learner before the step.
        batch: Sequences `[R, L, ...]`, and their weights `[R]`.
        noise: Nothing.
        count: Where the step stands among all.

    Returns:
        Learner, what the priorities `[R]` of the sequences are made of, and metrics.
    """
    del noise
    rows, weight = batch
    target = td_target(agent, restore, learner, rows)
    minimised = partial(loss, agent, restore, rows=rows, target=target, weight=weight)
    learner, td_error, metrics = descend(agent, restore, minimised, learner, count)
    error = batches.sequence_priority(td_error, agent.config.priority_eta)
    return learner, error, metrics


def td_target(agent: Agent, restore: Any, learner: Learner, rows: Sequences) -> Array:
    """Return what the values of the actions are to become, `[L, R]`.

    Args:
        learner: Online and target network, as flat vectors.
    """
    config = agent.config
    steps = jax.tree.map(swap, rows.batch)

    def following(flat: Array) -> Array:
        """The values of the observations after each step, before any reset."""
        params = restore(flat)
        core, kind, _ = agent.memory
        each = sequences.remember_each(core, kind, params[CORE], rows)
        return dqn.values(agent, params, steps.next_obs, each)[0]

    slow = following(learner.target_params)
    chooser = following(learner.params) if config.double else slow
    best = jnp.argmax(chooser, -1)[..., None]
    value = jnp.take_along_axis(slow, best, -1)[..., 0]
    if config.value_rescaling:
        value = small_networks.unsqueeze(value)
    target = returns.n_step(
        steps.reward,
        value,
        steps.terminated,
        steps.truncated,
        gamma=config.gamma,
        n=config.n_step,
    )
    return small_networks.squeeze(target) if config.value_rescaling else target


def loss(
    agent: Agent,
    restore: Any,
    params: Array,
    rows: Sequences,
    target: Array,
    weight: Array,
) -> tuple[Array, tuple[Array, Metrics]]:
    """Return the scalar loss of a batch of sequences, its TD errors and metrics.

    Args:
        params: Parameters of the online network, as a flat vector.
        target: `[L, R]` targets of the values.
        weight: `[R]` weights of the sequences.
    """
    nets = restore(params)
    seen = agent.memory.unroll(nets, rows)
    q: Any = agent.network.apply(nets["q"], seen)
    action = swap(rows.batch.action)[..., None]
    value = jnp.take_along_axis(q, action, -1)[..., 0]
    flat = value.reshape(-1)
    errors = value_error(agent.config.value_loss, flat, target.reshape(-1))
    total = (weight * errors.reshape(target.shape).mean(0)).mean()
    return total, (target - value, {"value_loss": total, "q_value": value.mean()})

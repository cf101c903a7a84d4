"""Parallel Q-learning (PQN; Gallici et al. 2024, arXiv:2407.04811).

Q-learning without a replay buffer and without a target network. Every update collects
`T` steps in `B` environments with the epsilon-greedy policy, computes lambda-returns
with the network as it then is,

    G_t = r_t + gamma ((1 - lambda) max_a Q(s_{t+1}, a) + lambda G_{t+1}),

and takes several epochs of minibatch steps on `E[loss(Q(s_t, a_t), G_t)]`, the targets
held fixed. The environments' number decorrelates the samples, as a replay buffer does
elsewhere, and layer normalisation keeps the bootstrapped values bounded, as a target
network does (the paper's theorem 2). An episode that ended cuts the trace, and one that
was truncated bootstraps: see `returns.q_lambda`.

Defaults are those of the authors' code for CartPole-v1, for a run of 500,000 steps: 32
environments, 64 steps, 4 epochs of 16 minibatches, RAdam with linear decay, global norm
10, lambda 0.95, epsilon from 1 to 0.2 over the first fifth of the run. Theirs scales
rewards by 0.1, with a step size of 1e-4 and layers of 256 units. Here rewards are as
they are, so that the values to be learned are ten times as large, and the step size is
1e-3; 128 units were enough.

With a memory (`memory="gru"`; see `memory`) the action values are a head on it, and the
rest is the same: PQN-RNN of the paper. The authors' script learns from the last steps
of the rollout before too (`MEMORY_WINDOW`), and computes the returns anew in every
gradient step. Here a rollout begins with the memory that was stored before it, and
`burn_in` gives the sequences after the first such steps.
"""

from functools import partial
from typing import Any, NamedTuple

from purerl.accelerator import columns
from purerl.acting import exploration
from purerl.acting.exploration import EpsilonConfig
from purerl.acting.rollout import Played
from purerl.algorithms import checks, on_policy
from purerl.algorithms import memory as memories
from purerl.algorithms.memory import MemoryConfig
from purerl.algorithms.on_policy import Agent, Behaviour, Learned, OnPolicyState
from purerl.config import config_dataclass, dynamic, static
from purerl.envs.base import Environment
from purerl.fields import FRACTION, LAYERS, POSITIVE, POSITIVE_OR_NONE
from purerl.learning import averages
from purerl.learning.returns import q_lambda
from purerl.losses import SquaredError, value_error
from purerl.losses.check import check_value_loss
from purerl.networks import observe
from purerl.networks.observe import obs_shape
from purerl.optimisers import RAdam
from purerl.types import Algorithm, Array, Metrics, PyTree


@config_dataclass
class PQNConfig(EpsilonConfig, MemoryConfig):
    """The config of parallel Q-learning."""

    num_envs: int = 32
    num_steps: int = static(64, "Steps per environment and update.", POSITIVE)
    num_epochs: int = static(4, "Passes over the rollout per update.", POSITIVE)
    num_minibatches: int = static(16, "Gradient steps per pass.", POSITIVE)
    learning_rate: float = 1e-3
    anneal_learning_rate: bool = static(True, "Decay the step size linearly to 0.")
    optimiser: Any = dynamic(RAdam(), "Optimiser of the network.")
    max_grad_norm: float | None = dynamic(10.0, "Gradient clipping.", POSITIVE_OR_NONE)
    trace_decay: float = dynamic(0.95, "Lambda of the returns.", FRACTION)
    value_loss: Any = dynamic(SquaredError(), "Loss of the action value.")
    epsilon_end: float = 0.2
    epsilon_fraction: float = 0.2
    hidden_sizes: tuple[int, ...] = static(
        (128, 128), "Units of each hidden layer.", LAYERS
    )
    activation: str = "relu"
    layer_norm: bool = True

    def automatic(self, env: Environment) -> dict[str, Any]:
        """Return the decay's length in environment steps; sequences are rollouts."""
        return {**super().automatic(env), "sequence_length": self.num_steps}


@config_dataclass
class RecurrentPQNConfig(PQNConfig):
    """PQN with a GRU in the place of the second hidden layer."""

    hidden_sizes: tuple[int, ...] = (128,)
    memory: Any = "gru"


class Batch(NamedTuple):
    """The samples of a gradient step, `[N, ...]`; observations are prepared already."""

    obs: Array
    action: Array
    target: Array


def validate(config: PQNConfig, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    checks.check_rows(config)
    exploration.check_share(config)
    checks.check_values(config, env)
    check_value_loss(config.value_loss)


def make(
    config: PQNConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Bind PQN to a config and an environment; arguments as of `ppo.make`."""
    return on_policy.algorithm(make_agent(config, env, axis_name), learn)


def make_agent(
    config: PQNConfig, env: Environment, axis_name: str | None = None
) -> Agent:
    """Bind the action values and the environments of a config."""
    agent = on_policy.make_agent(config, env, axis_name)
    config, shape = agent.config, obs_shape(agent.obs_space)
    actions: Any = env.action_space(agent.stepper.params)
    num_actions = int(actions.n)
    return agent._replace(
        networks={
            "q": memories.value_network(config, agent.memory, shape, num_actions)
        },
        behaviour=_epsilon_greedy(config, shape, num_actions),
    )


def _epsilon_greedy(config: PQNConfig, shape: Any, num_actions: int) -> Behaviour:
    """Explore by the schedule of epsilon; afterwards with a key at `epsilon_end`."""

    def explore(update: Array) -> Any:
        epsilon = exploration.epsilon_of_update(config, update)

        def choose(q: Any, obs: Any, coin: Any) -> tuple[Array, Any, Array]:
            action = exploration.epsilon_greedy(q, coin, epsilon, obs)
            return action, (), action

        return choose

    def decide(q: Any, obs: Any, key: Array | None) -> Array:
        return exploration.act(q, obs, config.epsilon_end, key)

    choices = exploration.choices_of(shape, num_actions)
    draw = partial(exploration.draw_coin, num_actions=choices)
    return Behaviour("q", draw, explore, decide)


def learn(agent: Agent, state: OnPolicyState, played: Played, key: Array) -> Learned:
    """Regress on the lambda-returns of a rollout, by epochs of minibatch steps."""
    samples = targets(agent, state, played)
    return Learned(*on_policy.fit(agent, state, played, loss, samples, key))


def targets(agent: Agent, state: OnPolicyState, played: Played) -> Batch:
    """Return observations, actions and lambda-returns of a rollout, `[T, B, ...]`."""
    config, transitions = agent.config, played.transitions
    prepare = partial(observe.prepare, agent, state.obs_moments)
    # A time limit bootstraps on the values of the observation before any reset.
    seen = next_obs = prepare(transitions.next_obs)
    if agent.memory is not None:
        # These are the memories of the episode that `next_obs` ends or goes on with.
        seen = agent.memory.judged(state.params, played.memories, next_obs)
    q_next: Any = agent.networks["q"].apply(state.params["q"], seen)
    target = q_lambda(
        transitions.reward,
        q_next.max(-1),
        transitions.terminated,
        transitions.truncated,
        gamma=config.gamma,
        trace_decay=config.trace_decay,
    )
    return Batch(prepare(transitions.obs), transitions.action, target)


def loss(agent: Agent, params: PyTree, rows: Any) -> tuple[Array, Metrics]:
    """Return the scalar loss of a minibatch and its metrics.

    Args:
        agent: Network, environments and config.
        params: Parameters by network.
        rows: Rows of the minibatch, see `Agent.rows_of`.
    """
    batch = agent.samples_of(params, rows)
    q: Any = agent.networks["q"].apply(params["q"], batch.obs)
    value = columns.pick(q, batch.action)
    errors = value_error(agent.config.value_loss, value, batch.target)
    metrics = averages.means({"value_loss": errors, "q_value": value})
    return metrics["value_loss"], metrics

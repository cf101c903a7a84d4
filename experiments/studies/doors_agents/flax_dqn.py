"""DQN (Mnih et al. 2015) on Doors-v0 in Flax and Optax, with Gymnasium's environments.

The agent of `torch_dqn.py` with its two functions compiled: the greedy actions, and a
gradient step. The environments, the replay buffer and the loop are Python and NumPy, as
there, so that every round crosses between the two.
"""

from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from doors_agents import loop
from doors_agents.loop import Batch, Course
from purerl import DQNConfig

OBSERVATION, ACTIONS = 225, 5


class Network(nn.Module):
    """An MLP with ReLU and orthogonal layers, as purerl's networks start.

    Attributes:
        hidden_sizes: Units of each hidden layer.
    """

    hidden_sizes: tuple[int, ...]

    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        """Action values `[..., 5]` of observations `[..., 225]`."""
        x = obs
        for size in self.hidden_sizes:
            x = nn.relu(
                nn.Dense(size, kernel_init=nn.initializers.orthogonal(2**0.5))(x)
            )
        return nn.Dense(ACTIONS, kernel_init=nn.initializers.orthogonal(1.0))(x)


class State(NamedTuple):
    """The state that a gradient step changes.

    Attributes:
        params: Parameters of the network.
        target_params: Parameters of the target network.
        opt_state: State of the optimiser.
        steps: int32 `[]`, number of gradient steps.
    """

    params: Any
    target_params: Any
    opt_state: Any
    steps: jax.Array


class FlaxLearner:
    """A network of action values, its target copy, and Adam.

    Args:
        config: Settings.
        seed: Seed of the first parameters.
    """

    def __init__(self, config: DQNConfig, seed: int) -> None:
        network = Network(config.hidden_sizes)
        most = config.max_grad_norm
        optimiser = optax.chain(
            optax.identity() if most is None else optax.clip_by_global_norm(most),
            optax.adam(config.learning_rate, eps=config.optimiser.eps),
        )
        params = network.init(jax.random.key(seed), jnp.zeros((1, OBSERVATION)))
        self.state = State(params, params, optimiser.init(params), jnp.int32(0))
        values: Any = network.apply
        self._greedy = jax.jit(lambda params, obs: values(params, obs).argmax(-1))
        self._learn = jax.jit(partial(learn, network, optimiser, config))

    def greedy(self, obs: np.ndarray) -> np.ndarray:
        """Return the actions of the greatest value, `[N]`, for `[N, 225]`."""
        return np.asarray(self._greedy(self.state.params, obs))

    def learn(self, batch: Batch) -> None:
        """Take one gradient step, and update the target network where it is due."""
        self.state = self._learn(self.state, batch)


def learn(
    network: nn.Module,
    optimiser: optax.GradientTransformation,
    config: DQNConfig,
    state: State,
    batch: Batch,
) -> State:
    """Take one gradient step, and update the target network where it is due.

    Args:
        network: The network of action values.
        optimiser: What makes steps of gradients.
        config: Settings.
        state: State before the step.
        batch: Transitions.
    """

    def loss(params: Any) -> jax.Array:
        future: Any = network.apply(state.target_params, batch.next_obs)
        going_on = 1.0 - batch.terminated
        target = batch.reward + config.gamma * going_on * future.max(-1)
        values: Any = network.apply(params, batch.obs)
        value = jnp.take_along_axis(values, batch.action[:, None], -1)[:, 0]
        return 0.5 * jnp.square(value - target).mean()

    grads = jax.grad(loss)(state.params)
    updates, opt_state = optimiser.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    steps = state.steps + 1
    due = steps % config.target_update_interval == 0
    target_params = jax.tree.map(
        lambda new, old: jnp.where(due, new, old), params, state.target_params
    )
    return State(params, target_params, opt_state, steps)


def train(config: DQNConfig, seed: int) -> tuple[FlaxLearner, Course]:
    """Train one agent; return it and how it went.

    Compilation happens before the clock of the course starts.

    Args:
        config: Settings; `epsilon_steps` is a number.
        seed: Seed of everything that is drawn.
    """
    learner = FlaxLearner(config, seed)
    fresh = learner.state
    learner.greedy(np.zeros((config.num_envs, OBSERVATION), np.float32))
    learner.learn(loop.blank(config.batch_size, OBSERVATION))
    learner.state = fresh
    return learner, loop.train(learner, config, seed)

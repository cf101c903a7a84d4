"""DQN (Mnih et al. 2015) on Doors-v0 in PyTorch, with Gymnasium's environments.

A network, its target copy, and a gradient step: what a person writes with PyTorch. The
replay buffer and the loop around the environments are those of `loop`, in NumPy.
PyTorch comes with `pip install 'purerl[studies]'`; a build without CUDA is enough.
"""

import copy

import numpy as np
import torch
from torch import nn
from torch_agents.common import layers

from doors_agents import loop
from doors_agents.loop import Batch, Course
from purerl import DQNConfig

OBSERVATION, ACTIONS = 225, 5


class TorchLearner:
    """A network of action values, its target copy, and Adam.

    Args:
        config: Settings.
        seed: Seed of the first parameters.
    """

    def __init__(self, config: DQNConfig, seed: int) -> None:
        torch.manual_seed(seed)
        self.config, self.steps = config, 0
        sizes = [OBSERVATION, *config.hidden_sizes, ACTIONS]
        self.network = layers(sizes, 1.0, nn.ReLU)
        self.target = copy.deepcopy(self.network)
        self.optimiser = torch.optim.Adam(
            self.network.parameters(),
            lr=config.learning_rate,
            eps=config.optimiser.eps,
        )

    def greedy(self, obs: np.ndarray) -> np.ndarray:
        """Return the actions of the greatest value, `[N]`, for `[N, 225]`."""
        with torch.no_grad():
            return self.network(torch.from_numpy(obs)).argmax(-1).numpy()

    def learn(self, batch: Batch) -> None:
        """Take one gradient step, and update the target network where it is due."""
        obs, action, reward, next_obs, terminated = map(torch.from_numpy, batch)
        with torch.no_grad():
            future = self.target(next_obs).max(-1).values
            target = reward + self.config.gamma * (1.0 - terminated) * future
        value = self.network(obs).gather(1, action[:, None])[:, 0]
        loss = 0.5 * (value - target).square().mean()
        self.optimiser.zero_grad()
        loss.backward()
        if self.config.max_grad_norm is not None:
            params = self.network.parameters()
            nn.utils.clip_grad_norm_(params, self.config.max_grad_norm)
        self.optimiser.step()
        self.steps += 1
        if self.steps % self.config.target_update_interval == 0:
            self.target.load_state_dict(self.network.state_dict())


def train(config: DQNConfig, seed: int) -> tuple[TorchLearner, Course]:
    """Train one agent; return it and how it went.

    Args:
        config: Settings; `epsilon_steps` is a number.
        seed: Seed of everything that is drawn.
    """
    learner = TorchLearner(config, seed)
    return learner, loop.train(learner, config, seed)

"""VPG in plain PyTorch, with the sizes of "JAX 4 Deep RL", as Spinning Up trains it."""

import time
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from torch_agents.common import Batch, descend, mlp
from torch_agents.ppo import advantages

SIZES = (128, 64)
VALUE_ITERATIONS = 80
GAMMA, GAE_LAMBDA = 0.99, 0.97


class VPG:
    """Actor and critic of 128-64 and their two optimisers."""

    def __init__(self, obs: int, actions: int) -> None:
        self.actor = mlp([obs, *SIZES, actions], nn.Tanh)
        self.log_std = nn.Parameter(torch.full((actions,), -0.5))
        self.critic = mlp([obs, *SIZES, 1], nn.Tanh)
        params = [*self.actor.parameters(), self.log_std]
        self.adam_actor = torch.optim.Adam(params, 3e-4)
        self.adam_critic = torch.optim.Adam(self.critic.parameters(), 1e-3)

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        """Return a sampled action `[A]` on one observation `[O]`."""
        mean = self.actor(obs)
        return mean + self.log_std.exp() * torch.randn_like(mean)

    def policy_loss(self, batch: Batch) -> torch.Tensor:
        """Return the scalar whose gradient is the policy gradient, negated."""
        policy = torch.distributions.Normal(
            self.actor(batch["obs"]), self.log_std.exp(), validate_args=False
        )
        log_prob = policy.log_prob(batch["action"]).sum(-1)
        return -(log_prob * batch["advantage"]).mean()

    def value_loss(self, batch: Batch) -> torch.Tensor:
        """Return the mean squared error of the values."""
        error = self.critic(batch["obs"]).squeeze(-1) - batch["target"]
        return error.square().mean()

    def learn(self, batch: Batch) -> None:
        """Take a step of the policy, and 80 of the critic."""
        descend(self.policy_loss(batch), self.adam_actor)
        for _ in range(VALUE_ITERATIONS):
            descend(self.value_loss(batch), self.adam_critic)

    @torch.no_grad()
    def judge(self, rollout: Batch) -> Batch:
        """Return the batch to learn from: standardised advantages and rewards-to-go.

        Args:
            rollout: `[T, B]` reward, terminated and done, `[T, B, O]` obs and next_obs,
                `[T, B, A]` action.
        """
        values = self.critic(rollout["obs"]).squeeze(-1)
        next_values = self.critic(rollout["next_obs"]).squeeze(-1)
        ends = rollout["terminated"], rollout["done"]
        given = (rollout["reward"], values, next_values, *ends, GAMMA)
        weight = advantages(*given, GAE_LAMBDA).flatten()
        # With a trace that does not decay, advantages are rewards-to-go less values.
        to_go = values + advantages(*given, 1.0)
        return {
            "obs": rollout["obs"].flatten(0, 1),
            "action": rollout["action"].flatten(0, 1),
            "advantage": (weight - weight.mean()) / (weight.std(correction=0) + 1e-8),
            "target": to_go.flatten(),
        }


def train(agent: VPG, env_id: str, epochs: int, steps: int) -> float:
    """Train in one Gymnasium environment, an update after every epoch.

    Args:
        agent: The agent.
        env_id: Name of the environment.
        epochs: Epochs that are timed, after one that is not.
        steps: Environment steps of an epoch.

    Returns:
        Seconds of an epoch.
    """
    env = gymnasium.make(env_id)
    box: Any = env.action_space
    obs, _ = env.reset(seed=0)
    began = time.perf_counter()
    for epoch in range(1 + epochs):
        if epoch == 1:
            began = time.perf_counter()
        rollout, obs = _collect(agent, env, box, obs, steps)
        agent.learn(agent.judge(rollout))
    seconds = time.perf_counter() - began
    env.close()
    return seconds / epochs


def _collect(
    agent: VPG, env: Any, box: Any, obs: Any, steps: int
) -> tuple[Batch, np.ndarray]:
    """Collect `[T, 1, ...]` transitions; return them and the observation after them."""
    keys = ("obs", "action", "reward", "next_obs", "terminated", "done")
    kept: dict[str, list[Any]] = {key: [] for key in keys}
    for _ in range(steps):
        with torch.no_grad():
            action = agent.act(torch.as_tensor(obs)).numpy()
        scaled = box.low + 0.5 * (action.clip(-1, 1) + 1) * (box.high - box.low)
        next_obs, reward, terminated, truncated, _ = env.step(scaled)
        done = terminated or truncated
        row = (obs, action, reward, next_obs, terminated, done)
        for key, value in zip(keys, row, strict=True):
            kept[key].append(value)
        obs = env.reset()[0] if done else next_obs
    arrays = {key: np.asarray(values, np.float32) for key, values in kept.items()}
    return {key: torch.from_numpy(x[:, None]) for key, x in arrays.items()}, obs

"""The update of VPG in plain PyTorch, with the sizes of "JAX 4 Deep RL"."""

import torch
from torch import nn

from torch_agents.common import Batch, descend, mlp

VALUE_ITERATIONS = 80


class VPG:
    """Actor and critic of 128-64 and their two optimisers."""

    def __init__(self, obs: int, actions: int, sizes: tuple[int, ...] = (128, 64)):
        self.actor = mlp([obs, *sizes, actions], nn.Tanh)
        self.log_std = nn.Parameter(torch.full((actions,), -0.5))
        self.critic = mlp([obs, *sizes, 1], nn.Tanh)
        params = [*self.actor.parameters(), self.log_std]
        self.adam_actor = torch.optim.Adam(params, 3e-4)
        self.adam_critic = torch.optim.Adam(self.critic.parameters(), 1e-3)

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

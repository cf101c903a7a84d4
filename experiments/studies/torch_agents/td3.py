"""TD3 in plain PyTorch (Fujimoto et al. 2018), with the sizes of jax-rl."""

import torch
from torch import nn

from torch_agents.common import Batch, Twin, descend, mlp, polyak, target_of


class TD3:
    """The agent; settings are those of the preset `td3-jaxrl`.

    Args:
        obs: Size of an observation.
        actions: Size of an action.
        sizes: Units of the hidden layers.
        learning_rate: Step size of both optimisers.
    """

    def __init__(
        self,
        obs: int,
        actions: int,
        sizes: tuple[int, ...] = (256, 256),
        learning_rate: float = 3e-4,
    ) -> None:
        self.actor = nn.Sequential(mlp([obs, *sizes, actions], nn.ReLU), nn.Tanh())
        self.critics = Twin(lambda: mlp([obs + actions, *sizes, 1], nn.ReLU))
        self.target_actor = target_of(self.actor)
        self.target_critics = target_of(self.critics)
        self.adam_actor = torch.optim.Adam(self.actor.parameters(), learning_rate)
        self.adam_critics = torch.optim.Adam(self.critics.parameters(), learning_rate)
        self.count = 0

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the action with Gaussian noise of 0.1."""
        action = self.actor(obs)
        return (action + 0.1 * torch.randn_like(action)).clamp(-1, 1)

    def critic_loss(self, batch: Batch) -> torch.Tensor:
        """Return the critics' loss, with clipped double Q and smoothed targets."""
        with torch.no_grad():
            noise = (0.2 * torch.randn_like(batch["action"])).clamp(-0.5, 0.5)
            action = (self.target_actor(batch["next_obs"]) + noise).clamp(-1, 1)
            value = torch.min(*self.target_critics(batch["next_obs"], action))
            target = batch["reward"] + batch["discount"] * value
        pair = self.critics(batch["obs"], batch["action"])
        return sum(0.5 * (q - target).square().mean() for q in pair)  # type: ignore

    def actor_loss(self, batch: Batch) -> torch.Tensor:
        """Return minus the first critic's value of the policy's actions."""
        both = torch.cat([batch["obs"], self.actor(batch["obs"])], -1)
        return -self.critics.first(both).mean()

    def learn(self, batch: Batch) -> None:
        """Take a step of the critics, and every second time of policy and targets."""
        descend(self.critic_loss(batch), self.adam_critics)
        self.count += 1
        if self.count % 2 == 0:
            descend(self.actor_loss(batch), self.adam_actor)
            polyak(self.target_actor, self.actor, 0.005)
            polyak(self.target_critics, self.critics, 0.005)

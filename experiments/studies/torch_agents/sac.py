"""SAC in plain PyTorch (Haarnoja et al. 2018), with the sizes of jax-rl."""

import math

import torch
from torch import nn

from torch_agents.common import Batch, Twin, descend, mlp, polyak, target_of

ACTOR, CRITIC = (200, 200), (500, 500)
LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0


def squash(
    outputs: torch.Tensor, noise: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return actions `[..., A]` in [-1, 1] and their log-densities `[...]` there.

    Args:
        outputs: `[..., 2 A]` mean and log standard deviation.
        noise: `[..., A]` standard normal.
    """
    mean, log_std = outputs.chunk(2, -1)
    log_std = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
    raw = mean + log_std.exp() * noise
    normal = -0.5 * (noise.square() + math.log(2 * math.pi)) - log_std
    slope = 2 * (math.log(2) - raw - nn.functional.softplus(-2 * raw))
    return raw.tanh(), (normal - slope).sum(-1)


class SAC:
    """The agent; settings are those of the preset `sac-jaxrl`."""

    def __init__(self, obs: int, actions: int) -> None:
        self.actions = actions
        self.actor = mlp([obs, *ACTOR, 2 * actions], nn.ELU, layer_norm=True)
        self.critics = Twin(
            lambda: mlp([obs + actions, *CRITIC, 1], nn.ELU, layer_norm=True)
        )
        self.target_critics = target_of(self.critics)
        self.log_temperature = torch.tensor(-3.5, requires_grad=True)
        self.adam_actor = torch.optim.Adam(self.actor.parameters(), 3e-4)
        self.adam_critics = torch.optim.Adam(self.critics.parameters(), 3e-4)
        self.adam_temperature = torch.optim.Adam([self.log_temperature], 3e-4)
        self.count = 0

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        """Return a sample of the policy."""
        return squash(self.actor(obs), torch.randn(self.actions))[0]

    def learn(self, batch: Batch) -> None:
        """Take a step of the critics; every second time of policy, alpha, targets."""
        temperature = self.log_temperature.exp().detach()
        with torch.no_grad():
            noise = torch.randn_like(batch["action"])
            action, log_prob = squash(self.actor(batch["next_obs"]), noise)
            value = torch.min(*self.target_critics(batch["next_obs"], action))
            soft = value - temperature * log_prob
            target = batch["reward"] + batch["discount"] * soft
        pair = self.critics(batch["obs"], batch["action"])
        loss = sum(0.5 * (q - target).square().mean() for q in pair)
        descend(loss, self.adam_critics)  # type: ignore[arg-type]
        self.count += 1
        if self.count % 2 == 0:
            noise = torch.randn_like(noise)
            action, log_prob = squash(self.actor(batch["obs"]), noise)
            value = torch.min(*self.critics(batch["obs"], action))
            descend((temperature * log_prob - value).mean(), self.adam_actor)
            gap = -log_prob.detach().mean() + self.actions
            descend(self.log_temperature * gap, self.adam_temperature)
            polyak(self.target_critics, self.critics, 0.005)

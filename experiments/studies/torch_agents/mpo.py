"""MPO in plain PyTorch (Abdolmaleki et al. 2018), with the sizes of jax-rl.

The E-step's temperature is solved by SciPy's SLSQP as there, or learned by gradient.
"""

import math

import numpy as np
import torch
from scipy.optimize import minimize
from torch import nn

from torch_agents.common import Batch, Twin, mlp, target_of
from torch_agents.sac import ACTOR, CRITIC

SAMPLES = 20
EPSILON, EPSILON_MEAN, EPSILON_STD = 0.1, 5e-4, 1e-5


def dual(temperature: float, q_values: np.ndarray) -> float:
    """Return the E-step's convex dual of values `[S, N]`."""
    best = q_values.max(0)
    mean = np.exp((q_values - best) / temperature).mean(0)
    return temperature * (EPSILON + np.log(mean).mean()) + best.mean()


class MPO:
    """The agent; settings are those of the preset `mpo-jaxrl`.

    Args:
        obs: Size of an observation.
        actions: Number of action dimensions.
        is_exact: Whether the temperature is solved for in each step.
    """

    def __init__(self, obs: int, actions: int, is_exact: bool = True) -> None:
        self.is_exact = is_exact
        self.actor = mlp([obs, *ACTOR, 2 * actions], nn.ELU, layer_norm=True)
        self.critics = Twin(
            lambda: mlp([obs + actions, *CRITIC, 1], nn.ELU, layer_norm=True)
        )
        self.target_actor = target_of(self.actor)
        self.target_critics = target_of(self.critics)
        # Softplus of these: the temperature, and the multipliers of mean and std.
        self.duals = torch.tensor([1.0, 1.0, 100.0], requires_grad=True)
        self.temperature = 1.0
        self.adam_actor = torch.optim.Adam(self.actor.parameters(), 3e-4)
        self.adam_critics = torch.optim.Adam(self.critics.parameters(), 3e-4)
        self.adam_duals = torch.optim.Adam([self.duals], 3e-4)
        self.count = 0

    @staticmethod
    def policy(network: nn.Module, obs: torch.Tensor) -> torch.distributions.Normal:
        """Return the Gaussian before tanh."""
        mean, log_std = network(obs).chunk(2, -1)
        return torch.distributions.Normal(
            mean, log_std.clamp(-20, 2).exp(), validate_args=False
        )

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        """Return a sample of the policy."""
        return self.policy(self.actor, obs).sample().tanh()

    @torch.no_grad()
    def sampled(
        self, obs: torch.Tensor
    ) -> tuple[torch.distributions.Normal, torch.Tensor, torch.Tensor]:
        """Return the target policy, raw actions `[S, N, A]`, and values `[S, N]`."""
        policy = self.policy(self.target_actor, obs)
        raw = policy.sample((SAMPLES,))
        many = obs.expand(SAMPLES, *obs.shape)
        return policy, raw, torch.min(*self.target_critics(many, raw.tanh()))

    def learn(self, batch: Batch) -> None:
        """Take one step of critics, policy and multipliers."""
        *_, values = self.sampled(batch["next_obs"])
        target = batch["reward"] + batch["discount"] * values.mean(0)
        old, raw, q_values = self.sampled(batch["obs"])
        if self.is_exact:
            self.temperature = float(
                minimize(
                    lambda x: dual(x[0], q_values.numpy()),
                    np.array([self.temperature]),
                    method="SLSQP",
                    bounds=[(1e-6, None)],
                ).x[0]
            )
        else:
            self.temperature = float(nn.functional.softplus(self.duals[0]).detach())
        weights = torch.softmax(q_values / self.temperature, 0)
        loss = self._loss(batch, target, old, raw, q_values, weights)
        adams = (self.adam_critics, self.adam_actor, self.adam_duals)
        for adam in adams:
            adam.zero_grad()
        loss.backward()
        for network in (self.critics, self.actor):
            nn.utils.clip_grad_norm_(network.parameters(), 40.0)
        for adam in adams:
            adam.step()
        self.count += 1
        if self.count % 250 == 0:
            self.target_actor.load_state_dict(self.actor.state_dict())
            self.target_critics.load_state_dict(self.critics.state_dict())

    def _loss(
        self,
        batch: Batch,
        target: torch.Tensor,
        old: torch.distributions.Normal,
        raw: torch.Tensor,
        q_values: torch.Tensor,
        weights: torch.Tensor,
    ) -> torch.Tensor:
        """Return the sum of the losses of critics, policy and multipliers."""
        pair = self.critics(batch["obs"], batch["action"])
        loss = sum(0.5 * (q - target).square().mean() for q in pair)
        new = self.policy(self.actor, batch["obs"])
        by_mean = torch.distributions.Normal(new.mean, old.stddev, validate_args=False)
        by_std = torch.distributions.Normal(old.mean, new.stddev, validate_args=False)
        log_prob = (by_mean.log_prob(raw) + by_std.log_prob(raw)).sum(-1)
        loss = loss - (weights * log_prob).sum(0).mean()
        positive = nn.functional.softplus(self.duals)
        for i, policy, bound in ((1, by_mean, EPSILON_MEAN), (2, by_std, EPSILON_STD)):
            kl = torch.distributions.kl_divergence(old, policy).sum(-1).mean()
            loss = (
                loss + positive[i].detach() * kl + positive[i] * (bound - kl.detach())
            )
        if not self.is_exact:
            log_mean = torch.logsumexp(q_values / positive[0], 0) - math.log(SAMPLES)
            loss = loss + positive[0] * (EPSILON + log_mean.mean())
        return loss  # type: ignore[return-value]

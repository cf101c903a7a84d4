"""PPO in plain PyTorch with a Gymnasium vector environment, of CleanRL's kind.

The settings are those of CleanRL's ppo.py on CartPole-v1, which are also the defaults
of `purerl.PPOConfig`. Environments are stepped one after another in this process, as
there; networks run on the CPU.
"""

import dataclasses
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn


@dataclasses.dataclass(frozen=True)
class Settings:
    """Numbers of the run; see `purerl.PPOConfig` for what they mean."""

    env: str = "CartPole-v1"
    total_timesteps: int = 500_000
    num_envs: int = 4
    num_steps: int = 128
    num_epochs: int = 4
    num_minibatches: int = 4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    learning_rate: float = 2.5e-4
    adam_eps: float = 1e-5
    clip_eps: float = 0.2
    entropy_coef: float = 0.01
    value_coef: float = 0.5
    max_grad_norm: float = 0.5
    width: int = 64


def layers(sizes: list[int], gain: float) -> nn.Sequential:
    """Return tanh layers with orthogonal weights, the last of which has a gain."""
    modules: list[nn.Module] = []
    for i in range(len(sizes) - 1):
        linear = nn.Linear(sizes[i], sizes[i + 1])
        last = i == len(sizes) - 2
        nn.init.orthogonal_(linear.weight, gain if last else 2**0.5)
        nn.init.zeros_(linear.bias)
        modules += [linear] if last else [linear, nn.Tanh()]
    return nn.Sequential(*modules)


def advantages(
    rewards: torch.Tensor,
    values: torch.Tensor,
    next_values: torch.Tensor,
    terminated: torch.Tensor,
    done: torch.Tensor,
    gamma: float,
    gae_lambda: float,
) -> torch.Tensor:
    """Return generalised advantages `[T, B]` (Schulman et al. 2016, equation 16).

    Args:
        rewards: `[T, B]` rewards.
        values: `[T, B]` values of the observations.
        next_values: `[T, B]` values of the observations after the steps, before resets.
        terminated: `[T, B]` 1 where the value of what follows is zero.
        done: `[T, B]` 1 where an episode ended, in whichever way.
        gamma: Discount.
        gae_lambda: Trace decay.
    """
    delta = rewards + gamma * next_values * (1 - terminated) - values
    found, last = torch.zeros_like(delta), torch.zeros_like(delta[0])
    for t in reversed(range(len(delta))):
        last = delta[t] + gamma * gae_lambda * (1 - done[t]) * last
        found[t] = last
    return found


def train(settings: Settings, seed: int) -> dict[str, Any]:
    """Train one agent.

    Returns:
        `env_steps` and `episode_return` `[U]` of the episodes that ended in each update
        (None where none did), and `seconds` of the whole run.
    """
    torch.manual_seed(seed)
    envs = gymnasium.make_vec(
        settings.env,
        num_envs=settings.num_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP},
    )
    box: Any = envs.single_observation_space
    actions: Any = envs.single_action_space
    size, count = int(np.prod(box.shape)), int(actions.n)
    actor = layers([size, settings.width, settings.width, count], 0.01)
    critic = layers([size, settings.width, settings.width, 1], 1.0)
    params = [*actor.parameters(), *critic.parameters()]
    adam = torch.optim.Adam(params, settings.learning_rate, eps=settings.adam_eps)
    updates = settings.total_timesteps // (settings.num_envs * settings.num_steps)
    obs, _ = envs.reset(seed=seed)
    running, steps, returns = np.zeros(settings.num_envs), [], []
    began = time.perf_counter()
    for update in range(updates):
        adam.param_groups[0]["lr"] = settings.learning_rate * (1 - update / updates)
        rollout, obs, ended = _collect(settings, envs, actor, obs, running)
        _learn(settings, actor, critic, adam, params, rollout)
        steps.append((update + 1) * settings.num_envs * settings.num_steps)
        returns.append(float(np.mean(ended)) if ended else None)
    seconds = time.perf_counter() - began
    envs.close()
    return {"env_steps": steps, "episode_return": returns, "seconds": seconds}


def _collect(
    settings: Settings, envs: Any, actor: nn.Module, obs: Any, running: np.ndarray
) -> tuple[dict[str, torch.Tensor], Any, list[float]]:
    """Collect a rollout `[T, B]`; `running` holds the returns of running episodes."""
    keys = ("obs", "action", "log_prob", "reward", "next_obs", "terminated", "done")
    kept: dict[str, list[Any]] = {key: [] for key in keys}
    ended: list[float] = []
    for _ in range(settings.num_steps):
        with torch.no_grad():
            policy = torch.distributions.Categorical(
                logits=actor(torch.as_tensor(obs, dtype=torch.float32))
            )
            action = policy.sample()
            log_prob = policy.log_prob(action)
        after, reward, terminated, truncated, info = envs.step(action.numpy())
        done = terminated | truncated
        next_obs = after.copy()
        for i in np.flatnonzero(done):
            next_obs[i] = info["final_obs"][i]
        running += reward
        ended += list(running[done])
        running[done] = 0
        row = (obs, action, log_prob, reward, next_obs, terminated, done)
        for key, value in zip(keys, row, strict=True):
            kept[key].append(torch.as_tensor(np.asarray(value)))
        obs = after
    stacked = {key: torch.stack(values) for key, values in kept.items()}
    floats = {k: v if k == "action" else v.float() for k, v in stacked.items()}
    return floats, obs, ended


def _learn(
    settings: Settings,
    actor: nn.Module,
    critic: nn.Module,
    adam: torch.optim.Optimizer,
    params: list[nn.Parameter],
    rollout: dict[str, torch.Tensor],
) -> None:
    """Take the epochs of minibatches on a rollout."""
    with torch.no_grad():
        values = critic(rollout["obs"]).squeeze(-1)
        next_values = critic(rollout["next_obs"]).squeeze(-1)
        found = advantages(
            rollout["reward"],
            values,
            next_values,
            rollout["terminated"],
            rollout["done"],
            settings.gamma,
            settings.gae_lambda,
        )
    flat = {key: value.flatten(0, 1) for key, value in rollout.items()}
    old, target, advantage = (
        values.flatten(),
        (found + values).flatten(),
        found.flatten(),
    )
    size = len(old) // settings.num_minibatches
    eps = settings.clip_eps
    for _ in range(settings.num_epochs):
        order = torch.randperm(len(old))
        for rows in order.split(size):
            policy = torch.distributions.Categorical(logits=actor(flat["obs"][rows]))
            log_prob = policy.log_prob(flat["action"][rows])
            ratio = (log_prob - flat["log_prob"][rows]).exp()
            a = advantage[rows]
            a = (a - a.mean()) / (a.std() + 1e-8)
            clipped = ratio.clamp(1 - eps, 1 + eps)
            policy_loss = -torch.min(ratio * a, clipped * a).mean()
            value = critic(flat["obs"][rows]).squeeze(-1)
            near = old[rows] + (value - old[rows]).clamp(-eps, eps)
            errors = torch.stack([value - target[rows], near - target[rows]])
            value_loss = 0.5 * errors.square().amax(0).mean()
            bonus = settings.entropy_coef * policy.entropy().mean()
            loss = policy_loss - bonus + settings.value_coef * value_loss
            adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(params, settings.max_grad_norm)
            adam.step()

"""PPO in plain PyTorch with a Gymnasium vector environment, of CleanRL's kind.

The settings are a `purerl.PPOConfig`, whose defaults are those of CleanRL's ppo.py on
CartPole-v1. Environments are stepped one after another in this process, as there;
networks run on the CPU.
"""

import time
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from torch_agents.common import layers


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


def train(config: Any, seed: int) -> dict[str, Any]:
    """Train one agent.

    Args:
        config: A `purerl.PPOConfig` without `auto`.
        seed: Seed of everything that is drawn.

    Returns:
        `episode_return` `[U]` of the episodes that ended in each update (None where
        none did), and `seconds` of the whole run.
    """
    torch.manual_seed(seed)
    envs = gymnasium.make_vec(
        config.env,
        num_envs=config.num_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP},
    )
    box: Any = envs.single_observation_space
    actions: Any = envs.single_action_space
    size, count = int(np.prod(box.shape)), int(actions.n)
    actor = layers([size, *config.hidden_sizes, count], config.actor_gain)
    critic = layers([size, *config.hidden_sizes, 1], config.critic_gain)
    params = [*actor.parameters(), *critic.parameters()]
    adam = torch.optim.Adam(params, config.learning_rate, eps=config.optimiser.eps)
    updates = config.total_timesteps // (config.num_envs * config.num_steps)
    obs, _ = envs.reset(seed=seed)
    running, returns = np.zeros(config.num_envs), []
    began = time.perf_counter()
    for update in range(updates):
        adam.param_groups[0]["lr"] = config.learning_rate * (1 - update / updates)
        rollout, obs, ended = _collect(config, envs, actor, obs, running)
        _learn(config, actor, critic, adam, params, rollout)
        returns.append(float(np.mean(ended)) if ended else None)
    seconds = time.perf_counter() - began
    envs.close()
    return {"episode_return": returns, "seconds": seconds}


def _collect(
    config: Any, envs: Any, actor: nn.Module, obs: Any, running: np.ndarray
) -> tuple[dict[str, torch.Tensor], Any, list[float]]:
    """Collect a rollout `[T, B]`; `running` holds the returns of running episodes."""
    keys = ("obs", "action", "log_prob", "reward", "next_obs", "terminated", "done")
    kept: dict[str, list[Any]] = {key: [] for key in keys}
    ended: list[float] = []
    for _ in range(config.num_steps):
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
    config: Any,
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
            config.gamma,
            config.gae_lambda,
        )
    flat = {key: value.flatten(0, 1) for key, value in rollout.items()}
    old, target, advantage = (x.flatten() for x in (values, found + values, found))
    size = len(old) // config.num_minibatches
    eps = config.policy_loss.clip_eps
    for _ in range(config.num_epochs):
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
            bonus = config.entropy_coef * policy.entropy().mean()
            loss = policy_loss - bonus + config.value_coef * value_loss
            adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(params, config.max_grad_norm)
            adam.step()

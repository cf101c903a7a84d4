"""Networks, replay and the loop that the off-policy agents share."""

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import gymnasium
import numpy as np
import torch
from torch import nn

Batch = dict[str, torch.Tensor]


class Agent(Protocol):
    """The methods of an agent that the loop calls; actions lie in [-1, 1]."""

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the exploring action `[A]` on one observation `[O]`."""
        ...

    def learn(self, batch: Batch) -> None:
        """Take one gradient step."""
        ...


def mlp(
    sizes: Sequence[int], activation: type[nn.Module], layer_norm: bool = False
) -> nn.Sequential:
    """Return dense layers, the last of which is linear.

    Args:
        sizes: Inputs, hidden layers, outputs.
        activation: Class of the activation.
        layer_norm: Whether each hidden layer is normalised before its activation.
    """
    modules: list[nn.Module] = []
    for i in range(len(sizes) - 2):
        modules.append(nn.Linear(sizes[i], sizes[i + 1]))
        modules += [nn.LayerNorm(sizes[i + 1])] if layer_norm else []
        modules.append(activation())
    return nn.Sequential(*modules, nn.Linear(sizes[-2], sizes[-1]))


def layers(
    sizes: Sequence[int], gain: float, activation: type[nn.Module] = nn.Tanh
) -> nn.Sequential:
    """Return layers with orthogonal weights, the last of which has a gain."""
    modules: list[nn.Module] = []
    for i in range(len(sizes) - 1):
        linear = nn.Linear(sizes[i], sizes[i + 1])
        last = i == len(sizes) - 2
        nn.init.orthogonal_(linear.weight, gain if last else 2**0.5)
        nn.init.zeros_(linear.bias)
        modules += [linear] if last else [linear, activation()]
    return nn.Sequential(*modules)


class Twin(nn.Module):
    """Two critics of observation and action."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.first, self.second = make(), make()

    def forward(
        self, obs: torch.Tensor, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return both values `[...]` of observations `[..., O]`, actions `[..., A]`."""
        both = torch.cat([obs, action], -1)
        return self.first(both).squeeze(-1), self.second(both).squeeze(-1)


def target_of(network: nn.Module) -> Any:
    """Return a copy of a network that gradients do not reach."""
    return copy.deepcopy(network).requires_grad_(False)


@torch.no_grad()
def polyak(target: nn.Module, online: nn.Module, tau: float) -> None:
    """Move the target by the share `tau` towards the online network."""
    for old, new in zip(target.parameters(), online.parameters(), strict=True):
        old.lerp_(new, tau)


def descend(loss: torch.Tensor, adam: torch.optim.Optimizer) -> None:
    """Take one step of an optimiser down a loss."""
    adam.zero_grad()
    # A policy's loss goes through critics that do not learn from it, and the gradient
    # of their weights would be work for nothing.
    loss.backward(inputs=[p for group in adam.param_groups for p in group["params"]])
    adam.step()


class Replay:
    """A ring of transitions in NumPy arrays."""

    def __init__(self, capacity: int, obs: int, actions: int) -> None:
        sizes = {"obs": obs, "next_obs": obs, "action": actions}
        self.data = {k: np.zeros((capacity, n), np.float32) for k, n in sizes.items()}
        self.data |= {k: np.zeros(capacity, np.float32) for k in ("reward", "discount")}
        self.capacity, self.added = capacity, 0

    def add(self, **item: Any) -> None:
        """Put one transition in the place of the oldest."""
        for key, value in item.items():
            self.data[key][self.added % self.capacity] = value
        self.added += 1

    def sample(self, size: int, rng: np.random.Generator) -> Batch:
        """Draw a batch uniformly, with replacement."""
        rows = rng.integers(min(self.added, self.capacity), size=size)
        return {key: torch.from_numpy(x[rows]) for key, x in self.data.items()}


def random_batch(size: int, obs: int, actions: int) -> Batch:
    """Return a batch of noise, on which an update alone is timed."""
    return {
        "obs": torch.randn(size, obs),
        "action": torch.rand(size, actions) * 2 - 1,
        "reward": torch.randn(size),
        "next_obs": torch.randn(size, obs),
        "discount": torch.full((size,), 0.99),
    }


def train(
    agent: Agent,
    env: str | gymnasium.Env,
    steps: int,
    learning_starts: int,
    batch_size: int,
    random_steps: int | None = None,
    watch: Callable[[float, bool, Replay], None] | None = None,
) -> float:
    """Train in one Gymnasium environment, a gradient step per step.

    Args:
        agent: The agent.
        env: The environment, or its name.
        steps: Environment steps after the warm-up.
        learning_starts: Environment steps of the warm-up, without learning.
        batch_size: Samples of a gradient step.
        random_steps: Environment steps with random actions; those of the warm-up where
            not given.
        watch: Function that is called after every step with its reward, whether an
            episode ended, and the replay.

    Returns:
        Seconds of the steps after the warm-up.
    """
    env = gymnasium.make(env) if isinstance(env, str) else env
    random_steps = learning_starts if random_steps is None else random_steps
    box: Any = env.action_space
    size = int(np.prod(env.observation_space.shape or ()))
    rng = np.random.default_rng(0)
    replay = Replay(learning_starts + steps, size, len(box.low))
    obs, _ = env.reset(seed=0)
    began = time.perf_counter()
    for step in range(learning_starts + steps):
        if step == learning_starts:
            began = time.perf_counter()
        if step < random_steps:
            action = rng.uniform(-1, 1, box.shape)
        else:
            with torch.no_grad():
                action = agent.act(torch.as_tensor(obs)).numpy()
        scaled = box.low + 0.5 * (action + 1) * (box.high - box.low)
        next_obs, reward, terminated, truncated, _ = env.step(scaled)
        replay.add(
            obs=obs,
            action=action,
            reward=reward,
            next_obs=next_obs,
            discount=0.99 * (1 - terminated),
        )
        is_end = terminated or truncated
        obs = env.reset()[0] if is_end else next_obs
        if watch is not None:
            watch(float(reward), bool(is_end), replay)
        if step >= learning_starts:
            agent.learn(replay.sample(batch_size, rng))
    seconds = time.perf_counter() - began
    env.close()
    return seconds

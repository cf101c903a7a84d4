"""Memories on a task that cannot be solved without one: bsuite's memory chain.

    python experiments/memories.py                  # every agent
    python experiments/memories.py lstm lru         # some of them

An episode shows a bit at its first step, then nothing for `LENGTH` steps, and at the
last one asks for the bit: 1 for the right action and -1 for the wrong one. At that step
the observation is the same for both bits, which are equally likely, so that whatever a
policy without memory does there earns 0 on average; the optimum is 1. All agents see
the same number of steps, with one step size for PPO and one for action values, and each
row is one compiled call of ten seeds. DQN and recurrent DQN have their own defaults
otherwise, which replay the same number of steps for each step of the environment. A row
is printed as soon as it is trained; a table of docs/memories.md has them.
"""

import argparse
import time
from typing import Any

import jax
import numpy as np
from results import hardware

import purerl
from purerl.config import TrainConfig
from purerl.report.statistics import mean_interval

LENGTH, SEEDS, EPISODES = 10, 10, 200
TASK = {
    "env": "MemoryChain-bsuite",
    "env_params": {"memory_length": LENGTH},
    "total_timesteps": 100_000,
    "num_envs": 16,
    "num_steps": 32,
    "num_minibatches": 2,
    "hidden_sizes": (32,),
    "learning_rate": 3e-3,
    "num_evaluations": 10,
    "eval_share": 1.0,
    "eval_episodes": EPISODES,
    "eval_max_steps": LENGTH + 2,
}
MEMORY = {"memory_size": 32, "head_sizes": ()}
VALUES = {"epsilon_end": 0.05, "learning_rate": 1e-3}


def agents() -> dict[str, TrainConfig]:
    """The rows of the table."""
    found: dict[str, TrainConfig] = {"ppo": purerl.PPOConfig(**TASK)}
    for name in ("gru", "lstm", "lru", "s5", "transformer"):
        found[name] = purerl.RecurrentPPOConfig(memory=name, **TASK, **MEMORY)
    values: dict[str, Any] = {**TASK, **VALUES}
    found["pqn"] = purerl.PQNConfig(**values)
    for name in ("gru", "lru"):
        config = purerl.RecurrentPQNConfig(memory=name, **values, **MEMORY)
        found[f"pqn-{name}"] = config
    without = ("num_steps", "num_minibatches")
    replayed = {key: values[key] for key in values if key not in without}
    found["dqn"] = purerl.DQNConfig(**replayed)
    for name in ("gru", "lru"):
        config = purerl.RecurrentDQNConfig(memory=name, **replayed, **MEMORY)
        found[f"dqn-{name}"] = config
    return found


def train(config: TrainConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Train ten seeds; steps `[E]`, scores `[10, E]`, and parameters of an agent."""
    keys = jax.random.split(jax.random.key(0), SEEDS)
    result = jax.jit(jax.vmap(purerl.make_train(config)))(keys)
    scores = np.asarray(result.evaluation["episode_return"]).mean(-1)
    sizes = [x[0].size for x in jax.tree.leaves(result.state.params)]
    steps = np.asarray(result.evaluation["env_steps"])[0]
    return steps, scores, np.array(sum(sizes))


def row(name: str, steps: np.ndarray, scores: np.ndarray, size: int) -> str:
    """A row of the table: the score, its interval, and when all seeds were there."""
    final = scores[:, -1]
    found = mean_interval(final)
    has_spread = found.kind == "interval"
    spread = f"[{found.low:.2f}, {found.high:.2f}]" if has_spread else "no spread"
    # The evaluations after the last one in which some seed was below.
    below = np.flatnonzero(scores.min(0) < 0.99)
    since = int(below[-1]) + 1 if below.size else 0
    when = f"{steps[since]:,}" if since < len(steps) else "-"
    best = int((final >= 0.99).sum())
    cells = [f"`{name}`", f"{size:,}", f"{final.mean():.2f}", spread]
    return " | ".join(["", *cells, f"{best} of {SEEDS}", when, ""]).strip()


def main() -> None:
    """Train the agents that are named, all where none is."""
    known = agents()
    parser = argparse.ArgumentParser(description="Memories on bsuite's memory chain.")
    parser.add_argument("agent", nargs="*", choices=[[], *known], default=[])
    asked = parser.parse_args().agent or list(known)
    print(hardware())
    print("| agent | parameters | evaluation | 95% interval | optimal | steps |")
    print("|---|---|---|---|---|---|")
    for name in asked:
        start = time.perf_counter()
        steps, scores, size = train(known[name])
        print(row(name, steps, scores, int(size)), flush=True)
        print(f"  {time.perf_counter() - start:.0f} s", np.round(scores.mean(0), 2))


if __name__ == "__main__":
    main()

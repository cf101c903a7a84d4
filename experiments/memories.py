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

import time
from typing import Any

import jax
import numpy as np
from frame import Words, hardware, markdown, mean_interval, options

import purerl

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


def agents() -> dict[str, purerl.TrainConfig]:
    """The rows of the table."""
    found: dict[str, purerl.TrainConfig] = {"ppo": purerl.PPOConfig(**TASK)}
    for name in ("gru", "lstm", "lru", "s5", "transformer"):
        found[name] = purerl.RecurrentPPOConfig(memory=name, **TASK, **MEMORY)
    values: dict[str, Any] = {**TASK, **VALUES}
    without = ("num_steps", "num_minibatches")
    replayed = {key: values[key] for key in values if key not in without}
    kinds = {
        "pqn": (purerl.PQNConfig, purerl.RecurrentPQNConfig, values),
        "dqn": (purerl.DQNConfig, purerl.RecurrentDQNConfig, replayed),
    }
    for name, (plain, recurrent, fields) in kinds.items():
        found[name] = plain(**fields)
        for memory in ("gru", "lru"):
            found[f"{name}-{memory}"] = recurrent(memory=memory, **fields, **MEMORY)
    return found


def cells(name: str, config: purerl.TrainConfig) -> list[str]:
    """Train ten seeds; their score and its interval, and when all were there."""
    keys = jax.random.split(jax.random.key(0), SEEDS)
    result = jax.jit(jax.vmap(purerl.make_train(config)))(keys)
    scores = np.asarray(result.evaluation["episode_return"]).mean(-1)  # [seeds, E]
    steps = np.asarray(result.evaluation["env_steps"])[0]
    print("course:", np.round(scores.mean(0), 2))
    size = sum(x[0].size for x in jax.tree.leaves(result.state.params))
    final = scores[:, -1]
    found = mean_interval(final)
    spread = f"[{found.low:.2f}, {found.high:.2f}]"
    # The evaluations after the last one in which some seed was below.
    below = np.flatnonzero(scores.min(0) < 0.99)
    since = int(below[-1]) + 1 if below.size else 0
    return [
        f"`{name}`",
        f"{size:,}",
        f"{final.mean():.2f}",
        spread if found.kind == "interval" else "no spread",
        f"{int((final >= 0.99).sum())} of {SEEDS}",
        f"{steps[since]:,}" if since < len(steps) else "-",
    ]


def main() -> None:
    """Train the agents that are named, all where none is."""
    known = agents()
    asked = options(__doc__, agent=Words(known, "AGENT"))
    print(hardware())
    heads = "agent, parameters, evaluation, 95% interval, optimal, steps".split(", ")
    print("\n".join(markdown(heads, [])))
    for name in asked.agent or known:
        start = time.perf_counter()
        print(markdown(cells(name, known[name]), [])[0], flush=True)
        print(f"  {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()

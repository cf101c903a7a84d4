"""Memory of sweeps: planned beside used, and flat in the number of steps.

python experiments/sweep_memory.py

Each sweep runs in a process of its own. DQN's replay is what needs memory: 32 agents,
in blocks of 8, of 50,000 items; all blocks are held at once (`chunk_blocks=2` on two
workers). PPO: 64 agents in blocks of 32.
"""

import json
import sys
from typing import Any

from frame import child, show, use_cache

import purerl

MIB = 2**20


def measure(algorithm: str, steps: int) -> None:
    """Sweep, and print what the summary says, as JSON."""
    use_cache()
    more: dict[str, Any]
    if algorithm == "dqn":
        config = purerl.DQNConfig(
            total_timesteps=steps, buffer_size=50_000, num_evaluations=2
        )
        seeds, more = 32, {"lanes": 8, "chunk_blocks": 2}
    else:
        config = purerl.PPOConfig(total_timesteps=steps, num_evaluations=2)
        seeds, more = 64, {"lanes": 32, "chunk_blocks": 1}
    result = purerl.sweep(config, seeds=seeds, progress=False, **more)
    print(json.dumps(result.summary))


def main() -> None:
    """Print a row for each sweep."""
    rows = []
    for algorithm, steps in (
        *(("ppo", 100_000), ("ppo", 1_000_000)),
        *(("dqn", 60_000), ("dqn", 600_000)),
    ):
        found = child(__file__, algorithm, steps)
        before, both = found["memory_before"], ("memory_planned", "memory_used")
        sizes = [found[name] for name in both] + [found[name] - before for name in both]
        name = f"{found['members']} {algorithm} x {steps:,}"
        rows.append([name, *(f"{size / MIB:,.1f}" for size in sizes)])
    heads = ["sweep", "planned, MiB", "used, MiB"]
    show("", [*heads, "of it training, planned", "of it training, used"], rows)


if __name__ == "__main__":
    measure(sys.argv[1], int(sys.argv[2])) if sys.argv[1:] else main()

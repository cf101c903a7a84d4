"""Memory of sweeps: planned beside used, and flat in the number of steps.

python experiments/sweep_memory.py

Each sweep runs in a process of its own. DQN's replay is what needs memory: 32 agents,
in blocks of 8, of 50,000 items; all blocks are held at once (`chunk_blocks=2` on two
workers). PPO: 64 agents in blocks of 32.
"""

import json
import subprocess
import sys

CHILD = """
import json, sys
import purerl
from purerl.cli import settings

settings.enable_compile_cache()
algorithm, steps = sys.argv[1], int(sys.argv[2])
if algorithm == "dqn":
    config = purerl.DQNConfig(
        total_timesteps=steps, buffer_size=50_000, num_evaluations=2)
    seeds, options = 32, {"lanes": 8, "chunk_blocks": 2}
else:
    config = purerl.PPOConfig(total_timesteps=steps, num_evaluations=2)
    seeds, options = 64, {"lanes": 32, "chunk_blocks": 1}
result = purerl.sweep(config, seeds=seeds, progress=False, **options)
print(json.dumps(result.summary))
"""
MIB = 2**20


def run(algorithm: str, steps: int) -> dict:
    command = [sys.executable, "-c", CHILD, algorithm, str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    print(f"{'sweep':>22} {'planned':>9} {'used':>9} {'of it training':>32}")
    for algorithm, steps in (
        *(("ppo", 100_000), ("ppo", 1_000_000)),
        *(("dqn", 60_000), ("dqn", 600_000)),
    ):
        found = run(algorithm, steps)
        before = found["memory_before"]
        planned, used = found["memory_planned"], found["memory_used"]
        name = f"{found['members']} {algorithm} x {steps:,}"
        print(
            f"{name:>22} {planned / MIB:>5,.0f} MiB "
            f"{used / MIB:>5,.0f} MiB   planned {(planned - before) / MIB:>6,.1f}, "
            f"used {(used - before) / MIB:>6,.1f} MiB"
        )


if __name__ == "__main__":
    main()

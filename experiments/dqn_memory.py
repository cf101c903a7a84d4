"""The memory that 64 vmapped DQN agents take: what the compiled program says.

    python experiments/dqn_memory.py

One call trains all of them. The replay buffers are the most of it: a transition of
CartPole is two observations of four floats, an action, a reward and two flags.
"""

import resource
import sys
import time
from typing import Any

import jax
import numpy as np

import purerl

AGENTS = 64


def main() -> None:
    """Compile, read the program's memory analysis, train, and print all of it."""
    preset = purerl.presets.load("dqn-cartpole")
    config: Any = preset.replace(total_timesteps=50_000)
    keys = jax.random.split(jax.random.key(0), AGENTS)
    compiled = jax.jit(jax.vmap(purerl.make_train(config))).lower(keys).compile()
    state = jax.eval_shape(purerl.make_algorithm(config).init, keys[0])
    replay, whole = (
        sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
        for tree in (state.buffer, state)
    )
    print(f"{config.buffer_size} transitions of {replay // config.buffer_size} bytes")
    print(f"replay of an agent      {replay / 1e6:8.2f} MB")
    print(f"whole state of an agent {whole / 1e6:8.2f} MB")
    if (analysis := compiled.memory_analysis()) is not None:
        print(
            f"program, {AGENTS} agents: results "
            f"{analysis.output_size_in_bytes / 1e6:.0f} MB, while it runs "
            f"{analysis.temp_size_in_bytes / 1e6:.0f} MB more"
        )
    started = time.perf_counter()
    result = jax.block_until_ready(compiled(keys))
    seconds = time.perf_counter() - started
    returns = np.asarray(result.evaluation["episode_return"])[:, -1].mean()
    steps = AGENTS * config.total_timesteps
    print(
        f"trained in {seconds:.1f} s ({steps / seconds:,.0f} steps/s), mean final "
        f"evaluation {returns:.0f}"
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    scale = 1e-6 if sys.platform == "darwin" else 1e-3  # bytes there, KiB elsewhere
    print(f"largest size of the process {peak * scale:,.0f} MB")


if __name__ == "__main__":
    main()

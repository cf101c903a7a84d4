"""Purerl of one checkout, driven by `speed_at.py` over stdin and stdout.

`serving.py` reads the requests.

    {"do": "prepare", "preset": "ppo-cartpole", "agents": 64, "steps": 100000}
    {"do": "run", "seed": 0} -> seconds of training, results waited for

Only what commit 0dd6977 has already is used of the library.
"""

import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import jax
from serving import clocked, serve

import purerl
from purerl import presets


class Case:
    """Some agents of a preset, compiled as the library compiles them.

    Args:
        preset: Name of the preset.
        agents: Number of agents; one is compiled by itself, more are spread over the
            cores by `purerl.pmap`.
        steps: Environment steps of each agent.
    """

    def __init__(self, preset: str, agents: int, steps: int) -> None:
        config = presets.load(preset).replace(total_timesteps=steps, num_evaluations=0)
        train = purerl.make_train(config)
        self.agents = agents
        if agents > 1:
            self._program: Callable[..., Any] = purerl.pmap(train)
        else:
            options = getattr(purerl, "compiler_options", dict)()
            self._program = jax.jit(train, compiler_options=options)
        start = time.perf_counter()
        self.run(0)
        self.compile_seconds = time.perf_counter() - start

    def run(self, seed: int) -> dict[str, float]:
        """Train, and return the seconds that it took."""
        key = jax.random.key(seed)
        keys = jax.random.split(key, self.agents) if self.agents > 1 else key
        jax.block_until_ready(keys)
        return {**clocked(lambda: self._program(keys))[1], "score": 0.0}


def versions() -> dict[str, str]:
    """Return the versions of what is measured."""
    return {name: version(name) for name in ("jax", "jaxlib")}


if __name__ == "__main__":
    serve(Case, versions)

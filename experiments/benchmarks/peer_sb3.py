"""Stable-Baselines3 and sbx, driven by `off_policy_speed.py` over stdin and stdout.

Runs in the interpreter of `.venv-peers-sb3` (`setup_peers.sh`). One JSON request per
line, one JSON answer per line; between requests the process sleeps.

    {"do": "versions"}
    {"do": "prepare", "library": "sb3", "algorithm": "td3", "steps": 1000,
     "hidden_sizes": [256, 256], "batch_size": 256, "learning_rate": 3e-4}
    {"do": "run", "seed": 0} -> seconds of `steps` environment and gradient steps
"""

import json
import os
import sys
import time
import traceback
from importlib import import_module
from importlib.metadata import version
from typing import Any

import gymnasium

WARM_UP = 300


class Case:
    """One agent on Pendulum-v1, a gradient step per environment step."""

    def __init__(
        self,
        library: str,
        algorithm: str,
        steps: int,
        hidden_sizes: list[int],
        batch_size: int,
        learning_rate: float,
    ) -> None:
        module = {"sb3": "stable_baselines3", "sbx": "sbx"}[library]
        make = getattr(import_module(module), algorithm.upper())
        self.steps = steps
        start = time.perf_counter()
        self.model = make(
            "MlpPolicy",
            gymnasium.make("Pendulum-v1"),
            learning_rate=learning_rate,
            batch_size=batch_size,
            buffer_size=50_000,
            learning_starts=WARM_UP,
            train_freq=1,
            gradient_steps=1,
            policy_kwargs={"net_arch": hidden_sizes},
            seed=0,
        )
        # Past the warm-up and everything that compiles on first use.
        self.model.learn(WARM_UP + 200)
        self.compile_seconds = time.perf_counter() - start

    def run(self, seed: int) -> dict[str, float]:
        """Go on learning; `learn` returns when the last step is done."""
        del seed
        start, cpu_start = time.perf_counter(), time.process_time()
        self.model.learn(self.steps, reset_num_timesteps=False)
        return {
            "seconds": time.perf_counter() - start,
            "cpu_seconds": time.process_time() - cpu_start,
        }


def answer(request: dict[str, Any], cases: list[Case]) -> dict[str, Any]:
    """Do what a line asks; `cases` holds the prepared one."""
    match request.pop("do"):
        case "versions":
            names = ("stable-baselines3", "sbx-rl", "torch", "jax", "gymnasium")
            return {name: version(name) for name in names}
        case "prepare":
            cases[:] = [Case(**request)]
            return {"compile_seconds": cases[0].compile_seconds}
        case "run":
            return cases[0].run(**request)
        case other:
            raise ValueError(f"do must be versions, prepare or run, got {other!r}.")


def main() -> None:
    """Answer line by line until the input ends."""
    # Whatever a library prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    cases: list[Case] = []
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line), cases)
        except Exception:
            reply = {"error": traceback.format_exc()}
        print(json.dumps(reply), file=answers, flush=True)


if __name__ == "__main__":
    main()

"""Stable-Baselines3 and sbx, driven by `off_policy_speed.py` over stdin and stdout.

Runs in the interpreter of `.venv-peers-sb3` (`setup_peers.sh`); `serving.py` reads the
requests.

    {"do": "versions"}
    {"do": "prepare", "library": "sb3", "algorithm": "td3", "steps": 1000,
     "hidden_sizes": [256, 256], "batch_size": 256, "learning_rate": 3e-4}
    {"do": "run", "seed": 0} -> seconds of `steps` environment and gradient steps
"""

import time
from importlib import import_module
from importlib.metadata import version

import gymnasium
from serving import clocked, serve

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
        learn = self.model.learn
        # It returns the model, for which there is nothing to wait.
        work = lambda: learn(self.steps, reset_num_timesteps=False) and None  # noqa: E731
        return clocked(work)[1]


def versions() -> dict[str, str]:
    """Return the versions of what is measured."""
    names = ("stable-baselines3", "sbx-rl", "torch", "jax", "gymnasium")
    return {name: version(name) for name in names}


if __name__ == "__main__":
    serve(Case, versions)

"""Datasets shaped as a sweep's, with learning curves that are made up but plausible."""

import io
import itertools
import json
from typing import Any

import numpy as np
import xarray as xr
from rich.console import Console

from purerl.algorithms.ppo import PPOConfig
from purerl.runner.result import RunResult

AXES: dict[str, list[Any]] = {
    "learning_rate": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2],
    "entropy_coef": [0.0, 0.01, 0.03, 0.1],
    "hidden_sizes": ["64-64", "256-256"],
}
TOP = 500.0


def grid(num_seeds: int = 6, segments: int = 40, seed: int = 0) -> xr.Dataset:
    """5 x 4 x 2 configurations; the best is 1e-3, 0.01, 256-256; 1e-2 may diverge."""
    points = [
        dict(zip(AXES, v, strict=True)) for v in itertools.product(*AXES.values())
    ]
    shape = tuple(len(values) for values in AXES.values())
    arrays = _members(points, num_seeds, segments, seed)
    return _dataset(
        {k: v.reshape(*shape, *v.shape[1:]) for k, v in arrays.items()},
        tuple(AXES),
        {**AXES, "seed": range(num_seeds)},
        "grid",
        list(AXES),
    )


def random(num_points: int = 40, num_seeds: int = 4) -> xr.Dataset:
    """Points drawn at random over the same axes."""
    rng = np.random.default_rng(1)
    points: list[dict[str, Any]] = [
        {
            "learning_rate": float(10 ** rng.uniform(-4, -2)),
            "entropy_coef": float(rng.uniform(0, 0.1)),
            "hidden_sizes": str(rng.choice(AXES["hidden_sizes"])),
        }
        for _ in range(num_points)
    ]
    coords: dict[str, Any] = {
        name: ("point", [point[name] for point in points]) for name in AXES
    }
    coords["seed"] = range(num_seeds)
    arrays = _members(points, num_seeds, 40, 1)
    return _dataset(arrays, ("point",), coords, "random", list(AXES))


def quality(point: dict[str, Any]) -> float:
    """Expected final return, 0 to 1, of a configuration."""
    rate = (np.log10(point["learning_rate"]) + 3) ** 2
    entropy = (point["entropy_coef"] - 0.01) ** 2
    size = 0.05 if point["hidden_sizes"] == "64-64" else 0.0
    return float(np.exp(-0.8 * rate - 150 * entropy) - size)


def _members(
    points: list[dict[str, Any]], num_seeds: int, segments: int, seed: int
) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    num, evaluations, episodes = len(points), 8, 16
    steps = np.linspace(0, 5e5, segments + 1)[1:]
    evaluation_steps = np.linspace(0, 5e5, evaluations)
    shape = (num, num_seeds)
    best = np.array([quality(point) for point in points])[:, None]
    final = TOP * np.clip(best + rng.normal(0, 0.06, shape), 0.02, 1.0)
    speed = rng.uniform(0.8, 1.25, shape) * 1.2e5

    def curve(at: np.ndarray) -> np.ndarray:
        return 15 + (final[..., None] - 15) * (
            1 - np.exp(-((at / speed[..., None]) ** 2))
        )

    returns = curve(steps) + rng.normal(0, 12, (*shape, segments))
    evaluated = curve(evaluation_steps)[..., None]
    evaluated = evaluated + rng.normal(0, 15, (*shape, evaluations, episodes))
    diverged = np.full(shape, -1)
    for p, point in enumerate(points):
        for s in range(num_seeds):
            if point["learning_rate"] > 5e-3 and rng.random() < 0.35:
                stop = int(rng.integers(segments // 4, segments))
                diverged[p, s] = stop * 10
                returns[p, s, stop:] = np.nan
                evaluated[p, s, evaluation_steps > steps[stop]] = np.nan
    return {
        "env_steps": np.broadcast_to(steps, returns.shape).copy(),
        "episode_return": returns,
        "policy_loss": rng.normal(0, 0.01, returns.shape),
        "evaluation_env_steps": np.broadcast_to(
            evaluation_steps, (*shape, evaluations)
        ).copy(),
        "evaluation_return": evaluated,
        "evaluation_length": np.abs(evaluated),
        "diverged_at": diverged,
    }


def _dataset(
    arrays: dict[str, np.ndarray],
    outer: tuple[str, ...],
    coords: dict[str, Any],
    design: str,
    axes: list[str],
) -> xr.Dataset:
    inner = {
        "evaluation_env_steps": ("evaluation",),
        "evaluation_return": ("evaluation", "episode"),
        "evaluation_length": ("evaluation", "episode"),
        "diverged_at": (),
    }
    variables = {
        name: ((*outer, "seed", *inner.get(name, ("segment",))), values)
        for name, values in arrays.items()
    }
    config = {"algorithm": "ppo", "env": "CartPole-v1", "total_timesteps": 500_000}
    attrs = {"config": json.dumps(config), "design": design, "axes": json.dumps(axes)}
    return xr.Dataset(variables, coords, attrs)


def run(agents: int = 3, updates: int = 20, returns: Any = None) -> RunResult:
    """A run of CartPole-v1 with four evaluations; or with given returns and none."""
    rng = np.random.default_rng(3)
    evaluation = {}
    if returns is None:
        curve = 500 / (1 + np.exp(-(np.arange(updates) - 8) / 3))
        returns = curve + rng.normal(0.0, 20.0, (agents, updates))
        shape = (agents, 4, 6)
        evaluation = {
            "env_steps": np.tile(np.arange(1, 5) * 2_500, (agents, 1)),
            "episode_return": returns[:, 4::5, None] + rng.normal(size=shape),
            "episode_length": np.full(shape, 9),
            "cut_episodes": np.zeros(shape[:2], int),
        }
    returns = np.asarray(returns, float)
    steps = np.broadcast_to(np.arange(1, returns.shape[1] + 1) * 500, returns.shape)
    return RunResult(
        config=PPOConfig(env="CartPole-v1"),
        seeds=tuple(range(len(returns))),
        update=returns.shape[1],
        state=None,
        metrics={"env_steps": steps, "episode_return": returns},
        evaluation=evaluation,
        finished=True,
        compile_seconds=1.0,
        train_seconds=2.0,
        train_steps=60_000,
        out=None,
        diverged_at=np.full(len(returns), -1),
    )


def printed(table: Any, width: int = 130) -> str:
    """A table as a terminal has it."""
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(table)
    return console.export_text()

"""Two grids of overrides, each in one call of one compiled program.

    python experiments/grids.py [--steps 100000]

Learning rate x entropy coefficient x 8 seeds, and pole length x 8 seeds, on
CartPole-v1.
Prints the mean final evaluation of every cell with the standard error over seeds.
"""

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import purerl

SEEDS = 8
LEARNING_RATES = (1e-4, 2.5e-4, 1e-3, 4e-3)
ENTROPY_COEFS = (0.0, 0.01, 0.03, 0.1)
LENGTHS = (0.25, 0.5, 1.0, 2.0)


def train_grid(config: purerl.PPOConfig, axes: dict[str, Any]) -> np.ndarray:
    """Final evaluation `[*axes, seeds]` of the whole grid, trained in one call."""
    train = purerl.make_train(config)
    names, values = list(axes), [jnp.asarray(v) for v in axes.values()]
    *grid, seeds = jnp.meshgrid(*values, jnp.arange(SEEDS), indexing="ij")
    overrides = {name: x.ravel() for name, x in zip(names, grid, strict=True)}
    keys = jax.vmap(jax.random.key)(seeds.ravel())
    result = purerl.pmap(train, lanes=8)(keys, overrides)
    final = result.evaluation["episode_return"][:, -1].mean(-1)
    return np.asarray(final).reshape(seeds.shape)


def cell(returns: np.ndarray) -> str:
    """Mean and standard error over seeds."""
    return f"{returns.mean():.0f} ± {returns.std(ddof=1) / len(returns) ** 0.5:.0f}"


def main() -> None:
    """Train both grids and print a table of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    config = purerl.PPOConfig(total_timesteps=parser.parse_args().steps)
    console = Console(highlight=False)

    started = time.perf_counter()
    axes = {"learning_rate": LEARNING_RATES, "entropy_coef": ENTROPY_COEFS}
    returns = train_grid(config, axes)
    table = Table(title="learning rate (rows) x entropy coefficient, 8 seeds each")
    table.add_column("")
    for coef in ENTROPY_COEFS:
        table.add_column(f"{coef:g}", justify="right")
    for rate, row in zip(LEARNING_RATES, returns, strict=True):
        table.add_row(f"{rate:g}", *map(cell, row))
    console.print(table)
    console.print(f"{returns.size} agents, {time.perf_counter() - started:.1f} s")

    started = time.perf_counter()
    returns = train_grid(config, {"env_params.length": LENGTHS})
    table = Table(title="half-length of the pole, m, 8 seeds each")
    for length in LENGTHS:
        table.add_column(f"{length:g}", justify="right")
    table.add_row(*map(cell, returns))
    console.print(table)
    console.print(f"{returns.size} agents, {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()

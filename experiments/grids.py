"""Two grids of overrides, each in one call of one compiled program.

    python experiments/grids.py [--steps 100000]

Learning rate x entropy coefficient x 8 seeds, and pole length x 8 seeds, on
CartPole-v1.
Prints the mean final evaluation of every cell with the standard error over seeds.
"""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from frame import options, show

import purerl

SEEDS = 8
LEARNING_RATES = (1e-4, 2.5e-4, 1e-3, 4e-3)
ENTROPY_COEFS = (0.0, 0.01, 0.03, 0.1)
LENGTHS = (0.25, 0.5, 1.0, 2.0)


def train_grid(config: purerl.PPOConfig, axes: dict[str, Any]) -> np.ndarray:
    """Cells `[*axes]` of the final evaluation in words, trained in one call."""
    began = time.perf_counter()
    train = purerl.make_train(config)
    values = [jnp.asarray(v) for v in axes.values()]
    *grid, seeds = jnp.meshgrid(*values, jnp.arange(SEEDS), indexing="ij")
    overrides = {name: x.ravel() for name, x in zip(axes, grid, strict=True)}
    keys = jax.vmap(jax.random.key)(seeds.ravel())
    result = purerl.pmap(train, lanes=8)(keys, overrides)
    final = np.asarray(result.evaluation["episode_return"][:, -1].mean(-1))
    print(f"{seeds.size} agents, {time.perf_counter() - began:.1f} s")
    return np.apply_along_axis(cell, -1, final.reshape(seeds.shape))


def cell(returns: np.ndarray) -> str:
    """Mean and standard error over seeds."""
    return f"{returns.mean():.0f} ± {returns.std(ddof=1) / len(returns) ** 0.5:.0f}"


def main() -> None:
    """Train both grids and print a table of each."""
    config = purerl.PPOConfig(total_timesteps=options(__doc__, steps=100_000).steps)
    cells = train_grid(
        config, {"learning_rate": LEARNING_RATES, "entropy_coef": ENTROPY_COEFS}
    )
    show(
        f"learning rate (rows) x entropy coefficient, {SEEDS} seeds each",
        ["", *(f"{coef:g}" for coef in ENTROPY_COEFS)],
        [[f"{rate:g}", *row] for rate, row in zip(LEARNING_RATES, cells, strict=True)],
    )
    cells = train_grid(config, {"env_params.length": LENGTHS})
    title = f"half-length of the pole, m, {SEEDS} seeds each"
    show(title, [f"{length:g}" for length in LENGTHS], [list(cells)])


if __name__ == "__main__":
    main()

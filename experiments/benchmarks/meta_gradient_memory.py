"""The memory of a meta-gradient over the updates that it goes through.

    python experiments/benchmarks/meta_gradient_memory.py

Compiles, and runs nothing: what XLA says that the program needs for its intermediate
values, with the insides of updates computed again and without, and beside it the bytes
of state and rollout that every update adds by `kept_bytes`.
"""

from typing import Any

import jax
from bench import print_table

import purerl

UNROLLS = (1, 4, 16)


def temporary(config: purerl.PPOConfig, unroll: int, checkpoint: bool) -> float:
    """Mebibytes of intermediate values of a compiled meta-gradient."""
    meta = purerl.meta_gradient(config, "gamma", unroll=unroll, checkpoint=checkpoint)
    state = jax.eval_shape(purerl.make_algorithm(config).init, jax.random.key(0))
    analysis: Any = jax.jit(meta).lower(state).compile().memory_analysis()
    return analysis.temp_size_in_bytes / 2**20


def main() -> None:
    """Print a row for each number of updates."""
    config = purerl.PPOConfig(env="CartPole-v1", num_evaluations=0)
    meta = purerl.meta_gradient(config, "gamma")
    state = jax.eval_shape(purerl.make_algorithm(config).init, jax.random.key(0))
    kept = meta.kept_bytes(state) / 2**20
    rows = []
    for unroll in UNROLLS:
        again, all_kept = (temporary(config, unroll, c) for c in (True, False))
        sizes = (again, all_kept, unroll * kept)
        rows.append([unroll, *(f"{size:.2f}" for size in sizes)])
    print_table("updates | computed again, MiB | all kept, MiB | kept_bytes, MiB", rows)


if __name__ == "__main__":
    main()

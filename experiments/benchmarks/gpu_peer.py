"""A training run of a peer as a GPU program: one line of JSON for `gpu_program.py`.

    .venv-gpu-peers/bin/python experiments/benchmarks/gpu_peer.py 1024 rejax
    .venv-gpu-peers/bin/python experiments/benchmarks/gpu_peer.py 64 rejax-dqn
    .venv-gpu-peers/bin/python experiments/benchmarks/gpu_peer.py 1024 purejaxrl ppo.py

Runs in an environment of its own (`setup_gpu_program.sh`), in which purerl is not
installed. PureJaxRL is no package: give the path of its `ppo.py`.
"""

import gpu_kernels  # isort: skip  # Before anything computes with jax.

import json
import sys
from pathlib import Path

import jax
import peer_programs


def main() -> None:
    """Compile, and print the numbers."""
    agents, name, *rest = sys.argv[1:]
    train = peer_programs.make(name, *map(Path, rest))
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.PRNGKey(0), int(agents)))
    program = gpu_kernels.compile_for_gpu(jax.vmap(train), keys)
    print(json.dumps(gpu_kernels.numbers(program)))


if __name__ == "__main__":
    main()

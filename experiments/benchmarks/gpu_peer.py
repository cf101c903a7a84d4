"""A training run of a peer as a GPU program: one line of JSON for `gpu_program.py`.

    .venv-gpu-peers/bin/python experiments/benchmarks/gpu_peer.py 1024 REQUEST

With 0 agents it is one without `jax.vmap`. A request is what `peer_rejax.py` prepares.
Runs in an environment of its own (`setup_gpu_program.sh`), in which purerl is not
installed. PureJaxRL is no package: give the path of its `ppo.py`.
"""

import gpu_kernels  # isort: skip  # Before anything computes with jax.

import json
import sys

import jax
import peer_rejax


def main() -> None:
    """Compile, and print the numbers."""
    agents, request = sys.argv[1:]
    train = peer_rejax.train_of(**json.loads(request))
    train, keys = gpu_kernels.side_by_side(train, jax.random.PRNGKey, int(agents))
    program = gpu_kernels.compile_for_gpu(train, keys)
    print(json.dumps(gpu_kernels.numbers(program)))


if __name__ == "__main__":
    main()

"""The PPO of a peer as a GPU program: one line of JSON for `gpu_program.py`.

    .venv-gpu-peers/bin/python experiments/benchmarks/gpu_peer.py 1024 rejax
    .venv-gpu-peers/bin/python experiments/benchmarks/gpu_peer.py 1024 purejaxrl ppo.py

Runs in an environment of its own (`setup_gpu_program.sh`), in which purerl is not
installed. PureJaxRL is no package: give the path of its `ppo.py`.
"""

import gpu_kernels  # isort: skip  # Before anything computes with jax.

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

if not hasattr(jax, "tree_map"):  # gymnax 0.0.9 was written for a jax that had it.
    jax.tree_map = jax.tree.map  # type: ignore[attr-defined]

# Both peers' programs with these numbers; a 64-64 tanh network in both.
PPO = {
    "LR": 2.5e-4,
    "NUM_ENVS": 4,
    "NUM_STEPS": 128,
    "TOTAL_TIMESTEPS": 5e5,
    "UPDATE_EPOCHS": 4,
    "NUM_MINIBATCHES": 4,
    "GAMMA": 0.99,
    "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.2,
    "ENT_COEF": 0.01,
    "VF_COEF": 0.5,
    "MAX_GRAD_NORM": 0.5,
    "ACTIVATION": "tanh",
    "ENV_NAME": "CartPole-v1",
    "ANNEAL_LR": True,
    "DEBUG": False,
}


def rejax() -> Callable[[jax.Array], Any]:
    """Return rejax's training run; its last evaluation is left out."""
    import rejax as peer

    algo = peer.PPO.create(
        env="CartPole-v1",
        agent_kwargs={"hidden_layer_sizes": (64, 64), "activation": "tanh"},
        num_envs=PPO["NUM_ENVS"],
        num_steps=PPO["NUM_STEPS"],
        num_epochs=PPO["UPDATE_EPOCHS"],
        num_minibatches=PPO["NUM_MINIBATCHES"],
        learning_rate=PPO["LR"],
        total_timesteps=int(PPO["TOTAL_TIMESTEPS"]),
        eval_freq=int(PPO["TOTAL_TIMESTEPS"]),
        skip_initial_evaluation=True,
    )
    return algo.replace(eval_callback=lambda algo, state, key: ()).train


def purejaxrl(path: Path) -> Callable[[jax.Array], Any]:
    """Return PureJaxRL's training run."""
    sys.path.insert(0, str(path.parent))
    return runpy.run_path(str(path))["make_train"](dict(PPO))


def main() -> None:
    """Compile, and print the numbers."""
    agents, name, *rest = sys.argv[1:]
    train = rejax() if name == "rejax" else purejaxrl(Path(rest[0]))
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.PRNGKey(0), int(agents)))
    program = gpu_kernels.compile_for_gpu(jax.vmap(train), keys)
    kept = program._asdict()
    loop = kept.pop("loop")
    found = {"kernels": loop.total(), **kept, "loops": gpu_kernels.lines(loop)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()

"""The peers' PPO on CartPole-v1, as functions from a key to a training run.

For scripts that run in an environment of the peers (`setup_peers.sh`,
`setup_gpu_program.sh`), in which purerl is not installed. PureJaxRL is no package: give
the path of its `ppo.py`. Neither run evaluates.
"""

import runpy
import sys
import types
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


def purejaxrl(path: Path, **changes: Any) -> Callable[[jax.Array], Any]:
    """Return PureJaxRL's training run.

    Args:
        path: The path of its `ppo.py`.
        **changes: Numbers in place of those of `PPO`.
    """
    sys.path.insert(0, str(path.parent))
    # Its wrappers import other environments' packages, which CartPole does not need.
    for name in ("brax", "brax.envs", "brax.envs.wrappers", "navix"):
        sys.modules.setdefault(name, types.ModuleType(name))
    training = types.ModuleType("brax.envs.wrappers.training")
    vars(training).update(EpisodeWrapper=object, AutoResetWrapper=object)
    vars(sys.modules["brax"])["envs"] = sys.modules["brax.envs"]
    sys.modules.setdefault(training.__name__, training)
    return runpy.run_path(str(path))["make_train"](PPO | changes)


def make(name: str, *path: Path) -> Callable[[jax.Array], Any]:
    """Return a peer's training run.

    Args:
        name: `rejax` or `purejaxrl`.
        *path: The path of PureJaxRL's `ppo.py`.
    """
    return rejax() if name == "rejax" else purejaxrl(*path)

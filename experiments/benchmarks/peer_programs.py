"""Training runs of the peers, as functions from a key to a result.

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

SHIMMED = not hasattr(jax, "tree_map")
if SHIMMED:  # gymnax 0.0.9 was written for a jax that had it.
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


# Rejax's other algorithms, with the numbers of purerl's presets of the same names.
# DQN, PQN and TD3 have layers of 64 units there, which cannot be changed.
REJAX: dict[str, dict[str, Any]] = {
    "dqn": {
        "env": "CartPole-v1",
        "total_timesteps": 500_000,
        "num_envs": 8,
        "buffer_size": 50_000,
        "fill_buffer": 1_000,
        "batch_size": 128,
        "learning_rate": 5e-4,
    },
    "pqn": {
        "env": "CartPole-v1",
        "total_timesteps": 500_000,
        "num_envs": 32,
        "num_steps": 64,
        "num_epochs": 4,
        "num_minibatches": 16,
        "learning_rate": 3e-4,
    },
    **{
        name: {
            "env": "Pendulum-v1",
            "total_timesteps": 50_000,
            "num_envs": 4,
            "num_epochs": 2,  # Gradient steps per round of all environments.
            "buffer_size": 50_000,
            "fill_buffer": 1_000,
            "batch_size": 128,
            "learning_rate": 1e-3,
        }
        for name in ("td3", "sac")
    },
}
REJAX["sac"]["hidden_layer_sizes"] = (128, 128)


def rejax(name: str, **numbers: Any) -> Any:
    """Return an algorithm of rejax whose last evaluation, of nothing, is its only one.

    Args:
        name: Name of the algorithm there.
        **numbers: Its settings, by rejax's names.
    """
    import rejax as peer

    algo = peer.get_algo(name).create(
        **numbers, eval_freq=numbers["total_timesteps"], skip_initial_evaluation=True
    )
    return algo.replace(eval_callback=lambda algo, state, key: ())


def _older_gru() -> Any:
    """Flax's GRU as it was called when `ppo_rnn.py` was written."""
    import flax.linen as nn

    cell = nn.GRUCell

    class GRUCell(nn.Module):
        @nn.compact
        def __call__(self, carry: jax.Array, inputs: jax.Array) -> Any:
            return cell(features=carry.shape[-1])(carry, inputs)

        @staticmethod
        def initialize_carry(key: jax.Array, batch: tuple[int, ...], size: int) -> Any:
            return cell(features=size).initialize_carry(key, (*batch, size))

    return GRUCell


def purejaxrl(path: Path, **changes: Any) -> Callable[[jax.Array], Any]:
    """Return PureJaxRL's training run.

    Args:
        path: The path of its `ppo.py`, `ppo_rnn.py` or `ppo_continuous_action.py`, of
            which only the last one needs brax.
        **changes: Numbers in place of those of `PPO`.
    """
    if path.name == "ppo_rnn.py":
        import flax.linen as nn

        nn.GRUCell = _older_gru()
    sys.path.insert(0, str(path.parent))
    # Its wrappers import other environments' packages, which CartPole does not need.
    sys.modules.setdefault("navix", types.ModuleType("navix"))
    if path.name != "ppo_continuous_action.py":
        _stand_in_for_brax()
    return runpy.run_path(str(path))["make_train"](PPO | changes)


def _stand_in_for_brax() -> None:
    """Let brax be imported where it is not installed."""
    for name in ("brax", "brax.envs", "brax.envs.wrappers"):
        sys.modules.setdefault(name, types.ModuleType(name))
    training = types.ModuleType("brax.envs.wrappers.training")
    vars(training).update(EpisodeWrapper=object, AutoResetWrapper=object)
    vars(sys.modules["brax"])["envs"] = sys.modules["brax.envs"]
    sys.modules.setdefault(training.__name__, training)

"""The numbers of a PPO config in the words of its peers: all do the same work."""

from pathlib import Path
from typing import Any

# isort: split
import brax_peer

import purerl

FIELDS = (
    "total_timesteps num_envs num_steps num_epochs num_minibatches learning_rate gamma "
    "gae_lambda entropy_coef value_coef max_grad_norm activation"
).split()
# Fields of a config -> PureJaxRL's numbers.
PUREJAXRL = {
    "total_timesteps": "TOTAL_TIMESTEPS",
    "num_envs": "NUM_ENVS",
    "num_steps": "NUM_STEPS",
    "num_epochs": "UPDATE_EPOCHS",
    "num_minibatches": "NUM_MINIBATCHES",
    "learning_rate": "LR",
    "anneal_learning_rate": "ANNEAL_LR",
    "gamma": "GAMMA",
    "gae_lambda": "GAE_LAMBDA",
    "entropy_coef": "ENT_COEF",
    "value_coef": "VF_COEF",
    "max_grad_norm": "MAX_GRAD_NORM",
    "activation": "ACTIVATION",
    "normalize_observations": "NORMALIZE_ENV",
}


def clip_of(config: purerl.PPOConfig) -> float:
    """Return how far the ratio of probabilities may go before it is clipped."""
    loss = config.policy_loss
    assert isinstance(loss, purerl.losses.ClipDrift)
    return float(loss.clip_eps)


def in_whole_updates(config: purerl.PPOConfig) -> Any:
    """Return a config without `auto`, its steps rounded down to whole updates."""
    found = purerl.resolve(config)
    whole = found.total_timesteps // found.steps_per_update * found.steps_per_update
    return found.replace(total_timesteps=whole)


def for_rejax(config: purerl.PPOConfig) -> dict[str, Any]:
    """Return what `peer_rejax.py` makes rejax's PPO of, in purerl's words."""
    return {
        **{name: getattr(config, name) for name in FIELDS},
        "hidden_sizes": list(config.hidden_sizes),
        "clip": clip_of(config),
        "env": config.env,
        "env_kwargs": dict(config.env_kwargs),
        "normalize_observations": config.normalize_observations,
        "normalize_rewards": config.normalize_rewards,
    }


def for_purejaxrl(config: purerl.PPOConfig, path: Path) -> dict[str, Any]:
    """Return PureJaxRL's file and its numbers; layers are its own.

    Args:
        config: The config.
        path: The path of its `ppo.py`, beside which its other files are.
    """
    suite, _, name = config.env.rpartition("/")
    if suite == "brax":  # Its backend is `positional`.
        path = path.with_name("ppo_continuous_action.py")
    numbers = {theirs: getattr(config, ours) for ours, theirs in PUREJAXRL.items()}
    own = {"path": str(path), "ENV_NAME": name, "CLIP_EPS": clip_of(config)}
    return own | numbers


def for_brax(config: purerl.PPOConfig) -> dict[str, Any]:
    """Return the arguments of brax's own PPO; sizes and activation are its network's.

    A minibatch there is of sequences, each of the steps of a rollout.
    """
    return {
        **{theirs: getattr(config, ours) for ours, theirs in brax_peer.PPO.items()},
        "unroll_length": config.num_steps,
        "batch_size": config.num_envs // config.num_minibatches,
        "gae_lambda": config.gae_lambda,
        "clipping_epsilon": clip_of(config),
        "max_grad_norm": config.max_grad_norm,
        "vf_loss_coefficient": config.value_coef,
        "normalize_observations": config.normalize_observations,
        "episode_length": 1_000,
    }

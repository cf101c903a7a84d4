"""What other libraries call the fields of a config: for a guess at what was meant."""

import difflib
from collections.abc import Iterable

# Names by Stable-Baselines3, CleanRL, PureJaxRL, Brax, Spinning Up and RLlib, for a
# field of ours. Where a name stands for several, it is the first that there is.
_ENTROPY = "ent_coef ent_coeff entropy_cost"
_RATIO = "clip_range clip_epsilon clip_coef clip_ratio clip_param clipping_epsilon"
_LAMBDA = "lam lambda lambda_ gae_lam gae_lambda"
_BATCH = "batch_size minibatch_size"
PEERS = {
    "actor_learning_rate": "actor_lr pi_lr policy_lr",
    "critic_learning_rate": "critic_lr q_lr vf_lr",
    "learning_rate": "lr step_size actor_lr pi_lr policy_lr",
    "anneal_learning_rate": "anneal_lr",
    "clip_eps": f"{_RATIO} eps_clip",
    "policy_loss.clip_eps": f"{_RATIO} eps_clip clip_eps",
    "entropy_coef": _ENTROPY,
    "temperature_init": _ENTROPY,
    "value_coef": "vf_coef vf_coeff vf_loss_coeff value_loss_coef",
    "normalize_advantages": "norm_adv",
    "max_grad_norm": "clip_grad_norm grad_clip",
    "gamma": "discount discounting discount_factor",
    "gae_lambda": _LAMBDA,
    "trace_decay": _LAMBDA,
    "total_timesteps": "num_timesteps total_steps num_env_steps",
    "num_envs": "n_envs",
    "n_step": "n_steps",
    "num_steps": "n_steps rollout_length unroll_length",
    "num_epochs": "n_epochs update_epochs ppo_epochs",
    "batch_size": _BATCH,
    "num_minibatches": "n_minibatches",
    "num_minibatches = num_envs * num_steps / batch_size": _BATCH,
    "tau": "soft_tau target_tau",
    "tau = 1 - polyak": "polyak",
    "target_update_interval": "target_network_frequency target_update_freq",
    "buffer_size": "replay_size buffer_capacity",
    "learning_starts": "start_steps warmup_steps",
    "epsilon_start": "exploration_initial_eps start_e",
    "epsilon_end": "exploration_final_eps end_e",
    "epsilon_fraction": "exploration_fraction",
    "hidden_sizes": "net_arch hidden_dims",
    "env": "env_id env_name",
}


def near(name: str, known: Iterable[str]) -> str:
    """Return what was meant by a name that is not among the known ones, or nothing.

    A name of another library's is looked up, and any other compared by its letters.

    Args:
        name: Name that was given, in capitals too.
        known: Names that there are.
    """
    known, name = list(known), name.lower().replace("-", "_")
    if name in known:
        return name
    meant = [ours for ours, theirs in PEERS.items() if name in theirs.split()]
    if meant:  # Where there is none of these, what is spelt like it is something else.
        there = [ours for ours in meant if ours.split(" ")[0].split(".")[0] in known]
        return there[0] if there else ""
    return next(iter(difflib.get_close_matches(name, known, n=1)), "")

"""The contenders of `speed.py` in its own interpreter."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from bench import Measure, alternate, number, rates, spread, train

import purerl
from purerl import envs
from purerl.acting.evaluate import evaluate

EVAL_EPISODES = 16

# One PPO for both libraries: CleanRL's CartPole row, without what rejax cannot do
# (annealing the step size). Both take whole updates of 4 x 128 steps.
PPO: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 128,
    "num_epochs": 4,
    "num_minibatches": 4,
    "hidden_sizes": [64, 64],
    "activation": "tanh",
    "learning_rate": 2.5e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "entropy_coef": 0.01,
    "value_coef": 0.5,
    "max_grad_norm": 0.5,
    "clip": 0.2,
}


def ppo_numbers(timesteps: float) -> dict[str, Any]:
    """The PPO above with `timesteps` rounded down to whole updates."""
    update = PPO["num_envs"] * PPO["num_steps"]
    return PPO | {"total_timesteps": int(timesteps) // update * update}


def ppo_config(timesteps: float) -> purerl.PPOConfig:
    """The same as purerl's config, without evaluation."""
    numbers = ppo_numbers(timesteps)
    clip = numbers.pop("clip")
    return purerl.PPOConfig(
        **numbers,
        policy_loss=purerl.losses.ClipDrift(clip),
        value_loss=purerl.losses.ClippedSquaredError(clip),
        anneal_learning_rate=False,
        num_evaluations=0,
    )


def train_ppo(
    config: purerl.PPOConfig, agents: int | None = None, lanes: int | None = None
) -> tuple[Measure, float]:
    """Train and score: the mean return of the deterministic policies; see `train`."""
    env = envs.make("CartPole-v1")

    def score(state: Any) -> jax.Array:
        result = evaluate(
            env,
            env.default_params,
            purerl.make_policy(config, state),
            jax.random.key(7),
            num_episodes=EVAL_EPISODES,
            max_steps=500,
        )
        return result[0].mean()

    scores = jax.jit(score if agents is None else jax.vmap(score))
    return train(config, agents, lanes, lambda found: float(scores(found.state).mean()))


def purejaxrl_program(path: Path, timesteps: int) -> dict[str, Any]:
    """Return what `peer_rejax.py` is asked for: PureJaxRL's PPO with our numbers.

    Args:
        path: The path of its `ppo.py`.
        timesteps: Environment steps of an agent.
    """
    return {"path": str(path), "TOTAL_TIMESTEPS": timesteps, "ANNEAL_LR": False}


def fastest_lanes(
    config: purerl.PPOConfig, agents: int, widths: Sequence[int], rounds: int
) -> tuple[int, Measure]:
    """Try widths of `purerl.pmap` alternately, print them, and keep the fastest."""
    built = {width: train_ppo(config, agents, width)[0] for width in widths}
    if len(widths) == 1:
        return widths[0], built[widths[0]]
    tried = alternate({str(w): built[w] for w in widths}, rounds)
    work = agents * config.total_timesteps
    middle = {w: spread(rates(tried[str(w)], work)).median for w in widths}
    print(f"Lanes of purerl.pmap, {agents} agents, median of {rounds}:")
    for width, rate in middle.items():
        print(f"  W = {width:3d}   {number(rate, 'steps/s'):>6} steps/s")
    best = max(middle, key=lambda width: middle[width])
    print(f"  taken: W = {best}\n", flush=True)
    return best, built[best]

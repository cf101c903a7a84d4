"""The contenders of `speed.py` in its own interpreter."""

from collections.abc import Sequence
from typing import Any

import jax
from bench import Measure, alternate, number, rates, spread, train
from same_numbers import in_whole_updates

import purerl
from purerl.train import bind, evaluate_afresh

EVAL_EPISODES = 16


def ppo_config(timesteps: float) -> purerl.PPOConfig:
    """CleanRL's PPO on CartPole-v1, without what rejax cannot do: annealing.

    Those are PPO's defaults; `timesteps` is rounded down to whole updates, which all
    libraries take.
    """
    return in_whole_updates(
        purerl.PPOConfig(
            total_timesteps=int(timesteps),
            anneal_learning_rate=False,
            num_evaluations=0,
        )
    )


def train_ppo(
    config: purerl.PPOConfig, agents: int | None = None, lanes: int | None = None
) -> tuple[Measure, float]:
    """Train and score: the mean return of the deterministic policies; see `train`."""
    bound, key = bind(config), jax.random.key(7)

    def score(state: Any) -> jax.Array:
        played = evaluate_afresh(bound, bound.config, state, key, EVAL_EPISODES)
        return played.episode_return.mean()

    scores = jax.jit(score if agents is None else jax.vmap(score))
    return train(config, agents, lanes, lambda found: float(scores(found.state).mean()))


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

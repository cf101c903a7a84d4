"""PPO on brax's own tasks, by purerl and by brax, with brax's numbers for them."""

import sys
import time
from pathlib import Path
from typing import Any

import jax
from gpu_parts import Day, contend
from off_policy_speed import train
from report import Measure, Run

import purerl

sys.path.append(str(Path(__file__).resolve().parents[1]))

from brax_peer import HALFCHEETAH, patch_jax

BACKEND = "positional"
# brax's training notebook (google/brax, notebooks/training.ipynb, PPO).
NUMBERS: dict[str, dict[str, Any]] = {
    "ant": {
        "num_envs": 4_096,
        "batch_size": 2_048,
        "unroll_length": 5,
        "num_minibatches": 32,
        "num_updates_per_batch": 4,
        "discounting": 0.97,
        "learning_rate": 3e-4,
        "entropy_cost": 1e-2,
        "reward_scaling": 10.0,
    },
    "halfcheetah": HALFCHEETAH,
}
STEPS = 50_000_000
# A task without contacts, so that a CPU compiles it in seconds.
TOY_TASK = "inverted_pendulum"
TOY = {"num_envs": 8, "batch_size": 4, "unroll_length": 4, "num_minibatches": 2}


def numbers_of(day: Day, task: str) -> tuple[str, dict[str, Any], int]:
    """Return the environment, brax's numbers, and environment steps."""
    if day.is_toy:
        return TOY_TASK, NUMBERS[task] | TOY, 2 * 4 * 4 * 2
    return task, NUMBERS[task], STEPS


def config_of(name: str, numbers: dict[str, Any], steps: int) -> purerl.PPOConfig:
    """The same work as brax's: as many samples an update, minibatches and epochs.

    brax collects an update's samples in several short unrolls; here they are one.
    """
    samples = (
        numbers["batch_size"] * numbers["unroll_length"] * numbers["num_minibatches"]
    )
    return purerl.PPOConfig(
        env=f"brax/{name}",
        env_kwargs={"backend": BACKEND},
        total_timesteps=max(steps, samples),
        num_envs=numbers["num_envs"],
        num_steps=samples // numbers["num_envs"],
        num_epochs=numbers["num_updates_per_batch"],
        num_minibatches=numbers["num_minibatches"],
        gamma=numbers["discounting"],
        learning_rate=numbers["learning_rate"],
        entropy_coef=numbers["entropy_cost"],
        anneal_learning_rate=False,
        hidden_sizes=(256, 256),
        normalize_observations=True,
        normalize_rewards=True,
        reset_scheme="pool",
        reset_pool_size=min(128, numbers["num_envs"]),
        num_evaluations=0,
    )


def measure_purerl(day: Day, task: str) -> None:
    """The PPO of purerl."""
    name, numbers, steps = numbers_of(day, task)
    config = config_of(name, numbers, steps)
    row = {"what": f"PPO, brax {name}", "who": "purerl", "agents": 1}
    row["env_steps"] = config.total_timesteps
    contend(day, row, lambda: train(config, 1, 1))


def measure_brax(day: Day, task: str) -> None:
    """The PPO of brax; what it reports of the half of its run that compiles nothing."""
    name, numbers, steps = numbers_of(day, task)
    row = {"what": f"PPO, brax {name}", "who": "brax", "agents": 1, "env_steps": steps}
    # Every run compiles anew, which is most of a toy's time.
    rounds = 1 if day.is_toy else 2
    contend(day, row, lambda: prepare_brax(name, numbers, steps), rounds)


def prepare_brax(
    name: str, numbers: dict[str, Any], steps: int
) -> tuple[Measure, float]:
    """Return what to time; brax compiles anew in every call."""
    patch_jax()
    import brax.envs
    from brax.training.agents.ppo.train import train

    def measure(seed: int) -> Run:
        seen: list[dict[str, Any]] = []
        began = time.perf_counter()
        train(
            environment=brax.envs.get_environment(name, backend=BACKEND),
            num_timesteps=steps,
            episode_length=1_000,
            normalize_observations=True,
            num_evals=3,  # Before the first step, half-way and at the end.
            num_eval_envs=min(128, numbers["num_envs"]),
            seed=seed,
            progress_fn=lambda _, metrics: seen.append(jax.device_get(metrics)),
            **numbers,
        )
        whole = time.perf_counter() - began
        rate = float(seen[-1]["training/sps"])
        print(f"  brax: {whole:.1f} s with compilation and evaluations", flush=True)
        # As if the whole run had gone at the rate of its second half.
        return Run(steps / rate, float(seen[-1]["eval/episode_reward"]))

    return measure, float("nan")

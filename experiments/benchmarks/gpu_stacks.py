"""Parts of `gpu_day.py`: PPO with the numbers of a preset, by purerl and its peers."""

import queue
import threading
import time
from functools import partial
from typing import Any

from bench import Measure, Run
from gpu_parts import Day, about, contend, contend_peer, contend_purejaxrl, trained
from same_numbers import for_brax, for_purejaxrl, for_rejax

import purerl
from purerl import presets

# isort: split
import brax_peer

EPOCHS = 1_000  # Of brax's training, more than are ever measured.
# Next to nothing, on environments without physics.
TOY: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 8,
    "num_epochs": 1,
    "num_minibatches": 2,
    "total_timesteps": 64,
}


def config_of(preset: str, changes: dict[str, Any], is_toy: bool = False) -> Any:
    """Return a preset with other numbers, all of which its peers can have, too."""
    config: Any = presets.load(preset).replace(
        **changes, num_evaluations=0, anneal_learning_rate=False
    )
    if is_toy:
        suite = config.env.partition("/")[0]
        env = "brax/fast" if suite == "brax" else config.env
        config = config.replace(**TOY, env=env)
        if config.reset_scheme == "pool":
            config = config.replace(reset_pool_size=4)
    per_update = config.num_envs * config.num_steps
    whole = config.total_timesteps // per_update * per_update
    return purerl.resolve(config.replace(total_timesteps=whole))


def measure_preset(day: Day, agents: int, preset: str, changes: dict[str, Any]) -> None:
    """PPO by the three stacks with the same numbers, no evaluations.

    Args:
        day: What the part was given.
        agents: Number of agents.
        preset: The preset.
        changes: Numbers in place of those of the preset.
    """
    config = config_of(preset, changes, day.is_toy)
    envs = f"{config.num_envs:,} environments"
    row = about(f"PPO, {config.env}, {envs}", "purerl", agents, config)
    contend(day, row, lambda: trained(config, agents))
    contend_peer(day, row | {"who": "rejax 0.1.3"}, ppo=for_rejax(config))
    contend_purejaxrl(day, row, partial(for_purejaxrl, config))


def measure_brax(day: Day, steps: int) -> None:
    """The preset of PPO on brax, beside brax's own PPO with the same numbers."""
    config = config_of("ppo-brax", {"total_timesteps": steps}, day.is_toy)
    row = about(f"PPO, {config.env}", "purerl", 1, config)
    contend(day, row, lambda: trained(config, 1))
    contend(day, row | {"who": "brax's own PPO"}, lambda: brax_program(config))


def brax_program(config: Any) -> tuple[Measure, float]:
    """Begin brax's training; return what lets it go on for the steps of the config.

    It compiles its program anew in every call, so it is called once, and pauses after
    every part. It ends with this process.
    """
    ended: queue.Queue[Exception | None] = queue.Queue()
    turn = threading.Semaphore(0)

    def pause(step: int, *_: Any) -> None:
        if step:  # It also reports before the first one.
            ended.put(None)
            turn.acquire()

    def learn() -> None:
        try:
            train_brax(config, pause)
        except Exception as error:
            ended.put(error)

    def wait() -> float:
        began = time.perf_counter()
        if error := ended.get():
            raise error
        return time.perf_counter() - began

    def measure(seed: int) -> Run:
        del seed
        turn.release()
        return Run(wait())

    threading.Thread(target=learn, daemon=True).start()
    first = wait()
    return measure, max(0.0, first - measure(0).seconds)


def train_brax(config: Any, pause: Any) -> None:
    """Train by brax with the numbers of a config.

    Args:
        config: The config.
        pause: A function of the steps so far and more, called every so many steps.
    """
    import flax.linen as nn
    from brax.training.agents.ppo.networks import make_ppo_networks

    sizes = tuple(config.hidden_sizes)
    networks = partial(
        make_ppo_networks,
        policy_hidden_layer_sizes=sizes,
        value_hidden_layer_sizes=sizes,
        activation=getattr(nn, config.activation),
    )
    brax_peer.train(
        (config.env.rpartition("/")[2], config.env_kwargs["backend"]),
        **for_brax(config),
        network_factory=networks,
        num_timesteps=config.total_timesteps * EPOCHS,
        num_evals=EPOCHS + 1,
        run_evals=False,
        policy_params_fn=pause,
    )

"""PPO on CartPole as it is, and with one of its ways to spare kernels switched off."""

from typing import Any
from unittest.mock import patch

from contenders import ppo_config
from gpu_options import prepare
from gpu_parts import Day, contend

from purerl.accelerator import packing
from purerl.networks import layers

# What is replaced, and by what: a step may be fused with what writes it again, and the
# product of few acting rows is a product again.
SWITCHES: dict[str, tuple[Any, str, Any]] = {
    "barrier": (packing, "computed_once", lambda tree, axes: tree),
    "sums": (layers, "MOST_ACTING_AGENTS", 0),
}


def measure_without(day: Day, name: str, words: str) -> None:
    """Train one agent and many, both ways in one process.

    Args:
        day: What the part was given.
        name: One of `SWITCHES`.
        words: What is switched off.
    """
    config = ppo_config(1_024 if day.is_toy else 500_000)
    for agents in (1,) if day.is_toy else (1, 64, 1_024):
        row: dict[str, Any] = {"who": "purerl", "agents": agents}
        row["env_steps"] = agents * config.total_timesteps
        what = "PPO, CartPole-v1"
        contend(
            day,
            row | {"what": f"{what}: as it is, beside {name}"},
            lambda agents=agents: prepare(config, agents, {}),
        )
        with patch.object(*SWITCHES[name]):
            contend(
                day,
                row | {"what": f"{what}: without {words}"},
                lambda agents=agents: prepare(config, agents, {}),
            )

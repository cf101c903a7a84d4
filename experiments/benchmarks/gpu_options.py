"""PPO on CartPole with options of XLA's that decide how a GPU's kernels are launched.

XLA captures kernels as a CUDA graph ("command buffer") where it sees fit. By default it
leaves loops out, so that the host starts every turn; with `WHILE` a loop may be a part
of a graph, and turns without the host.
"""

import math
import time
from typing import Any

import jax
from contenders import ppo_config, timed
from gpu_parts import Day, contend
from report import Measure, Run

import purerl

KINDS = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION"
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "no-graphs": {"xla_gpu_enable_command_buffer": ""},
    "small-graphs": {
        "xla_gpu_enable_command_buffer": KINDS,
        "xla_gpu_graph_min_graph_size": 2,
    },
    "loops": {
        "xla_gpu_enable_command_buffer": f"{KINDS},WHILE,CONDITIONAL",
        "xla_gpu_graph_min_graph_size": 2,
    },
    "double-buffer": {"xla_gpu_enable_while_loop_double_buffering": True},
}


def measure_options(day: Day, name: str, words: str) -> None:
    """Train one agent and many with a set of options.

    Args:
        day: What the part was given.
        name: One of `OPTIONS`.
        words: What they are.
    """
    config = ppo_config(1_024 if day.is_toy else 500_000)
    for agents in (1,) if day.is_toy else (1, 64):
        row: dict[str, Any] = {"what": f"PPO, CartPole-v1: {words}"}
        row |= {"who": "purerl", "agents": agents, "options": OPTIONS[name]}
        row["env_steps"] = agents * config.total_timesteps
        contend(day, row, lambda agents=agents: prepare(config, agents, OPTIONS[name]))


def prepare(
    config: purerl.PPOConfig, agents: int, options: dict[str, Any]
) -> tuple[Measure, float]:
    """Compile agents side by side with options; return what to time, and the seconds.

    Args:
        config: The settings.
        agents: How many.
        options: Options of XLA.
    """
    began = time.perf_counter()
    keys = jax.random.split(jax.random.key(0), agents)
    lowered = jax.jit(jax.vmap(purerl.make_train(config))).lower(keys)
    program = lowered.compile(compiler_options=options)
    compiled = time.perf_counter() - began

    def measure(seed: int) -> Run:
        keys = jax.block_until_ready(jax.random.split(jax.random.key(seed), agents))
        _, seconds, cpu_seconds = timed(lambda: program(keys))
        return Run(seconds, math.nan, cpu_seconds)

    return measure, compiled

"""The parts of `gpu_day.py`: a function for each, which adds rows as it goes.

A row is a dictionary of plain values. Rows that have `seconds` (one number per timed
run) and `env_steps` stand in the table of speeds. What fails becomes a row with an
`error`, and the rest of the part goes on.
"""

import argparse
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import yaml
from contenders import (
    ppo_config,
    ppo_numbers,
    purejaxrl_program,
    train_many,
    train_one,
)
from off_policy_speed import DQN, actor_critic, dqn_numbers, train
from peer import run_peer
from report import Measure, Run

import purerl
from purerl import presets
from purerl.atomic import write_atomic
from purerl.contrib.hardware.device import load_device
from purerl.contrib.hardware.estimate import RESERVED, estimate
from purerl.contrib.hardware.kernels import read
from purerl.execution.programs import segment_length
from purerl.train import bind

LONG = 15.0  # Seconds; of a run as long as that, warming up is no part to speak of.
Prepare = Callable[[], tuple[Measure, float]]


class Day(NamedTuple):
    """The arguments that a part is given.

    Attributes:
        is_toy: Whether to measure next to nothing, which a CPU can do.
        folder: A folder for files of this part alone.
        peers: Interpreter of the environment of `setup_peers.sh`.
        purejaxrl: Path of PureJaxRL's `ppo.py`, if there is one.
        deadline: The reading of `time.monotonic` at which the part is stopped.
        add: A function that keeps a row.
        rounds: Timed runs of each contender, of which the first one warms up; with 0
            its program is compiled, and there is no row.
    """

    is_toy: bool
    folder: Path
    peers: Path
    purejaxrl: Path | None
    deadline: float
    add: Callable[[dict[str, Any]], None]
    rounds: int

    def seconds_left(self) -> float:
        """Return the seconds until this part is stopped."""
        return self.deadline - time.monotonic()


def contend(
    day: Day, row: dict[str, Any], prepare: Prepare, rounds: int | None = None
) -> None:
    """Prepare a contender, run it some times, and add its row, or why there is none.

    Args:
        day: What the part was given.
        row: What the row says before anything is measured.
        prepare: A function that returns what to time, and the seconds of compilation.
        rounds: Timed runs at the most; the day's where not given.
    """
    try:
        measure, compile_seconds = prepare()
        runs: list[Run] = []
        taken = (
            0.0  # By the clock: a run may compile and evaluate beside what it times.
        )
        if day.rounds == 0:
            return
        for seed in range(min(rounds or day.rounds, day.rounds)):
            if runs and (taken > LONG or day.seconds_left() < 2 * taken):
                break
            began = time.monotonic()
            runs.append(measure(seed))
            taken = time.monotonic() - began
    except Exception as error:  # A peer without its environment, or without memory.
        day.add(row | {"error": f"{type(error).__name__}: {str(error)[-1500:]}"})
        return
    day.add(
        row
        | {
            "compile_seconds": _known(compile_seconds) if not is_prepared() else None,
            "seconds": [run.seconds for run in runs],
            "score": _known(runs[-1].score),
        }
    )


def is_prepared() -> bool:
    """Return whether programs come from a cache, and compile seconds mean nothing."""
    return "JAX_COMPILATION_CACHE_DIR" in os.environ


def _known(number: float) -> float | None:
    """The number, or None where there is none: JSON has no NaN."""
    return None if math.isnan(number) else number


def measure_ppo(day: Day, agents: int) -> None:
    """PPO on CartPole-v1, the three programs with the same numbers, no evaluations."""
    steps = 1_024 if day.is_toy else 500_000
    agents = min(agents, 2) if day.is_toy else agents
    config, numbers = ppo_config(steps), ppo_numbers(steps)
    total = agents * config.total_timesteps
    row = {"what": "PPO, CartPole-v1", "agents": agents, "env_steps": total}

    def ours() -> tuple[Measure, float]:
        return train_one(config) if agents == 1 else train_many(config, agents, None)

    contend(day, row | {"who": "purerl"}, ours)
    with run_peer(day.peers) as prepare:
        contend(
            day,
            row | {"who": "rejax 0.1.3"},
            lambda: prepare(agents=agents, devices=1, ppo=numbers),
        )
    if day.purejaxrl is None:
        day.add(row | {"who": "PureJaxRL", "error": "give its ppo.py: --purejaxrl"})
        return
    program = purejaxrl_program(day.purejaxrl, config.total_timesteps)
    with run_peer(day.peers) as prepare:
        contend(
            day,
            row | {"who": "PureJaxRL"},
            lambda: prepare(agents=agents, devices=1, purejaxrl=program),
        )


def measure_minatar(day: Day) -> None:
    """Ten million steps of MinAtar's Space Invaders, PureJaxRL's settings."""
    config = presets.load("ppo-minatar").replace(num_evaluations=0)
    if day.is_toy:
        config = config.replace(total_timesteps=2 * 4 * 16, num_envs=4, num_steps=16)
    for agents in (1, 2) if day.is_toy else (1, 16):
        row = {"what": "PPO, Space Invaders (MinAtar)", "who": "purerl"}
        row |= {"agents": agents, "env_steps": agents * config.total_timesteps}
        contend(day, row, lambda agents=agents: train(config, agents, agents))


def measure_off_policy(day: Day, name: str) -> None:
    """DQN beside rejax's; TD3 and SAC with a gradient step per step."""
    if name == "dqn":
        config: Any = DQN.replace(total_timesteps=600) if day.is_toy else DQN
        what = "DQN, CartPole-v1"
    else:
        steps, warm_up = (8, 300) if day.is_toy else (20_000, 1_000)
        config = actor_critic(name, steps, warm_up)
        what = f"{name.upper()}, Pendulum-v1"
        if day.is_toy:
            config = config.replace(hidden_sizes=(8,), batch_size=8)
    for agents in (1,) if day.is_toy else (1, 64):
        row: dict[str, Any] = {"what": what, "agents": agents}
        row["env_steps"] = agents * config.total_timesteps
        contend(
            day,
            row | {"who": "purerl"},
            lambda agents=agents: train(config, agents, agents),
        )
        if name == "dqn":
            with run_peer(day.peers) as prepare:
                contend(
                    day,
                    row | {"who": "rejax 0.1.3"},
                    lambda agents=agents, prepare=prepare: prepare(
                        agents=agents, devices=1, dqn=dqn_numbers(config)
                    ),
                )


def measure_evolution(day: Day) -> None:
    """A generation of 512 agents whose value loss is evolved, and plain training."""
    import evolve_speed

    asked = argparse.Namespace(agents=512, steps=500_000, lanes=None, chunk=1, rounds=9)
    if day.is_toy:
        asked.agents, asked.steps = 4, 512
    evolution = evolve_speed.make_evolution(asked)
    began = time.perf_counter()
    state, _ = evolution.open()
    evolution.compile()
    compiled = time.perf_counter() - began
    plain = evolve_speed.plain_training(evolution)

    def generation(_: int) -> Run:
        nonlocal state
        begin = time.perf_counter()
        state = evolution.generation(state, evolve_speed.Quiet(), lambda: False)
        return Run(time.perf_counter() - begin)

    def training(number: int) -> Run:
        return Run(evolve_speed.timed(lambda: plain(number)).wall)

    setup = evolution.setup
    row = {"agents": setup.runs, "env_steps": setup.steps, "who": "purerl"}
    row["lanes"] = evolution.training.lanes
    name = "a generation of an evolution"
    contend(day, row | {"what": name}, lambda: (generation, compiled))
    contend(day, row | {"what": f"{name}: training alone"}, lambda: (training, 0.0))


class Counted(NamedTuple):
    """A compiled training run.

    Attributes:
        program: What is called with keys.
        keys: Its argument.
        kernels: Kernels in its text; a loop of unknown length counts as run once, and
            of a branch the larger side.
        compile_seconds: Seconds of tracing and compiling.
    """

    program: Any
    keys: jax.Array
    kernels: int
    compile_seconds: float


def compile_and_count(config: Any, agents: int) -> Counted:
    """Compile agents side by side for this device, and read the program's text."""
    keys = jax.random.split(jax.random.key(0), agents)
    began = time.perf_counter()
    program = jax.jit(jax.vmap(purerl.make_train(config))).lower(keys).compile()
    seconds, text = time.perf_counter() - began, program.as_text()
    assert text is not None
    return Counted(program, keys, read(text).total(), seconds)


# Preset -> agents: few, so that kernels wait for one another and not for arithmetic.
COUNTED = {
    "ppo-cartpole": (1, 64, 1_024),
    "dqn-cartpole": (1, 64),
    "td3-pendulum": (64,),
    "sac-pendulum": (64,),
}


def measure_kernels(day: Day, name: str) -> None:
    """Kernels that the program's text has, and the time that each one took.

    Args:
        day: What the part was given.
        name: A preset.
    """
    name, numbers = ("vpg-cartpole", (1,)) if day.is_toy else (name, COUNTED[name])
    for agents in numbers:
        if day.seconds_left() < 60 and not day.is_toy:
            day.add({"what": name, "agents": agents, "error": "no time was left"})
            continue
        _measure_kernels(day, name, agents)


def _measure_kernels(day: Day, name: str, agents: int) -> None:
    config = presets.load(name).replace(num_evaluations=0)
    if day.is_toy:
        config = config.replace(total_timesteps=2_048)
    found = compile_and_count(config, agents)

    def measure(_: int) -> Run:
        begin = time.perf_counter()
        jax.block_until_ready(found.program(found.keys))
        return Run(time.perf_counter() - begin)

    row = {"what": name, "who": "purerl", "agents": agents, "kernels": found.kernels}
    try:
        row |= {"predicted_seconds": predicted(config, agents, found.kernels)}
    except purerl.ConfigError as error:  # Too wide for the described device.
        day.add({"what": name, "agents": agents, "error": str(error)})
    row |= {"env_steps": agents * config.total_timesteps}
    contend(day, row, lambda: (measure, found.compile_seconds))


def predicted(config: Any, agents: int, kernels: int) -> float:
    """Return the seconds that `purerl plan --device h200` says of these kernels."""
    bound = bind(config)
    length = segment_length(bound, None)
    device = load_device("h200")
    found = estimate(bound, agents, length, device, lanes=agents, is_compiled=False)
    return found._replace(kernels=kernels).seconds


def measure_device(day: Day) -> None:
    """The device itself: dependent kernels, bytes and arithmetic per second.

    Writes `device.yaml`, which `purerl plan --device` reads, into the part's folder.
    """
    if day.rounds == 0:
        return
    trips = 100 if day.is_toy else 5_000
    small = jnp.eye(64)

    def chain(x: jax.Array) -> jax.Array:
        # Many kernels a turn, as training has: the host starts every turn. They have
        # next to nothing to do, so that their time is that from one to the next.
        def turn(number: jax.Array, y: jax.Array) -> jax.Array:
            del number
            for _ in range(8):
                y = jnp.tanh(y - y.mean(0, keepdims=True))
            return y

        return jax.lax.fori_loop(0, trips, turn, x)

    program = jax.jit(chain).lower(small).compile()
    text = program.as_text()
    assert text is not None
    kernels, seconds = read(text).total(), _seconds(program, small)
    found = {"microseconds_per_kernel": seconds / kernels * 1e6}
    day.add({"kernels": kernels, **found})
    words = 2**20 if day.is_toy else 2**28
    large = jnp.zeros(words)
    seconds = _seconds(jax.jit(lambda x: x + 1.0).lower(large).compile(), large)
    found["bandwidth"] = 2 * 4 * words / seconds
    day.add({"bandwidth": found["bandwidth"]})
    size = 256 if day.is_toy else 8_192
    square = jax.random.normal(jax.random.key(0), (size, size))
    for precision in ("default", "highest"):
        multiply = jax.jit(lambda x, p=precision: jnp.matmul(x, x, precision=p))
        seconds = _seconds(multiply.lower(square).compile(), square)
        found["flops"] = 2 * size**3 / seconds
        day.add({"precision": precision, "flops": found["flops"]})
    device = jax.local_devices()[0]
    limit = (device.memory_stats() or {}).get("bytes_limit")
    day.add({"memory_for_jax": limit})
    # A CPU does not say how much memory it has; a toy needs some number.
    found["memory"] = (limit or 2**30) / RESERVED
    describe_device(day.folder / "device.yaml", device.device_kind, found)


def describe_device(path: Path, name: str, numbers: dict[str, float]) -> None:
    """Write a device as `purerl plan --device` reads it."""
    sources = dict.fromkeys(numbers, "measured by gpu_day.py")
    sources["memory"] = f"what JAX may use, taken to be {RESERVED:.0%} of all"
    sources["flops"] += ", a float32 product in the highest precision"
    text = yaml.safe_dump({"name": name, **numbers, "sources": sources})
    write_atomic(path, text)


def _seconds(program: Any, argument: jax.Array) -> float:
    """The least of five timed calls, after one that warms up."""
    found = []
    for _ in range(6):
        begin = time.perf_counter()
        jax.block_until_ready(program(argument))
        found.append(time.perf_counter() - begin)
    return min(found[1:])

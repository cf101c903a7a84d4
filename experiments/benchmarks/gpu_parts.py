"""The parts of `gpu_day.py`: a function for each, which adds rows as it goes.

A row is a dictionary of plain values. Rows that have `seconds` (one number per timed
run) and `env_steps` stand in the table of speeds. What fails becomes a row with an
`error`, and the rest of the part goes on.
"""

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import yaml
from bench import Measure, Run, calls, last_returns, peer_program, train
from contenders import ppo_config, train_ppo
from kernel_text import read
from off_policy_speed import DQN, dqn_numbers
from same_numbers import for_brax, for_purejaxrl, for_rejax, in_whole_updates

from purerl import presets
from purerl.contrib.hardware.estimate import RESERVED
from purerl.storage import checkpoint

# isort: split
import brax_peer

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
        rounds: Timed runs of each contender, of which the first one warms up.
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
    day: Day, row: dict[str, Any], prepare: Prepare, stack: ExitStack | None = None
) -> None:
    """Prepare a contender, run it some times, and add its row, or why there is none.

    Args:
        day: What the part was given.
        row: What the row says before anything is measured.
        prepare: A function that returns what to time, and the seconds of compilation.
        stack: What must be open as long as it runs.
    """
    stack = stack or ExitStack()
    try:
        with stack:
            measure, compile_seconds = prepare()
            runs: list[Run] = []
            taken = 0.0  # By the clock: a run may do more than what it times.
            for seed in range(day.rounds):
                if runs and (taken > LONG or day.seconds_left() < 2 * taken):
                    break
                began = time.monotonic()
                runs.append(measure(seed))
                taken = time.monotonic() - began
    except Exception as error:  # A peer without its environment, or without memory.
        day.add(row | {"error": f"{type(error).__name__}: {str(error)[-1500:]}"})
        return
    found = {
        "compile_seconds": _known(compile_seconds),
        "seconds": [run.seconds for run in runs],
        "score": _known(runs[-1].score),
    }
    day.add(row | found)


def _known(number: float) -> float | None:
    """The number, or None where there is none: JSON has no NaN."""
    return None if math.isnan(number) else number


def about(what: str, who: str, agents: int, config: Any) -> dict[str, Any]:
    """Return the names of a row, and its environment steps."""
    total = agents * config.total_timesteps
    return {"what": what, "who": who, "agents": agents, "env_steps": total}


def contend_peer(day: Day, row: dict[str, Any], **request: Any) -> None:
    """Run a program of `peer_rejax.py`."""
    stack, program = ExitStack(), {"agents": row["agents"], "devices": 1, **request}

    def prepare() -> tuple[Measure, float]:
        return peer_program(stack, day.peers, **program)

    contend(day, row, prepare, stack=stack)


def contend_with_peers(day: Day, row: dict[str, Any], config: Any) -> None:
    """Run rejax's PPO, and PureJaxRL's if the path of its `ppo.py` was given."""
    contend_peer(day, row | {"who": "rejax 0.1.3"}, ppo=for_rejax(config))
    row = row | {"who": "PureJaxRL"}
    if day.purejaxrl is not None:
        contend_peer(day, row, purejaxrl=for_purejaxrl(config, day.purejaxrl))
    else:
        day.add(row | {"error": "give its ppo.py: --purejaxrl"})


def measure_ppo(day: Day, agents: int) -> None:
    """PPO on CartPole-v1, the three programs with the same numbers, no evaluations."""
    steps = 1_024 if day.is_toy else 500_000
    agents = min(agents, 2) if day.is_toy else agents
    config, count = ppo_config(steps), None if agents == 1 else agents
    row = about("PPO, CartPole-v1", "purerl", agents, config)
    contend(day, row, lambda: train_ppo(config, count))
    contend_with_peers(day, row, config)


def trained(config: Any, agents: int) -> tuple[Measure, float]:
    """Train one agent by `jax.jit`, or several in one block of `purerl.pmap`."""
    if agents == 1:
        return train(config, score=last_returns)
    return train(config, agents, agents, last_returns)


def measure_off_policy(day: Day, name: str) -> None:
    """DQN, TD3 and SAC beside rejax's; those of continuous actions as their presets."""
    if name == "dqn":
        config: Any = DQN.replace(total_timesteps=600) if day.is_toy else DQN
        what, theirs = "DQN, CartPole-v1", dqn_numbers(config)
    else:
        config = presets.load(f"{name}-pendulum").replace(num_evaluations=0)
        if name == "td3":  # rejax's layers.
            config = config.replace(hidden_sizes=(64, 64))
        if day.is_toy:
            config = config.replace(total_timesteps=1_500)
        what = f"{name.upper()}, Pendulum-v1"
        theirs = {"total_timesteps": config.total_timesteps}
    for agents in (1,) if day.is_toy else (1, 64):
        row = about(what, "purerl", agents, config)
        contend(day, row, lambda agents=agents: trained(config, agents))
        contend_peer(day, row | {"who": "rejax 0.1.3"}, **{name: theirs})


def measure_device(day: Day) -> None:
    """The device itself: dependent kernels, bytes and arithmetic per second.

    Writes `device.yaml`, which `purerl plan --device` reads, into the part's folder.
    """
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
    sources = dict.fromkeys(found, "measured by gpu_day.py")
    sources["memory"] = f"what JAX may use, taken to be {RESERVED:.0%} of all"
    sources["flops"] += ", a float32 product in the highest precision"
    described = {"name": device.device_kind, **found, "sources": sources}
    (day.folder / "device.yaml").write_text(yaml.safe_dump(described))


def _seconds(program: Any, argument: jax.Array) -> float:
    """The least of five timed calls, after one that warms up."""
    measure = calls(lambda: program(argument))
    return min([measure(number).seconds for number in range(6)][1:])


# isort: split

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
    return in_whole_updates(config)


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
    contend_with_peers(day, row, config)


def measure_brax(day: Day, steps: int) -> None:
    """The preset of PPO on brax, beside brax's own PPO with the same numbers."""
    config = config_of("ppo-brax", {"total_timesteps": steps}, day.is_toy)
    row = about(f"PPO, {config.env}", "purerl", 1, config)
    contend(day, row, lambda: trained(config, 1))
    row = row | {"who": "brax's own PPO"}
    contend(day, row, lambda: brax_program(config, day.rounds))


def brax_program(config: Any, rounds: int) -> tuple[Measure, float]:
    """Train by brax for the steps of a config again and again; return what tells times.

    It compiles its program anew in every call, so it is called once, for all rounds.
    """
    ends: list[float] = []

    def note(step: int, *_: Any) -> None:
        if step:  # It also reports before the first one.
            ends.append(time.perf_counter())

    began = time.perf_counter()
    train_brax(config, rounds + 1, note)
    first, *others = np.diff([began, *ends])
    return lambda seed: Run(others[seed]), max(0.0, first - others[0])


def train_brax(config: Any, times: int, note: Any) -> None:
    """Train by brax with the numbers of a config.

    Args:
        config: The config.
        times: How often its steps are trained.
        note: A function of the steps so far and more, called each time.
    """
    import flax.linen as nn

    brax_peer.train(
        (config.env.rpartition("/")[2], config.env_kwargs["backend"]),
        sizes=tuple(config.hidden_sizes),
        look={"activation": getattr(nn, config.activation)},
        **for_brax(config),
        num_timesteps=config.total_timesteps * times,
        num_evals=times + 1,
        run_evals=False,
        policy_params_fn=note,
    )


BITS = ("--seeds", "64")
TOY_BITS = (
    *("--seeds", "2", "--total-timesteps", "640", "--num-envs", "2"),
    *("--num-steps", "16", "--hidden-sizes", "8", "--num-minibatches", "2"),
)


def measure_bits(day: Day) -> None:
    """Train, train again, kill and resume; add what was equal."""
    words = [
        *("train", "--preset", "ppo-cartpole", "--num-evaluations", "0"),
        *(TOY_BITS if day.is_toy else BITS),
        *("--segment-updates", "4" if day.is_toy else "20"),
        *("--checkpoint-seconds", "0", "--no-progress"),
    ]
    first, cached, anew, killed = (
        day.folder / name for name in ("first", "cached", "anew", "killed")
    )
    cache = {"JAX_COMPILATION_CACHE_DIR": str(day.folder / "cache")}
    for folder, variables in ((first, cache), (cached, cache), (anew, {})):
        began = time.perf_counter()
        wait_for(start([*words, "--out", str(folder)], variables))
        _add(day, folder, first, {"process_seconds": time.perf_counter() - began})
    was_killed = kill(start([*words, "--out", str(killed)], cache), killed)
    if was_killed:
        wait_for(start(["train", "--resume", str(killed)], cache))
    _add(day, killed, first, {"was_killed": was_killed})


def start(words: list[str], variables: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start `purerl` with some variables; without a cache where they name none."""
    environment = {**os.environ, "PURERL_COMPILE_CACHE": "off"}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    command = [sys.executable, "-m", "purerl", *words]
    return subprocess.Popen(command, env=environment | variables)


def wait_for(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a process.

    Raises:
        RuntimeError: it failed.
    """
    if process.wait():
        raise RuntimeError(f"{process.args} ended with {process.returncode}")


def kill(process: subprocess.Popen[bytes], folder: Path) -> bool:
    """Kill a run after its first checkpoint; False where it was over before."""
    while process.poll() is None:
        if (folder / "checkpoints").exists() and checkpoint.steps(
            folder / "checkpoints"
        ):
            process.kill()
            process.wait()
            return True
        time.sleep(0.005)
    wait_for(process)
    return False


def _add(day: Day, folder: Path, first: Path, more: dict[str, Any]) -> None:
    updates, state = checkpoint.restore(folder / "checkpoints")
    _, expected = checkpoint.restore(first / "checkpoints")
    differ = [name for name in expected if not _same(expected[name], state[name])]
    row = {"run": folder.name, "updates": updates, "is_equal": not differ}
    day.add(row | {"arrays_that_differ": differ[:8]} | more)


def _same(one: np.ndarray, two: np.ndarray) -> bool:
    return one.dtype == two.dtype and one.tobytes() == two.tobytes()

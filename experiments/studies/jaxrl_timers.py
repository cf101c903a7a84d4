"""The timers of the study "jaxrl": updates and whole loops, of purerl and of PyTorch.

Each function makes a timer, which measures anew whenever it is called and returns the
seconds per 1,000 environment steps. Compilation and warm-up come before the first call.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax4rl import vpg_config, vpg_example, vpg_update
from measure import compiled, timed, torch_threads

from purerl import presets
from purerl.acting.environment import resolve_env
from purerl.algorithms import mpo, sac, td3
from purerl.train import bind, make_train

MODULES = {"td3": td3, "sac": sac, "mpo": mpo}
BATCH, OBS, ACTIONS = 256, 3, 1
VPG_EPOCH = 5_000  # Environment steps between two updates of VPG.
WARM_UP = 1_000
Timer = Callable[[], float]  # Seconds per 1,000 steps, measured anew by every call.


def config_of(name: str) -> Any:
    """Return the preset of an algorithm, on Pendulum-v1 in one environment."""
    if name == "vpg":
        return vpg_config("Pendulum-v1").replace(num_envs=1, num_steps=VPG_EPOCH)
    algorithm = name.split("-")[0]
    config = presets.load(f"{algorithm}-jaxrl").replace(env="Pendulum-v1")
    if name == "mpo-gradient":
        return config.replace(temperature="gradient", temperature_init=1.3132617)
    return config


def our_update(name: str, steps: int) -> Timer:
    """Return what times our gradient steps on one batch: seconds per 1,000."""
    config = config_of(name)
    module: Any = MODULES[name.split("-")[0]]
    parts = module.build(config, resolve_env(config))
    hooks = module.make_hooks(parts)
    keys = jax.random.split(jax.random.key(0), 5)
    state = module.init(parts, keys[0])
    from purerl.algorithms.off_policy import Learner
    from purerl.learning.branches import StepCount
    from purerl.replay.batches import Batch

    learner = Learner(state.params, state.target_params, state.opt_state)
    batch = Batch(
        obs=jax.random.normal(keys[1], (BATCH, OBS)),
        action=jax.random.uniform(keys[2], (BATCH, ACTIONS), minval=-1.0),
        reward=jax.random.normal(keys[3], (BATCH,)),
        next_obs=jax.random.normal(keys[4], (BATCH, OBS)),
        discount=jnp.full(BATCH, 0.99),
        weight=jnp.ones(BATCH),
    )

    def train(learner: Learner, batch: Batch, key: jax.Array) -> Learner:
        def one(learner: Learner, xs: tuple) -> tuple[Learner, None]:
            noise, count = xs
            return hooks.learn(learner, batch, noise, StepCount(count))[0], None

        noise = hooks.draw_noise(key, (steps,))
        counts = jnp.arange(steps, dtype=jnp.uint32)
        return jax.lax.scan(one, learner, (noise, counts))[0]

    call, _ = compiled(train, learner, batch, keys[0])
    timed(call, learner, batch, keys[0])
    return lambda: timed(call, learner, batch, keys[0]) / steps * 1_000


def our_loop(name: str, steps: int) -> Timer:
    """Return what times whole training steps, environment and replay included."""
    config = config_of(name).replace(
        total_timesteps=WARM_UP + steps, learning_starts=WARM_UP, num_evaluations=0
    )
    # The warm-up is a run that learns in its last few steps alone.
    warm_up = WARM_UP + bind(config).config.steps_per_update
    return _beyond(config, warm_up, steps)


def _beyond(config: Any, first: int, more: int) -> Timer:
    """Return what times the last steps of a run, by a run without them.

    Args:
        config: Settings of the run.
        first: Steps of the run without them.
        more: Steps that are timed.
    """
    key = jax.random.key(0)
    shorter, longer = (
        compiled(make_train(config.replace(total_timesteps=total)), key)[0]
        for total in (first, first + more)
    )
    for call in (shorter, longer):
        timed(call, key)
    return lambda: (timed(longer, key) - timed(shorter, key)) / more * 1_000


def our_vpg_update(epochs: int) -> Timer:
    """Return what times our VPG's update on one batch: seconds per 1,000 steps.

    Args:
        epochs: Not used; an update is one call.
    """
    del epochs
    parts, *args = vpg_example(config_of("vpg"))
    call, _ = compiled(partial(vpg_update, parts), *args)
    timed(call, *args)
    return lambda: timed(call, *args) / VPG_EPOCH * 1_000


def our_vpg_loop(epochs: int) -> Timer:
    """Return what times our VPG's epochs, environment included.

    Args:
        epochs: Epochs in the time that counts, after a first one.
    """
    return _beyond(config_of("vpg"), VPG_EPOCH, epochs * VPG_EPOCH)


def torch_vpg_update(epochs: int, threads: int) -> Timer:
    """Return what times PyTorch's VPG's update on one batch: per 1,000 steps.

    Args:
        epochs: Not used; see `our_vpg_update`.
        threads: Threads of PyTorch.
    """
    import torch
    from torch_agents.vpg import VPG

    del epochs
    agent, number = VPG(OBS, ACTIONS), torch.randn(VPG_EPOCH)
    batch = {
        "obs": torch.randn(VPG_EPOCH, OBS),
        "action": torch.randn(VPG_EPOCH, ACTIONS),
        "advantage": number,
        "target": number,
    }

    def once() -> float:
        torch_threads(threads)
        agent.learn(batch)
        began = time.perf_counter()
        agent.learn(batch)
        return (time.perf_counter() - began) / VPG_EPOCH * 1_000

    return once


def torch_vpg_loop(epochs: int, threads: int) -> Timer:
    """Return what times PyTorch's VPG's epochs, environment included.

    Args:
        epochs: Epochs of a run that count, after a first one.
        threads: Threads of PyTorch.
    """
    from torch_agents import vpg as torch_vpg

    def once() -> float:
        torch_threads(threads)
        agent = torch_vpg.VPG(OBS, ACTIONS)
        seconds = torch_vpg.train(agent, "Pendulum-v1", epochs, VPG_EPOCH)
        return seconds / VPG_EPOCH * 1_000

    return once


def torch_agent(name: str) -> Any:
    """Return the PyTorch agent of a name."""
    from torch_agents import mpo as torch_mpo
    from torch_agents import sac as torch_sac
    from torch_agents import td3 as torch_td3

    make: dict[str, Callable[..., Any]] = {
        "td3": torch_td3.TD3,
        "sac": torch_sac.SAC,
        "mpo": torch_mpo.MPO,
        "mpo-gradient": partial(torch_mpo.MPO, is_exact=False),
    }
    return make[name](OBS, ACTIONS)


def torch_update(name: str, steps: int, threads: int) -> Timer:
    """Return what times PyTorch's gradient steps on one batch: per 1,000."""
    from torch_agents import common

    agent, batch = torch_agent(name), common.random_batch(BATCH, OBS, ACTIONS)

    def once() -> float:
        torch_threads(threads)
        agent.learn(batch)
        began = time.perf_counter()
        for _ in range(steps):
            agent.learn(batch)
        return (time.perf_counter() - began) / steps * 1_000

    return once


def torch_loop(name: str, steps: int, threads: int) -> Timer:
    """Return what times PyTorch's whole training steps: seconds per 1,000."""
    from torch_agents import common

    def once() -> float:
        torch_threads(threads)
        agent = torch_agent(name)
        seconds = common.train(agent, "Pendulum-v1", steps, WARM_UP, BATCH)
        return seconds / steps * 1_000

    return once


def in_turns(name: str, steps: int, rounds: int, threads: int) -> dict[str, float]:
    """Time both stacks, the gradient steps alone and the whole loop, in turns.

    Args:
        name: Name of the algorithm, such as `mpo-gradient`.
        steps: Steps that are timed; of VPG, epochs.
        rounds: Number of turns, of which the medians are returned.
        threads: Threads of PyTorch, which is timed with one, too.
    """
    chosen = {kind: make(steps) for kind, make in timers(name, threads).items()}
    found = [{kind: once() for kind, once in chosen.items()} for _ in range(rounds)]
    return {kind: float(np.median([x[kind] for x in found])) for kind in chosen}


def timers(name: str, threads: int) -> dict[str, Callable[[int], Timer]]:
    """Return what makes the timers of an algorithm, by kind, from its steps.

    Args:
        name: Name of the algorithm, such as `mpo-gradient`; of `vpg` the timers take
            epochs in place of steps.
        threads: Threads of PyTorch, which is timed with one, too.
    """
    if name == "vpg":
        ours = our_vpg_update, our_vpg_loop
        theirs = torch_vpg_update, torch_vpg_loop
    else:
        ours = partial(our_update, name), partial(our_loop, name)
        theirs = partial(torch_update, name), partial(torch_loop, name)
    parts = ("update", "loop")
    found = {f"ours-{part}": make for part, make in zip(parts, ours, strict=True)}
    for count in sorted({1, threads}):
        for part, make in zip(parts, theirs, strict=True):
            found[f"torch-{part}-{count}"] = partial(make, threads=count)
    return found

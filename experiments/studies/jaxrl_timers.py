"""The timers of the study "jaxrl": updates and whole loops, of purerl and of PyTorch.

Each function makes a timer, which measures anew whenever it is called and returns the
seconds per 1,000 environment steps. Compilation and warm-up come before the first call.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from measure import compiled, timed, torch_threads

from purerl import presets
from purerl.acting.environment import resolve_env
from purerl.algorithms import mpo, policy_gradient, sac, td3, vpg
from purerl.algorithms.off_policy import Learner
from purerl.algorithms.policy_gradient import Batch as Rollout
from purerl.learning.branches import StepCount
from purerl.replay.batches import Batch
from purerl.train import bind, make_algorithm, make_train

MODULES = {"td3": td3, "sac": sac, "mpo": mpo}
BATCH, OBS, ACTIONS = 256, 3, 1
VPG_EPOCH = 5_000  # Environment steps between two updates of VPG.
WARM_UP = 1_000
Timer = Callable[[], float]  # Seconds per 1,000 steps, measured anew by every call.


def config_of(name: str) -> Any:
    """Return the preset of an algorithm, on Pendulum-v1 in one environment."""
    if name == "vpg":
        changes: dict[str, Any] = {"env_kwargs": {}, "reset_scheme": "fresh"}
        changes |= {"env": "Pendulum-v1", "num_envs": 1, "num_steps": VPG_EPOCH}
        return presets.load("vpg-halfcheetah").replace(num_evaluations=0, **changes)
    algorithm = name.split("-")[0]
    config = presets.load(f"{algorithm}-jaxrl").replace(env="Pendulum-v1")
    if name == "mpo-gradient":
        return config.replace(temperature="gradient", temperature_init=1.3132617)
    return config


def our_update(name: str, steps: int) -> Timer:
    """Return what times our gradient steps on one batch of noise: seconds per 1,000."""
    module: Any = MODULES[name.split("-")[0]]
    config = config_of(name)
    parts = module.build(config, resolve_env(config))
    keys = jax.random.split(jax.random.key(0), 5)
    state = module.init(parts, keys[0])
    learner = Learner(state.params, state.target_params, state.opt_state)
    batch = Batch(
        obs=jax.random.normal(keys[1], (BATCH, OBS)),
        action=jax.random.uniform(keys[2], (BATCH, ACTIONS), minval=-1.0),
        reward=jax.random.normal(keys[3], (BATCH,)),
        next_obs=jax.random.normal(keys[4], (BATCH, OBS)),
        discount=jnp.full(BATCH, 0.99),
        weight=jnp.ones(BATCH),
    )
    hooks = module.make_hooks(parts)

    def train(learner: Any, batch: Any, key: jax.Array) -> Any:
        def one(learner: Any, xs: tuple) -> tuple[Any, None]:
            noise, count = xs
            return hooks.learn(learner, batch, noise, StepCount(count))[0], None

        noise = hooks.draw_noise(key, (steps,))
        counts = jnp.arange(steps, dtype=jnp.uint32)
        return jax.lax.scan(one, learner, (noise, counts))[0]

    return _alone(train, (learner, batch, keys[0]), steps)


def _alone(function: Callable[..., Any], arguments: tuple, steps: int) -> Timer:
    """Return what times a compiled call that stands for some steps."""
    call, _ = compiled(function, *arguments)
    timed(call, *arguments)
    return lambda: timed(call, *arguments) / steps * 1_000


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
    """Return what times our VPG's update on one batch of noise, that of one epoch."""
    del epochs
    config = config_of("vpg")
    parts = policy_gradient.make_agent(config, resolve_env(config))
    keys = jax.random.split(jax.random.key(0), 5)
    number = jax.random.normal(keys[1], (VPG_EPOCH,))
    batch = Rollout(
        obs=jax.random.normal(keys[2], (VPG_EPOCH, OBS)),
        action=jax.random.normal(keys[3], (VPG_EPOCH, ACTIONS)),
        log_prob=number,
        value=number,
        advantage=number,
        target=number,
    )

    def update(state: Any, batch: Rollout) -> tuple[Any, Any]:
        actor, *_ = vpg.improve_policy(parts, state, batch)
        critic, *_ = vpg.fit_value(parts, state, batch)
        return actor, critic

    state = make_algorithm(config).init(keys[0])
    return _alone(update, (state, batch), VPG_EPOCH)


def our_vpg_loop(epochs: int) -> Timer:
    """Return what times our VPG's epochs after a first one, environment included."""
    return _beyond(config_of("vpg"), VPG_EPOCH, epochs * VPG_EPOCH)


def torch_agent(name: str) -> Any:
    """Return the PyTorch agent of a name."""
    from torch_agents import mpo, sac, td3, vpg

    make: dict[str, Callable[..., Any]] = {
        "vpg": vpg.VPG,
        "td3": td3.TD3,
        "sac": sac.SAC,
        "mpo": mpo.MPO,
        "mpo-gradient": partial(mpo.MPO, is_exact=False),
    }
    return make[name](OBS, ACTIONS)


def torch_update(name: str, steps: int, threads: int) -> Timer:
    """Return what times PyTorch's gradient steps on one batch, or VPG's one update."""
    import torch
    from torch_agents import common

    agent = torch_agent(name)
    batch, calls = common.random_batch(BATCH, OBS, ACTIONS), steps
    if name == "vpg":
        number, calls, steps = torch.randn(VPG_EPOCH), 1, VPG_EPOCH
        batch = {"advantage": number, "target": number}
        batch |= {"obs": torch.randn(steps, OBS), "action": torch.randn(steps, ACTIONS)}

    def once() -> float:
        torch_threads(threads)
        agent.learn(batch)
        return timed(lambda: [agent.learn(batch) for _ in range(calls)]) / steps * 1_000

    return once


def torch_loop(name: str, steps: int, threads: int) -> Timer:
    """Return what times PyTorch's whole training steps; of VPG, epochs."""
    from torch_agents import common, vpg

    def once() -> float:
        torch_threads(threads)
        agent, env = torch_agent(name), "Pendulum-v1"
        if name == "vpg":
            return vpg.train(agent, env, steps, VPG_EPOCH) / VPG_EPOCH * 1_000
        return common.train(agent, env, steps, WARM_UP, BATCH) / steps * 1_000

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
    update, loop = partial(our_update, name), partial(our_loop, name)
    if name == "vpg":
        update, loop = our_vpg_update, our_vpg_loop
    found: dict[str, Callable[[int], Timer]] = {"ours-update": update}
    found["ours-loop"] = loop
    for count in sorted({1, threads}):
        for part, make in (("update", torch_update), ("loop", torch_loop)):
            found[f"torch-{part}-{count}"] = partial(make, name, threads=count)
    return found

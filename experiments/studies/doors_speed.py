"""The time of 512 steps of N environments of Doors-v0, in four ways.

    python experiments/studies/doors_speed.py KIND [--size 481] [--repeats 3]

prints the seconds. The study "doors" runs each kind in a process
of its own. Actions are drawn before, every environment resets in the step that ends its
episode, and every result is waited for. What comes before the first round is not
in it: the compilation of the JAX programs, the start of Gymnasium's environments.
"""

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import times

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
# isort: split
from frame import Words, child, options

KINDS = {
    "sync": "Gymnasium, sync",
    "async": "Gymnasium, async",
    "jax-step": "JAX, one call per step",
    "jax-scan": "JAX, one scan",
}
# The order in which they are timed: the hundreds of processes of async come last, as
# they leave the machine busy for a while.
TIMED = ("sync", "jax-step", "jax-scan", "async")
SIZE, STEPS = 481, 512

Walk = Callable[[], Any]


def gymnasium_walk(kind: str, actions: np.ndarray) -> tuple[Walk, Walk]:
    """Start a Gymnasium vector; return what steps it, and what closes it.

    Args:
        kind: `sync` or `async`.
        actions: int32 `[T, N]`.
    """
    from doors_numpy import NumpyDoors
    from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

    make = [NumpyDoors] * actions.shape[1]
    mode = AutoresetMode.SAME_STEP
    if kind == "sync":
        envs = SyncVectorEnv(make, autoreset_mode=mode)
    else:
        # A fork shares what is imported; no thread of JAX runs in this process.
        envs = AsyncVectorEnv(make, autoreset_mode=mode, context="fork")
    envs.reset(seed=0)

    def walk() -> None:
        for action in actions:
            envs.step(action)

    return walk, envs.close


def jax_walk(kind: str, actions: np.ndarray) -> tuple[Walk, Walk]:
    """Compile the JAX environment; return what steps it, and what does nothing.

    Args:
        kind: `jax-step` or `jax-scan`.
        actions: int32 `[T, N]`.
    """
    import jax
    import jax.numpy as jnp

    from purerl.envs.doors import Doors

    env, count = Doors(), actions.shape[1]
    keys = jax.random.split(jax.random.key(0), (len(actions), count))
    _, states = jax.jit(jax.vmap(env.reset))(keys[0])
    step = jax.vmap(env.step)

    if kind == "jax-step":
        stepped = jax.jit(step)

        def walk() -> None:
            state = states
            for key, action in zip(step_keys, actions, strict=True):
                obs, state, *_ = stepped(key, state, action)
                jax.block_until_ready(obs)  # An agent would need it now.

        step_keys = list(keys)
        walk()
        return walk, lambda: None

    @jax.jit
    def scanned(state: Any, keys: Any, actions: Any) -> Any:
        def body(carry: Any, xs: Any) -> Any:
            state, seen = carry
            obs, state, reward, terminated, truncated, _ = step(xs[0], state, xs[1])
            # Without a use the compiler would drop the observations.
            return (state, seen + obs), (reward, terminated, truncated)

        seen = jnp.zeros((count, 225))
        return jax.lax.scan(body, (state, seen), (keys, actions))

    on_device = jnp.asarray(actions)
    compiled = scanned.lower(states, keys, on_device).compile()

    def walk_all() -> None:
        jax.block_until_ready(compiled(states, keys, on_device))

    walk_all()
    return walk_all, lambda: None


def measure(kind: str, size: int, repeats: int, steps: int) -> float:
    """Return the median seconds of one kind, after what compiles or starts.

    Args:
        kind: One of `KINDS`.
        size: Number of environments.
        repeats: Number of measurements.
        steps: Steps of every environment.
    """
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 5, (steps, size), dtype=np.int32)
    make = jax_walk if kind.startswith("jax") else gymnasium_walk
    walk, close = make(kind, actions)
    seconds = times(walk, repeats=repeats)
    close()
    return statistics.median(seconds)


def in_own_process(kind: str, size: int, repeats: int, steps: int) -> float:
    """Measure one kind in a fresh process."""
    words = (__file__, kind, "--size", size, "--repeats", repeats, "--steps", steps)
    # NumPy's threads would only wait for one another.
    return child(*words, env={"OMP_NUM_THREADS": "1"})


def main() -> None:
    """Measure what the command line says, and print it as JSON."""
    kinds = Words(KINDS, "KIND", is_one=True)
    asked = options(__doc__, kind=kinds, size=SIZE, repeats=3, steps=STEPS)
    print(json.dumps(measure(asked.kind, asked.size, asked.repeats, asked.steps)))


if __name__ == "__main__":
    main()

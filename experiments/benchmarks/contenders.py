"""The contenders of `speed.py` in its own interpreter: purerl, gymnax, imports."""

import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from report import Measure, Run, alternate, number, rates, spread

import purerl
from purerl import envs
from purerl.acting.evaluate import evaluate

EVAL_EPISODES = 16
STEPPED_ENVS = 2048
STEPS = 2000

# One PPO for both libraries: CleanRL's CartPole row, without what rejax cannot do
# (annealing the step size). Both take whole updates of 4 x 128 steps.
PPO: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 128,
    "num_epochs": 4,
    "num_minibatches": 4,
    "hidden_sizes": [64, 64],
    "activation": "tanh",
    "learning_rate": 2.5e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "entropy_coef": 0.01,
    "value_coef": 0.5,
    "max_grad_norm": 0.5,
    "clip": 0.2,
}


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """A result, once all of it is there, and its seconds of clock and processor."""
    start, cpu_start = time.perf_counter(), time.process_time()
    result = jax.block_until_ready(work())
    cpu_seconds = time.process_time() - cpu_start
    return result, time.perf_counter() - start, cpu_seconds


def ppo_numbers(timesteps: float) -> dict[str, Any]:
    """The PPO above with `timesteps` rounded down to whole updates."""
    update = PPO["num_envs"] * PPO["num_steps"]
    return PPO | {"total_timesteps": int(timesteps) // update * update}


def ppo_config(timesteps: float, **changes: Any) -> purerl.PPOConfig:
    """The same as purerl's config, without evaluation unless asked for."""
    from purerl.losses import ClipDrift, ClippedSquaredError

    numbers = ppo_numbers(timesteps)
    clip = numbers.pop("clip")
    fields = {
        **numbers,
        "policy_loss": ClipDrift(clip),
        "value_loss": ClippedSquaredError(clip),
        "anneal_learning_rate": False,
        "num_evaluations": 0,
        **changes,
    }
    return purerl.PPOConfig(**fields)


def make_score(config: purerl.PPOConfig) -> Callable[[Any], float]:
    """Mean return of the deterministic policies of `[N]` trained agents."""
    env = envs.make("CartPole-v1")

    def score(state: Any) -> jax.Array:
        policy = purerl.make_policy(config, state)
        result = evaluate(
            env,
            env.default_params,
            policy,
            jax.random.key(7),
            num_episodes=EVAL_EPISODES,
            max_steps=500,
        )
        return result[0].mean()

    scores = jax.jit(jax.vmap(score))
    return lambda state: float(scores(state).mean())


def purejaxrl_program(path: Path, timesteps: int) -> dict[str, Any]:
    """Return what `peer_rejax.py` is asked for: PureJaxRL's PPO with our numbers.

    Args:
        path: The path of its `ppo.py`.
        timesteps: Environment steps of an agent.
    """
    return {"path": str(path), "TOTAL_TIMESTEPS": timesteps, "ANNEAL_LR": False}


def train_one(config: purerl.PPOConfig) -> tuple[Measure, float]:
    """One agent by `jax.jit`: what to time, and the seconds of compilation."""
    start = time.perf_counter()
    program = jax.jit(purerl.make_train(config)).lower(jax.random.key(0)).compile()
    compile_seconds = time.perf_counter() - start
    score = make_score(config)

    def measure(seed: int) -> Run:
        key = jax.block_until_ready(jax.random.key(seed))
        result, seconds, cpu_seconds = timed(lambda: program(key))
        state = jax.tree.map(lambda x: x[None], result.state)
        return Run(seconds, score(state), cpu_seconds)

    return measure, compile_seconds


def train_many(
    config: purerl.PPOConfig, agents: int, lanes: int | None
) -> tuple[Measure, float]:
    """Many agents by `purerl.pmap`, or by `jit(vmap(train))` where `lanes` is None."""
    train = purerl.make_train(config)
    start = time.perf_counter()
    if lanes is None:
        shape = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), agents))
        program: Callable[..., Any] = jax.jit(jax.vmap(train)).lower(shape).compile()
        compile_seconds = time.perf_counter() - start
    else:
        program = purerl.pmap(train, lanes=lanes)
        # The first block compiles, and runs once; there is no way to do only one.
        jax.block_until_ready(program(jax.random.split(jax.random.key(0), lanes)))
        compile_seconds = time.perf_counter() - start
    score = make_score(config)

    def measure(seed: int) -> Run:
        keys = jax.random.split(jax.random.key(seed), agents)
        jax.block_until_ready(keys)
        result, seconds, cpu_seconds = timed(lambda: program(keys))
        return Run(seconds, score(result.state), cpu_seconds)

    return measure, compile_seconds


def step_randomly(env: Any, params: Any) -> Measure:
    """`STEPS` random steps of `STEPPED_ENVS` environments in one compiled scan.

    The same code for purerl and gymnax 1.x, which share the contract. The score is
    the mean length of the episodes that ended.
    """

    def play(key: jax.Array) -> tuple[Any, ...]:
        key_reset, key_play = jax.random.split(key)
        keys = jax.random.split(key_reset, STEPPED_ENVS)
        obs, state = jax.vmap(env.reset, (0, None))(keys, params)

        def step(carry: tuple, key: jax.Array) -> tuple[tuple, None]:
            _, state, total, ends = carry
            key_act, key_step = jax.random.split(key)
            action = jax.random.randint(key_act, (STEPPED_ENVS,), 0, 2)
            keys = jax.random.split(key_step, STEPPED_ENVS)
            obs, state, reward, terminated, truncated, _ = jax.vmap(
                env.step, (0, 0, 0, None)
            )(keys, state, action, params)
            ends += (terminated | truncated).astype(jnp.int32)
            return (obs, state, total + reward, ends), None

        zeros = jnp.zeros(STEPPED_ENVS)
        carry = (obs, state, zeros, zeros.astype(jnp.int32))
        return jax.lax.scan(step, carry, jax.random.split(key_play, STEPS))[0]

    program = jax.jit(play).lower(jax.random.key(0)).compile()

    def measure(seed: int) -> Run:
        key = jax.block_until_ready(jax.random.key(seed))
        (_, _, _, ends), seconds, cpu_seconds = timed(lambda: program(key))
        return Run(seconds, STEPPED_ENVS * STEPS / float(ends.sum()), cpu_seconds)

    return measure


def import_seconds(module: str) -> Measure:
    """Import a module in a fresh process; the interpreter's own start is not timed."""
    code = (
        "import time; start = time.perf_counter(); "
        f"import {module}; print(time.perf_counter() - start)"
    )

    def measure(_: int) -> Run:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        return Run(float(done.stdout))

    return measure


def help_seconds() -> Measure:
    """`purerl --help` from start to end of its process."""
    command = [str(Path(sys.executable).with_name("purerl")), "--help"]

    def measure(_: int) -> Run:
        start = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        return Run(time.perf_counter() - start)

    return measure


def fastest_lanes(
    config: purerl.PPOConfig, agents: int, widths: list[int], rounds: int
) -> tuple[int, Measure, float]:
    """Try widths of `purerl.pmap` alternately, print them, and keep the fastest.

    The winner is measured again: a trial's lucky run does not count.
    """
    built = {width: train_many(config, agents, width) for width in widths}
    if len(widths) == 1:
        return widths[0], *built[widths[0]]
    tried = alternate({str(w): built[w][0] for w in widths}, rounds)
    work = agents * config.total_timesteps
    best, best_rate = widths[0], -math.inf
    print(f"Lanes of purerl.pmap, {agents} agents, median of {rounds}:")
    for width in widths:
        found = spread(rates(tried[str(width)], work))
        print(f"  W = {width:3d}   {number(found.median, 'steps/s'):>6} steps/s")
        if found.median > best_rate:
            best, best_rate = width, found.median
    print(f"  taken: W = {best}\n", flush=True)
    return best, *built[best]

"""Training at defaults, in every environment and by every algorithm.

    python experiments/benchmarks/defaults_speed.py [--rounds 3] [ROW ...]

A row is PPO in an environment (`ppo:Pong-misc`), or an algorithm in its own (`sac`);
without rows it is each of them. One agent is compiled by `jax.jit` and four by
`jax.vmap`. A step's cost is processor time of all threads, in microseconds for each
environment step of an agent. Beside it stand two programs that are parts of it: its
matrix products and convolutions alone, each timed by itself at its shapes and counted
in the program, and the environments alone, with actions drawn at random. A row is
marked where one agent takes more than three times both together, or where a step of
four agents costs more than twice that of one. Evaluations are off.
"""

import statistics
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
from bench import Words, clocked, machine_line, options, print_row, print_table, train

import purerl
from purerl import envs
from purerl.algorithms import ALGORITHMS
from purerl.config import ConfigError, TrainConfig

HEADS = "row | one agent, us | four, us | products, us | environments, us | beyond both"
PRODUCTS = ("dot_general", "conv_general_dilated")
REPEATS = 100
AGENTS = 4
UPDATES, STEPS = 4, 2_000  # of a run, at least
WARM_UPS = ("learning_starts", "random_steps")


def rows() -> list[str]:
    """Return PPO in every environment that is at hand, and every algorithm."""
    return [*(f"ppo:{name}" for name in envs.registered()), *ALGORITHMS]


def config_of(row: str) -> TrainConfig:
    """Return the default config of a row, for a run of seconds."""
    algorithm, _, env = row.partition(":")
    config = ALGORITHMS[algorithm].config(num_evaluations=0)
    if env:
        config = config.replace(env=env)
    if algorithm == "plr":
        config = config.replace(min_fill=0.01)  # Else nothing would be replayed.
    early = {name: 100 for name in WARM_UPS if hasattr(config, name)}
    config = purerl.resolve(config.replace(**early))
    updates = max(UPDATES, -(-STEPS // config.steps_per_update))
    return config.replace(total_timesteps=updates * config.steps_per_update)


def products_of(jaxpr: Any, times: int = 1) -> Iterator[tuple[Any, int]]:
    """Yield each product of a program with how often it runs.

    Of a branch that may not run all counts, and the body of a loop without a known
    length counts once.
    """
    for equation in jaxpr.eqns:
        if equation.primitive.name in PRODUCTS:
            yield equation, times
        length = equation.params.get("length", 1)
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            yield from products_of(inner, times * length)


def time_product(equation: Any) -> float:
    """Return the processor time of one product, in seconds."""
    avals = [x.aval for x in equation.invars]
    first, second = (jnp.ones((a.size,), a.dtype).reshape(a.shape) for a in avals)

    def step(carry: jax.Array, _: None) -> tuple[jax.Array, None]:
        out = equation.primitive.bind(carry, second, **equation.params)
        out = out[0] if isinstance(out, list) else out
        # The next product waits for this one, whose every number is wanted.
        return carry + 1e-9 * out.sum().astype(carry.dtype), None

    program = jax.jit(lambda x: jax.lax.scan(step, x, None, REPEATS)[0])
    return seconds(program, first) / REPEATS


def seconds(program: Any, *args: Any, rounds: int = 3) -> float:
    """Return the median processor time of a compiled call."""
    compiled = program.lower(*args).compile()
    compiled(*args)
    times = [clocked(lambda: compiled(*args))[1].cpu_seconds for _ in range(rounds)]
    return statistics.median(times)


def time_environments(config: TrainConfig) -> float:
    """Return the processor time of a step of one environment, in seconds."""
    env = envs.make(config.env, **config.env_kwargs)
    params, count, length = env.default_params, config.num_envs, 200
    space = env.action_space(params)

    def step(carry: tuple, key: jax.Array) -> tuple[tuple, Any]:
        act, move = jax.random.split(key)
        actions = jax.vmap(space.sample)(jax.random.split(act, count))
        obs, state, reward, *_ = jax.vmap(env.step, (0, 0, 0, None))(
            jax.random.split(move, count), carry[1], actions, params
        )
        return (obs, state), reward

    def play(key: jax.Array) -> Any:
        first = jax.vmap(env.reset, (0, None))(jax.random.split(key, count), params)
        (_, state), rewards = jax.lax.scan(step, first, jax.random.split(key, length))
        return state, rewards

    return seconds(jax.jit(play), jax.random.key(0)) / (length * count)


def main() -> None:
    """Print a line of the table for each row."""
    asked = options(__doc__, rows=Words(tuple(rows()), "ROW"), rounds=3)
    print(f"{machine_line()}; medians of {asked.rounds}\n")
    print_table(HEADS)
    measured: dict[str, float] = {}
    for row in asked.rows or rows():
        try:
            config = config_of(row)
            program = purerl.make_train(config)
        except ConfigError as error:
            print_row(row, f"refused: {error}", *[""] * 4)
            continue
        steps = config.total_timesteps
        costs = []
        for agents in (None, AGENTS):
            measure, _ = train(config, agents)
            measure(0)
            runs = [measure(seed).cpu_seconds for seed in range(asked.rounds)]
            costs.append(1e6 * statistics.median(runs) / steps / (agents or 1))
        counted: Counter[str] = Counter()
        kinds = {}
        jaxpr = jax.make_jaxpr(program)(jax.random.key(0)).jaxpr
        for equation, times in products_of(jaxpr):
            kind = f"{[x.aval.str_short() for x in equation.invars]} {equation.params}"
            counted[kind] += times
            kinds[kind] = equation
        for kind in counted.keys() - measured.keys():
            measured[kind] = time_product(kinds[kind])
        products = 1e6 / steps * sum(n * measured[kind] for kind, n in counted.items())
        alone = 1e6 * time_environments(config)
        beyond = costs[0] / (products + alone)
        is_far = beyond > 3 or costs[1] > 2 * costs[0]
        figures = (f"{x:.2f}" for x in (*costs, products, alone, beyond))
        print_row(f"**{row}**" if is_far else row, *figures)


if __name__ == "__main__":
    main()

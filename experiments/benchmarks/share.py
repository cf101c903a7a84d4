"""PPO's share of this machine on CartPole-v1: its rate beside that of its products.

    python experiments/benchmarks/share.py [--rounds 5] [--out FILE]

Beside each rate of purerl stands that of a program of nothing but the same matrix
products in the same order: a rollout's steps one after another, the values of what was
seen, and the gradients of every minibatch by plain gradient descent, with tanh between
the layers or without. No environment, random number, advantage, Adam or metric is in
it, so its rate is a bound. A product of large matrices shows what the machine does at
best. Contenders take turns in one process; compilation is apart.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import bench
import jax
import jax.numpy as jnp
from contenders import ppo_config, train_ppo

import purerl

OBS, ACTIONS = 4, 2
LARGE = 2048
Layers = Sequence[jax.Array]


def make_products(
    config: purerl.PPOConfig, activation: Callable[[Any], Any]
) -> Callable[[jax.Array], Any]:
    """Return a function from a key to what the products of a run lead to.

    Args:
        config: Whose sizes, steps, epochs and minibatches.
        activation: Function between the layers.
    """
    rows = config.num_envs * config.num_steps
    num_updates = config.total_timesteps // rows

    def network(layers: Layers, x: Any) -> Any:
        for kernel in layers[:-1]:
            x = activation(x @ kernel)
        return x @ layers[-1]

    def loss(both: tuple[Layers, Layers], x: Any) -> Any:
        return sum(jnp.square(network(layers, x)).mean() for layers in both)

    def gradient_step(both: Any, x: Any) -> tuple[Any, None]:
        grads = jax.grad(loss)(both, x)
        return jax.tree.map(lambda p, g: p - 1e-4 * g, both, grads), None

    def rollout_step(actor: Layers, obs: Any) -> tuple[Any, Any]:
        # The next observation waits for the action, as in an environment.
        return obs + 1e-3 * network(actor, obs).sum(-1, keepdims=True), obs

    def update(carry: tuple, _: None) -> tuple[tuple, Any]:
        both, obs = carry
        obs, seen = jax.lax.scan(
            lambda obs, _: rollout_step(both[0], obs), obs, None, config.num_steps
        )
        flat = seen.reshape(rows, OBS)
        values = network(both[1], flat).sum() + network(both[1], flat + 1.0).sum()
        batches = flat.reshape(config.num_minibatches, -1, OBS)
        batches = jnp.tile(batches, (config.num_epochs, 1, 1))
        both, _ = jax.lax.scan(gradient_step, both, batches)
        return (both, obs), values

    def run(key: jax.Array) -> Any:
        sizes = (OBS, *config.hidden_sizes)
        both = tuple(
            [
                0.1 * jax.random.normal(jax.random.fold_in(key, 10 * net + i), shape)
                for i, shape in enumerate(zip(sizes, (*sizes[1:], last), strict=True))
            ]
            for net, last in enumerate((ACTIONS, 1))
        )
        obs = jax.random.normal(key, (config.num_envs, OBS))
        return jax.lax.scan(update, (both, obs), None, num_updates)[1].sum()

    return run


def make_measures(
    config: purerl.PPOConfig, agents: int | None, lanes: int
) -> dict[str, bench.Measure]:
    """Compile purerl's run and the products, for one agent or for many in blocks."""
    width = None if agents is None else lanes
    measures = {"purerl": train_ppo(config, agents, width)[0]}
    for name, activation in (
        ("products with tanh", jnp.tanh),
        ("products", lambda x: x),
    ):
        run = make_products(config, activation)
        program = jax.jit(run) if agents is None else purerl.pmap(run, lanes=lanes)

        def measure(seed: int, program: Any = program) -> Any:
            keys = jax.block_until_ready(bench.keys_of(seed, agents))
            return bench.clocked(lambda: program(keys))[1]

        measures[name] = measure
        measures[name](0)  # compiles
    return measures


def large_product() -> float:
    """Return GFLOP/s of a product of two large matrices, the best of five."""
    x, product = jnp.ones((LARGE, LARGE)), jax.jit(jnp.matmul)
    measure = bench.calls(lambda: product(x, x))
    measure(0)
    return 2 * LARGE**3 / min(measure(n).seconds for n in range(5)) / 1e9


def main() -> None:
    """Measure in turns; print the table."""
    asked = bench.options(
        __doc__,
        rounds=5,
        steps=(204_800, "of one agent"),
        agents=(64, "side by side"),
        lanes=(4, "agents of a block"),
        out=(Path, "JSON file"),
    )
    # As many steps in all for many agents as for four times the one.
    fewer = max(512, 4 * asked.steps // asked.agents)
    cases = {
        "one agent": (ppo_config(asked.steps), None),
        f"{asked.agents} agents": (ppo_config(fewer), asked.agents),
    }
    found: dict[str, Any] = {"hardware": bench.machine()}
    rows = []
    for what, (config, agents) in cases.items():
        runs = bench.alternate(make_measures(config, agents, asked.lanes), asked.rounds)
        work = config.total_timesteps * (agents or 1)
        found[what] = {name: bench.rates(values, work) for name, values in runs.items()}
        for name, values in found[what].items():
            share = ["", ""]
            if name != "purerl":
                middle, low, high = bench.compare(found[what]["purerl"], values)
                share = [f"{middle:.0%}", f"{low:.0%} to {high:.0%}"]
            rows.append(
                [what, name, f"{bench.spread(values).median / 1e3:,.0f}k", *share]
            )
    found["large_product_gflops"] = large_product()
    print(
        f"\n{bench.machine_line(found['hardware'])}; medians of {asked.rounds}; a "
        f"product of {LARGE} x {LARGE} matrices: "
        f"{found['large_product_gflops']:,.0f} GFLOP/s\n"
    )
    heads = "PPO, CartPole-v1 | program | steps/s | purerl's share | of the rounds"
    bench.print_table(heads, rows)
    if asked.out:
        bench.write(asked.out, found)


if __name__ == "__main__":
    main()

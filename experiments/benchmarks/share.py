"""PPO's share of this machine on CartPole-v1: its rate beside that of its products.

    python experiments/benchmarks/share.py [--rounds 5] [--out FILE]

Beside each rate of purerl stands that of a program of nothing but the same matrix
products in the same order: a rollout's steps one after another, the values of what was
seen, and the gradients of every minibatch by plain gradient descent, with tanh between
the layers or without. No environment, random number, advantage, Adam or metric is in
it, so its rate is a bound. A product of large matrices shows what the machine does at
best. Contenders take turns in one process; compilation is apart.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from contenders import ppo_config, timed, train_many, train_one
from report import Measure, Run, Spread, alternate, compare, hardware, rates, spread

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


def measured(program: Callable[[Any], Any], agents: int | None) -> Measure:
    """Return a measure of a compiled program of one key, or of as many as agents."""

    def measure(seed: int) -> Run:
        key = jax.random.key(seed)
        keys = key if agents is None else jax.random.split(key, agents)
        _, seconds, cpu = timed(lambda: program(jax.block_until_ready(keys)))
        return Run(seconds, float("nan"), cpu)

    return measure


def make_measures(
    config: purerl.PPOConfig, agents: int | None, lanes: int
) -> dict[str, Measure]:
    """Compile purerl's run and the products, for one agent or for many in blocks."""
    ours = train_one(config) if agents is None else train_many(config, agents, lanes)
    measures = {"purerl": ours[0]}
    for name, activation in (
        ("products with tanh", jnp.tanh),
        ("products", lambda x: x),
    ):
        run = make_products(config, activation)
        program = jax.jit(run) if agents is None else purerl.pmap(run, lanes=lanes)
        measures[name] = measured(program, agents)
        measures[name](0)  # compiles
    return measures


def large_product() -> float:
    """Return GFLOP/s of a product of two large matrices, the best of five."""
    x = jnp.ones((LARGE, LARGE))
    product = jax.jit(jnp.matmul)
    jax.block_until_ready(product(x, x))
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        jax.block_until_ready(product(x, x))
        seconds.append(time.perf_counter() - began)
    return 2 * LARGE**3 / min(seconds) / 1e9


def line(what: str, name: str, rate: Spread, share: Spread | None) -> str:
    """Return a line of the table."""
    shares = "" if share is None else f"{share.median:.0%}"
    within = "" if share is None else f"{share.low:.0%} to {share.high:.0%}"
    return f"| {what} | {name} | {rate.median / 1e3:,.0f}k | {shares} | {within} |"


def main() -> None:
    """Measure in turns; print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=204_800, help="of one agent")
    parser.add_argument("--agents", type=int, default=64, help="side by side")
    parser.add_argument("--lanes", type=int, default=4, help="agents of a block")
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args()
    # As many steps in all for many agents as for four times the one.
    fewer = max(512, 4 * options.steps // options.agents)
    cases = {
        "one agent": (ppo_config(options.steps), None),
        f"{options.agents} agents": (ppo_config(fewer), options.agents),
    }
    found: dict[str, Any] = {"hardware": hardware()}
    lines = []
    for what, (config, agents) in cases.items():
        runs = alternate(make_measures(config, agents, options.lanes), options.rounds)
        work = config.total_timesteps * (agents or 1)
        each = {name: rates(values, work) for name, values in runs.items()}
        found[what] = each
        for name, values in each.items():
            is_bound = name != "purerl"
            share = compare(each["purerl"], values) if is_bound else None
            lines.append(line(what, name, spread(values), share))
    found["large_product_gflops"] = large_product()
    machine = found["hardware"]
    print(
        f"\n{machine['cores']} cores of {machine['cpu']}, jax "
        f"{machine['versions']['jax']}, {machine['date']}, load "
        f"{machine['load_before']} before; medians of {options.rounds}; a product of "
        f"{LARGE} x {LARGE} matrices: {found['large_product_gflops']:,.0f} GFLOP/s\n"
    )
    print("| PPO, CartPole-v1 | program | steps/s | purerl's share | of the rounds |")
    print("|---|---|---|---|---|")
    print("\n".join(lines))
    if options.out:
        options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

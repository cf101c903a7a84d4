"""The cost of a learned optimiser beside Adam, in a gradient step and in training.

    python experiments/benchmarks/optimiser_speed.py

A gradient step is the optimiser's alone, on a flat vector of the parameters of PPO's
actor and critic for CartPole-v1, as training has it. Training is PPO on CartPole-v1,
eight agents side by side. All are run in turn, results waited for; a figure is the
ratio of the medians, compilation apart.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
from report import hardware

import purerl
from purerl.learning import optimiser
from purerl.optimisers import Adam, LearnedOptimiser, OpenOptimiser

STEPS = 200  # gradient steps of a call
KINDS = {
    "Adam": Adam(),
    "LearnedOptimiser()": LearnedOptimiser(),
    "LearnedOptimiser(hidden_size=4)": LearnedOptimiser.make(4),
    "LearnedOptimiser(noise=True)": LearnedOptimiser.make(noise=True),
    "OpenOptimiser": OpenOptimiser.make(),
}


def stepper(kind: Any, sizes: tuple[int, ...]) -> Callable[[], Any]:
    """Return compiled steps of an optimiser on networks of some layers.

    Args:
        kind: The optimiser.
        sizes: Units of each hidden layer.
    """
    config = purerl.PPOConfig(env="CartPole-v1", hidden_sizes=sizes)
    state = purerl.make_algorithm(config).init(jax.random.key(0))
    flat, _ = optimiser.flatten(state.params)
    optim = optimiser.make(kind, 1e-3, 0.5, optimiser.layers_of(state.params))

    @jax.jit
    def steps(flat: Any, opt_state: Any) -> Any:
        def one(carry: Any, _: None) -> tuple[Any, None]:
            flat, opt_state = carry
            updates, opt_state = optim.update(jnp.cos(flat), opt_state, flat)
            return (flat + updates, opt_state), None

        return jax.lax.scan(one, (flat, opt_state), None, length=STEPS)[0]

    opt_state = optim.init(flat)
    return lambda: jax.block_until_ready(steps(flat, opt_state))


def trainer(kind: Any, sizes: tuple[int, ...], agents: int) -> Callable[[], Any]:
    """Return a compiled training of some agents.

    Args:
        kind: The optimiser.
        sizes: Units of each hidden layer.
        agents: Agents side by side.
    """
    config = purerl.PPOConfig(
        env="CartPole-v1",
        hidden_sizes=sizes,
        total_timesteps=10_000,
        num_evaluations=0,
        optimiser=kind,
    )
    keys = jax.random.split(jax.random.key(0), agents)
    train = jax.jit(jax.vmap(purerl.make_train(config)))
    return lambda: jax.block_until_ready(train(keys))


def seconds(run: Callable[[], Any]) -> float:
    """Return how long a call takes."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def main() -> None:
    """Print a line per optimiser and size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--agents", type=int, default=8)
    asked = parser.parse_args()
    print(hardware())
    for sizes in ((32, 32), (64, 64)):
        for what in ("gradient step", "training"):
            runs = {
                name: stepper(kind, sizes)
                if what == "gradient step"
                else trainer(kind, sizes, asked.agents)
                for name, kind in KINDS.items()
            }
            for run in runs.values():
                run()  # once without counting
            rounds = [
                {name: seconds(run) for name, run in runs.items()}
                for _ in range(asked.rounds)
            ]
            times = {name: median(each[name] for each in rounds) for name in runs}
            for name, taken in times.items():
                unit = taken / STEPS * 1e6 if what == "gradient step" else taken * 1e3
                word = "us" if what == "gradient step" else "ms"
                print(
                    f"{what}, {sizes}: {name} {unit:.0f} {word}, "
                    f"{taken / times['Adam']:.2f} times Adam",
                    flush=True,
                )


if __name__ == "__main__":
    main()

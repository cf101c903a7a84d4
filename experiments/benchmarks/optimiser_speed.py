"""The cost of a learned optimiser beside Adam, in a gradient step and in training.

    python experiments/benchmarks/optimiser_speed.py

A gradient step is the optimiser's alone, on a flat vector of the parameters of PPO's
actor and critic for CartPole-v1, as training has it. Training is PPO on CartPole-v1,
eight agents side by side. All are run in turn, results waited for; a figure is the
ratio of the medians, compilation apart.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from bench import alternate, calls, machine_line, options, seconds_of, spread, train

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
    return lambda: steps(flat, opt_state)


def main() -> None:
    """Print a line per optimiser and size."""
    asked = options(__doc__, rounds=5, agents=8)
    print(machine_line())
    for sizes in ((32, 32), (64, 64)):
        config = purerl.PPOConfig(
            env="CartPole-v1",
            hidden_sizes=sizes,
            total_timesteps=10_000,
            num_evaluations=0,
        )
        for what, unit, scale in (
            ("gradient step", "us", 1e6 / STEPS),
            ("training", "ms", 1e3),
        ):
            measures = {
                name: calls(stepper(kind, sizes))
                if what == "gradient step"
                else train(config.replace(optimiser=kind), asked.agents)[0]
                for name, kind in KINDS.items()
            }
            for measure in measures.values():
                measure(0)  # once without counting
            runs = alternate(measures, asked.rounds)
            times = {n: spread(seconds_of(found)).median for n, found in runs.items()}
            for name, taken in times.items():
                print(
                    f"{what}, {sizes}: {name} {taken * scale:.0f} {unit}, "
                    f"{taken / times['Adam']:.2f} times Adam",
                    flush=True,
                )


if __name__ == "__main__":
    main()

"""Evolve PPO's step size and entropy bonus, and show what was found.

    python examples/evolve.py --generations 8 --population 8

A generation is one vmapped training run of all members. `"value_loss"` or
`"policy_loss"` in place of the two names would evolve a loss in the same way.
"""

import argparse

import purerl


def main(generations: int, population: int, steps: int) -> dict[str, float]:
    """Evolve, print the course, and return the numbers that were found.

    Args:
        generations: Steps of the evolution.
        population: Agents that each of them trains.
        steps: Environment steps of each agent.
    """
    config = purerl.PPOConfig(
        env="CartPole-v1",
        total_timesteps=steps,
        num_envs=8,
        learning_rate=1e-4,  # too small on purpose
        entropy_coef=0.01,
        num_evaluations=0,
    )
    result = purerl.evolve(
        config,
        "learning_rate,entropy_coef",
        strategy=purerl.OpenES(sigma=0.5, learning_rate=0.3),
        population=population,
        generations=generations,
        progress=False,
    )
    for generation, fitness in enumerate(result.history["mean"]):
        print(f"generation {generation}: mean return over training {fitness:.1f}")

    names = ("learning_rate", "entropy_coef")
    found = {name: float(getattr(result.learned, name)) for name in names}
    for name, value in found.items():
        print(f"{name}: {getattr(result.config, name)} became {value:.3g}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Evolve PPO's hyperparameters.")
    parser.add_argument("--generations", type=int, default=8)
    parser.add_argument("--population", type=int, default=8)
    parser.add_argument("--steps", type=int, default=8_192)
    main(**vars(parser.parse_args()))

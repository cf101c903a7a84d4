"""Evolve by an objective of your own, steady returns; the same call again goes on."""

import purerl


def steady(curves):
    """The mean return of the last ten updates, less how much it moves in them."""
    late = curves.train["episode_return"][-10:]
    return late.mean() - late.std()


def main(steps=8_192, out="runs/steady", **options):
    """Evolve PPO's step size; return the result, of which the folder has everything."""
    config = purerl.PPOConfig(total_timesteps=steps, num_envs=8, num_evaluations=0)
    result = purerl.evolve(config, "learning_rate", fitness=steady, out=out, **options)
    print(f"best {result.best_fitness:.1f}: {result.learned.learning_rate:.2g}")
    return result


if __name__ == "__main__":
    main(population=8, generations=8)

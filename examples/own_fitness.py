"""Evolve by an objective of your own, steady returns; killed, the same call goes on."""

import purerl


def steady(curves):
    """The mean return of the last ten updates, less how much it moves in them."""
    late = curves.train["episode_return"][-10:]
    return late.mean() - late.std()


def main(steps=8_192, out="runs/steady", **options):
    """Evolve two numbers of PPO; return the result, of which the folder has all."""
    config = purerl.PPOConfig(total_timesteps=steps, num_envs=8, num_evaluations=0)
    names = "learning_rate,gamma"
    result = purerl.evolve(config, names, fitness=steady, out=out, **options)
    for name, value in result.solution.items():
        print(f"{name}: {result.start[name]:.3g} became {value:.3g}")
    return result


if __name__ == "__main__":
    main(population=8, generations=8)

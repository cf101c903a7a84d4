"""A curriculum of mazes: those in which there is most to learn are played again.

    python examples/level_replay.py --steps 200000

One program trains one agent in new random mazes only, and one that mostly replays
levels (prioritised level replay).
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import purerl
from purerl import envs


def main(steps: int) -> list[float]:
    """Train, print what came of it, and return the shares of mazes that are solved."""
    config = purerl.PLRConfig(
        env="Maze-v0",
        env_kwargs={"size": (7, 7)},
        env_params={"max_steps_in_episode": 50},
        num_envs=16,
        num_steps=50,
        learning_rate=1e-3,
        buffer_size=64,
        learn_on_new=True,
        total_timesteps=steps,
        num_evaluations=1,
        eval_episodes=256,  # in a new maze each
    )
    train = jax.jit(jax.vmap(purerl.make_train(config), in_axes=(None, 0)))
    shares = {"replay_probability": jnp.array([0.0, 0.8])}
    result = train(jax.random.key(0), shares)
    solved = (result.evaluation["episode_return"][:, -1] > 0).mean(1).tolist()
    replayed = result.metrics["replayed"].mean(1)
    for share, score in zip(replayed, solved, strict=True):
        print(f"{share:4.0%} of updates replay levels: {score:.0%} of mazes solved")

    buffer = jax.tree.map(lambda x: x[1], result.state.level_buffer)
    best = jax.tree.map(lambda x: x[buffer.score.argmax()], buffer.levels)
    maze = envs.Maze((7, 7))
    marks = np.array(["#" if wall else "." for wall in maze.walls_of(best).ravel()])
    marks[[int(best.start), int(best.goal)]] = "S", "G"
    print("the level of the highest score:")
    print("\n".join(" ".join(row) for row in marks.reshape(7, 7)))
    return solved


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Prioritised level replay in mazes.")
    parser.add_argument("--steps", type=int, default=200_000)
    main(**vars(parser.parse_args()))

"""A training loop of your own: an algorithm is `init`, `step` and `act`."""

import jax

import purerl


def main(steps=100_000, **changes):
    """Train one agent update by update; return its state and its last metrics."""
    config = purerl.PPOConfig(total_timesteps=steps, num_evaluations=0, **changes)
    algorithm = purerl.make_algorithm(config)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    step = jax.jit(algorithm.step)
    for update in range(steps // config.steps_per_update):
        state, metrics = step(state)  # what you want to see or to change goes here
        if update % 10 == 0:
            print(f"{metrics['env_steps']:7,} steps: {metrics['episode_return']:.1f}")
    played = purerl.evaluate(config, state, episodes=100)
    print(f"{played.title}: {played.episode_return.mean():.1f}")
    return state, metrics


if __name__ == "__main__":
    main()

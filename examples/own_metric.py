"""A torso, squashed actions, scaled rewards and metrics of your own, in one run."""

import flax.linen as nn
import jax.numpy as jnp

import purerl


class Torso(nn.Module):
    """Two layers with LayerNorm and GELU."""

    width: int = 64

    @nn.compact
    def __call__(self, obs):
        """Return features `[N, width]` of observations `[N, 3]`."""
        for _ in range(2):
            obs = nn.gelu(nn.LayerNorm()(nn.Dense(self.width)(obs)))
        return obs


def torque(state, batch, metrics):
    """How hard the motor pushes, and how often at its limit."""
    push = jnp.abs(jnp.tanh(batch.action))  # Transitions have the raw actions.
    return {"mean": push.mean(), "saturated": (push > 0.95).mean()}


def main(steps=100_000, seeds=2, out="runs/own_metric", **options):
    """Train; print what the game paid, what the agents were paid, and the torque."""
    config = purerl.PPOConfig(
        env="Pendulum-v1",
        env_wrappers=("ScaleReward(0.1)",),
        torso=Torso(),
        policy="tanh_gaussian",
        metrics=(torque,),
        total_timesteps=steps,
    )
    run = purerl.run(config, seeds=seeds, out=out, **options)
    names = "episode_return", "shaped_return", "torque.mean", "torque.saturated"
    for name in names:
        print(f"{name:<17}", *(f"{x:9.3f}" for x in run.metrics[name][:, -1]))
    return run


if __name__ == "__main__":
    main()

"""An environment of your own: checked, trained in three winds, used by every command.

python examples/own_environment.py
cd examples; purerl evaluate ../runs/rope/calm --import own_environment
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

import purerl
from purerl import envs
from purerl.envs.spaces import Box, Dict, Discrete


@struct.dataclass
class Params(envs.EnvParams):  # numbers, which may be vmapped, swept and evolved
    max_steps_in_episode: int | jax.Array = 50
    wind: float | jax.Array = 0.0


@struct.dataclass
class State(envs.EnvState):
    x: jax.Array  # where on the rope; whoever comes beyond 1 falls


@dataclasses.dataclass(frozen=True)
class Rope(envs.Environment[State, Params]):
    """Balance on a rope by leaning left or right; every step is worth 1."""

    stride: float = 0.2  # structure, which folders keep with the import path
    default_params = property(lambda self: Params())

    def observe(self, x):
        return {"place": x[None], "side": (x > 0).astype(jnp.int32)}

    def reset_env(self, key, params):
        x = jax.random.uniform(key, minval=-0.5, maxval=0.5)
        return self.observe(x), State(time=jnp.int32(0), x=x)

    def step_env(self, key, state, action, params):
        lean = jnp.where(action == 1, self.stride, -self.stride)
        x = state.x + lean + params.wind * jax.random.normal(key)
        state = State(time=state.time + 1, x=x)
        return self.observe(x), state, jnp.float32(1), jnp.abs(x) > 1.0, {}

    def action_space(self, params=None):
        return Discrete(2)

    def observation_space(self, params=None):
        return Dict({"place": Box(-jnp.inf, jnp.inf, (1,)), "side": Discrete(2)})


def main(steps=30_000, out="runs/rope"):
    """Train in three winds at once, and into a folder; return the scores, `[3]`."""
    envs.check(Rope())  # plays it, and says in a sentence what is wrong
    config = purerl.PPOConfig(env=Rope(), total_timesteps=steps, num_evaluations=1)
    train = jax.jit(jax.vmap(purerl.make_train(config), in_axes=(None, 0)))
    winds = jnp.array([0.0, 0.2, 0.6])
    evaluation = train(jax.random.key(0), {"env_params.wind": winds}).evaluation
    scores = evaluation["episode_return"][:, -1].mean(-1)
    for wind, score in zip(winds, scores, strict=True):
        print(f"wind {wind:.1f}: {score:4.1f} of 50 steps on the rope")
    purerl.run(config, out=f"{out}/calm", resume="auto")
    return scores


if __name__ == "__main__":
    main()

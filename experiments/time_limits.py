"""The values that come out when a time limit is taken for an ending.

    python experiments/time_limits.py

PPO's critic on the chain MDP, whose values have a closed form: once with `terminated`
and `truncated` apart, once in the same environment reporting every end as terminated.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from frame import show

import purerl
from purerl import envs
from purerl.algorithms import policy_gradient
from purerl.envs.probe import ChainMDP


class MergedFlags(ChainMDP):
    """The chain with its time limit reported as a termination."""

    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> Any:
        obs, state, reward, terminated, info = super().step_env(
            key, state, action, params
        )
        has_ended = terminated | super().is_truncated(state, params)
        return obs, state, reward, has_ended, info

    def is_truncated(self, state: Any, params: Any) -> jax.Array:
        return jnp.bool_(False)


def learned_values(env: envs.Environment, length: int) -> np.ndarray:
    """The critic's value of every position after training, `[length]`."""
    config = purerl.PPOConfig(
        env=env,
        total_timesteps=200_000,
        num_envs=16,
        num_steps=64,
        gamma=0.9,
        learning_rate=2e-3,
        value_loss=purerl.losses.SquaredError(),
        hidden_sizes=(32,),
        num_evaluations=0,
    )
    result = jax.jit(purerl.make_train(config))(jax.random.key(0))
    critic = policy_gradient.make_agent(config, env).critic
    return np.asarray(critic.apply(result.state.params["critic"], jnp.eye(length)))


def main() -> None:
    """Solve the chain, train both kinds of PPO in it, and print the values."""
    env = ChainMDP()
    params = env.default_params
    length = env.observation_space(params).shape[0]
    rows = {
        "closed form": env.optimal_values(0.9, params),
        "PPO, flags apart": learned_values(env, length),
        "PPO, flags merged": learned_values(MergedFlags(), length),
        "what merging converges to": env.merged_values(0.9, params, 0.95),
    }
    show(
        f"value of each position, time limit {params.max_steps_in_episode}",
        ["", *map(str, range(length))],
        [[name, *(f"{float(v):.3f}" for v in values)] for name, values in rows.items()],
    )


if __name__ == "__main__":
    main()

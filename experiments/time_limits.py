"""The values that come out when a time limit is taken for an ending.

    python experiments/time_limits.py

PPO's critic on the chain MDP, whose values have a closed form: once with `terminated`
and `truncated` apart, once in the same environment reporting every end as terminated.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import purerl
from purerl import envs
from purerl.envs.probe import ChainMDP


class MergedFlags(envs.Environment):
    """The chain with its time limit reported as a termination."""

    def __init__(self, env: envs.Environment) -> None:
        self.env = env

    @property
    def default_params(self) -> Any:
        return self.env.default_params

    def reset_env(self, key: jax.Array, params: Any) -> Any:
        return self.env.reset_env(key, params)

    def step_env(self, key: jax.Array, state: Any, action: Any, params: Any) -> Any:
        obs, state, reward, terminated, info = self.env.step_env(
            key, state, action, params
        )
        return (
            obs,
            state,
            reward,
            terminated | self.env.is_truncated(state, params),
            info,
        )

    def is_truncated(self, state: Any, params: Any) -> jax.Array:
        return jnp.bool_(False)

    def action_space(self, params: Any = None) -> Any:
        return self.env.action_space(params)

    def observation_space(self, params: Any = None) -> Any:
        return self.env.observation_space(params)


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
    critic = purerl.algorithms.policy_gradient.make_agent(config, env).critic
    return np.asarray(critic.apply(result.state.params["critic"], jnp.eye(length)))


def main() -> None:
    """Solve the chain, train both kinds of PPO in it, and print the values."""
    env = ChainMDP()
    params = env.default_params
    length = env.observation_space(params).shape[0]
    rows = {
        "closed form": env.optimal_values(0.9, params),
        "PPO, flags apart": learned_values(env, length),
        "PPO, flags merged": learned_values(MergedFlags(env), length),
        "what merging converges to": env.merged_values(0.9, params, 0.95),
    }
    table = Table(
        title=f"value of each position, time limit {params.max_steps_in_episode}"
    )
    table.add_column("")
    for position in range(length):
        table.add_column(str(position), justify="right")
    for name, values in rows.items():
        table.add_row(name, *(f"{float(v):.3f}" for v in values))
    Console().print(table)


if __name__ == "__main__":
    main()

"""REINFORCE as an algorithm of your own: vmapped, in every tool and command.

python examples/own_algorithm.py
cd examples; purerl train --import own_algorithm --algorithm reinforce
"""

from functools import partial

import jax
import jax.numpy as jnp

import purerl
from purerl.algorithms import Entry, checks, on_policy, policy_gradient, register
from purerl.config import config_dataclass
from purerl.learning.averages import standardise
from purerl.learning.returns import rewards_to_go


@config_dataclass
class ReinforceConfig(policy_gradient.PolicyGradientConfig):
    """REINFORCE (Williams 1992): rewards to go, standardised, and no critic."""

    num_envs: int = 16
    num_steps: int = 256
    learning_rate: float = 1e-2


def make(config, env, axis_name=None):
    """Bind to a config, whose leaves may be traced, and an environment."""
    agent = policy_gradient.make_agent(config, env, axis_name)
    return on_policy.algorithm(agent, learn)


def learn(agent, state, played, key):
    """Take one gradient step on a rollout `[T, B]`; a path that is cut ends there."""
    steps = played.transitions
    seen, reward_scale = policy_gradient.estimate(agent, state, played)
    ends, nothing = (steps.terminated, steps.truncated), jnp.zeros_like(seen.reward)
    to_go = rewards_to_go(seen.reward, nothing, *ends, gamma=agent.config.gamma)
    weight = standardise(to_go.ravel(), agent.axis_name)
    batch = *on_policy.flatten((seen.obs, steps.action)), weight
    own = partial(loss, agent)
    params, opt, metrics = on_policy.gradient_step(agent, state, played, own, batch)
    return on_policy.Learned(params, opt, metrics, reward_scale)


def loss(agent, params, batch):
    """Return the scalar whose gradient is the policy gradient, negated; metrics."""
    obs, action, weight = batch
    outputs = agent.actor.apply(params["actor"], obs)
    policy_loss = -(weight * agent.head.log_prob(outputs, action)).mean()
    entropy = agent.head.entropy(outputs).mean()
    metrics = {"policy_loss": policy_loss, "entropy": entropy}
    return policy_loss - agent.config.entropy_coef * entropy, metrics


register("reinforce", Entry(ReinforceConfig, checks.policy_gradient, make))


def main(steps=200_000, out="runs/reinforce", **changes):
    """Train two step sizes as one program, then four seeds of each in a folder."""
    config = ReinforceConfig(total_timesteps=steps, num_evaluations=0, **changes)
    rates = [1e-3, 1e-2]
    train = jax.jit(jax.vmap(purerl.make_train(config), in_axes=(None, 0)))
    metrics = train(jax.random.key(0), {"learning_rate": jnp.array(rates)}).metrics
    print("returns at the end:", metrics["episode_return"][:, -1])
    sweep = purerl.sweep(config, {"learning_rate": rates}, seeds=4, out=out)
    print(sweep.scores("episode_return").mean("seed").to_series())
    return sweep


if __name__ == "__main__":
    main()

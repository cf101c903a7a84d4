"""PPO for CartPole in one file: what `purerl.PPOConfig` does, without purerl.

    python examples/single_file_ppo.py

It is for reading, from top to bottom, in jax, flax, optax and gymnax alone. It is also
what purerl's PPO is tested against: with the same key and the same first weights both
make the same updates, up to rounding. So it derives random keys as purerl does.
Axes: `T` steps, `B` environments.
"""

from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnax.wrappers import LogWrapper

Array = jax.Array
Metrics = dict[str, Array]

CARTPOLE, ENV_PARAMS = gymnax.make("CartPole-v1")
ENV = LogWrapper(CARTPOLE)  # adds up the rewards of every episode


class Config(NamedTuple):  # the numbers are CleanRL's
    num_envs: int = 4
    num_steps: int = 128
    num_epochs: int = 4
    num_minibatches: int = 4
    total_timesteps: int = 500_000
    learning_rate: float = 2.5e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_eps: float = 0.2
    value_coef: float = 0.5
    entropy_coef: float = 0.01
    max_grad_norm: float = 0.5
    time_limit: int = 500  # steps after which an episode is truncated

    @property
    def num_updates(self) -> int:
        return self.total_timesteps // (self.num_envs * self.num_steps)


class TrainState(NamedTuple):  # everything that goes from one update to the next
    params: Any  # of "actor" and "critic"
    opt_state: Any
    env_state: Any  # leaves [B]
    obs: Array  # [B, 4], what the policy sees next
    key: Array  # of the agent; it never changes
    update: Array  # int32 [], updates done


class Transition(NamedTuple):  # leaves [T, B, ...]
    obs: Array
    action: Array
    log_prob: Array
    reward: Array
    last_obs: Array  # the observation after the step, before any reset
    terminated: Array  # the episode ended in a state of value zero
    truncated: Array  # the time limit cut the episode
    episode_return: Array  # of the last episode that has ended


def mlp(num_outputs: int, gain: float) -> nn.Sequential:
    """Make a network of two hidden layers; `gain` scales the last layer at first."""
    hidden = partial(nn.Dense, 64, kernel_init=nn.initializers.orthogonal(np.sqrt(2)))
    last = nn.Dense(num_outputs, kernel_init=nn.initializers.orthogonal(gain))
    return nn.Sequential([hidden(), nn.tanh, hidden(), nn.tanh, last])


ACTOR: Any = mlp(2, gain=0.01)  # logits; the first policy is nearly uniform
CRITIC: Any = mlp(1, gain=1.0)


def values_of(params: Any, obs: Array) -> Array:
    """Return the critic's values `[...]` of observations `[..., 4]`."""
    return CRITIC.apply(params["critic"], obs).squeeze(-1)


def log_prob_of(logits: Array, action: Array) -> Array:
    """Return the log-probabilities `[...]` of actions under logits `[..., 2]`."""
    log_probs = jax.nn.log_softmax(logits)
    return jnp.take_along_axis(log_probs, action[..., None], axis=-1).squeeze(-1)


def derive_keys(key: Array, first: int | Array, count: int) -> Array:
    """Return the keys `fold_in(key, first + i)` for i = 0 .. count - 1."""
    numbers = jnp.asarray(first, jnp.uint32) + jnp.arange(count, dtype=jnp.uint32)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)


def make_optimiser(config: Config) -> optax.GradientTransformation:
    """Clip the norm of the whole gradient, then Adam with a step that decays to 0."""

    def learning_rate(count: Any) -> Array:
        # Optax counts gradient steps; the step size changes once per update.
        update = count // (config.num_epochs * config.num_minibatches)
        return config.learning_rate * (1.0 - update / config.num_updates)

    clip = optax.clip_by_global_norm(config.max_grad_norm)
    return optax.chain(clip, optax.adam(learning_rate, eps=1e-5))


def init(config: Config, key: Array) -> TrainState:
    """Draw the weights, and begin an episode in every environment."""
    key_actor, key_critic, key_envs = derive_keys(key, 2**32 - 8, 3)
    actor = ACTOR.init(key_actor, jnp.zeros(4))
    critic = CRITIC.init(key_critic, jnp.zeros(4))
    params = {"actor": actor, "critic": critic}
    opt_state = make_optimiser(config).init(params)
    obs, env_state = jax.vmap(ENV.reset)(jax.random.split(key_envs, config.num_envs))
    return TrainState(params, opt_state, env_state, obs, key, update=jnp.int32(0))


def update(config: Config, state: TrainState) -> tuple[TrainState, Metrics]:
    """Make one update: collect a rollout, estimate advantages, minimise the loss."""
    # What an update draws depends on the agent's key and its number alone. The third
    # key would draw shared starts of episodes, which purerl has as an option.
    key_act, key_env, _, key_fit = derive_keys(state.key, 8 * state.update, 4)
    state, rollout = collect(config, state, key_act, key_env)
    value = values_of(state.params, rollout.obs)
    advantage = gae(config, rollout, value, values_of(state.params, rollout.last_obs))
    batch = rollout, value, advantage, advantage + value
    params, opt_state, losses = fit(config, state, batch, key_fit)
    done = rollout.terminated | rollout.truncated
    total = jnp.where(done, rollout.episode_return, 0.0).sum()
    episodes = {"episodes": done.sum(), "episode_return": total / done.sum()}
    state = state._replace(params=params, opt_state=opt_state, update=state.update + 1)
    return state, losses | episodes


def collect(config: Config, state: TrainState, key_act: Array, key_env: Array) -> tuple:
    """Take T steps in B environments; return the state after them and `Transition`."""
    env_params = ENV_PARAMS.replace(max_steps_in_episode=config.time_limit)
    # Random numbers are drawn before the loop, in a few large operations.
    noise = jax.random.gumbel(key_act, (config.num_steps, config.num_envs, 2))
    keys_env = jax.random.split(key_env, (config.num_steps, config.num_envs))

    def step(carry: tuple, inputs: tuple) -> tuple[tuple, Transition]:
        env_state, obs = carry
        noise, keys = inputs
        logits = ACTOR.apply(state.params["actor"], obs)
        # The largest of logits with Gumbel noise is a sample of their softmax.
        action = jnp.argmax(logits + noise, axis=-1)
        # Where an episode ends, `next_obs` is the first observation of the next one.
        next_obs, env_state, reward, terminated, truncated, info = jax.vmap(
            ENV.step, (0, 0, 0, None)
        )(keys, env_state, action, env_params)
        last_obs, score = info["final_observation"], info["returned_episode_returns"]
        log_prob = log_prob_of(logits, action)
        transition = Transition(
            obs, action, log_prob, reward, last_obs, terminated, truncated, score
        )
        return (env_state, next_obs), transition

    carry = state.env_state, state.obs
    (env_state, obs), rollout = jax.lax.scan(step, carry, (noise, keys_env))
    return state._replace(env_state=env_state, obs=obs), rollout


def gae(config: Config, rollout: Transition, value: Array, next_value: Array) -> Array:
    """Return generalised advantage estimates `[T, B]` (Schulman et al. 2016)."""
    # A terminal state is worth nothing. After a time limit the episode would have gone
    # on, so its last observation keeps its value (Pardo et al. 2018).
    next_value = jnp.where(rollout.terminated, 0.0, next_value)
    delta = rollout.reward + config.gamma * next_value - value
    # Both ends cut the sum: the next step belongs to another episode.
    done = rollout.terminated | rollout.truncated
    decay = config.gamma * config.gae_lambda * (1.0 - done)

    def backward(advantage: Array, step: tuple) -> tuple[Array, Array]:
        delta, decay = step
        advantage = delta + decay * advantage
        return advantage, advantage

    start = jnp.zeros(config.num_envs)
    return jax.lax.scan(backward, start, (delta, decay), reverse=True)[1]


def loss(config: Config, params: Any, batch: tuple) -> tuple[Array, Metrics]:
    """Return the loss of a minibatch, and its parts."""
    rollout, old_value, advantage, target = batch
    logits = ACTOR.apply(params["actor"], rollout.obs)
    value = values_of(params, rollout.obs)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = jnp.exp(log_prob_of(logits, rollout.action) - rollout.log_prob)
    clipped = jnp.clip(ratio, 1.0 - config.clip_eps, 1.0 + config.clip_eps)
    policy_loss = -jnp.minimum(ratio * advantage, clipped * advantage).mean()
    # The value gets no credit for moving further than `clip_eps`.
    move = jnp.clip(value - old_value, -config.clip_eps, config.clip_eps)
    error, clipped_error = value - target, old_value + move - target
    value_loss = 0.5 * jnp.maximum(error**2, clipped_error**2).mean()
    log_probs = jax.nn.log_softmax(logits)
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
    total = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
    parts = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
    return total, parts


def fit(config: Config, state: TrainState, batch: tuple, key: Array) -> tuple:
    """Take epochs of minibatch steps; return params, opt_state and the mean losses."""
    optimiser = make_optimiser(config)
    num_samples = config.num_steps * config.num_envs
    batch = jax.tree.map(lambda x: x.reshape(num_samples, *x.shape[2:]), batch)

    def gradient_step(carry: tuple, minibatch: tuple) -> tuple[tuple, Metrics]:
        params, opt_state = carry
        grads, parts = jax.grad(partial(loss, config), has_aux=True)(params, minibatch)
        moves, opt_state = optimiser.update(grads, opt_state, params)
        return (optax.apply_updates(params, moves), opt_state), parts

    def epoch(carry: tuple, key: Array) -> tuple[tuple, Metrics]:
        # Sorting random words shuffles the samples. purerl keeps a sample's number in
        # the low bits of its word, so these have no part in the order here either.
        words = jax.random.bits(key, (num_samples,), jnp.uint32)
        order = jnp.argsort(words >> (num_samples - 1).bit_length())
        minibatches = jax.tree.map(
            lambda x: x[order].reshape(config.num_minibatches, -1, *x.shape[1:]), batch
        )
        return jax.lax.scan(gradient_step, carry, minibatches)

    keys = jax.random.split(key, config.num_epochs)
    carry, parts = jax.lax.scan(epoch, (state.params, state.opt_state), keys)
    return *carry, jax.tree.map(jnp.mean, parts)


@partial(jax.jit, static_argnums=0)
def train(config: Config, key: Array) -> tuple[TrainState, Metrics]:
    """Train one agent; metrics have a row for every update."""
    start = init(config, key)
    return jax.lax.scan(lambda s, _: update(config, s), start, None, config.num_updates)


def main(steps: int = 500_000) -> float:
    """Train, print the learning curve, and return its end."""
    _, metrics = train(Config(total_timesteps=steps), jax.random.key(0))
    parts = np.array_split(metrics["episode_return"], 10)
    curve = [float(np.nanmean(part)) for part in parts]  # NaN where no episode ended
    for index, score in enumerate(curve, 1):
        print(f"mean return until {index / 10:4.0%} of the run: {score:5.1f}")
    return curve[-1]


if __name__ == "__main__":
    main()

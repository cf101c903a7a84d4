"""Bugs of earlier systems, one test each, named after what went wrong there."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import envs
from purerl.acting.environment import resolve_env
from purerl.algorithms import off_policy, td3
from purerl.algorithms.off_policy import Experience, Learner
from purerl.envs import CartPole
from purerl.replay import uniform as replay
from tests.helpers import slow_but

CONFIG = purerl.TD3Config(
    env="probe/continuous",
    total_timesteps=3 * 3 * 20,
    num_envs=3,
    num_steps=1,
    rounds_per_update=20,
    learning_starts=7,
    buffer_size=200,
    batch_size=16,
    hidden_sizes=(8,),
    num_evaluations=0,
)


def make_hooks(config):
    return td3.make_hooks(td3.build(config, resolve_env(config)))


def test_one_sided_smoothing_noise():
    # Uniform numbers in [0, 1) as noise push the target's action up, on average.
    draws = make_hooks(CONFIG).draw_noise(jax.random.key(0), (500,))
    noise = td3.perturb(jnp.zeros_like(draws), draws, 0.2, 0.5).reshape(-1)
    # Standard error of the mean 0.2 / sqrt(8000) = 0.0022.
    assert abs(float(noise.mean())) < 0.01
    np.testing.assert_allclose(noise.std(), 0.2, rtol=0.05)
    # Clipped at 2.5 standard deviations, on both sides: 0.6% of the draws on each.
    np.testing.assert_allclose([noise.min(), noise.max()], [-0.5, 0.5], rtol=1e-6)


class Count(NamedTuple):
    """A learner that only counts."""

    calls: jax.Array
    in_order: jax.Array
    fired: jax.Array


def counted(config, updates):
    """How often a schedule of every fifth gradient step fires."""

    def learn(learner, batch, noise, count):
        learner = Count(
            learner.calls + 1,
            learner.in_order & (count.number == learner.calls),
            learner.fired + count.completes(5),
        )
        return learner, jnp.zeros(batch.reward.shape), {"value_loss": jnp.float32(0)}

    def explore(learner, obs, memory, noise, step):
        return noise, memory

    hooks = make_hooks(config)._replace(learn=learn, explore=explore)
    key = jax.random.key(0)
    experience = off_policy.init_experience(hooks.agent, key)
    learner = Count(jnp.int32(0), jnp.bool_(True), jnp.int32(0))
    run = jax.jit(partial(off_policy.run, hooks))
    for update in range(updates):
        learner, experience, metrics = run(
            learner, experience, jax.random.fold_in(key, update), jnp.int32(update)
        )
        assert metrics["gradient_steps"] == learner.calls
    return learner


@pytest.mark.parametrize("num_envs", slow_but([1, 3, 4, 7], 3))
def test_schedules_that_never_fire(num_envs):
    # "timesteps % interval == 0" with timesteps that advance by num_envs fires only
    # where both are multiples. Here intervals count gradient steps, and none is lost.
    config = CONFIG.replace(
        num_envs=num_envs, gradient_steps=2, total_timesteps=60 * num_envs
    )
    learner = counted(config, 3)
    rounds = 60 - config.first_round
    assert learner.in_order
    assert learner.calls == 2 * rounds
    assert learner.fired == 2 * rounds // 5


def test_deterministic_acting_during_training():
    # Acting with the mean: nothing is explored once the warm-up is over.
    hooks = make_hooks(CONFIG.replace(exploration_noise=0.1))
    state = jax.jit(purerl.make_algorithm(CONFIG).init)(jax.random.key(0))
    learner = Learner(state.params, state.target_params, state.opt_state)
    noise = hooks.draw_action(jax.random.key(1), (2000,))
    seen = jnp.zeros((2000, 1)), ()
    act = jax.jit(lambda noise: hooks.explore(learner, *seen, noise, seen[0][:, 0])[0])
    actions, still = (np.asarray(act(scale * noise)) for scale in (1, 0))
    assert len(np.unique(still)) == 1
    np.testing.assert_allclose((actions - still).std(), 0.1, rtol=0.05)
    assert abs(float((actions - still).mean())) < 0.01


@pytest.mark.parametrize("num_envs", slow_but([1, 3, 4], 3))
def test_warm_up_is_exact_in_steps(num_envs):
    # Random actions lie within [-1, 1]; the "policy" here says 5.
    config = CONFIG.replace(num_envs=num_envs, total_timesteps=20 * num_envs)
    hooks = make_hooks(config)._replace(
        explore=lambda learner, obs, memory, noise, step: (
            jnp.full_like(noise, 5.0),
            memory,
        ),
        learn=lambda learner, batch, noise, count: (
            learner,
            jnp.zeros(batch.reward.shape),
            {"value_loss": jnp.float32(0)},
        ),
    )
    key = jax.random.key(0)

    @jax.jit
    def run(key):
        experience = off_policy.init_experience(hooks.agent, key)
        return off_policy.run(hooks, (), experience, key, jnp.int32(0))

    _, experience, _ = run(key)
    assert isinstance(experience, Experience)
    actions = np.asarray(replay.in_order(experience.buffer).action)[:, 0]
    actions = actions[: 20 * num_envs]
    assert (np.abs(actions[:7]) <= 1).all() and len(np.unique(actions[:7])) == 7
    np.testing.assert_array_equal(actions[7:], 5.0)


def test_policy_steps_are_counted_over_all_updates():
    """Every second gradient step of the run, however many an update has: 1, 2, 1, 2."""
    config = purerl.TD3Config(
        num_envs=1, learning_starts=0, batch_size=1, rounds_per_update=3
    )
    hooks = make_hooks(config)
    first = config.first_round
    found = []
    for update in range(4):
        end = jnp.uint32(first + 3 * (update + 1))
        before = config.gradient_steps_before(end - jnp.uint32(3))
        found.append(int(off_policy._counts(hooks, before, end)["policy_steps"]))
    each = config.gradient_steps_per_round
    assert each == 1 and found == [1, 2, 1, 2]


class Locked(CartPole):
    """CartPole with a second actuator that cannot move, alone or as a part."""

    def action_space(self, params=None):
        end = np.array([1.0, 0.0])
        return envs.spaces.Box(-end, end, (2,))

    def step_env(self, key, state, action, params):
        push = jnp.int32(jax.tree.leaves(action)[0][..., 0] > 0)
        return super().step_env(key, state, push, params)


class LockedParts(Locked):
    def action_space(self, params=None):
        return envs.spaces.Dict({"a": super().action_space(params)})


SHORT = {
    "num_envs": 2,
    "total_timesteps": 64,
    "hidden_sizes": (8,),
    "num_evaluations": 0,
}
SQUASHED = {"policy": "tanh_gaussian", "num_steps": 16, **SHORT}
PASSES = {"num_minibatches": 1, **SQUASHED}
REPLAY = {"rounds_per_update": 8, "learning_starts": 16, "batch_size": 8, **SHORT}
LOCKED = {
    "VPG": purerl.VPGConfig(env=Locked(), **SQUASHED),
    "VPG-parts": purerl.VPGConfig(env=LockedParts(), **SQUASHED),
    "PPO": purerl.PPOConfig(env=Locked(), **PASSES),
    "PPO-parts": purerl.PPOConfig(env=LockedParts(), **PASSES),
    "RecurrentPPO": purerl.RecurrentPPOConfig(env=Locked(), **PASSES),
    "SAC": purerl.SACConfig(env=Locked(), **REPLAY),
    "TD3": purerl.TD3Config(env=Locked(), **REPLAY),
    "MPO": purerl.MPOConfig(env=Locked(), **REPLAY),
}


@pytest.mark.parametrize("name", slow_but(LOCKED, "VPG"))
def test_a_locked_actuator_with_a_squashed_policy(name):
    # Its density is infinite: losses and entropies were NaN from the first update on.
    result = jax.jit(purerl.make_train(LOCKED[name]))(jax.random.key(0))
    for metric, values in result.metrics.items():
        if "loss" in metric or metric == "entropy":
            assert np.isfinite(values[-1]), metric
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(result.state.params))

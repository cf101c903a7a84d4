"""What tests of several rooms share."""

import contextlib
import dataclasses
import faulthandler
import os
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import envs
from purerl.algorithms import ALGORITHMS
from purerl.config import config_dataclass
from purerl.envs.cartpole import CartPole

CONTINUOUS_CARTPOLE = "test/continuous-cartpole"
NUMBERED_CARTPOLE = "test/numbered-cartpole"
LEVELLED_CARTPOLE = "test/levelled-cartpole"


class Continuous:
    """Makes of a CartPole one for algorithms that need numbers: the sign pushes."""

    def action_space(self, params=None):
        del params
        return envs.spaces.Box(-1.0, 1.0, (1,))

    def step_env(self, key, state, action, params):
        push = (action[0] > 0).astype(np.int32)
        return super().step_env(key, state, push, params)


@dataclasses.dataclass(unsafe_hash=True)
class ContinuousCartPole(Continuous, CartPole):
    """CartPole with a number as its action."""


@dataclasses.dataclass(unsafe_hash=True)
class NumberedCartPole(CartPole):
    """CartPole for tables: the number of a cell of angle and angular velocity."""

    cells: int = 40  # along each of the two; with 1 there is a single state

    def observation_space(self, params=None):
        del params
        return envs.spaces.Discrete(self.cells**2)

    def reset_env(self, key, params):
        obs, state = super().reset_env(key, params)
        return self.number(obs), state

    def step_env(self, key, state, action, params):
        obs, *rest = super().step_env(key, state, action, params)
        return self.number(obs), *rest

    def number(self, obs):
        place = (obs[2:] / jnp.array([0.3, 3.0]) + 1) / 2 * self.cells
        row, column = jnp.clip(place.astype(jnp.int32), 0, self.cells - 1)
        return row * self.cells + column


@dataclasses.dataclass(unsafe_hash=True)
class LevelledCartPole(CartPole):
    """CartPole for curricula: a level is the length of the pole."""

    def draw_level(self, key, params):
        return params.replace(length=jax.random.uniform(key, minval=0.3, maxval=0.7))


envs.register(CONTINUOUS_CARTPOLE, ContinuousCartPole)
envs.register(NUMBERED_CARTPOLE, NumberedCartPole)
envs.register(LEVELLED_CARTPOLE, LevelledCartPole)


def tiny_config(**changes) -> purerl.PPOConfig:
    """Twenty updates of 32 steps with a network of eight units: half a second."""
    config = purerl.PPOConfig(
        total_timesteps=640,
        num_envs=2,
        num_steps=16,
        num_epochs=2,
        num_minibatches=2,
        hidden_sizes=(8,),
        num_evaluations=3,
        eval_episodes=2,
        eval_max_steps=20,
        eval_share=1.0,
    )
    return config.replace(**changes)


def tiny_table(**changes) -> purerl.TabularConfig:
    """Twenty updates of Q-learning: half a program of PPO, where that is enough."""
    config = purerl.TabularConfig(
        env=NUMBERED_CARTPOLE,
        env_kwargs={"cells": 4},
        total_timesteps=640,
        num_envs=2,
        num_steps=16,
        num_evaluations=3,
        eval_episodes=2,
        eval_max_steps=20,
        eval_share=1.0,
    )
    return config.replace(**changes)


@config_dataclass
class Ordered(purerl.PPOConfig):
    """PPO of which one of two numbers must be small; see `ordered`."""

    def check_numbers(self):
        known = not isinstance(self.entropy_coef, jax.core.Tracer)
        if known and self.entropy_coef > 0.5 and self.gamma > 0.5:
            raise purerl.ConfigError("one of entropy_coef and gamma must be small.")


def ordered(monkeypatch, **fields) -> Ordered:
    """An `Ordered` config, which is registered as long as the test runs."""
    entry = ALGORITHMS["ppo"]._replace(config=Ordered)
    monkeypatch.setitem(ALGORITHMS, "ordered", entry)
    return Ordered(**fields)


class StopAfter(purerl.Tracker):
    """Sends Ctrl-C when the given update of a seed has been logged."""

    background = False  # between two segments

    def __init__(self, update, seed=0):
        self.update, self.seed = update, seed

    def log(self, member, step, row):
        if (
            row["kind"] == "train"
            and member == self.seed
            and row["update"] == self.update
        ):
            os.kill(os.getpid(), signal.SIGINT)


def trained(cohort, on_segment=lambda segment: None):
    """Train a cohort from the beginning to the end; its states on the host."""
    cohort.init()
    for segment in cohort.segments(cohort.program.bound.plan.num_updates):
        on_segment(segment)
    return cohort.gather()


def eventually(look, expected, seconds=20.0):
    """Whether `look()` is as expected, now or when another process has got so far."""
    until = time.monotonic() + seconds
    while (found := look()) != expected and time.monotonic() < until:
        time.sleep(0.2)
    assert found == expected
    return True


def python(*words, **options):
    """What a program of its own prints; it fails with what it says of its errors."""
    command = [sys.executable, *words]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def option(name, value):
    """Another value of an option of JAX, in every thread."""
    before = jax.config.values[name]
    jax.config.update(name, value)
    try:
        yield
    finally:  # A failure here must not change what comes after it.
        jax.config.update(name, before)


@contextlib.contextmanager
def deadline(seconds):
    """A hang inside XLA cannot be interrupted: end the process with its traceback."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def plain(tree):
    """A pytree with its random keys as numbers."""

    def one(x):
        if isinstance(x, jax.Array) and jax.dtypes.issubdtype(
            x.dtype, jax.dtypes.prng_key
        ):
            return np.asarray(jax.random.key_data(x))
        return np.asarray(x)

    return jax.tree.map(one, tree)


def assert_same_bits(one, two):
    """Every array of two pytrees is equal, bit for bit (NaN equals NaN)."""
    assert jax.tree.structure(one) == jax.tree.structure(two)
    left = jax.tree_util.tree_leaves_with_path(plain(one))
    for (path, a), b in zip(left, jax.tree.leaves(plain(two)), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=jax.tree_util.keystr(path))


def slow_but(values, *kept):
    """Values to parametrise over: those that are not kept are for `make test-slow`."""
    return [
        value if value in kept else pytest.param(value, marks=pytest.mark.slow)
        for value in values
    ]


def assert_close(one, other, rtol=1e-4, atol=2e-5):
    """The arrays of two pytrees are equal up to rounding, one by one."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    left = jax.tree_util.tree_leaves_with_path(plain(one))
    for (path, a), b in zip(left, jax.tree.leaves(plain(other)), strict=True):
        name = jax.tree_util.keystr(path)
        np.testing.assert_allclose(a, b, rtol, atol, err_msg=name)


def lane(tree, index):
    """One of the leading axis of a pytree."""
    return jax.tree.map(lambda x: x[index], tree)

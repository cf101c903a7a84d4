"""Schedules: their curves in closed form, where they stand, and what an update sees."""

from operator import attrgetter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import purerl
from purerl import schedules, serialise
from purerl.config import ConfigError, apply_overrides
from purerl.learning import optimiser
from purerl.schedules import Constant, Cosine, Linear, Piecewise, WarmUp
from purerl.sweeps.groups import group_points
from purerl.train import bind, follow_schedules
from purerl.types import Algorithm
from tests.helpers import tiny_config

SHARES = [0.0, 0.25, 0.5, 0.75, 1.0]
# A schedule, and its numbers at those shares by hand.
CURVES = {
    "Constant": (Constant(0.3), [0.3] * 5),
    "Linear": (Linear(2.0, 1.0), [2.0, 1.75, 1.5, 1.25, 1.0]),
    "Linear that ends early": (Linear(2.0, 1.0, 0.5), [2.0, 1.5, 1.0, 1.0, 1.0]),
    # cos(pi / 4) is the root of a half.
    "Cosine": (Cosine(2.0, 0.0), [2.0, 1 + 0.5**0.5, 1.0, 1 - 0.5**0.5, 0.0]),
    "Cosine that ends early": (Cosine(2.0, 1.0, 0.5), [2.0, 1.5, 1.0, 1.0, 1.0]),
    "WarmUp": (WarmUp(0.5, 3.0, start=1.0), [1.0, 2.0, 3.0, 3.0, 3.0]),
    "WarmUp, and more": (WarmUp(0.5, Linear(4.0, 0.0)), [0.0, 2.0, 4.0, 2.0, 0.0]),
    "Piecewise": (Piecewise((3.0, 2.0, 1.0), (0.5, 0.75)), [3.0, 3.0, 2.0, 1.0, 1.0]),
    "Share": (schedules.Share(), SHARES),
}


@struct.dataclass
class Sawtooth(schedules.Schedule):
    """A schedule of one's own: up from 0 to `top`, several times."""

    top: float = 1.0
    teeth: int = struct.field(pytree_node=False, default=2)

    def __call__(self, share):
        """Return the number at a share of the run, `[]`."""
        return self.top * (share * self.teeth % 1.0)


class State(NamedTuple):
    update: jax.Array


def followed(config, num_updates):
    """What the updates of a run see of a config."""

    def make(config):
        assert not schedules.is_moving(config)
        return Algorithm(
            lambda key: config, lambda state: (state, config), lambda *_: jnp.zeros(())
        )

    algorithm = follow_schedules(config, make, num_updates)
    updates = jnp.arange(num_updates)
    return jax.jit(jax.vmap(lambda u: algorithm.step(State(u))[1]))(updates)


def test_every_registered_schedule_is_tested_here():
    assert {name.split()[0].strip(",") for name in CURVES} == set(schedules.SCHEDULES)


@pytest.mark.parametrize("name", CURVES)
def test_a_schedule_is_its_curve_and_vmaps(name):
    schedule, expected = CURVES[name]
    found = jax.vmap(schedule)(jnp.array(SHARES))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    if not jax.tree.leaves(schedule):
        return  # There are no numbers to vmap.
    double = jax.tree.map(lambda x: jnp.array([x, x]), schedule)
    pair = jax.vmap(lambda s: s(jnp.float32(0.75)))(double)
    np.testing.assert_allclose(pair, [expected[3]] * 2, rtol=1e-6)


@pytest.mark.parametrize("name", CURVES)
def test_a_schedule_survives_dict_and_text(name):
    schedule, _ = CURVES[name]
    config = tiny_config(value_coef=schedule)
    assert serialise.from_dict(serialise.to_dict(config)) == config
    assert serialise.parse_part(serialise.part_text(schedule), "schedule") == schedule


def test_the_flag_means_linear_bit_for_bit():
    # Of every update of a long run, as the algorithms anneal it themselves.
    rate, num_updates = 2.5e-4, 977
    line = followed(tiny_config(learning_rate=Linear(rate, 0.0)), num_updates)
    annealed = jax.jit(jax.vmap(lambda u: optimiser.annealed(rate, u, num_updates)))
    np.testing.assert_array_equal(line.learning_rate, annealed(jnp.arange(num_updates)))


def test_a_schedule_takes_the_flags_place_and_leaves_it_to_other_step_sizes():
    config = purerl.VPGConfig(
        learning_rate=Constant(0.1), critic_learning_rate=0.2, anneal_learning_rate=True
    )
    seen = followed(config, 4)
    assert seen.anneal_learning_rate is False
    np.testing.assert_allclose(seen.learning_rate, [0.1] * 4)
    np.testing.assert_allclose(seen.critic_learning_rate, [0.2, 0.15, 0.1, 0.05])


def moving(config, updates):
    bound = bind(config)
    return bound.moving(bound.config, jnp.arange(updates))


def test_a_number_moves_wherever_it_stands_and_is_among_the_metrics():
    config = tiny_config(
        entropy_coef=Linear(1.0, 0.0),
        policy_loss=purerl.losses.ClipDrift(Piecewise((0.3, 0.1), (0.5,))),
        optimiser=purerl.optimisers.Adam(b1=Linear(0.5, 0.9)),
        gamma=Sawtooth(0.8),
        total_timesteps=4 * 32,
        num_evaluations=0,
    )
    expected = {
        "entropy_coef": [1.0, 0.75, 0.5, 0.25],
        "policy_loss.clip_eps": [0.3, 0.3, 0.1, 0.1],
        "optimiser.b1": [0.5, 0.6, 0.7, 0.8],
        "gamma": [0.0, 0.4, 0.0, 0.4],
    }
    seen, metrics = followed(config, 4), moving(config, 4)
    trained = jax.jit(purerl.make_train(config))(jax.random.key(0)).metrics
    assert set(metrics) == {"learning_rate", *expected}
    for name, values in expected.items():
        found = attrgetter(name)(seen)
        for each in (found, metrics[name], trained[name]):
            np.testing.assert_allclose(each, values, rtol=1e-6, err_msg=name)
    assert moving(tiny_config(anneal_learning_rate=False), 20) == {}


def test_what_moves_by_itself_is_among_the_metrics():
    """DQN's step size falls with gradient steps, which begin after three updates."""
    sizes = {"total_timesteps": 1000, "num_envs": 1, "rounds_per_update": 100}
    learned = {"learning_starts": 301, "learning_rate": 0.1}
    weighed = {"prioritised": True, "importance_exponent": 0.5}
    explored = {"epsilon_fraction": 0.4, "epsilon_end": 0.2}
    config = purerl.DQNConfig(**sizes, **learned, **weighed, **explored)
    config = config.replace(anneal_learning_rate=True)
    metrics = moving(config, 10)
    done = np.maximum(0, 100 * np.arange(10) - 300) / 700
    expected = {
        "learning_rate": 0.1 * (1 - done),
        "epsilon": 1 - 0.8 * np.minimum(np.arange(10) / 4, 1),
        "importance_exponent": 0.5 + 0.5 * np.arange(10) / 10,
    }
    assert set(metrics) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(metrics[name], values, rtol=1e-5, err_msg=name)
    constant = {"epsilon_schedule": "constant", "anneal_learning_rate": False}
    assert moving(config.replace(prioritised=False, **constant), 10) == {}
    own = {"epsilon_schedule": "constant", "epsilon_end": Linear(1.0, 0.0)}
    found = moving(config.replace(**own), 10)["epsilon"]
    np.testing.assert_allclose(found, 1 - np.arange(10) / 10, rtol=1e-5)
    assert "epsilon" not in moving(config.replace(noisy=True), 10)


def test_the_state_is_made_with_the_first_numbers():
    config = tiny_config(gamma=Linear(0.5, 0.9))
    made = follow_schedules(
        config, lambda c: Algorithm(lambda key: c.gamma, lambda s: (s, {}), print), 10
    )
    assert made.init(jax.random.key(0)) == 0.5


def test_schedules_and_their_numbers_are_overridden_and_swept():
    config = tiny_config(learning_rate=Linear(1e-3, 0.0))
    assert apply_overrides(config, {"learning_rate": 0.1}).learning_rate == 0.1
    moved = apply_overrides(config, {"learning_rate.end": 1e-4})
    assert moved.learning_rate == Linear(1e-3, 1e-4)
    points = [{"learning_rate.end": 0.0}, {"learning_rate.end": 1e-4}]
    (group,) = group_points(config, points)
    np.testing.assert_array_equal(
        group.overrides["learning_rate.end"], np.float32([0.0, 1e-4])
    )
    kinds = group_points(
        tiny_config(), [{"learning_rate": 1e-3}, {"learning_rate": "Cosine(1e-3)"}]
    )
    assert len(kinds) == 2


BAD = [
    ({"gamma": Linear(0.9, 1.1)}, "gamma must lie between 0 and 1"),
    ({"learning_rate": Linear(1e-3, -1e-3)}, "learning_rate must be 0 or greater"),
    ({"learning_rate": WarmUp(0.0, 1e-3)}, "learning_rate.fraction must be greater"),
    ({"entropy_coef": Linear(float("nan"))}, "entropy_coef.start must be finite"),
    ({"gamma": Piecewise((0.3, 0.2, 0.1), (0.7, 0.5))}, "gamma.changes must be shares"),
    ({"gamma": purerl.losses.ClipDrift()}, "gamma must be a number or a schedule"),
    ({"num_envs": Linear(2.0, 4.0)}, "num_envs must be a plain value"),
    ({"env_params": {"length": Linear(0.5, 1.0)}}, "length must be a number"),
]


@pytest.mark.parametrize(("changes", "words"), BAD)
def test_a_bad_schedule_gets_a_sentence(changes, words):
    with pytest.raises(ConfigError, match=words):
        purerl.make_train(tiny_config(**changes))


# What a network's outputs mean would be other returns with another range of atoms.
AT_THE_START = "it is read at the start of a run"
LEARNED = "what was learned means something else with another"
FIXED = [
    (purerl.SACConfig(), "temperature_init", AT_THE_START),
    (purerl.MPOConfig(), "multiplier_mean", AT_THE_START),
    (purerl.TabularConfig(), "initial_value", AT_THE_START),
    (purerl.DQNConfig(values="categorical", value_min=0.0), "value_max", LEARNED),
    (purerl.DiscoConfig(hidden_sizes=(4,), num_bins=5), "max_abs_value", LEARNED),
]


@pytest.mark.parametrize(("config", "name", "reason"), FIXED)
def test_a_number_that_cannot_move_is_refused_wherever_it_would(config, name, reason):
    moving = Linear(1.0, 0.5)
    pieces = purerl.ConfigSchedule((0, 1), ({name: 1.0}, {name: 0.5}))
    meta = {"strategy": "persistent-es", "truncation": 1, "fitness": "training_curve"}
    train, key = purerl.make_train(config), jax.random.key(0)
    for move in (
        lambda: jax.eval_shape(train, key, {name: moving}),
        lambda: purerl.make_train(config.replace(**{name: moving})),
        lambda: purerl.pbt(config, {name: purerl.uniform(0.5, 1.0)}),
        lambda: purerl.train_schedules(config, pieces),
        lambda: purerl.evolve(config, evolve=[name], **meta),
    ):
        with pytest.raises(ConfigError, match=f"{name} cannot .*: {reason}"):
            move()
    # One number for each whole run may be any.
    assert len(group_points(config, [{name: 50.0}, {name: 100.0}])) == 1

"""What can be evolved, and the vector as overrides."""

import jax
import numpy as np
import pytest

import purerl
from purerl import losses
from purerl.acting.environment import resolve_env
from purerl.config import ConfigError, apply_overrides
from purerl.meta.genome import Genome
from purerl.optimisers import Adam
from tests.helpers import assert_same_bits, tiny_config


def genome(evolve, **changes):
    config = tiny_config(**changes)
    return Genome(config, resolve_env(config), evolve)


def leaf_scales(found):
    return {leaf.name: leaf.scale for leaf in found.leaves}


def test_scales_follow_from_what_a_number_may_be():
    found = genome("learning_rate, gamma, entropy_coef, env_params.length, policy_loss")
    assert leaf_scales(found) == {
        "learning_rate": "log",
        "gamma": "logit",
        "entropy_coef": "log",
        "env_params.length": "log",
        "policy_loss.clip_eps": "log",
    }
    assert found.size == 5
    np.testing.assert_array_equal(found.start(), np.zeros(5))


def test_a_network_is_linear_and_starts_where_it_is():
    loss = losses.MLPValueLoss.create(jax.random.key(0), (3,), "pair")
    found = genome("value_loss", value_loss=loss)
    assert set(leaf_scales(found).values()) == {"linear"}
    assert found.size == 2 * 3 + 3 + 3 + 1
    assert_same_bits(found.solution(found.start())["value_loss"], loss)


def test_an_optimiser_is_its_weights_and_adams_numbers_but_not_the_clock():
    made = purerl.optimisers.LearnedOptimiser.make(3)
    found = genome("optimiser", optimiser=made)
    scales = [leaf.scale for leaf in found.leaves]
    assert scales == ["linear"] * 4 + ["logit", "logit", "log"]
    assert found.size == 9 * 3 + 3 + 3 * 2 + 2 + 3
    moved = found.solution(found.start() + 0.5)["optimiser"]
    assert moved.share == purerl.schedules.Share() and 0.9 < moved.b1 < 1
    np.testing.assert_allclose(moved.params[1][1], 0.5)


def test_a_scale_may_be_asked_for():
    found = genome(
        {"value_loss.alpha": "linear", "learning_rate": "auto"},
        value_loss=losses.RobustError(1.2, 1.0),
    )
    assert leaf_scales(found) == {"value_loss.alpha": "linear", "learning_rate": "log"}
    np.testing.assert_allclose(found.start(), [1.2, 0.0], rtol=1e-6)


def test_vectors_are_numbers_by_their_scales():
    found = genome(
        "learning_rate,gamma,policy_loss", policy_loss=losses.DPODrift(2.0, 0.6)
    )
    vectors = np.array([[0, 0, 0, 0], [np.log(2), 1.0, -1.0, 1.0]], np.float32)
    decoded = found.decode(vectors)
    # sigmoid(logit(0.99) + 1) = 1 / (1 + exp(-1) / 99)
    gamma = [0.99, 1 / (1 + np.exp(-1) / 99)]
    np.testing.assert_allclose(decoded["learning_rate"], [2.5e-4, 5e-4], rtol=1e-6)
    np.testing.assert_allclose(decoded["gamma"], gamma, rtol=1e-6)
    drift = decoded["policy_loss"]
    np.testing.assert_allclose(drift.alpha, [2.0, 2.0 / np.e], rtol=1e-6)
    np.testing.assert_allclose(drift.beta, [0.6, 0.6 * np.e], rtol=1e-6)


def test_numbers_far_out_stay_inside_of_what_a_config_takes():
    """Rounding would reach 0 and 1, and the evolution's result could not be read."""
    found = genome("gamma,learning_rate,optimiser.b2", optimiser=Adam(b2=0.999))
    for far in (-200.0, 20.0, 200.0):
        overrides = found.solution(np.full(3, far, np.float32))
        config = apply_overrides(tiny_config(optimiser=Adam()), overrides)
        assert 0 < config.optimiser.b2 < 1 and 0 < config.gamma < 1
        assert 0 < config.learning_rate < np.inf


def test_the_solution_is_what_a_config_takes():
    found = genome("env_params.length,policy_loss.clip_eps")
    vector = np.array([np.log(2.0), 0.0], np.float32)
    config = apply_overrides(tiny_config(), found.solution(vector))
    assert float(config.env_params["length"]) == pytest.approx(1.0)
    assert float(config.policy_loss.clip_eps) == pytest.approx(0.2)


def test_all_numbers_of_the_environment():
    names = set(genome("env_params").values)
    assert "env_params.length" in names and "env_params.gravity" in names
    assert "env_params.max_steps_in_episode" not in names  # a whole number


@pytest.mark.parametrize(
    ("evolve", "changes", "words"),
    [
        ("value_los", {}, "no field 'value_los'.*Did you mean 'value_loss'"),
        ("num_envs", {}, "num_envs is 2, which has no float leaves"),
        ("env_params.lenght", {}, "'lenght'.*Did you mean 'length'"),
        ("value_loss", {"value_loss": losses.SquaredError()}, "no float.*MLPValueLoss"),
        ("policy_loss,policy_loss.clip_eps", {}, "which is inside it"),
        ({"gamma": "linear"}, {}, "gamma has bounds.*use logit or auto"),
        ("entropy_coef", {"entropy_coef": 0.0}, "starts at 0.0.*a start above 0"),
    ],
)
def test_what_cannot_be_evolved(evolve, changes, words):
    with pytest.raises(ConfigError, match=words):
        genome(evolve, **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"population": 1}, "population must be at least 2"),
        ({"fitness": "return"}, "fitness must be one of training_curve"),
        ({"population": 5}, "refuses population=5"),
        ({"environments": [{"nume_envs": 3}]}, "nume_envs"),
        ({"baselines": 300.0}, "baselines must be a return .or a pair. for each"),
        pytest.param({"memory_limit": "1KB"}, "memory", marks=pytest.mark.slow),
    ],
)
def test_bad_settings_are_one_sentence(changes, words):
    with pytest.raises(ConfigError, match=words):
        purerl.evolve(tiny_config(), "gamma", progress=False, **changes)

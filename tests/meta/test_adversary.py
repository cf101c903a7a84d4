"""Evolution that helps and evolution that harms are mirror images."""

import numpy as np
import pytest

import purerl
from purerl.meta import fitness
from purerl.serialise import from_yaml
from tests.helpers import tiny_config
from tests.meta.conftest import evolve

pytestmark = pytest.mark.slow

FIELD = "env_params.channel"


def one_generation(kind, out=None):
    config = tiny_config(
        env="cheap-talk/CartPole-v1", env_kwargs={"size": 2, "hidden_size": 3}
    )
    return evolve(config, FIELD, fitness=kind, generations=1, out=out)


@pytest.fixture(scope="module")
def helped():
    return one_generation("training_curve")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("adversary") / "evolution"


@pytest.fixture(scope="module")
def harmed(folder):
    return one_generation("negative_training_curve", folder)


def test_an_adversary_goes_where_an_ally_comes_from(helped, harmed):
    ally, adversary = helped.history["fitness"][0], harmed.history["fitness"][0]
    assert len(set(ally)) == len(ally)  # Ties would be ranked by their places.
    np.testing.assert_array_equal(adversary, -ally)
    same = [evolution.history["returns"] for evolution in (helped, harmed)]
    np.testing.assert_array_equal(*same)
    assert np.abs(helped.vector).max() > 0.1  # It starts silent: all zeros.
    np.testing.assert_allclose(harmed.vector, -helped.vector, rtol=1e-4, atol=1e-6)


def test_a_learned_channel_comes_back_from_its_file(harmed, folder):
    channel = harmed.solution[FIELD]
    assert channel.weight_in.shape == (4, 3) and channel.weight_out.shape == (3, 2)
    read = from_yaml(folder / "learned.yaml")
    bound = purerl.acting.environment.bind_params(
        purerl.acting.environment.resolve_env(read), read.env_params
    )
    for name in ("weight_in", "bias_in", "weight_out", "bias_out"):
        np.testing.assert_allclose(
            getattr(bound.channel, name), getattr(channel, name), rtol=1e-6
        )


def test_kinds():
    assert "negative_evaluation" in fitness.KINDS
    config = tiny_config()
    assert fitness.inner_config(config, "negative_evaluation").num_evaluations == 1
    assert fitness.inner_config(config, "negative_final_return").num_evaluations == 0

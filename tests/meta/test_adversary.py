"""Evolution that helps and evolution that harms are mirror images."""

import numpy as np
import pytest

from tests.helpers import tiny_config
from tests.meta.conftest import evolve

FIELD = "env_params.channel"


def one_generation(kind):
    config = tiny_config(
        env="cheap-talk/CartPole-v1", env_kwargs={"size": 2, "hidden_size": 3}
    )
    return evolve(config, FIELD, fitness=kind, generations=1)


@pytest.mark.slow
def test_an_adversary_goes_where_an_ally_comes_from():
    kinds = ("training_curve", "negative_training_curve")
    helped, harmed = map(one_generation, kinds)
    ally, adversary = helped.history["fitness"][0], harmed.history["fitness"][0]
    assert len(set(ally)) == len(ally)  # Ties would be ranked by their places.
    np.testing.assert_array_equal(adversary, -ally)
    same = [evolution.history["returns"] for evolution in (helped, harmed)]
    np.testing.assert_array_equal(*same)
    assert np.abs(helped.vector).max() > 0.1  # It starts silent: all zeros.
    np.testing.assert_allclose(harmed.vector, -helped.vector, rtol=1e-4, atol=1e-6)

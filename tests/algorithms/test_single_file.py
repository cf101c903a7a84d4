"""PPO beside `examples/single_file_ppo.py`, which is written without this library."""

from functools import partial

import gymnax
import jax
import numpy as np
import pytest

import purerl
from tests.docs.pages import ROOT, load
from tests.helpers import assert_close

FILE = ROOT / "examples" / "single_file_ppo.py"
UPDATES = 6
# So short that time limits cut some episodes while the pole falls in others.
TIME_LIMIT = 40
# After updates of 16 gradient steps; the orders of sums differ.
CLOSE = {"rtol": 2e-4, "atol": 2e-5}


@pytest.fixture(scope="module")
def twin():
    return load(FILE)


def as_twins(layers):
    """The parameters of a network here as the file has them."""
    layers = layers["params"]
    first, second = (layers["torso"][f"Dense_{n}"] for n in (0, 1))
    last = layers["Dense_0"]
    return {"params": {"layers_0": first, "layers_2": second, "layers_4": last}}


@pytest.fixture(scope="module")
def trained(twin):
    """States and metrics of both after every update, from one key and one start."""
    # Large steps, so that ratios and values are clipped and the policy changes.
    fields = {"learning_rate": 1e-2, "total_timesteps": UPDATES * 512}
    config = twin.Config(time_limit=TIME_LIMIT, **fields)
    algorithm = purerl.make_algorithm(
        purerl.PPOConfig(
            env=gymnax.make("CartPole-v1")[0],
            env_params={"max_steps_in_episode": TIME_LIMIT},
            num_evaluations=0,
            **fields,
        )
    )
    key = jax.random.key(3)
    mine = jax.jit(algorithm.init)(key)
    theirs = jax.jit(partial(twin.init, config))(key)
    np.testing.assert_array_equal(theirs.obs, mine.envs.obs)
    theirs = theirs._replace(params=jax.tree.map(as_twins, mine.params, is_leaf=is_net))
    step, update = jax.jit(algorithm.step), jax.jit(partial(twin.update, config))
    rows = []
    for _ in range(UPDATES):
        (mine, my_metrics), (theirs, their_metrics) = step(mine), update(theirs)
        rows.append((mine, my_metrics, theirs, their_metrics))
    return rows


def is_net(tree):
    return "params" in tree


def test_both_play_the_same_episodes(trained):
    for mine, metrics, theirs, their_metrics in trained:
        np.testing.assert_allclose(theirs.obs, mine.envs.obs, **CLOSE)
        assert their_metrics["episodes"] == metrics["episodes"] > 10
        pair = their_metrics["episode_return"], metrics["episode_return"]
        np.testing.assert_allclose(*pair, rtol=1e-6)


def test_both_have_the_same_losses(trained):
    for _, metrics, _, their_metrics in trained:
        for name in ("policy_loss", "value_loss", "entropy"):
            np.testing.assert_allclose(their_metrics[name], metrics[name], **CLOSE)
    assert max(metrics["clip_fraction"] for _, metrics, _, _ in trained) > 0.1


def test_both_have_the_same_parameters(trained):
    for mine, _, theirs, _ in trained:
        expected = jax.tree.map(as_twins, mine.params, is_leaf=is_net)
        assert_close(theirs.params, expected, **CLOSE)


def test_it_learns(twin, capsys):
    score = twin.main(steps=10 * 512)
    out = capsys.readouterr().out
    assert out.count("mean return until") == 10 and 15 < score < 500


def test_it_knows_nothing_of_the_library():
    lines = FILE.read_text().splitlines()
    imports = [line for line in lines if line.startswith(("import", "from"))]
    assert not [line for line in imports if "purerl" in line]

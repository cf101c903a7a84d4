"""States that a run leaves on the host go wherever those on a device do."""

import jax
import numpy as np
import pytest

import purerl
from purerl.cli import results as exporting
from purerl.scale.host import HostKey, to_device, to_host
from tests.helpers import assert_same_bits, tiny_config

CONFIG = tiny_config(total_timesteps=2 * 32, num_evaluations=0)
LONGER = CONFIG.replace(total_timesteps=3 * 32)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The result of two agents, and what is read from their folder."""
    out = tmp_path_factory.mktemp("host") / "run"
    result = purerl.run(CONFIG, seeds=(3, 5), out=out, progress=False)
    return result, purerl.load_run(out)


@pytest.fixture(scope="module")
def states(run):
    """The final states of both, and those that were read."""
    return run[0].state, run[1].state


def one(state, index=1):
    return jax.tree.map(lambda x: x[index], state)


def test_one_agent_goes_to_the_device_as_several_do(states):
    state = states[0]
    assert isinstance(state.key, HostKey)
    alone, among = to_device(one(state)), one(to_device(state))
    assert jax.tree.structure(alone) == jax.tree.structure(among)
    assert alone.key.dtype == among.key.dtype and alone.update.shape == ()
    assert_same_bits(alone, among)
    again = to_device(alone)  # it is there
    assert all(
        x is y for x, y in zip(*map(jax.tree.leaves, (again, alone)), strict=True)
    )
    assert_same_bits(jax.tree.leaves(to_host(alone)), jax.tree.leaves(one(state)))


def test_the_memory_of_the_host_is_not_that_of_the_device():
    """A program may consume what it gets, and write into its memory."""
    mine = np.zeros(4096, np.float32)
    theirs = to_device({"x": mine})["x"]
    mine[:] = 1
    np.testing.assert_array_equal(theirs, np.zeros(4096))


@pytest.mark.parametrize("seed", [3, 5])
def test_a_run_has_the_policy_of_each_of_its_agents(run, seed):
    obs, key = np.array([0.1, -0.2, 0.3, 0.4]), jax.random.key(0)
    for result in run:
        agent = jax.tree.map(lambda x: x[(3, 5).index(seed)], to_device(result.state))
        mine, expected = result.policy(seed), purerl.make_policy(CONFIG, agent)
        assert mine(obs) == expected(obs)
        assert mine(obs, key) == expected(obs, key)


# More than any memory or address space holds; as a view of one number it takes nothing.
HUGE = 2**48


def test_one_of_many_agents_goes_to_the_device_without_the_others(
    run, monkeypatch, tmp_path
):
    saved = run[1]
    first = jax.tree.map(
        lambda x: np.broadcast_to(x[:1], (HUGE, *x.shape[1:])), saved.state
    )
    many = saved._replace(state=first, seeds=(3,))
    obs = np.array([0.1, -0.2, 0.3, 0.4])
    assert many.policy(3)(obs) == saved.policy(3)(obs)
    played = purerl.evaluate(many, episodes=2, gymnasium=True)
    alone = purerl.evaluate(saved, episodes=2, gymnasium=True)
    assert_same_bits(played.episode_return, alone.episode_return[:1])
    monkeypatch.setattr(exporting, "read_agents", lambda *args, **options: many)
    out = tmp_path / "exported"
    assert exporting.main_export([str(tmp_path), "--out", str(out)]) == 0
    assert (out / "policy.stablehlo").exists()


def test_a_policy_that_a_run_has_not_is_refused(run):
    for result in run:
        with pytest.raises(
            purerl.ConfigError, match=r"got 1; the run has seeds 3, 5\."
        ):
            result.policy(1)
    with pytest.raises(
        purerl.ConfigError, match=r"without its states; purerl\.load_run"
    ):
        run[0]._replace(state=None).policy(3)


def test_training_goes_on_from_an_agent_of_a_run(states):
    """It goes on as from the same state on the device, alone and side by side."""
    train, key = purerl.make_train(LONGER, first_update=2), jax.random.key(5)
    state = one(states[0])
    expected = jax.jit(train)(key, start=to_device(state))
    assert expected.metrics["env_steps"].tolist() == [3 * 32]
    assert_same_bits(jax.jit(train)(key, start=state), expected)
    both = jax.vmap(train, in_axes=(None, None, 0))
    keys, places = jax.eval_shape(both, key, None, states[0]).state.key, (2,)
    assert keys.shape == places and jax.dtypes.issubdtype(
        keys.dtype, jax.dtypes.prng_key
    )

"""States that a run leaves on the host go wherever those on a device do."""

from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest
from jax import export

import purerl
from purerl.cli import evaluate
from purerl.cli import export as exporting
from purerl.report import rendering
from purerl.scale.host import HostKey, to_device, to_host
from purerl.storage import checkpoint
from purerl.train import bind
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


def test_a_key_keeps_its_kind():
    keys = jax.random.split(jax.random.key(3, impl="rbg"), 2)
    assert_same_bits(to_device(one(to_host(keys))), keys[1])
    assert str(jax.random.key_impl(to_device(one(to_host(keys))))) == "rbg"


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


def repeated(x, shape):
    return np.broadcast_to(np.asarray(x).ravel()[0], shape)


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
    played = evaluate.play_gymnasium(many, 2, 0)
    alone = evaluate.play_gymnasium(saved, 2, 0)
    assert_same_bits(played, {name: x[:1] for name, x in alone.items()})
    monkeypatch.setattr(exporting, "load_run", lambda folder: many)
    out = tmp_path / "exported"
    assert exporting.main([str(tmp_path), "--out", str(out)]) == 0
    assert (out / "policy.stablehlo").exists()


def test_agents_play_without_what_they_only_learn_from(run):
    saved, bound = run[1], bind(CONFIG)
    drawing = rendering.drawing_of(bound.env)

    def play(agents):
        shown = rendering.play(agents, bound, drawing, episodes=2, steps=9, seed=0)
        return evaluate.play_compiled(agents, 2, 0, {}), shown

    unread = jax.tree.map(lambda x: repeated(x, (2, HUGE)), saved.state.envs)
    without = saved._replace(state=saved.state._replace(envs=unread))
    assert_same_bits(play(without), play(saved))


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


def test_the_policy_of_a_run_is_exported(states, tmp_path):
    obs = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    key = jax.random.key(7)
    for name, state in zip(("run", "folder"), states, strict=True):
        folder = purerl.export_policy(CONFIG, one(state), tmp_path / name, sampled=True)
        policy = purerl.make_policy(CONFIG, one(state))
        for file, inputs, expected in (
            ("policy", (), policy(obs)),
            ("sampled_policy", (jax.random.key_data(key),), policy(obs, key)),
        ):
            data = (folder / f"{file}.stablehlo").read_bytes()
            found = export.deserialize(bytearray(data)).call(obs, *inputs)
            np.testing.assert_array_equal(found, expected)
            assert len(set(np.asarray(found).tolist())) == 2


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


def test_what_is_no_state_is_refused_in_a_sentence():
    train = purerl.make_train(LONGER)
    with pytest.raises(
        purerl.ConfigError, match=r"start must be a training state, .*got str"
    ):
        jax.eval_shape(lambda key: train(key, start="runs/x"), jax.random.key(0))


def test_a_number_beside_a_replay_buffer_is_read_back():
    """Arrays of a field `buffer` may have more slots; what has none has no slots."""

    class State(NamedTuple):
        buffer: dict

    saved = State({"size": np.array([3, 4]), "items": np.ones((2, 5))})
    shapes = {"size": (), "items": (7,)}
    like = State(
        {n: jax.ShapeDtypeStruct(s, saved.buffer[n].dtype) for n, s in shapes.items()}
    )
    found = checkpoint.unflatten(checkpoint.flatten(saved), like, Path("run"))
    np.testing.assert_array_equal(found.buffer["size"], [3, 4])
    np.testing.assert_array_equal(found.buffer["items"], [[1] * 5 + [0] * 2] * 2)

"""Runs that begin with the agents of other runs."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import purerl
from purerl.runner.run import read_start
from purerl.scale.host import to_host
from purerl.storage import checkpoint
from purerl.train import bind, make_segment
from purerl.warm_start import networks_of
from tests.contracts.test_algorithms import small
from tests.helpers import StopAfter, slow_but

from .conftest import SEGMENT, assert_same_bits, run_tiny

STOPPED = 3 * SEGMENT
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def whole(tiny):
    return run_tiny(tiny, seeds=2)


@pytest.fixture(scope="module")
def stopped(tiny, tmp_path_factory):
    """The same two agents, stopped after nine updates."""
    out = tmp_path_factory.mktemp("start") / "stopped"
    run_tiny(tiny, seeds=2, out=out, trackers=[StopAfter(STOPPED)])
    return out


@pytest.fixture
def source(stopped, tmp_path):
    """A copy of that folder, for tests that change it."""
    return shutil.copytree(stopped, tmp_path / "source")


def start_of(folder):
    return json.loads((folder / "manifest.json").read_text())["start"]


@pytest.mark.parametrize("fraction", slow_but([0.5, 0.3], 0.3))
def test_an_agent_that_goes_on_does_not_explore_anew(tmp_path, fraction):
    """In the longer run epsilon was 0.525 from its first step on.

    With a share that is no default, extending was refused: the share of the longer run
    contradicted the steps that are kept.
    """
    changes = {"epsilon_end": 0.05, "epsilon_fraction": fraction, "num_evaluations": 0}
    config = small("dqn", total_timesteps=320, **changes)
    longer = config.replace(total_timesteps=1280)
    first = tmp_path / "first"
    run_tiny(config, seeds=1, out=first)
    calls = (
        {"out": first, "resume": True, "extend": True},
        {"out": first, "resume": True},
    )
    for options in calls:
        result = run_tiny(longer, seeds=1, **options)
        assert result.metrics["env_steps"][0, -1] == 1280
        np.testing.assert_allclose(result.metrics["epsilon"][0, -8:], 0.05, rtol=1e-5)
    state = jax.tree.map(lambda x: x[0], purerl.load(first).state)
    on = longer.replace(total_timesteps=1600, epsilon_fraction=0.5)
    with pytest.raises(purerl.ConfigError, match=r"epsilon_steps is auto .*resolve"):
        jax.eval_shape(lambda: purerl.make_train(on)(KEY, start=state))


def test_networks_alone_are_put_into_fresh_agents(tiny, stopped):
    saved, bound = purerl.load_run(stopped), bind(tiny)
    begun = read_start(purerl.Start(stopped, seed=1), bound, [5, 6])
    keys = jax.vmap(jax.random.key)(np.array([5, 6], np.uint32))
    fresh = to_host(jax.jit(jax.vmap(make_segment(bound).init))(keys))
    states = begun.put(fresh)
    for lane in range(2):
        taken = jax.tree.map(lambda x, i=lane: x[i], networks_of(states))
        assert_same_bits(taken, jax.tree.map(lambda x: x[1], networks_of(saved.state)))
    for field in ("opt_state", "envs", "key", "update"):
        assert_same_bits(getattr(states, field), getattr(fresh, field))
    torso = read_start(purerl.Start(stopped, "actor.torso"), bound, [0, 1]).put(fresh)
    networks, of_fresh = networks_of(torso), networks_of(fresh)
    for name, value in networks_of(saved.state).items():
        is_taken = name.startswith(("actor.torso", "obs_moments", "reward_scale"))
        assert_same_bits(networks[name], (value if is_taken else of_fresh[name]))


@pytest.mark.slow(optimised=False)
def test_a_run_from_networks_resumes_with_the_same_bits(tiny, whole, stopped, tmp_path):
    """From a checkpoint of its own, and where it was killed before the first one."""
    out = tmp_path / "run"
    options = {"seeds": 2, "out": out}
    begun = run_tiny(tiny, **options, start=stopped)
    assert begun.metrics["update"][0, -1] == 20
    assert not np.array_equal(begun.metrics["entropy"], whole.metrics["entropy"])
    about = {"update": STOPPED, "parts": "networks", "seeds": [0, 1]}
    assert start_of(out) == {"run": str(stopped), **about}
    shutil.rmtree(out / "checkpoints")
    (out / "summary.json").unlink()
    again = run_tiny(tiny, **options, resume=True)
    assert_same_bits(again.state, begun.state)
    assert_same_bits(again.metrics, begun.metrics)
    shutil.rmtree(out)
    run_tiny(tiny, **options, start=stopped, trackers=[StopAfter(2 * SEGMENT)])
    again = run_tiny(tiny, **options, start=stopped, resume=True)
    assert_same_bits(again.state, begun.state)


@pytest.mark.parametrize(
    ("start", "changes", "sentence"),
    [
        (
            lambda f: purerl.Start(f, seed=7),
            {},
            "no agent of seed 7; it has seeds 0 to 1",
        ),
        (
            lambda f: f,
            {"hidden_sizes": (16,)},
            r"start: actor\.Dense_0\.kernel is float32 \(8, 2\), and this agent needs "
            r"float32 \(16, 2\)",
        ),
        (lambda f: purerl.Start(f, "tail"), {}, "start: no array .* 'tail'"),
        (lambda f: purerl.Start(f, "all"), {}, "start: no array .* 'all'"),
        (lambda f: f / "nothing", {}, "there is no folder"),
        (lambda f: 3, {}, "start must be the folder of a run, or purerl.Start"),
    ],
)
def test_a_start_that_does_not_fit_is_refused_and_nothing_is_written(
    tiny, stopped, tmp_path, start, changes, sentence
):
    out, config = tmp_path / "run", tiny.replace(**changes)
    with pytest.raises(purerl.ConfigError, match=sentence):
        run_tiny(config, seeds=2, out=out, start=start(stopped))
    assert not out.exists()


@pytest.mark.parametrize("parts", ["networks", "critic"])
def test_agents_that_diverged_are_named(tiny, parts, stopped, monkeypatch):
    """Of two agents one is lost: with its seed it is refused, and without it is not."""
    restore = checkpoint.restore

    def restore_broken(folder):
        update, flat = restore(folder)
        name = next(n for n in flat if n.startswith(".params['critic']"))
        broken = flat[name].copy()
        broken[1] = np.nan
        return update, flat | {name: broken}

    monkeypatch.setattr(checkpoint, "restore", restore_broken)
    bound = bind(tiny)
    sentence = r"start: \.params\['critic'\]\S* holds numbers that are not finite"
    for start, seeds in [(None, [0, 1]), (1, [5, 6])]:
        with pytest.raises(purerl.ConfigError, match=sentence):
            read_start(purerl.Start(stopped, parts, start), bound, seeds)
    read_start(purerl.Start(stopped, parts, 0), bound, [5, 6])
    read_start(purerl.Start(stopped, parts), bound, [0])


def test_a_resumed_run_keeps_its_start(tiny, source, tmp_path):
    out = tmp_path / "run"
    run_tiny(tiny, seeds=2, out=out, start=source, trackers=[StopAfter(SEGMENT)])
    with pytest.raises(purerl.ConfigError, match="leave start out"):
        run_tiny(tiny, seeds=2, out=out, start=tmp_path, resume=True)
    with pytest.raises(purerl.ConfigError, match="leave start out"):
        other = purerl.Start(source, seed=1)
        run_tiny(tiny, seeds=2, out=out, start=other, resume=True)
    assert Path(
        json.loads((out / "manifest.json").read_text())["start"]["run"]
    ).is_absolute()
    # Killed before its first checkpoint, and the agents are others by now.
    shutil.rmtree(out / "checkpoints")
    run_tiny(tiny, seeds=2, out=source, resume=True)
    with pytest.raises(purerl.ConfigError, match="other agents now than when"):
        run_tiny(tiny, seeds=2, out=out, resume=True)

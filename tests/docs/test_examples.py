"""The examples run, small, print what they promise, and stay short."""

import subprocess
import sys
from unittest.mock import patch

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl.algorithms import ALGORITHMS
from purerl.train import bind
from tests.docs.pages import ROOT, load
from tests.helpers import eventually

FOLDER = ROOT / "examples"
ELSEWHERE = {"single_file_ppo"}  # in tests/algorithms/test_single_file.py


@pytest.fixture
def example(request):
    """The example after which a test is named."""
    name = request.function.__name__.removeprefix("test_")
    if name == "deploy":
        pytest.importorskip("jax2onnx", reason="an extra")
        pytest.importorskip("onnxruntime", reason="an extra")
    with patch.dict(ALGORITHMS):
        module = load(FOLDER / f"{name}.py")
        yield module
    del sys.modules[module.__name__]


def test_all_of_them_are_tested():
    there = {path.stem for path in FOLDER.glob("*.py")}
    assert ELSEWHERE < there
    assert {f"test_{name}" for name in there - ELSEWHERE} < set(globals())


def test_own_loop(example, capsys):
    size = {"num_envs": 2, "num_steps": 16, "num_minibatches": 2, "hidden_sizes": (4,)}
    state, metrics = example.main(steps=128, **size)
    config = purerl.PPOConfig(total_timesteps=128, num_evaluations=0, **size)
    whole = jax.jit(purerl.make_train(config))(jax.random.key(0))
    assert state.update == whole.state.update == 4
    params = state.params, whole.state.params
    chex.assert_trees_all_close(*params, rtol=1e-4, atol=1e-6)
    assert metrics["env_steps"] == 128
    said = capsys.readouterr().out
    assert "100 episodes, deterministic policy after update 4" in said


@pytest.mark.slow
def test_many_seeds(example, capsys):
    returns = np.sort(example.main(seeds=4, steps=4_096))
    rows = capsys.readouterr().out.splitlines()
    found = [float(row.split("IQM ")[1].split()[0]) for row in rows]
    # Of four values the interquartile mean is that of the two in the middle.
    np.testing.assert_allclose(found, returns[:, 1:3].mean(1), atol=0.051)


@pytest.mark.slow
def test_own_environment(example, tmp_path, capsys):
    scores = example.main(out=tmp_path)
    assert scores[0] == 50 and scores[2] < 40  # Nobody falls where there is no wind.
    assert capsys.readouterr().out.count("of 50 steps on the rope") == 3
    loaded = purerl.load(tmp_path / "calm")
    assert loaded.config.env == example.Rope()
    assert (purerl.evaluate(loaded).episode_return == 50).all()
    path = f"{example.__name__}:Rope(stride=0.4)"
    assert bind(purerl.PPOConfig(env=path)).env == example.Rope(0.4)


@pytest.mark.slow(optimised=False)
def test_own_algorithm(example, tmp_path, capsys):
    size = {"num_envs": 4, "num_steps": 16, "hidden_sizes": (4,)}
    purerl.check(example.ReinforceConfig(**size, total_timesteps=3 * 64))
    options = {**size, "env": "probe/action-reward"}
    sweep = example.main(steps=64 * 40, out=tmp_path / "sweep", **options)
    assert capsys.readouterr().out.count("0.01") >= 1
    # Action 1 is worth 1, action 0 -1: the greater step size alone has learned it.
    by_rate = sweep.scores("episode_return").sel
    assert by_rate(learning_rate=1e-2).min() > 0.5 > by_rate(learning_rate=1e-3).max()


@pytest.mark.slow
def test_deploy(example, tmp_path, capsys):
    size = {"hidden_sizes": (16,), "num_evaluations": 1}
    returns = example.main(steps=4_096, episodes=3, out=tmp_path / "run", **size)
    # The same episodes as purerl's own policy plays there.
    result = purerl.load(tmp_path / "run")
    played = purerl.evaluate(result, episodes=3, gymnasium=True, episode_seed=0)
    best = result.scores().argmax()
    assert sorted(returns) == sorted(played.episode_return[best])
    assert len(list((tmp_path / "run").glob("*.gif"))) == 1
    assert "return in Gymnasium" in capsys.readouterr().out


@pytest.mark.slow
def test_own_loss(example, capsys):
    moved = example.main(updates=4)
    assert np.all(np.diff(moved) < 0)  # the larger beta, the nearer the policy stays
    assert capsys.readouterr().out.count("KL per update") == 3
    at_one = jnp.zeros(3)
    np.testing.assert_array_equal(example.KLDrift(2.0)(at_one, at_one), 0.0)


@pytest.mark.slow
def test_own_term(example, capsys):
    swept, error = example.main(updates=4)
    distance = np.asarray(swept["near_policies"].mean(1))
    assert distance[-1] < 0.5 * distance[0]  # the larger the coefficient, the nearer
    assert error[-1] < error[0]
    assert capsys.readouterr().out.count("coefficient") == 4


KILLED = """
from tests.docs.pages import ROOT, load
own_fitness = load(ROOT / "examples" / "own_fitness.py")
own_fitness.main(steps=2_048, population=2, generations=9, out={!r})
"""


@pytest.mark.slow
def test_own_fitness(example, tmp_path, capsys):
    out = tmp_path / "steady"
    words = [sys.executable, "-c", KILLED.format(str(out))]
    child = subprocess.Popen(words, cwd=ROOT)
    checkpoints = out / "checkpoints"
    eventually(lambda: checkpoints.exists() and any(checkpoints.iterdir()), True, 300)
    child.kill()
    child.wait()
    size = {"steps": 2_048, "population": 2, "generations": 9}
    result = example.main(**size, out=out)
    assert result.summary["generations_run"] < 9
    assert result.settings["fitness"] == f"{example.__name__}:steady"
    assert capsys.readouterr().out.count("became") == 2
    whole = example.main(**size, out=tmp_path / "whole")
    for name in ("fitness", "returns", "sigma"):
        np.testing.assert_array_equal(result.history[name], whole.history[name])


@pytest.mark.slow
def test_own_metric(example, tmp_path, capsys):
    run = example.main(steps=8_192, out=tmp_path / "run", progress=False)
    paid, returns = run.metrics["shaped_return"], run.metrics["episode_return"]
    np.testing.assert_allclose(paid, 0.1 * returns, rtol=1e-4)
    assert (returns[:, -1] < -100).all()
    read = purerl.load(tmp_path / "run").metrics
    assert ((read["torque.mean"] > 0) & (read["torque.mean"] < 1)).all()
    assert len(capsys.readouterr().out.splitlines()) == 4


@pytest.mark.slow
def test_figure(example, tmp_path, capsys):
    size = {"steps": 4_096, "seeds": 2, "out": str(tmp_path), "progress": False}
    frame = example.main(**size)
    assert set(frame["algorithm"]) == {"PPO", "DQN"} and set(frame["seed"]) == {0, 1}
    assert (tmp_path / "curves.pdf").read_bytes().startswith(b"%PDF")
    out = capsys.readouterr().out
    assert "Figure 1. CartPole-v1: interquartile mean of the seeds" in out
    assert "True" in out  # The config that is read is the config.
    assert example.main(**size).equals(frame)  # Nothing is trained again.


@pytest.mark.slow
def test_own_search(example, tmp_path, capsys):
    example.AGENTS, example.REQUESTS = 2, 4
    found = example.main(steps=2_048, out=tmp_path / "search", progress=False)
    best = [step.after.best for step in found.steps]
    assert best == sorted(best) and best[-1] > 0
    assert capsys.readouterr().out.count("learning_rate=") == 1
    again = example.main(steps=2_048, out=tmp_path / "search", progress=False)
    assert again.numbers == {"trained_requests": 0}


@pytest.mark.slow(optimised=False)
def test_self_tuning(example, capsys):
    found = example.main(steps=8_192, seeds=2)
    assert set(found) == set(example.NAMES)
    assert found["learning_rate"] > 1.1e-4  # it began too small
    out = capsys.readouterr().out
    assert out.count("updates: learning_rate") == 5
    assert "tuned by itself: return" in out and "fixed: return" in out


@pytest.mark.slow
def test_level_replay(example, capsys):
    solved = example.main(steps=16_000)
    assert len(solved) == 2 and all(0 <= share <= 1 for share in solved)
    out = capsys.readouterr().out
    assert "  0% of updates replay levels" in out and out.count("mazes solved") == 2
    maze = "".join(out.split("highest score:")[1].split())
    assert len(maze) == 49 and set(maze) <= set("SG.#")
    assert maze.count("S") == maze.count("G") == 1

"""The examples run, small, print what they promise, and stay short."""

import importlib.util
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from tests.docs.pages import ROOT

FOLDER = ROOT / "examples"
NAMES = (
    *("train", "sweep", "own_environment", "own_loss", "own_search", "evolve"),
    *("own_fitness", "own_metric", "self_tuning", "level_replay", "single_file_ppo"),
)


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look up their module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def example(request):
    module = load(f"{request.param}.py")
    yield module
    del sys.modules[module.__name__]


def of(name):
    return pytest.mark.parametrize("example", [name], indirect=True)


def test_all_of_them_are_tested():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(NAMES)


@of("train")
def test_train(example, capsys):
    score = example.main(steps=2_048, seeds=2)
    assert 5 < score <= 500
    out = capsys.readouterr().out
    assert "the score of each seed" in out and "when the pole falls right" in out


@pytest.mark.slow
@of("sweep")
def test_sweep(example, capsys):
    best = example.main(steps=2_048, seeds=2)
    assert set(best) == {"learning_rate", "gamma"}
    out = capsys.readouterr().out
    assert out.count("range of 2") == 6


@pytest.mark.slow
@of("own_environment")
def test_own_environment(example, capsys):
    example.main(steps=2_048)
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 3 and all("of 50 steps on the rope" in row for row in rows)


@pytest.mark.slow
@of("own_loss")
def test_own_loss(example, capsys):
    moved = example.main(updates=4)
    assert np.all(np.diff(moved) < 0)  # the larger beta, the nearer the policy stays
    assert capsys.readouterr().out.count("KL per update") == 3
    at_one = jnp.zeros(3)
    np.testing.assert_array_equal(example.KLDrift(2.0)(at_one, at_one), 0.0)


@pytest.mark.slow
@of("evolve")
def test_evolve(example, capsys):
    found = example.main(generations=2, population=4, steps=1_024)
    assert set(found) == {"learning_rate", "entropy_coef"}
    assert found["learning_rate"] > 0
    assert capsys.readouterr().out.count("generation") == 2


@pytest.mark.slow
@of("own_fitness")
def test_own_fitness(example, tmp_path, capsys):
    size = {"steps": 2_048, "population": 2, "out": tmp_path / "steady"}
    example.main(**size, generations=1)
    result = example.main(**size, generations=2)
    assert result.summary["generations_run"] == 1
    assert result.settings["fitness"] == f"{example.__name__}:steady"
    assert capsys.readouterr().out.count("best") == 2


@pytest.mark.slow
@of("own_metric")
def test_own_metric(example, tmp_path, capsys):
    run = example.main(steps=8_192, out=tmp_path / "run", progress=False)
    paid, returns = run.metrics["shaped_return"], run.metrics["episode_return"]
    np.testing.assert_allclose(paid, 0.1 * returns, rtol=1e-4)
    assert (returns[:, -1] < -100).all()
    read = purerl.load(tmp_path / "run").metrics
    assert ((read["torque.mean"] > 0) & (read["torque.mean"] < 1)).all()
    assert len(capsys.readouterr().out.splitlines()) == 4


@of("own_search")
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
@of("self_tuning")
def test_self_tuning(example, capsys):
    found = example.main(steps=8_192, seeds=2)
    assert set(found) == set(example.NAMES)
    assert found["learning_rate"] > 1.1e-4  # it began too small
    out = capsys.readouterr().out
    assert out.count("updates: learning_rate") == 5
    assert "tuned by itself: return" in out and "fixed: return" in out


@pytest.mark.slow
@of("level_replay")
def test_level_replay(example, capsys):
    solved = example.main(steps=16_000)
    assert len(solved) == 2 and all(0 <= share <= 1 for share in solved)
    out = capsys.readouterr().out
    assert "  0% of updates replay levels" in out and out.count("mazes solved") == 2
    maze = "".join(out.split("highest score:")[1].split())
    assert len(maze) == 49 and set(maze) <= set("SG.#")
    assert maze.count("S") == maze.count("G") == 1

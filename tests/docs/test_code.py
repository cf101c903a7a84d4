"""The Python of the pages runs as it stands, top to bottom, and does what they say."""

import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from PIL import Image

import purerl
from purerl.envs.adapters.brax import brax_envs
from purerl.meta.setup import EvolveOptions, make_setup
from purerl.report.drawing import registry
from purerl.train import bind
from tests.docs import pages
from tests.helpers import assert_same_bits

DOCS = pages.ROOT / "docs"
PLAIN = (
    *("index", "comparing", "devices", "evaluating", "exporting", "getting-started"),
    *("sweeps", "training", "tuning", "warm-starts", "tracking", "spaces"),
    *(f"coming-from/{name}" for name in ("purejaxrl", "rejax", "stable-baselines3")),
    *(f"algorithms/{name.replace('_', '-')}" for name in pages.ALGORITHMS),
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """What pages write, they write here; what they register is gone afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr(registry, "_DRAWINGS", dict(registry._DRAWINGS))
    monkeypatch.setattr(brax_envs, "_envs", dict(brax_envs._envs))
    known = dict(purerl.envs.wrappers.WRAPPERS)
    monkeypatch.setattr("purerl.envs.wrappers.registry.WRAPPERS", known)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("page", [pages.ROOT / "README.md", *PLAIN], ids=str)
def test_the_python_of_a_page_runs(page, here):
    path = DOCS / f"{page}.md" if isinstance(page, str) else page
    assert any(block.language == "python" for block in pages.blocks(path))
    pages.run(path)


def test_networks(capsys):
    names = pages.run(DOCS / "networks.md")
    torso = names["result"].state.params["actor"]["params"]["torso"]["module"]
    assert torso["Dense_0"]["kernel"].shape == (4, 16)
    out = capsys.readouterr().out
    assert "must map inputs (3, 4) to float32 (3,) (one value per observation)" in out
    assert "type: networks:Fourier\n  features: 16\n  scale: 1.0\n" in out
    assert names["own"].critic.size == 32


def test_cheap_talk(monkeypatch):
    """Its evolutions are checked, not trained."""
    asked = []

    def setup(*args, **options):
        asked.append(make_setup(EvolveOptions(*args, **options)))
        return asked[-1]

    monkeypatch.setattr(purerl, "evolve", setup)
    names = pages.run(DOCS / "cheap-talk.md")
    assert names["obs"].shape == (6,) and (names["obs"][4:] != 0).all()
    assert [made.optimiser.genome.size for made in asked] == [114, 114]
    kinds = [made.asked.fitness for made in asked]
    assert kinds == ["training_curve", "negative_training_curve"]


@pytest.mark.slow
def test_memories(capsys):
    names = pages.run(DOCS / "memories.md")
    core = names["result"].state.params["core"]["params"]
    assert core["memory"]["Dense_0"]["kernel"].shape == (128, 8)
    assert capsys.readouterr().out == "16\n"
    # The mean of what an episode has seen so far, from its beginning on.
    average = names["Average"](1)
    inputs = np.array([[[2.0]], [[4.0]], [[7.0]]])
    resets = np.array([[False], [False], [True]])
    params = {"params": {"Dense_0": {"kernel": np.ones((1, 1)), "bias": np.zeros(1)}}}
    found = average.apply(params, average.initial((1,)), inputs, resets)
    np.testing.assert_allclose(found[1][:, 0, 0], [2.0, 3.0, 7.0])


@pytest.mark.slow
def test_gymnasium():
    # With its title, because a module of the page's name would hide the package.
    left = pages.run(DOCS / "gymnasium.md", "Train in Gymnasium's environments")
    assert left["result"].finished
    # Four observations of four numbers each.
    env = bind(left["stacked"], on_host=True).env
    assert env.observation_space().shape == (4, 4)


@pytest.mark.slow
def test_videos(here, capsys):
    names = pages.run(DOCS / "videos.md")
    pole = names["draw_pole"](SimpleNamespace(x=0.0, theta=0.0), None)
    assert (pole[:, 160] != 255).any() and (pole[:, 20] == 255).all()
    assert "video.gif" in capsys.readouterr().out
    with Image.open("runs/example/own.gif") as image:
        assert image.size == (640, 284)


@pytest.mark.slow
def test_opponent_shaping():
    names = pages.run(DOCS / "opponent-shaping.md")
    naive, defecting = names["naive"].payoffs, names["defecting"].payoffs
    assert np.isclose(naive.agent[:, -1].mean(), -2, atol=0.1)
    assert np.isclose(defecting.agent[:, 0].mean(), -1, atol=0.15)
    assert np.isclose(defecting.agent[:, -1].mean(), -2, atol=0.02)


@pytest.mark.slow
def test_population(here):
    names = pages.run(DOCS / "population.md")
    assert names["again"].score.shape == (1, 4)
    # Brackets of nine, five and three members; the best third goes on.
    trained = names["result"].dataset.trained_updates.values
    assert [b.size for b in names["result"].plan.brackets] == [9, 5, 3]
    assert np.array_equal((trained >= 12).sum(1), [11, 11])


@pytest.mark.slow
def test_evolution(here):
    names = pages.run(DOCS / "evolution.md")
    found = names["comparison"]
    assert found.environments == ("CartPole-v1", "Acrobot-v1")
    assert found.baseline == "squared" and len(found.settings) == 5
    loss = purerl.load_loss(here / "runs/my-evolution/value_loss.npz")
    assert type(loss) is type(names["learned"].value_loss)
    assert (here / "runs/my-evolution/transfer/comparison.csv").exists()


@pytest.mark.slow(optimised=False)
def test_meta_gradients():
    names = pages.run(DOCS / "meta-gradients.md")
    found = jax.jit(names["sharp"])(names["state"])
    assert float(found.gradient["entropy_coef"]) < 0
    assert names["result"].course["learning_rate"].shape == (32,)
    learned = jax.tree.leaves(names["learned"])
    assert np.abs(learned[1]).max() > 0  # the last kernel began at zero


@pytest.mark.slow
def test_optimisers(here):
    names = pages.run(DOCS / "optimisers.md")
    learned, adam = map(float, names["policies"])
    assert learned == pytest.approx(adam, rel=1e-4)
    assert_same_bits(names["again"], names["learned"])
    divergence = names["result"].metrics["approx_kl"][:, -1]
    assert divergence[1] > divergence[0] > 0
    # With one gradient in an update, the layers' norms make that of all of them.
    one = names["watched"].replace(num_epochs=1, num_minibatches=1)
    train = purerl.make_train(one)
    metrics = jax.jit(train)(jax.random.key(0)).metrics
    layers = [x for name, x in metrics.items() if name.startswith("norm.")]
    assert len(layers) == 12  # Actor and critic: three kernels and biases each.
    whole = np.sqrt(np.square(layers).sum(0))
    np.testing.assert_allclose(whole, metrics["grad_norm"], rtol=1e-5)


@pytest.mark.slow
def test_environments(here):
    names = pages.run(DOCS / "environments.md")
    assert purerl.resolve(names["own"]).env_kwargs == {"backend": "spring"}
    assert bool(names["truncated"]) and not bool(names["terminated"])
    metrics, played = names["trained"].metrics, names["trained"].evaluation
    assert metrics["shaped_return"][-1] < metrics["episode_return"][-1]
    np.testing.assert_array_equal(played["episode_return"], played["episode_length"])
    names = pages.run(DOCS / "randomisation.md")
    longest = np.asarray(names["result"].state.envs.state.drawn["length"]).max(-1)
    assert longest[0] == np.float32(0.4) < longest[1] < longest[2]
    names = pages.run(DOCS / "suites.md")
    assert names["in_grids"].metrics["episode_return"].shape == (3, 4)


@pytest.mark.slow
def test_curricula():
    names = pages.run(DOCS / "curricula.md")
    assert 0.8 < names["is_solvable"].mean() < 1
    buffer = names["result"].state.level_buffer
    goals = np.asarray(buffer.levels.goal)[: int(buffer.size)]
    assert goals.min() >= 1 and goals.max() <= 8
    assert names["pieces"].train["episode_return"].shape == (1, 2, 3)


def test_the_results_of_plr_are_the_means_that_were_kept():
    results = pages.ROOT / "experiments" / "results" / "level-replay.json"
    scores = json.loads(results.read_text())["scores"]
    page = (DOCS / "results" / "methods.md").read_text()
    _, section = page.split('<a id="plr"></a>')
    lines = section.split("\n## ")[0].splitlines()
    rows = [[x.strip() for x in x.split("|")[1:-1]] for x in lines if "0." in x]
    told = [[cell.split()[0] for cell in row[2:]] for row in rows if len(row) == 6]
    assert told == [
        [f"{np.mean(values):.3f}" for values in of_setting.values()]
        for of_setting in scores.values()
    ]

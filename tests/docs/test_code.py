"""The Python of the pages runs as it stands, top to bottom, and does what they say."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from PIL import Image

import purerl
from purerl.envs.adapters.brax import brax_envs
from purerl.meta.setup import EvolveOptions, make_setup
from purerl.report import drawing
from purerl.train import bind
from tests.docs import pages
from tests.helpers import assert_same_bits

DOCS = pages.ROOT / "docs"
PLAIN = (
    *("index", "comparing", "devices", "evaluating", "exporting", "getting-started"),
    *("sweeps", "training", "tuning", "warm-starts", "tracking", "spaces"),
    *("memories", "population", "curricula"),
    *(f"coming-from/{name}" for name in ("purejaxrl", "rejax", "stable-baselines3")),
    *(f"algorithms/{name.replace('_', '-')}" for name in pages.ALGORITHMS),
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """What pages write, they write here; what they register is gone afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr(drawing, "_DRAWINGS", dict(drawing._DRAWINGS))
    monkeypatch.setattr(brax_envs, "_envs", dict(brax_envs._envs))
    known = dict(purerl.envs.wrappers.WRAPPERS)
    monkeypatch.setattr("purerl.envs.wrappers.WRAPPERS", known)
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

"""The pages on wrappers, older environments, drawn parameters and suites: they run."""

import importlib.util

import numpy as np
import pytest

import purerl
from purerl import envs
from purerl.envs.adapters.brax import brax_envs
from purerl.randomisation import Choice, LogUniform, Uniform

from .pages import ROOT, run

DOCS = ROOT / "docs"
WRAPPERS = tuple(envs.wrappers.WRAPPERS)  # As they come with purerl.


@pytest.mark.slow
def test_the_pages_code_runs(monkeypatch):
    known = dict(envs.wrappers.WRAPPERS)
    monkeypatch.setattr("purerl.envs.wrappers.registry.WRAPPERS", known)
    monkeypatch.setattr(brax_envs, "_envs", dict(brax_envs._envs))
    names = run(DOCS / "environments.md")
    assert purerl.resolve(names["own"]).env_kwargs == {"backend": "spring"}
    assert bool(names["truncated"]) and not bool(names["terminated"])
    shaped, bare = names["trained"].evaluation, names["trained"].observed
    assert (shaped["episode_return"] < shaped["episode_length"]).all()
    np.testing.assert_array_equal(bare.episode_return, bare.episode_length)
    assert bare.episode_return.shape == shaped["episode_return"].shape


@pytest.mark.slow
def test_parameters_are_drawn_as_the_page_says():
    names = run(DOCS / "randomisation.md")
    longest = np.asarray(names["result"].state.envs.state.drawn["length"]).max(-1)
    assert longest[0] == np.float32(0.4) < longest[1] < longest[2]
    assert names["played"].episode_return.shape == (4,)


@pytest.mark.slow
def test_the_grids_of_a_population_are_drawn():
    names = run(DOCS / "suites.md")
    assert names["in_grids"].metrics["episode_return"].shape == (3, 4)


@pytest.mark.slow
def test_the_table_from_the_registry_has_every_environment():
    path = DOCS / "hooks" / "environment_table.py"
    spec = importlib.util.spec_from_file_location("environment_table", path)
    assert spec is not None and spec.loader is not None
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    assert table.MARKER in (DOCS / "suites.md").read_text()
    shown = table.render()
    for name in envs.registered():
        assert f"| `{name}` |" in shown, name
    assert "| `CartPole-v1` | 4 numbers | `Discrete(2)` |" in shown


def test_the_pages_tables_have_every_part():
    drawn = tuple(kind.__name__ for kind in (Uniform, LogUniform, Choice))
    for page, names in (("environments", WRAPPERS), ("randomisation", drawn)):
        text = (DOCS / f"{page}.md").read_text()
        for name in names:
            assert f"| `{name}(" in text, name

"""The page on wrappers, older environments and drawn parameters: its code runs."""

import numpy as np
import pytest

import purerl
from purerl import envs
from purerl.envs.adapters.brax import brax_envs
from purerl.randomisation import Choice, LogUniform, Uniform

from .pages import ROOT, run

PAGE = ROOT / "docs" / "environments.md"
WRAPPERS = tuple(envs.wrappers.WRAPPERS)  # As they come with purerl.


@pytest.mark.slow
def test_the_pages_code_runs(monkeypatch):
    known = dict(envs.wrappers.WRAPPERS)
    monkeypatch.setattr("purerl.envs.wrappers.registry.WRAPPERS", known)
    monkeypatch.setattr(brax_envs, "_envs", dict(brax_envs._envs))
    names = run(PAGE)
    assert purerl.resolve(names["own"]).env_kwargs == {"backend": "spring"}
    assert bool(names["truncated"]) and not bool(names["terminated"])
    longest = np.asarray(names["result"].state.envs.state.drawn["length"]).max(-1)
    assert longest[0] == np.float32(0.4) < longest[1] < longest[2]
    assert names["played"].episode_return.shape == (4,)
    shaped, bare = names["trained"].evaluation, names["trained"].observed
    assert (shaped["episode_return"] < shaped["episode_length"]).all()
    np.testing.assert_array_equal(bare.episode_return, bare.episode_length)
    assert bare.episode_return.shape == shaped["episode_return"].shape


def test_the_pages_tables_have_every_part():
    text = PAGE.read_text()
    for name in (*WRAPPERS, *(c.__name__ for c in (Uniform, LogUniform, Choice))):
        assert f"| `{name}(" in text, name

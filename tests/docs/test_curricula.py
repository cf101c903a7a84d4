"""The page on levels and curricula: its code runs, and its table has the defaults."""

import dataclasses

import numpy as np
import pytest

from purerl.algorithms.ppo import PPOConfig
from purerl.curriculum import PLRConfig
from tests.docs.pages import ROOT, run

PAGE = ROOT / "docs" / "curricula.md"


@pytest.mark.slow
def test_the_pages_code_runs():
    names = run(PAGE)
    assert 0.8 < names["is_solvable"].mean() < 1
    assert names["best"].max() <= 1
    buffer = names["result"].state.level_buffer
    goals = np.asarray(buffer.levels.goal)[: int(buffer.size)]
    assert goals.min() >= 1 and goals.max() <= 8


def test_the_table_has_the_fields_and_their_defaults():
    text = PAGE.read_text()
    inherited = {field.name for field in dataclasses.fields(PPOConfig)}
    fields = [f for f in dataclasses.fields(PLRConfig) if f.name not in inherited]
    assert len(fields) == 7
    for name, default in [(f.name, f.default) for f in fields] + [("num_steps", 256)]:
        shown = f"`{default}`" if isinstance(default, str) else str(default)
        assert f"| `{name}` | {shown} |" in text, name

"""The page on cheap talk: its code runs; its evolutions are checked, not trained."""

import purerl
from purerl.meta.setup import EvolveOptions, make_setup

from .pages import ROOT, run


def test_the_pages_code_runs(monkeypatch):
    asked = []

    def setup(*args, **options):
        made = make_setup(EvolveOptions(*args, **options))
        asked.append(made)
        return made

    monkeypatch.setattr(purerl, "evolve", setup)
    names = run(ROOT / "docs" / "cheap-talk.md")
    assert names["obs"].shape == (6,) and (names["obs"][4:] != 0).all()
    assert [made.optimiser.genome.size for made in asked] == [114, 114]
    assert [made.asked.fitness for made in asked] == [
        "training_curve",
        "negative_training_curve",
    ]

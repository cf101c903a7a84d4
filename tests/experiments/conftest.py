"""Scripts of experiments find one another by their folders, as when they are run."""

import sys

from tests.docs.pages import ROOT

FOLDER = ROOT / "experiments"
sys.path[:0] = [str(FOLDER / name) for name in ("studies", "benchmarks", "")]

"""The page on the design shows the tested layers, and names every folder and file."""

import itertools
import re
import xml.etree.ElementTree as ElementTree

from tests.docs import pages
from tests.test_architecture import LAYERS

PAGE = (pages.ROOT / "docs" / "design.md").read_text()


def _check_order(rows):
    """Rows of names from the top to the bottom are those of the tested layers."""
    height = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    named = list(itertools.chain(*rows))
    assert sorted(named) == sorted(height)
    heights = [sorted(height[name] for name in row) for row in rows]
    for above, below in itertools.pairwise(heights):
        assert above[0] > below[-1], (above, below)


def test_the_picture_of_the_layers_is_the_tested_table():
    root = ElementTree.parse(pages.ROOT / "docs" / "images" / "layers.svg").getroot()
    rows = [each.get("data-layer", "").split() for each in root]
    _check_order([row for row in rows if row])
    text = " ".join(root.itertext())
    for name in ("DiscoRL", "LPG", "tabular", "bandit", "recurrent PPO, DQN and PQN"):
        assert name in text, name


def test_every_folder_and_every_file_at_the_top_is_in_the_tree():
    tree = PAGE.split("### The folders\n")[1].split("```")[1]
    # What one entry says, with its further lines.
    entries = re.split(r"\n(?=  \S)", tree)
    top = pages.ROOT / "purerl"
    for path in sorted(top.rglob("*")):
        if path.is_dir() and not path.is_symlink() and list(path.glob("*.py")):
            first, *inside = path.relative_to(top).parts
            found = [each for each in entries if each.startswith(f"  {first}/ ")]
            assert len(found) == 1, first
            assert all(re.search(rf"\b{name}\b", found[0]) for name in inside), path
    for path in sorted(top.glob("[a-z]*.py")):
        assert re.search(rf"\b{path.stem}\b", tree), path

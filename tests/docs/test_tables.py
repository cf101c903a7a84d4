"""Tables of environments, wrappers, distributions and optimisers have every part."""

import pytest

import purerl
from purerl import envs
from purerl.randomisation import Choice, LogUniform, Uniform
from tests.docs.pages import ROOT, load

DOCS = ROOT / "docs"
DRAWN = tuple(kind.__name__ for kind in (Uniform, LogUniform, Choice))
# As they come with purerl: tests of pages register further ones.
PARTS = [
    ("environments", tuple(f"{name}(" for name in envs.wrappers.WRAPPERS)),
    ("randomisation", tuple(f"{name}(" for name in DRAWN)),
    ("optimisers", (*purerl.optimisers.OPTIMISERS, *purerl.schedules.SCHEDULES)),
]


@pytest.mark.slow
def test_the_table_from_the_registry_has_every_environment():
    table = load(DOCS / "hooks" / "environment_table.py")
    assert table.MARKER in (DOCS / "suites.md").read_text()
    shown = table.render()
    for name in envs.registered():
        assert f"| `{name}` |" in shown, name
    assert "| `CartPole-v1` | 4 numbers | `Discrete(2)` |" in shown


@pytest.mark.parametrize(("page", "names"), PARTS)
def test_the_tables_of_a_page_have_every_part(page, names):
    text = (DOCS / f"{page}.md").read_text()
    for name in names:
        assert f"| `{name}" in text, name

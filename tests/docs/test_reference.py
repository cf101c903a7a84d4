"""Pages of the API and tables: every public name, every part, the real defaults."""

import dataclasses
import inspect
import pkgutil
import re

import pytest

import purerl
from purerl import algorithms, envs
from purerl.algorithms import config_class
from purerl.config import TrainConfig
from purerl.randomisation import Choice, LogUniform, Uniform
from tests.docs.pages import ALGORITHMS as NAMES
from tests.docs.pages import ROOT, load

DOCS = ROOT / "docs"

ENTRY = re.compile(r"^::: (\S+)$", re.MULTILINE)
SHOWN = {
    name
    for path in (DOCS / "api").glob("*.md")
    for name in ENTRY.findall(path.read_text())
}
PUBLIC = re.findall(r" as (\w+)", (ROOT / "purerl/__init__.pyi").read_text())


def test_every_public_name_is_on_a_page():
    """But for modules, and for configs, which have pages of their own."""
    missing = [
        name
        for name, value in ((name, getattr(purerl, name)) for name in PUBLIC)
        if f"purerl.{name}" not in SHOWN
        and not inspect.ismodule(value)
        and not (inspect.isclass(value) and issubclass(value, TrainConfig))
    ]
    assert missing == []
    for name in SHOWN:
        pkgutil.resolve_name(name)


# Tables

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


# Fields and metrics of algorithms

config_tables = load(DOCS / "hooks" / "config_tables.py")


@pytest.mark.parametrize("name", NAMES)
def test_every_field_is_told_with_its_default_and_origin(name):
    rows = config_tables.fields_of(name)
    fields = dataclasses.fields(config_class(name))
    assert [row.name for row in rows] == [field.name for field in fields]
    assert all(row.meaning and row.origin for row in rows)
    page = DOCS / "algorithms" / f"{name.replace('_', '-')}.md"
    assert f"<!-- fields: {name} -->" in page.read_text()
    assert f"<!-- metrics: {name} -->" in page.read_text()


DEFAULTS = [
    ("ppo", "num_steps", "`auto`: `128` (discrete), `512` (continuous)"),
    ("ppo", "learning_rate", "`0.00025`"),
    ("plr", "entropy_coef", "`auto`: `0.01`"),
    ("plr", "buffer_size", "`4,000`"),
]


@pytest.mark.parametrize(("name", "field", "default"), DEFAULTS)
def test_a_default_is_written_as_it_stands_for(name, field, default):
    shown = {row.name: row.default for row in config_tables.fields_of(name)}
    assert shown[field] == default


def test_every_metric_has_a_meaning():
    table = config_tables.render_metrics("vpg")
    assert "| `value_loss` | Loss of the critic before its fit |" in table
    assert "episode_return" not in table
    assert "`episode_return`" in config_tables.render_metrics("shared")


def test_every_algorithm_has_a_page():
    assert set(NAMES) <= set(algorithms.ALGORITHMS)
    pages = {path.stem for path in (DOCS / "algorithms").glob("*.md")}
    assert pages == {name.replace("_", "-") for name in NAMES} | {"index"}


@pytest.mark.parametrize("page", ["README.md", "docs/algorithms/index.md"])
def test_every_algorithm_has_a_row_where_one_is_chosen(page):
    lines = (ROOT / page).read_text().splitlines()
    cells = [line.split("|")[2].strip() for line in lines if line.startswith("| ")]
    names = [f"`{name}`" for name in NAMES]
    assert sorted(cell for cell in cells if cell in names) == sorted(names)

"""The tables of fields on the pages of the algorithms: the real defaults, all told."""

import dataclasses

import pytest

from purerl import algorithms
from purerl.algorithms import config_class
from tests.docs.pages import ALGORITHMS as NAMES
from tests.docs.pages import ROOT, load

config_tables = load(ROOT / "docs" / "hooks" / "config_tables.py")


@pytest.mark.parametrize("name", NAMES)
def test_every_field_is_told_with_its_default_and_origin(name):
    rows = config_tables.fields_of(name)
    fields = dataclasses.fields(config_class(name))
    assert [row.name for row in rows] == [field.name for field in fields]
    assert all(row.meaning and row.origin for row in rows)
    page = ROOT / "docs" / "algorithms" / f"{name.replace('_', '-')}.md"
    assert f"<!-- fields: {name} -->" in page.read_text()
    assert f"<!-- metrics: {name} -->" in page.read_text()


@pytest.mark.parametrize(
    ("name", "field", "default"),
    [
        ("ppo", "num_steps", "`auto`: `128` (discrete), `512` (continuous)"),
        ("ppo", "learning_rate", "`0.00025`"),
        ("plr", "entropy_coef", "`auto`: `0.01`"),
        ("plr", "buffer_size", "`4,000`"),
    ],
)
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
    pages = {path.stem for path in (ROOT / "docs" / "algorithms").glob("*.md")}
    assert pages == {name.replace("_", "-") for name in NAMES} | {"index"}


@pytest.mark.parametrize("page", ["README.md", "docs/algorithms/index.md"])
def test_every_algorithm_has_a_row_where_one_is_chosen(page):
    lines = (ROOT / page).read_text().splitlines()
    cells = [line.split("|")[2].strip() for line in lines if line.startswith("| ")]
    names = [f"`{name}`" for name in NAMES]
    assert sorted(cell for cell in cells if cell in names) == sorted(names)

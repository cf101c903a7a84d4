"""Every algorithm and preset under every tool; all of it with `pytest -m slow`.

A cell of the grid is a test. An algorithm that is registered, and a preset that is a
file, has its row; a function in `cells.TOOLS` has its column.
"""

import pytest

import purerl
from purerl import presets
from purerl.algorithms import ALGORITHMS
from purerl.meta import training as evolutions
from tests.contracts.tools import cells, rows, searching

DEFAULTS = rows.defaults()
OTHERS = rows.variants() | rows.published()
ROWS = DEFAULTS | OTHERS
# `make test` has one whole row; contracts/test_algorithms.py has every algorithm.
QUICK_ROW = "td3"


def is_quick(row: str, tool: str) -> bool:
    """Whether `make test` tries a cell; `make test-slow` tries the others."""
    return row == QUICK_ROW and tool not in cells.SLOW


# Row by row: what the cells of a row look at is made once, and gone with the row.
CELLS = [
    pytest.param(
        row,
        tool,
        id=f"{row}-{tool}",
        marks=[] if is_quick(row, tool) else pytest.mark.slow,
    )
    for row in ROWS
    for tool in cells.TOOLS
]


def test_every_algorithm_and_preset_has_a_row_or_a_reason():
    assert set(DEFAULTS) == set(ALGORITHMS)
    assert set(presets.names()) <= set(OTHERS) | set(rows.WITHOUT_ROW)
    assert all(rows.WITHOUT_ROW.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", evolutions.preset_names())
def test_a_published_evolution_is_told_of_all_its_members(name):
    searching.published_evolution(name)


@pytest.fixture(scope="module")
def subject(request, tmp_path_factory):
    with purerl.share_programs():
        row = rows.make_row(request.param, ROWS[request.param])
        yield cells.Subject(row, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize(("subject", "tool"), CELLS, indirect=["subject"])
def test_a_cell_passes_or_is_refused(subject, tool, record_property):
    record_property("place", (subject.row.name, tool))
    record_property("refused", cells.TOOLS[tool](subject))

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
from tests.helpers import slow_but

DEFAULTS = rows.defaults()
OTHERS = rows.variants() | rows.published()
ROWS = DEFAULTS | OTHERS
# `make test` has one whole row; contracts/test_algorithms.py has every algorithm.
QUICK_ROW = "td3"
QUICK_TOOLS = [tool for tool in cells.TOOLS if tool not in cells.SLOW]


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


# Row by row: what the cells of a row look at is made once, and gone with the row. That
# takes two parametrisations, as pytest makes a fixture anew for each row of one.
@pytest.mark.parametrize("tool", slow_but(cells.TOOLS, *QUICK_TOOLS))
@pytest.mark.parametrize("subject", slow_but(ROWS, QUICK_ROW), indirect=True)
def test_a_cell_passes_or_is_refused(subject, tool, record_property):
    record_property("place", (subject.row.name, tool))
    record_property("refused", cells.TOOLS[tool](subject))

"""The grid of algorithms and tools: `rows` by `cells.TOOLS`, one test each."""

import pytest

pytest.register_assert_rewrite("tests.contracts.tools.cells")

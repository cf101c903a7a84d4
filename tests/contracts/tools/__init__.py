"""The grid of algorithms and tools: `rows` by `cells.TOOLS`, one test each."""

import pytest

for name in ("subject", "training", "searching"):
    pytest.register_assert_rewrite(f"tests.contracts.tools.{name}")

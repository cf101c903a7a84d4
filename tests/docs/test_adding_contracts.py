"""The contract tests that the algorithm of docs/adding-algorithm.md gets."""

import pytest

from tests.contracts import test_algorithms as contracts
from tests.docs import pages

# The algorithm of a page, as all of tests/docs/test_adding.py is.
pytestmark = pytest.mark.slow

NOT_ABOUT_ONE = {"test_every_registered_algorithm_is_tested_here"}


@pytest.fixture(scope="module", autouse=True)
def row(registries):
    namespace = pages.run(pages.ROOT / "docs" / "adding-algorithm.md")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(contracts.SMALL, "a2c", namespace["small"])
        yield


for _name, _value in vars(contracts).items():
    if _name.startswith("test_") and _name not in NOT_ABOUT_ONE:
        globals()[_name] = _value
steps, result, longer = contracts.steps, contracts.result, contracts.longer


@pytest.fixture(scope="module")
def name(row):
    return "a2c"

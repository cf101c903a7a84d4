"""The code of the page on training in Gymnasium's environments."""

import pytest

from purerl.train import bind
from tests.docs import pages


@pytest.mark.slow
def test_the_code_of_the_page_runs():
    # With its title, because a module of the page's name would hide the package.
    page = pages.ROOT / "docs/gymnasium.md"
    left = pages.run(page, "Train in Gymnasium's environments")
    assert left["result"].finished
    # Four observations of four numbers each.
    env = bind(left["stacked"], on_host=True).env
    assert env.observation_space().shape == (4, 4)

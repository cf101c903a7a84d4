"""What code of other packages needs."""

import jax
import pytest


@pytest.fixture(scope="module")
def lax_rank_promotion():
    """The code of gymnax and brax broadcasts across ranks here and there."""
    with jax.numpy_rank_promotion("allow"):
        yield

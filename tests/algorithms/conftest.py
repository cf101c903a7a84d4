"""What the tests of algorithms share."""

import contextlib
import faulthandler
import sys

import pytest


@pytest.fixture
def deadline():
    """A hang inside XLA cannot be interrupted: end the process with its traceback."""

    @contextlib.contextmanager
    def within(seconds):
        faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    return within

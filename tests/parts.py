"""Tests in parts, each a sample of all: the slow ones take hours together."""

import argparse
import hashlib
from typing import NamedTuple


class Part(NamedTuple):
    """One of several parts of the tests.

    Attributes:
        index: Its number, from 1 to `count`.
        count: The number of parts.
    """

    index: int
    count: int

    def has(self, nodeid: str) -> bool:
        """Return whether a test is in this part, which its name alone says."""
        digest = hashlib.sha256(nodeid.encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.index - 1


def parse(text: str) -> Part:
    """Return the part that a text such as `3/20` names.

    Args:
        text: The number of the part and the number of parts.

    Raises:
        argparse.ArgumentTypeError: it is no such text.
    """
    try:
        index, count = map(int, text.split("/"))
    except ValueError:
        index, count = 0, 0
    if not 1 <= index <= count:
        raise argparse.ArgumentTypeError(
            f"must be like 3/20, the third of twenty parts, got {text!r}."
        )
    return Part(index, count)

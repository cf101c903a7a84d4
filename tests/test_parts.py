"""Parts of the tests: every test is in one of them, and none is empty."""

import argparse

import pytest

from tests.parts import Part, parse

NAMES = [f"tests/test_something.py::test[{i}]" for i in range(2_000)]


def test_a_test_is_in_one_part_of_about_the_same_size():
    parts = [[name for name in NAMES if Part(i, 20).has(name)] for i in range(1, 21)]
    assert sorted(name for part in parts for name in part) == sorted(NAMES)
    # Binomial, 100 of 2,000 with a standard deviation of 9.7.
    assert all(60 < len(part) < 140 for part in parts)


def test_all_tests_are_the_one_part_of_one():
    assert all(parse("1/1").has(name) for name in NAMES)


@pytest.mark.parametrize("text", ["3", "0/3", "4/3", "a/b", "1/2/3", ""])
def test_what_is_no_part_says_what_one_is(text):
    with pytest.raises(argparse.ArgumentTypeError, match="like 3/20"):
        parse(text)

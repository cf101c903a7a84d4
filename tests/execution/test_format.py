from pathlib import Path

import pytest

from purerl.execution.format import format_bytes, format_count, quoted, with_noun
from purerl.runner.manifest import how_to_go_on
from tests.helpers import tiny_config

COUNTS = [
    (0, "0"),
    (999.4, "999"),
    (499_712, "500k"),
    (999_936, "1M"),  # a run of a million steps, in whole updates
    (999.6e6, "1G"),
    (1.5e16, "15,000T"),
    (float("inf"), "inf"),
]


@pytest.mark.parametrize(("number", "text"), COUNTS)
def test_numbers_have_three_digits_and_a_letter(number, text):
    assert format_count(number) == text


BYTES = [
    (0, "0 B"),
    (1023, "1,023 B"),
    (1.5 * 2**30, "1.5 GiB"),
    (10_300 * 2**30, "10.1 TiB"),
    (float("nan"), "nan B"),
]


@pytest.mark.parametrize(("number", "text"), BYTES)
def test_bytes_have_a_unit_and_no_exponent(number, text):
    assert format_bytes(number) == text


def test_one_of_a_thing_is_singular():
    assert (with_noun(1, "agent"), with_noun(0, "agent")) == ("1 agent", "0 agents")
    found = [with_noun(number, "loss", "losses") for number in (1, 2_000)]
    assert found == ["1 loss", "2,000 losses"]


def test_a_path_in_a_command_is_quoted_where_a_shell_would_part_it():
    assert quoted(Path("runs/first")) == "runs/first"
    assert quoted(Path("my runs/it's")) == "'my runs/it'\"'\"'s'"
    folder = Path("my runs/first")
    sentence = how_to_go_on(tiny_config(), folder)
    assert sentence.endswith("--resume 'my runs/first'")

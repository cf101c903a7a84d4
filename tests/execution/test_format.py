from pathlib import Path

import pytest

from purerl.execution.format import format_bytes, format_count, quoted, with_noun
from purerl.runner.manifest import how_to_go_on
from tests.helpers import tiny_config


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999.4, "999"),
        (499_712, "500k"),
        (999_936, "1M"),  # a run of a million steps, in whole updates
        (999.6e6, "1G"),
        (1.5e16, "15,000T"),
        (float("inf"), "inf"),
    ],
)
def test_numbers_have_three_digits_and_a_letter(number, text):
    assert format_count(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1.5 * 2**30, "1.5 GiB"),
        (10_300 * 2**30, "10.1 TiB"),
        (float("nan"), "nan B"),
    ],
)
def test_bytes_have_a_unit_and_no_exponent(number, text):
    assert format_bytes(number) == text


def test_one_of_a_thing_is_singular():
    assert with_noun(1, "agent") == "1 agent"
    assert with_noun(0, "agent") == "0 agents"
    assert with_noun(2_000, "loss", "losses") == "2,000 losses"
    assert with_noun(1, "loss", "losses") == "1 loss"


def test_a_path_in_a_command_is_quoted_where_a_shell_would_part_it():
    assert quoted(Path("runs/first")) == "runs/first"
    assert quoted(Path("my runs/it's")) == "'my runs/it'\"'\"'s'"
    folder = Path("my runs/first")
    sentence = how_to_go_on(tiny_config(), folder)
    assert sentence.endswith("--resume 'my runs/first'")

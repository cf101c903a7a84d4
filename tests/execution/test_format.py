import pytest

from purerl.execution.format import format_bytes, format_count, with_noun


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (7, "7"),
        (999.4, "999"),
        (1_000, "1k"),
        (499_712, "500k"),
        (999_400, "999k"),
        (999_936, "1M"),  # a run of a million steps, in whole updates
        (1e6, "1M"),
        (32e6, "32M"),
        (999.6e6, "1G"),
        (2.5e12, "2.5T"),
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
        (1024, "1 KiB"),
        (1.5 * 2**30, "1.5 GiB"),
        (1000 * 2**20, "1,000 MiB"),
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

"""The page of an evolution: whole, self-contained, and says what there is to say."""

import re

import numpy as np
import pytest

from purerl.report import page

from .conftest import GENERATIONS


def rows_of(text, heading):
    """Rows of the first table after a heading, as lists of texts."""
    section = text.split(f"<h2>{heading}</h2>")[1].split("</section>")[0]
    table = section.split("<tbody>")[1].split("</tbody>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", table)
    return [
        [re.sub("<.*?>", "", cell) for cell in re.findall(r"<td.*?</td>", row)]
        for row in rows
    ]


@pytest.mark.slow
def test_the_page_says_what_was_evolved(whole, tmp_path):
    text = page.page_of(whole, tmp_path / "a.html").read_text()
    assert "Evolution: policy_loss, learning_rate in CartPole-v1" in text
    assert not re.search(r"https?://", text)
    assert text.count("<figure>") == 2  # the curve, and the drift
    numbers = {row[0]: row[1:] for row in rows_of(text, "Numbers")}
    assert set(numbers) == {"policy_loss.alpha", "policy_loss.beta", "learning_rate"}
    assert numbers["policy_loss.alpha"][0] == "2"
    generations = rows_of(text, "Generations")
    assert [row[0] for row in generations] == [str(i + 1) for i in range(GENERATIONS)]
    best = [float(row[1]) for row in generations]
    np.testing.assert_allclose(best, whole.history["best"], rtol=2e-2)

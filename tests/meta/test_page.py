"""The page of an evolution: whole, self-contained, and says what there is to say."""

import re

import jax
import numpy as np
import pytest

import purerl
from purerl import losses
from purerl.acting.environment import resolve_env
from purerl.cli import main
from purerl.comparison.result import Comparison
from purerl.meta.genome import Genome
from purerl.meta.optimiser import Optimiser
from purerl.meta.result import EvolutionResult, fresh_state, with_generation
from purerl.meta.strategy import read_strategy
from purerl.report import page
from purerl.storage import folders
from purerl.storage.files import write_json
from tests.helpers import tiny_config

from .conftest import GENERATIONS, evolve


def rows_of(text, heading):
    """Rows of the first table after a heading, as lists of texts."""
    section = text.split(f"<h2>{heading}</h2>")[1].split("</section>")[0]
    table = section.split("<tbody>")[1].split("</tbody>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", table)
    return [
        [re.sub("<.*?>", "", cell) for cell in re.findall(r"<td.*?</td>", row)]
        for row in rows
    ]


def comparison():
    names, places = ["squared", "learned"], ["CartPole-v1"]
    scores = np.array([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]])
    curves = {"CartPole-v1": np.ones((2, 3, 4), np.float32)}
    steps = {"CartPole-v1": np.array([np.arange(1, 5) * 100] * 2)}
    about = {"settings": dict.fromkeys(names), "environments": dict.fromkeys(places)}
    return Comparison(
        about, "squared", range(3), 0, {"final_return": scores}, curves, steps
    )


@pytest.mark.slow
def test_the_page_says_what_was_evolved(whole, tmp_path):
    text = page.evolution_page(whole, tmp_path / "a.html").read_text()
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


def untrained():
    """Two generations of a network in two environments, with made-up scores."""
    config = tiny_config(value_loss=losses.MLPValueLoss.make((3,), init="random"))
    genome = Genome(config, resolve_env(config), "value_loss")
    strategy = read_strategy("open-es")
    optimiser = Optimiser(strategy, genome, 4)
    state = fresh_state(optimiser, jax.random.key(0), 2, 2)
    for generation in range(2):
        scores = np.arange(4.0) + generation
        returns = np.broadcast_to(scores[None, :, None], (2, 4, 1))
        state = with_generation(state, np.zeros((4, genome.size)), scores, returns)
    settings = {
        "evolve": genome.scales,
        "strategy": strategy.to_dict(),
        "population": 4,
        "rollouts": 1,
        "fitness": "training_curve",
        "environments": [{"env": "CartPole-v1"}, {"env": "Acrobot-v1"}],
        "seed": 0,
    }
    return EvolutionResult(config, settings, optimiser, state)


@pytest.mark.slow
def test_a_network_is_drawn_and_not_listed_and_several_environments_too(tmp_path):
    result = untrained()
    text = page.evolution_page(result, tmp_path / "a.html", comparison()).read_text()
    assert "value_loss in CartPole-v1, Acrobot-v1" in text
    assert "Generation 2 of 2: mean 2.5, best 4" in text
    assert "<h2>Numbers</h2>" not in text and "<h2>The value loss</h2>" in text
    # Curve, returns of both environments, the loss, the learning curves.
    assert text.count("<figure>") == 4
    held_out = rows_of(text, "Held-out seeds")
    assert [row[2] for row in held_out] == ["squared", "learned"]
    assert held_out[1][6] == "3"  # each seed's score is better by three
    assert held_out[1][7].split() == ["no", "spread"]
    assert held_out[1][4].split() == ["4.00", "to", "6.00"]
    assert "<th>range of 3</th>" in text.replace(' scope="col"', "")
    assert "3 seeds that no search has trained with" in text


@pytest.mark.slow
def test_report_knows_an_evolution_and_its_comparison(tmp_path, capsys):
    folder = tmp_path / "out"
    evolve(out=folder, generations=1)
    comparison().save(folder / "transfer")
    folders.update(folder, {"device": "tpu v9", "versions": {"jax": "9.8.7"}})
    assert main(["report", str(folder)]) == 0
    text = (folder / "report.html").read_text()
    assert "tpu v9" in text and "jax 9.8.7" in text
    assert "Held-out seeds" in text and f"{folder}/policy_loss.npz" in text
    assert purerl.load_evolution(folder).start["learning_rate"] == 2.5e-4


def test_what_has_no_page_is_one_sentence(tmp_path, capsys):
    write_json(tmp_path / "manifest.json", {"kind": "schedules"})
    assert main(["report", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "holds agents trained with schedules, for which there is no page" in told

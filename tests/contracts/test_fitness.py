"""One word for each kind of fitness, in all searches."""

import pytest

import purerl
from purerl.meta import fitness as evolution
from purerl.population import search as population
from purerl.report.comparison import WORDS
from purerl.search.fitness import check_fitness
from purerl.tuning import options
from tests.helpers import tiny_config

KINDS = {
    "population": population.KINDS,
    "tuning": options.KINDS,
    "evolution": evolution.KINDS,
    "comparison": tuple(WORDS),
}


@pytest.mark.parametrize(
    ("tool", "kind"),
    [
        ("population", "training_curve"),
        ("population", "auc"),
        ("tuning", "evaluation"),
        ("evolution", "-training_curve"),
        ("comparison", "negative_evaluation"),
        ("comparison", None),
    ],
)
def test_what_a_tool_cannot_measure_is_refused_with_what_it_can(tool, kind):
    accepted = ", ".join(KINDS[tool])
    words = f"^fitness must be one of {accepted}, got {kind!r}.$"
    with pytest.raises(purerl.ConfigError, match=words):
        check_fitness(kind, KINDS[tool])


def test_evolve_and_compare_read_the_same_names():
    config = tiny_config()
    with pytest.raises(purerl.ConfigError, match="fitness must be one of training_cur"):
        purerl.evolve(config, "learning_rate", fitness="area")
    settings = {"slow": {"learning_rate": 1e-4}}
    with pytest.raises(purerl.ConfigError, match="measures must name each kind once"):
        purerl.compare(config, settings, measures=("training_curve", "training_curve"))

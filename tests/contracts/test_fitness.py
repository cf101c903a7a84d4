"""One word for each kind of fitness, in all searches; and functions of one's own."""

import sys
from types import ModuleType

import numpy as np
import pytest

import purerl
from purerl.cli import main
from purerl.comparison.result import WORDS
from purerl.meta import fitness as evolution
from purerl.population import search as population
from purerl.search import protocol as folder_of_search
from purerl.search.fitness import check_fitness
from purerl.tuning import space as options
from purerl.tuning.batch import Batch, Pool
from tests.helpers import assert_same_bits, tiny_config

KINDS = {
    "population": population.KINDS,
    "tuning": options.KINDS,
    "evolution": evolution.KINDS,
    "comparison": tuple(WORDS),
}


@pytest.mark.parametrize("kind", ["auc", "-training_curve", None])
@pytest.mark.parametrize("tool", KINDS)
def test_what_a_tool_cannot_measure_is_refused_with_what_it_can(tool, kind):
    words = f"fitness must be one of {', '.join(KINDS[tool])}, got {kind!r}"
    with pytest.raises(purerl.ConfigError, match=words):
        check_fitness(kind, KINDS[tool])


CONFIG = tiny_config(num_evaluations=0)  # twenty updates
AXES = {
    "learning_rate": purerl.loguniform(1e-4, 1e-2),
    "entropy_coef": [0.0, 0.01, 0.1],
}


def final(curves):
    """The mean return of the last tenth of twenty updates."""
    return curves.train["episode_return"][-2:].mean()


def last(curves):
    """The return of the last row."""
    return curves.train["episode_return"][-1]


def evaluated(curves):
    """The mean return of the last evaluation."""
    return curves.evaluation["episode_return"][-1].mean()


def curve(curves):
    """No number."""
    return curves.train["episode_return"]


def misspelt(curves):
    """No metric."""
    return curves.train["retrun"].mean()


def _evolve(fitness, config=CONFIG, **options):
    size = {"population": 4, "generations": 2, "segment_updates": 5, "lanes": 4}
    options = {**size, "progress": False, "fitness": fitness, **options}
    result = purerl.evolve(config, "learning_rate,entropy_coef", **options)
    return result.history["fitness"], result.vector


def _pbt(fitness, **options):
    rounds = {"population": 4, "ready_updates": 5, "segment_updates": 5, "lanes": 4}
    options = {**rounds, "progress": False, **options}
    result = purerl.pbt(CONFIG, AXES, fitness=fitness, **options)
    return [(step.after.score, step.after.parents) for step in result.steps]


def _halving(fitness, **options):
    rungs = {"num_points": 4, "eta": 2, "min_updates": 5, "segment_updates": 5}
    options = {**rungs, "lanes": 4, "progress": False, **options}
    result = purerl.halving(CONFIG, AXES, fitness=fitness, **options)
    return [(step.after.score, step.after.alive) for step in result.steps]


def _tune(fitness, **options):
    study = {"trials": 6, "batch": 3, "seeds": 2, "lanes": 4, "holdout_seeds": 0}
    options = {**study, "reports": 4, "progress": False, **options}
    config = CONFIG.replace(num_evaluations=4)
    rows = purerl.tune(config, AXES, fitness=fitness, **options).rows
    return [(row.state, np.array(row.seed_scores, float)) for row in rows]


def _evolve_by_evaluation(fitness, **options):
    return _evolve(fitness, CONFIG.replace(num_evaluations=1), **options)


@pytest.mark.parametrize(
    ("search", "built_in", "own"),
    [
        (_evolve, "final_return", final),
        (_evolve_by_evaluation, "evaluation", evaluated),
        (_pbt, "final_return", last),
        (_halving, "final_return", last),
        (_tune, "final_return", evaluated),
    ],
)
def test_a_function_equal_to_a_kind_gives_its_bits(search, built_in, own, tmp_path):
    expected = search(built_in)
    path = f"{__name__}:{own.__name__}"
    assert_same_bits(search(own, out=tmp_path / "new"), expected)
    # As text it is the same, and what has finished is read.
    assert_same_bits(search(path, out=tmp_path / "new"), expected)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda curves: 0.0, "<lambda> .* no file can hold"),
        (misspelt, "misspelt must make one number .*retrun"),
        (curve, r"curve must make one number .* \(20,\)"),
        (f"{__name__}:nothing", "cannot find .*nothing"),
        ("nowhere:area", "'nowhere' has not been imported"),
        (f"{__name__}:AXES", "must name a function"),
        ("os:abort", "of Python's own library"),
    ],
)
def test_what_is_no_function_of_curves_is_refused_before_anything_is_trained(
    given, words, tmp_path
):
    with pytest.raises(purerl.ConfigError, match=f"(?s)^fitness.*{words}"):
        _evolve(given, out=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_who_is_stopped_takes_its_curves_along():
    def scores(fitness):
        config, rates = CONFIG.replace(num_evaluations=4), (1e-4, 1e-3, 1e-2)
        asked = {"fitness": fitness, "seeds": 2, "reports": 4, "lanes": 4}
        pool = Pool(options.TuneOptions(config, AXES, **asked))
        points = [{"learning_rate": rate, "entropy_coef": 0.01} for rate in rates]
        batch = Batch(pool, points)
        for report in range(1, 5):
            batch.advance(report)
            if report == 2:
                batch.stop([0])
        return [batch.score(number).seeds for number in (1, 2)]

    assert_same_bits(scores(evaluated), scores("final_return"))


@pytest.mark.parametrize(
    ("search", "half"), [(_pbt, 3), (_halving, 2)], ids=["pbt", "halving"]
)
def test_a_search_goes_on_with_it_and_is_read_without_it(
    search, half, tmp_path, monkeypatch
):
    """Killed after some requests, it ends as ever; its folder holds the scores."""
    lab, own = ModuleType("lab"), "lab:last"
    lab.last = last  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lab", lab)
    save, whole = folder_of_search.save_step, search(own)

    def save_and_die(out, number, step):
        save(out, number, step)
        if number == half - 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(folder_of_search, "save_step", save_and_die)
        with pytest.raises(KeyboardInterrupt):
            search(own, out=tmp_path, checkpoint_seconds=0)
    assert_same_bits(search(own, out=tmp_path, checkpoint_seconds=0), whole)
    monkeypatch.delitem(sys.modules, "lab")
    steps = purerl.load(tmp_path).steps
    assert_same_bits([s.after.score for s in steps], [score for score, _ in whole])
    assert main(["report", str(tmp_path)]) == 0

"""One word for each kind of fitness, in all searches; and functions of one's own."""

import sys
from types import ModuleType

import numpy as np
import pytest

import purerl
from purerl.cli import main
from purerl.meta import fitness as evolution
from purerl.population import search as population
from purerl.report.comparison import WORDS
from purerl.search import folder as folder_of_search
from purerl.search.fitness import check_fitness
from purerl.tuning import options
from tests.helpers import assert_same_bits, tiny_config

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


LAB = """
def final(curves):
    return curves.train["episode_return"][-2:].mean()
"""
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
    size = {"population": 4, "generations": 2, "lanes": 4, "progress": False}
    options = {**size, "fitness": fitness, **options}
    result = purerl.evolve(config, "learning_rate,entropy_coef", **options)
    return result.history["fitness"], result.vector


def _pbt(fitness, **options):
    rounds = {"population": 4, "ready_updates": 5, "segment_updates": 5, "lanes": 4}
    options = {**rounds, "progress": False, **options}
    result = purerl.pbt(CONFIG, AXES, fitness=fitness, **options)
    return [(step.after.score, step.after.parent) for step in result.steps]


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
        (lambda curves: 0.0, "<lambda> at .* no file can hold: give a function that"),
        (misspelt, "misspelt must make one number .* KeyError.*retrun.* episode_retur"),
        (curve, r"curve must make one number .* returned \(20,\); reduce it"),
        (f"{__name__}:nothing", "cannot find .*nothing.* for example lab.objectives"),
        ("nowhere:area", "module 'nowhere' has not been imported.*--import nowhere"),
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


@pytest.mark.parametrize("search", [_pbt, _halving, _tune])
def test_every_search_looks_at_the_function_first(search):
    with pytest.raises(purerl.ConfigError, match="must make one number"):
        search(misspelt)


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


def test_a_command_names_it_and_its_folder_is_read_without_it(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "negative_lab.py").write_text(LAB)  # a name that turns no sign
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    own, folder = "negative_lab:final", tmp_path / "new"
    words = [
        *("evolve", "--evolve", "learning_rate", "--no-progress", "--out", "new"),
        *("--fitness", own, "--population", "2", "--lanes", "2"),
        *("--total-timesteps", "640", "--num-envs", "2", "--num-steps", "16"),
        *("--hidden-sizes", "8", "--num-evaluations", "0"),
    ]
    given = ["--import", "negative_lab"]
    assert main([*words, *given, "--generations", "1"]) == 0
    monkeypatch.delitem(sys.modules, "negative_lab")

    result = purerl.load_evolution(folder)
    assert result.settings["fitness"] == own
    history = result.history
    np.testing.assert_allclose(history["returns"][:, 0], history["mean"], rtol=1e-6)
    assert (history["returns"] > 0).all()
    assert main(["report", "new"]) == 0 and main(["plot", "new"]) == 0
    resume = ["evolve", "--resume", "new", "--generations", "2", "--no-progress"]
    assert main(resume) == 2
    assert "--import negative_lab" in " ".join(capsys.readouterr().err.split())
    assert main([*resume, *given]) == 0
    rest, asked = purerl.load_evolution(folder), dict(result.settings)
    asked = {n: asked[n] for n in ("evolve", "strategy", "population", "fitness")}
    options = {"generations": 2, "lanes": 2, "progress": False}
    whole = purerl.evolve(result.config, **asked, **options)
    assert_same_bits(rest.history["fitness"], whole.history["fitness"])
    assert_same_bits(rest.vector, whole.vector)

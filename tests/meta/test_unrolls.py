"""EvolutionLoop by parts of training runs: persistent and noise-reuse strategies."""

import dataclasses

import jax
import numpy as np
import pytest

import purerl
from purerl.acting.environment import resolve_env
from purerl.meta.fitness import best_of_runs
from purerl.meta.genome import Genome
from purerl.meta.strategy import Optimiser, read_strategy
from tests.helpers import assert_same_bits, tiny_config

from .conftest import EVOLVED, evolve, outcome, start

# A tiny run has twenty updates.
CUT, PER_RUN = 10, 2
PES = "persistent-es(sigma=0.5, learning_rate=0.2)"
TRUNCATED = {
    "strategy": PES,
    "truncation": CUT,
    "generations": 2 * PER_RUN,
    "segment_updates": None,
}


@pytest.fixture(scope="module")
def truncated():
    return evolve(**TRUNCATED)


def test_parts_of_runs_are_the_whole_runs(truncated):
    """Where nothing is perturbed, their worth is in the mean that of whole runs."""
    still = {"sigma": 1e-12, "learning_rate": 1e-12}
    plan = purerl.resolve(start())
    assert plan.total_timesteps // plan.steps_per_update == CUT * PER_RUN
    options = ", ".join(f"{name}={value}" for name, value in still.items())
    changes = TRUNCATED | {"strategy": f"persistent-es({options})", "generations": 2}
    parts = evolve(**changes)
    whole = evolve(strategy=f"open-es({options})", generations=1)
    fitness = parts.history["fitness"]
    assert np.ptp(fitness, axis=1).max() < 1e-5  # common random numbers
    assert abs(fitness[0, 0] - fitness[1, 0]) > 1e-3  # the parts differ
    np.testing.assert_allclose(
        fitness.mean(0), whole.history["fitness"][0], rtol=1e-6, atol=1e-6
    )
    harm = evolve(**changes, fitness="negative_training_curve")
    np.testing.assert_array_equal(harm.history["fitness"], -fitness)
    returns = parts.history["returns"]
    np.testing.assert_array_equal(harm.history["returns"], returns)


def test_the_second_run_has_other_random_numbers(truncated):
    fitness = truncated.history["fitness"]
    assert fitness.shape[0] == 2 * PER_RUN and np.isfinite(fitness).all()
    assert not np.allclose(fitness[0], fitness[PER_RUN])


def test_steps_are_those_of_the_parts(truncated):
    config = purerl.resolve(start())
    runs = truncated.history["fitness"].shape[1] * 2
    steps = CUT * config.steps_per_update * runs
    assert truncated.summary["env_steps"] == 2 * PER_RUN * steps
    assert truncated.summary["agents"] == 2 * runs


@pytest.mark.parametrize("stopped_after", [PER_RUN, PER_RUN + 1])
@pytest.mark.slow(optimised=False)
def test_stopped_and_gone_on_with_is_uninterrupted(
    stopped_after, truncated, tmp_path, monkeypatch
):
    """Between two runs and in the middle of one, which then begins again."""
    from purerl.meta.evolve import EvolutionLoop
    from purerl.meta.training import Stopped

    generation = EvolutionLoop.generation

    def stop(self, state, *args):
        if int(state.done) == stopped_after:
            raise Stopped
        return generation(self, state, *args)

    with monkeypatch.context() as patch:
        patch.setattr(EvolutionLoop, "generation", stop)
        part = evolve(out=tmp_path, **TRUNCATED)
    assert part.done == PER_RUN and not part.finished
    rest = evolve(out=tmp_path, **TRUNCATED)
    assert rest.summary["generations_run"] == PER_RUN
    assert_same_bits(outcome(rest), outcome(truncated))
    assert_same_bits(outcome(purerl.load_evolution(tmp_path)), outcome(truncated))


def optimiser_of(strategy, population, **options):
    """A strategy for one number on a scale of logarithms; options cut its runs."""
    config = tiny_config(learning_rate=1.0)
    genome = Genome(config, resolve_env(config), {"learning_rate": "log"})
    asked = read_strategy({"name": strategy, "sigma": 0.1, "learning_rate": 0.05})
    asked = dataclasses.replace(asked, options=options, shaping="none")
    return Optimiser(asked, genome, population)


def toy(strategy, generations, cut=2, whole=4):
    """Evolve `theta` where state and loss are `x += theta` and `x - 2 theta`, in parts.

    Over four steps from `x = 0` the loss is `(1 + 2 + 3 + 4 - 8) theta = 2 theta`.
    Within a part, of a state that is taken as given, it is less by `theta` a step.
    """
    options = {} if strategy == "open-es" else {"T": whole, "K": cut}
    optimiser = optimiser_of(strategy, 512, **options)
    key = jax.random.key(0)
    state = optimiser.init(key)
    x = np.zeros(512)
    means = [optimiser.mean(state)]
    for number in range(generations):
        if number % (whole // cut) == 0:
            x = np.zeros(512)
        vectors, _, state = optimiser.ask(jax.random.fold_in(key, number), state)
        theta, loss = vectors[:, 0], np.zeros(512)
        for _ in range(cut):
            x = x + theta
            loss += x - 2 * theta
        state = optimiser.tell(key, vectors, -loss.astype(np.float32), state)
        means.append(optimiser.mean(state))
    return np.array(means)[:, 0]


@pytest.mark.parametrize("strategy", ["persistent-es", "noise-reuse-es"])
def test_parts_move_as_the_whole_does(strategy):
    """Truncation alone moves the other way: it does not see what later parts lose."""
    found = toy(strategy, 40)
    assert found[-1] < found[0] - 0.2
    # A part by itself: x counts as given, and the loss falls with theta.
    blind = toy("open-es", 40, cut=1)
    assert blind[-1] > blind[0] + 0.2


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"truncation": None}, r"PersistentES needs truncation, .* divisor of .* 20\."),
        ({"truncation": 3}, r"updates of a run \(20\).* got 3; take 2 or 4, or"),
        (
            {"segment_updates": 4},
            r"segment_updates must divide truncation = 10, .* got 4",
        ),
        ({"strategy": "simple-ga"}, r"truncation must be left out with SimpleGA"),
        (
            {"strategy": "persistent-es(shaping='centered_rank')"},
            r"shaping must be none and sigma_decay 1 with Persis.* got 'centered_rank'",
        ),
    ],
)
def test_what_cannot_be_cut_is_refused(changes, sentence):
    with pytest.raises(purerl.ConfigError, match=sentence):
        evolve(evolved=EVOLVED, **(TRUNCATED | changes))


@pytest.mark.parametrize("strategy", ["persistent-es", "noise-reuse-es"])
def test_a_part_in_which_all_fail_is_counted(strategy):
    """What was perturbed in a run must not be credited to the next one."""
    optimiser = optimiser_of(strategy, 8, T=4, K=2)
    key = jax.random.key(0)
    state = optimiser.init(key)
    for number in range(4):
        vectors, _, state = optimiser.ask(jax.random.fold_in(key, number), state)
        worth = np.full(8, np.nan if number == 1 else 1.0, np.float32)
        state = optimiser.tell(key, vectors, worth, state)
        assert int(state.inner_step_counter) == (2 if number % 2 == 0 else 0)


def test_a_run_that_fails_in_its_middle_is_one_failure():
    """Its later parts fail too: that is no row of generations with bad luck."""
    worth = np.array([[1.0], [np.nan], [np.nan], [np.nan], [np.nan], [2.0]])
    np.testing.assert_array_equal(best_of_runs(worth[:4], 4), [[1.0]])
    np.testing.assert_array_equal(best_of_runs(worth, 4), [[1.0], [2.0]])
    np.testing.assert_array_equal(best_of_runs(worth, 1), worth)

"""The door to evosax: the sign, Open-ES by hand, failures, and every algorithm."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.config import ConfigError
from purerl.meta.strategy import PRESETS, OpenES, Optimiser, names, read_strategy
from tests.helpers import slow_but

GOAL = np.array([0.5, -0.25, 1.0, 0.0, -1.0], np.float32)


# Every kind of update: gradient, covariance, natural gradient, elites, differences.
QUICK = ("open-es", "open-es-lpo", "sep-cma-es", "snes", "pgpe", "simple-ga")


class Vector:
    """A genome that is five plain numbers."""

    size = 5

    def start(self):
        return np.zeros(self.size, np.float32)

    def decode(self, vectors):
        return {"x": vectors}


def quadratic(vectors):
    """Greater is better, and best at the goal."""
    return -np.square(vectors - GOAL).sum(1).astype(np.float32)


def run(strategy, generations, fitness=quadratic, population=16):
    optimiser = Optimiser(read_strategy(strategy), Vector(), population)
    key = jax.random.key(0)
    state, history = optimiser.init(key), []
    for generation in range(generations):
        ask, tell = jax.random.split(jax.random.fold_in(key, generation))
        vectors, _, state = optimiser.ask(ask, state)
        scores = fitness(vectors)
        history.append((vectors, scores))
        state = optimiser.tell(tell, vectors, scores, state)
    return optimiser, state, history


@pytest.mark.parametrize(
    "name",
    slow_but(
        (*QUICK, "cma-es", "simple-es", "differential-evolution", "samr-ga"), *QUICK
    ),
)
def test_fitness_is_maximised(name):
    """Turn the sign in `tell`, and every one of these walks away from the goal."""
    _, _, history = run(name, 60)
    first, last = history[0][1].mean(), history[-1][1].mean()
    assert last > 0.5 * first  # both negative: at least half of the way
    assert first < -1.0


def by_hand(strategy, history):
    """Open-ES with Adam as evosax 0.1 wrote it: mean and sigma after a history."""
    mean, m, v = np.zeros(5), np.zeros(5), np.zeros(5)
    sigma, rate = strategy.sigma, strategy.learning_rate
    for t, (vectors, scores) in enumerate(history):
        noise = (np.asarray(vectors, float) - mean) / sigma
        # The worst has rank 0 where greater is better: negate to minimise.
        ranks = np.argsort(np.argsort(-scores)) / (len(scores) - 1) - 0.5
        gradient = noise.T @ ranks / (len(scores) * sigma)
        m = strategy.beta1 * m + (1 - strategy.beta1) * gradient
        v = strategy.beta2 * v + (1 - strategy.beta2) * gradient**2
        m_hat = m / (1 - strategy.beta1 ** (t + 1))
        v_hat = v / (1 - strategy.beta2 ** (t + 1))
        mean = mean - rate * m_hat / (np.sqrt(v_hat) + strategy.eps)
        sigma = max(sigma * strategy.sigma_decay, strategy.sigma_limit)
        rate = max(rate * strategy.learning_rate_decay, strategy.learning_rate_limit)
    return mean, sigma


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param(OpenES(), marks=pytest.mark.slow),
        OpenES(sigma_decay=0.5, sigma_limit=0.01, learning_rate_decay=0.5),
        pytest.param(
            OpenES(beta1=0.9, learning_rate=0.5, antithetic=False),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_open_es_is_the_formula_written_out(strategy):
    """Schedules included: evosax's own would use the first sigma twice."""
    for generations in (1, 2, 5):
        optimiser, state, history = run(strategy, generations)
        mean, sigma = by_hand(strategy, history)
        np.testing.assert_allclose(optimiser.mean(state), mean, rtol=2e-4, atol=1e-5)
        assert optimiser.sigma(state) == pytest.approx(sigma, rel=1e-6)


def test_the_published_defaults():
    """evosax 0.1's OpenES; its Adam has beta1 0.99."""
    found = read_strategy("open-es")
    assert (found.sigma, found.sigma_decay, found.sigma_limit) == (0.03, 1.0, 0.01)
    assert (found.learning_rate, found.learning_rate_decay) == (0.05, 1.0)
    assert found.learning_rate_limit == 0.001
    assert (found.beta1, found.beta2, found.eps) == (0.99, 0.999, 1e-8)
    assert found.shaping == "centered_rank" and found.antithetic
    drift = read_strategy("open-es-lpo")
    assert (drift.sigma, drift.sigma_decay, drift.learning_rate) == (0.04, 0.999, 0.01)
    assert (drift.learning_rate_decay, drift.shaping) == (0.999, "z_score")


@pytest.mark.parametrize("shaping", slow_but(["centered_rank", "z_score"], "z_score"))
def test_failed_members_rank_worst_and_poison_nothing(shaping):
    def failing(vectors):
        scores = quadratic(vectors)
        scores[np.argmax(scores)] = np.nan  # even where they would be the best
        return scores

    optimiser, state, history = run(OpenES(shaping=shaping), 1, failing)
    assert np.isfinite(optimiser.mean(state)).all()
    _, scores = history[0]
    failed = int(np.flatnonzero(np.isnan(scores))[0])
    # As if it had earned less than the worst.
    worse = scores.copy()
    known = scores[np.isfinite(scores)]
    worse[failed] = known.min() - known.std()
    other, expected, _ = run(OpenES(shaping=shaping), 1, lambda _: worse)
    np.testing.assert_allclose(
        optimiser.mean(state), other.mean(expected), rtol=1e-4, atol=1e-7
    )


@pytest.mark.slow
def test_where_all_fail_nothing_moves():
    def fail(vectors):
        return np.full(len(vectors), np.nan, np.float32)

    for name in ("open-es", "cma-es", "simple-ga"):
        optimiser, state, history = run(name, 2, fail)
        if optimiser.is_distribution:
            np.testing.assert_array_equal(optimiser.mean(state), 0.0)
        else:
            first = optimiser.init(jax.random.key(0))
            np.testing.assert_array_equal(state.population, first.population)
            np.testing.assert_array_equal(history[1][0], history[0][0])


@pytest.mark.parametrize("name", ["OpenES", "open_es", "Open-ES", "openes"])
def test_open_es_is_the_published_one_however_it_is_spelt(name):
    assert read_strategy(name) == read_strategy("open-es") == OpenES()


def test_a_small_sigma_is_the_one_that_was_asked_for():
    """The published limits are where a decay ends, not bounds of what is given."""
    strategy = read_strategy("open-es(sigma=0.001, learning_rate=1e-4)")
    optimiser, state, history = run(strategy, 1, population=2000)
    assert history[0][0].std() == pytest.approx(0.001, rel=0.03)
    assert np.abs(optimiser.mean(state)).max() == pytest.approx(1e-4, rel=1e-3)


@pytest.mark.slow
def test_sigma_is_the_first_populations_spread():
    # Gradientless descent has radii of its own, and refuses a sigma. The subspaces of
    # these two do not fill all dimensions.
    others = ("gradientlessdescent", "guidedes", "asebo")
    known = [name for name in names() if name not in (*PRESETS, *others)]
    assert {"xnes", "simplega", "diffusionevolution"} <= set(known)
    for name in ("open-es", *known):
        for sigma in (0.2, 0.02):
            # More members than that take long in some of them.
            text = f"{name}(sigma={sigma}, sigma_limit=0)"
            optimiser, _, history = run(text, 1, population=512)
            spread = history[0][0].std()
            assert spread == pytest.approx(sigma, rel=0.1), name
            start = optimiser.sigma(optimiser.init(jax.random.key(0)))
            if optimiser.is_distribution:
                assert start == pytest.approx(sigma), name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("LES", "there is no strategy 'LES' here. Strategies: open-es, "),
        ("open-es(sigma=-1)", "sigma must be greater than 0, got -1"),
        ("open-es(sigma=0.1", "cannot read the strategy"),
        ("open-es(sigma=0.005, sigma_decay=0.99)", r"sigma_limit \(0.01\).* got 0.005"),
        ("open-es(learning_rate=None)", "Open-ES needs a learning_rate"),
        ("open-es(antithetic='no')", "antithetic must be True or False, got 'no'"),
        ("cma-es(c_mean='x')", "c_mean must be a number, got 'x'"),
        # Of these a strategy of seven members cannot be made.
        ("open-es", "refuses population=7.*even"),
        ("cma-es(learning_rate=0.1)", "has no optimiser"),
        ("cma-es(std_mn=0.1)", "no field 'std_mn'.*Did you mean 'std_min'"),
    ],
)
def test_a_bad_strategy_says_what_to_write(text, words):
    with pytest.raises(ConfigError, match=words):
        Optimiser(read_strategy(text), Vector(), 7)


def test_a_strategy_that_breaks_down_says_so():
    # LM-MA-ES in five dimensions divides by zero, in evosax 0.3.2.
    with pytest.raises(ConfigError, match="LM_MA_ES proposed numbers that are not"):
        run("lm-ma-es", 20)


@pytest.mark.parametrize("make", [np.float32, jnp.float32])
def test_numbers_may_be_those_of_numpy_and_jax(make):
    found = read_strategy(OpenES(sigma=make(0.25), learning_rate=make(0.5)))
    assert found == read_strategy("open-es(sigma=0.25, learning_rate=0.5)")
    assert json.loads(json.dumps(found.to_dict()))["sigma"] == 0.25


def test_names_and_options_survive_their_dict():
    asked = "CMA_ES(sigma=0.3, std_min=0.01)"
    found = read_strategy(asked)
    assert found.name == "CMA_ES" and found.options == {"std_min": 0.01}
    assert read_strategy(found.to_dict()) == found
    assert read_strategy("cmaes") == read_strategy("Cma-Es")
    assert len(names()) > 25

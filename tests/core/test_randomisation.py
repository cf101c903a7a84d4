"""Parameters that are drawn: how they are distributed, kept, named and saved."""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import envs, serialise
from purerl.acting.environment import bind_params, resolve_env, time_limit, with_params
from purerl.acting.rollout import draw_pool, make_stepper
from purerl.cli.flags import read_mapping
from purerl.config import ConfigError
from purerl.envs.cartpole import CartPole
from purerl.envs.wrappers import Randomised, RandomisedOnce, drawn_params
from purerl.meta.genome import Genome
from purerl.randomisation import Choice, LogUniform, Uniform
from tests.envs.episodes import played
from tests.helpers import assert_same_bits, tiny_config

DRAWS = 4_000


def draws(distribution):
    keys = jax.random.split(jax.random.key(0), DRAWS)
    return np.asarray(jax.jit(jax.vmap(distribution))(keys))


@pytest.mark.parametrize(
    ("distribution", "scale"),
    [(Uniform(0.4, 0.6), np.asarray), (LogUniform(0.1, 10.0), np.log)],
)
def test_draws_have_the_quantiles_of_the_distribution(distribution, scale):
    values = np.sort(draws(distribution))
    low, high = scale(distribution.low), scale(distribution.high)
    assert distribution.low <= values[0] and values[-1] <= distribution.high
    shares = (scale(values) - low) / (high - low)
    # Kolmogorov and Smirnov: the largest distance, at a level of 0.001.
    expected = (np.arange(DRAWS) + 0.5) / DRAWS
    assert np.abs(shares - expected).max() < 1.95 / np.sqrt(DRAWS)


RANGES = {"length": Uniform(0.4, 0.6), "gravity": Choice((9.0, 12.0)), "tau": 0.03}
# Rows of a table, which are drawn together.
MASSES, LENGTHS = (0.5, 1.0, 2.0, 2.0), (0.3, 0.7, 0.4, 0.5)
TABLE = {
    "masscart": Choice(MASSES, group="robots"),
    "length": Choice(LENGTHS, group="robots"),
}
# A column that is too short for this table, and may be one of another.
SHORT = Choice((0.3, 0.7), "robots")
UNEQUAL = r"length must have as many values as masscart.*'robots' \(4\), got 2"
ROWS = {tuple(np.float32(row)) for row in zip(MASSES, LENGTHS, strict=True)}


@pytest.mark.parametrize("per", ["episode", "environment"])
def test_numbers_stay_within_an_episode_and_change_with_the_next_one(per):
    numbers = {"gravity": Uniform(9.0, 12.0), "tau": 0.03, **TABLE}
    config = tiny_config(env_params=numbers, randomise_per=per)
    env = resolve_env(config)
    params = bind_params(env, config.env_params)

    actions = jnp.ones(60, jnp.int32)
    play = jax.jit(jax.vmap(lambda key: played(env, params, key, 60, actions)))
    (_, first), steps = play(jax.random.split(jax.random.key(0), 32))
    ends = np.asarray(steps.terminated | steps.truncated)
    after = jax.tree.map(np.asarray, drawn_params(steps.state))
    begun = drawn_params(first)
    before = {n: np.c_[begun[n], x[:, :-1]] for n, x in after.items()}
    assert ends.sum(1).min() >= 4
    # Environments differ, and rows never mix.
    assert len(np.unique(before["gravity"][:, 0])) == 32
    assert set(rows({n: x.ravel() for n, x in after.items()}, *TABLE)[0]) == ROWS
    changed = before["gravity"] != after["gravity"]
    expected = ends if per == "episode" else np.zeros_like(ends)
    np.testing.assert_array_equal(changed, expected)
    for name in TABLE:
        assert not ((before[name] != after[name]) & ~changed).any()
    assert ((after["gravity"] >= 9) & (after["gravity"] <= 12)).all()


def test_the_numbers_that_are_drawn_are_those_that_move_the_cart():
    env = Randomised(CartPole())
    params = bind_params(env, RANGES)
    assert isinstance(params.length, Uniform) and params.tau == np.float32(0.03)
    key = jax.random.key(4)
    obs, state = env.reset(key, params)
    drawn = drawn_params(state)
    assert set(drawn) == {"length", "gravity"}
    plain = CartPole().default_params.replace(tau=0.03, **drawn)
    first, bare = CartPole().reset(key, plain)  # The same start: the same key.
    np.testing.assert_array_equal(obs, first)
    obs, *_ = env.step_env(key, state, jnp.int32(1), params)
    expected, *_ = CartPole().step_env(key, bare, jnp.int32(1), plain)
    np.testing.assert_array_equal(obs, expected)


def test_a_pool_holds_resets_with_numbers_of_their_own():
    config = tiny_config(env_params=RANGES, reset_scheme="pool", reset_pool_size=16)
    env = resolve_env(config)
    stepper = make_stepper(with_params(config, env), env, None)
    pool = jax.jit(lambda key: draw_pool(stepper, key))(jax.random.key(0))
    assert len(set(np.asarray(drawn_params(pool.state)["length"]).tolist())) == 16
    with pytest.raises(ConfigError, match="Use reset_scheme='fresh'"):
        resolve_env(config.replace(randomise_per="environment"))


SAME = {
    "length": Uniform(0.5, 0.5),
    "gravity": LogUniform(9.8, 9.8),
    "masspole": Choice((0.1, 0.1)),
    "max_steps_in_episode": Uniform(500, 500),
}


@pytest.mark.slow(optimised=False)
def test_constant_distributions_are_the_plain_numbers_bit_for_bit():
    """Numbers that both programs take while they run: nothing is folded into them."""
    plain = {"length": 0.5, "gravity": 9.8, "masspole": 0.1}
    overrides = {f"env_params.{name}": value for name, value in plain.items()}
    key = jax.random.key(0)
    one = jax.jit(purerl.make_train(tiny_config()))(key, overrides)
    two = jax.jit(purerl.make_train(tiny_config(env_params=SAME)))(key)
    assert_same_bits((one.metrics, one.evaluation), (two.metrics, two.evaluation))


@pytest.mark.slow(optimised=False)
def test_vmapped_ranges_are_each_of_them():
    config = tiny_config(env_params=RANGES)
    overrides = {
        "env_params.length.low": jnp.array([0.1, 0.4]),
        "env_params.length.high": jnp.array([0.2, 3.0]),
    }
    batch = jax.vmap(purerl.make_train(config), in_axes=(None, 0))
    key = jax.random.key(0)
    together = jax.jit(batch)(key, overrides)
    second = {name: value[1] for name, value in overrides.items()}
    one = jax.jit(purerl.make_train(config))(key, second)
    found = jax.tree.map(lambda x: x[1], (together.metrics, together.evaluation))
    expected = one.metrics, one.evaluation
    chex.assert_trees_all_close(found, expected, rtol=2e-4, atol=1e-5)
    lengths = together.state.envs.state.drawn["length"]
    assert (lengths[0] <= 0.2).all() and (lengths[1] >= 0.4).all()


def test_evaluations_draw_for_every_episode():
    """Episodes of one step whose return is the number that was drawn."""
    config = tiny_config(
        env="probe/constant-reward", env_params={"reward": Uniform(1.0, 3.0)}
    )
    result = jax.jit(purerl.make_train(config))(jax.random.key(0))
    returns = np.asarray(result.evaluation["episode_return"])
    assert returns.size == 6 == len(set(returns.ravel().tolist()))
    assert ((returns > 1) & (returns < 3)).all()
    # The mean of 32 episodes of training, whose standard error is 0.1.
    earned = np.asarray(result.metrics["episode_return"])
    assert (np.abs(earned - 2.0) < 0.5).all() and len(set(earned.tolist())) == 20


def test_a_time_limit_that_is_drawn_is_planned_with_its_maximum():
    limits = {"max_steps_in_episode": Uniform(3.2, 6.7)}
    config = tiny_config(env_params=limits, eval_max_steps=0)
    env = resolve_env(config)
    assert time_limit(config, env) == 7
    params = bind_params(env, config.env_params)
    keys = jax.random.split(jax.random.key(0), 64)
    state = jax.jit(jax.vmap(env.reset, (0, None)))(keys, params)[1]
    steps = drawn_params(state)["max_steps_in_episode"]
    assert steps.dtype == jnp.int32
    assert set(np.asarray(steps).tolist()) == set(range(3, 8))
    moved = {"env_params.max_steps_in_episode.high": 9.0}
    with pytest.raises(ConfigError, match=r"is 9, but evaluations are planned for 7"):
        purerl.make_train(config)(jax.random.key(0), moved)


def test_spaces_are_as_wide_as_the_numbers_can_make_them():
    env = Randomised(CartPole())
    params = bind_params(env, {"x_threshold": Uniform(1.0, 3.0)})
    assert env.observation_space(params).high[0] == 6.0
    assert env.observation_space(params).low[0] == -6.0
    assert env.action_space(params).n == 2


def test_distributions_and_tables_are_written_and_read_back(tmp_path):
    for numbers in (RANGES | {"masspole": LogUniform(1e-3, 1)}, TABLE):
        config = tiny_config(env_params=numbers, randomise_per="environment")
        serialise.to_yaml(config, tmp_path / "config.yaml")
        assert serialise.from_yaml(tmp_path / "config.yaml") == config
    text = serialise.part_text(TABLE["length"])
    pairs = [f"length={text}", "masscart=choice((0.5, 1, 2, 2), 'robots')"]
    assert serialise.parse_params(read_mapping("env_params", pairs)) == TABLE
    written = {"length": "Uniform(0.4, 6e-1)", "gravity": "choice((9, 12))"}
    read = serialise.from_dict({"env_params": written}).env_params
    assert read == {"length": Uniform(0.4, 0.6), "gravity": Choice((9, 12))}


REFUSED = [
    ({"length": Uniform(0.6, 0.4)}, "low must not be greater than high"),
    ({"length": LogUniform(0.0, 1.0)}, r"length\.low must be greater than 0"),
    ({"length": Uniform(0.1, float("inf"))}, "must be finite"),
    ({"length": Choice((0.1, float("nan")))}, "finite single numbers"),
    ({"lenght": Uniform(0.1, 1.0)}, "Did you mean 'length'"),
    (TABLE | {"length": SHORT}, UNEQUAL),
]


@pytest.mark.parametrize(("numbers", "words"), REFUSED)
def test_what_cannot_be_drawn_from_is_refused(numbers, words):
    with pytest.raises(ConfigError, match=words):
        purerl.make_train(tiny_config(env_params=numbers))


STICKY = {"env_wrappers": ("StickyActions",)}


REFUSED_OVERRIDES = [
    ({}, "length", Uniform(0.4, 0.6), "Put the distribution into the config"),
    ({"env_params": TABLE}, "length", SHORT, UNEQUAL),
    (STICKY, "sticky_probability", 25.0, "must lie between 0 and 1, got 25"),
]


@pytest.mark.parametrize(("fields", "name", "value", "words"), REFUSED_OVERRIDES)
def test_an_override_that_cannot_be_drawn_from_is_refused(fields, name, value, words):
    train = purerl.make_train(tiny_config(**fields))
    with pytest.raises(ConfigError, match=words):
        train(jax.random.key(0), {f"env_params.{name}": value})


def test_numbers_of_wrappers_are_refused_as_axes():
    config = tiny_config(**STICKY)
    train, key = purerl.make_train(config), jax.random.key(0)
    many = jax.vmap(lambda share: train(key, {"env_params.sticky_probability": share}))
    jax.eval_shape(many, np.array([0.5, 25.0], np.float32))  # Traced: nobody knows.
    with pytest.raises(ConfigError, match=r"at env_params[.]sticky_probability=25"):
        purerl.plan(config, {"env_params.sticky_probability": [0.25, 25]})


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Randomised, RandomisedOnce])
def test_a_randomised_environment_keeps_the_contract(kind):
    env = kind(CartPole())
    envs.check(env, bind_params(env, {**RANGES, "x_threshold": Uniform(1.0, 3.0)}))


# Choices of one group: rows of a table that are drawn together


def rows(numbers, *names):
    """Rows that were drawn, and how often each of them was."""
    found, counts = np.unique(
        np.stack([numbers[name] for name in names], -1), axis=0, return_counts=True
    )
    return [tuple(row) for row in found], counts


def test_other_groups_and_choices_are_independent_of_the_table():
    env = Randomised(CartPole())
    shorter = TABLE | {"length": SHORT.replace(group="others")}
    purerl.make_train(tiny_config(env_params=shorter))
    other = {
        "gravity": Choice((9.0, 10.0, 11.0, 12.0), group="planets"),
        "force_mag": Choice((5.0, 6.0, 7.0, 8.0)),
        "tau": Choice((0.01, 0.02, 0.03, 0.04)),
    }
    params = bind_params(env, TABLE | other)
    reset = jax.vmap(lambda key: drawn_params(env.reset(key, params)[1]))
    numbers = jax.jit(reset)(jax.random.split(jax.random.key(0), DRAWS))
    assert set(rows(numbers, "masscart", "length")[0]) == ROWS
    for pair in itertools.combinations(("length", *other), 2):
        found, counts = rows(numbers, *pair)
        assert len(found) == 16
        error = 4 * np.sqrt(DRAWS * 15 / 16**2)
        assert (np.abs(counts - DRAWS / 16) < error).all()


def test_values_of_a_table_are_leaves_that_move():
    env = Randomised(CartPole())
    config = tiny_config(env_params=TABLE)
    genome = Genome(config, resolve_env(config), ["env_params.length.values"])
    assert genome.size == 4

    def lengths(shift):
        moved = Choice(tuple(x + shift for x in LENGTHS), "robots")
        params = bind_params(env, TABLE | {"length": moved})
        reset = jax.vmap(lambda key: drawn_params(env.reset(key, params)[1]))
        return reset(jax.random.split(jax.random.key(0), 100))

    numbers = jax.jit(jax.vmap(lengths))(jnp.array([0.0, 1.0]))
    one, other = ({n: np.asarray(x[i]) for n, x in numbers.items()} for i in (0, 1))
    assert set(rows(one, "masscart", "length")[0]) == ROWS
    np.testing.assert_array_equal(one["masscart"], other["masscart"])
    np.testing.assert_allclose(other["length"], one["length"] + 1.0, rtol=1e-6)

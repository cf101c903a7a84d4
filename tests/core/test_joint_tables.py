"""Choices of one group: rows of a table that are drawn together."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

import purerl
from purerl import serialise
from purerl.acting.environment import bind_params, resolve_env
from purerl.cli.flags import read_mapping
from purerl.config import ConfigError
from purerl.envs.cartpole import CartPole
from purerl.envs.wrappers import Randomised, RandomisedOnce, drawn_params
from purerl.envs.wrappers.randomised import _NUMBERS
from purerl.meta.genome import Genome
from purerl.randomisation import Choice, Uniform
from tests.helpers import tiny_config

DRAWS = 4_000
MASSES, LENGTHS = (0.5, 1.0, 2.0, 2.0), (0.3, 0.7, 0.4, 0.5)
TABLE = {
    "masscart": Choice(MASSES, group="robots"),
    "length": Choice(LENGTHS, group="robots"),
}
ROWS = {tuple(np.float32(row)) for row in zip(MASSES, LENGTHS, strict=True)}


def drawn(env, params, number=DRAWS):
    """Numbers by name `[number]` of as many resets."""
    keys = jax.random.split(jax.random.key(0), number)
    draw = jax.jit(jax.vmap(lambda key: drawn_params(env.reset(key, params)[1])))
    return {name: np.asarray(value) for name, value in draw(keys).items()}


def rows(numbers, *names):
    """Rows that were drawn, and how often each of them was."""
    found, counts = np.unique(
        np.stack([numbers[name] for name in names], -1), axis=0, return_counts=True
    )
    return [tuple(row) for row in found], counts


@pytest.mark.parametrize("kind", [Randomised, RandomisedOnce])
def test_rows_never_mix_and_are_drawn_equally_often(kind):
    env = kind(CartPole())
    found, counts = rows(drawn(env, bind_params(env, TABLE)), "masscart", "length")
    assert set(found) == ROWS
    error = 4 * np.sqrt(DRAWS * 0.25 * 0.75)
    assert (np.abs(counts - DRAWS / 4) < error).all()


def test_other_groups_and_choices_are_independent_of_the_table():
    env = Randomised(CartPole())
    other = {
        "gravity": Choice((9.0, 10.0, 11.0, 12.0), group="planets"),
        "force_mag": Choice((5.0, 6.0, 7.0, 8.0)),
    }
    numbers = drawn(env, bind_params(env, TABLE | other))
    assert set(rows(numbers, "masscart", "length")[0]) == ROWS
    for pair in (("length", "gravity"), ("length", "force_mag"), tuple(other)):
        found, counts = rows(numbers, *pair)
        assert len(found) == 16
        error = 4 * np.sqrt(DRAWS * 15 / 16**2)
        assert (np.abs(counts - DRAWS / 16) < error).all()


def test_a_choice_without_a_group_draws_with_a_key_of_its_own():
    env = Randomised(CartPole())
    alone = {
        "masscart": Choice(MASSES),
        "length": Choice(LENGTHS),
        "gravity": Uniform(9, 12),
    }
    params, key = bind_params(env, alone), jax.random.key(7)
    numbers = drawn_params(env.reset(key, params)[1])
    keys = jax.random.split(jax.random.fold_in(key, _NUMBERS), len(alone))
    for one, (name, value) in zip(keys, numbers.items(), strict=True):
        assert value == getattr(params, name)(one)
    found, _ = rows(drawn(env, params), "masscart", "length")
    assert len(found) == 12  # Three different masses, and each with four lengths.


@pytest.mark.parametrize("per", ["episode", "environment"])
def test_a_row_stays_as_long_as_a_single_number_does(per):
    env = resolve_env(tiny_config(env_params=TABLE, randomise_per=per))
    params = bind_params(env, TABLE)

    @jax.jit
    @jax.vmap
    def play(key):
        def body(state, key):
            before = drawn_params(state)
            _, state, _, *flags, _ = env.step(key, state, jnp.int32(1), params)
            return state, (before, drawn_params(state), flags[0] | flags[1])

        state = env.reset(key, params)[1]
        return jax.lax.scan(body, state, jax.random.split(key, 60))[1]

    before, after, ends = play(jax.random.split(jax.random.key(0), 64))
    assert set(rows({n: x.ravel() for n, x in after.items()}, *TABLE)[0]) == ROWS
    changed = np.zeros(ends.shape, bool)
    for name in TABLE:
        changed |= np.asarray(before[name] != after[name])
    assert ends.sum() > 30 and not (changed & ~ends).any()
    assert changed.any() == (per == "episode")


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


def test_tables_are_written_to_files_and_command_lines_and_read_back(tmp_path):
    config = tiny_config(env_params=TABLE)
    path = tmp_path / "config.yaml"
    serialise.to_yaml(config, path)
    assert serialise.from_yaml(path) == config
    for text in ("Choice((0.3, 0.7, 0.4, 0.5), group=robots)", None):
        text = text or serialise.part_text(TABLE["length"])
        pairs = [f"length={text}", "masscart=choice((0.5, 1, 2, 2), 'robots')"]
        read = read_mapping("env_params", pairs)
        assert serialise.parse_params(read) == TABLE
    # A choice of its own is written as before there were groups.
    alone = {"length": Choice((0.5, 0.7))}
    serialise.to_yaml(config.replace(env_params=alone), path)
    written = {"type": "Choice", "values": [0.5, 0.7]}
    assert yaml.safe_load(path.read_text())["env_params"]["length"] == written
    assert serialise.part_text(alone["length"]) == "Choice(values=(0.5, 0.7))"


def test_columns_of_different_lengths_are_refused_in_a_sentence():
    short = TABLE | {"length": Choice((0.3, 0.7), "robots")}
    words = r"length must have as many values as masscart.*'robots' \(4\), got 2"
    with pytest.raises(ConfigError, match=words):
        purerl.make_train(tiny_config(env_params=short))
    train = purerl.make_train(tiny_config(env_params=TABLE))
    with pytest.raises(ConfigError, match=words):
        train(jax.random.key(0), {"env_params.length": short["length"]})
    whole = CartPole().default_params.replace(**short)
    with pytest.raises(ConfigError, match="must have as many values"):
        purerl.make_train(tiny_config(env_params=whole))
    other = TABLE | {"length": Choice((0.3, 0.7), "others")}
    purerl.make_train(tiny_config(env_params=other))

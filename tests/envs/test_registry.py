"""Names: complete, cheap to list, helpful when wrong."""

import importlib

import pytest

from purerl import envs
from purerl.envs import registry
from purerl.envs.cartpole import CartPole
from tests.helpers import python

NAMES = {
    "gymnax": (registry.GYMNAX_IDS, "gymnax:registered_envs"),
    "brax": (registry.BRAX_NAMES, "brax.envs:_envs"),
    "jumanji": (registry.JUMANJI_NAMES, "jumanji.registration:_REGISTRY"),
}


@pytest.mark.filterwarnings("ignore:JAXopt is no longer:DeprecationWarning")
@pytest.mark.parametrize("package", NAMES)
def test_names_are_those_that_the_package_registers(package):
    pytest.importorskip(package)
    names, place = NAMES[package]
    module, _, table = place.partition(":")
    there = set(getattr(importlib.import_module(module), table))
    assert set(names) == there - {"CartPole-v1"}  # Ours has that name.


def test_names_of_craftax_make_its_games():
    craftax = pytest.importorskip("craftax.craftax_env")
    for name in registry.CRAFTAX_NAMES:
        craftax.make_craftax_env_from_name(name, auto_reset=False)


def test_importing_and_listing_loads_no_heavy_package():
    code = (
        "import sys; from purerl import envs; envs.registered()\n"
        "envs.make('CartPole-v1')\n"
        "envs.describe('Doors-v0')\n"
        "heavy = {'gymnax', 'brax', 'gymnasium', 'matplotlib', 'mujoco'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    python("-c", code)


WRONG = [
    ("CartPol-v1", {}, "'CartPol-v1' is not registered. Did you mean 'CartPole-v1"),
    ("halfcheetah", {}, "Did you mean 'brax/halfcheetah"),
    ("brax/mine", {}, "`envs.register` adds one"),
    ("Breakout", {}, "Did you mean 'Breakout-MinAtar"),
    ("craftax-symbolic", {}, "Did you mean 'craftax/Craftax-Symbolic-v1"),
    ("qqqqqqqq", {}, r"registered\. `envs.*craftax/NAME, jumanji/NAME, play"),
    (envs.CartPole(), {}, r"id must be a string, got CartPole\(\); a config takes"),
    ("Doors-v0", {"doors": 2}, r"\['doors'\].*it takes size, num_doors, obs"),
    ("DeepSea-bsuite", {"depth": 4}, r"options of DeepSea-bsuite were \['depth'\]"),
    ("Doors-v0", {"size": (2, 5)}, "size must be at least 3 x 2"),
    ("Doors-v0", {"size": (15, 5)}, "num_doors .* column 10, off a grid 5 wide"),
    ("Maze-v0", {"view": 4}, "view must be odd, got 4"),
    ("Maze-v0", {"size": (3, 3), "max_walls": 8}, "max_walls must be at most 7"),
    ("ObjectGrid-v0", {"size": (2, 2), "num_objects": 4}, "num_objects .* most 3 on"),
    ("GridWorld-v0", {"goal": (8, 0)}, "goal must be a cell of the grid"),
    ("GridWorld-v0", {"goal": (7, 11)}, "must be two cells"),
    ("GridWorld-v0", {"size": 5}, "size must be two whole numbers, such as .*, got 5"),
    ("CliffWalking-v0", {"size": (1, 9)}, "size must be at least 2 x 3"),
    ("CliffWalking-v0", {"start": (0, 0)}, "start must be the lower corner"),
    ("KArmedBandit-v0", {"num_arms": 1}, "num_arms must be a whole number of at least"),
]


@pytest.mark.parametrize(("id", "options", "words"), WRONG)
def test_names_and_options_that_cannot_be(id, options, words):
    with pytest.raises(ValueError, match=words):
        envs.make(id, **options)


@pytest.fixture
def clean_registry(monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))


@pytest.mark.usefixtures("clean_registry")
def test_register_adds_a_name():
    class Mine(CartPole):
        """### Description

        My own pole.
        More about it.
        """

    envs.register("Mine-v0", Mine)
    assert isinstance(envs.make("Mine-v0"), Mine)
    assert "Mine-v0" in envs.registered()
    assert list(envs.registered()) == sorted(envs.registered())
    seen = envs.describe("Mine-v0")
    assert (seen.source, seen.summary) == ("registered", "My own pole.")


@pytest.mark.usefixtures("clean_registry")
def test_the_same_cell_may_run_twice_but_nothing_else_takes_the_id():
    def cell():
        class Mine(CartPole):
            """A pole of a notebook."""

        return Mine

    first, second = cell(), cell()
    envs.register("Mine-v0", first)
    envs.register("Mine-v0", second)
    assert type(envs.make("Mine-v0")) is second

    envs.register("Lambda-v0", lambda: first())
    for id, other in (("Mine-v0", CartPole), ("Lambda-v0", lambda: second())):
        with pytest.raises(ValueError, match=r"already registered \(registered\)"):
            envs.register(id, other)
    assert type(envs.make("Lambda-v0")) is first


REFUSED = [
    ("CartPole-v1", "already registered"),
    ("gymnasium/Mine-v0", "begins with gymnasium/, under"),
]


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize(("id", "sentence"), REFUSED)
def test_bad_registrations(id, sentence):
    with pytest.raises(ValueError, match=sentence):
        envs.register(id, CartPole)


def test_describe():
    seen = envs.describe("Doors-v0", observation="planes")
    assert (seen.id, seen.source) == ("Doors-v0", "purerl")
    assert seen.observation_space.shape == (15, 15, 3) and seen.action_space.n == 5
    assert seen.params.max_steps_in_episode == 60
    assert seen.summary.startswith("Walk from the bottom row")


@pytest.mark.slow(optimised=False)
def test_the_first_import_of_gymnax_under_a_trace_breaks_nothing():
    """A process of its own, in which nobody has imported gymnax before."""
    code = """
import jax
from purerl import envs
def first(key):
    env = envs.make("FrozenLake-misc")
    return env.reset(key, env.default_params)[0]
assert jax.jit(first)(jax.random.key(0)) == 0
env = envs.make("FrozenLake-misc")
params = env.default_params
_, state = env.reset(jax.random.key(0), params)
step = jax.jit(env.step_env)
obs, *_ = step(jax.random.key(0), state, 1, params)
print(int(obs))
"""
    assert python("-c", code).strip().isdigit()

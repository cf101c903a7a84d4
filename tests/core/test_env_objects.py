"""Environment objects: by import path in files; in words what differs differs there."""

import dataclasses
import enum
import functools
import json
import os
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import envs
from purerl.acting.environment import resolve_env
from purerl.config import ConfigError
from purerl.serialise import env_name, env_text, plain
from tests.helpers import python, tiny_config

HERE = __name__
ROOT = Path(__file__).parents[2]


class Paid(envs.CartPole):
    """A pole whose steps pay what it was made with; not a dataclass of its own."""

    def __init__(self, pay, **fields):
        super().__init__()
        self.__dict__.update(fields, pay=pay)

    def step_env(self, key, state, action, params):
        obs, state, reward, *rest = super().step_env(key, state, action, params)
        return obs, state, reward * self.pay, *rest


class Plain:
    """An environment that is no dataclass, with all kinds of attributes."""

    def __init__(self, **fields):
        self.__dict__.update(fields)

    def reset(self):
        """It is not played."""

    def step(self):
        """It is not played."""

    @functools.cached_property
    def table(self):
        return np.arange(3)


class Kind(enum.Enum):
    ONE = 1
    OTHER = 2


@dataclasses.dataclass(eq=False)
class Layout(envs.CartPole):
    walls: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(3))
    options: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(unsafe_hash=True)
class Heavy(envs.CartPole):
    mass: float = 1.0
    shape: tuple[int, ...] = (2, 3)


class Kept(envs.CartPole):
    """No dataclass of its own: what it is called with are its attributes."""

    def __init__(self, walls=(), inner=None):
        super().__init__()
        self.walls, self.inner = np.asarray(walls, np.float32), inner


@dataclasses.dataclass(unsafe_hash=True)
class Shift(envs.wrappers.ObservationWrapper):
    by: float = 0.5

    def observe(self, obs, state, params):
        return obs + self.by


def mask(state, params):
    return jnp.ones(2, bool)


def local():
    class Inside(envs.CartPole):
        """It has no path."""

    return Inside()


def at_most(number):
    return lambda state, params: jnp.arange(4) < number


make = envs.make
PAIRS = {
    "numbers": (Plain(pay=1), Plain(pay=7)),
    "private arrays": (Plain(_walls=np.zeros(3)), Plain(_walls=np.ones(3))),
    "arrays of a dataclass": (Layout(), Layout(walls=np.ones(3))),
    "dictionaries": (Layout(), Layout(options={"a": 1})),
    "arrays of JAX": (Plain(x=jnp.zeros(2)), Plain(x=jnp.zeros(2, jnp.int32))),
    "inside lists": (Plain(x=[np.zeros(2)]), Plain(x=[np.ones(2)])),
    "closures": (Plain(mask=at_most(2)), Plain(mask=at_most(3))),
    "compiled functions": (Plain(f=jax.jit(at_most(1))), Plain(f=jax.jit(at_most(2)))),
    "enumerations": (Plain(x=Kind.ONE), Plain(x=Kind.OTHER)),
    "long lists": (Plain(x=list(range(999))), Plain(x=list(range(998)))),
    "inside": (Plain(_env=make("CartPole-v1")), Plain(_env=make("Acrobot-v1"))),
    "hosted": (make("gymnasium/CartPole-v1"), make("gymnasium/Acrobot-v1")),
}


@pytest.mark.parametrize("what", PAIRS)
def test_what_differs_is_written_differently(what):
    one, other = PAIRS[what]
    assert env_text(one) == env_text(one) != env_text(other)


HEAVY = {"type": f"{HERE}:Heavy", "mass": 2.0, "shape": [2, 3]}
IN_FILES = {
    "a dataclass": (Heavy(2.0), HEAVY),
    "of this package": (envs.CartPole(), {"type": "purerl.envs:CartPole"}),
    "attributes": (
        Kept([1, 2], Heavy(2.0)),
        {"type": f"{HERE}:Kept", "walls": [1.0, 2.0], "inner": HEAVY},
    ),
    "a wrapper": (
        Shift(Shift(Heavy(2.0)), 0.1),
        {"type": f"{HERE}:Shift", "env": {"type": f"{HERE}:Shift", "env": HEAVY}},
    ),
    "a function": (
        envs.ActionMask(Heavy(2.0), mask),
        {"type": "purerl.envs:ActionMask", "mask": {"import": f"{HERE}:mask"}},
    ),
    "of an adapter": (
        Shift(make("Pendulum-v1"), 0.1),
        {"type": f"{HERE}:Shift", "env": {"type": "purerl.envs:make"}},
    ),
    "on the host": (
        make("gymnasium/CartPole-v1"),
        {"type": "purerl.envs:make", "id": "gymnasium/CartPole-v1"},
    ),
}


def has(whole, part):
    return all(
        has(whole[name], one) if isinstance(one, dict) else whole[name] == one
        for name, one in part.items()
    )


@pytest.mark.parametrize(("env", "part"), IN_FILES.values(), ids=IN_FILES)
def test_an_object_that_a_module_names_comes_back_from_a_file(env, part, tmp_path):
    config = tiny_config(env=env)
    values = purerl.serialise.to_dict(config)
    assert has(values["env"], part)
    purerl.serialise.to_yaml(config, tmp_path / "config.yaml")
    again = purerl.serialise.from_yaml(tmp_path / "config.yaml")
    assert type(again.env) is type(env) and env_text(again.env) == env_text(env)
    assert purerl.serialise.to_dict(again) == values
    assert env_name(env) == env_name(values["env"])


IN_WORDS = {
    "a class in a function": local(),
    "a function without a name": envs.ActionMask(Heavy(), lambda *_: jnp.ones(2, bool)),
    "other options than attributes": Paid(1.0),
    "an array that its class does not make": Layout(),
    "an object": Kept(inner=object()),
}


@pytest.mark.parametrize("env", IN_WORDS.values(), ids=IN_WORDS)
def test_an_object_that_no_file_can_hold_is_in_words(env):
    assert plain(env, "env") == env_text(env) == env_name(env)


BY_PATH = {
    "Heavy": Heavy(),
    "Heavy(mass=2.0)": Heavy(2.0),
    "Heavy(2.0, shape=(4,))": Heavy(2.0, (4,)),
}


@pytest.mark.parametrize("text", BY_PATH)
def test_a_class_is_an_environment_by_its_path(text):
    config = tiny_config(env=f"{HERE}:{text}", env_wrappers=f"{HERE}:Shift(by=0.1)")
    assert resolve_env(config) == Shift(BY_PATH[text], 0.1)
    assert purerl.serialise.from_dict(purerl.serialise.to_dict(config)) == config
    assert envs.make(f"{HERE}:{text}", shape=[7]).shape == [7]


MISTAKES = [
    ({"env": "nowhere.envs:A"}, "env names nowhere.envs:A.*--im"),
    ({"env": f"{HERE}:Heav"}, "env: cannot find .*Heav"),
    ({"env": f"{HERE}:mask"}, "env must name a class of environments"),
    ({"env": "os:abort"}, "env must name a class of environments"),
    ({"env": f"{HERE}:Heavy(mas=1)"}, "takes mass, shape"),
    ({"env": f"{HERE}:Heavy", "env_kwargs": {"mas": 1}}, "takes mass, shape"),
    ({"env": f"{HERE}:Heavy("}, "env: cannot read"),
    ({"env_wrappers": f"{HERE}:Heavy(2)"}, "env_wrappers must name subclasses"),
    ({"env_wrappers": "nowhere:A"}, "env_wrappers names nowhere:A"),
]


@pytest.mark.parametrize(("fields", "sentence"), MISTAKES)
def test_a_path_that_is_wrong_is_refused_with_a_sentence(fields, sentence):
    with pytest.raises(ConfigError, match=sentence):
        resolve_env(tiny_config(**fields))


PROGRAM = """
import purerl
from purerl import envs

class Own(envs.CartPole):
    pass

if __name__ == "__main__":
    values = purerl.serialise.to_dict(purerl.PPOConfig(env=Own()))
    print(values["env"], type(purerl.serialise.from_dict(values).env) is Own)
"""


def test_what_a_program_defines_has_the_path_by_which_others_import_it(tmp_path):
    (tmp_path / "lab.py").write_text(PROGRAM)
    for words in (["lab.py"], ["-m", "lab"]):
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        said = python(*words, cwd=tmp_path, env=env)
        assert said == "{'type': 'lab:Own'} True\n"


def test_the_words_are_the_same_in_another_process():
    code = """
        from tests.core.test_env_objects import PAIRS, env_text
        print("\\n".join(env_text(env) for pair in PAIRS.values() for env in pair))
    """
    env = os.environ | {"PYTHONHASHSEED": "7"}
    said = python("-c", textwrap.dedent(code), cwd=ROOT, env=env)
    here = [env_text(env) for pair in PAIRS.values() for env in pair]
    assert said.splitlines() == here


def test_a_folder_goes_on_with_its_own_environment_only(tmp_path):
    options = {"seeds": 1, "out": tmp_path, "progress": False}
    config = tiny_config(env=Paid(1.0), num_evaluations=0)
    purerl.run(config, **options)
    purerl.run(config, resume=True, **options)
    with pytest.raises(ConfigError, match="env"):
        purerl.run(config.replace(env=Paid(7.0)), resume=True, **options)


NESTED = {"config": {"features": ["x", "y"], "maze": [[1, 0], [0, 1]]}, "size": [2, 3]}


def test_a_registered_factory_is_given_lists_and_dicts():
    def factory(config, size):
        assert type(config) is dict and type(config["features"]) is list
        assert type(config["maze"][0]) is list and size == [2, 3]
        config.pop("maze")  # Some write into their config.
        return envs.CartPole()

    envs.register("test/nested", factory)
    config = tiny_config(env="test/nested", env_kwargs=NESTED)
    values = purerl.serialise.to_dict(config)
    assert values["env_kwargs"] == NESTED and isinstance(hash(config.env_kwargs), int)
    again = purerl.serialise.from_dict(json.loads(json.dumps(values)))
    assert again == config
    for each in (config, again, config):
        assert purerl.resolve(each).env_kwargs == config.env_kwargs


def test_env_kwargs_that_no_file_can_hold_are_refused_before_training(tmp_path):
    config = tiny_config(env="Doors-v0", env_kwargs={"size": (7, 9)})
    path = purerl.serialise.to_dict(config.replace(env_kwargs={"file": Path("a/b")}))
    assert path["env_kwargs"] == {"file": "a/b"}
    kinds = {"walls": np.zeros(2), "names": ["a", None], "more": {"x": jnp.ones(2)}}
    kept = purerl.serialise.to_dict(config.replace(env_kwargs=kinds))["env_kwargs"]
    assert kept == {"walls": [0, 0], "names": ["a", None], "more": {"x": [1, 1]}}
    for bad in (object(), Paid(1), Layout, jax.random.key(0), {1: 2}, len):
        with pytest.raises(ConfigError, match=r"env_kwargs\.walls holds .*no file"):
            purerl.serialise.to_dict(config.replace(env_kwargs={"walls": bad}))

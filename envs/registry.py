"""Environments by name.

The packages of others are tables here and in `adapters.names`, so that listing or
checking a name imports none of them, which takes seconds.
"""

import dataclasses
import difflib
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from typing import Any

import jax

from . import probe
from .adapters.names import BRAX_NAMES, CRAFTAX_NAMES, GYMNAX_IDS, JUMANJI_NAMES
from .adapters.packages import (
    own_names,
    refused_options,
    require_package,
    with_opengl_as_asked,
)
from .base import Environment, EnvParams
from .cartpole import CartPole
from .doors import Doors
from .gridworld import CliffWalking, GridWorld
from .maze import Maze
from .object_grid import ObjectGrid
from .spaces import Space
from .swingup import (
    CartpoleBalance,
    CartpoleBalanceSparse,
    CartpoleSwingup,
    CartpoleSwingupSparse,
)

Factory = Callable[..., Environment]


@dataclasses.dataclass(frozen=True)
class EnvDescription:
    """The description of an environment that the command line shows.

    Attributes:
        id: The name for `make`.
        source: Where the environment comes from: `purerl`, `gymnax`, `brax`, `craftax`,
            `jumanji`, `playground`, `gymnasium`, `envpool` or `registered`.
        observation_space: Observation space with the default parameters.
        action_space: Action space with the default parameters.
        params: The default parameters.
        summary: First line of the documentation.
        note: Warning about returns that do not compare; empty where there is none.
    """

    id: str
    source: str
    observation_space: Space
    action_space: Space
    params: EnvParams
    summary: str
    note: str = ""


@dataclasses.dataclass(frozen=True)
class _Entry:
    factory: Any  # A function, or the name of its place in `purerl.contrib`.
    source: str


def make(id: str, **options: Any) -> Environment:
    """Make the environment called `id`.

    Args:
        id: One of `registered()`, such as `"CartPole-v1"` or `"brax/halfcheetah"`, or
            `craftax/`, `jumanji/` or `playground/` and a name of that package's,
            `brax/` and a name of `brax.envs.register_environment`, or `gymnasium/` or
            `envpool/` and a name, for training on the host.
        **options: Structural options of the environment, such as `backend="spring"`.

    Raises:
        ValueError: no such id (the message names near ones), or no such option.
    """
    package, name = _parts(id)
    if is_on_host(id):
        return _adapted(package, name, **options)
    if package in _SUITES and name:
        with jax.ensure_compile_time_eval():
            return _adapted(package, name, **options)
    factory = _entry(id).factory
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        taken = [x for x in inspect.signature(factory).parameters if x != "self"]
        raise refused_options(id, options, error, taken or ["none"]) from None
    # What is imported here for the first time makes arrays of its own, which inside a
    # trace would be part of that trace, and broken for the rest of the process.
    with jax.ensure_compile_time_eval():
        return factory(**options)


def register(id: str, factory: Factory) -> None:
    """Let `make(id)` call `factory`.

    The class or function of one name may be registered again under its id, as when a
    notebook's cell runs twice: the new one takes the old one's place.

    Args:
        id: A new name.
        factory: Function of `make`'s keywords that returns an `Environment`.

    Raises:
        ValueError: the id is taken, or empty.
        TypeError: the factory cannot be called.
    """
    _add(id, factory, "registered")


def registered() -> tuple[str, ...]:
    """Return every id that `make` knows, sorted."""
    return tuple(sorted(_ENTRIES))


def source_of(id: str) -> str:
    """Return where an id comes from.

    That is `purerl`, `gymnax`, `brax`, `craftax`, `jumanji`, `playground`, `gymnasium`,
    `envpool` or `registered`, which what a user has registered in brax is too.

    Raises:
        ValueError: no such id.
    """
    package, name = _parts(id)
    if is_on_host(id) or (package in _SUITES and name):
        return package
    return _entry(id).source


def is_on_host(id: str) -> bool:
    """Return whether an id is one of Gymnasium's or EnvPool's, stepped on the host."""
    return "/" in str(id) and _parts(id)[0] in _ON_HOST


def _parts(id: Any) -> tuple[str, str]:
    """The package before the slash of an id, and the name behind it."""
    package, _, name = id.partition("/") if isinstance(id, str) else ("", "", "")
    return package, name


def describe(id: str, **options: Any) -> EnvDescription:
    """Describe the environment called `id`; makes it, so adapters load their package.

    Raises:
        ValueError: as `make`.
    """
    env = make(id, **options)
    params = env.default_params
    documented = getattr(env, "wrapped", env)
    return EnvDescription(
        id=id,
        source=source_of(id),
        observation_space=env.observation_space(params),
        action_space=env.action_space(params),
        params=params,
        summary=_first_sentence_line(documented),
        note=env.note,
    )


def _add(id: str, factory: Factory, source: str) -> None:
    if not isinstance(id, str) or not id:
        raise ValueError(f"id must be a name, got {id!r}: give a non-empty string.")
    if not callable(factory):
        raise TypeError(
            f"factory of {id!r} must be callable, got {factory!r}: give the class or "
            "a function that returns the environment."
        )
    package, _ = _parts(id)
    is_theirs = "/" in id and package in (*_ON_HOST, *_SUITES)
    if source == "registered" and is_theirs:
        raise ValueError(
            f"id {id!r} begins with {package}/, under which environments of that "
            "package are found: choose another."
        )
    if id in _ENTRIES and not _is_rerun(factory, _ENTRIES[id]):
        raise ValueError(
            f"id {id!r} is already registered ({_ENTRIES[id].source}): choose another."
        )
    _ENTRIES[id] = _Entry(factory, source)


def _entry(id: str) -> _Entry:
    """Return what makes an environment of the tables, or of brax's own registry.

    That one is asked anew each time, as users add to it at any time.
    """
    package, name = _parts(id)
    if package == "brax" and name in own_names():
        return _Entry(partial(_adapted, "brax", name), "registered")
    if id not in _ENTRIES:
        raise ValueError(_unknown_id(id))
    entry = _ENTRIES[id]
    if isinstance(entry.factory, str):
        module, _, name = entry.factory.partition(":")
        with jax.ensure_compile_time_eval():  # As in `make`.
            found = getattr(import_module(f"purerl.contrib.{module}"), name)
        entry = _ENTRIES[id] = _Entry(found, entry.source)
    return entry


def _is_rerun(factory: Factory, entry: _Entry) -> bool:
    """Return whether a user's factory is the registered one, its code run once more."""
    module, name = (getattr(factory, k, "") for k in ("__module__", "__qualname__"))
    before = entry.factory
    return (
        entry.source == "registered"
        and bool(name)
        and not name.endswith("<lambda>")  # Another lambda would have the same name.
        and module == getattr(before, "__module__", "")
        and name == getattr(before, "__qualname__", "")
    )


def _unknown_id(id: str) -> str:
    first, _, rest = str(id).partition("/")
    package = {"gym": "gymnasium"}.get(first.casefold(), first.casefold())
    if package in (*_ON_HOST, *_SUITES) and rest:
        return f"env {id!r} is not registered: did you mean {package}/{rest}?"
    named = [
        *_ENTRIES,
        *(f"brax/{name}" for name in own_names()),
        *(f"craftax/{name}" for name in CRAFTAX_NAMES),
        *(f"jumanji/{name}" for name in JUMANJI_NAMES),
    ]
    folded = {known.casefold(): known for known in named}
    near = difflib.get_close_matches(str(id).casefold(), list(folded), n=3, cutoff=0.5)
    # `halfcheetah` alone is a likely slip for `brax/halfcheetah`.
    bare = str(id).casefold()
    tails = [known for small, known in folded.items() if small.split("/")[-1] == bare]
    guesses = list(dict.fromkeys(tails + [folded[name] for name in near]))
    hint = f": did you mean {' or '.join(guesses)}?" if guesses else "."
    others = ", ".join(f"{package}/NAME" for package in (*_SUITES, *_ON_HOST))
    adds = "`envs.register` adds one"
    if package == "brax":
        adds = "`brax.envs.register_environment` adds one of brax's interface"
    return (
        f"env {id!r} is not registered{hint} `envs.registered()` lists the ids, beside "
        f"which there are {others}; {adds}. On purerl's "
        "command line, --import MODULE imports the module that does so."
    )


def _first_sentence_line(env: object) -> str:
    """The first line of the documentation that is no heading (brax's starts so)."""
    lines = (inspect.getdoc(type(env)) or "").splitlines()
    return next((line for line in lines if line and not line.startswith("#")), "")


def _adapted(package: str, name: str, /, **options: Any) -> Environment:
    """Make an environment of another package by its name there."""
    entry, needed = _ADAPTERS[package]
    if needed:
        require_package(needed, extra=package)
    module, _, cls = entry.partition(":")
    guard = with_opengl_as_asked if package in _DRAWN_BY_MUJOCO else nullcontext
    with guard():
        found = import_module(f".adapters.{module}", __package__)
    return getattr(found, cls)(name, **options)


# Package -> module and class of its adapter, and what must be installed for it.
_ADAPTERS: dict[str, tuple[str, str]] = {
    "gymnax": ("gymnax:GymnaxEnvironment", ""),
    "brax": ("brax:BraxEnvironment", ""),
    "craftax": ("craftax:CraftaxEnvironment", "craftax"),
    "jumanji": ("jumanji:JumanjiEnvironment", "jumanji"),
    "playground": ("playground:PlaygroundEnvironment", "mujoco_playground"),
    "gymnasium": ("gymnasium_host:GymnasiumEnvironment", "gymnasium"),
    "envpool": ("envpool_host:EnvPoolEnvironment", "envpool"),
}
# The packages of an extra whose environments are pure functions, and those whose
# environments are stepped on the host.
_SUITES, _ON_HOST = ("craftax", "jumanji", "playground"), ("gymnasium", "envpool")
_DRAWN_BY_MUJOCO = ("brax", "playground")
_ENTRIES: dict[str, _Entry] = {}
_OWN: dict[str, Factory] = {
    "CartPole-v1": CartPole,
    "CartpoleBalance-v0": CartpoleBalance,
    "CartpoleBalanceSparse-v0": CartpoleBalanceSparse,
    "CartpoleSwingup-v0": CartpoleSwingup,
    "CartpoleSwingupSparse-v0": CartpoleSwingupSparse,
    "Doors-v0": Doors,
    "GridWorld-v0": GridWorld,
    "CliffWalking-v0": CliffWalking,
    "ObjectGrid-v0": ObjectGrid,
    "Maze-v0": Maze,
    "probe/constant-reward": probe.ConstantRewardProbe,
    "probe/observation-reward": probe.ObservationRewardProbe,
    "probe/delayed-reward": probe.DelayedRewardProbe,
    "probe/action-reward": probe.ActionRewardProbe,
    "probe/action-observation": probe.ActionObservationProbe,
    "probe/memory": probe.MemoryProbe,
    "probe/continuous": probe.ContinuousProbe,
    "probe/chain": probe.ChainMDP,
}
# Imported when an environment of that name is first made.
_CONTRIB = {
    "KArmedBandit-v0": "k_armed_bandit:KArmedBandit",
    "cheap-talk/CartPole-v1": "cheap_talk:make_with_cartpole",
    "IteratedPrisonersDilemma-v0": "matrix_games:IteratedPrisonersDilemma",
    "MatchingPennies-v0": "matrix_games:MatchingPennies",
    "Chicken-v0": "matrix_games:ChickenGame",
}
for _id, _factory in _OWN.items():
    _add(_id, _factory, "purerl")
for _id, _place in _CONTRIB.items():
    _ENTRIES[_id] = _Entry(_place, "purerl")
for _id in GYMNAX_IDS:
    _add(_id, partial(_adapted, "gymnax", _id), "gymnax")
for _name in BRAX_NAMES:
    _add(f"brax/{_name}", partial(_adapted, "brax", _name), "brax")

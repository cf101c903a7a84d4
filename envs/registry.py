"""Environments by name.

The packages of others are tables here and in `adapters.names`, so that listing or
checking a name imports none of them, which takes seconds.
"""

import dataclasses
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import jax

from . import probe
from .adapters.adapt import adapt
from .adapters.adapted import Adapted
from .adapters.names import BRAX_NAMES, CRAFTAX_NAMES, GYMNAX_IDS, JUMANJI_NAMES
from .adapters.packages import (
    is_rerun,
    object_at,
    own_names,
    read_call,
    refused_options,
    require_package,
)
from .base import Environment, EnvParams, is_env_class
from .cartpole import CartPole
from .doors import Doors
from .gridworld import CliffWalking, GridWorld
from .maze import Maze
from .object_grid import ObjectGrid
from .options import guess
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
        source: Where the environment comes from: `purerl`, `registered`, `gymnax`,
            `brax` or one of `SUITES`.
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


class _Entry(NamedTuple):
    factory: Any  # A function, or the name of its place in `purerl.contrib`.
    source: str


class _Package(NamedTuple):
    """How environments of another package are made by their names there.

    Attributes:
        adapter: Module and class of the adapter.
        needs: Package of the extra that must be installed; its environments are known
            to it alone, and are no entries here.
        names: Names of its environments, for hints.
        install: What pip installs, where it is no extra.
        on_host: Whether its environments are stepped on the host.
    """

    adapter: str
    needs: str = ""
    names: tuple[str, ...] = ()
    install: str = ""
    on_host: bool = False


def make(id: str, **options: Any) -> Environment:
    """Make the environment called `id`.

    Args:
        id: One of `registered()`, such as `"CartPole-v1"` or `"brax/halfcheetah"`,
            a package of `SUITES` and a name of its environments, such as
            `"jumanji/Snake-v1"`, `brax/` and a name of
            `brax.envs.register_environment`, or the import path of a class of one's
            own, `lab.envs:PointMass` or `lab.envs:PointMass(mass=2.0)`.
        **options: Structural options of the environment, such as `backend="spring"`.

    Raises:
        ValueError: no such id (the message names near ones), or no such option.
        TypeError: what is made is no environment.
    """
    factory = _entry(id).factory
    try:
        inspect.signature(factory).bind(**options)
    except (TypeError, ValueError) as error:  # A partial may have no signature.
        given = {**getattr(factory, "keywords", {}), **options}
        fields = inspect.signature(getattr(factory, "func", factory)).parameters
        taken = [name for name in fields if name != "self"]
        raise refused_options(id, given, error, taken or ["none"]) from None
    # What is imported here for the first time makes arrays of its own, which inside a
    # trace would be part of that trace, and broken for the rest of the process.
    with nullcontext() if is_on_host(id) else jax.ensure_compile_time_eval():
        env = adapt(factory(**options))
    if isinstance(env, Adapted) or env.on_host:
        env.made_as = {"id": id, **options}
    return env


def register(id: str, factory: Factory) -> None:
    """Let `make(id)` call `factory`.

    The class or function of one name may be registered again under its id, as when a
    notebook's cell runs twice: the new one takes the old one's place.

    Args:
        id: A new name.
        factory: Function of `make`'s keywords that returns an `Environment`.

    Raises:
        ValueError: the id is taken.
        TypeError: the factory cannot be called.
    """
    if not callable(factory):
        raise TypeError(
            f"factory of {id!r} must be callable, got {factory!r}: give the class or "
            "a function that returns the environment."
        )
    if _theirs(id):
        raise ValueError(
            f"id {id!r} begins with {id.partition('/')[0]}/, under which environments "
            "of that package are found: choose another."
        )
    known = _ENTRIES.get(id, _Entry(None, ""))
    is_own = known.source == "registered" and is_rerun(factory, known.factory)
    if known.source and not is_own:
        raise ValueError(
            f"id {id!r} is already registered ({known.source}): choose another."
        )
    _ENTRIES[id] = _Entry(factory, "registered")


def registered() -> tuple[str, ...]:
    """Return every id that `make` knows, sorted."""
    return tuple(sorted(_ENTRIES))


def source_of(id: str) -> str:
    """Return where an id comes from.

    That is `purerl`, `gymnax`, `brax`, one of `SUITES` or `registered`, which what a
    user has registered in brax is too.

    Raises:
        ValueError: no such id.
    """
    return _entry(id).source


def is_on_host(id: str) -> bool:
    """Return whether an id is one of Gymnasium's or EnvPool's, stepped on the host."""
    theirs = _theirs(id)
    return theirs is not None and theirs.on_host


def _theirs(id: Any) -> _Package | None:
    """The package of an extra before the slash of an id."""
    package, slash, _ = id.partition("/") if isinstance(id, str) else ("", "", "")
    found = _PACKAGES.get(package) if slash else None
    return found if found is not None and found.needs else None


def describe(id: str, **options: Any) -> EnvDescription:
    """Describe the environment called `id`; makes it, so adapters load their package.

    Raises:
        ValueError: as `make`.
    """
    env = make(id, **options)
    params = env.default_params
    # Another package's class may have no documentation but what dataclasses write.
    inside = type(getattr(env, "wrapped", env))
    doc = vars(inside).get("__doc__") or ""
    if not doc or doc.startswith(f"{inside.__name__}("):
        inside = type(env)
    lines = inspect.getdoc(inside).splitlines()  # type: ignore[union-attr]
    return EnvDescription(
        id=id,
        source=source_of(id),
        observation_space=env.observation_space(params),
        action_space=env.action_space(params),
        params=params,
        summary=next((x for x in lines if x and not x.startswith("#")), ""),
        note=env.note,
    )


def _entry(id: str) -> _Entry:
    """Return what makes an environment; brax's own registry is asked each time."""
    package, _, name = id.partition("/") if isinstance(id, str) else ("", "", "")
    if name and _theirs(id):
        return _Entry(partial(_adapted, package, name), package)
    if package == "brax" and name in own_names():
        return _Entry(partial(_adapted, "brax", name), "registered")
    if id not in _ENTRIES and ":" in str(id):
        return _Entry(_by_path(id), "registered")
    if id not in _ENTRIES:
        raise ValueError(_unknown_id(id))
    entry = _ENTRIES[id]
    if isinstance(entry.factory, str):
        module, _, name = entry.factory.partition(":")
        with jax.ensure_compile_time_eval():  # As in `make`.
            found = getattr(import_module(f"purerl.contrib.{module}"), name)
        entry = _ENTRIES[id] = _Entry(found, entry.source)
    return entry


def _by_path(id: str) -> Factory:
    """What makes an environment of the user's own that has no name but its path."""
    example = "lab.envs:PointMass(mass=2.0)"
    path, places, names = read_call("env", id, example)
    found = object_at("env", path, example)
    if not is_env_class(found):
        raise ValueError(
            f"env must name a class of environments, and {path} is {found!r}; give "
            "what a function makes a name: envs.register(id, function)."
        )
    return partial(found, *places, **names)


def _unknown_id(id: str) -> str:
    named = [
        *_ENTRIES,
        *(f"brax/{name}" for name in own_names()),
        *(f"{key}/{name}" for key, one in _PACKAGES.items() for name in one.names),
    ]
    others = ", ".join(f"{name}/NAME" for name in SUITES)
    return (
        f"env {id!r} is not registered.{guess(id, named, 3)} `envs.registered()` lists "
        f"the ids, beside which there are {others}; `envs.register` adds one. On "
        "purerl's command line, --import MODULE imports the module that does so."
    )


def _adapted(package: str, name: str, /, **options: Any) -> Environment:
    """Make an environment of another package by its name there."""
    theirs = _PACKAGES[package]
    if theirs.needs:
        require_package(theirs.needs, theirs.install or f"purerl[{package}]")
    module, _, cls = theirs.adapter.partition(":")
    found = import_module(f".adapters.{module}", __package__)
    try:
        return getattr(found, cls)(name, **options)
    except TypeError as error:
        if not options:
            raise
        id = name if package == "gymnax" else f"{package}/{name}"
        raise refused_options(id, options, error) from error


_PACKAGES = {
    "gymnax": _Package("gymnax:GymnaxEnvironment"),
    "brax": _Package("brax:BraxEnvironment"),
    "craftax": _Package("craftax:CraftaxEnvironment", "craftax", CRAFTAX_NAMES),
    "jumanji": _Package("jumanji:JumanjiEnvironment", "jumanji", JUMANJI_NAMES),
    "playground": _Package("playground:PlaygroundEnvironment", "mujoco_playground"),
    "navix": _Package("navix:NavixEnvironment", "navix"),
    "xminigrid": _Package("xminigrid:XMiniGridEnvironment", "xminigrid"),
    "pgx": _Package("pgx:PgxEnvironment", "pgx"),
    "popjym": _Package(
        "popjym:PopjymEnvironment",
        "popjym",
        install="git+https://github.com/FLAIROx/popjym",
    ),
    "gymnasium": _Package(
        "gymnasium_host:GymnasiumEnvironment", "gymnasium", on_host=True
    ),
    "envpool": _Package("envpool_host:EnvPoolEnvironment", "envpool", on_host=True),
}
SUITES = tuple(name for name, one in _PACKAGES.items() if one.needs)
"""Packages whose environments are known to them alone: `package/name` is an id."""
_OWN: dict[str, Any] = {
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
    # Imported when an environment of that name is first made.
    "KArmedBandit-v0": "k_armed_bandit:KArmedBandit",
    "cheap-talk/CartPole-v1": "cheap_talk:make_with_cartpole",
    "IteratedPrisonersDilemma-v0": "matrix_games:IteratedPrisonersDilemma",
    "MatchingPennies-v0": "matrix_games:MatchingPennies",
    "Chicken-v0": "matrix_games:ChickenGame",
}
_ENTRIES: dict[str, _Entry] = {
    **{id: _Entry(factory, "purerl") for id, factory in _OWN.items()},
    **{id: _Entry(partial(_adapted, "gymnax", id), "gymnax") for id in GYMNAX_IDS},
    **{f"brax/{x}": _Entry(partial(_adapted, "brax", x), "brax") for x in BRAX_NAMES},
}

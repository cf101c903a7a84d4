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
    # What is imported here for the first time makes arrays of its own, which inside a
    # trace would be part of that trace, and broken for the rest of the process.
    with nullcontext() if is_on_host(id) else jax.ensure_compile_time_eval():
        try:
            made = factory(**options)
        except TypeError as error:
            given = {**getattr(factory, "keywords", {}), **options}
            if not given:
                raise
            known = inspect.signature(getattr(factory, "func", factory)).parameters
            names = [name for name in known if name not in ("self", "id", "options")]
            raise refused_options(id, given, error, names) from error
        env = adapt(made)
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
    """
    package = _package_of(id)
    if package:
        raise ValueError(
            f"id {id!r} begins with {package}/, under which environments of that "
            "package are found: choose another."
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
    return tuple(sorted((*_ENTRIES, *(f"brax/{name}" for name in BRAX_NAMES))))


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
    return _package_of(id) in ("gymnasium", "envpool")


def _package_of(id: Any) -> str:
    """The package before the slash of an id; empty where there is none of the known."""
    package, slash, name = str(id).partition("/")
    return package if slash and name and package in _PACKAGES else ""


def describe(id: str, **options: Any) -> EnvDescription:
    """Describe the environment called `id`; makes it, so adapters load their package.

    Raises:
        ValueError: as `make`.
    """
    env = make(id, **options)
    params = env.default_params
    inside = type(getattr(env, "wrapped", env))
    doc = vars(inside).get("__doc__") or ""
    if not doc or doc.startswith(f"{inside.__name__}("):  # What dataclasses write.
        doc = type(env).__doc__ or ""
    lines = inspect.cleandoc(doc).splitlines()
    return EnvDescription(
        id=id,
        source=source_of(id),
        observation_space=env.observation_space(params),
        action_space=env.action_space(params),
        params=params,
        summary=next((x for x in lines if x and not x.startswith("#")), ""),
        note=env.note,
    )


def _entry(id: Any) -> _Entry:
    """Return what makes an environment; brax's own registry is asked each time."""
    if not isinstance(id, str):
        raise ValueError(
            f"id must be a string, got {id!r}; a config takes an environment object "
            "as it is: PPOConfig(env=...)."
        )
    package = _package_of(id)
    own = [f"brax/{name}" for name in own_names()]
    known = [*_ENTRIES, *own, *(f"brax/{name}" for name in BRAX_NAMES)]
    if package and (package != "brax" or id in known):
        source = "registered" if id in own else package
        return _Entry(partial(_adapted, id), source)
    if id not in _ENTRIES and ":" in id:
        return _Entry(_by_path(id), "registered")
    if id not in _ENTRIES:
        raise ValueError(_unknown_id(id, known))
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


def _unknown_id(id: Any, known: list[str]) -> str:
    named = [
        *known,
        *(f"craftax/{name}" for name in CRAFTAX_NAMES),
        *(f"jumanji/{name}" for name in JUMANJI_NAMES),
    ]
    others = ", ".join(f"{name}/NAME" for name in SUITES)
    return (
        f"env {id!r} is not registered.{guess(id, named, 3)} `envs.registered()` lists "
        f"the ids, beside which there are {others}; `envs.register` adds one. On "
        "purerl's command line, --import MODULE imports the module that does so."
    )


def _adapted(id: str, /, **options: Any) -> Environment:
    """Make an environment of another package, by its package and its name there."""
    package = _package_of(id) or "gymnax"
    module, cls, needs = _PACKAGES.get(package, ("gymnax", "GymnaxEnvironment", ""))
    github = "git+https://github.com/FLAIROx/popjym"  # It is on no registry.
    require_package(
        needs or package, github if package == "popjym" else f"purerl[{package}]"
    )
    found = import_module(f".adapters.{module}", __package__)
    return getattr(found, cls)(id.removeprefix(f"{package}/"), **options)


# Prefix of ids -> module and class of the adapter, and the package where it is not the
# prefix.
_PACKAGES = {
    "brax": ("brax", "BraxEnvironment", ""),
    "craftax": ("craftax", "CraftaxEnvironment", ""),
    "jumanji": ("jumanji", "JumanjiEnvironment", ""),
    "playground": ("playground", "PlaygroundEnvironment", "mujoco_playground"),
    "navix": ("navix", "NavixEnvironment", ""),
    "xminigrid": ("xminigrid", "XMiniGridEnvironment", ""),
    "pgx": ("pgx", "PgxEnvironment", ""),
    "popjym": ("popjym", "PopjymEnvironment", ""),
    "gymnasium": ("gymnasium_host", "GymnasiumEnvironment", ""),
    "envpool": ("envpool_host", "EnvPoolEnvironment", ""),
}
SUITES = tuple(name for name in _PACKAGES if name != "brax")
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
    **{id: _Entry(partial(_adapted, id), "gymnax") for id in GYMNAX_IDS},
}

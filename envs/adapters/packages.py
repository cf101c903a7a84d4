"""Other packages: their import, what they print, and what users add to them.

Importing this imports none of them.
"""

import ast
import contextlib
import importlib
import io
import operator
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from ..options import guess


def require_package(package: str, install: str = "") -> None:
    """Say what to install where a package is missing.

    Args:
        package: Name of the package.
        install: What pip installs; purerl's extra of that name where not given.

    Raises:
        ValueError: it cannot be imported.
    """
    try:
        with importing():
            importlib.import_module(package)
    except (ImportError, OSError) as error:  # OSError: its files are not all there.
        why = "" if getattr(error, "name", None) == package else f" ({error})"
        raise ValueError(
            f"this needs the package {package}{why}; "
            f"pip install '{install or f'purerl[{package}]'}'."
        ) from None


def refused_options(
    id: str, options: Iterable[str], why: object = "", known: Iterable[str] = ()
) -> ValueError:
    """Return the error about options that an environment does not take.

    Args:
        id: Name of the environment.
        options: Names of the options that were given.
        why: What the package said; empty where it said nothing.
        known: Names of the options that it takes; empty where they are not known.
    """
    takes = ", ".join(known)
    return ValueError(
        f"options of {id} were {sorted(options)}, which it does not take"
        f"{f' ({why})' if why else ''}{f'; it takes {takes}' if takes else ''}."
    )


def check_name(package: str, name: str, known: Iterable[str]) -> None:
    """Refuse a name that a package does not know.

    Args:
        package: Name of the package in words.
        name: Name that was given.
        known: Names of its environments.

    Raises:
        ValueError: with near names, and all that there are.
    """
    if name not in known:
        known = sorted(known)
        raise ValueError(
            f"the name {name!r} is none of {package}'s.{guess(name, known, 2)} There "
            f"are: {', '.join(known)}."
        )


def imported(module: str) -> ModuleType:
    """Return a module that has been imported already.

    Configs name modules, and may come from somebody else: to import one runs its code.

    Args:
        module: Name of the module, such as `mypackage.nets`.

    Raises:
        ValueError: it has not been imported.
    """
    found = sys.modules.get("__main__" if module == main_name() else module)
    if found is None:
        raise ValueError(
            f"the module {module!r} has not been imported, and a config imports none, "
            f"as that runs its code. If you trust it, import it first (import {module}"
            f"; on the command line --import {module})."
        )
    return found


def main_name() -> str:
    """Return the name by which others import the program that runs, `lab` of lab.py.

    It is `__main__` where there is none, as in a notebook.
    """
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None) or ""
    name = spec.name if spec else Path(file).stem * file.endswith(".py")
    other = sys.modules.get(name, main)
    is_it = getattr(other, "__file__", None) == file
    return name if is_it and name.replace(".", "").isidentifier() else "__main__"


def object_at(field: str, path: str, example: str = "mypackage.parts:Mine") -> Any:
    """Return what has an import path, in a module that has been imported.

    Args:
        field: Name of the field that names it, for messages.
        path: Path, such as `lab.envs:PointMass`.
        example: What such a path looks like, for messages.

    Raises:
        ValueError: the module has not been imported, or has no such name.
    """
    module, _, name = path.partition(":")
    try:
        return operator.attrgetter(name)(imported(module))
    except AttributeError as error:
        why = f"cannot find {path} ({error}); write for example {example}"
        if module == "__main__":
            why = f"{path} is of the program that wrote it, which no other can import"
        raise ValueError(f"{field}: {why}.") from None
    except ValueError as error:
        raise ValueError(f"{field} names {path}: {error}") from None


def read_call(field: str, text: Any, example: str) -> tuple[str, list, dict[str, Any]]:
    """Return what a text calls, and the arguments by their place and by name.

    Args:
        field: Name of the field that has the text, for the message.
        text: Text such as `FrameStack(4)` or `lab.envs:PointMass(mass=2.0)`.
        example: Text that could be read, for the message.

    Raises:
        ValueError: it is no such text.
    """
    try:
        ((place, call),) = read_values(text).items()
        if place != 0:
            raise ValueError(f"{place} is given by name")
        named: dict[Any, Any] = {"type": call} if isinstance(call, str) else call
        name, places = named.pop("type"), []
        while len(places) in named:
            places.append(named.pop(len(places)))
    except (AttributeError, TypeError, ValueError):
        raise ValueError(
            f"{field}: cannot read {text!r}; write for example {example}."
        ) from None
    return name, places, named


_COLON = ".__colon__."


def read_values(text: str) -> dict[Any, Any]:
    """Return the values of a text such as `A(x=1), b=lab.parts:B()`, by place or name.

    Literals are values, names and import paths texts, and calls dictionaries: `type` is
    what is called, and arguments are there by place or name.

    Raises:
        ValueError: it is no such text.
    """
    # An import path is an attribute of Python, but for its colon.
    text_of_python = re.sub(r"(?<=\w):(?=[A-Za-z_])", _COLON, text.strip())
    try:
        found = _value(ast.parse(f"f({text_of_python})", mode="eval").body)
    except Exception:  # Whatever a text that is no call makes of Python's parser.
        raise ValueError(f"cannot read {text!r}") from None
    del found["type"]
    return found


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Call):
        named = {each.arg: _value(each.value) for each in node.keywords}
        if None in named or len(named) < len(node.keywords):
            raise ValueError("no names, or one twice")
        return {
            "type": _value(node.func),
            **dict(enumerate(map(_value, node.args))),
            **named,
        }
    text = ast.unparse(node).replace(_COLON, ":")
    if text in ("inf", "-inf"):
        return float(text)
    if isinstance(node, ast.Name | ast.Attribute):
        if not re.fullmatch(r"[\w.:]+", text):
            raise ValueError(f"{text} is no path")
        return text
    value = ast.literal_eval(node)
    return value.replace(_COLON, ":") if isinstance(value, str) else value


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Drop what modules say while they are imported; no user of them can act on it.

    Importing `mujoco.mjx` prints that Warp is missing, though the physics of JAX needs
    none; jaxopt, which brax imports, announces its end. What they plot with is loaded
    when it is used, see `_PutOff`.
    """
    finder = _PutOff()
    sys.meta_path.insert(0, finder)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.meta_path.remove(finder)


class _PutOff(MetaPathFinder):
    """Finds modules that are loaded when something of them is first used.

    gymnax imports them for its pictures, and with pandas and SciPy's statistics they
    take longer to load than JAX.
    """

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> ModuleSpec | None:
        """Return where a plotting module is; None of every other module."""
        if fullname not in ("seaborn", "matplotlib.pyplot"):
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Drop what MuJoCo says of a model while it is loaded.

    The file of brax's HalfCheetah has a deprecated attribute.
    """
    import mujoco

    module: Any = mujoco  # Pyright does not see what its compiled part has.
    before = module.get_mju_user_warning()
    module.set_mju_user_warning(lambda message: None)
    try:
        yield
    finally:
        module.set_mju_user_warning(before)


def own_names() -> tuple[str, ...]:
    """Return the names in brax's registry that do not stand for brax's own classes."""
    known = getattr(sys.modules.get("brax.envs"), "_envs", {})
    return tuple(name for name, factory in known.items() if is_own(factory))


def is_own(factory: Callable[..., Any]) -> bool:
    """Return whether a class or function of brax's registry is not one of brax's own.

    Args:
        factory: Class or function that makes the environment.
    """
    return not str(getattr(factory, "__module__", "")).startswith("brax.")


def is_rerun(new: Any, old: Any) -> bool:
    """Return whether two classes or functions are of the same code, run twice."""
    name = getattr(new, "__qualname__", "")
    if not name or name != getattr(old, "__qualname__", None):
        return False
    # Another lambda would have the same name.
    return new.__module__ == old.__module__ and "<lambda>" not in name

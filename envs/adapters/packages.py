"""Other packages: their import, what they print, and what users add to them.

Importing this imports none of them.
"""

import ast
import contextlib
import difflib
import importlib
import io
import operator
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any


def require_package(package: str, install: str = "") -> None:
    """Say what to install where a package is missing.

    Args:
        package: Name of the package.
        install: What pip installs; purerl's extra of that name where not given.

    Raises:
        ValueError: it cannot be imported.
    """
    try:
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


def unknown_name(package: str, name: str, known: Iterable[str]) -> ValueError:
    """Return the error about a name that a package does not know.

    Args:
        package: Name of the package in words.
        name: Name that was given.
        known: Names of its environments.
    """
    folded = {one.casefold(): one for one in sorted(known)}
    found = difflib.get_close_matches(name.casefold(), folded, n=2, cutoff=0.5)
    near = "".join(f"{folded[one]}, " for one in found)
    return ValueError(
        f"the name {name!r} is none of {package}'s: choose {near}"
        f"{'or ' if near else ''}one of {', '.join(folded.values())}."
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


def object_at(field: str, path: str, example: str = "lab.envs:PointMass") -> Any:
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
        module, colon, call = text.strip().partition(":")
        if not (colon and all(map(str.isidentifier, module.split(".")))):
            module, colon, call = "", "", text.strip()
        node = ast.parse(call, mode="eval").body
        node = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
        assert isinstance(node.func, ast.Name | ast.Attribute)
        given = [each.arg for each in node.keywords]
        assert None not in given and len(set(given)) == len(given)
        places = [_literal(value) for value in node.args]
        names = {str(each.arg): _literal(each.value) for each in node.keywords}
    except Exception:  # Whatever a text that is no call makes of Python's parser.
        raise ValueError(
            f"{field}: cannot read {text!r}; write for example {example}."
        ) from None
    return f"{module}{colon}{ast.unparse(node.func)}", places, names


def _literal(node: ast.expr) -> Any:
    """The value of an argument: a literal, an infinite number, or a bare word."""
    if ast.unparse(node) in ("inf", "-inf"):
        return float(ast.unparse(node))
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)


@contextlib.contextmanager
def with_opengl_as_asked() -> Iterator[None]:
    """Say what is wrong where `MUJOCO_GL` keeps MuJoCo from being imported.

    MuJoCo looks for the OpenGL that the variable names as soon as it is imported, and
    brax imports it whether anything is drawn or not.

    Raises:
        ValueError: the variable is set, and what is imported inside fails.
    """
    try:
        yield
    except (AttributeError, ImportError, RuntimeError) as error:
        asked = os.environ.get("MUJOCO_GL")
        if not asked:
            raise
        raise ValueError(
            f"MuJoCo, which brax needs, cannot be imported with MUJOCO_GL={asked!r} "
            f"({type(error).__name__}: {error}): this machine lacks that OpenGL; unset "
            "the variable, or install it, such as libosmesa6 for osmesa."
        ) from None


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Drop what modules print to the standard output while they are imported.

    Importing `mujoco.mjx` prints that Warp is missing, though the physics of JAX needs
    none.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        yield


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Drop MuJoCo's notes about deprecated attributes while a model is loaded.

    The file of brax's HalfCheetah has one. All other warnings reach the handler that
    was there, or the standard error.
    """
    import mujoco

    module: Any = mujoco  # Pyright does not see what its compiled part has.
    before = module.get_mju_user_warning()

    def warn(message: str) -> None:
        if "deprecated" in message:
            return
        if before is not None:
            before(message)
        else:
            print(f"WARNING: {message}", file=sys.stderr)

    module.set_mju_user_warning(warn)
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

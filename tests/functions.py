"""Functions of the packages as their source has them; nothing is imported.

Lines of a function include its docstring. A name is public where it and every class
around it begin without an underscore; functions inside functions are never public.
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Named(NamedTuple):
    """A function, where it stands, and whether others may call it."""

    path: str
    name: str
    node: Function
    public: bool

    @property
    def lines(self) -> int:
        """The number of its lines."""
        return (self.node.end_lineno or 0) - self.node.lineno + 1

    @property
    def parameters(self) -> list[str]:
        """The names of its parameters, without `self` and `cls`."""
        every = self.node.args
        named = [*every.posonlyargs, *every.args, every.vararg, *every.kwonlyargs]
        names = [each.arg for each in (*named, every.kwarg) if each is not None]
        return [name for name in names if name not in ("self", "cls")]


@functools.cache
def functions() -> list[Named]:
    """Return every function of `purerl` and `envs`."""
    paths = [
        p for name in ("purerl", "envs") for p in sorted((ROOT / name).rglob("*.py"))
    ]
    return [found for path in paths for found in _functions(path)]


def _functions(path: Path) -> Iterator[Named]:
    where = path.relative_to(ROOT).as_posix()

    def walk(node: ast.AST, name: str, public: bool) -> Iterator[Named]:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, Function | ast.ClassDef):
                yield from walk(child, name, public)
                continue
            known = public and not child.name.startswith("_")
            full = f"{name}.{child.name}".lstrip(".")
            if isinstance(child, Function):
                yield Named(where, full, child, known)
            yield from walk(child, full, known and isinstance(child, ast.ClassDef))

    return walk(ast.parse(path.read_text()), "", True)

"""purerl: reinforcement-learning training runs as one compiled JAX program.

The names load when they are first used: flax and optax take half a second, which
`import purerl` alone does not spend. Which names there are, and in which module each
is, stands once, in `__init__.pyi`.
"""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


@cache
def _homes() -> dict[str, str]:
    """Public name -> the module that has it; read from the imports of the stub."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    return {
        alias.name: str(node.module)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name == "__all__":  # Of `from purerl import *`.
        return sorted(_homes())
    home = None if name.startswith("__") else _homes().get(name)
    if home is None:
        raise AttributeError(f"module 'purerl' has no attribute {name!r}")
    if home == "purerl":
        return import_module(f"purerl.{name}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted(["__version__", *_homes()])

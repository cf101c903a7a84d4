"""Which way imports point: the layers of purerl, read from its source.

Every import counts: at the top of a file, in a function, and under `TYPE_CHECKING`. To
import a module also runs the `__init__` of the packages around it; that is not counted,
because those only gather names.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
# From the bottom to the top. A file imports from its own layer and from those below it.
# A name stands for a module, or for a package and everything in it that is not named
# elsewhere; `purerl` alone is the file of public names.
LAYERS = (
    # Environments, which know nothing of learning.
    ("purerl.envs",),
    # What a config is, random keys, arrays on the host, the platform that programs are
    # traced for, the log, and the types and counts that all others speak of.
    (
        "purerl.types",
        "purerl.precision",
        "purerl.tracing",
        "purerl.scale.host",
        "purerl.errors",
        "purerl.fields",
        "purerl.config",
        "purerl.keys",
        "purerl.metrics",
        "purerl.registry",
        "purerl.execution.format",
    ),
    # Arrays and loops in forms with few kernels.
    ("purerl.accelerator",),
    # The arithmetic of learning from data, the networks, what moves them and when,
    # and numbers that are drawn.
    (
        "purerl.learning",
        "purerl.networks",
        "purerl.optimisers",
        "purerl.schedules",
        "purerl.randomisation",
    ),
    # Networks and gradient steps in forms with few kernels.
    (
        "purerl.accelerator.paired",
        "purerl.accelerator.twins",
    ),
    # What is minimised, and what rules make of a rollout.
    ("purerl.losses", "purerl.rules"),
    # Policies in environments: exploring, rollouts, evaluation.
    ("purerl.acting",),
    # Buffers of steps, batches of them, and levels that are kept.
    ("purerl.replay",),
    # Defaults that follow the environment.
    ("purerl.auto",),
    # Everything above put together, an algorithm a file.
    ("purerl.algorithms",),
    # Configs and their parts as text and files.
    ("purerl.serialise", "purerl.atomic", "purerl.presets"),
    # One training run as a pure function, and what checks an algorithm.
    (
        "purerl.train",
        "purerl.checker",
        "purerl.hooks",
        "purerl.warm_start",
        "purerl.export",
    ),
    # Devices and processes.
    ("purerl.scale",),
    # Statistics, tables and pictures of plain arrays and datasets.
    (
        "purerl.report.statistics",
        "purerl.report.style",
        "purerl.report.search_plots",
        "purerl.report.plots",
        "purerl.report.drawing",
        "purerl.report.sweep_data",
    ),
    # Compiled programs, the members that they train, what is kept of them.
    ("purerl.execution",),
    # Folders of results, arrays in files, checkpoints.
    ("purerl.storage",),
    # What all results have to be looked at.
    ("purerl.report.html", "purerl.report.shown"),
    # A run on the host: its folder, progress, trackers.
    ("purerl.runner",),
    # What sweeps and searches vary: axes, designs, points in a config.
    ("purerl.space",),
    # What every search is: asked and told, driven, kept in a folder.
    ("purerl.search",),
    # Many runs that do not depend on one another.
    ("purerl.sweeps",),
    # Searches: what is trained next depends on what came before.
    ("purerl.population", "purerl.tuning", "purerl.meta"),
    # Derivatives of what an agent becomes, of the leaves that can be evolved.
    ("purerl.metagradient",),
    # Settings and what searches found, judged on keys that none of them has seen.
    ("purerl.comparison",),
    # Pages and tables of results, and trackers told afterwards.
    ("purerl.report",),
    # What one study each has used; registries load it by name.
    ("purerl.contrib",),
    # The public names.
    ("purerl",),
    # The command line.
    ("purerl.cli", "purerl.__main__"),
)
TOP = "purerl"

Graph = Mapping[str, Iterable[str]]


def test_imports_point_down():
    graph = imports(ROOT, ("envs", "purerl"))
    assert upward(graph) == []
    assert circles(graph) == []
    assert circles(between_places(graph)) == []


def test_every_module_has_a_layer_and_every_name_of_the_table_a_module():
    graph = imports(ROOT, ("envs", "purerl"))
    assert [module for module in graph if place_of(module) is None] == []
    named = [name for layer in LAYERS for name in layer]
    assert len(named) == len(set(named))
    assert set(named) == {place_of(module) for module in graph}


def test_what_points_up_is_found(tmp_path):
    files = {
        "__init__": "",
        "config": "import jax\nfrom purerl.types import Array",
        "types": "if 1:\n    from purerl.config import TrainConfig",
        "losses/policy": "def f():\n    from purerl import train\n",
        "train": "import purerl.losses.policy, purerl",
        "population/pbt": "from purerl.tuning import space",
        "population/space": "",
        "tuning/space": "from ..population.space import Space",
        "utils": "",
    }
    for name, text in files.items():
        path = tmp_path / "purerl" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    graph = imports(tmp_path, ("purerl",))
    assert upward(graph) == [
        "purerl.losses.policy -> purerl.train",
        "purerl.train -> purerl",
        "purerl.utils -> no layer",
    ]
    assert circles(graph) == [
        ["purerl.config", "purerl.types"],
        ["purerl.losses.policy", "purerl.train"],
    ]
    # No two files of these packages need one another, but the packages do.
    assert ["purerl.population", "purerl.tuning"] in circles(between_places(graph))


def imports(root: Path, packages: Iterable[str]) -> dict[str, set[str]]:
    """The modules of some packages, and which of one another they import."""
    files = {
        name_of(path.relative_to(root)): path
        for package in packages
        for path in sorted((root / package).rglob("*.py"))
    }
    found = {}
    for module, path in files.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        names = list(named_in(ast.parse(path.read_text()), package))
        # `from a import b` names the module `a.b` if there is one, and else `a`.
        wanted = {full if full in files else base for base, full in names}
        found[module] = (wanted & files.keys()) - {module}
    return found


def name_of(path: Path) -> str:
    """The module in a file, whose path is relative to the root."""
    parts = path.with_suffix("").parts
    if parts[0] == "envs":  # Installed as purerl.envs; see pyproject.toml.
        parts = ("purerl", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def named_in(tree: ast.AST, package: str) -> Iterator[tuple[str, str]]:
    """What a file's imports name: a module, and the same with the name taken from it.

    Args:
        tree: of the file.
        package: in which the file is, where its relative imports start.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, alias.name
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            parts = parts[: len(parts) - node.level + 1] if node.level else []
            base = ".".join([*parts, *([node.module] if node.module else [])])
            for alias in node.names:
                yield base, f"{base}.{alias.name}"


def place_of(module: str) -> str | None:
    """The name in the table that a module belongs to: the longest that begins it."""
    named = {name for layer in LAYERS for name in layer}
    while module not in named:
        module = module.rpartition(".")[0]
        if module in ("", TOP):
            return None
    return module


def upward(graph: Graph) -> list[str]:
    """Imports that point up, and modules that have no layer."""
    height = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    places = {module: place_of(module) for module in graph}
    found = [f"{module} -> no layer" for module, place in places.items() if not place]
    for module, wanted in graph.items():
        for other in wanted:
            here, there = places[module], places[other]
            if here and there and height[there] > height[here]:
                found.append(f"{module} -> {other}")
    return sorted(found)


def between_places(graph: Graph) -> dict[str, set[str]]:
    """The same imports between the names of the table."""
    found: dict[str, set[str]] = {}
    for module, wanted in graph.items():
        place = place_of(module) or module
        others = {place_of(other) or other for other in wanted}
        found.setdefault(place, set()).update(others - {place})
    return found


def circles(graph: Graph) -> list[list[str]]:
    """Groups of modules each of which reaches all others of its group."""
    reached = {module: reach(graph, module) for module in graph}
    groups = {
        tuple(sorted(other for other in reached[module] if module in reached[other]))
        for module in graph
        if module in reached[module]
    }
    return sorted(map(list, groups))


def reach(graph: Graph, start: str) -> set[str]:
    """Everything that a module imports, directly or through others."""
    found: set[str] = set()
    left = list(graph[start])
    while left:
        module = left.pop()
        if module not in found:
            found.add(module)
            left += graph[module]
    return found

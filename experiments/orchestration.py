"""Count what keeps the code readable: sizes, arguments, docstrings, circles of imports.

    python experiments/orchestration.py             # of this checkout
    python experiments/orchestration.py ../other    # of another one
    python experiments/orchestration.py --json      # numbers and names for a program

Everything is read from the source of `purerl` and `envs`; nothing is imported. Lines of
a function include its docstring; lines of code are without docstrings, comments and
blank lines. A name is public where it and every class around it begin without an
underscore; functions inside functions are never public. Orchestration is the folders
around one training run, which `ORCHESTRATION` names; a checkout has those of them that
it has. Result types are the public classes called `...Result` or `...Comparison`.
Training loops are not counted: whether a loop trains cannot be told from the syntax,
because most of them call a compiled segment through other functions. Only imports that
run when a module is imported make a circle: not those in functions and not those under
`TYPE_CHECKING`.
"""

import argparse
import ast
import io
import json
import re
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGES = ("purerl", "envs")
ORCHESTRATION = (
    *("runner", "meta", "sweeps", "tuning", "population", "execution"),
    *("comparison", "search", "storage", "space", "scale"),
)
RESULT = re.compile(r"(Result|Comparison)$")
# The most lines of a file and of a function, and the most parameters.
FILE, FUNCTION, PARAMETERS = 300, 60, 7
# As many parameters and more need a section `Args:`.
DOCUMENTED = 3
SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Example|Examples):$")
ENTRY = re.compile(r"^    (\S[^:]*):\s*(.*)$")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


class Named(NamedTuple):
    """A definition, where it stands, and whether others may call it."""

    where: str
    node: Definition
    public: bool


def main(args: list[str] | None = None) -> None:
    """Print the tables of a checkout."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path, nargs="?", default=ROOT)
    parser.add_argument("--json", action="store_true", help="print JSON, not tables")
    options = parser.parse_args(args)
    counted = count(options.checkout)
    if options.json:
        print(json.dumps(counted, indent=1))
        return
    for title, rows in counted.items():
        print(f"\n{title}: {rows if isinstance(rows, int) else len(rows)}")
        if isinstance(rows, dict):
            for name, number in sorted(rows.items(), key=lambda row: (-row[1], row[0])):
                print(f"  {number:6}  {name}")
        elif isinstance(rows, list):
            print("\n".join(f"  {row}" for row in rows))


def count(checkout: Path) -> dict[str, Any]:
    """Return every table by its title: a number, a list of names, or name to number."""
    sources = {
        path.relative_to(checkout).as_posix(): path.read_text()
        for package in PACKAGES
        for path in sorted((checkout / package).rglob("*.py"))
    }
    trees = {path: ast.parse(source) for path, source in sources.items()}
    sizes = {path: source.count("\n") for path, source in sources.items()}
    folders: Counter[str] = Counter()
    code: Counter[str] = Counter()
    for path, size in sizes.items():
        folders[place_of(path)] += size
        code[place_of(path)] += len(code_lines(sources[path], trees[path]))
    named = [each for path in trees for each in definitions(path, trees[path])]
    functions = [each for each in named if isinstance(each.node, Function)]
    lengths = {
        each.where: (each.node.end_lineno or 0) - each.node.lineno + 1
        for each in functions
    }
    widths = {each.where: len(parameters(each.node)) for each in functions}
    numbers = (
        ("files over {} lines", FILE, sizes),
        ("functions over {} lines", FUNCTION, lengths),
        ("functions with more than {} parameters", PARAMETERS, widths),
    )
    return {
        "lines by folder": dict(folders),
        "lines of code by folder": dict(code),
        "lines of orchestration": orchestration(folders),
        "lines of code of orchestration": orchestration(code),
        **{
            title.format(most): {name: n for name, n in found.items() if n > most}
            for title, most, found in numbers
        },
        f"public functions with {DOCUMENTED} or more parameters and no Args": [
            each.where for each in functions if each.public and lacks_args(each.node)
        ],
        "lines of Args and Attributes that begin in lower case": [
            f"{each.where}: {line}" for each in named for line in lower(each.node)
        ],
        "classes": sum(isinstance(each.node, ast.ClassDef) for each in named),
        "public result types": result_types(checkout, named),
        "circles of imports between folders of purerl": circles(folder_graph(trees)),
    }


def place_of(path: str) -> str:
    """Return the folder of a file, at most two deep: `purerl/report/x/y.py`, no x."""
    return "/".join(path.split("/")[:-1][:2])


def orchestration(lines: Mapping[str, int]) -> int:
    """Return the sum of the lines of the folders of orchestration."""
    return sum(lines.get(f"purerl/{name}", 0) for name in ORCHESTRATION)


def result_types(checkout: Path, named: Sequence[Named]) -> list[str]:
    """Return the public names that are classes of results; an alias is none."""
    stub = checkout / "purerl" / "__init__.pyi"
    public = stub if stub.exists() else checkout / "purerl" / "__init__.py"
    names = {
        alias.asname or alias.name
        for node in ast.walk(ast.parse(public.read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    classes = {each.node.name for each in named if isinstance(each.node, ast.ClassDef)}
    return sorted(name for name in names & classes if RESULT.search(name))


def code_lines(source: str, tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that are no docstring, comment or blank line."""
    quiet = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT)
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (*quiet, tokenize.DEDENT, tokenize.ENDMARKER):
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | Definition) and ast.get_docstring(node):
            text = node.body[0]
            found -= set(range(text.lineno, (text.end_lineno or 0) + 1))
    return found


def definitions(path: str, tree: ast.Module) -> Iterator[Named]:
    """Yield every class and function of a file, with those inside them."""

    def walk(node: ast.AST, name: str, public: bool) -> Iterator[Named]:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, Definition):
                yield from walk(child, name, public)
                continue
            known = public and not child.name.startswith("_")
            full = f"{name}.{child.name}".lstrip(".")
            yield Named(f"{path}:{child.lineno} {full}", child, known)
            yield from walk(child, full, known and isinstance(child, ast.ClassDef))

    return walk(tree, "", True)


def parameters(node: Definition) -> list[str]:
    """Return the names of a function's parameters, without `self` and `cls`."""
    assert isinstance(node, Function)
    every = node.args
    named = [*every.posonlyargs, *every.args, every.vararg, *every.kwonlyargs]
    names = [each.arg for each in (*named, every.kwarg) if each is not None]
    return [name for name in names if name not in ("self", "cls")]


def lacks_args(node: Definition) -> bool:
    """Return whether a function has enough parameters for `Args:`, and none."""
    documented = "\nArgs:\n" in (ast.get_docstring(node) or "")
    return len(parameters(node)) >= DOCUMENTED and not documented


def lower(node: Definition) -> Iterator[str]:
    """Yield the entries of `Args:` and `Attributes:` that begin in lower case."""
    section = ""
    for line in (ast.get_docstring(node) or "").splitlines():
        if line and not line.startswith(" "):
            found = SECTION.match(line)
            section = found.group(1) if found else ""
        entry = ENTRY.match(line) if section in ("Args", "Attributes") else None
        if entry and entry.group(2)[:1].islower():
            yield line.strip()


def folder_graph(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Return which folders of purerl each folder imports when it is imported itself."""
    graph: dict[str, set[str]] = {}
    for path, tree in trees.items():
        if path.count("/") < 2 or not path.startswith("purerl/"):
            continue
        here = path.split("/")[1]
        graph.setdefault(here, set()).update(
            module.split(".")[1]
            for module in imported(tree)
            if module.startswith("purerl.") and module.split(".")[1] != here
        )
    return {here: {to for to in there if to in graph} for here, there in graph.items()}


def imported(node: ast.AST) -> Iterator[str]:
    """Yield the modules that a file imports when it runs."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        elif not isinstance(child, Function):
            yield from imported(child)


def circles(graph: dict[str, set[str]]) -> list[str]:
    """Return the groups of folders that reach one another."""

    def reach(start: str) -> set[str]:
        seen, waiting = set(), [start]
        while waiting:
            new = graph[waiting.pop()] - seen
            seen |= new
            waiting += new
        return seen

    far = {here: reach(here) for here in graph}
    groups = {tuple(sorted(t for t in far[h] if h in far[t])) for h in far}
    return [" <-> ".join(group) for group in sorted(groups) if group]


if __name__ == "__main__":
    main()

"""Plant small faults, one at a time, and record which tests catch them.

    python experiments/checks/planted_faults.py TREE OUT [--count 300] [--minutes 60]

TREE is a checkout, which stays as it is; the faults are planted in a copy in OUT. Each
changes one place of a function: a sign, a comparison, an index, an argument, a mask, an
option, a constant. The quick tests run that are named after the module or its package,
or whose text names it, those named after it first, until one fails or `--budget`
seconds have passed. `OUT/faults.jsonl` has a row for each fault, and a second call goes
on after the last one. Tree and seed decide which faults there are.
"""

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

PACKAGES = "learning acting algorithms replay losses scale search storage"
# Calls whose arguments are not swapped: that does nothing, or is no program.
UNSWAPPED = {"isinstance", "getattr", "hasattr", "jnp.minimum", "jnp.maximum", "zip"}
UNSWAPPED |= {"map", "partial", "jax.tree.map", "jax.eval_shape", "jnp.logical_and"}
NO_CODE = ("annotation", "returns", "decorator_list", "exc", "msg")
# Swapped arguments are the easiest to plant and to catch, so there are fewer of them.
WEIGHTS = {"argument": 1}
SIGNS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
MASKS = {ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
COMPARISONS = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In},
}
Change = tuple[str, ast.AST, Callable[[], Any]]


class Fault(NamedTuple):
    """A fault: the `number`-th change that can be made in a function."""

    path: str
    function: str
    kind: str
    number: int


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions and methods that are in no other function, with their names."""
    for node in tree.body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for found in inside:
            if isinstance(found, ast.FunctionDef):
                yield prefix + found.name, found


def changes(node: ast.AST) -> Iterator[Change]:
    """All changes below a node: the kind, the changed node, what makes the change."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in NO_CODE:
                if not isinstance(child, ast.JoinedStr):  # a message
                    yield from changes_of(child)
                    yield from changes(child)


def changes_of(node: Any) -> Iterator[Change]:
    """The changes of one node, which are made in it."""

    def put(name: str, value: Any, owner: Any = node) -> Callable[[], Any]:
        return lambda: setattr(owner, name, value)

    kind = type(getattr(node, "op", None))
    if isinstance(node, ast.BinOp) and kind in SIGNS:
        if not isinstance(node.left, ast.Constant | ast.JoinedStr):  # of texts
            yield "sign", node, put("op", SIGNS[kind]())
    elif isinstance(node, ast.BinOp) and kind in MASKS:
        yield "mask", node, put("op", MASKS[kind]())
    elif isinstance(node, ast.UnaryOp):
        twice = ast.UnaryOp(node.op, node.operand)
        yield "sign" if kind is ast.USub else "mask", node, put("operand", twice)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield "comparison", node, put("ops", [COMPARISONS[type(node.ops[0])]()])
    elif isinstance(node, ast.BoolOp):
        yield "comparison", node, put("values", node.values[:1])
    elif isinstance(node, ast.Subscript) and re.fullmatch(
        r"-?\d", ast.unparse(node.slice)
    ):
        other = ast.Constant(1 if ast.unparse(node.slice) == "0" else 0)
        yield "index", node, put("slice", other)
    elif isinstance(node, ast.Slice):
        for name in ("lower", "upper"):
            if getattr(node, name):
                later = ast.BinOp(getattr(node, name), ast.Add(), ast.Constant(1))
                yield "index", node, put(name, later)
    elif isinstance(node, ast.If | ast.IfExp):
        yield "option", node.test, put("test", ast.Constant(False))
    elif isinstance(node, ast.Constant) and type(node.value) in (bool, int, float):
        value: Any = node.value
        other = not value if isinstance(value, bool) else value * 2 or 1
        yield "constant", node, put("value", other)
    elif isinstance(node, ast.Call):
        called, args = ast.unparse(node.func), node.args
        if called.endswith("where") and len(args) == 3:
            yield "mask", node, put("args", [args[0], args[1], args[1]])
        if len(args) >= 2 and called not in UNSWAPPED:
            yield "argument", node, put("args", [*args[:-2], args[-1], args[-2]])


def choose(tree: Path, packages: list[str], count: int, seed: int) -> list[Fault]:
    """Return `count` faults, at most one in a function, of all packages and kinds."""
    rng, chosen = random.Random(seed), list[Fault]()
    places: dict[str, list[tuple[str, str, list[str]]]] = {}
    for package in packages:
        for path in sorted((tree / "purerl" / package).rglob("*.py")):
            for name, function in functions(ast.parse(path.read_text())):
                kinds = [kind for kind, _, _ in changes(function)]
                if kinds:
                    place = str(path.relative_to(tree)), name, kinds
                    places.setdefault(package, []).append(place)
    total = sum(map(len, places.values()))
    for package, choices in places.items():
        rng.shuffle(choices)
        share = max(20, round(count * len(choices) / total))  # 20 of a small package
        for path, name, kinds in choices[:share]:
            each = sorted(set(kinds))
            kind = rng.choices(each, [WEIGHTS.get(kind, 4) for kind in each])[0]
            number = rng.choice([i for i, other in enumerate(kinds) if other == kind])
            chosen.append(Fault(path, name, kind, number))
        print(f"{package}: {min(share, len(choices))} of {len(choices)} functions")
    rng.shuffle(chosen)
    return chosen[:count]


def planted(text: str, fault: Fault) -> tuple[str, dict[str, Any]]:
    """Return a file's text with a fault in it, and what was changed."""
    module = ast.parse(text)
    function = dict(functions(module))[fault.function]
    _, node, change = list(changes(function))[fault.number]
    old = ast.unparse(node)
    change()
    new = "False" if fault.kind == "option" else ""
    return ast.unparse(module), {
        "line": getattr(node, "lineno", 0),
        "old": old,
        "new": new or ast.unparse(node),
    }


def tests_of(tree: Path, path: str) -> list[str]:
    """The test files of a module, those first that have its name."""
    package, stem = path.split("/")[1], Path(path).stem
    asked = re.compile(
        rf"\b{package}\.{stem}\b|from purerl\.{package} import.*\b{stem}\b"
    )
    ranks: dict[str, int] = {}
    for file in sorted((tree / "tests").rglob("test_*.py")):
        place = str(file.relative_to(tree))
        if stem in file.stem or asked.search(file.read_text()) or package in place:
            ranks[place] = 2 - (package in place) - 2 * (stem in file.stem)
    return sorted(ranks, key=lambda place: ranks[place])


def run_tests(tree: Path, files: list[str], limit: float) -> tuple[int, str]:
    """Return the status of quick tests, -1 after `limit` seconds, and the output."""
    options = ["-n", "0", "-x", "-q", "-p", "no:cacheprovider"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *files],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        return -1, process.communicate()[0]


def judge(copy: Path, fault: Fault, budget: float) -> dict[str, Any]:
    """Plant a fault in the copy, run the tests of its module, and take it out."""
    path, files = copy / fault.path, tests_of(copy, fault.path)
    source, began = path.read_text(), time.monotonic()
    text, found = planted(source, fault)
    path.write_text(text)
    try:
        status, output = run_tests(copy, files, budget)
    finally:
        path.write_text(source)
    by = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    seconds = round(time.monotonic() - began, 1)
    caught = {"caught": status not in (-1, 0, 5), "by": by[:1], "status": status}
    return {**fault._asdict(), **found, **caught, "seconds": seconds}


def table(rows: list[dict[str, Any]]) -> str:
    """Faults planted, caught, and those whose tests did not end in time."""
    lines = []
    for title in ("package", "kind"):
        groups: dict[str, list[int]] = {}
        for row in rows:
            key = row["path"].split("/")[1] if title == "package" else row["kind"]
            groups.setdefault(key, []).append(row["status"])
        groups["all"] = [row["status"] for row in rows]
        lines += [f"| {title} | planted | caught | not in time |", "|---|---|---|---|"]
        for key, found in groups.items():
            late, missed = found.count(-1), found.count(0) + found.count(5)
            caught = len(found) - late - missed
            lines.append(f"| {key} | {len(found)} | {caught} | {late} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Choose, plant; print what was caught."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--packages", default=PACKAGES)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=300.0)
    parser.add_argument("--minutes", type=float, default=60.0)
    given = parser.parse_args()
    ends = time.monotonic() + 60 * given.minutes
    tree, copy = given.tree.resolve(), given.out.resolve() / "planted"
    results = copy.with_name("faults.jsonl")
    shutil.rmtree(copy, ignore_errors=True)  # it may have a fault in it
    ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", "runs", ".*_cache")
    shutil.copytree(tree, copy, symlinks=True, ignore=ignored)
    results.touch()
    done = {
        tuple(row[name] for name in Fault._fields)
        for row in map(json.loads, results.open())
    }
    for fault in choose(tree, given.packages.split(), given.count, given.seed):
        if tuple(fault) not in done and time.monotonic() < ends:
            with results.open("a") as file:
                file.write(json.dumps(judge(copy, fault, given.budget)) + "\n")
    print(table([*map(json.loads, results.open())]))


if __name__ == "__main__":
    main()

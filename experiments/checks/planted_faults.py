"""What the tests catch: small faults, planted one at a time.

    python experiments/checks/planted_faults.py TREE OUT [--count 300] [--minutes 60]

TREE is a checkout, which stays as it is; OUT gets a copy of it, and what was found. The
first time, the quick tests run once in a copy whose functions say that they were
called (`OUT/cover.jsonl`: what each test file executes, and its seconds). Then each
fault changes one place of one function: a sign, a comparison, an index, an argument, a
mask, an option, a constant. The test files that execute the function run, the most
special ones first, until one fails or `--budget` seconds of tests have passed.
`OUT/faults.jsonl` has a row for each fault, and a second call goes on after the last
one. Seed and tree decide which faults there are.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PACKAGES = "learning acting algorithms replay losses scale search storage"
TESTS = "core algorithms storage scale contracts population rules runner sweeps"
# Calls of which nothing is changed: they look at types, or a swap does nothing.
CHECKS = {"isinstance", "getattr", "hasattr", "jnp.minimum", "jnp.maximum"}
CHECKS |= {"map", "zip", "partial", "jax.tree.map", "jax.eval_shape", "cast"}
# Other arguments in a call are the easiest to plant and to catch.
WEIGHTS = {"argument": 1}
FLIPPED = {
    **{ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"},
    **{ast.BitAnd: "|", ast.BitOr: "&", ast.FloorDiv: "*"},
    **{ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"},
    **{ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not", ast.IsNot: "is"},
    **{ast.In: "not in", ast.NotIn: "in"},
}


class Fault(NamedTuple):
    """One changed place: the characters from `start` to `end` of a file."""

    path: str
    function: str
    kind: str
    start: int
    end: int
    new: str


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions and methods that are in no other function, with their names."""
    for node in tree.body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for found in inside:
            if isinstance(found, ast.FunctionDef):
                yield prefix + found.name, found


def places(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes below a function, without annotations, messages and what is raised."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "exc"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                if isinstance(child, ast.Call) and ast.unparse(child.func) in CHECKS:
                    continue
                yield child
                yield from places(child)


def faults_of(path: str, text: str, required: dict[str, set[str]]) -> list[Fault]:
    """All faults that could be planted in a file.

    Args:
        path: Path of the file in the tree.
        text: Its text.
        required: Parameters without a default, by the names of functions.
    """
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    source = text.encode()

    def at(node: Any) -> tuple[int, int]:
        return (
            starts[node.lineno - 1] + node.col_offset,
            starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def code(node: Any) -> str:
        return source[slice(*at(node))].decode()

    found = []
    for name, function in functions(ast.parse(text)):
        for node in places(function):
            for kind, place, new in changes(node, code, required):
                found.append(Fault(path, name, kind, *at(place), new))
    return found


def changes(
    node: Any, code: Any, required: dict[str, set[str]]
) -> Iterator[tuple[str, Any, str]]:
    """Kinds of fault, the nodes that they replace, and what by."""
    if isinstance(node, ast.BinOp) and type(node.op) in FLIPPED:
        if not isinstance(node.left, ast.Constant | ast.JoinedStr):
            kind = "mask" if isinstance(node.op, ast.BitAnd | ast.BitOr) else "sign"
            sign = FLIPPED[type(node.op)]
            yield kind, node, f"(({code(node.left)}) {sign} ({code(node.right)}))"
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        kind = "sign" if isinstance(node.op, ast.USub) else "mask"
        yield kind, node, f"({code(node.operand)})"
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        sign = FLIPPED[type(node.ops[0])]
        right = node.comparators[0]
        yield "comparison", node, f"(({code(node.left)}) {sign} ({code(right)}))"
    elif isinstance(node, ast.BoolOp):
        yield "comparison", node, f"({code(node.values[0])})"
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        if isinstance(node.slice.value, int):
            new = {0: "1", -1: "0"}.get(node.slice.value, "0")
            yield "index", node.slice, new
    elif isinstance(node, ast.Slice):
        for end in filter(None, (node.lower, node.upper)):
            yield "index", end, f"({code(end)}) + 1"
    elif isinstance(node, ast.If | ast.IfExp):
        yield "option", node.test, "False"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "constant", node, str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield "constant", node, "1" if node.value == 0 else f"({node.value} * 2)"
    elif isinstance(node, ast.Call):
        yield from changed_call(node, code, required)


def changed_call(
    node: ast.Call, code: Any, required: dict[str, set[str]]
) -> Iterator[tuple[str, Any, str]]:
    """Faults of a call: two arguments swapped, a mask or an option left out."""
    called = code(node.func)
    args = [code(arg) for arg in node.args]
    if called.endswith("where") and len(args) == 3:
        yield "mask", node, f"({args[1]})"
        yield "argument", node, f"{called}({args[0]}, {args[2]}, {args[1]})"
    elif len(args) >= 2:
        keywords = [code(keyword) for keyword in node.keywords]
        swapped = ", ".join([*args[:-2], args[-1], args[-2], *keywords])
        yield "argument", node, f"{called}({swapped})"
    name = called.rpartition(".")[2]
    for left_out in node.keywords:
        if left_out.arg and left_out.arg not in required.get(name, {left_out.arg}):
            rest = [code(k) for k in node.keywords if k is not left_out]
            yield "option", node, f"{called}({', '.join(args + rest)})"


def required_parameters(tree: Path) -> dict[str, set[str]]:
    """Parameters without a default of all functions of the library, by their names."""
    found: dict[str, set[str]] = {}
    for path in sorted(tree.glob("purerl/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                names = [arg.arg for arg in node.args.args]
                without = names[: len(names) - len(node.args.defaults)]
                pairs = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
                only = [arg.arg for arg, default in pairs if default is None]
                found.setdefault(node.name, set()).update(without, only)
    return found


def choose(tree: Path, packages: list[str], count: int, seed: int) -> list[Fault]:
    """Return `count` faults, at most one in a function, of all packages and kinds."""
    rng, required = random.Random(seed), required_parameters(tree)
    chosen = []
    by_package = {}
    for package in packages:
        by_function: dict[tuple[str, str], list[Fault]] = {}
        for path in sorted((tree / "purerl" / package).rglob("*.py")):
            place = str(path.relative_to(tree))
            for fault in faults_of(place, path.read_text(), required):
                by_function.setdefault((place, fault.function), []).append(fault)
        by_package[package] = list(by_function.values())
    total = sum(map(len, by_package.values()))
    for package, choices in by_package.items():
        rng.shuffle(choices)
        # A fair share, and 20 of a small package.
        share = max(20, round(count * len(choices) / total))
        for options in choices[:share]:
            kinds = sorted({fault.kind for fault in options})
            kind = rng.choices(kinds, [WEIGHTS.get(kind, 4) for kind in kinds])[0]
            chosen.append(rng.choice([f for f in options if f.kind == kind]))
        print(f"{package}: {min(share, len(choices))} of {len(choices)} functions")
    rng.shuffle(chosen)
    return chosen[:count]


class Recorder:
    """A plugin of pytest: which functions each test file executes, and how long."""

    def __init__(self, out: Path) -> None:
        import builtins

        self.out, self.calls = out, set[str]()
        self.file, self.seconds, self.failed = "", 0.0, list[str]()
        setattr(builtins, "planted_calls", self.calls)  # noqa: B010  # no such name

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Called by pytest before each test."""
        if nodeid.partition("::")[0] != self.file:
            self.pytest_sessionfinish()
            self.file, self.seconds, self.failed = nodeid.partition("::")[0], 0.0, []
            self.calls.clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest after each phase of a test."""
        self.seconds += report.duration
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Called by pytest at the end, and here after each file."""
        if self.file:
            row = {"file": self.file, "seconds": round(self.seconds, 1)}
            row |= {"failed": self.failed, "calls": sorted(self.calls)}
            append(self.out, row)


def append(path: Path, row: dict[str, Any]) -> None:
    """Add a row to a JSON lines file."""
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON lines file; none where there is no file."""
    return (
        [json.loads(x) for x in path.read_text().splitlines()] if path.exists() else []
    )


def run(tree: Path, arguments: list[str], limit: float) -> tuple[int, str]:
    """Run this Python in a tree; return its status, -1 after `limit` s, and output."""
    env = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=tree,
        env=env,
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


def cover(
    tree: Path, packages: list[str], folders: list[str], out: Path, cover_file: Path
) -> None:
    """Record what each test file executes, in a copy whose functions say it."""
    copy = out / "covered"
    if not copy.exists():
        copy_tree(tree, copy)
        for package in packages:
            for path in (copy / "purerl" / package).rglob("*.py"):
                lines, text = path.read_text().splitlines(), path.read_text()
                place = str(path.relative_to(copy))
                for name, function in reversed(list(functions(ast.parse(text)))):
                    first = function.body[0]
                    if ast.get_docstring(function) is not None:
                        if len(function.body) == 1:
                            continue
                        first = function.body[1]
                    call = "getattr(__import__('builtins'), 'planted_calls', set()).add"
                    indent = " " * first.col_offset
                    line = min(
                        [
                            first.lineno,
                            *(d.lineno for d in getattr(first, "decorator_list", [])),
                        ]
                    )
                    lines.insert(line - 1, f"{indent}{call}('{place}:{name}')")
                path.write_text("\n".join(lines) + "\n")
    done = {row["file"] for row in rows_of(cover_file)}
    files = [
        str(path.relative_to(copy))
        for folder in folders
        for path in sorted((copy / "tests" / folder).rglob("test_*.py"))
    ]
    left = [file for file in files if file not in done]
    for start in range(0, len(left), 10):
        part = left[start : start + 10]
        command = [__file__, "--record", str(cover_file), *part]
        status, output = run(copy, command, 3_600)
        print(f"covered {start + len(part)} of {len(left)} files, status {status}")
        if status not in (0, 1):
            print(output[-3_000:])


def copy_tree(tree: Path, copy: Path) -> None:
    """Copy a checkout, without what is not its own."""
    ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", "runs", ".*_cache")
    shutil.copytree(tree, copy, symlinks=True, ignore=ignored)


def judge(
    copy: Path, fault: Fault, covered: list[dict[str, Any]], budget: float
) -> dict[str, Any]:
    """Plant a fault in the copy, run the tests that execute it, and take it out."""
    name = f"{fault.path}:{fault.function}"
    files = [row for row in covered if name in row["calls"]]
    files.sort(key=lambda row: len(row["calls"]) * (row["seconds"] + 1))
    tried, seconds = [], 0.0
    for row in files:
        if not tried or seconds + row["seconds"] <= budget:
            tried.append(row["file"])
            seconds += row["seconds"]
    path = copy / fault.path
    source = path.read_bytes()
    old = source[fault.start : fault.end].decode()
    line = source[: fault.start].count(b"\n") + 1
    row = {**fault._asdict(), "line": line, "old": old}
    row |= {"files": tried, "files_left": len(files) - len(tried)}
    flaky = [f"--deselect={name}" for r in covered for name in r["failed"]]
    began = time.monotonic()
    path.write_bytes(source[: fault.start] + fault.new.encode() + source[fault.end :])
    try:
        compile(path.read_bytes(), path, "exec")
        options = ["-m", "pytest", "-n", "0", "-x", "-q", "-p", "no:cacheprovider"]
        status, output = 0, ""
        if tried:
            status, output = run(copy, [*options, *flaky, *tried], 60 + 3 * budget)
    except SyntaxError as error:
        status, output = -2, str(error)
    finally:
        path.write_bytes(source)
    by = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    words = {-2: "no program", -1: "time", 0: "", 5: ""}
    row["caught"] = status not in (0, 5, -2)
    row["by"] = by[0] if by else words.get(status, f"status {status}")
    return row | {"seconds": round(time.monotonic() - began, 1)}


def table(rows: list[dict[str, Any]]) -> str:
    """Faults caught by package, and by kind."""
    lines = []
    for title in ("package", "kind"):
        groups: dict[str, list[bool]] = {}
        for row in rows:
            if row["by"] != "no program":
                key = row["path"].split("/")[1] if title == "package" else row["kind"]
                groups.setdefault(key, []).append(row["caught"])
        groups["all"] = [caught for group in groups.values() for caught in group]
        lines += [f"| {title} | planted | caught |", "|---|---|---|"]
        lines += [f"| {k} | {len(v)} | {sum(v)} |" for k, v in groups.items()] + [""]
    return "\n".join(lines)


def main() -> None:
    """Cover, choose, plant; print what was caught."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--packages", default=PACKAGES)
    parser.add_argument("--tests", default=TESTS)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--minutes", type=float, default=60.0)
    given = parser.parse_args()
    ends = time.monotonic() + 60 * given.minutes
    tree, out, packages = (
        given.tree.resolve(),
        given.out.resolve(),
        given.packages.split(),
    )
    out.mkdir(parents=True, exist_ok=True)
    chosen = choose(tree, packages, given.count, given.seed)
    cover(tree, packages, given.tests.split(), out, out / "cover.jsonl")
    covered, found = rows_of(out / "cover.jsonl"), out / "faults.jsonl"
    copy = out / "planted"
    shutil.rmtree(copy, ignore_errors=True)  # a kill may have left a fault in it
    copy_tree(tree, copy)
    for fault in chosen[len(rows_of(found)) :]:
        if time.monotonic() > ends:
            break
        append(found, judge(copy, fault, covered, given.budget))
    print(table(rows_of(found)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        options = ["-n", "0", "-q", "-p", "no:cacheprovider", *sys.argv[3:]]
        sys.exit(pytest.main(options, plugins=[Recorder(Path(sys.argv[2]))]))
    main()

"""Plant small faults, one at a time, and record which tests catch them.

    python experiments/checks/planted_faults.py TREE OUT [--count 300] [--minutes 60]

TREE is a checkout, which stays as it is; the faults are planted in copies in OUT.
First the quick tests run once in a copy whose functions record their calls:
`OUT/cover.jsonl` has what each test file executes, and its seconds. Then each fault
changes one place of a function: a sign, a comparison, an index, an argument, a mask, an
option, a constant. The test files that execute the function run, those first that
execute little else, until one fails or `--budget` seconds of tests have passed.
`OUT/faults.jsonl` has a row for each fault, and a second call goes on after the last
one. Tree and seed decide which faults there are.
"""

import argparse
import ast
import builtins
import compileall
import importlib
import json
import os
import py_compile
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PACKAGES = "learning acting algorithms replay losses scale search storage"
TESTS = "core algorithms storage scale population contracts rules runner sweeps meta"
IMPORTED = "jax flax.linen optax chex distrax scipy.stats xarray tyro"
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


def changes(node: ast.AST, optional: dict[str, set[str]]) -> Iterator[Change]:
    """All changes below a node: the kind, the changed node, what makes the change."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in NO_CODE:
                if not isinstance(child, ast.JoinedStr):  # a message
                    yield from changes_of(child, optional)
                    yield from changes(child, optional)


def changes_of(node: Any, optional: dict[str, set[str]]) -> Iterator[Change]:
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
        for keyword in node.keywords:
            if keyword.arg in optional.get(called.rpartition(".")[2], ()):
                rest = [other for other in node.keywords if other is not keyword]
                yield "option", node, put("keywords", rest)


def optional_parameters(tree: Path) -> dict[str, set[str]]:
    """Parameters with a default of the library's functions, by the functions' names."""
    found: dict[str, set[str]] = {}
    for path in sorted(tree.glob("purerl/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                names = [arg.arg for arg in node.args.args]
                some = names[len(names) - len(node.args.defaults) :]
                pairs = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
                some += [arg.arg for arg, default in pairs if default is not None]
                found.setdefault(node.name, set()).update(some)
    return found


def choose(tree: Path, packages: list[str], count: int, seed: int) -> list[Fault]:
    """Return `count` faults, at most one in a function, of all packages and kinds."""
    rng, optional, chosen = random.Random(seed), optional_parameters(tree), []
    places: dict[str, list[tuple[str, str, list[str]]]] = {}
    for package in packages:
        for path in sorted((tree / "purerl" / package).rglob("*.py")):
            for name, function in functions(ast.parse(path.read_text())):
                kinds = [kind for kind, _, _ in changes(function, optional)]
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


def planted(text: str, fault: Fault, tree: Path) -> tuple[str, dict[str, Any]]:
    """Return a file's text with a fault in it, and what was changed."""
    module = ast.parse(text)
    function = dict(functions(module))[fault.function]
    _, node, change = list(changes(function, optional_parameters(tree)))[fault.number]
    old = ast.unparse(node)
    change()
    new = "False" if fault.kind == "option" and node.__class__ is not ast.Call else ""
    return ast.unparse(module), {
        "line": getattr(node, "lineno", 0),
        "old": old,
        "new": new or ast.unparse(node),
    }


class Recorder:
    """A plugin of pytest: which functions each test file executes, and how long."""

    def __init__(self, out: Path) -> None:
        self.out, self.calls = out, set[str]()
        self.file, self.seconds, self.failed = "", 0.0, list[str]()
        builtins.__dict__["planted_calls"] = self.calls

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Called by pytest before each test."""
        if nodeid.partition("::")[0] != self.file:
            self.pytest_sessionfinish()
            self.file, self.seconds, self.failed = nodeid.partition("::")[0], 0.0, []
            self.calls.clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest after each phase of a test."""
        self.seconds += report.duration
        self.failed += [report.nodeid] if report.failed else []

    def pytest_sessionfinish(self) -> None:
        """Called by pytest at the end, and here after each file."""
        if self.file:
            row = {"file": self.file, "seconds": round(self.seconds, 1)}
            append(self.out, row | {"failed": self.failed, "calls": sorted(self.calls)})


def append(path: Path, row: dict[str, Any]) -> None:
    """Add a row to a JSON lines file."""
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON lines file; none where there is no file."""
    return (
        [json.loads(x) for x in path.read_text().splitlines()] if path.exists() else []
    )


def copied(tree: Path, copy: Path) -> Path:
    """Copy a checkout, without what is not its own."""
    ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", "runs", ".*_cache")
    shutil.copytree(tree, copy, symlinks=True, ignore=ignored)
    return copy


def run(tree: Path, arguments: list[str], limit: float) -> tuple[int, str]:
    """Run this Python in a tree; return its status, -1 after `limit` s, and output."""
    env = os.environ | {"PYTHONPATH": str(tree)}
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


def run_tests(tree: Path, arguments: list[str], limit: float) -> tuple[int, str]:
    """Run pytest in a fork of this process, for which JAX is imported already."""
    output = tree.parent / "output.txt"
    child = os.fork()
    if not child:
        os.setsid()
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.chdir(tree)
        os.environ["PYTHONPATH"] = str(tree)
        sys.path.insert(0, str(tree))
        status = pytest.main([*arguments, "-p", "no:cacheprovider"])
        sys.stdout.flush()
        os._exit(status)
    began, done, status = time.monotonic(), 0, -1
    while not done and time.monotonic() < began + limit:
        time.sleep(0.1)
        done, found = os.waitpid(child, os.WNOHANG)
        status = os.waitstatus_to_exitcode(found) if done else -1
    if not done:
        os.killpg(child, 9)
        os.waitpid(child, 0)
    return status, output.read_text(errors="replace")


def cover(tree: Path, packages: list[str], folders: list[str], out: Path) -> None:
    """Record what each test file executes, in a copy whose functions say it."""
    copy = out / "covered"
    for path in () if copy.exists() else copied(tree, copy).glob("purerl/**/*.py"):
        place = str(path.relative_to(copy))
        module = ast.parse(path.read_text())
        if place.split("/")[1] in packages:
            for name, function in functions(module):
                add = "getattr(__import__('builtins'), 'planted_calls', set()).add"
                call = ast.parse(f"{add}('{place}:{name}')").body[0]
                function.body.insert(ast.get_docstring(function) is not None, call)
            path.write_text(ast.unparse(module))
    done = {row["file"] for row in rows_of(out / "cover.jsonl")}
    files = [
        f for name in folders for f in sorted((copy / "tests" / name).rglob("test_*"))
    ]
    left = [str(f.relative_to(copy)) for f in files]
    left = [file for file in left if file not in done and file.endswith(".py")]
    for start in range(0, len(left), 10):
        part = left[start : start + 10]
        status, output = run(
            copy, [__file__, "--record", str(out / "cover.jsonl"), *part], 3_600
        )
        print(f"covered {start + len(part)} of {len(left)} files, status {status}")
        print(output[-3_000:] if status not in (0, 1) else "")


def judge(
    copy: Path,
    fault: Fault,
    covered: list[dict[str, Any]],
    budget: float,
    before: list[str],
) -> dict[str, Any]:
    """Plant a fault in the copy, run the tests that execute it, and take it out.

    Args:
        copy: Tree in which it is planted.
        fault: The fault.
        covered: What test files execute.
        budget: The most seconds of tests, but for the first file.
        before: Files that have been tried before, and are not tried again.
    """
    name = f"{fault.path}:{fault.function}"
    files = [row for row in covered if name in row["calls"]]
    files = [row for row in files if row["file"] not in before]
    stem = Path(fault.path).stem

    def rank(row: dict[str, Any]) -> float:
        named = 0.1 if stem in row["file"] else 1.0
        return named * len(row["calls"]) * (row["seconds"] + 1)

    files.sort(key=rank)
    tried, seconds = [], 0.0
    for row in files:
        if not tried or seconds + row["seconds"] <= budget:
            tried.append(row["file"])
            seconds += row["seconds"]
    broken = [f"--deselect={name}" for row in covered for name in row["failed"]]
    path, began = copy / fault.path, time.monotonic()
    source = path.read_text()
    text, found = planted(source, fault, copy)
    status, output = 0, ""
    path.write_text(text)
    try:
        if tried:
            options = ["-n", "0", "-x", "-q", *broken]
            status, output = run_tests(copy, [*options, *tried], 60 + 5 * budget)
    finally:
        path.write_text(source)
    by = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return {
        **fault._asdict(),
        **found,
        "caught": status not in (0, 5),
        "by": by[0] if by else "time" if status == -1 else f"status {status}",
        "tried": before + tried,
        "left": len(files) - len(tried),
        "seconds": round(time.monotonic() - began, 1),
    }


def last_rows(path: Path) -> dict[str, dict[str, Any]]:
    """The last row of each fault."""
    return {str(Fault(*[r[name] for name in Fault._fields])): r for r in rows_of(path)}


def is_open(row: dict[str, Any]) -> bool:
    """Whether a fault escaped the tests that had time, and others execute it."""
    return not row["caught"] and row["left"] > 0


def table(rows: list[dict[str, Any]]) -> str:
    """Faults planted and caught, by package and by kind."""
    lines = []
    for title in ("package", "kind"):
        groups: dict[str, list[bool]] = {}
        for row in rows:
            key = row["path"].split("/")[1] if title == "package" else row["kind"]
            groups.setdefault(key, []).append(row["caught"])
        groups["all"] = [row["caught"] for row in rows]
        lines += [f"| {title} | planted | caught |", "|---|---|---|"]
        lines += [f"| {k} | {len(v)} | {sum(v)} |" for k, v in groups.items()] + [""]
    return "\n".join(lines)


def main() -> None:
    """Cover, choose, plant; print what was caught."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--packages", default=PACKAGES)
    parser.add_argument("--tests", default=TESTS, help="folders of tests")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=30.0)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument(
        "--again", action="store_true", help="what escaped, other tests"
    )
    given = parser.parse_args()
    ends = time.monotonic() + 60 * given.minutes
    tree, out, packages = (
        given.tree.resolve(),
        given.out.resolve(),
        given.packages.split(),
    )
    out.mkdir(parents=True, exist_ok=True)
    chosen = choose(tree, packages, given.count, given.seed)
    cover(tree, packages, given.tests.split(), out)
    covered = rows_of(out / "cover.jsonl")
    for name in IMPORTED.split():  # not more: others start JAX, or import the library
        importlib.import_module(name)
    shutil.rmtree(out / "planted", ignore_errors=True)  # it may have a fault in it
    copy = copied(tree, out / "planted")
    # Bytecode that knows its source by a hash: two versions may be of one second.
    hashed = py_compile.PycInvalidationMode.CHECKED_HASH
    for folder in ("purerl", "envs"):
        compileall.compile_dir(copy / folder, quiet=1, invalidation_mode=hashed)
    results = out / "faults.jsonl"
    known = last_rows(results)
    planned = [(f, given.budget, []) for f in chosen if str(f) not in known]
    if given.again:
        escaped = [f for f in chosen if str(f) in known and is_open(known[str(f)])]
        planned = [(f, given.budget, known[str(f)]["tried"]) for f in escaped]
    for fault, budget, before in planned:
        if time.monotonic() < ends:
            append(results, judge(copy, fault, covered, budget, before))
    print(table(list(last_rows(results).values())))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        options = ["-n", "0", "-q", "-p", "no:cacheprovider", *sys.argv[3:]]
        sys.exit(pytest.main(options, plugins=[Recorder(Path(sys.argv[2]))]))
    main()

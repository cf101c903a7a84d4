"""What all experiments, benchmarks and studies share.

`options` reads a command line, `keep` writes numbers with their command and machine,
`part` does work once, `show` and `markdown` make tables, and `child` measures in a
process of its own.
"""

import argparse
import dataclasses
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from purerl.atomic import write_atomic as write_atomic
from purerl.report.statistics import mean_interval as mean_interval

EXPERIMENTS = Path(__file__).resolve().parent
ROOT = EXPERIMENTS.parent
RESULTS = EXPERIMENTS / "results"
IMAGES = ROOT / "docs" / "images"


class Words(NamedTuple):
    """Words of a command line that are no flags.

    Attributes:
        known: The words that there are, or some of them.
        metavar: Their name in the help.
        is_checked: Whether other words are refused.
        is_one: Whether there is exactly one; otherwise any number, also none.
    """

    known: Collection[str]
    metavar: str = "ROW"
    is_checked: bool = True
    is_one: bool = False


class Asked(argparse.Namespace):
    """The options of a command, by name.

    Attributes:
        command: The command that asks for the same, without `--out` and `--dry`.
        load_before: Load of the machine when the command began.
    """

    command: str
    load_before: float
    _began: float

    def seconds(self) -> float:
        """Return the seconds since the command began."""
        return time.perf_counter() - self._began

    def given(self) -> dict[str, Any]:
        """Return the options alone."""
        own = ("command", "load_before", "_began")
        return {name: value for name, value in vars(self).items() if name not in own}


def options(doc: str | None, is_cached: bool = False, **flags: Any) -> Asked:
    """Read the command line of a script.

    Args:
        doc: The script's docstring.
        is_cached: Whether compiled programs are kept for later processes.
        **flags: Option -> its default, or a tuple of the default, choices (a
            collection) and help (a string), in this order. `False` is a switch, a type
            has the default None, a list takes several values (of the type of its first
            member, or of that type and without a default), and `Words` are no flags.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    words: dict[str, Words] = {}
    for name, flag in flags.items():
        default, *rest = flag if type(flag) is tuple else (flag,)
        if isinstance(default, Words):
            words[name] = default
            count = None if default.is_one else "*"
            known = ", ".join(default.known)
            parser.add_argument(name, nargs=count, metavar=default.metavar, help=known)
        else:
            _add_flag(parser, f"--{name.replace('_', '-')}", default, rest)
    asked = parser.parse_intermixed_args(namespace=Asked())
    for name, kind in words.items():
        value: Any = getattr(asked, name) or []
        found: list[str] = [value] if kind.is_one else list(value)
        unknown = sorted(set(found) - set(kind.known))
        if kind.is_checked and unknown:
            kinds = kind.metavar.lower()
            known = ", ".join(kind.known)
            parser.error(f"no {kinds} {', '.join(unknown)}; {kinds}s: {known}")
    asked.command = _command(parser, asked, words)
    asked.load_before = round(os.getloadavg()[0], 2)
    asked._began = time.perf_counter()
    if is_cached:
        from purerl.cli.settings import enable_compile_cache

        enable_compile_cache()
    return asked


def _add_flag(
    parser: argparse.ArgumentParser, flag: str, default: Any, rest: Sequence[Any]
) -> None:
    settings: dict[str, Any] = {}
    for each in rest:
        is_help = isinstance(each, str)
        settings["help" if is_help else "choices"] = each if is_help else list(each)
    if default is False:
        parser.add_argument(flag, action="store_true", **settings)
        return
    kind = default
    if isinstance(default, list):
        settings["nargs"], kind = "+", default[0]
    if isinstance(kind, type):
        parser.add_argument(flag, type=kind, **settings)
    else:
        parser.add_argument(flag, type=type(kind), default=default, **settings)


def _command(
    parser: argparse.ArgumentParser, asked: Asked, words: Collection[str]
) -> str:
    script = Path(sys.argv[0]).resolve()
    name = script.name
    if script.is_relative_to(EXPERIMENTS):
        name = script.relative_to(EXPERIMENTS).as_posix()
    found: list[str] = [f"python experiments/{name}"]
    # Words first: behind a flag with several values they would be more of these.
    given = sorted(vars(asked).items(), key=lambda pair: pair[0] not in words)
    for option, value in given:
        if value == parser.get_default(option) or option in ("out", "dry"):
            continue
        values = value if isinstance(value, list) else [value]
        if option not in words:
            found.append(f"--{option.replace('_', '-')}")
        found += [str(each) for each in values if each is not True]
    return " ".join(found)


def hardware() -> dict[str, Any]:
    """Return the machine and the versions that printed the numbers."""
    import jax

    device = jax.local_devices()[0]
    model = device.device_kind
    if device.platform == "cpu" and (found := cpu_model()):
        model = re.sub(r"\s+\d+-Core Processor$", "", found)
        model = f"{cores()} core{'s' * (cores() != 1)} of {model}"
    return {
        "hardware": model,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "jax": version("jax"),
        "purerl": version("purerl"),
    }


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_model() -> str:
    """Return the name of the processor; empty where the system does not say it."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return ""
    found = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.M)
    return found.group(1).strip() if found else platform.machine()


def printed_on(numbers: Mapping[str, Any]) -> str:
    """Return where kept numbers were printed, and when, in words."""
    return (
        f"{numbers['hardware']}, jax {numbers['jax']}, Python {numbers['python']}, "
        f"{numbers['date']}, load {numbers['load_before']} before"
    )


def read(path: Path) -> dict[str, Any]:
    """Return what a JSON file holds; nothing where there is no file."""
    return json.loads(path.read_text()) if path.exists() else {}


def write(path: Path, value: Any, indent: int | None = 1) -> None:
    """Write a JSON file, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(value, indent=indent, default=str) + "\n")


def keep(name: str, asked: Asked, numbers: Mapping[str, Any]) -> None:
    """Write results/NAME.json: numbers, the command that printed them, and where.

    Args:
        name: Name of the file.
        asked: The options of the command; with `--dry` nothing is written.
        numbers: The numbers.
    """
    if not asked.given().get("dry"):
        where = {"load_before": asked.load_before, **hardware()}
        write(RESULTS / f"{name}.json", {"command": asked.command, **numbers, **where})


def as_kept(settings: Mapping[str, Any]) -> Any:
    """Return settings as JSON gives them back."""
    return json.loads(json.dumps(settings))


def kept_config(fields: Mapping[str, Any]) -> Any:
    """Return a config that was kept, without the fields that configs have lost since.

    Those that they have got since then have their defaults.
    """
    from purerl import algorithms, serialise

    config = algorithms.config_class(fields.get("algorithm", "ppo"))
    known = {field.name for field in dataclasses.fields(config)} | {"algorithm"}
    return serialise.from_dict({k: v for k, v in fields.items() if k in known})


def is_same(kept: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Return whether settings are those with which something was kept."""
    asked = as_kept(asked)
    if kept.get("config") and asked.get("config"):
        from purerl import ConfigError, serialise

        try:
            before, now = kept_config(kept["config"]), kept_config(asked["config"])
        except ConfigError:
            return False
        if serialise.to_dict(before) != serialise.to_dict(now):
            return False
        kept = {**kept, "config": asked["config"]}
    return kept == asked


def part(
    path: Path, make: Callable[[], Any], settings: Mapping[str, Any], name: str = ""
) -> tuple[dict[str, Any], bool]:
    """Do a piece of work, unless it was done before with the same settings.

    Args:
        path: File that keeps it.
        make: Function without arguments, whose result JSON can hold.
        settings: What the result depends on.
        name: Its name, which is printed before the work.

    Returns:
        Its record, with `result` and `seconds`, and whether it was done now.
    """
    kept = read(path)
    if kept and is_same(kept["settings"], settings):
        return kept, False
    load = os.getloadavg()[0]
    print(name or path.stem, flush=True)
    began = time.perf_counter()
    result = json.loads(json.dumps(make()))
    seconds = round(time.perf_counter() - began, 1)
    kept = {"settings": as_kept(settings), "seconds": seconds, "result": result}
    kept |= {"load_before": round(load, 2), **hardware()}
    write(path, kept, indent=None)
    return kept, True


def child(
    *words: Any, python: Path | str = sys.executable, env: Mapping[str, str] = {}
) -> Any:
    """Run a script in a process of its own; return the JSON in its last line.

    Args:
        *words: The script, or `-c` and its text, and its arguments.
        python: Interpreter.
        env: Variables beside those of this process; an empty one is taken away.
    """
    variables = {k: v for k, v in (os.environ | env).items() if v or k not in env}
    command = [str(python), *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=variables
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def show(
    title: str,
    headers: Sequence[str],
    rows: Iterable[Sequence[Any]],
    width: int = 150,
    **look: Any,
) -> None:
    """Print a table in the terminal."""
    table = Table(*map(str, headers), title=title or None, **look)
    for row in rows:
        table.add_row(*map(str, row))
    show_table(table, width)


def show_table(table: Any, width: int = 150) -> None:
    """Print one of Rich's tables, as results of purerl return them."""
    Console(width=width, highlight=False).print(table)


def markdown(headers: Sequence[Any], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    cells = [[str(x).replace("|", "\\|") for x in row] for row in (headers, *rows)]
    written = [f"| {' | '.join(row)} |" for row in cells]
    return [written[0], "|" + "---|" * len(headers), *written[1:]]


def raw_words(name: str) -> dict[str, str]:
    """Return what words/NAME.md has, by the comment before it."""
    text = (EXPERIMENTS / "words" / f"{name}.md").read_text()
    _, *parts = re.split(r"^<!-- (.+?) -->\n", text, flags=re.M)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return {key: part.strip() for key, part in pairs}


def words_of(name: str) -> dict[str, str]:
    """Return the paragraphs of words/NAME.md, each a line, by the comment before it."""
    return {key: " ".join(text.split()) for key, text in raw_words(name).items()}


def interval_text(values: Any, digits: int = 1, heading: str = "95% interval") -> str:
    """Return the mean of runs with its interval, or their range, in words."""
    values = np.asarray(values, float)
    return f"{values.mean():,.{digits}f} ({ends_text(values, digits, heading)})"


def ends_text(values: Any, digits: int = 1, heading: str = "95% interval") -> str:
    """Return the ends of the interval of the mean of runs, in words."""
    return mean_interval(np.asarray(values, float)).text(digits, heading)


def plain_rows(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Return rows of a comparison as plain values; None where there is no number."""
    return [plain(row._asdict()) for row in rows]


def plain(value: Any, digits: int | None = None) -> Any:
    """Return what JSON holds of values; None where there is no number.

    Args:
        value: A value, or lists and dictionaries of values.
        digits: Digits of the numbers that are kept; all where not given.
    """
    if isinstance(value, dict):
        return {name: plain(each, digits) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each, digits) for each in value]
    if not isinstance(value, float):
        return value
    if not np.isfinite(value):
        return None
    return float(f"{value:.{digits}g}") if digits else value


def history(result: Any) -> dict[str, list[float]]:
    """Return the course of an evolution: mean, best and spread of its members."""
    return {name: result.history[name].tolist() for name in ("mean", "best", "std")}


def evolve_seconds(result: Any) -> int:
    """Return the seconds of all generations, also of those before a kill."""
    return round(float(result.history["seconds"].sum()))

"""The frame of every benchmark: contenders in turns, their table, their machine.

A benchmark is the rows that it measures and what it times. Peers run in processes with
interpreters of their own, which sleep while another contender is measured.
"""

import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from frame import ROOT as ROOT
from frame import Asked as Asked
from frame import Words as Words
from frame import child as child
from frame import cores, cpu_model
from frame import interval_text as interval_text
from frame import markdown as markdown
from frame import options as options
from frame import read as read
from frame import write as write

import purerl

HERE = Path(__file__).resolve().parent
PEERS, SB3 = ROOT / ".venv-peers", ROOT / ".venv-peers-sb3"
PACKAGES = ("purerl", "jax", "jaxlib", "flax", "optax", "numpy", "gymnax")


class Run(NamedTuple):
    """One timed run.

    Attributes:
        seconds: Seconds of the wall clock, until every result was there.
        score: Number that shows that the run did its work (a mean return, say).
        cpu_seconds: Seconds of all threads of the process; on a machine shared with
            others it says more than the clock.
    """

    seconds: float
    score: float = float("nan")
    cpu_seconds: float = float("nan")


Measure = Callable[[int], Run]


class Spread(NamedTuple):
    """Median, smallest and largest of the rounds."""

    median: float
    low: float
    high: float


@dataclass
class Row:
    """One line of the table.

    Attributes:
        name: What was measured.
        unit: Unit of `purerl` and `other`.
        purerl: Ours.
        other: The peer's, if there is one.
        other_name: Who that is.
        figure: The ratio of the medians, with the smallest and largest of a round.
        note: Scores, compile seconds.
        rounds: The numbers of every round.
    """

    name: str
    unit: str
    purerl: Spread
    other: Spread | None
    other_name: str
    figure: Spread
    note: str = ""
    rounds: dict[str, list[float]] = field(default_factory=dict)

    def cells(self) -> list[str]:
        """Return the table's cells."""
        other = ""
        if self.other:
            other = f"{with_range(self.other, self.unit)} {self.other_name}"
        ours, figure = with_range(self.purerl, self.unit), with_range(self.figure)
        return [self.name, ours, other, figure]


def beside(
    name: str,
    unit: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    other_name: str,
    **more: Any,
) -> Row:
    """Return the row of ours beside another's; more than 1 is in favour of ours.

    Args:
        name: What was measured.
        unit: `s`, of which less is better, or `steps/s`.
        ours: Numbers of every round.
        theirs: Those of the other.
        other_name: Who that is.
        **more: Other fields of the row.
    """
    pair = (theirs, ours) if unit == "s" else (ours, theirs)
    more = {"figure": compare(*pair)} | more
    return Row(name, unit, spread(ours), spread(theirs), other_name, **more)


def alternate(
    measures: Mapping[str, Measure], rounds: int, out: Any = None
) -> dict[str, list[Run]]:
    """Measure every contender once per round, another one first in every round.

    Args:
        measures: The contenders.
        rounds: Number of rounds.
        out: Where the progress is printed; `sys.stdout` if not given.
    """
    names = list(measures)
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for index in range(rounds):
        shift = index % len(names)
        for name in names[shift:] + names[:shift]:
            runs[name].append(measures[name](index))
            seconds = runs[name][-1].seconds
            print(f"  round {index + 1}: {name} {seconds:.2f} s", file=out, flush=True)
    return runs


def spread(values: Sequence[float]) -> Spread:
    """Median, smallest and largest."""
    return Spread(statistics.median(values), min(values), max(values))


def compare(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Ratio of the medians, and the range of the rounds' own ratios."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    middle = statistics.median(ours) / statistics.median(theirs)
    return Spread(middle, min(ratios), max(ratios))


def rates(runs: Sequence[Run], work: float) -> list[float]:
    """Work per second of every run."""
    return [work / run.seconds for run in runs]


def seconds_of(runs: Sequence[Run]) -> list[float]:
    """Seconds of every run."""
    return [run.seconds for run in runs]


def mean_score(runs: Sequence[Run]) -> float:
    """Mean over the rounds."""
    return statistics.fmean(run.score for run in runs)


def cpu_seconds(runs: dict[str, list[Run]]) -> str:
    """Median processor time of every contender's run, in words."""
    parts = [
        f"{who} {statistics.median(run.cpu_seconds for run in found):.2f} s"
        for who, found in runs.items()
    ]
    return "CPU time of a run: " + ", ".join(parts)


def machine(packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """Return the machine and the versions of the measurement."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": cpu_model() or platform.processor() or platform.machine(),
        "cores": cores(),
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "versions": versions(packages),
    }


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for name in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def machine_line(found: Mapping[str, Any] | None = None) -> str:
    """Return the machine and the versions of a measurement, in a line."""
    found = found or machine()
    versions = ", ".join(f"{name} {of}" for name, of in found["versions"].items())
    return (
        f"{found['date']}; {found['cpu']}, {found['cores']} cores, "
        f"{jax.default_backend()}; load average {found['load_before']} before; Python "
        f"{found['python']}, {versions}"
    )


def number(value: float, unit: str = "") -> str:
    """A number as a reader wants it: rates in thousands, the rest to the point."""
    if unit == "steps/s":
        return f"{value / 1e6:.2f}M" if value >= 1e6 else f"{value / 1e3:.0f}k"
    return f"{value:.2f}{' s' * (unit == 's')}"


def with_range(values: Spread, unit: str = "") -> str:
    """A median with the smallest and the largest number."""
    middle, low, high = (number(value, unit) for value in values)
    return f"{middle} ({low}-{high})"


def text(rows: Sequence[Row], facts: dict[str, Any]) -> str:
    """Table, notes, and what they were measured on, as Markdown."""
    heads = ["what", "purerl", "peer", "figure (min-max)"]
    lines = [
        *markdown(heads, [row.cells() for row in rows]),
        "",
        *(f"- {row.name}: {row.note}" for row in rows if row.note),
        "",
        f"{machine_line(facts)}; load average {facts['load_after']} after; "
        f"{facts['rounds']} rounds.",
    ]
    if "peer_versions" in facts:
        lines.append(f"Peer's interpreter: {facts['peer_versions']}.")
    return "\n".join(lines)


def measure_sections(
    asked: Asked,
    sections: Mapping[str, Callable[[Asked], list[Row]]],
    peers: Mapping[str, Path],
) -> None:
    """Measure the sections that were asked for; print one table, and write it.

    Args:
        asked: `only`, the sections; `rounds`; and `out`, where OUT.md and OUT.json go.
        sections: What measures each.
        peers: Script of a peer -> its interpreter, for the versions.
    """
    facts = machine() | {"rounds": asked.rounds}
    names = []
    for script, python in peers.items():
        with Peer(python, script) as peer:
            found = peer.ask("versions")
        shim = " with jax.tree_map = jax.tree.map" if found.pop("shimmed", None) else ""
        names.append(", ".join(f"{name} {of}" for name, of in found.items()) + shim)
    if names:
        facts["peer_versions"] = "; ".join(names)
    rows: list[Row] = []
    for name in asked.only:
        print(f"measuring {name} ...", flush=True)
        rows += sections[name](asked)
    facts["load_after"] = round(os.getloadavg()[0], 2)
    print("\n" + text(rows, facts))
    if asked.out:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.with_suffix(".md").write_text(text(rows, facts) + "\n")
        records = [asdict(row) for row in rows]
        write(asked.out.with_suffix(".json"), {"facts": facts, "rows": records}, 2)


def print_table(headers: str, lines: Sequence[Sequence[Any]] = ()) -> None:
    """Print a table whose headers are separated by ` | `; rows may follow."""
    print("\n".join(markdown(headers.split(" | "), lines)), flush=True)


def print_row(*cells: Any) -> None:
    """Print a further row of a table."""
    print(markdown(cells, [])[0], flush=True)


def clocked(work: Callable[[], Any]) -> tuple[Any, Run]:
    """Return a result, once all of it is there, and the run."""
    start, cpu_start = time.perf_counter(), time.process_time()
    result = jax.block_until_ready(work())
    cpu_seconds = time.process_time() - cpu_start
    return result, Run(time.perf_counter() - start, cpu_seconds=cpu_seconds)


def calls(work: Callable[[], Any]) -> Measure:
    """Return what times a call that is the same in every round."""
    return lambda seed: clocked(work)[1]


def last_returns(result: Any) -> float:
    """Mean return of the episodes of the last quarter of training."""
    returns = np.asarray(result.metrics["episode_return"])
    return float(np.nanmean(returns[..., -returns.shape[-1] // 4 :]))


def train(
    config: Any,
    agents: int | None = None,
    lanes: int | None = None,
    score: Callable[[Any], float] | None = None,
) -> tuple[Measure, float]:
    """Compile whole trainings; return what to time, and the seconds of compilation.

    Args:
        config: Config of every agent.
        agents: Number of agents; None for one by `jax.jit` alone.
        lanes: Width of the blocks of `purerl.pmap`, which uses every core; without it
            agents are trained by `jit(vmap)`.
        score: Function of the result that shows that the training did its work.
    """
    train = purerl.make_train(config)
    start = time.perf_counter()
    if lanes is not None:
        program: Any = purerl.pmap(train, lanes=lanes)
        # The first block compiles, and runs once; there is no way to do only one.
        jax.block_until_ready(program(jax.random.split(jax.random.key(0), lanes)))
    else:
        mapped = jax.jit(train if agents is None else jax.vmap(train))
        program = mapped.lower(keys_of(0, agents)).compile()
    compile_seconds = time.perf_counter() - start

    def measure(seed: int) -> Run:
        keys = jax.block_until_ready(keys_of(seed, agents))
        result, run = clocked(lambda: program(keys))
        return run._replace(score=score(result)) if score else run

    return measure, compile_seconds


def keys_of(seed: int, agents: int | None) -> jax.Array:
    """A key, or one for each of some agents."""
    key = jax.random.key(seed)
    return key if agents is None else jax.random.split(key, agents)


class PeerError(RuntimeError):
    """The peer's process failed; the message is its own."""


class Peer:
    """A peer's process, asked one line at a time.

    Args:
        python: the peer's own interpreter.
        script: what it runs.
        checkout: Code of purerl that takes the place of the installed one.
        variables: Variables of its environment, beside those of this process.

    Raises:
        PeerError: there is no such interpreter.
    """

    def __init__(
        self,
        python: Path,
        script: str = "peer_rejax.py",
        checkout: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        if python.is_dir():
            python = python / "bin" / "python"
        if not python.exists():
            raise PeerError(
                "the peers' environment is missing; make it with "
                "experiments/benchmarks/setup_peers.sh."
            )
        environment = dict(os.environ) | dict(variables or {})
        if checkout is not None:
            environment["PYTHONPATH"] = str(checkout.resolve())
        self._process = subprocess.Popen(
            [str(python), "-W", "ignore", str(HERE / script)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Send a request and wait for the answer.

        Raises:
            PeerError: the peer raised, or died.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps({"do": do, **request}) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise PeerError(f"the peer's process died on {do!r}.")
        reply = json.loads(line)
        if "error" in reply:
            raise PeerError(reply["error"])
        return reply

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()


def peer_program(
    stack: ExitStack,
    python: Path,
    script: str = "peer_rejax.py",
    checkout: Path | None = None,
    variables: Mapping[str, str] | None = None,
    **request: Any,
) -> tuple[Measure, float]:
    """Prepare a program of a peer in a process of its own.

    Args:
        stack: The stack that ends the process.
        python: The peer's interpreter.
        script: Its script in this folder.
        checkout: Code of purerl that it uses in the place of the installed one.
        variables: Variables of its environment, beside those of this process.
        **request: What the script's `prepare` is given.

    Returns:
        What to time, and the seconds of compilation.
    """
    peer = stack.enter_context(Peer(python, script, checkout, variables))
    prepared = peer.ask("prepare", **request)
    return lambda seed: Run(**peer.ask("run", seed=seed)), prepared["compile_seconds"]

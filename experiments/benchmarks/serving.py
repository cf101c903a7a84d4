"""Answers to the requests of `peer.py`, a line of JSON each, for every `peer_*.py`.

    {"do": "versions"} -> versions by name
    {"do": "prepare", ...} -> compile_seconds
    {"do": "run", "seed": 0} -> seconds and more

Between requests the process sleeps. Peers have interpreters of their own, so that this
needs the standard library alone.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol


class Case(Protocol):
    """A prepared program: it is compiled, and can be run again and again."""

    compile_seconds: float

    def run(self, seed: int) -> dict[str, float]:
        """Run once, and return what was measured."""
        ...


def clocked(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return a result, once all of it is there, and its seconds of both clocks."""
    start, cpu_start = time.perf_counter(), time.process_time()
    result = work()
    if "jax" in sys.modules:
        sys.modules["jax"].block_until_ready(result)
    cpu_seconds = time.process_time() - cpu_start
    seconds = time.perf_counter() - start
    return result, {"seconds": seconds, "cpu_seconds": cpu_seconds}


def serve(prepare: Callable[..., Case], versions: Callable[[], dict[str, Any]]) -> None:
    """Answer requests until there are no more.

    Args:
        prepare: Function that makes a case of what a request says.
        versions: Function that returns the versions of the libraries.
    """
    # Whatever a library prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    cases: list[Case] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        match request.pop("do"):
            case "versions":
                return versions()
            case "prepare":
                cases[:] = [prepare(**request)]
                return {"compile_seconds": cases[0].compile_seconds}
            case "run":
                assert cases, "prepare comes first"
                return cases[0].run(**request)
            case other:
                raise ValueError(f"do must be versions, prepare or run, got {other!r}.")

    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Exception:
            reply = {"error": traceback.format_exc()}
        print(json.dumps(reply), file=answers, flush=True)

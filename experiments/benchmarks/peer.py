"""The other side of `peer_*.py`: a process that sleeps until it is asked."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from report import Measure, Run

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


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


@contextmanager
def run_peer(python: Path) -> Iterator[Callable[..., tuple[Measure, float]]]:
    """Give a function that prepares a program of `peer_rejax.py` in a new process.

    Its arguments are those of the request `prepare`; it returns what to time, and the
    seconds of compilation. The process, and with it the memory of its device, ends
    after the `with`.

    Args:
        python: The peer's own interpreter.
    """
    with ExitStack() as stack:

        def prepare(**request: Any) -> tuple[Measure, float]:
            peer = stack.enter_context(Peer(python))
            prepared = peer.ask("prepare", **request)
            return (
                lambda seed: Run(**peer.ask("run", seed=seed)),
                prepared["compile_seconds"],
            )

        yield prepare

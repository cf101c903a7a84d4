"""The other side of `peer_*.py`: a process that sleeps until it is asked."""

import json
import subprocess
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


class PeerError(RuntimeError):
    """The peer's process failed; the message is its own."""


class Peer:
    """A peer's process, asked one line at a time.

    Args:
        python: the peer's own interpreter.
        script: what it runs.

    Raises:
        PeerError: there is no such interpreter.
    """

    def __init__(self, python: Path, script: str = "peer_rejax.py") -> None:
        if not python.exists():
            raise PeerError(
                "the peers' environment is missing; make it with "
                "experiments/benchmarks/setup_peers.sh."
            )
        self._process = subprocess.Popen(
            [str(python), "-W", "ignore", str(HERE / script)],
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

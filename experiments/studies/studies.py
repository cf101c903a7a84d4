"""Run the studies one after another, each in a process of its own, and the page.

    python experiments/studies/studies.py                 # all, hours; goes on
    python experiments/studies/studies.py --quick         # all at a tiny budget
    python experiments/studies/studies.py --only NAME ... # some of them
    python experiments/studies/studies.py --long          # with what takes many hours

A study that fails is named at the end, and the others still run.
"""

import subprocess
import sys
import time
from pathlib import Path

import page
from page import names

# isort: split
from frame import options

HERE = Path(__file__).parent


def main() -> int:
    """Run what was asked for; the number of studies that failed."""
    asked = options(
        __doc__,
        quick=(False, "a tiny budget"),
        long=(False, "with what takes hours"),
        only=([str], names()),
    )
    failed = []
    for name in asked.only or names():
        began = time.perf_counter()
        command = [sys.executable, str(HERE / f"{name}.py")]
        command += ["--quick"] * asked.quick + ["--long"] * asked.long
        code = subprocess.run(command, check=False).returncode
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
        failed += [name] * (code != 0)
    if not asked.quick:
        print(page.write())
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())

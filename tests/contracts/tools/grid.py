"""Prints the grid: `python -m tests.contracts.tools.grid [NAME ...]`.

Every row, or those that are named: of an algorithm, a variant or a preset. A cell is
`pass`, a number that leads to the sentence of a refusal below the table, or `FAIL`.
"""

import contextlib
import io
import sys
import time
from collections.abc import Sequence

import pytest

FILE = "tests/contracts/tools/test_tools.py"
CELL = "test_a_cell_passes_or_is_refused"


class Recorder:
    """A plugin of pytest that keeps what became of every cell.

    Attributes:
        wanted: of rows; empty for all.
        cells: by row and tool, None for a pass, else a sentence.
        failed: what a failed cell says, by row and tool.
        names: of the rows, as they were tried.
    """

    def __init__(self, wanted: Sequence[str]) -> None:
        self.wanted = tuple(wanted)
        self.cells: dict[tuple[str, str], str | None] = {}
        self.failed: dict[tuple[str, str], str] = {}
        self.names: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Called by pytest when it has found the cells; leaves what is wanted."""
        if self.wanted:
            # The name of a test ends with `[row-tool]`.
            rows = [item.name.partition("[")[2].rpartition("-")[0] for item in items]
            items[:] = [
                item
                for item, row in zip(items, rows, strict=True)
                if row in self.wanted
            ]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest after every phase of a test."""
        place = dict(report.user_properties).get("place")
        if place is None or not (report.when == "call" or report.failed):
            return
        row, _ = place
        if row not in self.names:
            self.names.append(row)
            print(f"{row} ...", file=sys.stderr)
        if report.failed:
            words = report.longreprtext.splitlines() or [""]
            said = [line[1:].strip() for line in words if line.startswith("E ")]
            self.failed[place] = " ".join((said or words[-1:])[:3])
        else:
            self.cells[place] = dict(report.user_properties)["refused"]


def table(recorder: Recorder) -> str:
    """The grid in Markdown, with sentences of refusals and failures below it."""
    # Not before pytest has set up JAX: some rows have arrays.
    from tests.contracts.tools.cells import TOOLS

    sentences: list[str] = []

    def cell(row: str, tool: str) -> str:
        if (row, tool) in recorder.failed:
            return "FAIL"
        if (row, tool) not in recorder.cells:
            return "not tried"
        refused = recorder.cells[row, tool]
        if refused is None:
            return "pass"
        if refused not in sentences:
            sentences.append(refused)
        return f"refused ({sentences.index(refused) + 1})"

    lines = [
        "| | " + " | ".join(TOOLS) + " |",
        "|---" * (len(TOOLS) + 1) + "|",
        *(
            f"| {row} | " + " | ".join(cell(row, tool) for tool in TOOLS) + " |"
            for row in recorder.names
        ),
        "",
        *(f"{number}. {text}" for number, text in enumerate(sentences, 1)),
        *(f"FAIL {row}, {tool}: {s}" for (row, tool), s in recorder.failed.items()),
    ]
    return "\n".join(lines)


def main(names: Sequence[str]) -> int:
    """Try the rows, print the grid, return the exit status of pytest."""
    began, recorder = time.perf_counter(), Recorder(names)
    options = ["-n", "0", "-q", "-m", "slow or not slow", "-p", "no:cacheprovider"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = pytest.main([*options, f"{FILE}::{CELL}"], [recorder])
    if not recorder.names:
        print(printed.getvalue())
    print(table(recorder))
    count = len(recorder.cells) + len(recorder.failed)
    print(f"\n{count} cells in {time.perf_counter() - began:.0f} s")
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

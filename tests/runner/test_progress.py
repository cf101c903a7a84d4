"""What a run says of its progress, where no terminal shows a bar."""

import io
import math

from rich.console import Console

from purerl.runner.progress import Reporter


def test_lines_say_the_mean_return_or_that_no_episode_has_ended():
    out = io.StringIO()
    with Reporter(1000, console=Console(file=out)) as reporter:
        reporter.update(100, math.nan)
        reporter.update(150, 3.0)  # It is not yet time for a line.
        reporter.update(200, 1.5)
        reporter.update(1000, 212.25)
    first, second, last = out.getvalue().splitlines()
    assert first.startswith(" 10%") and "  no episode ended  " in first
    assert second.startswith(" 20%") and "  return 1.50  " in second
    assert last.startswith("100%") and "  return 212.2  " in last
    assert "nan" not in out.getvalue()

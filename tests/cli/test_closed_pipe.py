"""A reader that goes away, as `| head` does, ends a command without a traceback."""

import os
import subprocess
import sys

import pytest

from purerl.cli import CLOSED_PIPE


@pytest.mark.parametrize("arguments", [["--help"], ["envs"]])
def test_a_pipe_without_a_reader_ends_the_command_in_silence(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "purerl", *arguments]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    # Rich, which writes tables, ends the process itself, with a 1.
    assert ended.returncode in (CLOSED_PIPE, 1)
    assert ended.stderr == ""

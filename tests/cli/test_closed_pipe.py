"""A reader that goes away, as `| head` does, ends a command without a traceback."""

import io
import os
import subprocess
import sys

import pytest

from purerl.cli import CLOSED_PIPE, main


@pytest.mark.parametrize("arguments", [["--help"], ["envs"]])
def test_a_pipe_without_a_reader_ends_the_command_in_silence(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "purerl", *arguments]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert ended.returncode == CLOSED_PIPE
    assert ended.stderr == ""


def test_a_command_without_an_output_ends_well(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["envs"]) == 0


def test_what_the_encoding_lacks_is_printed_as_a_question_mark(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["--version"]) == 0
    print("\N{SNOWMAN}", flush=True)
    assert stream.buffer.getvalue().decode().endswith("\n?\n")

"""SIGTERM and SIGHUP do what Ctrl-C does, and only where nobody else acts."""

import contextlib
import os
import signal
import threading
import time

import pytest

import purerl
from purerl.cli import main
from purerl.runner import interrupt
from purerl.runner.interrupt import Interrupt
from tests.helpers import tiny_table

from .conftest import SEGMENT, assert_same_bits, outcome, run_tiny
from .told import Acts

ENDING = [signal.SIGTERM, signal.SIGHUP]


def send(number):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", ENDING)
def test_a_run_saves_says_so_and_goes_on(number, tmp_path, capsys):
    out, table = tmp_path / "run", tiny_table()
    twice = Acts(SEGMENT, lambda _: (send(number), send(number)))
    stopped = run_tiny(table, out=out, trackers=[twice])
    assert not stopped.finished and purerl.load_run(out).update == SEGMENT
    assert "and saved it" in capsys.readouterr().err.replace("\n", " ")
    resumed = run_tiny(table, out=out, resume=True)
    assert_same_bits(outcome(resumed), outcome(run_tiny(table)))


@pytest.mark.parametrize(
    "second", [signal.SIGINT, pytest.param(signal.SIGTERM, id="later")]
)
def test_the_second_signal_ends_at_once(second, monkeypatch):
    with pytest.raises(KeyboardInterrupt), Interrupt() as stop:
        send(signal.SIGTERM)
        send(signal.SIGTERM)  # As srun forwards it: the same wish.
        assert stop.asked and not stop.insisted
        monkeypatch.setattr(interrupt, "REPEAT_SECONDS", 0.0)
        send(second)
    assert stop.insisted


def test_a_tracker_that_asked_before_is_no_first_signal_of_a_scheduler():
    with Interrupt(lambda: True) as stop:
        send(signal.SIGTERM)
    assert not stop.insisted


@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *args: heard.append(1)])
def test_handlers_of_others_stay(number, handler):
    heard.clear()
    signal.signal(number, handler)
    with Interrupt() as stop:
        send(number)
        assert not stop.asked
    assert signal.getsignal(number) is handler
    assert heard == [1] * callable(handler)
    signal.signal(number, signal.SIG_DFL)


heard: list = []


def test_another_thread_sets_no_handlers():
    found = []

    def work():
        with Interrupt():
            found.extend(map(signal.getsignal, [signal.SIGINT, *ENDING]))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler, signal.SIG_DFL, signal.SIG_DFL]


@pytest.mark.filterwarnings("ignore")  # of JAX, about any fork
def test_a_forked_child_ends():
    with Interrupt() as stop:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:  # pragma: no cover
            os.write(writer, b"x")
            time.sleep(60)
            os._exit(0)
        os.read(reader, 1)  # Python forgets what a child is sent before it runs.
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        assert not stop.asked


@pytest.mark.parametrize("number", [signal.SIGINT, *ENDING])
def test_the_status_of_a_command_names_the_signal(number, monkeypatch, capsys):
    from purerl.cli import train

    def stopped(argv):
        with Interrupt():
            send(number)
        return 130  # as commands do whose result has not finished

    def cut(argv):
        send(number)

    def turned_into_another_error(argv):
        try:
            send(number)
        except KeyboardInterrupt:
            raise ValueError("Invalid affine transformation matrix") from None

    for call in (stopped, cut, turned_into_another_error):
        monkeypatch.setattr(train, "main_train", call)
        assert main(["train"]) == 128 + number
    assert "stopped (ValueError('Invalid affine" in capsys.readouterr().err

    def failed_after_an_answer(argv):
        with contextlib.suppress(KeyboardInterrupt):
            send(number)
        interrupt.answer()
        raise ValueError("of its own")

    monkeypatch.setattr(train, "main_train", failed_after_an_answer)
    with pytest.raises(ValueError, match="of its own"):
        main(["train"])
    monkeypatch.setattr(train, "main_train", lambda argv: 130)
    assert main(["train"]) == 130


@pytest.mark.parametrize("number", [signal.SIGINT, *ENDING])
def test_a_signal_comes_again_where_its_exception_was_swallowed(number):
    class Finalised:
        def __del__(self):
            send(number)

    with pytest.raises(KeyboardInterrupt), interrupt.commanded() as status:
        Finalised()
        time.sleep(10)
    assert status() == 128 + number

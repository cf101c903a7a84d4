"""What asks to stop, a tracker or a signal, ends every tool with what was trained."""

import os
import signal
import time
from functools import partial

import pytest

import purerl
from tests.helpers import slow_but, tiny_config

# All tools train by one program.
CONFIG = tiny_config(num_evaluations=1)  # twenty updates
PIECES = {"lanes": 1, "segment_updates": 5}
RATES = [1e-3, 2e-3, 3e-3, 4e-3]
RATE = {"learning_rate": purerl.loguniform(1e-4, 1e-2)}


class Listens(purerl.Tracker):
    """Keeps how it was closed."""

    background, status = False, None

    def begin(self, run):
        self.stop = False

    def log(self, member, step, row):
        pass

    def close(self, status="finished"):
        self.status = status


class StopAtOnce(Listens):
    """Asks to stop when it is told the first row."""

    def log(self, member, step, row):
        self.stop = True


class SignalAtOnce(StopAtOnce):
    """Sends the process a signal, twice as a closed terminal does."""

    def __init__(self, number):
        self.number = number

    def log(self, member, step, row):
        if self.stop is False:
            self.stop = None
            os.kill(os.getpid(), self.number)
            os.kill(os.getpid(), self.number)
            time.sleep(0.5)  # The main thread hears it, where this is another one.


def sweep(**options):
    axes = {"learning_rate": RATES}
    result = purerl.sweep(CONFIG, axes, seeds=1, **PIECES, **options)
    return result.finished, result.summary["trained_members"], len(RATES)


def pbt(**options):
    sizes = {"population": 2, "ready_updates": 5, **PIECES}
    result = purerl.pbt(CONFIG, RATE, **sizes, **options)
    return result.finished, result.summary["trained_requests"], 4


def halving(**options):
    sizes = {"num_points": 4, "brackets": "one", "eta": 2, "min_updates": 5}
    result = purerl.halving(CONFIG, RATE, **sizes, **PIECES, **options)
    return result.finished, result.summary["trained_requests"], 4  # of 5 updates each


def evolve(**options):
    sizes = {"population": 2, "generations": 3, "fitness": "evaluation", **PIECES}
    result = purerl.evolve(CONFIG, "learning_rate", **sizes, **options)
    return result.finished, result.summary["generations_run"], 3


def tune(**options):
    sizes = {"trials": 3, "batch": 1, "seeds": 1, "holdout_seeds": 0}
    sizes |= {"lanes": 1, "reports": 4}  # of 5 updates each
    result = purerl.tune(CONFIG, RATE, **sizes, **options)
    return result.finished, result.summary["trained_trials"], 3


STOPS = {
    "tracker": StopAtOnce,
    "SIGTERM": partial(SignalAtOnce, signal.SIGTERM),
    "SIGHUP": partial(SignalAtOnce, signal.SIGHUP),
}


@pytest.mark.parametrize("stop", slow_but(STOPS, "tracker", "SIGTERM"))
@pytest.mark.parametrize("tool", [sweep, pbt, halving, evolve, tune])
def test_a_tool_that_is_stopped_goes_on_in_the_same_call(tool, stop, tmp_path, capsys):
    call = partial(tool, out=tmp_path, progress=False)
    stopping, listening = STOPS[stop](), Listens()
    finished, before, total = call(trackers=[stopping])
    assert not finished and 1 <= before < total  # Two devices train two chunks at once.
    assert stopping.status == "interrupted"
    said = capsys.readouterr().err
    assert "stopped" in said or tool is tune  # Of a study the command says so.
    finished, after, total = call(trackers=[listening])
    assert finished and after == total - before
    assert listening.status == "finished"


def test_a_search_without_a_folder_says_that_nothing_was_saved(capsys):
    finished, _, _ = pbt(trackers=[StopAtOnce()], progress=False)
    assert not finished and "nothing was saved" in capsys.readouterr().err


def test_a_comparison_that_a_tracker_stops_keeps_the_settings_that_ended(tmp_path):
    # Settings of two shapes, which are two programs.
    settings = {"default": {}, "longer": {"num_steps": 32}}
    told = []

    class Counts(StopAtOnce):
        def log(self, member, step, row):
            super().log(member, step, row)
            told.append(member)

    asked = {"seeds": 2, "out": tmp_path, "progress": False}
    compare = partial(purerl.compare, CONFIG, settings, **asked)

    with pytest.raises(KeyboardInterrupt):
        compare(trackers=[Counts()])
    assert set(told) == {0}
    told.clear()
    with pytest.raises(KeyboardInterrupt):
        # It is told what had ended, and stops before the rest.
        compare(trackers=[Counts()])
    assert compare().settings == tuple(settings)

"""A tracker that asks to stop ends every tool as Ctrl-C does, with what was trained."""

import pytest

import purerl
from tests.helpers import tiny_config

RATES = [1e-3, 2e-3, 3e-3, 4e-3]
RATE = {"learning_rate": purerl.loguniform(1e-4, 1e-2)}


class StopAtOnce(purerl.Tracker):
    """Asks to stop when it is told the first row."""

    background = False

    def begin(self, run):
        self.stop = False

    def log(self, kind, seed, row):
        self.stop = True


def sweep(out, trackers):
    axes = {"learning_rate": RATES}
    options = {"seeds": 1, "lanes": 1, "chunk_blocks": 1, "progress": False}
    result = purerl.sweep(tiny_config(), axes, out=out, trackers=trackers, **options)
    return result.finished, result.summary["trained_members"], len(RATES)


def pbt(out, trackers):
    result = purerl.pbt(
        tiny_config(),
        RATE,
        population=2,
        num_rounds=3,
        out=out,
        trackers=trackers,
        progress=False,
    )
    return result.finished, result.summary["trained_requests"], 3


def evolve(out, trackers):
    result = purerl.evolve(
        tiny_config(),
        "gamma",
        population=2,
        generations=3,
        out=out,
        trackers=trackers,
        progress=False,
    )
    return result.finished, result.summary["generations_run"], 3


def tune(out, trackers):
    result = purerl.tune(
        tiny_config(),
        RATE,
        trials=3,
        batch=1,
        seeds=1,
        holdout_seeds=0,
        out=out,
        trackers=trackers,
        progress=False,
    )
    return result.finished, result.summary["trained_trials"], 3


@pytest.mark.parametrize("tool", [sweep, pbt, evolve, tune])
def test_a_tool_that_a_tracker_stops_goes_on_in_the_same_call(tool, tmp_path, capsys):
    finished, before, total = tool(tmp_path, [StopAtOnce()])
    assert not finished and 1 <= before < total  # Two devices train two chunks at once.
    said = capsys.readouterr().err
    assert "stopped" in said or tool is tune  # Of a study the command says so.
    finished, after, total = tool(tmp_path, [])
    assert finished and after == total - before


def test_a_comparison_that_a_tracker_stops_keeps_the_settings_that_ended(tmp_path):
    # Settings of two shapes, which are two programs.
    settings = {"default": {}, "longer": {"num_steps": 32}}
    told = []

    class Counts(StopAtOnce):
        def log(self, kind, seed, row):
            super().log(kind, seed, row)
            told.append(seed)

    def compare(trackers):
        return purerl.compare(
            tiny_config(),
            settings,
            seeds=2,
            out=tmp_path,
            trackers=trackers,
            progress=False,
        )

    with pytest.raises(KeyboardInterrupt):
        compare([Counts()])
    assert set(told) == {0}
    told.clear()
    with pytest.raises(KeyboardInterrupt):
        compare([Counts()])  # It is told what had ended, and stops before the rest.
    assert compare([]).settings == tuple(settings)

"""Trackers in threads of their own: training does not wait, and nothing is lost."""

import signal
import threading

import pytest

import purerl
from purerl.config import ConfigError
from purerl.runner.trackers import group as writer_group
from purerl.runner.trackers.group import load_stored

from .conftest import NUM_UPDATES, SEGMENT, run_tiny
from .told import Acts, Keeps, group, tell, whole

UPDATES = [*range(SEGMENT, NUM_UPDATES, SEGMENT), NUM_UPDATES]


class Blocked(purerl.Tracker):
    """Does not answer in `log` until training has ended."""

    name = "blocked"

    def __init__(self, is_trained):
        self.is_trained, self.waited, self.updates = is_trained, [], []
        self.threads = set()

    def log(self, member, step, row):
        self.threads.add(threading.current_thread())
        self.waited.append(self.is_trained.wait(10.0))
        if row["kind"] == "train":
            self.updates.append(row["update"])


def test_training_does_not_wait_for_a_tracker_that_does_not_answer(tiny):
    is_trained = threading.Event()
    blocked = Blocked(is_trained)
    assert run_tiny(
        tiny, trackers=[blocked, Acts(NUM_UPDATES, lambda _: is_trained.set())]
    ).finished
    assert all(blocked.waited) and blocked.updates == UPDATES
    assert threading.main_thread() not in blocked.threads


class Hangs(Keeps):
    """Does not come back from the third row until it is let go."""

    def __init__(self):
        super().__init__()
        self.hangs, self.may_go = threading.Event(), threading.Event()

    def log(self, member, step, row):
        super().log(member, step, row)
        if len(self.told) == 3:
            self.hangs.set()
            self.may_go.wait(10.0)


def test_a_tracker_that_fails_in_the_middle_is_told_the_rest_later(tmp_path):
    first, second = Keeps(most=4), Keeps()
    failed, missing = whole(first, updates=range(1, 11), folder=tmp_path)
    assert "tracker 'keeps' failed (OSError: the server has stopped)" in failed
    assert "lacks 6 of 10 updates" in missing
    assert f"purerl.track('{tmp_path}', [Keeps(...)])" in missing
    assert whole(second, updates=range(1, 11), folder=tmp_path) == []
    assert first.updates == [1, 2, 3, 4] and second.updates == [5, 6, 7, 8, 9, 10]
    assert second.status == "finished"


def test_the_end_waits_for_a_while_and_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_group, "END_SECONDS", 0.3)
    monkeypatch.setattr(writer_group, "QUIET_SECONDS", 0.1)
    hangs = Hangs()
    waiting, missing = whole(hangs, updates=range(1, 11), folder=tmp_path)
    assert waiting.startswith("waiting for tracker 'keeps', 0.3 s for an answer")
    assert "lacks 8 of 10 updates" in missing  # the third is on its way
    assert load_stored(tmp_path)["keeps"]["told"] == [[0, 1]]
    hangs.may_go.set()
    (thread,) = [t for t in threading.enumerate() if t.name == "tracker keeps"]
    thread.join(10.0)
    assert thread.daemon and not thread.is_alive()
    assert hangs.updates == [1, 2, 3]  # it was told no more after it was given up
    assert load_stored(tmp_path)["keeps"]["told"] == [[0, 1]]


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt, "interrupted"), (ValueError, "failed")]
)
def test_what_waits_is_written_when_training_fails(error, status):
    slow = Keeps()
    trackers, said = group(slow)
    with pytest.raises(error), trackers:
        tell(trackers, range(1, 11))
        raise error
    assert slow.updates == [*range(1, 11)] and slow.status == status and not said


def test_ctrl_c_in_training_leaves_no_row_behind(tiny, tmp_path):
    def stop(tracker):
        signal.raise_signal(signal.SIGINT)
        is_stopped.set()

    is_stopped = threading.Event()
    behind = Blocked(is_stopped)  # has written nothing when training is stopped
    result = run_tiny(
        tiny, out=tmp_path / "run", trackers=[behind, Acts(2 * SEGMENT, stop)]
    )
    assert not result.finished
    assert all(behind.waited) and behind.updates == [SEGMENT, 2 * SEGMENT]


def test_a_tracker_that_does_not_begin_stops_a_new_run(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_group, "BEGIN_SECONDS", 0.2)
    may_go = threading.Event()

    class Silent(Keeps):
        def begin(self, run):
            may_go.wait(10.0)

    one = Keeps()
    with pytest.raises(ConfigError, match=r"cannot begin \(TimeoutError: no answer"):
        group(one, Silent(), folder=tmp_path)
    may_go.set()
    assert one.status == "failed"  # it had begun
    assert not (tmp_path / "trackers.json").exists()


def test_a_tracker_that_asks_for_it_is_called_between_two_segments():
    class Here(Keeps):
        background = False

    here = Here()
    trackers, _ = group(here)
    for update in range(1, 4):
        tell(trackers, [update])
        assert here.updates[-1] == update  # without any wait


def test_a_tracker_of_another_place_begins_anew(tmp_path):
    class Placed(Keeps):
        def __init__(self, place):
            super().__init__()
            self.place = place

        @property
        def options(self):
            return {"place": self.place}

    one, same, other = Placed((1, 2)), Placed((1, 2)), Placed((3, 4))
    for tracker in (one, same, other):
        whole(tracker, updates=range(1, 4), folder=tmp_path)
    assert one.updates == other.updates == [1, 2, 3] and same.updates == []

"""Trackers in threads of their own: training does not wait, and nothing is lost."""

import threading

import purerl

from .conftest import NUM_UPDATES, SEGMENT, run_tiny

UPDATES = [*range(SEGMENT, NUM_UPDATES, SEGMENT), NUM_UPDATES]


class Blocked(purerl.Tracker):
    """Does not answer in `log` until training has ended."""

    name = "blocked"

    def __init__(self, is_trained):
        self.is_trained, self.waited, self.updates = is_trained, [], []
        self.threads = set()

    def log(self, kind, seed, row):
        self.threads.add(threading.current_thread())
        self.waited.append(self.is_trained.wait(10.0))
        if kind == "train":
            self.updates.append(row["update"])


class Watch(purerl.Tracker):
    """Says when the rows of the last segment have been logged."""

    name, background = "watch", False

    def __init__(self, event):
        self.event = event

    def log(self, kind, seed, row):
        if kind == "train" and row["update"] == NUM_UPDATES:
            self.event.set()


def test_training_does_not_wait_for_a_tracker_that_does_not_answer(tiny):
    is_trained = threading.Event()
    blocked = Blocked(is_trained)
    assert run_tiny(tiny, trackers=[blocked, Watch(is_trained)]).finished
    assert all(blocked.waited) and blocked.updates == UPDATES
    assert threading.main_thread() not in blocked.threads

"""What every call of a tool has beside its training.

It holds the folder, tells trackers, shows progress, listens for whoever asks to stop,
and saves checkpoints now and then:

    with Session(asked) as session:
        ...  # open the folder, and read what has been trained
        session.begin(told)
        with session.interrupt, session.reporter:
            while not session.is_stopped:
                ...  # train, tell `session.trackers`, move `session.reporter`
                session.save(number, write, force=False)
        session.close(is_finished, files)
"""

import contextlib
from collections.abc import Callable
from errno import EDQUOT, ENOSPC
from typing import Any, Self

from purerl.execution.format import quoted
from purerl.runner.interrupt import Interrupt
from purerl.runner.options import Options
from purerl.runner.trackers import Tracker, choose
from purerl.runner.trackers.group import Files, Group, Told, no_files
from purerl.scale import hosts
from purerl.storage import folders
from purerl.storage.checkpoint import NotSavedError, Pace, lacking_room
from purerl.storage.files import locked


class Session:
    """One call of a tool: folder, trackers, progress, the wish to stop, checkpoints.

    As a context it locks the folder; where the call fails it closes the trackers, and
    takes back a folder without results. Of several processes (`jax.distributed`) the
    first one locks the folder, shows progress, and tells trackers of all.

    Args:
        asked: The options of the tool.
        shared: Whether several calls may train into the folder at a time.

    Attributes:
        trackers: The trackers of the call.
        reporter: The progress; see `expect`.
        interrupt: The signals that ask to stop, while it is entered.
        saved_at: Number of the last checkpoint.
    """

    def __init__(self, asked: Options, shared: bool = False) -> None:
        # Imported here so that only callers that train pay for importing rich.
        from purerl.runner.progress import Reporter

        is_first = hosts.index() == 0
        self._asked, self._shared = asked, shared
        self._locked = asked.folder if is_first else None
        self._stack = contextlib.ExitStack()

        def chosen() -> list[Tracker]:
            return choose(asked.trackers, asked.folder) if is_first else []

        self.trackers = Group(hosts.run_on_all(chosen))
        self.reporter = Reporter(1, enabled=asked.progress and is_first)
        self.interrupt = Interrupt(lambda: self.trackers.stop)
        self.saved_at = self._tried = 0
        self._is_disk_full = False
        self._pace = Pace(getattr(asked, "checkpoint_seconds", 0.0))

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            lock = locked(self._locked, self._shared)
            hosts.run_on_all(lambda: stack.enter_context(lock))
            # Every process: their folders may be several.
            stack.enter_context(folders.undone_if_empty(self._asked.folder))
            stack.enter_context(self.trackers)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        if isinstance(error[1], OSError) and error[1].errno in (ENOSPC, EDQUOT):
            error[1].add_note(
                f"purerl: the disk of {self._asked.folder or '.'} is full. What was "
                "written is whole. Make room on the disk, and go on from the folder."
            )
        self._stack.__exit__(*error)

    @property
    def is_stopped(self) -> bool:
        """True if a signal or a tracker has asked to stop."""
        return self.interrupt.asked

    def expect(self, total_steps: int, done_steps: int = 0) -> None:
        """Say how many environment steps there are, and how many were done before."""
        self.reporter.total = max(1, total_steps)
        self.reporter.start_steps = done_steps

    def compare_versions(self, stored: dict[str, Any]) -> None:
        """Say where a manifest is of other versions, or of another device."""
        note = folders.differences_of_versions(stored)
        if note and hosts.index() == 0:
            self.reporter.notify(note)

    def begin(self, make: Callable[[], Told]) -> None:
        """Open the trackers, and tell them what has been trained before.

        They say where to look at what they write.

        Args:
            make: Makes what they are told.
        """
        if self.trackers:
            told, notify = make(), self.reporter.notify
            self.trackers.begin(told.run, notify, told.total, told.members)
            told.tell(self.trackers)

    def is_due(self, number: int) -> bool:
        """Return whether it is time for a checkpoint, which has not been tried yet."""
        is_new = self._locked is not None and number not in (self.saved_at, self._tried)
        return is_new and self._pace.is_due()

    def check_room(self, num_bytes: int) -> None:
        """Say before the training where the disk has no room for a checkpoint.

        Args:
            num_bytes: Bytes of the checkpoint's arrays.
        """
        if self._locked is None:
            return
        lacking = lacking_room(self._locked, num_bytes)
        if lacking:
            self.reporter.notify(
                f"a checkpoint could not be written to {self._locked} now ({lacking}). "
                "Make room on the disk while it trains, or nothing is saved."
            )
        self._is_disk_full = bool(lacking)

    def save(self, number: int, write: Callable[[], None], force: bool) -> None:
        """Write a checkpoint now and then: what comes after it is trained again.

        Args:
            number: What names it, such as the number of finished updates.
            write: Writes it.
            force: Whether it is due in any case, as the last one of the call.

        Raises:
            NotSavedError: the last one cannot be written; of others a sentence says so.
        """
        is_new = self._locked is not None and number != self.saved_at
        if not is_new or not (force or self.is_due(number)):
            return
        self._tried = number
        try:
            with self._pace.saving():
                write()
            self.saved_at, self._is_disk_full = number, False
        except NotSavedError as error:
            if force:
                raise
            if not self._is_disk_full:  # said once, until there is room again
                self.reporter.notify(f"{error} Training goes on without it.")
            self._is_disk_full = True

    def say_stopped(self, when: str = "") -> None:
        """Say that the call was stopped, perhaps when, and how to go on."""
        folder, how = self._asked.folder, "nothing was saved (no out folder)"
        if folder is not None:
            how = (
                f"what was done is in {folder}. The same call with out={str(folder)!r},"
                f" or command with --out {quoted(folder)}, goes on."
            )
        self.reporter.notify(f"stopped{when}; {how}")

    def close(self, is_finished: bool, files: Files = no_files) -> None:
        """Wait for the trackers, and close them.

        Args:
            is_finished: Whether the whole is, and was not stopped before its end.
            files: Makes the files that they keep.
        """
        self.trackers.close("finished" if is_finished else "interrupted", files)

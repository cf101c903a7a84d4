"""TensorBoard: a log folder per seed, so that the curves of all seeds overlay.

<folder>/seed=0/     scalars of one seed, `env_steps` as their step
<folder>/            the config as text, figures

Written with tensorboardX, which needs no TensorFlow. A resumed run adds event files
to the same folders, and no row is in two of them. Where the rows of an earlier call no
longer hold, its files are deleted.

tensorboardX's `SummaryWriter` is not used. Its `flush` leaves rows behind that still
wait for its thread, and two of them that are opened within a second in one folder
write to one file, of which the second first deletes what the first has written. Each
keeps a file open, too, and a process may usually open 1,024.
"""

import os
import socket
import struct
import time
from pathlib import Path
from typing import Any

from purerl.execution.format import quoted
from purerl.runner.trackers.base import Row, TrackedRun, Tracker, flat_params, scalars


class EventFile:
    """An event file of its own name, open only while something is written to it.

    Args:
        folder: Folder of the file, made where it is missing.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # The name begins with the second and the host, and the files of a folder are
        # read in the order of their names.
        seconds, fraction = divmod(time.time_ns(), 10**9)
        name = f"{seconds}.{socket.gethostname()}.{fraction:09d}.{os.getpid()}"
        self._path = folder / f"events.out.tfevents.{name}"
        self._records: list[bytes] = []
        self._add(file_version="brain.Event:2")

    def add(self, summary: Any, step: int | None = None) -> None:
        """Keep a summary of tensorboardX; `flush` writes it."""
        self._add(summary=summary, step=step)

    def _add(self, **fields: Any) -> None:
        from tensorboardX.proto import event_pb2
        from tensorboardX.record_writer import masked_crc32c

        event = event_pb2.Event(wall_time=time.time(), **fields)  # type: ignore[attr-defined]  # Made when it is imported.
        message = event.SerializeToString()
        for part in (struct.pack("<Q", len(message)), message):
            self._records += [part, struct.pack("<I", masked_crc32c(part))]

    def flush(self, is_last: bool = False) -> None:
        """Write everything that was added; at the end, wait until it is on the disk."""
        # Taken first: what was perhaps written must not be written again.
        records, self._records = self._records, []
        if not (records or is_last):
            return
        with self._path.open("ab") as file:
            file.write(b"".join(records))
            if is_last:  # It takes milliseconds, which is too long for every row.
                file.flush()
                os.fsync(file.fileno())


class TensorBoardTracker(Tracker):
    """A tracker that writes the event files of TensorBoard.

    Args:
        folder: Folder of all runs; a run's files go to `<folder>/<name of the run>`,
            with a number behind it where another run has that.
            Not given: `tensorboard` in the run's own folder.
    """

    name = "tensorboard"

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(folder) if folder is not None else None
        self._files: dict[int | None, EventFile] = {}
        self._steps = 0

    @property
    def options(self) -> dict[str, Any]:
        """See `make_tracker`."""
        return {"folder": str(self.folder.resolve()) if self.folder else None}

    def begin(self, run: TrackedRun) -> None:
        """Make the run's folder."""
        self._run = run
        own = run.folder if self.folder is None else None
        if own is not None:
            self.root = own / "tensorboard"
        elif run.id is not None:  # Also where the run's folder has another name now.
            self.root = Path(run.id)
        else:
            self.root = (self.folder or Path("tensorboard")) / run.name
            if self.root.exists() and run.replaces != str(self.root.resolve()):
                # Another run of that name has it, such as one of which this is a copy.
                self.root = self.root.with_name(f"{run.name}-{time.time_ns():x}")
        self.root.mkdir(parents=True, exist_ok=True)
        self.id = str(self.root.resolve())
        # In the run's folder all are its own, wherever that was when they were begun.
        if run.replaces == self.id or (own and run.id is None):
            for path in self.root.rglob("*.tfevents.*"):
                path.unlink()
        if run.id is None:
            from tensorboardX.summary import text

            lines = [f"    {k}: {v}" for k, v in flat_params(run.config).items()]
            self._file(None).add(text("config", "\n".join(lines)))

    def log(self, member: int, step: int, row: Row) -> None:
        """Keep the scalars of one row, as one event; `flush` writes it."""
        from tensorboardX.proto import summary_pb2
        from tensorboardX.summary import scalar

        self._steps = step
        parts = [part for n, x in scalars(row) for part in scalar(n, x).value]
        if parts:
            self._file(member).add(summary_pb2.Summary(value=parts), step)  # type: ignore[attr-defined]  # As above.

    def flush(self) -> None:
        """Write the files that were added to."""
        for file in self._files.values():
            file.flush()

    def end_member(self, member: int) -> None:
        """Write a member's last rows."""
        self._files.pop(member).flush(is_last=True)

    def artifact(self, path: Path, name: str) -> None:
        """Show a picture; other files lie in the run's folder already."""
        if path.suffix != ".png":
            return
        import matplotlib.image
        from tensorboardX.summary import image

        picture = matplotlib.image.imread(path)[..., :3]
        title = str(Path(name).with_suffix(""))
        self._file(None).add(image(title, picture, dataformats="HWC"), self._steps)

    def close(self, status: str = "finished") -> None:
        """Write what is left, and wait until it is on the disk."""
        del status
        for file in self._files.values():
            file.flush(is_last=True)
        self._files.clear()

    def where(self) -> str:
        """See `Tracker`."""
        return f"TensorBoard: tensorboard --logdir {quoted(self.root)}"

    def _file(self, seed: int | None) -> EventFile:
        if seed not in self._files:
            folder = self.root
            if seed is not None:
                folder = folder / self._run.members[seed].name.replace("/", "-")
            self._files[seed] = EventFile(folder)
        return self._files[seed]

"""Weights & Biases: a group per run, and in it one run per seed.

Offline unless it is told otherwise: no network, no account; `wandb sync` uploads it
later. `env_steps` is the axis of every chart, and W&B's own step too. A resumed run
opens the same run ids again; offline that is one more folder per seed, which `wandb
sync` joins.
"""

import itertools
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

from purerl.runner.trackers.base import Row, TrackedRun, Tracker, scalars

STATUS = {"finished": 0, "interrupted": 130, "failed": 1}


class WandbTracker(Tracker):
    """One W&B run per seed; all are open side by side.

    Args:
        folder: Folder in which W&B makes its folder `wandb`; the run's own where not
            given.
        project: Name of the project in W&B.
        mode: The mode of W&B, `offline` or `online`; not given: `WANDB_MODE`, else
            `offline`.
    """

    name = "wandb"

    def __init__(
        self,
        folder: str | Path | None = None,
        project: str = "purerl",
        mode: str | None = None,
    ) -> None:
        self.folder = Path(folder) if folder is not None else None
        self.project = project
        self.mode = mode or os.environ.get("WANDB_MODE") or "offline"
        self._runs: dict[int, Any] = {}

    @property
    def options(self) -> dict[str, Any]:
        """See `make_tracker`."""
        folder = str(self.folder.resolve()) if self.folder else None
        return {"folder": folder, "project": self.project, "mode": self.mode}

    def begin(self, run: TrackedRun) -> None:
        """Open the first member's run, so that a bad setting shows at once."""
        self._run = run
        self.root = (self.folder or run.folder or Path(".")).resolve()
        self.id = run.id or uuid.uuid4().hex[:12]
        self._first: int | None = None
        for first in itertools.islice(run.members, 1):
            self._open(first)

    def log(self, member: int, step: int, row: Row) -> None:
        """Send the numbers of one row."""
        values = {**dict(scalars(row)), self._run.axis: step}
        self._open(member).log(values, step=step)

    def end_member(self, member: int) -> None:
        """Close a member's run; the first one stays open for files."""
        if member != self._first and member in self._runs:
            self._runs.pop(member).finish(exit_code=0)

    def artifact(self, path: Path, name: str) -> None:
        """Send a picture as a chart, other things as files, of the first member's run.

        Files, not W&B artifacts: those are staged in the user's home folder, and an
        offline run would not be whole without it.
        """
        import wandb

        if self._first is None:
            return
        run = self._open(self._first)
        if path.suffix == ".png":
            title = str(Path(name).with_suffix(""))
            run.log({title: wandb.Image(str(path))})
            return
        target = Path(run.dir) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        run.save(str(target), base_path=run.dir, policy="now")

    def close(self, status: str = "finished") -> None:
        """Finish all runs."""
        for run in self._runs.values():
            run.finish(exit_code=STATUS[status])
        self._runs.clear()

    def where(self) -> str:
        """See `Tracker`."""
        if self.mode == "online":
            return f"Weights & Biases: project {self.project}, group {self._run.name}"
        return f"Weights & Biases: wandb sync {self.root}/wandb/offline-run-*"

    def _open(self, seed: int) -> Any:
        if seed in self._runs:
            return self._runs[seed]
        import wandb

        self._first = seed if self._first is None else self._first
        member = self._run.members[seed]
        self.root.mkdir(parents=True, exist_ok=True)
        run = wandb.init(
            project=self.project,
            dir=str(self.root),
            mode=self.mode,  # pyright: ignore[reportArgumentType]
            id=f"{self.id}-{seed}",
            resume="allow" if self._run.id else None,
            reinit="create_new",  # Many runs lie side by side in one process.
            group=self._run.name,
            job_type=self._run.kind or ("sweep" if self._run.is_sweep else "train"),
            name=f"{self._run.name} {member.name}",
            config={**self._run.config, **member.labels},
            settings=wandb.Settings(
                console="off",  # The terminal is the run's own.
                silent=True,
                x_disable_stats=True,
                disable_git=True,
                disable_code=True,
            ),
        )
        run.define_metric("*", step_metric=self._run.axis)
        self._runs[seed] = run
        return run

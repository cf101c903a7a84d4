"""The names of the trackers, where their classes are, and what each one needs.

Names only, so that nothing is imported before a tracker is made.
"""

from typing import NamedTuple


class Entry(NamedTuple):
    """Where a tracker's class is, and what it needs."""

    module: str
    cls: str
    packages: tuple[str, ...]
    options: tuple[str, ...]


TRACKERS = {
    "mlflow": Entry(
        "purerl.runner.trackers.mlflow",
        "MLflowTracker",
        ("mlflow", "sqlalchemy", "alembic"),
        ("uri", "experiment"),
    ),
    "tensorboard": Entry(
        "purerl.runner.trackers.tensorboard",
        "TensorBoardTracker",
        ("tensorboardX",),
        ("folder",),
    ),
    "wandb": Entry(
        "purerl.runner.trackers.wandb",
        "WandbTracker",
        ("wandb",),
        ("folder", "project", "mode"),
    ),
}

"""The names of the trackers, where their classes are, and what each one needs.

Names only, so that nothing is imported before a tracker is made.
"""

from typing import NamedTuple


class Entry(NamedTuple):
    """A tracker in the catalogue: the place of its class, and its needs.

    Attributes:
        module: The module of the class.
        cls: The name of the class.
        packages: Packages that the tracker needs.
        options: Names of the tracker's options.
    """

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

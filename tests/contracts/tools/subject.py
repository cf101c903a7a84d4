"""A row in the hands of the tools, and what all of them need.

All programs of a row are as wide and as long, and train one config wherever a tool
allows it: with `purerl.share_programs` most tools then need no compilation of their
own.
"""

from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

import purerl
from purerl import losses
from purerl.runner.result import RunResult
from purerl.train import bind
from purerl.types import Schedule, TrainResult
from tests.contracts.tools.rows import Row

SEEDS = LANES = DEVICES = 2
MEANS = ("episode_return", "episode_length")  # undefined where no episode ended
# Between programs of the same arithmetic that were compiled apart.
CLOSE = {"rtol": 1e-3, "atol": 1e-4}
SMALL: dict[str, Any] = {"lanes": LANES, "progress": False}


class Subject:
    """A row and its folder; what several tools look at is made once."""

    def __init__(self, row: Row, folder: Path) -> None:
        self.row, self.folder = row, folder
        self.config, self.length = row.config, row.length
        self.bound = bind(row.config)

    @property
    def axes(self) -> dict[str, Any]:
        """Numbers about the config's own."""
        name, rate = self.rate
        return {name: purerl.loguniform(rate / 2, rate * 2)}

    @property
    def rate(self) -> tuple[str, float]:
        """A number that searches vary: the step size, or the first of its schedule.

        Averages of all rewards have no step size: then it is how often they explore.
        """
        if self.config.extra_loss is not None:  # The coefficient of a term.
            return "extra_loss.near.coef", self.config.extra_loss["near"].coef
        if getattr(self.config, "step_size", "") == "sample_average":
            return "epsilon", float(self.config.epsilon)
        own = getattr(self.config, "actor_learning_rate", None)
        name = "learning_rate" if own is None else "actor_learning_rate"
        rate = getattr(self.config, name)
        if isinstance(rate, Schedule):
            return f"{name}.start", float(rate.start)
        return name, float(rate)

    @cached_property
    def vmapped(self) -> TrainResult:
        """The agents of seeds 0 and 1, in one call."""
        keys = jax.vmap(jax.random.key)(np.arange(SEEDS, dtype=np.uint32))
        return jax.jit(jax.vmap(purerl.make_train(self.config)))(keys)

    @cached_property
    def ran(self) -> RunResult:
        """The same agents by `purerl.run`."""
        return self.run()

    def run(self, **options: Any) -> RunResult:
        """As users call it, at this row's width and length."""
        options = {"seeds": SEEDS, "segment_updates": self.length, **SMALL, **options}
        return purerl.run(self.config, **options)

    @cached_property
    def other_losses(self) -> dict[str, Any]:
        """A loss with numbers for every loss that the config has."""
        known = {"value_loss": losses.HuberError(), "policy_loss": losses.DPODrift()}
        return {n: loss for n, loss in known.items() if hasattr(self.config, n)}

    @property
    def has_own_loss(self) -> bool:
        """Whether what is learned has a loss that no other can replace."""
        if hasattr(self.config, "values"):
            return self.config.values != "expected"
        return getattr(self.config, "num_atoms", 0) > 0

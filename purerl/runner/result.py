"""The result of a run: in memory, and read back from its folder."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import serialise
from purerl.config import ConfigError, TrainConfig
from purerl.runner import manifest
from purerl.runner.best import Best
from purerl.storage import checkpoint
from purerl.train import make_algorithm
from purerl.types import HostMetrics, PyTree


class RunResult(NamedTuple):
    """The result of `purerl.run`.

    Attributes:
        config: The config as validated.
        seeds: Seeds of the members, `[S]`.
        state: Final states on the host, leaves `[S, ...]`; None after an interrupt.
        metrics: Metrics by name, `[S, R]` each, a row per segment (see `segment_rows`).
        evaluation: Evaluations by name: `env_steps` `[S, K]`; `episode_return`,
            `episode_length` `[S, K, E]`.
        finished: Whether the run came to its end; False if it was interrupted.
        compile_seconds: Time of tracing and compiling, s.
        train_seconds: Time of everything after compilation, s.
        train_steps: Environment steps done in this call, over all members.
        out: The folder, if any.
    """

    config: TrainConfig
    seeds: tuple[int, ...]
    state: PyTree
    metrics: HostMetrics
    evaluation: HostMetrics
    finished: bool
    compile_seconds: float
    train_seconds: float
    train_steps: int
    out: Path | None

    def best(self) -> Best:
        """Return the best agent: its seed, the mean return of its last evaluation.

        Raises:
            ConfigError: no evaluation has been made, or none gave a number.
        """
        returns = self.evaluation.get("episode_return")
        scores = np.full(0, np.nan) if returns is None else returns[:, -1].mean(-1)
        if not np.isfinite(scores).any():
            raise ConfigError(
                "no agent of the run has an evaluation; set num_evaluations to 1 or "
                "more."
            )
        index = int(np.nanargmax(scores))
        return Best({"seed": self.seeds[index]}, float(scores[index]), self.config)


class SavedRun(NamedTuple):
    """A run read from its folder.

    Attributes:
        config: Config, from manifest.json.
        seeds: Seeds of the members, `[S]`.
        update: Number of finished updates of the checkpoint.
        state: States of all members on the host, leaves `[S, ...]`.
    """

    config: TrainConfig
    seeds: tuple[int, ...]
    update: int
    state: PyTree


def load_run(folder: str | Path, config: TrainConfig | None = None) -> SavedRun:
    """Read a run's config, seeds and last checkpoint.

    Args:
        folder: Folder of the run.
        config: Config in place of the stored one, where that names an environment
            object.

    Raises:
        ConfigError: no run there, no checkpoint, or a damaged one.
    """
    folder = Path(folder)
    stored = manifest.load_run(folder)
    config = config or manifest.read_config(folder, stored)
    update, flat = checkpoint.restore(folder / "checkpoints")
    shapes = jax.eval_shape(make_algorithm(config).init, jax.random.key(0))
    state = checkpoint.unflatten(flat, shapes, folder / "checkpoints" / str(update))
    return SavedRun(config, tuple(stored["seeds"]), update, state)


def summary(result: RunResult) -> dict[str, Any]:
    """Summarise a finished run, for people and for summary.json."""
    final = result.evaluation.get("episode_return")
    numbers: dict[str, Any] = {
        "agents": len(result.seeds),
        "env_steps": int(result.metrics["env_steps"][:, -1].sum()),
        "compile_seconds": round(result.compile_seconds, 2),
        "train_seconds": round(result.train_seconds, 2),
        "steps_per_second": round(result.train_steps / max(result.train_seconds, 1e-9)),
    }
    if final is not None:
        means = final[:, -1].mean(-1)
        # Not rounded: all returns of a task may lie between 0 and 1.
        numbers["evaluation_mean"] = float(means.mean())
        numbers["evaluation_min"] = float(means.min())
        numbers["evaluation_per_seed"] = [float(x) for x in means]
    return numbers


def write_summary(result: RunResult) -> None:
    """Write `summary.json` into the run's folder."""
    if result.out is not None:
        serialise.write_atomic(
            result.out / "summary.json", json.dumps(summary(result), indent=2)
        )

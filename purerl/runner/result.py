"""The result of a run: in memory, and read back from its folder."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from purerl.config import ConfigError, TrainConfig
from purerl.execution.format import format_count, with_noun
from purerl.metrics import decimals
from purerl.report import plots
from purerl.report.plots import Line, env_of, run_lines
from purerl.report.shown import Shown, View, stated
from purerl.report.statistics import mean_interval
from purerl.runner import manifest
from purerl.runner.arguments import seeds_named, stored_folder
from purerl.runner.rows import REMEDY, diverged_entry, diverged_words, read_diverged_at
from purerl.scale.host import agent_to_device
from purerl.storage import checkpoint, folders
from purerl.storage.files import jsonable
from purerl.train import bind, make_algorithm, make_policy
from purerl.types import HostMetrics, PyTree

if TYPE_CHECKING:
    import xarray as xr

# Names of the metrics of evaluations -> names of variables.
RENAMED = {"episode_return": "return", "episode_length": "length"}


class Best(NamedTuple):
    """The best of what was trained.

    Attributes:
        point: Values that tell it from the others, by name of the field.
        score: The score that it was judged by. The best of many is favoured by luck:
            judge it afresh, with `purerl.compare`, before you compare it with anything.
        config: The config that trains it.
    """

    point: dict[str, Any]
    score: float
    config: TrainConfig


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RunResult(Shown):
    """The result of `purerl.run`, or what its folder has of it.

    Attributes:
        config: The config as validated.
        seeds: Seeds of the members, `[S]`.
        update: Number of finished updates.
        state: States on the host after that update, leaves `[S, ...]`; None where the
            curves of a run were read without its agents (see `purerl.load`).
        diverged_at: The first update `[S]` with a number that is not finite, counted
            from 0, or -1.
        metrics: Metrics by name, `[S, R]` each, a row per segment;
            nothing where the agents alone were read (see `purerl.load_run`).
        evaluation: Evaluations by name: `env_steps` and `cut_episodes` `[S, K]`;
            `episode_return` and `episode_length` `[S, K, E]`.
        finished: Whether the run came to its end; False if it was stopped.
        compile_seconds: Time of tracing and compiling, s.
        train_seconds: Time of everything after compilation, s.
        train_steps: Environment steps done in this call, over all members.
        out: The folder, if any.
    """

    config: TrainConfig
    seeds: tuple[int, ...]
    update: int
    state: PyTree
    diverged_at: np.ndarray
    metrics: HostMetrics
    evaluation: HostMetrics
    finished: bool = False
    compile_seconds: float = 0.0
    train_seconds: float = 0.0
    train_steps: int = 0
    out: Path | None = None

    def _replace(self, **changes: Any) -> "RunResult":
        return dataclasses.replace(self, **changes)

    @property
    def divergence(self) -> str:
        """Words that say who diverged, and when; empty where nobody did."""
        return diverged_words(self.seeds, self.diverged_at)

    def scores(self) -> np.ndarray:
        """Return the mean return of each agent's last evaluation, `[S]`.

        NaN where an agent diverged, and where nothing was evaluated.
        """
        returns = self.evaluation.get("episode_return")
        if returns is None:
            return np.full(len(self.seeds), np.nan)
        return np.where(self.diverged_at < 0, returns[:, -1].mean(-1), np.nan)

    @cached_property
    def dataset(self) -> "xr.Dataset":
        """All metrics as labelled arrays, as those of a sweep without axes.

        Training metrics are `(seed, segment)`, `evaluation_return` and
        `evaluation_length` are `(seed, evaluation, episode)`.
        """
        import xarray as xr

        dims = {
            "": ("seed", "segment"),
            "evaluation_": ("seed", "evaluation", "episode"),
        }
        variables: dict[str, Any] = {"diverged_at": ("seed", self.diverged_at)}
        for start, rows in (("", self.metrics), ("evaluation_", self.evaluation)):
            for name, values in rows.items():
                if np.ndim(values) <= len(dims[start]):
                    name = start + (RENAMED.get(name, name) if start else name)
                    variables[name] = (dims[start][: np.ndim(values)], values)
        return xr.Dataset(variables, {"seed": list(self.seeds)})

    def lines(self, metric: str) -> dict[str, list[Line]]:
        """Return the agents' curves as a line of its environment; see `Shown`."""
        return run_lines(self, metric)

    def view(self) -> View:
        """Return what the run tells of itself."""
        kind = type(self.config).__name__.removesuffix("Config")
        agents = f"{with_noun(len(self.seeds), 'agent')} in {env_of(self)}"
        done = with_noun(self.update, "update")
        if self.metrics:
            steps = int(self.metrics["env_steps"][0, -1])
            done += f", {format_count(steps)} environment steps each"
        facts, scores = [stated(self.finished, done, self.out)], self.scores()
        if np.isfinite(scores).any():
            facts.append(f"last evaluation: {mean_return(scores)}")
        facts += [self.divergence] if self.divergence else []
        return View(
            f"{kind}, {agents}" if kind != "Train" else agents,
            facts,
            lambda ax=None: plots.learning_curve(self, ax),
            self._columns,
        )

    def _columns(self) -> dict[str, Any]:
        """Seed, last evaluation or, without any, training, and where it diverged."""
        columns: dict[str, Any] = {"seed": self.seeds}
        for name in RENAMED:
            rows = self.evaluation or self.metrics
            if name in rows:
                last = np.asarray(rows[name], float)[:, -1]
                last = last.mean(-1) if last.ndim > 1 else last
                columns[name] = np.where(self.diverged_at < 0, last, np.nan)
        return {**columns, "diverged_at": self.diverged_at}

    def best(self) -> Best:
        """Return the best agent: its seed, the mean return of its last evaluation.

        An agent that diverged is worse than any other.

        Raises:
            ConfigError: no evaluation has been made, none gave a number, or every agent
                diverged.
        """
        scores = self.scores()
        if not np.isfinite(scores).any():
            why = "set num_evaluations to 1 or more."
            if (self.diverged_at >= 0).all():
                why = f"{self.divergence}. {REMEDY}"
            elif self.config.num_evaluations and not self.finished:
                why = "none had been made when it stopped; resume it."
            raise ConfigError(f"no agent of the run has an evaluation: {why}")
        index = int(np.nanargmax(scores))
        return Best({"seed": self.seeds[index]}, float(scores[index]), self.config)

    def only(self, seeds: Sequence[int]) -> "RunResult":
        """Return the result of the agents of some seeds alone, in this order.

        Raises:
            ConfigError: no agent has one of the seeds, or the result has no states,
                because it was read from a folder.
        """
        if self.state is None:
            raise ConfigError(
                "this result was read from a folder without its states; "
                "purerl.load_run(folder) reads those of the last checkpoint."
            )
        for seed in seeds:
            if seed not in self.seeds:
                raise ConfigError(
                    f"seed must be one of the run's seeds, got {seed!r}; the run has "
                    f"{seeds_named(self.seeds)}."
                )
        if tuple(seeds) == self.seeds:
            return self
        members = np.array([self.seeds.index(seed) for seed in seeds])
        names = ("state", "diverged_at", "metrics", "evaluation")
        mine = {name: getattr(self, name) for name in names}
        picked = jax.tree.map(lambda x: x[members], mine)
        return self._replace(seeds=tuple(seeds), **picked)

    def policy(self, seed: int) -> Callable[..., Any]:
        """Return the trained policy of one agent (see `purerl.make_policy`).

        Args:
            seed: The agent's seed, one of `seeds`.

        Raises:
            ConfigError: as of `only`.
        """
        return make_policy(self.config, agent_to_device(self.only([seed]).state, 0))


def mean_return(scores: np.ndarray) -> str:
    """Return words for the mean of agents' scores `[S]`, with its interval or range.

    Scores that are not finite are in no mean; one at least is finite.
    """
    known = scores[np.isfinite(scores)]
    mean, found = known.mean(), mean_interval(known)
    digits = decimals(mean, found.low, found.high)
    low, high = (f"{end:,.{digits}f}" for end in (found.low, found.high))
    ends = f" ({found.words}: {low} to {high})" if len(known) > 1 else ""
    return f"mean return {mean:,.{digits}f}{ends}"


def load_run(folder: str | Path, config: TrainConfig | None = None) -> RunResult:
    """Read a run's config, seeds and the agents of its last checkpoint.

    Args:
        folder: Folder of the run.
        config: Config in place of the stored one, where that names an environment
            object.

    Raises:
        ConfigError: no run there, no checkpoint, or a damaged one.
    """
    folder = stored_folder(folder)
    stored = manifest.load_run(folder)
    config = config or manifest.read_config(folder, stored)
    update, flat = checkpoint.restore(folder / "checkpoints")
    bound = bind(config, on_host=True, trains=False)
    with folders.keys_of(stored):
        shapes = jax.eval_shape(make_algorithm(config).init, jax.random.key(0))
    state = checkpoint.unflatten(
        flat, shapes, checkpoint.path_of(folder / "checkpoints", update)
    )
    seeds = tuple(stored["seeds"])
    diverged_at = read_diverged_at(stored, seeds, update)
    finished = update == bound.plan.num_updates
    folders.say_what_is_cut(folder, finished)
    agents = config, seeds, update, state, diverged_at
    return RunResult(*agents, metrics={}, evaluation={}, finished=finished, out=folder)


def summary(result: RunResult) -> dict[str, Any]:
    """Summarise a finished run, for people and for summary.json.

    Agents that diverged are named with `diverged_at`, and are in no mean. A mean that
    is not finite is None.
    """
    final = result.evaluation.get("episode_return")
    numbers: dict[str, Any] = {
        "agents": len(result.seeds),
        "env_steps": int(result.metrics["env_steps"][:, -1].sum()),
        **_times(result),
        "diverged": diverged_entry(result.seeds, result.diverged_at),
    }
    if final is not None:
        is_lost = result.diverged_at >= 0
        means = final[:, -1].mean(-1)
        kept = means[~is_lost]
        # Not rounded: all returns of a task may lie between 0 and 1.
        numbers["evaluation_mean"] = jsonable(kept.mean()) if kept.size else None
        numbers["evaluation_per_seed"] = [
            None if lost else jsonable(x)
            for lost, x in zip(is_lost, means, strict=True)
        ]
    return numbers


def _times(result: RunResult) -> dict[str, Any]:
    """Seconds and speed; nothing of a call that found its run finished."""
    if not result.train_steps:
        return dict.fromkeys(("compile_seconds", "train_seconds", "steps_per_second"))
    return {
        "compile_seconds": round(result.compile_seconds, 2),
        "train_seconds": round(result.train_seconds, 2),
        "steps_per_second": round(result.train_steps / max(result.train_seconds, 1e-9)),
    }


def write_summary(result: RunResult) -> None:
    """Write `summary.json` into the run's folder."""
    if result.out is not None:
        call, facts = _times(result), summary(result)
        facts = {name: facts[name] for name in facts if name not in call}
        folders.write_summary(result.out, facts, call, result.train_steps > 0)

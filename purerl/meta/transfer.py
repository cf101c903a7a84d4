"""purerl.compare_losses: losses judged on held-out seeds and held-out environments.

Every loss trains in every environment with the same random keys, which no evolution
has seen (`purerl.meta.held_out`). Losses of one structure are one compiled program per
environment, vmapped over losses and seeds.
"""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from purerl import auto
from purerl.acting.environment import resolve_env
from purerl.config import ConfigError, TrainConfig
from purerl.execution.format import format_count, with_noun
from purerl.execution.memory import require_listing
from purerl.meta import contestants, held_out
from purerl.meta.comparison import LossComparison
from purerl.meta.contestants import Entry, Environments, Group, Losses
from purerl.meta.population import Stopped
from purerl.meta.setup import compile_runs
from purerl.report.comparison import WORDS
from purerl.runner.arguments import as_folder
from purerl.runner.interrupt import Interrupt
from purerl.runner.progress import Reporter
from purerl.runner.seeds import check_seeds, num_seeds
from purerl.scale import hosts
from purerl.scale.devices import Worker, check_count, default_lanes, make_workers
from purerl.storage import folders
from purerl.sweeps.plan import worker_limit
from purerl.train import bind

MEASURES = ("training_curve", "final_return")
DEFAULT_SEEDS = 64


class Options(NamedTuple):
    """How losses are trained.

    Attributes:
        measures: kinds of `purerl.meta.fitness`.
        seeds: numbers of the held-out seeds.
        seed: from whose key they come.
        lanes: W as asked for; None where it is chosen.
        segment_updates: K; None for the whole run.
        memory_limit: bytes that a worker may use.
    """

    measures: tuple[str, ...]
    seeds: tuple[int, ...]
    seed: int
    lanes: int | None
    segment_updates: int | None
    memory_limit: float


class Part(NamedTuple):
    """A group of losses in an environment: what one program trains.

    Attributes:
        environment: its name.
        group: of losses, of which nothing is known yet.
        files: where their scores are kept, one for each; empty without a folder.
    """

    environment: str
    group: Group
    files: tuple[Path, ...]


def compare_losses(
    config: TrainConfig,
    field: str,
    losses: Losses,
    environments: Environments = (),
    seeds: int | Sequence[int] = DEFAULT_SEEDS,
    out: str | Path | None = None,
    *,
    baseline: str | None = None,
    measures: Sequence[str] = MEASURES,
    seed: int = 0,
    lanes: int | None = None,
    segment_updates: int | None = None,
    memory_limit: str | float | None = None,
    devices: Any = None,
    progress: bool = True,
) -> LossComparison:
    """Train with every loss in every environment on held-out seeds, and compare.

    The keys come from a stream of their own: no evolution, whatever its seed, and no
    run of `purerl.run` has trained with them. All losses get the same keys, so that
    differences are taken seed by seed. A run that met a number that is not finite is
    counted, and is worth the worst score of its environment.

    With `out`, what has been trained is kept, loss by loss: the same call after a kill
    goes on, and one with another loss or environment trains only that.

    Args:
        config: to train with.
        field: of the config that losses are put into, `value_loss` or `policy_loss`.
        losses: by name: an object; the path of a saved loss; text such as
            `"HuberError(delta=2.0)"`; or changes of the config by name, as in
            `{"value_loss": purerl.losses.SquaredError(), "value_coef": 0.1}`.
        environments: names; changes of the config by name, as in
            `{"env": "Acrobot-v1", "total_timesteps": 200_000}`, with `name` to call
            them otherwise; or configs. The config's own where none are given.
        seeds: how many (0, 1, ...), or which numbers.
        out: folder to write; nothing is written without one.
        baseline: name of the loss that others are compared with; the first if not
            given.
        measures: of `purerl.meta.fitness`: `training_curve` (area under the training
            curve by its length), `final_return`, `evaluation`.
        seed: from whose key the held-out ones come.
        lanes: agents per block, part of what fixes the bits.
        segment_updates: updates of a compiled call, likewise; the whole run where not
            given.
        memory_limit: bytes for training, such as `"2GB"`.
        devices: local ones to use; all of the default backend where not given.
        progress: show it.

    Raises:
        ConfigError: a loss, field, environment or option that cannot be, before
            anything is trained.
        KeyboardInterrupt: somebody asked to stop; what was finished is in `out`.
    """
    if hosts.count() > 1:
        raise ConfigError(
            f"compare_losses works in one process, and this job has {hosts.count()}; "
            "call it in a program of its own."
        )
    require_listing(num_seeds(seeds), config.total_timesteps)
    entries = contestants.read_losses(config, field, losses)
    named = contestants.read_environments(config, environments)
    names = [entry.name for entry in entries]
    options = Options(
        _measures(measures),
        check_seeds(seeds),
        _seed(seed),
        lanes,
        segment_updates,
        worker_limit(memory_limit, workers := make_workers(devices)),
    )
    for name, number in (("lanes", lanes), ("segment_updates", segment_updates)):
        check_count(name, number)
    if baseline is not None and baseline not in names:
        raise ConfigError(
            f"baseline must be one of the losses ({', '.join(names)}), got "
            f"{baseline!r}."
        )
    folder = as_folder("out", out)
    if folder is not None:
        folders.make(folder, ("trained",))
    scores, parts = _plan(entries, named, options, folder)
    for part in parts:
        bind(part.group.config)  # Every mistake before the first training.
    reporter = Reporter(_steps(parts, options), enabled=progress)
    _train(parts, entries, options, workers, reporter, scores)
    result = LossComparison.of(
        field, entries, named, options.seeds, options.seed, baseline or names[0], scores
    )
    if folder is not None:
        result.save(folder)
    return result


def _measures(measures: Sequence[str]) -> tuple[str, ...]:
    found = (measures,) if isinstance(measures, str) else tuple(measures)
    if not found or len(set(found)) < len(found):
        raise ConfigError(
            f"measures must name each kind once and at least one, got {measures!r}; "
            f"for example {MEASURES}."
        )
    for kind in found:
        if kind not in WORDS:
            raise ConfigError(f"measures must be of {', '.join(WORDS)}, got {kind!r}.")
    return found


def _seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ConfigError(f"seed must be a whole number of 0 or more, got {seed!r}.")
    return seed


Known = dict[tuple[str, str], held_out.Scores]  # by environment and loss


def _plan(
    entries: Sequence[Entry],
    named: dict[str, TrainConfig],
    options: Options,
    folder: Path | None,
) -> tuple[Known, list[Part]]:
    """What is known from the folder, and what is to be trained."""
    known: Known = {}
    parts = []
    for environment, config in named.items():
        evaluations = 1 if "evaluation" in options.measures else 0
        inner = config.replace(num_evaluations=evaluations)
        missing, files = [], []
        for number, entry in enumerate(entries):
            path = None
            if folder is not None:
                name = _identity(inner.replace(**entry.changes), options)
                path = folder / "trained" / f"{name}.npz"
                stored = held_out.load(path)
                if stored is not None:
                    known[environment, entry.name] = stored
            if (environment, entry.name) not in known:
                missing.append(number)
            files.append(path)
        for group in contestants.make_groups(inner, [entries[n] for n in missing]):
            own = tuple(missing[n] for n in group.members)
            kept = tuple(files[n] for n in own if files[n] is not None)
            parts.append(Part(environment, group._replace(members=own), kept))
    return known, parts


def _identity(config: TrainConfig, options: Options) -> str:
    rest = {
        "measures": options.measures,
        "seeds": options.seeds,
        "seed": options.seed,
        "lanes": options.lanes,
        "segment_updates": options.segment_updates,
    }
    return held_out.identity(auto.resolve(config, resolve_env(config)), rest)


def _steps(parts: Sequence[Part], options: Options) -> int:
    plans = [bind(part.group.config).plan for part in parts]
    each = (
        len(part.group.members) * plan.num_updates * plan.steps_per_update
        for part, plan in zip(parts, plans, strict=True)
    )
    return max(1, sum(each) * len(options.seeds))


def _train(
    parts: Sequence[Part],
    entries: Sequence[Entry],
    options: Options,
    workers: Sequence[Worker],
    reporter: Reporter,
    scores: Known,
) -> None:
    """Train what is missing, and keep it."""
    if not parts:
        reporter.say("everything had been trained before")
        return
    done, began, lock = 0, time.perf_counter(), threading.Lock()

    def on_block(steps: int, mean: float) -> None:
        nonlocal done
        with lock:
            done += steps
            reporter.update(done, mean)

    reporter.say(
        f"{with_noun(len(entries), 'loss', 'losses')}, "
        f"{with_noun(len(options.seeds), 'held-out seed')}: "
        f"{with_noun(len(parts), 'program')}, {format_count(reporter.total)} steps"
    )
    with Interrupt() as interrupt, reporter:

        def is_stopped() -> bool:
            return interrupt.asked

        for part in parts:
            names = [entries[n].name for n in part.group.members]
            try:
                found = _train_part(part, options, workers, on_block, is_stopped)
            except Stopped:
                raise KeyboardInterrupt from None
            for name, one in zip(names, found, strict=True):
                scores[part.environment, name] = one
            for path, one in zip(part.files, found, strict=False):
                held_out.save(path, one)
    seconds = time.perf_counter() - began
    reporter.say(f"trained in {seconds:.1f} s ({format_count(done / seconds)} steps/s)")


def _train_part(
    part: Part,
    options: Options,
    workers: Sequence[Worker],
    on_block: held_out.OnBlock,
    is_stopped: Callable[[], bool],
) -> list[held_out.Scores]:
    """Scores of a group, in the order of its members."""
    keys = held_out.held_out_keys(options.seed, options.seeds)
    # By the seeds alone, so that the bits do not depend on which losses there are.
    lanes = options.lanes or default_lanes(len(options.seeds), workers)
    program = compile_runs(
        bind(part.group.config),
        keys,
        part.group.overrides,
        lanes,
        options.segment_updates,
        workers,
        options.memory_limit,
        options.lanes is not None,
    )
    return held_out.train(
        program,
        keys,
        part.group.overrides,
        len(part.group.members),
        options.measures,
        workers,
        on_block,
        is_stopped,
    )

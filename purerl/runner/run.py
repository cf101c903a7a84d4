"""purerl.run: one agent per seed, trained segment by segment.

Segments of updates run on the devices; between them the host writes metrics, shows
progress, saves checkpoints, and listens for Ctrl-C and trackers that stop the run. It
begins with fresh agents, or with the networks of another run's (`Start`).
"""

import dataclasses
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import jax
import numpy as np

from purerl import serialise
from purerl.config import ConfigError, TrainConfig
from purerl.execution.cohort import Cohort, make_cohort
from purerl.execution.format import format_count, with_noun
from purerl.execution.memory import fitting_lanes, require_listing
from purerl.execution.programs import (
    SEGMENTS,
    current_cache,
    every,
    segment_length,
)
from purerl.report import plots
from purerl.runner import manifest
from purerl.runner.arguments import (
    as_folder,
    as_switch,
    check_seeds,
    num_seeds,
    seeds_named,
    split_seed,
)
from purerl.runner.options import Option, Saved, option, seeds_option, tool
from purerl.runner.result import RunResult, write_summary
from purerl.runner.rows import Records, stack_rows
from purerl.runner.session import Session
from purerl.runner.trackers.base import describe
from purerl.runner.trackers.group import Notify, Told
from purerl.scale import hosts
from purerl.scale.devices import default_lanes, make_workers, required
from purerl.storage import checkpoint, folders
from purerl.train import Bound, bind, make_segment
from purerl.types import HostMetrics, PyTree
from purerl.warm_start import (
    check_finite,
    check_networks,
    check_scale,
    choose,
    put_networks,
    taken_by,
)

if TYPE_CHECKING:
    from purerl.execution.hosted import HostedCohort

NETWORKS = "networks"
_BY_FOLDER = "--from-parts {part}, or purerl.Start(folder, '{part}')"
# One step of a path, as checkpoints name arrays: `['key']`, `.field` or `[0]`.
_STEP = re.compile(r"\['([^']*)'\]|\.(\w+)|\[(\d+)\]")


class Start(NamedTuple):
    """The agents that a run begins with.

    Attributes:
        folder: The folder of the run whose agents are taken.
        parts: `networks`, or names of parts of them with commas, such as
            `actor.torso`.
        seed: The seed of the one agent that all begin with; None gives each seed the
            agent of the same seed.
    """

    folder: str | Path
    parts: str = NETWORKS
    seed: int | None = None


class Begun(NamedTuple):
    """A start that was read, and fits.

    Attributes:
        described: Description of the start in the manifest.
        put: Makes the states to begin with of fresh ones, both on the host.
    """

    described: dict[str, Any]
    put: Callable[[PyTree], PyTree]

    def sentence(self) -> str:
        """Return what a run says of it."""
        about = self.described
        agents = with_noun(len(set(about["seeds"])), "agent")
        return (
            f"starting from {agents} in {about['run']} after update "
            f"{about['update']:,} ({about['parts']})"
        )


def as_start(start: str | Path | Start | None) -> Start | None:
    """Return what was given as `start`, with the folder as a path.

    Raises:
        ConfigError: neither a folder nor a `Start`.
    """
    if start is None:
        return None
    if not isinstance(start, str | Path | Start):
        raise ConfigError(
            "start must be the folder of a run, or purerl.Start(folder, ...), got "
            f"{type(start).__name__}."
        )
    start = start if isinstance(start, Start) else Start(start)
    return start._replace(folder=Path(start.folder).expanduser())


def read_start(start: Start, bound: Bound, seeds: Sequence[int]) -> Begun:
    """Read the last checkpoint of the run to start from, and see that it fits.

    Args:
        bound: The run that begins.

    Raises:
        ConfigError: no run or checkpoint there, no agent of a seed, or an array that
            does not fit.
    """
    folder = Path(start.folder)
    stored = manifest.load_run(folder)
    update, flat = checkpoint.restore(folder / "checkpoints")
    sources = [seed if start.seed is None else start.seed for seed in seeds]
    known = list(stored["seeds"])
    if missing := [seed for seed in sources if seed not in known]:
        raise ConfigError(
            f"start: the run in {folder} has no agent of seed {missing[0]}; it has "
            f"{seeds_named(known)}. A seed may be named for all agents."
        )
    rows = [known.index(seed) for seed in sources]
    flat = {name: array[rows] for name, array in flat.items()}
    # It is not known where an algorithm of the user's own has its networks.
    check_finite({n: x for n, x in flat.items() if n.startswith(".params")})
    described = {
        "run": str(folder.resolve()),
        "update": update,
        "parts": start.parts,
        "seeds": sources,
    }
    shapes = jax.eval_shape(make_segment(bound).init, jax.random.key(0))
    networks = _networks(flat, start.parts)
    check_scale(networks, bound.config)
    networks = taken_by(networks, shapes)
    one = {name: array[0] for name, array in networks.items()}
    check_networks(one, shapes, _BY_FOLDER)
    return Begun(described, lambda fresh: put_networks(fresh, networks))


def read_again(described: Mapping[str, Any], bound: Bound, seeds: Any) -> Begun:
    """Read what a manifest says that its run began with.

    Args:
        described: The manifest's entry `start`.
        bound: The run that began with it.

    Raises:
        ConfigError: it is not there any more, or is not the same.
    """
    source = described["seeds"]
    seed = None if source == list(seeds) else source[0]
    start = Start(Path(described["run"]), described["parts"], seed)
    begun = read_start(start, bound, seeds)
    if begun.described != dict(described):
        raise ConfigError(
            f"start: the run in {described['run']} has other agents now than when this "
            "run began with them; start another run."
        )
    return begun


def check_same_start(described: Mapping[str, Any] | None, start: Start | None) -> None:
    """Refuse to resume a run with another start than its own.

    Raises:
        ConfigError: saying what the run began with.
    """
    began = described or {"run": "nothing", "parts": "", "seeds": []}
    if start is None:
        return
    given = (str(Path(start.folder).resolve()), start.parts)
    is_one = start.seed is None or set(began["seeds"]) == {start.seed}
    if given != (began["run"], began["parts"]) or not is_one:
        raise ConfigError(
            f"start is {start.folder}, and the run that is resumed began with "
            f"{began['run']}; leave start out: a run goes on with its own."
        )


def _networks(flat: Mapping[str, np.ndarray], parts: str) -> HostMetrics:
    """The networks among the arrays of a checkpoint."""
    named: dict[str, list[tuple[str, np.ndarray]]] = {}
    for path, array in flat.items():
        field, *words = ("".join(step) for step in _STEP.findall(path))
        prefix = [] if field == "params" else [field]
        words = [word for word in words if word != "params"]
        named.setdefault(field, []).append((".".join([*prefix, *words]), array))
    names = [] if parts == NETWORKS else [part.strip() for part in parts.split(",")]
    return choose(named, [name for name in names if name], "start")


# Segments of a run whose environments are stepped on the host: an update each, so that
# Ctrl-C and a checkpoint wait for one only, but no more rows than can be kept.
HOST_SEGMENTS = 10_000


def _as_resume(name: str, value: Any) -> bool | str:
    is_auto = isinstance(value, str) and value == "auto"
    return value if is_auto else as_switch(name, value)


def _read_start(run: str | None, parts: str) -> Start | None:
    """Return the agents that `--from` and `--from-parts` name, or None."""
    if run is not None:
        folder, seed = split_seed(run)
        return Start(folder, parts, seed)
    if parts != NETWORKS:
        raise ConfigError(
            f"--from-parts {parts} says what is taken over from another run: give "
            "--from RUN with it."
        )
    return None


@dataclasses.dataclass(frozen=True)
class RunOptions(Saved):
    """The options of `purerl.run`."""

    tool: ClassVar[str] = "run"

    config: TrainConfig
    _: dataclasses.KW_ONLY
    seeds: int | Sequence[int] = seeds_option(1, "Number of agents.")
    out: str | Path | None = option(
        None,
        "Folder to write; runs/<env>-<time> if not given.",
        doc="The folder to write; nothing is written without one.",
        kind=Path | None,
        check=as_folder,
    )
    resume: bool | Literal["auto"] = option(
        False,
        "Folder of a run to go on with; auto for that of --out, if it holds one.",
        doc="Whether to go on with the run in `out`; `'auto'` does so if there is one, "
        "and begins it if there is none, as a job does that may be started again.",
        kind=Path | None,
        absent=None,
        check=_as_resume,
    )
    extend: bool = option(
        False,
        "Steps in all up to which the run of --resume is trained.",
        doc="Whether, with `resume`, to go on to the `total_timesteps` of this config, "
        "which may be more than the run was started with, also where it had finished. "
        "What follows the share of the run that is done, such as an annealed learning "
        "rate, follows the longer run from there on.",
        kind=int | None,
        absent=None,
    )
    start: str | Path | Start | None = option(
        None,
        "Begin with the agents in a run's folder, seed by seed, or with one.",
        doc="The folder of a run whose agents' networks the agents begin with, seed by "
        "seed; `purerl.Start` says what else is taken over, and from which agent. The "
        "folder of this run says what it began with.",
        flag="from_run",
        word="from",
        metavar="RUN[:SEED]",
        kind=str | None,
        also=(
            Option(
                "Parts of the agents that are taken over from --from: networks, or "
                "names of parts of them, such as actor.torso.",
                flag="from_parts",
                kind=str,
                absent=NETWORKS,
            ),
        ),
        read=_read_start,
        check=lambda name, value: as_start(value),
    )
    keep_checkpoints: int = option(
        3, "Number of newest checkpoints to keep.", check=required
    )
    data_parallel: bool = option(
        False, "Spread each agent's environments over all devices."
    )

    def __post_init__(self) -> None:
        if self.extend is True and not self.resume:
            raise ConfigError(
                "extend=True goes on with a run: give resume=True and out=, its folder."
            )
        super().__post_init__()
        if self.resume and self.out is None:
            raise ConfigError("resume needs out: the folder of the run to go on with.")


NEW_EPISODES = (
    "the environments are on the host and were not saved: all of them begin new "
    "episodes, so that the run is not the uninterrupted one bit for bit"
)
# Number of finished updates, and the arrays of a checkpoint by name.
Restored = tuple[int, dict[str, np.ndarray]]


class RunLoop:
    """One call of `purerl.run`: the pieces that its phases share.

    Args:
        bound: Config, environment and plan of every agent.
        seeds: Seeds of the agents.
        options: The `RunOptions`, with the lanes and segments that hold.
        session: The call, whose folder has been opened.
        begun: The agents to begin with, where they are not fresh.
    """

    def __init__(
        self,
        bound: Bound,
        seeds: tuple[int, ...],
        options: RunOptions,
        session: Session,
        begun: Begun | None,
    ) -> None:
        self.bound, self.seeds, self.options = bound, seeds, options
        self.folder, self.session, self.begun = options.folder, session, begun
        self.records = Records(seeds, self.folder, session.trackers)
        self.total = bound.plan.num_updates
        self.steps_each = bound.plan.steps_per_update * len(seeds)

    def run(self, resume: bool) -> RunResult:
        """Train what is missing of the run."""
        session, each = self.session, self.steps_each
        restored = self._restore() if resume else None
        self.first = session.saved_at = restored[0] if restored else 0
        session.expect(self.total * each, self.first * each)
        for line in self._where_it_goes_on(restored):
            session.reporter.info(line)
        config = serialise.to_dict(self.bound.config)
        about = self.folder, config, self.seeds
        session.begin(lambda: Told(describe(*about), None, self.records.send_missing))
        if restored and self.first >= self.total:
            result = self._result(self._unflattened(restored), self.first)
        else:
            with session.interrupt:
                result = self._train(restored)
        if result.finished:
            write_summary(result)
        files = partial(tracked_files, result, session.reporter.notify)
        session.close(result.finished, files)
        return result

    def _where_it_goes_on(self, restored: Restored | None) -> list[str]:
        if not restored:
            return [self.begun.sentence()] if self.begun else []
        if self.first >= self.total:
            return [f"the run in {self.folder} had finished"]
        lines = [f"resuming {self.folder} after update {self.first:,}"]
        if self.bound.env.on_host:
            lines.append(NEW_EPISODES)
        self.session.compare_versions(folders.load(self.folder))
        return lines

    def _train(self, restored: Restored | None) -> RunResult:
        """Compile, train until the end or until somebody stops it, and sum up."""
        reporter = self.session.reporter
        for line in (self._banner(), *manifest.notes(self.bound)):
            reporter.info(line)
        if not self.options.progress:
            for line in manifest.dropped_evaluations([self.bound]):
                reporter.notify(line)
        cohort = self._cohort()
        if isinstance(cohort, Cohort):
            reporter.info(f"compiled in {cohort.compile_seconds:.1f} s")
            self.session.check_room(cohort.state_bytes())
        # Pieces for environments on the host are compiled while it trains.
        began = time.perf_counter() - cohort.compile_seconds
        with closing(cohort):
            if restored:
                cohort.restore(self._unflattened(restored), self.first)
            else:
                cohort.init()
                if self.begun:
                    cohort.restore(self.begun.put(cohort.gather()), 0)
            with reporter:
                update = self._segments(cohort)
        if update < self.total:
            reporter.notify(self._how_to_resume(update))
        compiled = cohort.compile_seconds
        seconds = time.perf_counter() - began - compiled
        return self._result(cohort.gather(), update, compiled, seconds)

    def _unflattened(self, restored: Restored) -> PyTree:
        """The states of a checkpoint."""
        shapes = jax.eval_shape(make_segment(self.bound).init, jax.random.key(0))
        where = self.folder / "checkpoints"
        return checkpoint.unflatten(restored[1], shapes, where)

    def _result(
        self, state: PyTree, update: int, compiled: float = 0.0, seconds: float = 0.0
    ) -> RunResult:
        """The result of a call that has trained up to an update."""
        return RunResult(
            config=self.bound.config,
            seeds=self.seeds,
            update=update,
            state=state,
            metrics=stack_rows(self.records.rows["train"]),
            evaluation=stack_rows(self.records.rows["evaluation"]),
            finished=update >= self.total,
            compile_seconds=compiled,
            train_seconds=seconds,
            train_steps=(update - self.first) * self.steps_each,
            out=self.folder,
            diverged_at=self.records.diverged_at,
        )

    def _segments(self, cohort: "Cohort | HostedCohort") -> int:
        """Train segment by segment, and save now and then; the last update."""
        session, reporter = self.session, self.session.reporter

        def is_stopped() -> bool:
            return session.is_stopped or session.is_due(cohort.update)

        update, asked = self.first, session.is_stopped
        while update < self.total and not asked:
            try:
                for segment in cohort.segments(self.total, is_stopped):
                    latest = self.records.add(self.bound.plan, segment)
                    update = segment.end
                    reporter.update(update * self.steps_each, latest)
                    if sentence := self.records.newly_diverged(segment):
                        reporter.notify(sentence)
            except Exception as error:
                self._save_after(error, cohort)
                raise
            asked = session.is_stopped
            self._save(cohort, is_last=asked or cohort.update >= self.total)
        return update

    def _save(self, cohort: "Cohort | HostedCohort", is_last: bool) -> None:
        """Write a checkpoint if one is due; the last one always is."""

        def write() -> None:
            folder, keep = self.folder / "checkpoints", self.options.keep_checkpoints
            checkpoint.save(folder, cohort.update, cohort.gather(), keep)

        self.session.save(cohort.update, write, force=is_last)

    def _cohort(self) -> "Cohort | HostedCohort":
        """Return the agents and their program."""
        members, options = every({}, 1, self.seeds), self.options
        assert options.lanes and options.segment_updates  # They are open no more.
        if self.bound.env.on_host:
            # It loads gymnasium, which only such environments need.
            from purerl.execution.hosted import HostedCohort, HostedProgram

            program = current_cache().share(
                self.bound, (HostedProgram,), lambda: HostedProgram(self.bound)
            )
            return HostedCohort(program, members.keys, options.segment_updates)
        return make_cohort(
            self.bound,
            members,
            options.lanes,
            options.segment_updates,
            data_parallel=options.data_parallel,
        )

    def _banner(self) -> str:
        plan, device = self.bound.plan, jax.local_devices()[0]
        where = "environments on the host, agents in turns"
        if not self.bound.env.on_host:
            where = f"{with_noun(len(make_workers()), 'worker')}, "
            where += with_noun(self.options.lanes or 0, "lane")
        ratio = getattr(self.bound.config, "update_ratio", None)
        learning = ""
        if ratio is not None:
            learning = f"{ratio:.3g} gradient steps per environment step, "
        return (
            f"{with_noun(len(self.seeds), 'agent')}, {self.bound.env.name}, "
            f"{format_count(plan.num_updates * plan.steps_per_update)} steps each, "
            f"{with_noun(plan.num_updates, 'update')}, {learning}"
            f"{manifest.evaluations(self.bound)}, on {device.device_kind} ({where})"
        )

    def _save_after(self, error: Exception, cohort: "Cohort | HostedCohort") -> None:
        """Save what was done before an environment of the host failed, and say so."""
        if isinstance(cohort, Cohort) or cohort.failed is None:
            return
        seed, update = self.seeds[cohort.failed[0]], cohort.failed[1]
        notes = [
            f"this was raised while the agent of seed {seed} made update {update:,} in "
            f"{self.bound.env.name}."
        ]
        saved = "no update was saved."
        if self.folder is not None:
            try:
                if cohort.program.keeps_states and cohort.update > 0:
                    self._save(cohort, is_last=True)
            except checkpoint.NotSavedError as unsaved:
                notes.append(str(unsaved))
            if known := checkpoint.steps(self.folder / "checkpoints"):
                go_on = manifest.how_to_go_on(self.bound.config, self.folder)
                saved = f"update {known[-1]:,} is saved. {go_on}"
        notes.append(saved)
        for note in notes:
            error.add_note(f"purerl: {note}")

    def _restore(self) -> Restored | None:
        """The last checkpoint, and the rows up to it; None if it saved none yet."""
        folder = self.folder / "checkpoints"
        restored = checkpoint.restore(folder) if checkpoint.steps(folder) else None
        if not restored:
            folders.refuse_lost_checkpoints(self.folder)
        self.records.rewind(restored[0] if restored else 0)
        if self.bound.env.on_host:  # New episodes, so that its rows are others.
            self.records.begin_trackers_anew()
        return restored

    def _how_to_resume(self, update: int) -> str:
        if self.folder is None:
            return (
                f"stopped after update {update:,}; nothing was saved (no out folder), "
                "and the agents are in the result alone. To go on with one: train(key, "
                "start=its state) of purerl.make_train(result.config). With out=, the "
                "same call with resume='auto' goes on."
            )
        what = f"after update {update:,} and saved it"
        if update == 0:
            what = "before the first update, with nothing to save yet"
        go_on = manifest.how_to_go_on(self.bound.config, self.folder)
        return f"stopped {what}. {go_on}"


def tracked_files(result: RunResult, notify: Notify, drawn: Path) -> dict[str, Path]:
    """Return the files of a run that trackers keep, by name.

    `run/` holds config.yaml, manifest.json and the last checkpoint (the parameters of
    all seeds) as in a run's folder, so that `purerl.load_run` reads it;
    `figures/curve.png` is the learning curve of a finished run.

    Args:
        result: The result of the run.
        notify: A function that prints a sentence for people.
        drawn: A folder to draw into where the run has none.
    """
    out, files = result.out, {}
    if out is not None:
        saved = checkpoint.steps(out / "checkpoints")
        names = [folders.CONFIG, folders.MANIFEST]
        names += [f"checkpoints/{step}.npz" for step in saved[-1:]]
        files = {f"run/{name}": out / name for name in names if (out / name).exists()}
    if result.finished:
        path = (out or drawn) / manifest.CURVE
        try:
            plots.learning_curve(result).save(path)
            files[f"figures/{manifest.CURVE}"] = path
        except Exception as error:  # A picture is not worth a run.
            notify(f"the learning curve could not be drawn ({error}).")
    return files


@tool(RunOptions)
def run(asked: RunOptions) -> RunResult:
    """Train one agent per seed, with progress, metrics, checkpoints and resume.

    A run that was interrupted or killed and then resumed ends with the same bits as
    one that was not. Ctrl-C finishes the segment, saves, and says how to go on; a
    second one stops at once.

    Where environments are stepped on the host (`env="gymnasium/CartPole-v1"`), agents
    take turns, and a resumed run begins new episodes, so that its bits are others. What
    an environment raises there is raised here, with notes that say in which agent and
    update, and how to go on from the last update, which is saved.

    Functions that look at agents while they train (`observe`, `metrics`) are given to
    `purerl.make_train`, whose `train(key, overrides, start)` goes on from a state.

    Raises:
        ConfigError: a config that cannot be trained, a folder that cannot be written
            or resumed, a damaged checkpoint, agents to start from that do not fit,
            several processes.
    """
    hosts.require_one(
        "a run of purerl.run",
        "Train seeds in several processes with purerl.sweep(config, seeds=..., "
        "out=...): each process takes a part, and one folder holds all results.",
    )
    folder, config, source = asked.folder, asked.config, asked.start
    assert source is None or isinstance(source, Start)
    goes_on = asked.resume is True or (
        asked.resume == "auto" and folders.is_begun(folder)
    )
    if goes_on:
        stored = manifest.load_run(folder)  # Before the lock, which makes a folder.
        config = manifest.with_values_of(stored, config)
    bound = bind(config, on_host=True)
    if bound.env.on_host and (asked.data_parallel or asked.lanes not in (None, 1)):
        raise ConfigError(
            f"lanes and data_parallel must be left out with env={bound.env.name!r}: "
            "its environments are stepped on the host, and agents take turns."
        )
    steps = bound.plan.num_updates * bound.plan.steps_per_update
    require_listing(num_seeds(asked.seeds), steps)
    seeds = check_seeds(asked.seeds)
    begun = None if source is None or goes_on else read_start(source, bound, seeds)
    if not goes_on:
        asked = _with_widths(asked, bound, len(seeds))
    with Session(asked) as session:
        if folder is not None:
            if not goes_on:
                manifest.check_new(folder)
            start = begun.described if begun else None
            stored = manifest.open_run(folder, bound.config, seeds, asked, start)
            kept = {name: stored[name] for name in manifest.KEPT}
            kept["data_parallel"] = bool(kept["data_parallel"])
            asked = dataclasses.replace(asked, **kept)
            if goes_on:
                check_same_start(stored.get("start"), source)
                if "start" in stored and not checkpoint.steps(folder / "checkpoints"):
                    begun = read_again(stored["start"], bound, seeds)
        return RunLoop(bound, seeds, asked, session, begun).run(goes_on)


def _with_widths(asked: RunOptions, bound: Bound, num_members: int) -> RunOptions:
    """The options with the width of a block and of a segment, where none is given."""
    segments = HOST_SEGMENTS if bound.env.on_host else SEGMENTS
    length = asked.segment_updates or segment_length(bound, segments=segments)
    lanes = asked.lanes
    if lanes is None and (asked.data_parallel or bound.env.on_host):
        lanes = 1
    elif lanes is None:
        workers = make_workers()
        members_each = -(-num_members // len(workers))
        default = default_lanes(num_members, workers)
        lanes = fitting_lanes(bound, default, members_each, length, workers)
    return dataclasses.replace(asked, lanes=lanes, segment_updates=length)

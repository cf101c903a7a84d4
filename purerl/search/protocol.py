"""A search is a pair of pure functions, `ask` and `tell`, as an algorithm is.

`ask` looks at the search's state and says which members to train, and how far. `tell`
takes what came of it and gives the next state. Neither trains, draws from a hidden
source or touches a file. So the outcomes of all requests are everything that a stopped
search needs in order to go on: asking and telling them again gives its state. They
stand in its folder, one atomic file per request:

config.yaml      the base config, for people
manifest.json    kind, axes, options, seeds, lanes and segments, versions, device
records/         00000.npz, ...: what came of a request
checkpoints/     states of the members after the last request, by its number

What was lost with a kill is computed again with the same result. Nothing is pickled.

All searches have one driver: it asks, trains, tells and keeps, until the search ends.
"""

import dataclasses
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from purerl import auto
from purerl.config import ConfigError, is_auto, shown
from purerl.execution.cohort import Cohort, FreshReturns, make_cohort, train_until
from purerl.execution.curves import Curves
from purerl.execution.dry_run import Part, show
from purerl.execution.format import format_count, with_noun
from purerl.execution.memory import fitting_lanes
from purerl.execution.programs import Members, current_cache
from purerl.metrics import HELD
from purerl.precision import in_32_bits
from purerl.report import plots
from purerl.report.shown import Shown, View
from purerl.runner.manifest import notes
from purerl.runner.options import Saved, option, tool
from purerl.runner.session import Session
from purerl.runner.trackers.base import Member, TrackedRun, files_of, name_of
from purerl.runner.trackers.group import Group, Told, begin_anew
from purerl.scale import hosts
from purerl.scale.devices import as_count, make_workers
from purerl.scale.host import to_host
from purerl.storage import checkpoint, folders
from purerl.storage.files import DAMAGE, load_arrays, save_arrays
from purerl.storage.folders import AUTO_FIELD, FIELD, differences
from purerl.tracing import refuse_traced
from purerl.train import Bound, Plan, make_algorithm
from purerl.types import Array, HostMetrics, PyTree

# A pytree of arrays on the host, such as a NamedTuple.
State = Any
# Number of a member, and the numbers of its row.
Row = tuple[int, dict[str, Any]]


class Request(NamedTuple):
    """A request to train members on, up to a number of updates.

    Attributes:
        members: Keys and hyperparameters of the members, `[N]`.
        until: Number of finished updates to reach; a multiple of the segment length,
            or the end of the run.
        parents: Row `[N]`, for every member, of the request before whose state it goes
            on with; None where all begin anew. Members are copied (as many as before)
            or left out (rows ascending, none twice).
        is_copy: Whether a member goes on with a random key of its own, the one in
            `members`, `[N]` bool; None for none. A copy with its parent's key would
            repeat what the parent does.
        evaluation_keys: Keys `[N]` of a fresh evaluation at the end; None for none.
    """

    members: Members
    until: int
    parents: np.ndarray | None = None
    is_copy: np.ndarray | None = None
    evaluation_keys: Array | None = None


class Outcome(NamedTuple):
    """The outcome of a request, on the host.

    Attributes:
        train: Training metrics by name, rows `[N, R]`, one per segment.
        evaluation: Evaluations that the config planned by name, rows `[N, K, ...]`;
            empty where there were none.
        diverged_at: The first update with a number that was not finite, `[N]`, or -1.
        keys: Data `[N, words]` of the keys that the members drew from.
        fresh: The fresh evaluation at the end, if one was asked for.
        score: What the search's `score` made of the rest, `[N]`, if it has one.
    """

    train: HostMetrics
    evaluation: HostMetrics
    diverged_at: np.ndarray
    keys: np.ndarray
    fresh: FreshReturns | None = None
    score: np.ndarray | None = None

    @property
    def diverged(self) -> np.ndarray:
        """The members with a number that was not finite, `[N]` bool."""
        return self.diverged_at >= 0

    def last_row(self, member: int) -> dict[str, Any]:
        """Return the last training metrics of a member, but its environment steps."""
        last = {name: rows[member, -1].item() for name, rows in self.train.items()}
        last.pop("env_steps", None)
        return last

    @property
    def evaluation_steps(self) -> int:
        """Environment steps of fresh and of planned evaluations."""
        lengths = [self.evaluation.get("episode_length", 0.0)]
        if self.fresh is not None:
            lengths.append(self.fresh.env_steps)
        return sum(int(np.nansum(x, dtype=np.float64)) for x in lengths)


class Step(NamedTuple):
    """A turn of a search.

    Attributes:
        request: The request of the step.
        outcome: The outcome of the request.
        before: The search's state when it asked.
        after: The search's state after it was told.
    """

    request: Request
    outcome: Outcome
    before: State
    after: State


class Search(NamedTuple):
    """A search: the requests of what to train, and the use of their outcomes.

    Attributes:
        kind: Name of the search, `pbt` for example; it stands in the folder.
        bound: Config, environment and plan that all members share.
        spec: All that fixes the result beside the lanes and the segment length, as
            plain values: at least `config`, `options` and `seeds`.
        steps: Environment steps that each request trains, as far as is known before:
            as many numbers as there are requests.
        lanes: Width of a block, W, where nobody asks for another one.
        segment_updates: Updates of one compiled call, K, where nobody asks for another
            number; `until` of every request is a multiple of K, or the end.
        init: Gives the state before the first request.
        ask: Gives the next request; None when the search has ended.
        tell: Gives the state after a request, from the state before, the request and
            its outcome. Raises a ConfigError where no state can be made, such as when
            all members diverged.
        score: Gives the scores `[N]` of an outcome that the folder is to keep, so that
            it is read without what made them.
        rows: Gives the rows of a step for trackers, at most one per member.
        names: Names of the members by number, as trackers show them.
    """

    kind: str
    bound: Bound
    spec: dict[str, Any]
    steps: tuple[int, ...]
    lanes: int
    segment_updates: int
    init: Callable[[], State]
    ask: Callable[[State], Request | None]
    tell: Callable[[State, Request, Outcome], State]
    score: Callable[[Outcome], np.ndarray] | None = None
    rows: Callable[[Step], list[Row]] = lambda step: []
    names: Mapping[int, str] = MappingProxyType({})


# What the folder of a search cannot be called: these are no searches.
TAKEN = ("run", "sweep", "tune", "evolution", folders.COMPARISON)


def check_search(search: Search) -> None:
    """Refuse a search whose folder could not be read again.

    Raises:
        ConfigError: no search, or inside a function that JAX traces; `spec` lacks an
            entry, or `kind` is that of something else.
    """
    if not isinstance(search, Search):
        raise ConfigError(
            f"search must be a purerl.Search, got {shown(search)}; make one as "
            "examples/own_search.py does."
        )
    refuse_traced(f"a {search.kind} search", search.bound.asked)
    if search.kind in TAKEN:
        raise ConfigError(
            f"kind of a search must be none of {', '.join(TAKEN)}, got "
            f"{search.kind!r}: a folder of that kind holds no search."
        )
    if missing := {"config", "options", "seeds"} - search.spec.keys():
        raise ConfigError(
            f"spec of a search must have {', '.join(sorted(missing))}; it has "
            f"{', '.join(search.spec)}."
        )


def check_request(
    request: Request, before: Request | None, plan: Plan, length: int
) -> None:
    """Refuse a request that cannot be carried out as it stands.

    Raises:
        ConfigError: naming the field, what it is and what it must be.
    """

    def must(holds: Any, name: str, words: str, got: Any) -> None:
        if not holds:
            raise ConfigError(f"{name} of a request must be {words}, got {got}.")

    size, until, total = request.members.size, request.until, plan.num_updates
    parents, is_copy, keys = request.parents, request.is_copy, request.evaluation_keys
    must(size > 0, "members", "at least one", "none")
    first = 0 if before is None or parents is None else before.until
    must(
        first < until <= total and (until % length == 0 or until == total),
        "until",
        f"above {first}, what its members have seen, and a multiple of segment_updates "
        f"= {length}, or {total}, the end of the run",
        until,
    )
    for path, leaf in jax.tree_util.tree_leaves_with_path(request.members.overrides):
        shape, name = np.shape(leaf), f"overrides{jax.tree_util.keystr(path)}"
        must(shape[:1] == (size,), name, f"a value for each of {size} members", shape)
    if keys is not None:
        shape, words = np.shape(keys), f"a key for each of {size} members"
        must(shape == (size,), "evaluation_keys", words, shape)
    if before is None or parents is None:
        first = "None in the first request, and is_copy where there are no parents"
        must(parents is None and is_copy is None, "parents", first, parents)
        return
    rows, mask, past = np.asarray(parents), np.asarray(is_copy), before.members.size
    is_whole = rows.shape == (size,) and np.issubdtype(rows.dtype, np.integer)
    is_row = is_whole and ((0 <= rows) & (rows < past)).all()
    ascends = is_row and is_copy is None and (np.diff(rows) > 0).all()
    must(
        ascends or (is_row and mask.dtype == bool and mask.shape == (size,) == (past,)),
        "parents",
        f"a row from 0 to {past - 1} of the request before for each of {size} members, "
        "ascending, none twice, or beside is_copy, a truth value for each of as many "
        f"members as before ({past})",
        f"{parents} and {is_copy}",
    )


# Files written by a program that lays them out otherwise are not read.
FORMAT = 3
KEEP_CHECKPOINTS = 2


def open_folder(
    folder: Path, search: Search, widths: dict[str, Any], extend: bool = False
) -> dict[str, Any]:
    """Start a search's folder, or go on with it.

    Returns:
        The manifest that holds: the lanes and segments of a stored one win.

    Raises:
        ConfigError: see `purerl.storage.folders.open_folder`.
    """
    spec = {**search.spec, "kind": search.kind, "format": FORMAT, **widths}

    def compare(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
        before = extended(stored, new) if extend else _with_auto(stored, new)
        parts = {"config": FIELD, "options": FIELD, "auto": AUTO_FIELD}
        return differences(before, new, parts)

    return folders.open_folder(folder, spec, "records", compare=compare)


def _with_auto(stored: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return what is stored with `auto` where that stands for the stored value.

    An extended search has values in the place of `auto`, see `extended`.
    """
    config, known = dict(stored["config"]), dict(stored.get("auto", {}))
    for name, value in new.get("auto", {}).items():
        is_asked = is_auto(new["config"].get(name))
        if is_asked and name not in known and config.get(name) == value:
            config[name], known[name] = new["config"][name], value
    return {**stored, "config": config, **({"auto": known} if known else {})}


def extended(stored: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return what is stored, with the steps of a search that is no shorter."""
    config, given = stored["config"], new["config"]
    before, now = (x.get("total_timesteps", 0) for x in (config, given))
    if now < before:
        return stored
    # What was `auto` is given now, so that it does not follow the new length; for the
    # shares of a run see `manifest.with_values_of`.
    known = stored.get("auto", {})
    free = {n for n, v in known.items() if is_auto(config[n]) and given.get(n) == v}
    free |= {"total_timesteps", *(auto.FOLLOWED if now > before else ())}
    changed = {name: given[name] for name in free & config.keys() & given.keys()}
    longer = {**stored, "config": {**config, **changed}}
    if known:
        longer["auto"] = {n: v for n, v in known.items() if n not in changed}
    return longer


def save_step(folder: Path, number: int, step: Step) -> None:
    """Write what came of a request; a reader sees all of it or nothing."""
    outcome, fresh = step.outcome, step.outcome.fresh
    record = {
        "request": digest(step.request),
        "diverged_at": outcome.diverged_at,
        "keys": outcome.keys,
        **({} if outcome.score is None else {"score": outcome.score}),
    }
    for prefix, values in (
        (_TRAIN, outcome.train),
        (_EVALUATION, outcome.evaluation),
        (_FRESH, {} if fresh is None else fresh._asdict()),
    ):
        record |= {prefix + name: rows for name, rows in values.items()}
    save_arrays(path_of(folder, number), record)


def save_states(folder: Path, number: int, states: PyTree) -> None:
    """Write the members' states after a request, in place of older ones.

    Args:
        folder: The folder.
        number: Number of steps that the members have seen.
        states: States on the host, leaves `[N, ...]`.

    Raises:
        NotSavedError: see `purerl.storage.checkpoint.save`.
    """
    checkpoint.save(folder / "checkpoints", number, states, KEEP_CHECKPOINTS)


def restore(
    folder: Path, search: Search, is_extended: bool = False, with_states: bool = True
) -> tuple[list[Step], PyTree | None]:
    """Ask and tell again what a folder holds, up to its last checkpoint.

    Args:
        folder: The folder.
        search: The search that it holds.
        is_extended: Whether the folder holds a shorter search than this one.
        with_states: Whether to return the states too.

    Returns:
        The steps up to the last checkpoint, and the states of the members of the last
        one, on the host; None where there is no checkpoint.

    Raises:
        ConfigError: a damaged record or checkpoint, or one of another program, which
            decided otherwise.
    """
    checkpoints = folder / "checkpoints"
    if not checkpoint.steps(checkpoints):
        folders.refuse_lost_checkpoints(folder)
        return [], None
    done, flat = checkpoint.restore(checkpoints)
    folders.say_what_is_cut(folder, done >= len(list(folder.glob("records/*.npz"))))
    state, steps = search.init(), []
    for number in range(done):
        request = search.ask(state)
        if request is None:
            break
        path = path_of(folder, number)
        record = load(path)
        if not np.array_equal(record["request"], digest(request)):
            if is_extended and number == done - 1:
                raise ConfigError(
                    f"the search of {folder} cannot be extended so: a longer one would "
                    f"train to update {request.until} where it has ended. Give a "
                    "number of steps with which its last milestone stays one, or "
                    "another folder."
                )
            raise ConfigError(
                f"{path} came of another request than this program makes. Go on with "
                "the versions in manifest.json, or give another folder."
            )
        outcome = outcome_of(record)
        steps.append(
            Step(request, outcome, state, search.tell(state, request, outcome))
        )
        state = steps[-1].after
    if not with_states:
        return steps, None
    shapes = jax.eval_shape(make_algorithm(search.bound.config).init, jax.random.key(0))
    return steps, checkpoint.unflatten(flat, shapes, checkpoints)


def read_outcomes(folder: Path) -> list[Outcome]:
    """Read what came of the requests up to the last checkpoint, of any search.

    Raises:
        ConfigError: nothing has been saved, or something is damaged.
    """
    known = checkpoint.steps(folder / "checkpoints")
    if not known:
        raise ConfigError(
            f"the search in {folder} has saved nothing yet. Run its command again."
        )
    paths = (path_of(folder, number) for number in range(known[-1]))
    return [outcome_of(load(path)) for path in paths]


_TRAIN, _EVALUATION, _FRESH = "train/", "evaluation/", "fresh/"


def path_of(folder: Path, number: int) -> Path:
    """Return the file of a step's record in the folder of a search."""
    return folder / "records" / f"{number:05d}.npz"


def load(path: Path) -> HostMetrics:
    """Read a record.

    Raises:
        ConfigError: it is missing or damaged, or a checkpoint has come in its place.
    """
    try:
        record = load_arrays(path)
        _ = record["request"], record["diverged_at"], record["keys"]
    except DAMAGE as error:
        raise ConfigError(
            f"{path} is missing or damaged ({error}). Put back a copy of it, or "
            "delete checkpoints and summary.json: the search is then computed again, "
            "with the same result."
        ) from None
    return record


def outcome_of(record: HostMetrics) -> Outcome:
    """Return the outcome that a record holds."""

    def named(prefix: str) -> HostMetrics:
        cut = len(prefix)
        return {n[cut:]: x for n, x in record.items() if n.startswith(prefix)}

    fresh = named(_FRESH)
    return Outcome(
        train=named(_TRAIN),
        evaluation=named(_EVALUATION),
        diverged_at=record["diverged_at"],
        keys=record["keys"],
        fresh=FreshReturns(**fresh) if fresh else None,
        score=record.get("score"),
    )


def digest(request: Request) -> np.ndarray:
    """Return bytes that tell requests apart: members, how far, parents, evaluation."""
    flat = checkpoint.flatten(to_host(tuple(request)))
    named = {name: np.asarray(value) for name, value in flat.items()}
    return np.frombuffer(checkpoint.digest(named), np.uint8)


# What trackers are told: a row per member and request, while the search goes on.


class _Members(dict[int, Member]):
    """Members by number; one that is asked for without a name is called by its number.

    How many members a search will ask for need not be known when it begins.
    """

    def __missing__(self, number: int) -> Member:
        return self.setdefault(number, Member(f"member={number}", number, {}))


def told(
    search: Search, steps: Sequence[Step], folder: Path | None, is_whole: bool = False
) -> Told:
    """Return what trackers are told of a search.

    Args:
        search: The search.
        steps: Its steps so far.
        folder: Its folder, if it writes one.
        is_whole: Whether no further steps will come.
    """
    rest = {n: search.spec[n] for n in ("axes", "options") if n in search.spec}
    members = _Members({n: Member(name, n, {}) for n, name in search.names.items()})
    if not members and (request := search.ask(search.init())):
        members |= {n: members[n] for n in range(request.members.size)}
    config = {**search.spec["config"], search.kind: rest}
    name = name_of(folder, search.kind)
    run = TrackedRun(name, config, members, folder, kind=search.kind)

    def tell_all(group: Group) -> None:
        for count in range(len(steps)):
            tell(group, search, steps[: count + 1])

    total = sum(bool(search.rows(step)) for step in steps) if is_whole else None
    names = (folders.CONFIG, folders.MANIFEST, folders.SUMMARY, "best.yaml")
    files, is_finished = files_of(folder, search=names), len(steps) == len(search.steps)
    return Told(run, total, tell_all, files, is_finished)


def tell(group: Group, search: Search, steps: Sequence[Step]) -> None:
    """Tell trackers the rows of the last of some steps.

    Members that begin anew go on along the axis where those before them ended: a chart
    never goes back.
    """
    if not group:
        return
    update = steps[-1].request.until + sum(
        before.request.until
        for before, after in itertools.pairwise(steps)
        if after.request.parents is None
    )
    env_steps = update * search.bound.plan.steps_per_update
    about = {"kind": "train", "update": update, "env_steps": env_steps}
    group.tell((number, {**about, **row}) for number, row in search.rows(steps[-1]))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Finished(Shown):
    """A search after its last step.

    Attributes:
        steps: The steps that it took.
        states: States of the members of the last one, on the host; None where the
            search was stopped before its end.
        numbers: Numbers about how it was run, by name.
    """

    steps: list[Step]
    states: PyTree | None
    numbers: dict[str, Any]

    def view(self) -> View:
        """Return what the search tells of itself."""
        state = "not finished" if self.states is None else "finished"
        done = with_noun(len(self.steps), "request")
        facts = [f"{state}: {done}" if self.numbers else done]  # None if read again.
        scores = [score_of(step.outcome) for step in self.steps]
        numbers = np.repeat(np.arange(len(scores)), list(map(len, scores)))
        table = {"request": numbers, "score": np.concatenate([[], *scores])}

        def draw(ax: Any = None) -> plots.Picture:
            return plots.request_scores(scores, ax)

        return View("an own search", facts, draw, lambda: table, "score")


def score_of(outcome: Outcome) -> np.ndarray:
    """Return scores `[N]` of a request: the search's, fresh episodes, or training's."""
    if outcome.score is not None:
        return outcome.score
    if outcome.fresh is None:
        return outcome.train["episode_return"][:, -1]
    return np.where(outcome.diverged, np.nan, outcome.fresh.episode_return)


@dataclasses.dataclass(frozen=True)
class DriveOptions(Saved):
    """The options of `purerl.drive`."""

    tool: ClassVar[str] = "drive"

    search: Search = option(dataclasses.MISSING, doc="The search to carry out.")
    _: dataclasses.KW_ONLY
    extend: bool = option(
        False,
        doc="Whether the folder may hold the same search of fewer environment steps.",
    )


@tool(DriveOptions)
def drive(asked: DriveOptions) -> Finished:
    """Carry out a search, or what is missing of it.

    With `out`, the same call after a kill goes on, and the result is bitwise that of an
    uninterrupted one. Ctrl-C finishes the request, saves, and says how to go on. Lanes
    and updates per segment are the search's own where they are not given.

    Raises:
        ConfigError: the folder holds another search, or is damaged; nothing can be
            made of an outcome, as when every member diverged; there are several
            processes.
    """
    search = asked.search
    check_search(search)
    hosts.require_one(
        f"a {search.kind} search",
        "Its members are compared after every request: start one per host, with seeds "
        "and a folder of its own.",
    )
    return _SearchLoop(asked).run()


def own_lanes(search: Search, length: int) -> int:
    """Return a search's own width, narrower where shapes say that it would not fit."""
    return fitting_lanes(
        search.bound, search.lanes, search.lanes, length, make_workers()
    )


class _SearchLoop:
    """One call of `drive`: the pieces that its phases share."""

    def __init__(self, asked: DriveOptions) -> None:
        self.search, self.out, self.asked = asked.search, asked.folder, asked
        self.session = Session(asked)
        self.length = asked.segment_updates or self.search.segment_updates
        self.lanes = asked.lanes or own_lanes(self.search, self.length)
        self.steps: list[Step] = []
        self.states: PyTree | None = None  # Those that a folder had.
        # Members that begin anew are trained by the program that there is.
        self.programs = current_cache()
        self.cohort: Cohort | None = None
        self.compile_seconds = 0.0

    def run(self) -> Finished:
        search, session = self.search, self.session
        with session:
            if self.out is not None:
                self._open(self.out)
            self.first = session.saved_at = len(self.steps)
            session.expect(sum(search.steps), sum(search.steps[: self.first]))
            session.begin(lambda: told(search, self.steps, self.out))
            request = self._ask()
            if request is None:
                session.reporter.info(f"the search in {self.out} had finished")
                finished = Finished(self.steps, self.states, {"trained_requests": 0})
            else:
                finished = self._train(request)
            is_finished = finished.states is not None
            files = told(search, self.steps, self.out).files
            session.close(is_finished, files)
        return finished

    def _open(self, folder: Path) -> None:
        """Go on from a folder, at the widths that hold there."""
        search, asked = self.search, self.asked
        widths = {
            "lanes": self.lanes,
            "segment_updates": self.length,
            "lanes_asked": asked.lanes,
            "segment_updates_asked": asked.segment_updates,
        }
        stored = open_folder(folder, search, widths, asked.extend)
        self.session.compare_versions(stored)
        lengths = [x["config"].get("total_timesteps") for x in (stored, search.spec)]
        is_extended = lengths[0] != lengths[1]
        self.steps, self.states = restore(folder, search, is_extended)
        if is_extended:
            begin_anew(folder, sum(bool(search.rows(step)) for step in self.steps))
        if asked.extend:
            # Also where the manifest says so: a kill may have come before config.yaml.
            folders.write(folder, extended(folders.load(folder), search.spec))
        self.lanes, self.length = stored["lanes"], stored["segment_updates"]

    def _ask(self) -> Request | None:
        state = self.steps[-1].after if self.steps else self.search.init()
        return self.search.ask(state)

    def _check(self, request: Request) -> None:
        before = self.steps[-1].request if self.steps else None
        check_request(request, before, self.search.bound.plan, self.length)

    def _train(self, request: Request) -> Finished:
        """Carry out requests until the search has ended or somebody stops it."""
        self._check(request)
        session, bound = self.session, self.search.bound
        members, left = request.members, sum(self.search.steps[self.first :])
        ends = [jax.tree.map(lambda x, i=i: x[i], members.overrides) for i in (0, -1)]
        banner = (
            f"{self.search.kind}: {with_noun(members.size, 'member')}, "
            f"{bound.env.name}, {format_count(left)} steps to train, "
            f"{with_noun(bound.plan.num_updates, 'update')} to the end, on "
            f"{jax.local_devices()[0].device_kind} ({with_noun(self.lanes, 'lane')})"
        )
        for line in (banner, *notes(bound, ends)):
            session.reporter.info(line)
        next_request: Request | None = request
        with session.interrupt:
            last = self.steps[-1].request if self.steps else request
            self.cohort = self._fresh(last)
            if self.steps:
                self.cohort.restore(self.states, last.until)
                self.states = None  # Their memory is needed.
            session.reporter.info(f"compiled in {self.compile_seconds:.1f} s")
            session.check_room(self.cohort.state_bytes())
            began = time.perf_counter()
            with session.reporter:
                while next_request is not None and not session.is_stopped:
                    self._step(next_request)
                    next_request = self._ask()
                    is_last = session.is_stopped or next_request is None
                    session.save(len(self.steps), self._save, is_last)
            seconds = time.perf_counter() - began
        is_finished = next_request is None
        if not is_finished:
            session.say_stopped()
        numbers = {
            "trained_requests": len(self.steps) - self.first,
            "compile_seconds": round(self.compile_seconds, 2),
            "train_seconds": round(seconds, 2),
            "lanes": self.lanes,
            "segment_updates": self.length,
        }
        states = self.cohort.gather() if is_finished else None
        return Finished(self.steps, states, numbers)

    def _step(self, request: Request) -> None:
        """Train what is asked for, tell the search, keep the step."""
        self._check(request)
        search, number = self.search, len(self.steps)
        done = sum(search.steps[:number])

        def on_segment(members: int, updates: int, mean_return: float) -> None:
            nonlocal done
            done += members * updates * search.bound.plan.steps_per_update
            self.session.reporter.update(done, mean_return)

        before = self.steps[-1].after if self.steps else search.init()
        cohort, held = self._prepared(request), {}
        if self.steps and request.parents is not None:
            last = self.steps[-1].outcome.train
            known = [name for name in HELD if name in last]
            held = {name: last[name][request.parents, -1] for name in known}
        curves = Curves(search.bound.plan, cohort.size, held)
        train_until(cohort, request.until, curves, on_segment)
        keys, compiled = request.evaluation_keys, cohort.compile_seconds
        outcome = Outcome(
            train=curves.train,
            evaluation=curves.evaluation,
            diverged_at=curves.diverged_at,
            keys=cohort.key_data(),
            fresh=None if keys is None else cohort.evaluate(keys),
        )
        self.compile_seconds += cohort.compile_seconds - compiled
        if search.score is not None:
            outcome = outcome._replace(score=search.score(outcome))
        after = search.tell(before, request, outcome)
        step = Step(request, outcome, before, after)
        if self.out is not None:
            save_step(self.out, number, step)
        self.steps.append(step)
        tell(self.session.trackers, search, self.steps)

    def _fresh(self, request: Request) -> Cohort:
        self.cohort = None  # Its memory is needed for the next one.
        members, sizes = request.members, (self.lanes, self.length)
        cohort = make_cohort(self.search.bound, members, *sizes, cache=self.programs)
        self.compile_seconds += cohort.compile_seconds
        return cohort

    def _prepared(self, request: Request) -> Cohort:
        """The cohort with the members of a request, as they begin."""
        assert self.cohort is not None
        parents = request.parents
        if parents is None:
            if self.cohort.update > 0:
                self.cohort = self._fresh(request)
            self.cohort.init()
            return self.cohort
        if request.is_copy is not None:
            self.cohort.copy(parents, request.members.keys, request.is_copy)
        elif len(parents) < self.cohort.size:
            self.cohort.keep(parents)
        self.cohort.set_overrides(request.members.overrides)
        return self.cohort

    def _save(self) -> None:
        assert self.out is not None and self.cohort is not None
        save_states(self.out, len(self.steps), self.cohort.gather())


@in_32_bits
def dry_run(
    search: Search,
    *,
    lanes: int | None = None,
    segment_updates: int | None = None,
) -> None:
    """Print what a search would cost here, and train nothing of it.

    A block of the members that it asks for first is compiled and timed for half a
    second. The environment steps are those that it plans (`search.steps`), without
    fresh evaluations. Nothing is written, and no folder is read.

    Args:
        search: The search, as `purerl.drive` takes it.
        lanes: The width of a block, W; the search's own where not given.
        segment_updates: The number of updates of one compiled call, K; the search's own
            where not given.

    Raises:
        ConfigError: the search cannot be carried out as it stands, or an agent cannot
            fit the memory.
    """
    lanes = as_count("lanes", lanes)
    segment_updates = as_count("segment_updates", segment_updates)
    check_search(search)
    length = segment_updates or search.segment_updates
    request = search.ask(search.init())
    if request is None:
        raise ConfigError(
            f"the {search.kind} search asks for nothing: ask must return a request in "
            "the state that init gives."
        )
    check_request(request, None, search.bound.plan, length)
    members = request.members
    part = Part(search.bound, members.size, sum(search.steps), members)
    note = "; fresh evaluations that it asks for take more"
    show([part], lanes or own_lanes(search, length), length, note)

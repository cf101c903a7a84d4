"""A search's folder: a manifest, one atomic file per request, and the last states.

config.yaml      the base config, for people
manifest.json    kind, axes, options, seeds, lanes and segments, versions, device
records/         00000.npz, ...: what came of a request
checkpoints/     states of the members after the last request, by its number

All that a search decides follows from what came of its requests, so what was lost with
a kill is computed again with the same result. Nothing is pickled.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from purerl import auto
from purerl.config import ConfigError, is_auto
from purerl.execution.cohort import FreshReturns
from purerl.runner.trackers.base import Member, TrackedRun, files_of, name_of
from purerl.runner.trackers.group import Files, Group, Told
from purerl.scale.host import to_host
from purerl.search.protocol import Outcome, Request, Search, Step
from purerl.storage import checkpoint, folders
from purerl.storage.files import DAMAGE, load_arrays, save_arrays
from purerl.storage.folders import AUTO_FIELD, FIELD, differences
from purerl.train import make_algorithm
from purerl.types import HostMetrics, PyTree

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
        before = _extended(stored, new) if extend else _with_auto(stored, new)
        parts = {"config": FIELD, "options": FIELD, "auto": AUTO_FIELD}
        return differences(before, new, parts)

    return folders.open_folder(folder, spec, "records", compare=compare)


def _with_auto(stored: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return what is stored with `auto` where that stands for the stored value.

    An extended search has values in the place of `auto`, see `_extended`.
    """
    config, known = dict(stored["config"]), dict(stored.get("auto", {}))
    for name, value in new.get("auto", {}).items():
        is_asked = is_auto(new["config"].get(name))
        if is_asked and name not in known and config.get(name) == value:
            config[name], known[name] = new["config"][name], value
    return {**stored, "config": config, **({"auto": known} if known else {})}


def is_longer(stored: dict[str, Any], search: Search) -> bool:
    """Return whether a search has other environment steps than a stored one."""
    configs = stored["config"], search.spec["config"]
    before, now = (config.get("total_timesteps") for config in configs)
    return before != now


def extend_folder(folder: Path, search: Search) -> None:
    """Let a folder hold the same search of more environment steps."""
    stored = folders.load(folder)
    longer = _extended(stored, {"config": search.spec["config"]})
    # Also where the manifest says so already: a kill may have come before config.yaml.
    folders.write(folder, longer)


def _extended(stored: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
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


def tracked(search: Search, folder: Path | None) -> TrackedRun:
    """Return what trackers are told of a search when it begins."""
    rest = {n: search.spec[n] for n in ("axes", "options") if n in search.spec}
    request = search.ask(search.init())
    members = _Members({n: Member(name, n, {}) for n, name in search.names.items()})
    for number in range(request.members.size if request and not members else 0):
        _ = members[number]
    config = {**search.spec["config"], search.kind: rest}
    name = name_of(folder, search.kind)
    return TrackedRun(name, config, members, folder, kind=search.kind)


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
    for number, row in search.rows(steps[-1]):
        group.log("train", number, {"update": update, "env_steps": env_steps, **row})
    group.flush()


def tracked_files(folder: Path | None) -> Files:
    """Return what makes the files of a search that trackers keep."""
    names = (folders.CONFIG, folders.MANIFEST, folders.SUMMARY, "best.yaml")
    return files_of(folder, search=names)


def told_of(folder: Path, search: Search) -> Told:
    """Return what trackers are told of the folder of a search."""
    steps, _ = restore(folder, search, with_states=False)

    def tell_all(group: Group) -> None:
        for count in range(len(steps)):
            tell(group, search, steps[: count + 1])

    total = sum(bool(search.rows(step)) for step in steps)
    run, is_finished = tracked(search, folder), len(steps) == len(search.steps)
    return Told(run, total, tell_all, tracked_files(folder), is_finished)

"""The folder of a run: what it was started with, and whether it may go on.

config.yaml      every field, to be read by people, and to start other runs with
manifest.json    seeds, lanes, segment length, versions, device, who diverged
metrics/         rows.jsonl
checkpoints/     the last few, by number of finished updates
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax

from purerl import auto, envs, serialise
from purerl.acting.environment import is_built_in
from purerl.config import (
    TASK_FIELDS,
    ConfigError,
    TrainConfig,
    UnknownFieldError,
    is_auto,
)
from purerl.envs.wrappers import Wrapper
from purerl.execution.format import (
    has_imported,
    in_notebook,
    program,
    quoted,
    say,
    with_noun,
)
from purerl.runner.rows import DIVERGED, saved_records
from purerl.storage import folders
from purerl.storage.folders import CONFIG, differences
from purerl.train import Bound, bind
from purerl.types import Overrides

CURVE = "curve.png"  # in a run's folder, where somebody has drawn it
KIND, FORMAT = "run", 1
# The options that a run goes on with as it began.
KEPT = ("lanes", "segment_updates", "data_parallel", "keep_checkpoints")


def open_run(
    folder: Path,
    config: TrainConfig,
    seeds: Sequence[int],
    options: Any,
    start: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Begin the folder of a run, or go on with it; return its manifest.

    Args:
        config: The config, as it was bound.
        seeds: Seeds of the agents.
        options: The `RunOptions`; with all that `KEPT` names where the run begins.
        start: What it begins with, see `purerl.runner.start.Begun`.

    Raises:
        ConfigError: the run there has another config, other seeds or widths, its
            config.yaml was changed, or it was spread over another number of devices;
            see `open_folder` for the others.
    """
    spec = {
        "kind": KIND,
        "format": FORMAT,
        "config": serialise.to_dict(config),
        "seeds": list(seeds),
        **{name: getattr(options, name) for name in KEPT},
        "data_parallel": len(jax.local_devices()) if options.data_parallel else 0,
        DIVERGED: {},
        **({"start": start} if start else {}),
    }

    def compare(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
        found = _edits(folder, stored["config"])
        spread, here = stored["data_parallel"], len(jax.local_devices())
        if spread not in (0, here):
            devices = with_noun(spread, "device")
            found.append(f"each agent is spread over {devices}, here are {here}")
            new = {**new, "data_parallel": spread}  # It is said.
        before = (
            _of_length(stored, new, config.steps_per_update)
            if options.extend
            else stored
        )
        asked = {f"{name}_asked": new[name] for name in KEPT[:3]}
        free = (DIVERGED, "start", "keep_checkpoints")
        return found + differences(before, {**new, **asked}, free=free)

    def merge(stored: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        kept = options.keep_checkpoints or stored["keep_checkpoints"]
        return {**stored, "keep_checkpoints": kept}

    def remedy(stored: dict[str, Any], new: dict[str, Any]) -> str:
        steps, more = (x["config"]["total_timesteps"] for x in (stored, new))
        if more <= steps or options.extend:
            return folders.REMEDY
        return f"{folders.REMEDY} --resume with --extend STEPS (extend=True) goes on."

    stored = folders.open_folder(
        folder, spec, compare=compare, merge=merge, remedy=remedy
    )
    if options.extend and config.total_timesteps != stored["config"]["total_timesteps"]:
        _extend(folder, stored, config)
    return stored


def check_new(folder: Path) -> None:
    """Refuse a folder in which no run can begin.

    Raises:
        ConfigError: it holds a run already, something else, or results without a
            manifest.
    """
    folders.check_out(folder, KIND)
    if folders.is_begun(folder):
        raise ConfigError(
            f"out: {folder} holds a run already. Resume it (--resume, or "
            "resume=True), or give another folder."
        )


def _edits(folder: Path, config: dict[str, Any]) -> list[str]:
    """What somebody changed in config.yaml, which would have no effect."""
    values = serialise.read_mapping(folder / CONFIG)
    if values is None:
        return []
    begun = serialise.mapping_of(serialise.yaml_text(config))  # as YAML reads it, too
    found = differences({"config": begun}, {"config": values})
    return [f"{CONFIG} was changed after the run began: {x}" for x in found]


def _of_length(
    stored: dict[str, Any], new: dict[str, Any], each: int
) -> dict[str, Any]:
    """What is stored, as if the run had had the steps of the new one.

    Raises:
        ConfigError: these are not even one update more, nor the same.
    """
    config, given = stored["config"], new["config"]
    steps, more = (x["total_timesteps"] for x in (config, given))
    if more != steps and more // each <= steps // each:
        raise ConfigError(
            f"extend: total_timesteps is {more:,}, no update more than the run's "
            f"{steps:,}; give at least {(steps // each + 1) * each:,}."
        )
    # See `with_values_of`.
    shares = auto.FOLLOWED.keys() & config.keys() if more > steps else ()
    changed = {name: given[name] for name in ("total_timesteps", *shares)}
    return {**stored, "config": {**config, **changed}}


def _extend(folder: Path, stored: dict[str, Any], config: TrainConfig) -> None:
    """Let a run's folder say that the run is a longer one from now on."""
    # Evaluations and annealed numbers of the longer run are others from here on. First,
    # so that a kill leaves no longer run whose trackers count rows of the shorter one.
    saved_records(folder, stored["seeds"]).begin_trackers_anew()
    # They are of the shorter run, and must not outlive a kill.
    for name in (folders.SUMMARY, CURVE, CONFIG):
        (folder / name).unlink(missing_ok=True)
    stored["config"] = serialise.to_dict(config)
    folders.write(folder, stored)


def load_run(folder: Path) -> dict[str, Any]:
    """Read the manifest of a run.

    Raises:
        ConfigError: there is none, it cannot be read, or the folder holds something
            else, with the commands that read that.
    """
    return folders.load_kind(folder, KIND, FORMAT)


def read_config(
    folder: Path, stored: dict[str, Any], reader: str = "load_run"
) -> TrainConfig:
    """Read the config of a run's manifest, or of another folder's.

    Args:
        folder: The folder.
        reader: Name of the function that reads such a folder with a config, for the
            message.

    Raises:
        ConfigError: it holds an environment object, names what is not registered, or
            has a field that this version does not know.
    """
    env = str(stored["config"]["env"])
    if env.startswith("<"):
        again = ", or purerl.run(config, ..., resume=True)" * (reader == "load_run")
        raise ConfigError(
            f"{folder} was trained in an environment object, {env}, which no file can "
            "hold, as it is not of a class at the top level of a module; pass config=: "
            f"purerl.{reader}(folder, config){again}."
        )
    try:
        return serialise.from_dict(stored["config"])
    except UnknownFieldError as error:
        raise UnknownFieldError(
            f"{error} {folder} was written by {folders.written_by(stored)}, and here "
            f"is {folders.written_by(folders.made_with())}; read it with that version."
        ) from None


def task_config(stored: dict[str, Any]) -> TrainConfig:
    """Return what a folder's config says of the task: all that pictures need.

    The rest may name losses and networks that only the program which wrote it knows.
    """
    values = {name: stored["config"][name] for name in TASK_FIELDS}
    env = serialise.env_name(values["env"])
    return TrainConfig(**{**values, "env": env, "env_params": None})


@dataclasses.dataclass(unsafe_hash=True)
class Absent(Wrapper):
    """An environment in the place of one whose module is not here, with its name."""

    called: str = ""

    @property
    def name(self) -> str:
        """The name of the environment that is not here."""
        return self.called


def read_or_stand_in(
    folder: Path, stored: dict[str, Any], reader: str
) -> tuple[TrainConfig, bool]:
    """Return the config of a folder, and whether it is whole.

    Where its environment cannot be made here, a sentence says so, and another one of
    its name stands in: results of members can be read with it, agents cannot.

    Raises:
        ConfigError: as of `read_config`, for any other reason.
    """
    try:
        config = read_config(folder, stored, reader)
        bind(config, trains=False)
        return config, True
    except ConfigError as error:
        known, name = (
            stored.get("auto", {}),
            serialise.env_name(stored["config"]["env"]),
        )
        # An evolution has those of every environment.
        known = next((x for x in known.values() if isinstance(x, dict)), known)
        values = {**stored["config"], **known, "env_kwargs": {}, "env_wrappers": []}
        for like in ("CartPole-v1", "Pendulum-v1"):
            with contextlib.suppress(ConfigError):
                config = serialise.from_dict(
                    {**values, "env": like, "env_params": None}
                )
                config = config.replace(env=Absent(envs.make(like), name))
                bind(config, trains=False)
                say(f"{error} Without it, {folder} is read without agents.")
                return config, False
        raise


def is_rebuildable(config: TrainConfig) -> bool:
    """Return whether another program can make the config from its file.

    Not where the environment is an object, or where the environment, a loss, the
    algorithm or a network is one that this program brought along.
    """
    values = [
        getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.name != "env"
    ]
    parts = [type(config), *(type(value) for value in values if callable(value))]
    ours = all(cls.__module__.startswith(("purerl.", "flax.")) for cls in parts)
    return ours and is_built_in(config)


def with_values_of(stored: dict[str, Any], config: TrainConfig) -> TrainConfig:
    """Return the config with a stored run's value wherever it says `auto`.

    Whoever goes on with an agent keeps what `auto` stood for when it began, such as the
    number of steps over which exploration decays, also where that follows the length of
    a run. The share of the run that this number was is no share of a longer run, so
    that the field has its default then.
    """
    values = {
        field.name: stored["config"][field.name]
        for field in dataclasses.fields(config)
        if is_auto(getattr(config, field.name)) and field.name in stored["config"]
    }
    config = config.replace(**values)
    for share, follower in auto.FOLLOWED.items():
        kept = getattr(config, follower, None)
        if kept is not None and kept == stored["config"].get(follower):
            part = getattr(config, share) * config.total_timesteps
            default = getattr(type(config)(), share)
            config = config if kept == part else config.replace(**{share: default})
    return config


# What is said before a training, and of a run that was stopped.


def evaluations(bound: Bound) -> str:
    """Say how many evaluations a run has, how long they may be, and if they are few."""
    config, planned = bound.config, len(bound.plan.evaluate_after)
    if not planned:
        return "no evaluations"
    words = (
        f"{with_noun(planned, 'evaluation')} of "
        f"{with_noun(config.eval_episodes, 'episode')} of at most "
        f"{with_noun(bound.plan.eval_max_steps, 'step')}"
    )
    if planned == config.num_evaluations:
        return words
    reason = "one for every update"
    if planned < bound.plan.num_updates:
        reason = f"affordable within eval_share={config.eval_share:g}"
    return f"{words} ({config.num_evaluations} asked for, {reason})"


def dropped_evaluations(bounds: Iterable[Bound]) -> list[str]:
    """Return sentences on the runs that have fewer evaluations than were asked for."""
    fewer = [x for x in bounds if len(x.plan.evaluate_after) < x.config.num_evaluations]
    return list(dict.fromkeys(map(evaluations, fewer)))


def notes(bound: Bound, overrides: Sequence[Overrides] = ()) -> list[str]:
    """Return what a person should know before a training begins, a line each.

    Args:
        bound: Config, environment and plan.
        overrides: Overrides with which some of its members are trained.
    """
    automatic = [
        auto.values(bound.asked, bound.at(values)) for values in overrides or [{}]
    ]
    named = {name for values in overrides for name in values}
    words = [
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in automatic[0].items()
        # The axes say what the members differ in.
        if name not in named and all(other.get(name) == value for other in automatic)
    ]
    lines = [f"auto: {', '.join(words)}"] if words else []
    return [*lines, bound.env.note] if bound.env.note else lines


def how_to_go_on(config: TrainConfig, folder: Path) -> str:
    """Say how to go on with a run that was saved.

    Args:
        config: Config of the run.
        folder: Folder of the run.
    """
    if not in_notebook() and (is_rebuildable(config) or has_imported()):
        return f"Go on with: {program()} train --resume {quoted(folder)}"
    # The command line knows nothing of what this program brought along.
    return (
        "Go on with the same config and seeds, from Python: purerl.run(config, ..., "
        f"out={str(folder)!r}, resume='auto')"
    )

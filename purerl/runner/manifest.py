"""The folder of a run: what it was started with, and whether it may go on.

config.yaml      every field, to be read by people, and to start other runs with
manifest.json    seeds, lanes, segment length, versions, device, who diverged
metrics/         rows.jsonl
checkpoints/     the last few, by number of finished updates
"""

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax

from purerl import auto, registry, serialise
from purerl.acting.environment import is_built_in
from purerl.config import (
    TASK_FIELDS,
    ConfigError,
    TrainConfig,
    UnknownFieldError,
    is_auto,
)
from purerl.execution.format import (
    has_imported,
    in_notebook,
    program,
    quoted,
    with_noun,
)
from purerl.runner.rows import DIVERGED, saved_records
from purerl.storage import folders
from purerl.storage.folders import (
    CONFIG,
    differences,
    kind_of,
    load,
    made_with,
    refuse,
    refuse_remains,
    write,
    write_config,
    written_by,
)
from purerl.train import Bound
from purerl.types import Overrides

CURVE = "curve.png"  # in a run's folder, where somebody has drawn it


# The options that a run goes on with as it began.
KEPT = ("lanes", "segment_updates", "data_parallel", "keep_checkpoints")


def describe_run(
    config: TrainConfig, seeds: Sequence[int], options: Any
) -> dict[str, Any]:
    """Describe a run: a member's bits depend on nothing else.

    Args:
        config: The config, as it was bound.
        seeds: Seeds of the agents.
        options: The `RunOptions`, with all that `KEPT` names.
    """
    return {
        "config": serialise.to_dict(config),
        "seeds": list(seeds),
        **{name: getattr(options, name) for name in KEPT},
        "data_parallel": len(jax.local_devices()) if options.data_parallel else 0,
        DIVERGED: {},
        **made_with(),
    }


def check_new(folder: Path) -> None:
    """Refuse a folder in which no run can begin.

    Raises:
        ConfigError: it holds a run already, something else, or results without a
            manifest.
    """
    if folders.is_begun(folder):
        folders.refuse_other(folder, "run")
        raise ConfigError(
            f"out: {folder} holds a run already. Resume it (--resume, or "
            "resume=True), or give another folder."
        )
    refuse_remains(folder)


def go_on(
    folder: Path, config: TrainConfig, seeds: Sequence[int], asked: Any
) -> dict[str, Any]:
    """Return the manifest of a run that goes on, if it may.

    Args:
        config: The config that was asked for, as it was bound.
        seeds: The seeds that were asked for.
        asked: The `RunOptions` of the call.

    Raises:
        ConfigError: the run has another config, other seeds or widths, its config.yaml
            was changed, random keys are of another kind here, or it was spread over
            another number of devices.
    """
    stored = load_run(folder)
    names = ("lanes", "segment_updates", "data_parallel")
    widths = {name: getattr(asked, name) for name in names}
    # The number of devices is looked at by itself.
    kept = {**stored, "data_parallel": bool(stored["data_parallel"])}
    check_same(kept, config, seeds, asked.extend, widths)
    folders.check_keys("the run", stored)
    spread, here = stored["data_parallel"], len(jax.local_devices())
    if spread and spread != here:
        raise ConfigError(
            f"the run was spread over {spread} devices, here are {here}; resume it "
            f"where there are {spread}, or start another."
        )
    check_not_edited(folder, stored)
    folders.go_on(folder, stored)
    if asked.extend:
        extend_run(folder, stored, config)
    return stored


def load_run(folder: Path) -> dict[str, Any]:
    """Read the manifest of a run.

    Raises:
        ConfigError: there is none, it cannot be read, or the folder holds something
            else, with the commands that read that.
    """
    stored = load(folder)
    kind = kind_of(folder)
    if kind != "run":
        raise ConfigError(folders.not_wanted(folder, kind, "run"))
    return stored


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
    env, is_run = stored["config"]["env"], reader == "load_run"
    if str(env).startswith("<"):
        raise ConfigError(
            f"what is in {folder} was trained in an environment object, {env}, which "
            "no file can hold (as it could one of a class at the top level of a "
            "module, called with what are its attributes: numbers, words, functions "
            "and environments that have names); pass config=, with that environment "
            f"in it: purerl.{reader}(folder, config)"
            + (", or purerl.run(config, ..., resume=True)." if is_run else ".")
        )
    try:
        return serialise.from_dict(stored["config"])
    except UnknownFieldError as error:
        theirs = written_by(stored)
        raise UnknownFieldError(
            f"{error} {folder} was written by {theirs or 'another version'}, and here "
            f"is {written_by(made_with())}; read it with that version."
        ) from None


def task_config(stored: dict[str, Any]) -> TrainConfig:
    """Return what a folder's config says of the task: all that pictures need.

    The rest may name losses and networks that only the program which wrote it knows.
    """
    values = {name: stored["config"][name] for name in TASK_FIELDS}
    env = serialise.env_name(values["env"])
    return TrainConfig(**{**values, "env": env, "env_params": None})


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


def check_not_edited(folder: Path, stored: dict[str, Any]) -> None:
    """Refuse to go on with a run whose config.yaml somebody has changed.

    A run goes on as it began, by its manifest: the change would have no effect. A
    config.yaml of before the run was extended is written anew, as the process may have
    died after it had written manifest.json.

    Raises:
        ConfigError: naming what differs.
    """
    values = serialise.read_mapping(folder / CONFIG)
    if values is None:
        return
    found = _changes(values, stored["config"])
    if found and values.get("total_timesteps") in stored.get("extended_from", []):
        shares = {name: values[name] for name in auto.FOLLOWED if name in values}
        before = {**shares, "total_timesteps": values["total_timesteps"]}
        if not _changes(values, {**stored["config"], **before}):
            write_config(folder, stored)
            return
    if found:
        raise ConfigError(
            f"{folder / CONFIG} was changed after the run began ("
            f"{'; '.join(found)}), and a run goes on as it began; take the change "
            "back, or start another run with --config (purerl.serialise.from_yaml), "
            "which --from (start=) lets begin with these agents."
        )


def _changes(values: dict[str, Any], config: dict[str, Any]) -> list[str]:
    """Return in words what the values of config.yaml change of a config."""
    # As YAML writes and reads it, too.
    begun = serialise.mapping_of(serialise.yaml_text(config))
    return differences({"config": begun}, {"config": values})


def check_same(
    stored: dict[str, Any],
    config: TrainConfig,
    seeds: Any,
    may_be_longer: bool = False,
    widths: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Refuse to resume a run with another config, other seeds or widths.

    Raises:
        ConfigError: naming what differs.
    """
    given = json.loads(json.dumps(serialise.to_dict(config)))
    before = {name: _renamed(value) for name, value in stored["config"].items()}
    if may_be_longer:
        steps, more = before["total_timesteps"], config.total_timesteps
        if more < steps:
            raise ConfigError(
                f"extend: the run was started for {steps:,} steps, and "
                f"total_timesteps is {more:,}; give a larger number."
            )
        before["total_timesteps"] = more
        if more > steps:  # See `with_values_of`.
            shares = auto.FOLLOWED.keys() & before.keys()
            before |= {share: given[share] for share in shares}
    found = differences(
        {"config": before, "seeds": stored["seeds"]}
        | {name: stored[name] for name in widths},
        {"config": given, "seeds": list(seeds)}
        | {f"{name}_asked": value for name, value in widths.items()},
    )
    refuse(found, "cannot resume, the folder", "run")


def _renamed(value: Any) -> Any:
    """A stored part by the name under which its class was registered later, if so."""
    if isinstance(value, dict) and ":" in str(value.get("type", "")):
        with contextlib.suppress(ConfigError):
            name = registry.name_of(registry.class_of(value["type"]))
            return {**value, "type": name}
    return value


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


def extend_run(folder: Path, stored: dict[str, Any], config: TrainConfig) -> None:
    """Let a run's folder say that the run is a longer one from now on.

    Args:
        stored: Manifest of the run.
        config: The run's config, with more `total_timesteps`.

    Raises:
        ConfigError: there is not one update more.
    """
    lengths = [*stored.get("extended_from", []), stored["config"]["total_timesteps"]]
    more, each = config.total_timesteps, config.steps_per_update
    if more == lengths[-1]:
        return
    updates = lengths[-1] // each
    if more // each == updates:
        raise ConfigError(
            f"extend: total_timesteps={more:,} makes no update more than the run's "
            f"{lengths[-1]:,}, as an update has {each:,} steps; give at least "
            f"{(updates + 1) * each:,}."
        )
    described = {"config": serialise.to_dict(config), "extended_from": lengths}
    # Evaluations and annealed numbers of the longer run are others from here on. First,
    # so that a kill leaves no longer run whose trackers count rows of the shorter one.
    saved_records(folder, stored["seeds"]).begin_trackers_anew()
    # They are of the shorter run, and must not outlive a kill.
    for name in (folders.SUMMARY, CURVE):
        (folder / name).unlink(missing_ok=True)
    write(folder, {**stored, **described})


def evaluations(bound: Bound) -> str:
    """Say how many evaluations a run has, and how long they may be.

    If there are fewer than asked for, also why.
    """
    config, planned = bound.config, len(bound.plan.evaluate_after)
    if not planned:
        return "no evaluations"
    episodes = with_noun(config.eval_episodes, "episode")
    most = with_noun(bound.plan.eval_max_steps, "step")
    words = f"{with_noun(planned, 'evaluation')} of {episodes} of at most {most}"
    if planned == config.num_evaluations:
        return words
    reason = (
        "an update each"
        if planned == bound.plan.num_updates
        else f"{planned} affordable within eval_share={config.eval_share:g}"
    )
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
        f"{name}={_plain(value)}"
        for name, value in automatic[0].items()
        # The axes say what the members differ in.
        if name not in named and all(other.get(name) == value for other in automatic)
    ]
    lines = [f"auto: {', '.join(words)}"] if words else []
    return [*lines, bound.env.note] if bound.env.note else lines


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


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

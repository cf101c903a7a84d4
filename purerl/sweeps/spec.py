"""The specification of a sweep in its manifest, and how two of them differ."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from purerl import serialise
from purerl.algorithms import name_of
from purerl.config import TASK_FIELDS, TrainConfig
from purerl.storage import folders
from purerl.storage.folders import AUTO_FIELD, differences
from purerl.sweeps.groups import Group
from purerl.sweeps.plan import Outline

# Files written by a program that lays them out otherwise are not read.
FORMAT = 1
REORDERED = "the same points in another order"


def describe(
    outline: Outline,
    points: Sequence[Mapping[str, Any]],
    lanes: int | None,
    segment_updates: int | None,
    keep_states: bool = False,
) -> dict[str, Any]:
    """Return what the manifest says of a sweep.

    Args:
        outline: The sweep's design, seeds and groups.
        points: Points of the design, as `identity.written` gives them.
        lanes: The width that was asked for, or None where it is chosen.
        segment_updates: The updates per segment that were asked for, or None where they
            are chosen.
        keep_states: Whether states of finished members are to be kept.
    """
    design = outline.design
    return {
        "kind": "sweep",
        "format": FORMAT,
        "config": serialise.to_dict(outline.config),
        "design": design.kind,
        "axes": list(design.names),
        "shape": list(design.shape),
        "points": list(points),
        "seeds": list(outline.seeds),
        "keep_states": keep_states,
        "keep_states_asked": keep_states,
        "groups": {
            group.group.name: {
                "auto": group.group.bound.automatic,
                **_task_of(group.group, outline.config),
                "lanes": group.lanes,
                "lanes_asked": lanes,
                "segment_updates": group.length,
                # More than a whole run is a whole run.
                "segment_updates_asked": group.length if segment_updates else None,
            }
            for group in outline.groups
        },
        **folders.made_with(),
    }


def _task_of(group: Group, config: TrainConfig) -> dict[str, Any]:
    """Return the task of a group of another algorithm than the config's, else nothing.

    Earlier versions trained such a group in the default environment of its algorithm,
    and their folders, which do not have this entry, must not be gone on with.

    Args:
        group: The group.
        config: The config of the sweep.
    """
    asked = group.bound.asked
    if name_of(asked) == name_of(config):
        return {}
    task = {name: serialise.plain(getattr(asked, name), name) for name in TASK_FIELDS}
    return {"task": task}


def compare(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return what differs between two sweeps, in words."""
    found = differences(stored, new, free=("points", "shape", "groups"))
    if _is_same(stored, new) and _texts(stored["points"]) != _texts(new["points"]):
        found.append(_points_words(stored["points"], new["points"]))
    return found + _differences_of_groups(stored["groups"], new["groups"])


def _differences_of_groups(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the differences between groups of both sweeps, each of them once."""
    found = []
    for name in (name for name in new if name in stored):
        known = {"auto": new[name]["auto"], **stored[name]}
        found += differences(known, new[name], {"auto": AUTO_FIELD})
    return list(dict.fromkeys(found))


def _is_same(stored: dict[str, Any], new: dict[str, Any]) -> bool:
    """Return whether two sweeps may have members in common."""
    return all(stored[name] == new[name] for name in ("config", "axes", "design"))


def is_extension(stored: dict[str, Any], new: dict[str, Any]) -> bool:
    """Return whether `new` has everything that `stored` has, trained alike."""
    kept = set(_texts(stored["points"])) <= set(_texts(new["points"]))
    kept = kept and set(stored["seeds"]) <= set(new["seeds"])
    kept = kept and new["keep_states"] <= stored["keep_states"]
    odd = _differences_of_groups(stored["groups"], new["groups"])
    return kept and _is_same(stored, new) and not odd


def is_reordered(stored: dict[str, Any], new: dict[str, Any]) -> bool:
    """Return whether the two differ in nothing but the order of their points."""
    return compare(stored, new) == [REORDERED]


def _points_words(stored: Sequence[Any], new: Sequence[Any]) -> str:
    known, wanted = _texts(stored), _texts(new)
    if sorted(known) == sorted(wanted):
        return REORDERED
    missing, gone = len(set(wanted) - set(known)), len(set(known) - set(wanted))
    return (
        f"{len(known)} points there and {len(wanted)} here "
        f"({missing} new, {gone} left out)"
    )


def _texts(points: Sequence[Any]) -> list[str]:
    return [json.dumps(point, sort_keys=True) for point in points]

"""The specification of a sweep in its manifest, and how two of them differ."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from purerl import serialise
from purerl.storage import folders
from purerl.storage.differences import differing, differing_widths
from purerl.sweeps.plan import Outline

# Files written by a program that lays them out otherwise are not read.
FORMAT = 1
REORDERED = "the same points in another order"


def describe(
    outline: Outline,
    points: Sequence[Mapping[str, Any]],
    lanes: int | None,
    segment_updates: int | None,
) -> dict[str, Any]:
    """Return what the manifest says of a sweep.

    Args:
        outline: The sweep's design, seeds and groups.
        points: Points of the design, as `identity.written` gives them.
        lanes: The width that was asked for, or None where it is chosen.
        segment_updates: The updates per segment that were asked for, or None where they
            are chosen.
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
        "groups": {
            group.group.name: {
                "auto": group.group.bound.automatic,
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


def compare(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return what differs between two sweeps, in words."""
    found = differing(stored["config"], new["config"])
    for name in ("axes", "design"):
        if stored[name] != new[name]:
            found.append(f"{name}: {stored[name]!r} there and {new[name]!r} here")
    if not found and _texts(stored["points"]) != _texts(new["points"]):
        found.append(_points_words(stored["points"], new["points"]))
    if stored["seeds"] != new["seeds"]:
        found.append(
            f"seeds: {_brief(stored['seeds'])} there, {_brief(new['seeds'])} here"
        )
    for name, group in new["groups"].items():
        known = stored["groups"].get(name, group)
        resolved = known.get("auto", group["auto"])
        found += [
            f"{field}, which is auto, is {resolved.get(field)!r} there and {value!r} "
            "here"
            for field, value in group["auto"].items()
            if resolved.get(field) != value
        ]
        found += differing_widths(known, group)
    return sorted(set(found), key=found.index)


def is_extension(stored: dict[str, Any], new: dict[str, Any]) -> bool:
    """Return whether `new` has everything that `stored` has, trained alike."""
    same = all(stored[name] == new[name] for name in ("config", "axes", "design"))
    kept = set(_texts(stored["points"])) <= set(_texts(new["points"]))
    widths = [d for d in compare(stored, new) if d.startswith(("lanes", "segment_"))]
    return same and kept and set(stored["seeds"]) <= set(new["seeds"]) and not widths


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


def _brief(seeds: Sequence[int]) -> str:
    return f"{seeds[0]}..{seeds[-1]} ({len(seeds)})"

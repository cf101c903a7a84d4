"""What the tools have in common has one default, in Python and on the command line."""

import dataclasses
import inspect

import pytest

import purerl
from purerl.cli import lanes, policies

TOOLS = {
    "train": purerl.run,
    "sweep": purerl.sweep,
    "pbt": purerl.pbt,
    "halving": purerl.halving,
    "tune": purerl.tune,
    "evolve": purerl.evolve,
    "compare": purerl.compare,
    "render": purerl.render,
    "export": purerl.export_policy,
    "lanes": purerl.find_lanes,
}
# Commands with a class of flags of their own.
OWN = {
    "render": policies.RENDER,
    "export": policies.EXPORT,
    "lanes": lanes.FindLanes,
}
# A flag of another type: the folder of the run.
OTHERS = {("export", "out")}
SHARED = ("lanes", "segment_updates", "checkpoint_seconds", "trackers", "progress")


def default(function, name):
    return inspect.signature(function).parameters[name].default


@pytest.mark.parametrize("command", OWN)
def test_a_flag_has_the_default_of_the_argument(command):
    """The flags of all other tools are made of the options themselves."""
    function = TOOLS[command]
    flags = dataclasses.fields(OWN[command])
    known = inspect.signature(function).parameters
    compared = {
        flag.name: (flag.default, default(function, name))
        for flag in flags
        if (name := flag.name) in known
        and (command, flag.name) not in OTHERS
        and known[name].default is not inspect.Parameter.empty
    }
    assert compared  # None and no values mean the same: nothing was given.
    given = {name: (a or None, b or None) for name, (a, b) in compared.items()}
    assert {name: pair for name, pair in given.items() if pair[0] != pair[1]} == {}


@pytest.mark.parametrize("name", SHARED)
def test_tools_agree_on_what_they_share(name):
    tools = [*TOOLS.values(), purerl.drive, purerl.train_schedules]
    found = [
        default(tool, name)
        for tool in tools
        if name in inspect.signature(tool).parameters
    ]
    assert len(found) > 3 and len(set(found)) == 1

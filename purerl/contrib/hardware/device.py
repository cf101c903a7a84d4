"""Devices that are described by a small file: memory, speeds, where each is from."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import yaml

from purerl import serialise
from purerl.config import ConfigError

FOLDER = Path(__file__).with_name("devices")
NUMBERS = ("memory", "bandwidth", "flops", "microseconds_per_kernel")
# The text that tells XLA's compiler what it compiles for, where a device has none: how
# operations become kernels hardly differs between these GPUs.
ANY_TARGET = "h200.txtpb"


class Device(NamedTuple):
    """A device that need not be here.

    Attributes:
        name: Name of the device.
        memory: Bytes of its memory.
        bandwidth: Bytes per second to and from that memory, at its peak.
        flops: Floating-point operations per second in float32, at its peak.
        microseconds_per_kernel: Time from one kernel to the next one, which waits for
            it, in microseconds.
        sources: Source of each of the four numbers, by its name.
        target: XLA's description of the device for its compiler, a text.
        is_own_target: Whether that text is of this device, and not of a similar one.
    """

    name: str
    memory: float
    bandwidth: float
    flops: float
    microseconds_per_kernel: float
    sources: Mapping[str, str]
    target: str
    is_own_target: bool


def names() -> list[str]:
    """Return the names of the devices that come with purerl."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_device(name: str | Path) -> Device:
    """Read a device by its name, or from a YAML file.

    Args:
        name: A name of `names()`, or the path of a file with the fields of those in
            `purerl/contrib/hardware/devices`.

    Raises:
        ConfigError: there is no such device, or the file lacks a number or its source.
    """
    path = FOLDER / f"{name}.yaml" if str(name) in names() else Path(name)
    if not path.is_file():
        raise ConfigError(
            f"device must be one of {', '.join(names())} or a YAML file that describes "
            f"one, got {str(name)!r}."
        )
    try:
        fields = serialise.read_yaml(serialise.read_file(path))
        numbers = [float(fields[each]) for each in NUMBERS]
        sources = {each: str(fields["sources"][each]) for each in NUMBERS}
    except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"device: {path} must hold a number for each of {', '.join(NUMBERS)}, and "
            "under sources where each is from, such as 'measured by gpu_day.py' "
            f"({type(error).__name__}: {error})."
        ) from None
    for each, number in zip(NUMBERS, numbers, strict=True):
        if not 0 < number < math.inf:
            raise ConfigError(
                f"device: {each} in {path} must be a positive number, got {number!r}."
            )
    target = path.parent / str(fields.get("target", ""))
    is_own = "target" in fields
    if is_own and not target.is_file():
        raise ConfigError(f"device: target in {path} must be a file, got {target}.")
    return Device(
        str(fields.get("name", path.stem)),
        *numbers,
        sources=sources,
        target=(target if is_own else FOLDER / ANY_TARGET).read_text(),
        is_own_target=is_own,
    )

"""The options of `purerl.sweep`."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from purerl.config import ConfigError, TrainConfig
from purerl.runner.options import (
    BEGUN,
    Segmented,
    memory_limit_option,
    option,
    seeds_option,
)
from purerl.scale.devices import as_count
from purerl.space.design import axes_option


def _as_lanes(name: str, value: Any) -> int | str | None:
    """A width of blocks: a number, also as text, `"auto"`, or None."""
    if value == "auto":
        return "auto"
    if isinstance(value, str):
        raise ConfigError(f"{name} must be a number or 'auto', got {value!r}.")
    return as_count(name, value)


def read_lanes(text: str | None) -> int | str | None:
    """Read the width of blocks from a flag: a number, `auto`, or None."""
    is_number = text is not None and text.lstrip("-").isdigit()
    return int(text) if text is not None and is_number else text


@dataclasses.dataclass(frozen=True)
class SweepOptions(Segmented):
    """The options of `purerl.sweep`, and of `purerl.plan`."""

    tool: ClassVar[str] = "sweep"

    config: TrainConfig
    axes: Mapping[str, Any] | None = axes_option(
        "Field that the sweep varies, NAME=VALUES; may be repeated: "
        "learning_rate=1e-4,3e-4; gamma=linspace(0.9,0.99,4); algorithm=ppo,dqn; "
        "hidden_sizes=(64,64),(256,256); in a random design loguniform(1e-5,1e-2), "
        "uniform(0.9,1.0), choice(4,8).",
        "Values by (dotted) name of the field, or in a random design a distribution "
        "(`purerl.uniform`, `purerl.loguniform`, `purerl.choice`). `algorithm` is a "
        "field too: what the other algorithm has in common is carried over.",
        needed=False,
    )
    _: dataclasses.KW_ONLY
    seeds: int | Sequence[int] = seeds_option(4, "Agents per point.")
    design: str = option(
        "grid",
        "Points of the axes: every combination (grid), value by value (zip), or draws.",
        kind=Literal["grid", "zip", "random"],
    )
    num_points: int | None = option(
        None,
        "Number of points of a random design; equal draws are trained once.",
        flag="points",
    )
    design_seed: int = option(0, "Seed of a random design's draws.")
    extend: bool = option(
        False,
        "Train the points and seeds that the sweep in the folder has not.",
    )
    lanes: int | str | None = option(  # type: ignore[assignment]  # a wider type
        None,
        "Agents per block, part of what fixes the bits: a number, or auto to measure "
        "the best; by the number of members if not given.",
        kind=str | None,
        read=read_lanes,
        check=_as_lanes,
    )
    chunk_blocks: int | None = option(
        None,
        "Number of blocks that a worker holds, and a file keeps; what fits the memory "
        "if not given. It changes no bit.",
        check=as_count,
    )
    memory_limit: str | float | None = memory_limit_option()
    keep_states: bool = option(
        False,
        "Keep the trained agents too. A sweep that was started with it goes on with "
        "it.",
        keep=BEGUN,
    )

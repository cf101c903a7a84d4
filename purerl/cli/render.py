"""`purerl render`: a video of the policies that a run saved."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console

from purerl.cli import flags, settings
from purerl.cli.flags import EpisodeSeed, RunOrAgent, option
from purerl.report.rendering import EPISODE_SEED, render
from purerl.runner.rows import warn


@dataclasses.dataclass(kw_only=True)
class Render:
    """Write a video of a run's deterministic policies, side by side."""

    run: RunOrAgent
    out: Annotated[
        Path | None, option("File to write; RUN/video.gif if not given.")
    ] = None
    format: Annotated[
        Literal["gif", "mp4", "html"] | None,
        option(
            "Format of the file; if not given, the one that the name of --out says, "
            "else gif, and html for Brax."
        ),
    ] = None
    seeds: Annotated[
        str | None,
        option(
            "Agents to show: best, median, worst, numbers of seeds, or several of "
            "these with commas; best, median and worst if not given."
        ),
    ] = None
    episodes: Annotated[
        int, option("Number of episodes per agent, one after the other.")
    ] = 1
    fps: Annotated[
        int | None,
        option("Frames per second; what suits the environment if not given."),
    ] = None
    max_steps: Annotated[int | None, option("Steps after which an episode is cut.")] = (
        None
    )
    episode_seed: EpisodeSeed = EPISODE_SEED


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    options = flags.parse(Render, argv, "render")
    settings.enable_compile_cache()
    made = render(**vars(options))
    warn(made.seeds, made.diverged_at)
    console = Console(highlight=False, soft_wrap=True)
    for seed, returns, lengths in zip(
        made.seeds, made.episode_return, made.episode_length, strict=True
    ):
        played = ", ".join(
            f"{earned:,.2f} in {steps:,} steps"
            for earned, steps in zip(returns, lengths, strict=True)
        )
        console.print(f"seed {seed}: return {played}")
    console.print(f"{made.frames:,} frames written to {made.path}")
    return 0

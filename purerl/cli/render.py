"""`purerl render`: a video of the policies that a run saved."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from purerl.cli import flags, settings
from purerl.report.rendering import EPISODE_SEED, render
from purerl.runner.divergence import warn


def _arg(text: str) -> object:
    return tyro.conf.arg(help=text)


@dataclasses.dataclass(kw_only=True)
class Render:
    """Write a video of a run's deterministic policies, side by side."""

    run: flags.RunOrAgent
    out: Annotated[Path | None, _arg("File to write; RUN/video.gif if not given.")] = (
        None
    )
    format: Annotated[
        Literal["gif", "mp4", "html"] | None,
        _arg("Format; that of --out if not given, else gif, and html of brax."),
    ] = None
    seeds: Annotated[
        str | None,
        _arg(
            "Agents to show: best, median, worst, seeds, or several of them with "
            "commas; the three ranks if not given."
        ),
    ] = None
    episodes: Annotated[int, _arg("Episodes per agent, one after the other.")] = 1
    fps: Annotated[
        int | None, _arg("Frames per second; what suits the environment if not given.")
    ] = None
    max_steps: Annotated[int | None, _arg("Steps after which an episode is cut.")] = (
        None
    )
    episode_seed: Annotated[
        int,
        tyro.conf.arg(
            aliases=["--eval-seed"],
            help="Random seed of the episodes, as in purerl evaluate.",
        ),
    ] = EPISODE_SEED


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

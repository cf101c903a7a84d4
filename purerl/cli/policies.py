"""`purerl evaluate`, `render` and `export`: what can be done with trained policies."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console

from purerl import serialise
from purerl.cli import flags, settings
from purerl.cli.flags import AgentSeed, EpisodeSeed, RunOrAgent, option
from purerl.config import ConfigError
from purerl.export import export_policy
from purerl.report import tables
from purerl.report.evaluating import evaluate
from purerl.report.rendering import EPISODE_SEED, render
from purerl.runner.arguments import seeds_named, split_seed
from purerl.runner.result import load_run
from purerl.runner.rows import warn
from purerl.runner.trackers.group import load_stored
from purerl.runner.trackers.mlflow import absolute, log_policy
from purerl.scale.host import agent_to_device


@dataclasses.dataclass(kw_only=True)
class Evaluate:
    """Play the policies of a run's last checkpoint."""

    run: RunOrAgent
    episodes: Annotated[int, option("Number of episodes per agent.")] = 20
    seed: AgentSeed = None
    deterministic: Annotated[
        bool, option("Play the deterministic policy, or one that draws its actions.")
    ] = True
    gymnasium: Annotated[
        bool, option("Play in the Gymnasium environment of the same name.")
    ] = False
    env_params: Annotated[
        tuple[str, ...],
        option(
            "Environment parameters to play with, name=value; those that are not named "
            "stay as in training."
        ),
    ] = ()
    episode_seed: EpisodeSeed = EPISODE_SEED


def main_evaluate(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    options = vars(flags.parse(Evaluate, argv, "evaluate"))
    settings.enable_compile_cache()
    numbers = flags.read_mapping("env_params", options.pop("env_params"))
    played = evaluate(
        options.pop("run"), env_params=serialise.parse_params(numbers), **options
    )
    warn(played.seeds, played.diverged_at)
    table = tables.episodes_table(
        played.title, played.seeds, played._asdict(), played.diverged_at
    )
    Console().print(table)
    return 0


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


def main_render(argv: Sequence[str]) -> int:
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


@dataclasses.dataclass(kw_only=True)
class Export:
    """Write the policy of a run's agent as StableHLO, and its weights."""

    run: RunOrAgent
    out: Annotated[
        Path | None, option("Folder to write; RUN/exported if not given.")
    ] = None
    seed: AgentSeed = None
    sampled: Annotated[bool, option("Write the stochastic policy too.")] = False
    onnx: Annotated[bool, option("Write the policy as ONNX too.")] = False
    batch: Annotated[
        int | None, option("Number of observations at once; any number if not given.")
    ] = None
    mlflow: Annotated[
        bool,
        option(
            "Keep the policy as a model of MLflow, beside the run if MLflow has it."
        ),
    ] = False
    tracking_uri: Annotated[
        str | None, option("Address of the MLflow store that --mlflow writes to.")
    ] = None


def main_export(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    options = flags.parse(Export, argv, "export")
    if options.tracking_uri and not options.mlflow:
        raise ConfigError(
            f"--tracking-uri {options.tracking_uri} needs --mlflow, which keeps the "
            "policy there."
        )
    run, seed = split_seed(options.run, options.seed)
    saved = load_run(run)
    if seed is None and len(saved.seeds) == 1:
        seed = saved.seeds[0]
    if seed not in saved.seeds:
        raise ConfigError(
            f"--seed must be a seed of the run, which has {seeds_named(saved.seeds)}, "
            f"got {seed}: a policy is that of one agent, such as "
            f"{run}:{saved.seeds[0]}."
        )
    member = saved.seeds.index(seed)
    warn(saved.seeds[member : member + 1], saved.diverged_at[member : member + 1])
    state = agent_to_device(saved.state, member)
    folder = export_policy(
        saved.config,
        state,
        options.out or run / "exported",
        sampled=options.sampled,
        onnx=options.onnx,
        batch=options.batch,
    )
    print(f"the policy of seed {seed} after update {saved.update:,} is in {folder}/")
    if options.mlflow:
        print(f"MLflow has it as {_log(run, options.tracking_uri, folder)}")
    return 0


def _log(run: Path, uri: str | None, folder: Path) -> str:
    """Keep the policy in MLflow, with the run where the store has it."""
    known = load_stored(run).get("mlflow")
    if known is None or (uri and absolute(uri) != known["options"]["uri"]):
        return log_policy(folder, uri=uri)
    return log_policy(folder, run_id=known["id"], uri=known["options"]["uri"])

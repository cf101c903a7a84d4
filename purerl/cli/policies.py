"""`purerl evaluate`, `render` and `export`: what can be done with trained policies."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console

from purerl import serialise
from purerl.cli import flags, settings
from purerl.cli.flags import RunOrAgent, option
from purerl.config import ConfigError
from purerl.export import export_policy
from purerl.report import tables
from purerl.report.evaluating import evaluate, read_agents
from purerl.report.rendering import render
from purerl.runner.arguments import seeds_named, split_seed
from purerl.runner.rows import warn
from purerl.runner.trackers.group import load_stored
from purerl.runner.trackers.mlflow import absolute, log_policy
from purerl.scale.host import agent_to_device

EVALUATE = flags.of_call(
    evaluate,
    "Play the policies of a run's last checkpoint.",
    ("what", "state"),
    run=(RunOrAgent,),
    env_params=(tuple[str, ...], ()),
)


def main_evaluate(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    options = vars(flags.parse(EVALUATE, argv, "evaluate"))
    settings.enable_compile_cache()
    numbers = flags.read_mapping("env_params", options.pop("env_params"))
    played = evaluate(
        options.pop("run"), env_params=serialise.parse_params(numbers), **options
    )
    warn(played.seeds, played.diverged_at)
    Console().print(tables.episodes_table(played))
    return 0


RENDER = flags.of_call(
    render,
    "Write a video of a run's deterministic policies, side by side.",
    (),
    run=(RunOrAgent,),
    out=(Path | None, None),
    format=(Literal["gif", "mp4", "html"] | None, None),
    seeds=(str | None, None),
)


def main_render(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    options = flags.parse(RENDER, argv, "render")
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


EXPORT = flags.of_call(
    export_policy,
    "Write the policy of a run's agent as StableHLO, and its weights.",
    ("config", "state"),
    run=(RunOrAgent,),
    out=(Path | None, None),
    seed=(Annotated[int | None, option("Seed of the agent, as in RUN:SEED.")], None),
    mlflow=(
        Annotated[bool, option("Keep the policy in MLflow too, beside its run.")],
        False,
    ),
    tracking_uri=(
        Annotated[str | None, option("Address of MLflow's store, for --mlflow.")],
        None,
    ),
)


def main_export(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    options = flags.parse(EXPORT, argv, "export")
    if options.tracking_uri and not options.mlflow:
        raise ConfigError(
            f"--tracking-uri {options.tracking_uri} needs --mlflow, which keeps the "
            "policy there."
        )
    run, _ = split_seed(options.run, None)
    agent = read_agents(options.run, seed=options.seed)
    seed = agent.seeds[0]
    if len(agent.seeds) > 1:
        raise ConfigError(
            f"--seed: a policy is that of one agent; the run has "
            f"{seeds_named(agent.seeds)}: name one, such as {run}:{seed}."
        )
    warn(agent.seeds, agent.diverged_at)
    folder = export_policy(
        agent.config,
        agent_to_device(agent.state, 0),
        options.out or run / "exported",
        sampled=options.sampled,
        onnx=options.onnx,
        batch=options.batch,
    )
    print(f"the policy of seed {seed} after update {agent.update:,} is in {folder}/")
    if options.mlflow:
        print(f"MLflow has it as {_log(run, options.tracking_uri, folder)}")
    return 0


def _log(run: Path, uri: str | None, folder: Path) -> str:
    """Keep the policy in MLflow, with the run where the store has it."""
    known = load_stored(run).get("mlflow")
    if known is None or (uri and absolute(uri) != known["options"]["uri"]):
        return log_policy(folder, uri=uri)
    return log_policy(folder, run_id=known["id"], uri=known["options"]["uri"])

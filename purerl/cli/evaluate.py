"""`purerl evaluate`: play the policies that a run saved."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated

from rich.console import Console

from purerl import serialise
from purerl.cli import flags, settings
from purerl.cli.flags import AgentSeed, EpisodeSeed, RunOrAgent, option
from purerl.report import tables
from purerl.report.evaluating import evaluate
from purerl.report.rendering import EPISODE_SEED
from purerl.runner.rows import warn


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


def main(argv: Sequence[str]) -> int:
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

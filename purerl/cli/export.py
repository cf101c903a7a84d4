"""`purerl export`: a run's policy for programs without purerl."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from purerl.cli import flags
from purerl.cli.flags import AgentSeed, RunOrAgent, option
from purerl.config import ConfigError
from purerl.export import export_policy
from purerl.runner.arguments import seeds_named, split_seed
from purerl.runner.result import load_run
from purerl.runner.rows import warn
from purerl.runner.trackers.group import load_stored
from purerl.runner.trackers.mlflow import absolute
from purerl.runner.trackers.mlflow_model import log_policy
from purerl.scale.host import agent_to_device


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


def main(argv: Sequence[str]) -> int:
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

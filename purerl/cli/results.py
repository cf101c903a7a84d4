"""What can be done with results: evaluate, render, export, report, plot, track."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console

from purerl import serialise
from purerl.cli import flags, settings
from purerl.cli.flags import Repeated, RunOrAgent
from purerl.config import ConfigError
from purerl.export import export_policy
from purerl.report import plots, tables
from purerl.report.folder import look
from purerl.report.folder import track as send
from purerl.report.page import folder_page
from purerl.report.playing import evaluate, read_agents, render
from purerl.report.sweep_data import ENV, environments
from purerl.runner.arguments import seeds_named, split_seed
from purerl.runner.options import read_trackers
from purerl.runner.rows import warn
from purerl.runner.trackers.group import load_stored
from purerl.runner.trackers.mlflow import absolute, log_policy
from purerl.scale.host import agent_to_device
from purerl.storage import folders as kinds

EVALUATE = flags.of_call(
    evaluate, ("what", "state"), run=(RunOrAgent,), env_params=(tuple[str, ...], ())
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


@flags.command
def main_export(
    run: RunOrAgent,
    out: Path | None = None,
    seed: int | None = None,
    sampled: bool = False,
    onnx: bool = False,
    batch: int | None = None,
    mlflow: bool = False,
    tracking_uri: str | None = None,
) -> None:
    """Write the policy of a run's agent as StableHLO, and its weights.

    Args:
        run: Folder of a run, or one of its agents.
        out: Folder to write; RUN/exported if not given.
        seed: Seed of the agent, as in RUN:SEED.
        sampled: Write the stochastic policy too, which takes a random key.
        onnx: Write the policy as ONNX too, which takes pip install 'purerl[onnx]'.
        batch: Number of observations that the policy takes at once; any if not given.
        mlflow: Keep the policy in MLflow too, beside its run.
        tracking_uri: Address of MLflow's store, for --mlflow.
    """
    if tracking_uri and not mlflow:
        raise ConfigError(f"--tracking-uri {tracking_uri} needs --mlflow.")
    folder, agent = split_seed(run, None)[0], read_agents(run, seed=seed)
    first = agent.seeds[0]
    if len(agent.seeds) > 1:
        raise ConfigError(
            f"--seed: a policy is that of one agent; the run has "
            f"{seeds_named(agent.seeds)}: name one, such as {folder}:{first}."
        )
    warn(agent.seeds, agent.diverged_at)
    state, out = agent_to_device(agent.state, 0), out or folder / "exported"
    options = {"sampled": sampled, "onnx": onnx, "batch": batch}
    out = export_policy(agent.config, state, out, **options)
    print(f"the policy of seed {first} after update {agent.update:,} is in {out}/")
    if mlflow:
        print(f"MLflow has it as {_log(folder, tracking_uri, out)}")


def _log(run: Path, uri: str | None, folder: Path) -> str:
    """Keep the policy in MLflow, with the run where the store has it."""
    known = load_stored(run).get("mlflow", {})
    store = known.get("options", {}).get("uri")
    is_there = uri is None or absolute(uri) == store
    # A run of MLflow whose rows no longer hold has no identity here.
    id = known.get("id") if is_there else None
    return log_policy(folder, run_id=id, uri=uri or store)


# Pages and pictures.


@flags.command
def main_report(folder: tyro.conf.Positional[Path], out: Path | None = None) -> None:
    """Write the page of whatever a folder holds, also while it goes on.

    Args:
        folder: Folder to write of.
        out: Page to write; FOLDER/report.html if not given.
    """
    print(f"written to {folder_page(folder, out)}")


def end(out: Path | None, *sentences: str) -> None:
    """Write the page of what a tool has written, and print where everything is.

    Args:
        out: The folder, if there is one.
        *sentences: Sentences that are printed before.
    """
    where = []
    if out is not None:
        where = [f"written to {out}/; in Python purerl.load({str(out)!r})"]
        try:
            folder_page(out)
            where = [where[0].replace(";", ", with report.html;", 1)]
        except ConfigError as error:  # There is nothing yet.
            where.insert(0, str(error))
    text = "\n".join((*sentences, *where))
    Console().print(text, highlight=False, soft_wrap=True, markup=False)


@flags.command
def main_plot(
    folders: tyro.conf.Positional[tuple[str, ...]],
    metric: Repeated = (),
    iqm: bool = False,
    columns: int | None = None,
    out: Path | None = None,
) -> None:
    """Draw the curves of folders from their files, also while they are written.

    Args:
        folders: Folder of anything, or NAME=FOLDER. Several runs, sweeps (of which the
            best point is drawn) and comparisons come into one picture, a panel per
            environment; the legend has the name that is given, or the folder's.
        metric: Metric of runs or sweeps to draw in place of the returns; of one folder
            it may be repeated. An unknown name is answered with the names of all
            metrics.
        iqm: Draw the interquartile mean over seeds, not the mean.
        columns: Columns of a paper that the picture is wide, 1 or 2; its title goes
            into the caption.
        out: Picture to write, .pdf, .svg or .png; FOLDER/curve.png if not given, or
            FOLDER/METRIC.png; for several folders curves.png here.
    """
    if not folders:
        raise ConfigError("folders: name the folder of a result.")
    name = "-".join(metric).replace("/", "-")
    with nullcontext() if columns is None else plots.paper(columns):
        if len(folders) == 1 and not iqm:
            folder = _named(folders[0])[1]
            path = out or folder / f"{name or 'curve'}.png"
            picture = draw(folder, metric)
        else:
            path = out or Path(f"{name or 'curves'}.png")
            picture = draw_several(folders, metric, iqm)
    try:
        picture.save(path)
    except (OSError, ValueError) as error:  # ValueError: a name without a stem
        why = f"out: cannot write the picture {path} ({error})"
        raise ConfigError(f"{why}. Give a .pdf, .svg or .png.") from None
    print(f"written to {path}")
    if columns is not None:
        print(f"caption: {picture.figure.get_label()}")


def draw(folder: Path, metrics: Sequence[str] = ()) -> plots.Picture:
    """Draw the learning curves of whatever a folder holds, or metrics of it.

    Raises:
        ConfigError: there is nothing yet, or no such metric.
    """
    kind = kinds.kind_of(folder)
    if metrics and kind not in ("run", "sweep"):
        held = f"{folder} holds {kinds.words_of(kind)}"
        raise ConfigError(f"metric: {held}; metrics are drawn of a run or a sweep.")
    result = look(folder)
    if not metrics:
        return result.plot()
    if kind == "run":
        return plots.metric_curves(result, metrics)
    # Several environments have no best configurations in common, but one each.
    by = ENV if len(environments(result.dataset)) > 1 else None
    return plots.sweep_curves(result.dataset, by, metric=metrics)


def draw_several(
    given: Sequence[str], metrics: Sequence[str], iqm: bool
) -> plots.Picture:
    """Draw the curves of several folders into one picture, a panel per environment.

    Raises:
        ConfigError: two of one name in one environment, a folder without curves of
            returns, more than one metric.
    """
    if len(metrics) > 1:
        raise ConfigError("metric: of several folders one metric is drawn; give one.")
    results, metric = [(n, look(x)) for n, x in map(_named, given)], [*metrics, None][0]
    return plots.curves(results, "iqm" if iqm else "mean", metric=metric)


def _named(text: str) -> tuple[str, Path]:
    """The name in a legend and the folder, of `NAME=FOLDER` or of a folder."""
    name, _, folder = text.rpartition("=")
    if not name or Path(text).exists():
        return Path(text).resolve().name, Path(text)
    return name, Path(folder)


@flags.command
def main_track(
    folder: tyro.conf.Positional[Path],
    track: Repeated = (),
    tracking_uri: str | None = None,
) -> int:
    """Send the rows and files that trackers lack of a run, sweep or evolution.

    Args:
        folder: Folder of a run, sweep, search or comparison.
        track: Tracker to send to, tensorboard, mlflow or wandb; may be repeated. If not
            given, those that have been told of the folder before.
        tracking_uri: Address of MLflow's store; the one before if not given.
    """
    is_whole = send(folder, read_trackers(track, tracking_uri))
    return 0 if is_whole else 1

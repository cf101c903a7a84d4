"""The command line: `purerl COMMAND`, one of `COMMANDS`."""

import argparse
import errno
import importlib
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence

from purerl.execution.format import say

COMMANDS = {
    "train": "train agents and write a run's folder",
    "sweep": "train many settings and seeds: grids, zips, random draws",
    "pbt": "train a population whose worst members copy and perturb the best",
    "halving": "train many settings, dropping the worst early: Hyperband",
    "tune": "search for better settings with Optuna",
    "evolve": "evolve a loss, hyperparameters or the physics of an environment",
    "compare": "compare settings, losses or algorithms on held-out seeds",
    "evaluate": "play a run's saved policies, also in the real Gymnasium",
    "render": "write a video of a run's agents",
    "export": "write a run's policy for programs without purerl",
    "report": "write the page of a run, sweep, study, evolution or comparison",
    "track": "send MLflow, TensorBoard or W&B what they missed of a folder",
    "plan": "say what training would take, here or on a GPU that is not here",
    "lanes": "measure which width of blocks trains fastest here",
    "plot": "draw a run's learning curves",
    "envs": "list the environments, or describe one",
    "doctor": "say what this machine has and what purerl will use",
}

EXAMPLES = {
    "train": "purerl train --env Acrobot-v1 --seeds 4 --out runs/first",
    "sweep": "purerl sweep --axis learning_rate=1e-4,3e-4,1e-3 --seeds 4",
    "pbt": "purerl pbt --axis 'learning_rate=loguniform(1e-5,1e-2)' --population 16",
    "halving": "purerl halving --axis 'learning_rate=loguniform(1e-5,1e-2)'",
    "tune": "purerl tune --axis 'learning_rate=loguniform(1e-5,1e-2)' --trials 64",
    "evolve": "purerl evolve --preset value-loss-cartpole-demo",
    "compare": "purerl compare --setting own: --setting 'fast: learning_rate=1e-3'",
    "evaluate": "purerl evaluate runs/first --episodes 100",
    "render": "purerl render runs/first --seeds best",
    "export": "purerl export runs/first --seed 0 --onnx",
    "report": "purerl report runs/first",
    "track": "purerl track runs/first --track mlflow",
    "plan": "purerl plan --preset ppo-brax --device h100",
    "lanes": "purerl lanes --preset ppo-cartpole",
    "plot": "purerl plot runs/first --metric entropy",
    "envs": "purerl envs CartPole-v1",
    "doctor": "purerl doctor",
}

# The commands of each module, there as `main_NAME`.
MODULES = {
    "train": ("train", "plan", "lanes"),
    "tools": ("sweep", "pbt", "halving", "tune", "evolve", "compare"),
    "results": ("evaluate", "render", "export", "report", "track", "plot"),
    "about": ("envs", "doctor"),
}

IMPORT = (
    "--import MODULE imports a module of your own first, which registers environments, "
    "losses and other parts; it may be repeated, and PURERL_IMPORT=MODULE,... does the "
    "same."
)

CLOSED_PIPE = 128 + 13  # The status of a process that SIGPIPE has ended.
STOPPED = 128 + 2  # That of one which Ctrl-C, or a tracker, has stopped.


def usage() -> str:
    """Return what `purerl --help` prints."""
    rows = "\n".join(f"  {name:<10} {text}" for name, text in COMMANDS.items())
    return (
        "usage: purerl COMMAND [options]\n\n"
        "End-to-end jitted reinforcement learning in JAX.\n\n"
        f"commands:\n{rows}\n\n"
        "options of every command:\n"
        f"{textwrap.fill(IMPORT, 80, initial_indent='  ', subsequent_indent='  ')}\n\n"
        "purerl COMMAND --help tells a command's options. First try: purerl train\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status.

    A mistake in what was asked prints one sentence and gives 2. Where nobody reads what
    is printed any more, as after `| head`, the command ends as others do then.
    """
    try:
        return _run(argv)
    except BrokenPipeError:
        # Python flushes it again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE


def _run(argv: Sequence[str] | None) -> int:
    args, modules = _take_imports(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help"):
        print(usage(), end="")
        return 0 if args else 2
    name, rest = args[0], args[1:]
    if name in ("-V", "--version", "version"):
        import purerl

        print(f"purerl {purerl.__version__}")
        return 0
    if name not in COMMANDS:
        print(
            f"purerl: there is no command {name!r}; commands: {', '.join(COMMANDS)}.",
            file=sys.stderr,
        )
        return 2
    # Before JAX is imported: all numbers of training have 32 bits (`purerl.precision`).
    os.environ.pop("JAX_ENABLE_X64", None)
    from purerl.execution.format import running
    from purerl.runner.interrupt import commanded

    with running(list(modules), args), commanded() as stopped:
        status = _call(name, rest, modules)
        return stopped() if status == STOPPED else status


def _take_imports(argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The words without every `--import`, and the modules to import.

    Each module is a key, whose value is the flag or the variable that names it.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--import", action="append", default=[], dest="modules")
    given, rest = parser.parse_known_args(argv)
    texts = [("--import", text) for text in given.modules]
    if os.environ.get("PURERL_IMPORT", "").strip():
        texts.insert(0, ("PURERL_IMPORT", os.environ["PURERL_IMPORT"]))
    named = {name.strip(): flag for flag, text in texts for name in text.split(",")}
    return rest, named


def _call(name: str, rest: Sequence[str], modules: Mapping[str, str]) -> int:
    from purerl.config import ConfigError
    from purerl.runner.interrupt import heard

    try:
        if modules:
            # They come first: flags and their help list the names that there are.
            importlib.import_module("purerl.cli.settings").load(modules)
        module = next(module for module, names in MODULES.items() if name in names)
        commands = importlib.import_module(f"purerl.cli.{module}")
        with heard():
            status = getattr(commands, f"main_{name}")(rest)
        sys.stdout.flush()
        return status
    except ConfigError as error:
        say(f"purerl {name}: {error}")
        return 2
    except OSError as error:
        what = f"cannot use {error.filename} ({error.strerror})."
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            what = f"the disk is full ({error.strerror}). What was written is whole."
        elif error.filename is None:  # It is no file's fault: show where it came from.
            raise
        say(f"purerl {name}: {what}")
        return 2
    except KeyboardInterrupt as stop:
        cause = f" ({stop.__cause__!r})" if stop.__cause__ else ""
        say(f"purerl {name}: stopped{cause}")
        return STOPPED
    except (RuntimeError, AssertionError) as error:
        from purerl.cli.settings import backend_problem

        problem = backend_problem(error)
        if problem is None:
            raise
        say(f"purerl {name}: {problem} purerl doctor says more.")
        return 2

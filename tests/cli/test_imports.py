"""Modules of the user's own that commands import: `--import` and PURERL_IMPORT."""

import os
import subprocess
import sys

import pytest

from purerl import envs, schedules
from purerl.cli import main
from purerl.execution.format import command_line, program, running
from purerl.runner import manifest
from purerl.runner.trackers.base import TRACKERS
from purerl.scale.devices import num_cores
from tests.helpers import tiny_config

MINE = """
import flax.struct
from purerl import envs
from purerl import schedules
from purerl.runner.trackers import Tracker
from purerl.runner.trackers.base import TRACKERS, Entry

class Leaning(type(envs.make("CartPole-v1"))):
    "A pole of my own."

@flax.struct.dataclass
class Sinking(schedules.Schedule):
    start: float = 1e-3

    def __call__(self, share):
        return self.start * (1 - share)

class Told(Tracker):
    name = "told"

    def log(self, member, step, row):
        with open("told.txt", "a") as file:
            file.write(f"{row['kind']} {member}\\n")

TRACKERS["told"] = Entry("poles", "Told")
envs.register("Leaning-v0", Leaning)
schedules.register("Sinking", Sinking)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with `poles.py`, whose names are forgotten afterwards."""
    (tmp_path / "poles.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PURERL_IMPORT", raising=False)
    monkeypatch.setattr(sys, "path", [x for x in sys.path if x])
    monkeypatch.setattr(envs.registry, "_ENTRIES", dict(envs.registry._ENTRIES))
    before = set(sys.modules)
    names = [(table, dict(table)) for table in (schedules.SCHEDULES, TRACKERS)]
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    for table, known in names:
        for name in set(table) - set(known):
            del table[name]


def run(*words, **variables):
    """Run a command in a process of its own, without the working directory in it."""
    code = "import sys; from purerl.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-P", "-c", code, *words]
    env = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, env=env)


@pytest.mark.parametrize(
    "words",
    [
        ["envs", "Leaning-v0", "--import", "poles"],
        ["envs", "--import=poles", "Leaning-v0"],
        ["--import", "json, poles", "envs", "Leaning-v0"],
        ["--import", "json", "envs", "--import", "poles", "Leaning-v0"],
    ],
)
def test_a_command_imports_a_module_of_the_working_directory(words, here, capsys):
    assert main(words) == 0
    assert "Leaning-v0 (registered): A pole of my own." in capsys.readouterr().out


def test_the_variable_names_modules_too(here, monkeypatch, capsys):
    monkeypatch.setenv("PURERL_IMPORT", "json,poles")
    assert main(["envs", "Leaning-v0"]) == 0
    assert "A pole of my own." in capsys.readouterr().out


def test_a_run_with_parts_of_the_users_goes_on_and_is_played(here, capsys):
    short = "--algorithm vpg --total-timesteps 256 --num-envs 4 --num-steps 16"
    short += " --hidden-sizes 4 --num-evaluations 0"
    train = "--env Leaning-v0 --learning-rate Sinking(1e-2) --out run --no-progress"
    known = ["--import", "poles"]

    started = run("train", *train.split(), *short.split(), "--track", "told", *known)
    assert started.returncode == 0, started.stderr
    assert "train 0\n" in (here / "told.txt").read_text()
    assert main(["evaluate", "run"]) == 2
    told = capsys.readouterr().err
    assert "--import MODULE imports the module that does so" in told
    assert main(["evaluate", "run", "--episodes", "2", *known]) == 0
    assert "Leaning-v0: 2 episodes" in capsys.readouterr().out
    assert main(["train", "--resume", "run", *known]) == 0
    told = capsys.readouterr().out
    assert "purerl --import poles train --resume run --extend" in told


def test_a_module_that_computes_too_early_is_told_so(here):
    (here / "early.py").write_text("import jax.numpy as jnp\nONES = jnp.ones(3) * 2\n")
    words = ["train", "--data-parallel", "--dry-run", "--import", "early"]
    done = run(*words, JAX_NUM_CPU_DEVICES=str(num_cores() + 1))
    assert done.returncode == 2
    assert "also of a module that a command imports (--import)" in done.stderr


def test_an_environment_that_nobody_has_registered_names_the_flag(here, capsys):
    for words in (
        ["envs", "Leaning-v0"],
        ["train", "--dry-run", "--env", "Leaning-v0"],
    ):
        assert main(words) == 2
        told = capsys.readouterr().err
        assert "'Leaning-v0' is not registered" in told
        assert "--import MODULE imports the module that does so" in told


@pytest.mark.parametrize(
    "name, fragment",
    [
        ("nowhere", "--import: there is no module 'nowhere'; it must be installed, or"),
        ("poles.py", "takes the name of a module as Python imports it"),
        ("", "takes the name of a module as Python imports it"),
        ("envs", "for 'envs', and not envs.py in the working directory"),
        ("fails", "'fails' failed while it was imported (ZeroDivisionError: division"),
        ("lacks", "'lacks' failed while it was imported (ModuleNotFoundError: No mod"),
    ],
)
def test_a_module_that_cannot_be_imported_is_a_sentence(name, fragment, here, capsys):
    (here / "envs.py").write_text("")
    (here / "fails.py").write_text("def divide():\n    return 1 / 0\n\ndivide()\n")
    (here / "lacks.py").write_text("import nowhere\n")
    assert main(["envs", "--import", name]) == 2
    told = capsys.readouterr().err
    assert fragment in told.splitlines()[-1]
    # What is wrong inside of it is shown with its place.
    assert ("Traceback" in told) == (name in ("fails", "lacks"))
    if name == "fails":
        assert f'{here}/fails.py", line 2, in divide' in told


def test_the_variable_is_named_where_it_is_wrong(here, monkeypatch, capsys):
    monkeypatch.setenv("PURERL_IMPORT", "nowhere")
    assert main(["envs"]) == 2
    assert "envs: PURERL_IMPORT: there is no module" in capsys.readouterr().err


def test_printed_commands_import_what_the_command_has_imported(here):
    config = tiny_config()
    envs.register("Own-v0", type(envs.make("CartPole-v1")))
    own = config.replace(env="Own-v0")
    run = here / "a run"
    assert "from Python" in manifest.how_to_go_on(own, run)
    with running(["poles", "more.parts"], []):
        start = "purerl --import poles --import more.parts"
        assert command_line("sweep", "--axis", "a=1 2") == (
            f"{start} sweep --axis 'a=1 2'"
        )
        told = manifest.how_to_go_on(own, run)
        assert told == f"Go on with: {start} train --resume '{run}'"
    assert program() == "purerl"

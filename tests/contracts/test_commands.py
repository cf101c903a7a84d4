"""The command that wrote a folder is what its page shows, whoever writes the page."""

import html

import pytest

from purerl.cli import main
from purerl.execution.format import running, this_command
from purerl.storage import folders

TINY = (
    "--total-timesteps 640 --num-envs 2 --num-steps 16 --num-minibatches 2 "
    "--hidden-sizes 4 --num-evaluations 1 --eval-episodes 2 --no-progress"
).split()
RATE = "--axis learning_rate=loguniform(1e-4,1e-2)"
COMMANDS = {
    "train": [],
    "sweep": "--axis learning_rate=1e-3,1e-2".split(),
    "pbt": f"{RATE} --population 2".split(),
    "halving": f"{RATE} --eta 2 --min-updates 5 --points 2 --brackets one "
    "--searches 1".split(),
    "tune": "--axis learning_rate=1e-3,1e-2 --trials 2 --seeds 1 --pruner none".split(),
    "evolve": "--evolve learning_rate --population 2 --generations 1 "
    "--rollouts 1".split(),
    "compare": ["--setting", "fast: learning_rate=1e-2", "--seeds", "2"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_shows_the_command_that_trained(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [command, *COMMANDS[command], *TINY, "--out", "a b"]
    assert main(words) == 0
    with running([], words):
        expected = html.escape(this_command())
    assert main(["report", "a b", "--out", "again.html"]) == 0
    pages = [tmp_path / "again.html", *tmp_path.glob("a b/report.html")]
    for page in pages:
        text = page.read_text()
        assert expected in text and "purerl report" not in text, page


def test_going_on_keeps_the_first_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *TINY, "--out", "run"]) == 0
    first = folders.load(tmp_path / "run")["command"]
    assert first.startswith("purerl train --total-timesteps 640")
    words = ["train", "--resume", "run", "--extend", "1e3", "--no-progress"]
    assert main(words) == 0
    assert folders.load(tmp_path / "run")["command"] == first


def test_passwords_and_notebooks(monkeypatch):
    words = ["tune", "--storage", "postgresql://me:secret@host/db"]
    with running(["mine"], words):
        told = this_command()
    assert told.startswith("purerl --import mine tune") and "secret" not in told
    monkeypatch.setattr("sys.argv", ["train.py", "--x", "a b"])
    assert this_command() == "python train.py --x 'a b'"
    for program in ("/x/ipykernel_launcher.py", "-c", ""):
        monkeypatch.setattr("sys.argv", [program])
        assert this_command() == ""

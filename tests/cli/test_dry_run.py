"""Every command that trains says what it would cost, and trains nothing."""

import re
from pathlib import Path

import pytest

import purerl
from purerl.cli import MODULES, main
from purerl.execution import dry_run
from purerl.storage.files import write_json

TINY = [
    *("--total-timesteps", "640", "--num-envs", "2", "--num-steps", "16"),
    *("--num-epochs", "2", "--num-minibatches", "2", "--hidden-sizes", "8"),
    *("--num-evaluations", "0"),
]
HALVING = [
    *("--eta", "2", "--min-updates", "5", "--points", "4"),
    *("--brackets", "one", "--searches", "1"),
]
AXIS = ["--axis", "learning_rate=loguniform(1e-4,1e-2)"]


@pytest.mark.parametrize(
    ("args", "agents", "steps"),
    [
        pytest.param(["train", "--seeds", "16"], 16, "10.2k", marks=pytest.mark.slow),
        (["pbt", *AXIS, "--population", "8", "--searches", "2"], 16, "10.2k"),
        # 4 up to update 5, 2 up to 10, 1 up to 20: 4 x 5 + 2 x 5 + 10 updates of 32.
        (["halving", *AXIS, *HALVING], 4, "1.28k"),
        # 5 trials with 4 seeds, and twice 10 fresh seeds; a batch is 8 trials.
        (["tune", *AXIS, "--trials", "5", "--seeds", "4"], 32, "25.6k"),
        (["compare", "--setting", "a:", "--seeds", "16"], 16, "10.2k"),
    ],
)
def test_a_dry_run_says_what_it_would_cost(
    args, agents, steps, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main([*args, *TINY, "--lanes", "2", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert f"{agents} agents, CartPole-v1: {steps} environment steps at " in out
    rate = re.search(r"at ([\d.]+)k? steps/s \(measured with 2 workers and 2", out)
    assert rate is not None
    assert re.search(r"about \d+:\d\d of training here", out)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [["pbt"], ["halving", *HALVING], ["tune"]])
def test_a_dry_run_refuses_the_axes_that_training_refuses(command, capsys):
    args = [*command, *TINY, "--dry-run"]
    assert main([*args, "--axis", "learning_rat=1e-3,1e-2"]) == 2
    assert "no field 'learning_rat'. Did you mean" in capsys.readouterr().err
    assert main(args) == 2
    told = capsys.readouterr().err
    assert "needs at least one axis, got none" in told and '--axis "' in told
    if command != ["tune"]:
        assert main([*args, "--axis", "optimiser=Adam,SGD"]) == 2
        assert "a population shares one" in capsys.readouterr().err


@pytest.mark.slow
def test_time_is_that_of_all_environments(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(dry_run, "rate", lambda *args: 10.0)
    monkeypatch.chdir(tmp_path)
    settings = ["--setting", "slow: gamma=0.9", "--setting", "fast: gamma=0.8"]
    envs = ["--environment", "CartPole-v1", "--environment", "probe/constant-reward"]
    command = ["compare", *settings, "--seeds", "4", *envs, *TINY, "--lanes", "2"]
    command.append("--dry-run")
    assert main(command) == 0
    out = capsys.readouterr().out
    # Two environments, two settings, four seeds, 640 steps, ten in a second.
    assert out.count("8 agents, ") == 2
    assert "about 17:04 of training here, compilation apart" in out


OTHERS = {
    "train": ["train"],
    "sweep": ["sweep", "--axis", "learning_rate=[1e-3]"],
    "pbt": ["pbt", *AXIS],
    "halving": ["halving", *AXIS, *HALVING],
    "tune": ["tune", *AXIS],
    "evolve": ["evolve", "--evolve", "learning_rate"],
    "compare": ["compare", "--setting", "a: gamma=0.9"],
}


@pytest.mark.parametrize("command", OTHERS)
def test_a_dry_run_refuses_a_folder_of_something_else(command, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    write_json(out / "manifest.json", {"kind": "schedules"})
    args = [*OTHERS[command], *TINY, "--dry-run", "--out", str(out)]
    assert main(args) == 2
    assert f"{out} holds agents trained with schedules" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "flags", "sentence"),
    [
        ("train", ["--seeds", "2", "--first-seed", "4294967295"], "2^32 - 1, got"),
        ("train", ["--track", "wandb", "--track", "wandb"], "names 'wandb' twice"),
        ("train", ["--tracking-uri", "http://host"], "address of MLflow's store"),
        ("train", ["--lanes", "0"], "lanes must be a positive whole number, got 0"),
        ("pbt", ["--quantile", "0.7"], "quantile must be a number between 0 and 0.5"),
        ("pbt", ["--extend"], "--extend goes on with what a folder holds"),
        ("halving", ["--segment-updates", "2"], "must divide min_updates = 5"),
        ("tune", ["--sampler-seed", "-1"], "seed must be a whole number from 0 to"),
        ("evolve", ["--rollouts", "0"], "rollouts must be a positive"),
        ("evolve", ["--checkpoint-seconds", "-1"], "a number of seconds, 0 or more"),
        ("compare", ["--memory-limit", "xyz"], "memory_limit must be a positive numb"),
        *((one, ["--track", "nothere"], "no tracker 'nothere'") for one in OTHERS),
    ],
)
def test_a_dry_run_refuses_the_options_that_training_refuses(
    command, flags, sentence, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for more in (["--dry-run"], []):
        assert main([*OTHERS[command], *TINY, *flags, *more]) == 2
        assert sentence in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.json"))


def test_every_plan_is_among_these():
    folder = Path(purerl.__file__).parent / "cli"
    texts = {home: (folder / f"{home}.py").read_text() for home in MODULES}
    plans = {home for home, text in texts.items() if "parsed.dry_run" in text}
    # A plan is the dry run of a training, and lanes are measured.
    names = {name for home in plans for name in MODULES[home]}
    assert names == {*OTHERS, "plan", "lanes"}

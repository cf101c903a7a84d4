import dataclasses
import errno
import json
import shlex
import shutil

import pytest

import purerl
import purerl.cli
from purerl import presets, serialise
from purerl.cli import COMMANDS, EXAMPLES, flags, main
from purerl.execution import dry_run
from purerl.storage.files import read_json, write_json
from tests.helpers import tiny_config

RUN = ("--lanes", "2", "--segment-updates", "3", "--no-progress")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def config_file(folder):
    path = folder / "tiny.yaml"
    serialise.to_yaml(tiny_config(), path)
    return str(path)


@pytest.fixture(scope="module")
def trained(folder, config_file):
    out = folder / "run"
    args = ["train", "--config", config_file, "--seeds", "3", "--out", str(out), *RUN]
    assert main(args) == 0
    return out


def test_train_writes_everything_that_it_promises(trained):
    names = {path.name for path in trained.iterdir()}
    assert names == {
        "config.yaml",
        "manifest.json",
        "metrics",
        "checkpoints",
        "curve.png",
        "summary.json",
    }
    summary = json.loads((trained / "summary.json").read_text())
    assert summary["agents"] == 3
    assert summary["env_steps"] == 3 * 640
    returns = purerl.load(trained).evaluation["episode_return"][:, -1].mean(-1)
    assert summary["evaluation_per_seed"] == [float(x) for x in returns]  # all digits
    assert (trained / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_dry_run_reads_the_agents_to_begin_with(
    trained, config_file, monkeypatch, capsys
):
    monkeypatch.setattr(dry_run, "rate", lambda *args: 10.0)
    train = ["train", "--config", config_file, "--dry-run", "--seeds", "3"]
    assert main([*train, "--from", str(trained / "no")]) == 2
    assert f"there is no folder {trained / 'no'}" in capsys.readouterr().err
    assert main([*train, "--from", f"{trained}:7"]) == 2
    assert "has no agent of seed 7" in capsys.readouterr().err
    assert main([*train, "--from", str(trained), "--hidden-sizes", "5"]) == 2
    assert "this agent needs" in capsys.readouterr().err
    assert main([*train, "--from", str(trained), "--total-timesteps", "960"]) == 0
    assert "3 agents, CartPole-v1: 2.88k env" in capsys.readouterr().out


def test_envs_lists_and_describes(capsys):
    assert main(["envs"]) == 0
    listing = capsys.readouterr().out
    assert "Doors-v0" in listing and "Pendulum-v1" in listing
    assert main(["envs", "CartPole-v1"]) == 0
    about = capsys.readouterr().out
    assert "masspole" in about and "Discrete(2)" in about


def test_doctor_says_what_will_be_used(capsys):
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    for word in ("jax", "devices", "workers", "lanes", "compile cache"):
        assert word in text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command(command, capsys):
    with pytest.raises(SystemExit) as exit_:
        main([command, "--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    assert f"usage: purerl {command}" in text
    if command == "train":
        for name in ("learning-rate", "policy-loss", "num-envs", "torso"):
            assert f"--{name}" in text
        assert "Step size of the optimiser." in text


EMPTY = [
    *(["train", flag, ""] for flag in ("--out", "--resume", "--config")),
    *(["sweep", "--out="], ["plot", ""], ["evaluate", ""]),
]


@pytest.mark.parametrize(
    ("args", "fragment"),
    [
        (["trian"], "there is no command 'trian'"),
        (["train", "--preset", "ppo-minatr"], "Did you mean 'ppo-minatar'"),
        (["train", "--algorithm", "pppo"], "Did you mean 'ppo'"),
        (["train", "--env", "CartPole-v2"], "CartPole-v1"),
        (["train", "--learning-rate", "-1"], "learning_rate must be greater than 0"),
        (["train", "--learning-rate", "nan"], "learning_rate must be finite"),
        (["train", "--env-params", "lenght=1"], "Did you mean 'length'"),
        (["train", "--env-params", "length"], "takes name=value"),
        (["train", "--policy-loss", "Clip(0.2"], "cannot read the loss"),
        (["train", "--policy-loss", "Clip(0.2)"], "Did you mean 'ClipDrift'?"),
        (["train", "--config", "missing.yaml"], "cannot read the config"),
        (["train", "--resume", "missing"], "there is no folder missing"),
        (["train", "--resume", "x", "--seeds", "2"], "--seeds cannot be given with"),
        (["train", "--env-params", "max_steps_in_episode=0.7"], "a number of steps"),
        (["train", "--env-params", "length=[1"], "cannot read the value"),
        (["train", "--seeds", "0"], "seeds must be"),
        (["evaluate", "x", "--episode-seed", "-1"], "episode_seed must be a whole n"),
        (["evaluate", "missing"], "there is no folder missing"),
        (["plot", "missing"], "there is no folder missing"),
        (["train", "--algorithm", "SAC"], "Did you mean 'sac'"),
        (["train", "--lr", "1e-3"], "no flag --lr; it is called --learning-rate here"),
        (["sweep", "--clip_eps=0.1"], "it is called policy_loss.clip_eps here"),
        (["plot", __file__], "test_commands.py is a file; give the folder of a run"),
        (["sweep", "--axis", "seed=1,2"], "Seeds belong to a call: purerl.run(config"),
        (["plot"], "folders: name the folder of a result"),
        (["envs", "Dors-v0"], "Doors-v0"),
        (["train", "--preset", "a", "--config", "b"], "not both"),
        (["sweep", "--axis", "learning_rate"], "--axis takes NAME=VALUES"),
        (["sweep", "--axis", "gamma=0.9", "--axis", "gamma=1"], "gamma is given twice"),
        (["sweep", "--axis", "gama=0.9"], "no field 'gama'. Did you mean 'gamma'"),
        (["sweep", "--lanes", "0"], "lanes must be a positive"),
        (["sweep", "--memory-limit", "some"], "memory_limit must be a positive number"),
        (["sweep", "--design", "random"], "needs num_points"),
        (["sweep", "--coordinator", "localhost:1"], "host:port of process 0"),
        *((args, "is empty") for args in EMPTY),
        (["train", "--optimiser", "Adma"], "Did you mean 'Adam'?"),
        (["train", "--learning-rate", "Linea(1)"], "Did you mean 'Linear'"),
        (["train", "--learning-rate", "cosine"], "is written with its numbers, such"),
        (
            ["train", "--learning-rate", "Linear(1, 0, start=1)"],
            "was given start twice",
        ),
        (
            ["train", "--value-loss", "MLPValueLoss((8,), hidden_sizes=(4,))"],
            "was given hidden_sizes twice; leave one out",
        ),
        (
            ["pbt", "--algorithm", "sac", "--axis", "temperature_init=uniform(0.1,1)"],
            "a population changes its numbers",
        ),
        (["compare", "--setting", "a: gama=1"], "PPOConfig has no field 'gama'"),
        (
            ["train", "--preset", "ppo-doors", "--algorithm", "dqn"],
            "--algorithm dqn contradicts --preset ppo-doors, whose algorithm is ppo",
        ),
    ],
)
def test_mistakes_print_one_sentence_and_exit_with_2(
    args, fragment, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(args) == 2
    error = capsys.readouterr().err
    assert fragment in error
    assert "Traceback" not in error
    assert error.startswith("purerl")
    assert not list(tmp_path.iterdir())


def test_a_picture_that_cannot_be_written_is_a_sentence(trained, capsys):
    # A file and nothing where a folder should be: refused for root too.
    for folder in (trained / "config.yaml", trained / "nowhere"):
        assert main(["plot", str(trained), "--out", str(folder / "x.png")]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"purerl plot: out: cannot write the picture {folder}")
        assert "Give a .pdf, .svg or .png." in error


def test_a_plot_needs_nothing_that_only_the_run_had_registered(trained, folder):
    copy = shutil.copytree(trained, folder / "of-another-program")
    path = copy / "manifest.json"
    stored = read_json(path, "")
    stored["config"] |= {"algorithm": "mine", "policy_loss": {"type": "Mine"}}
    write_json(path, stored)
    assert main(["plot", str(copy), "--out", str(folder / "theirs.png")]) == 0
    assert main(["evaluate", str(copy)]) == 2  # a sentence: it cannot be rebuilt


def test_a_file_that_cannot_be_used_is_a_sentence(monkeypatch, capsys):
    def refuse(argv):
        raise PermissionError(errno.EACCES, "Permission denied", "runs/x/metrics")

    monkeypatch.setattr("purerl.cli.about.main_envs", refuse)
    assert main(["envs"]) == 2
    expected = "purerl envs: cannot use runs/x/metrics (Permission denied).\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_loads_and_round_trips(name):
    config = presets.load(name)
    assert serialise.from_dict(serialise.to_dict(config)) == config


def test_train_begins_with_agents_of_another_run(trained, config_file, folder, capsys):
    out = folder / "from"
    args = ["train", "--config", config_file, "--seeds", "3", "--out", str(out), *RUN]
    assert main([*args, "--from", f"{trained}:1", "--from-parts", "actor.torso"]) == 0
    started = json.loads((out / "manifest.json").read_text())["start"]
    assert started == {
        "run": str(trained),
        "update": 20,
        "parts": "actor.torso",
        "seeds": [1, 1, 1],
    }
    assert main(["train", "--from-parts", "critic"]) == 2
    assert "give --from RUN with it" in capsys.readouterr().err


def test_export_writes_the_policy_of_one_agent(trained, folder, capsys):
    out = folder / "exported"
    assert main(["export", str(trained), "--out", str(out)]) == 2
    assert (
        "a policy is that of one agent; the run has seeds 0 to 2"
        in capsys.readouterr().err
    )
    assert main(["export", f"{trained}:1", "--out", str(out)]) == 0
    assert "seed 1 after update 20" in capsys.readouterr().out
    about = json.loads((out / "policy.json").read_text())
    assert about["environment"] == "CartPole-v1" and about["batch"] == "any"
    assert (out / "policy.stablehlo").stat().st_size > 1000


def test_what_a_kill_left_out_at_the_end_is_written_by_resume(trained, folder, capsys):
    run = folder / "killed-at-the-end"
    shutil.copytree(trained, run)
    before = json.loads((run / "summary.json").read_text())
    (run / "summary.json").unlink()
    (run / "curve.png").unlink()
    assert main(["train", "--resume", str(run), "--no-progress"]) == 0
    assert "had finished already" in capsys.readouterr().out
    assert main(["train", "--resume", str(run)]) == 0
    said = capsys.readouterr()
    assert (said.out + said.err).count("had finished") == 1
    assert "--extend STEPS" in said.out
    after = json.loads((run / "summary.json").read_text())
    assert (run / "curve.png").stat().st_size > 1000
    assert after["evaluation_per_seed"] == before["evaluation_per_seed"]
    assert after["env_steps"] == before["env_steps"]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_example_of_a_command_has_its_flags(command, monkeypatch, capsys):
    class Read(Exception):  # noqa: N818
        pass

    parse = flags.parse

    def read(*args):
        parse(*args)
        raise Read

    monkeypatch.setattr(flags, "parse", read)
    program, name, *words = shlex.split(EXAMPLES[command])
    assert (program, name) == ("purerl", command)
    with pytest.raises(Read):
        main([name, *words])


@pytest.mark.parametrize("text", ["1e3", "1_000", "1000.0", "1000"])
def test_a_flag_of_an_integer_takes_numbers_as_people_write_them(text):
    fields = [("a", int, 0), ("b", int | None, None), ("c", tuple[int, ...], ())]
    cls = dataclasses.make_dataclass("Only", fields, kw_only=True)
    words = [f"--a={text}", f"--b={text}", f"--c={text}"]
    assert flags.parse(cls, words, "x") == cls(a=1000, b=1000, c=(1000,))


@pytest.mark.parametrize("text", ["1.5", "1e-3", "1e400", "nan", "many"])
def test_a_flag_of_an_integer_takes_no_other_number(text, capsys):
    cls = dataclasses.make_dataclass("Only", [("a", int, 0)], kw_only=True)
    with pytest.raises(SystemExit):
        flags.parse(cls, [f"--a={text}"], "x")
    assert "Error parsing --a" in capsys.readouterr().err

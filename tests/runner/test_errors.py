import shutil

import jax
import pytest

import purerl
from purerl import ConfigError
from purerl.cli import main as command_line
from purerl.envs import CartPole
from purerl.runner.result import load_run
from purerl.scale import hosts
from purerl.storage import folders
from purerl.storage.files import LOCK, locked, write_json

from .conftest import run_tiny


@pytest.fixture(scope="module")
def finished(tiny, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "finished"
    run_tiny(tiny, seeds=2, out=out)
    return out


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "copy")


def contents(folder):
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != LOCK]
    return {p: p.read_bytes() for p in files}


def test_a_run_in_use_is_not_resumed(tiny, copy):
    before = contents(copy)
    with locked(copy), pytest.raises(ConfigError, match="is in use by process"):
        run_tiny(tiny, seeds=2, out=copy, resume=True)
    assert contents(copy) == before


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda lines: [lines[0], lines[1][:9] + "\n", *lines[2:]],
            "rows.jsonl is damaged in line 2 of",
        ),
        (
            lambda lines: lines[:-3],
            r"rows.jsonl ends with update 1., .* a checkpoint of update 20:",
        ),
        (lambda lines: [], r"rows.jsonl has no rows, .* a checkpoint of update 20:"),
    ],
    ids=["damaged", "cut", "gone"],
)
def test_rows_that_are_wrong_are_named_and_nothing_is_thrown_away(
    tiny, copy, change, sentence
):
    path = copy / "metrics" / "rows.jsonl"
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
    before = contents(copy)
    for read in (
        lambda: run_tiny(tiny, seeds=2, out=copy, resume=True),
        lambda: purerl.load(copy),
    ):
        with pytest.raises(ConfigError, match=sentence):
            read()
        assert contents(copy) == before


def test_a_config_that_was_edited_is_not_gone_on_with(tiny, copy):
    path = copy / "config.yaml"
    text = path.read_text()
    path.write_text(text.replace("learning_rate: 0.00025", "learning_rate: 0.01"))
    assert path.read_text() != text
    sentence = "changed after the run began: learning_rate is 0.00025 there and 0.01"
    with pytest.raises(ConfigError, match=sentence):
        run_tiny(tiny, seeds=2, out=copy, resume=True)
    path.write_text(text)
    assert run_tiny(tiny, seeds=2, out=copy, resume=True).finished


def test_an_extension_that_was_killed_before_the_config_goes_on(
    tiny, copy, monkeypatch
):
    longer = tiny.replace(total_timesteps=1_280)
    (copy / "summary.json").write_text("{}")
    (copy / "curve.png").write_bytes(b"of the shorter run")

    def killed(path, text):
        raise KeyboardInterrupt

    options = {"seeds": 2, "out": copy, "resume": True}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(folders, "write_atomic", killed)
        run_tiny(longer, extend=True, **options)
    for name in ("summary.json", "curve.png", "config.yaml"):
        assert not (copy / name).exists()
    result = run_tiny(longer, **options)
    assert result.finished and int(result.metrics["env_steps"][0, -1]) == 1_280
    assert "total_timesteps: 1280" in (copy / "config.yaml").read_text()


def test_a_longer_run_has_at_least_one_update_more(tiny, copy, capsys):
    assert command_line(["train", "--resume", str(copy)]) == 0
    (copy / "summary.json").write_text("{}")
    before = contents(copy)
    capsys.readouterr()
    assert command_line(["train", "--resume", str(copy), "--extend", "641"]) == 2
    assert "no update more than the run's 640" in capsys.readouterr().err
    assert contents(copy) == before


@pytest.mark.parametrize(
    ("fields", "options", "words"),
    [
        ({}, {"lanes": 7}, r"lanes is \w+ there and"),
        ({}, {"segment_updates": 19}, r"segment_updates is \w+ there and"),
        ({}, {"data_parallel": True}, r"data_parallel is \w+ there and"),
        ({"learning_rate": 0.01}, {}, "learning_rate is 0.00025 there and 0.01"),
        ({}, {"seeds": 3}, r"seeds is \[0, 1\] there and"),
    ],
)
def test_a_run_is_resumed_as_it_began(tiny, copy, fields, options, words):
    options = {"seeds": 2, "out": copy, "resume": True, **options}
    with pytest.raises(ConfigError, match=words):
        run_tiny(tiny.replace(**fields), **options)


def test_a_checkpoint_of_another_config_is_refused(tiny, copy):
    with pytest.raises(ConfigError, match=r"of another config.*kernel"):
        load_run(copy, tiny.replace(hidden_sizes=(16,)))


def test_a_folder_that_holds_a_run_is_not_overwritten(tiny, copy):
    before = contents(copy)
    with pytest.raises(ConfigError, match="holds a run already"):
        run_tiny(tiny, seeds=2, out=copy)
    assert contents(copy) == before


def test_a_folder_that_cannot_be_written_is_refused_before_compiling(tiny, tmp_path):
    # A file where a folder should be: refused for root too, unlike permissions.
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="out: cannot write to"):
        run_tiny(tiny, out=tmp_path / "file" / "run")


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"seeds": 0}, "seeds must be"),
        ({"seeds": [1, 1]}, "seeds must be"),
        ({"seeds": [-1]}, "seeds must be"),
        ({"seeds": [0.5, 0.7]}, "seeds must be"),
        ({"seeds": [2**32]}, "seeds must be"),
        ({"seeds": True}, "seeds must be a positive number.* got True"),
        ({"seeds": jax.random.key(0)}, "seeds must be"),
        ({"segment_updates": -2}, "segment_updates must be a positive whole number"),
        ({"resume": True, "out": None}, "resume needs out"),
        ({"resume": "runs/first"}, "resume must be True or False"),
        ({"extend": 4096}, "extend must be True or False, got 4096"),
        ({"data_parallel": 2}, "data_parallel must be True or False, got 2"),
        ({"progress": "False"}, "progress must be True or False, got 'False'"),
    ],
)
def test_bad_options_are_refused(tiny, options, fragment):
    with pytest.raises(ConfigError, match=fragment):
        run_tiny(tiny, **options)


@pytest.mark.slow
def test_an_environment_object_is_named_in_what_is_stored(tmp_path, tiny, capsys):
    class Own(CartPole):
        """No file can hold it."""

    out = tmp_path / "run"
    run_tiny(tiny.replace(env=Own()), out=out)
    with pytest.raises(ConfigError, match=r"Own.*top level of a module.*config="):
        load_run(out)
    saved = load_run(out, tiny.replace(env=Own()))
    assert saved.update == 20
    # Another structure of it is another config.
    assert folders.load(out)["config"]["env"].endswith("<locals>.Own()>")
    assert command_line(["train", "--resume", str(out)]) == 2
    assert "purerl.run(config, ..., resume=True)" in capsys.readouterr().err


def test_without_checkpoints_a_resumed_run_starts_again(tiny, copy):
    shutil.rmtree(copy / "checkpoints")
    before = contents(copy)
    with pytest.raises(ConfigError, match=r"checkpoints has no checkpoint, and .*summ"):
        run_tiny(tiny, seeds=2, out=copy, resume=True)
    assert contents(copy) == before
    (copy / "summary.json").unlink()
    before = (copy / "metrics" / "rows.jsonl").read_text()
    result = run_tiny(tiny, seeds=2, out=copy, resume=True)
    assert result.finished and result.train_steps == 2 * 640
    assert (copy / "metrics" / "rows.jsonl").read_text() == before


def test_a_data_parallel_run_is_not_resumed_on_other_devices(tiny, copy):
    folders.update(copy, {"data_parallel": 7})
    with pytest.raises(ConfigError, match="spread over 7 devices, here are 2"):
        run_tiny(tiny, seeds=2, out=copy, resume=True)


def test_a_run_in_several_processes_is_refused_with_what_to_use(monkeypatch, tmp_path):
    monkeypatch.setattr(hosts, "count", lambda: 2)
    with pytest.raises(ConfigError, match="runs in one process, here are 2") as no:
        purerl.run(purerl.PPOConfig(), out=tmp_path / "run")
    assert "purerl.sweep" in str(no.value)
    assert not (tmp_path / "run").exists()


def test_a_field_of_another_version_is_named_with_who_wrote_it(copy):
    stored = folders.load(copy)
    stored["config"]["old_field"] = 3
    stored["versions"]["purerl"] = "9.8.7"
    write_json(copy / "manifest.json", stored)
    with pytest.raises(ConfigError) as error:
        load_run(copy)
    for fragment in (
        "PPOConfig has no field 'old_field'. ",
        f"{copy} was written by purerl 9.8.7 with jax ",
        f"and here is purerl {purerl.__version__} with jax ",
    ):
        assert fragment in str(error.value)

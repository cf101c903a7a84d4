"""What every result owes: `best()`, a summary, its options, its command, one `load`."""

import html
import inspect
import json

import numpy as np
import pytest

import purerl
from purerl.cli import main
from purerl.execution.format import running, this_command
from purerl.storage import folders
from tests.helpers import StopAfter, tiny_config

# Searches train by one program, and runs by another.
CONFIG = tiny_config(total_timesteps=384, num_evaluations=1)  # twelve updates
AXES = {"learning_rate": [1e-3, 1e-2]}
SMALL = {"lanes": 2, "segment_updates": 4, "progress": False}
EVOLVE = {"population": 2, "fitness": "evaluation", **SMALL}
CALLS = {
    "run": lambda out: purerl.run(CONFIG, seeds=2, out=out, **SMALL),
    "sweep": lambda out: purerl.sweep(CONFIG, AXES, seeds=2, out=out, **SMALL),
    "pbt": lambda out: purerl.pbt(
        CONFIG, AXES, population=2, ready_updates=4, out=out, **SMALL
    ),
    "halving": lambda out: purerl.halving(
        CONFIG, AXES, num_points=4, eta=2, min_updates=4, out=out, **SMALL
    ),
    "tune": lambda out: purerl.tune(
        CONFIG, AXES, trials=2, reports=3, holdout_seeds=0, lanes=2, out=out,
        progress=False,
    ),
    "evolve": lambda out: purerl.evolve(
        CONFIG, "learning_rate", generations=2, out=out, **EVOLVE
    ),
}  # fmt: skip
# Of what the folder's summary says.
FACTS = {
    "run": {"agents": 2, "env_steps": 2 * 384},
    "sweep": {"members": 4, "trained_members": 4},
    "pbt": {"training_steps": 2 * 384, "best_seed": 0},
    "halving": {"best_seed": 0},
    "tune": {"trials": 2},
    "evolve": {"generations_run": 2},
}


@pytest.fixture(scope="module", params=CALLS)
def tool(request):
    return request.param


@pytest.fixture(scope="module")
def result(tool, tmp_path_factory):
    return CALLS[tool](tmp_path_factory.mktemp(tool) / "out")


def test_the_best_has_a_config_a_score_and_a_point(result):
    best = result.best()
    assert isinstance(best.config, purerl.PPOConfig)
    assert np.isfinite(best.score)
    # A point, a score and a config are what is first in all of them.
    shared = (best.point, best.score, best.config)
    assert all(x is y for x, y in zip(best, shared, strict=False))
    if isinstance(result, purerl.RunResult):
        last = result.evaluation["episode_return"][best.point["seed"], -1]
        assert best.score == last.mean() == max(_final(result))
        return
    rate = float(np.asarray(best.point["learning_rate"]))
    assert float(best.config.learning_rate) == pytest.approx(rate, rel=1e-6)


def _final(run):
    return run.evaluation["episode_return"][:, -1].mean(-1)


def test_every_result_is_shown_in_a_few_lines_drawn_and_tabulated(result):
    lines = repr(result).splitlines()
    assert 2 <= len(lines) <= 6 and len(repr(result)) < 600
    assert lines[0].startswith(f"{type(result).__name__}: ")
    assert "finished: " in lines[1] and lines[-1] == f"  in {result.out}"
    figure, axes = result.plot()
    assert set(np.ravel(np.array(axes, object))) <= set(figure.axes)
    assert len(result.to_dataframe()) >= 2
    html = result._repr_html_()
    assert "<table" in html and ("<svg" in html or "<img" in html)
    assert len(html) < 150_000


def test_load_reads_what_the_call_returned(result):
    loaded = purerl.load(result.out)
    assert type(loaded) is type(result)
    assert loaded.best().score == pytest.approx(result.best().score, rel=1e-6)
    assert loaded.finished


def test_the_folder_has_a_summary_that_a_second_call_leaves(tool, result):
    path = result.out / "summary.json"
    written = json.loads(path.read_text())
    assert written.items() >= FACTS[tool].items()
    if tool == "run":
        assert purerl.run(CONFIG, seeds=2, out=result.out, resume=True, **SMALL)
    else:
        assert CALLS[tool](result.out).finished
    assert json.loads(path.read_text()) == written  # The times stay.


def test_a_run_that_is_stopped_has_no_summary_yet(tmp_path):
    stop = {"trackers": [StopAfter(4)], "checkpoint_seconds": 0.0}
    assert not purerl.run(CONFIG, out=tmp_path, **stop, **SMALL).finished
    assert not (tmp_path / "summary.json").exists()
    assert purerl.run(CONFIG, out=tmp_path, resume=True, **SMALL).finished
    assert json.loads((tmp_path / "summary.json").read_text())["agents"] == 1


def test_load_reads_comparisons(tmp_path):
    settings = {"slow": {"learning_rate": 1e-4}, "fast": {"learning_rate": 1e-2}}
    found = purerl.compare(CONFIG, settings, seeds=2, out=tmp_path, **SMALL)
    again = purerl.load(tmp_path)
    for name, scores in found.scores.items():
        np.testing.assert_array_equal(again.scores[name], scores)
    check_options("compare", tmp_path / "manifest.json")


def test_load_says_what_it_cannot_read(tmp_path):
    with pytest.raises(purerl.ConfigError, match="there is no run in"):
        purerl.load(tmp_path)


# What changes what is computed or written is in a folder, and is taken by a resume

# How a call is carried out: no file of results has other contents for it.
OF_THE_CALL = {
    *("out", "resume", "extend", "progress", "checkpoint_seconds"),
    *("chunk_blocks", "memory_limit", "dry_run"),
}
# What stands under another name, or only where it was given.
ELSEWHERE = {
    "trackers": "trackers.json",
    "start": "start, where it was given",
    "truncation": "settings, where it was given",
    "num_points": "points",
    "design_seed": "points",
    "searches": "seeds",
    "storage": "may hold a password; without it the study is refused",
}


def names_in(value):
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            if name != "config":
                yield from names_in(inner)


def check_options(tool, path, *others):
    """A file of a folder has every option of a tool that changes what is in it."""
    options = set(inspect.signature(getattr(purerl, tool)).parameters)
    written = json.loads(path.read_text())
    assert not options - {*names_in(written), *OF_THE_CALL, *ELSEWHERE, *others}


def test_a_folder_has_every_option_that_changes_it(tool, result):
    check_options(tool, result.out / "manifest.json")


def test_an_evolution_takes_the_snapshots_of_the_call(tmp_path):
    out = tmp_path / "out"
    for generations, every in ((3, 1), (6, 3)):
        sizes = {"generations": generations, "snapshot_every": every, **EVOLVE}
        purerl.evolve(CONFIG, "learning_rate", out=out, **sizes)
    found = sorted(int(path.stem) for path in (out / "snapshots").iterdir())
    assert found == [1, 2, 3, 6]


def test_a_run_keeps_as_many_checkpoints_as_the_call_says(tmp_path):
    out = tmp_path / "out"
    options = {"out": out, "checkpoint_seconds": 0.0, **SMALL}
    purerl.run(CONFIG, keep_checkpoints=1, **options)
    assert len(list((out / "checkpoints").iterdir())) == 1
    command = ["train", "--resume", str(out), "--checkpoint-seconds", "0"]
    more = ["--extend", "1152", "--keep-checkpoints", "2", "--no-progress"]
    assert main([*command, *more]) == 0
    assert len(list((out / "checkpoints").iterdir())) == 2
    assert folders.load(out)["keep_checkpoints"] == 2


def test_a_sweep_goes_on_with_its_states(tmp_path):
    options = {"seeds": 1, "out": tmp_path, "keep_states": True, **SMALL}
    purerl.sweep(CONFIG, AXES, **options)
    longer = {**options, "seeds": 2, "extend": True}
    words = "keep_states is True there and False here"
    with pytest.raises(purerl.ConfigError, match=words):
        purerl.sweep(CONFIG, AXES, **{**longer, "keep_states": False})
    more = purerl.sweep(CONFIG, AXES, **longer)
    assert more.state({"learning_rate": 1e-2}, 1) is not None


# The command that wrote a folder is what its page shows

TINY = (  # `CONFIG` and `SMALL`
    "--total-timesteps 384 --num-envs 2 --num-steps 16 --num-epochs 2 "
    "--num-minibatches 2 --hidden-sizes 8 --num-evaluations 1 --eval-episodes 2 "
    "--eval-max-steps 20 --eval-share 1.0 --lanes 2 --segment-updates 4 --no-progress"
).split()


def test_a_page_shows_the_command_that_trained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["sweep", "--axis", "learning_rate=1e-3,1e-2", *TINY, "--out", "a b"]
    assert main(words) == 0
    with running([], words):
        expected = html.escape(this_command())
    assert main(["report", "a b", "--out", "again.html"]) == 0
    text = (tmp_path / "again.html").read_text()
    assert expected in text and "purerl report" not in text


def test_going_on_keeps_the_first_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *TINY, "--out", "run"]) == 0
    first = folders.load(tmp_path / "run")["command"]
    assert first.startswith("purerl train --total-timesteps 384")
    words = ["train", "--resume", "run", "--extend", "1152", "--no-progress"]
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

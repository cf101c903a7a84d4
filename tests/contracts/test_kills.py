"""Every command that writes a folder, killed at random moments, ends as if it was not.

What stands in the folder afterwards is compared bit for bit with that of a process
that nobody stopped; times, what they cost, pictures and pages apart. `KILLS` of each
row are spread over its whole course, every other one a SIGTERM.
"""

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import time
import zlib
from pathlib import Path

import jax
import numpy as np
import pytest

from purerl.storage import checkpoint

KILLS = int(os.environ.get("PURERL_TEST_KILLS", "18"))
TINY = (
    "--num-envs 2 --num-steps 16 --num-minibatches 2 --hidden-sizes 4 "
    "--num-evaluations 2 --eval-episodes 2 --eval-max-steps 20 --eval-share 1.0 "
    "--no-progress"
)
DQN = (
    "--algorithm dqn --num-envs 2 --buffer-size 64 --batch-size 4 "
    "--learning-starts 20 --hidden-sizes 4 --num-evaluations 0 --no-progress"
)
AXIS = "--axis learning_rate=loguniform(1e-4,1e-2)"
OFTEN = "--checkpoint-seconds 0"
GO_ON = f"--resume {{out}} {OFTEN} --no-progress"
MODULE = "--import tests.terms"  # a term of the user's own in the loss
COMMANDS = {
    "train": f"train {TINY} {OFTEN} --total-timesteps 64000 --seeds 2",
    "train/dqn": f"train {DQN} {OFTEN} --total-timesteps 40000 --seeds 2",
    "train/own-term": f"train {TINY} {OFTEN} --total-timesteps 32000 --seeds 2 "
    f"{MODULE} --extra-loss 'tests.terms:Near(coef=0.5)'",
    "sweep": f"sweep {TINY} --total-timesteps 16000 --seeds 4 --lanes 1 "
    "--axis learning_rate=0.001,0.002,0.003",
    "pbt": f"pbt {TINY} {OFTEN} {AXIS} --total-timesteps 32000 --population 4 "
    "--ready-updates 100",
    "halving": f"halving {TINY} {OFTEN} {AXIS} --total-timesteps 32000 --eta 2 "
    "--min-updates 125",
    "evolve": f"evolve {TINY} {OFTEN} --total-timesteps 3200 --evolve gamma "
    "--population 4 --generations 12 --snapshot-every 2",
    "tune": f"tune {TINY} {AXIS} --total-timesteps 6400 --trials 12 --batch 2 "
    "--seeds 1 --holdout-seeds 2",
    "compare": f"compare {TINY} --total-timesteps 16000 --seeds 4 --setting one: "
    "--setting 'fast: learning_rate=0.01' --setting 'long: num_steps=32'",
}
# The command that goes on, where it is another one.
AGAIN = {
    "train": f"train {GO_ON}",
    "train/dqn": f"train {GO_ON}",
    "train/own-term": f"train {GO_ON} {MODULE}",
}
CHILD = """
    import sys, jax
    jax.config.update("jax_compilation_cache_dir", sys.argv[1])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    import purerl
    from purerl.cli import main, settings
    settings.enable_compile_cache = lambda: None  # This cache keeps small programs too.
    print("ready", flush=True)
    raise SystemExit(main(sys.argv[2:]))
"""
# Numbers of how long something took and where, which no two processes share, what one
# call of several has done, and checksums of files that have such numbers.
APART = re.compile(
    r"sha256|crc|seconds|per_second|memory|created|host|process|device|commit|command|lanes_left"
    r"|compilations|trained_|env_steps$|generations_run|block_calls|started|time|date"
)
PICTURES = (".png", ".html", ".db")


def start(words, out):
    """Begin a command in a process of its own, and wait until it has been imported."""
    words = [word.replace("{out}", str(out)) for word in words]
    words += [] if "--resume" in words else ["--out", str(out)]
    cache = str(jax.config.jax_compilation_cache_dir)  # type: ignore[attr-defined]
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD), cache, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n", child.communicate()
    return child


def finish(words, out):
    """Let a command end well; the seconds that it took."""
    began = time.monotonic()
    child = start(words, out)
    ready = time.monotonic()
    said = child.communicate(timeout=600)
    assert child.returncode == 0, said
    return time.monotonic() - max(began, ready)


def begun(out):
    """Whether a folder holds what `--resume` goes on with."""
    return (out / "manifest.json").exists() and (out / "config.yaml").exists()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The contents of a command's folder that nobody stopped, and its seconds."""
    found = {}

    def of(name):
        if name not in found:
            words = shlex.split(COMMANDS[name])
            out = tmp_path_factory.mktemp("whole") / "out"
            finish(words, out.with_name("first"))  # It compiles.
            found[name] = finish(words, out), contents(out)
        return found[name]

    return of


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_killed_at_random_moments_a_folder_ends_as_one_of_a_whole_command(
    name, whole, tmp_path
):
    first, again = shlex.split(COMMANDS[name]), shlex.split(AGAIN.get(name, ""))
    seconds, expected = whole(name)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    out, killed, ends = tmp_path / "0", 0, 0
    while killed < KILLS:
        words = again if again and begun(out) else first
        child = start(words, out)
        number = (signal.SIGKILL, signal.SIGTERM)[killed % 2]
        try:
            child.wait(rng.uniform(0.02, 0.8) * seconds)
        except subprocess.TimeoutExpired:
            child.send_signal(number)
            said = child.communicate(timeout=120)
            is_stopped = child.returncode in (-number, 128 + number)
            assert is_stopped or child.returncode == 0, said
            assert "Traceback" not in said[1], said[1]
            killed += is_stopped
        else:
            said = child.communicate()
            assert child.returncode == 0, said
        if child.returncode == 0:  # It was finished: compare, and begin another one.
            check(out, expected)
            ends += 1
            out = tmp_path / str(ends)
    words = again if again and begun(out) else first
    finish(words, out)
    check(out, expected)


def check(out, expected):
    found = contents(out)
    assert found.keys() == expected.keys()
    for name, content in expected.items():
        np.testing.assert_equal(found[name], content, err_msg=f"{out}/{name}")


def contents(out: Path):
    """What stands in a folder, by the names of its files."""
    found = {}
    for path in sorted(out.rglob("*")):
        name = str(path.relative_to(out))
        is_temporary = any(part.startswith(".") for part in path.parts)
        if not path.is_file() or is_temporary or path.suffix in PICTURES:
            continue
        found[name] = read(path)
    runs = out / "checkpoints"
    if runs.exists() and not (out / "snapshots").exists():  # Not of an evolution.
        found = {n: x for n, x in found.items() if not n.startswith("checkpoints/")}
        last = checkpoint.steps(runs)[-1]
        found["checkpoint"] = checkpoint.restore(runs, last)
    if (out / "chunks").exists():  # Where a sweep cuts its members is a matter of time.
        found = {n: x for n, x in found.items() if not n.startswith("chunks/")}
        found["members"] = members(out / "chunks")
    return {name: content for name, content in found.items() if content is not None}


def members(chunks):
    found = {}
    for path in chunks.glob("*.npz"):
        arrays = read(path)
        ids = json.loads(bytes(arrays.pop("members")))["ids"]
        for row, member in enumerate(ids):
            found[member] = {name: rows[row] for name, rows in arrays.items()}
    return found


def read(path):
    if path.suffix == ".npz":
        # Only the newest checkpoint of several is sure to be there.
        if path.parent.name in ("checkpoints", "states"):
            newest = sorted(path.parent.glob("*.npz"))[-1]
            if path != newest:
                return None
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays if not APART.search(name)}
    text = path.read_text()
    if path.suffix == ".json":
        return plain(json.loads(text))
    if path.suffix == ".jsonl":
        return [plain(json.loads(line)) for line in text.splitlines()]
    if path.suffix == ".csv":
        rows = list(csv.DictReader(text.splitlines()))
        return [plain(row) for row in rows]
    return text


def plain(value):
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if not APART.search(k)}
    return [plain(v) for v in value] if isinstance(value, list) else value

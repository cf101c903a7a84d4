"""Pictures of brax's environments where there is OpenGL, and a sentence where not."""

import ctypes.util
import os
import subprocess
import sys

import pytest

from purerl.envs.adapters.packages import with_opengl_as_asked

# Where the pole is in two pictures: the mean column of what is bright above the rail.
SCRIPT = """
import numpy as np
from purerl import envs
from purerl.envs.adapters import brax_pictures
env = envs.make("brax/inverted_pendulum")
draw = brax_pictures.drawer(env, 160, 120)
for x in (-0.5, 0.5):
    picture = draw({"q": np.array([x, 0.0])}, None)
    rows, columns = np.nonzero(picture[:55].max(-1) > 60)
    print("place", columns.mean(), picture.shape)
"""


def run(script: str, opengl: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "MUJOCO_GL": opengl},
    )


@pytest.mark.slow
@pytest.mark.skipif(not ctypes.util.find_library("OSMesa"), reason="needs libosmesa6")
def test_a_cart_that_is_moved_moves_in_the_picture():
    done = run(SCRIPT, "osmesa")
    places = [line.split() for line in done.stdout.splitlines() if "place" in line]
    assert len(places) == 2, done.stderr
    left, right = (float(words[1]) for words in places)
    assert right > left + 40
    assert abs(left + right - 159) < 2  # The camera stands in the middle.
    assert done.stdout.count("(120, 160, 3)") == 2
    assert "Exception ignored" not in done.stderr  # as Python ends


@pytest.mark.slow
def test_an_opengl_that_is_not_there_is_named():
    code = """
from purerl import envs
try:
    envs.make("brax/inverted_pendulum")
except ValueError as error:
    print(error)
"""
    done = run(code, "nothing-of-this-name")
    assert "with MUJOCO_GL='nothing-of-this-name'" in done.stdout, done.stderr
    assert "unset the variable" in done.stdout


def test_other_failures_are_left_as_they_are(monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    with pytest.raises(ImportError, match="nothing"), with_opengl_as_asked():
        raise ImportError("nothing")
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    words = r"with MUJOCO_GL='osmesa' \(AttributeError: no glGetError\).*libosmesa6"
    with pytest.raises(ValueError, match=words), with_opengl_as_asked():
        raise AttributeError("no glGetError")

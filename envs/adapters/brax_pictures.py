"""Pictures of brax's environments: its page for browsers, and MuJoCo's renderer."""

import warnings
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from .brax import BraxEnvironment, _quiet

# Where brax's viewer puts its canvas, and what that canvas then covers.
_VIEWER = '<div id="brax-viewer">'
_WITHOUT_SCRIPTS = (
    '<p style="position: absolute; z-index: -1; margin: 16px; font: 15px sans-serif">'
    "The view is being loaded. If this sentence stays, its scripts could not be "
    "fetched from unpkg.com and cdn.jsdelivr.net: open the page with a network, or "
    "draw a GIF (purerl render RUN --format gif).</p>"
)


def pose_of(state: Any) -> dict[str, Any]:
    """Return what a picture needs of a state: where the bodies and the joints are.

    Args:
        state: State of one `BraxEnvironment`.
    """
    physics = state.pipeline
    return {"pos": physics.x.pos, "rot": physics.x.rot, "q": physics.q}


def steps_per_second(env: BraxEnvironment) -> int:
    """Return how many steps of an environment its physics makes of a second."""
    _check(env)
    return max(1, round(1 / float(env.wrapped.dt)))


def page(env: BraxEnvironment, poses: Sequence[dict[str, Any]], height: int) -> str:
    """Return brax's interactive page of some moments, an HTML text.

    The page holds the bodies and the moments; the scripts of its viewer come from
    where they are published, so that a browser needs a network to show it. brax has
    four of them in its package, and not the libraries that they need (three.js,
    lil-gui, pako). Where they do not come, a sentence is left in place of the view.

    Args:
        poses: Moments, of `pose_of`.
        height: Height of the view in pixels.

    Raises:
        ValueError: the environment has no bodies, as brax's `fast`.
    """
    _check(env)
    states: Any = [
        SimpleNamespace(x=SimpleNamespace(pos=pose["pos"], rot=pose["rot"]))
        for pose in poses
    ]
    with warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")
        from brax.io import html

        system = env.wrapped.sys
        system = system.tree_replace({"opt.timestep": env.wrapped.dt})
        text = html.render(system, states, height=height, colab=True)
    return text.replace(_VIEWER, _VIEWER + _WITHOUT_SCRIPTS)


def drawer(
    env: BraxEnvironment, width: int, height: int
) -> Callable[[Any, Any], np.ndarray]:
    """Return a function that draws a pose with MuJoCo's renderer.

    Args:
        width: Width of the pictures in pixels.
        height: Height of the pictures in pixels.

    Returns:
        `(pose, params) -> uint8 [height, width, 3]`.

    Raises:
        ValueError: there are no bodies, or no OpenGL to draw them with.
    """
    _check(env)
    import importlib

    mujoco: Any = importlib.import_module("mujoco")

    model = env.wrapped.sys.mj_model
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # The error says enough.
            renderer = mujoco.Renderer(model, height=height, width=width)
    except Exception as error:  # Whatever the platform's OpenGL raises.
        raise ValueError(
            f"pictures of {env.name} need OpenGL, which this machine has not "
            f"({type(error).__name__}); write the page for browsers (format html), or "
            "set MUJOCO_GL=egl or osmesa where one is installed."
        ) from None
    data = mujoco.MjData(model)

    def draw(pose: Any, params: Any) -> np.ndarray:
        data.qpos = pose["q"]
        mujoco.mj_forward(model, data)
        renderer.update_scene(data, camera=-1 if model.ncam == 0 else 0)
        return renderer.render()

    # MuJoCo closes it too late: where Python ends, what that takes is gone already.
    weakref.finalize(draw, renderer.close)
    return draw


def _check(env: BraxEnvironment) -> None:
    if not hasattr(env.wrapped, "sys"):
        raise ValueError(f"{env.name} has no bodies that could be drawn.")

"""Videos of brax's environments: brax's view of every agent, on one page."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from purerl import envs
from purerl.config import ConfigError
from purerl.report.drawing import canvas
from purerl.report.drawing.film import Panel, Take, return_text
from purerl.report.drawing.registry import Drawing
from purerl.report.html import Section, note_html, write_page

PREFIX = "brax/"
_VIEW = 420  # The height of a view in pixels.


def is_brax(env: envs.Environment) -> bool:
    """Return whether an environment is one of brax, without importing it."""
    return env.name.startswith(PREFIX)


def brax_drawing(env: Any, kind: str) -> Drawing:
    """Return how a brax environment is drawn.

    Args:
        env: The environment, without wrappers.
        kind: The format; a page needs nothing, pictures need OpenGL.

    Raises:
        ConfigError: there is no OpenGL, or no bodies.
    """
    from purerl.envs.adapters import brax_pictures

    def keep(state: Any, params: Any, obs: Any) -> Any:
        del params, obs
        return brax_pictures.pose_of(state)

    def no_picture(state: Any, params: Any) -> np.ndarray:
        raise NotImplementedError("a page has no pictures")

    try:
        fps = brax_pictures.steps_per_second(env)
        draw = no_picture
        if kind != "html":
            draw = brax_pictures.drawer(env, canvas.WIDTH, canvas.HEIGHT)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return Drawing(draw, min(50, fps), keep)


def write_brax_page(path: Path, panels: Sequence[Panel], env: Any) -> int:
    """Write the page: a view for each agent, a section for each episode.

    Args:
        path: Path of the page.
        panels: The agents.
        env: The environment, without wrappers.

    Returns:
        The number of moments of the longest episodes.
    """
    several = len(panels[0].takes) > 1
    sections, count = [], 0
    for number, takes in enumerate(zip(*(p.takes for p in panels), strict=True)):
        views = [
            _view(env, panel, take) for panel, take in zip(panels, takes, strict=True)
        ]
        count += 1 + max(take.length for take in takes)
        title = f"Episode {number + 1}" if several else "Episode"
        row = "display: flex; flex-wrap: wrap; gap: 12px"
        sections.append(Section(title, f'<div style="{row}">{"".join(views)}</div>'))
    note = "Drag to turn, scroll to zoom. The scripts of the view come from the web."
    write_page(path, f"Video: {env.name}", *sections, note=note)
    return count


def _view(env: Any, panel: Panel, take: Take) -> str:
    from purerl.envs.adapters import brax_pictures

    poses = [
        jax.tree.map(lambda x, at=step: x[at], take.moments.state)
        for step in range(take.length + 1)
    ]
    page = brax_pictures.page(env, poses, _VIEW)
    tag = f" ({panel.tag})" if panel.tag else ""
    how = "ended" if take.ended else "cut"
    earned = return_text(take.episode_return[take.length])
    words = f"{panel.title}{tag}: return {earned}, {how} after {take.length:,} steps"
    frame = (
        f'<iframe title="{html.escape(panel.title)}" width="330" height="{_VIEW}" '
        f'style="border: 0" srcdoc="{html.escape(page)}"></iframe>'
    )
    return f"<div>{note_html(words)}{frame}</div>"

"""Drawings of MinAtar's games as gymnax has them: a kind for every channel.

The games are those of Young and Tian (2019), "MinAtar", whose states are grids of
10 x 10 cells with a channel for each kind of object.
"""

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from purerl.report.drawing import canvas as c
from purerl.report.drawing.grids import Draw, Grid, Kind, over

if TYPE_CHECKING:
    from PIL.Image import Image

_TRAIL = "#55606d"
# Channels from what lies below to what lies above: number, and what stands there.
_GAMES: dict[str, tuple[tuple[int, Kind], ...]] = {
    "Breakout-MinAtar": (
        (2, Kind("trail", _TRAIL, True)),
        (3, Kind("brick", c.ORANGE)),
        (0, Kind("paddle", c.SKY)),
        (1, Kind("ball", c.YELLOW, True)),
    ),
    "Asterix-MinAtar": (
        (2, Kind("trail", _TRAIL)),
        (1, Kind("enemy", c.ORANGE)),
        (3, Kind("gold", c.YELLOW, True)),
        (0, Kind("player", c.SKY)),
    ),
    "Freeway-MinAtar": (
        *(
            (number, Kind("" if number > 2 else "trail", _TRAIL))
            for number in range(2, 7)
        ),
        (1, Kind("car", c.ORANGE)),
        (0, Kind("chicken", c.YELLOW, True)),
    ),
    "SpaceInvaders-MinAtar": (
        (1, Kind("alien", c.PINK)),
        (5, Kind("its bullet", c.ORANGE, True)),
        (4, Kind("bullet", c.YELLOW, True)),
        (0, Kind("cannon", c.SKY)),
    ),
    "Seaquest-MinAtar": (
        (7, Kind("oxygen", c.PAPER)),
        (8, Kind("on board", c.GREEN)),
        (9, Kind("diver", c.GREEN, True)),
        (5, Kind("fish", c.PINK)),
        (6, Kind("enemy", c.ORANGE)),
        (4, Kind("its bullet", c.ORANGE, True)),
        (2, Kind("bullet", c.YELLOW, True)),
        (1, Kind("", c.BLUE)),
        (0, Kind("submarine", c.SKY)),
    ),
}
GAMES = tuple(_GAMES)


def game(env: Any) -> Draw:
    """Make the drawing of one of `GAMES`; its states are `channels` of them."""
    layers = _GAMES[env.name]
    grid = Grid((10, 10), tuple(kind for _, kind in reversed(layers)))

    @cache
    def background() -> "Image":
        return grid.start()

    def draw(state: Any, params: Any) -> np.ndarray:
        del params
        canvas = over(background())
        for channel, kind in layers:
            grid.put(canvas, kind, np.asarray(state)[..., channel] > 0)
        return canvas.pixels()

    return draw


def channels(env: Any, state: Any, params: Any) -> Any:
    """Return the grid of a game, `[10, 10, channels]`.

    Args:
        env: The environment, of gymnax.
        state: State of one environment.
        params: Numbers of the environment.
    """
    return env.wrapped.get_obs(state, params)

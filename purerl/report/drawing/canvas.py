"""The canvas of drawings; the only module that imports Pillow.

Everything is painted three times as large and then reduced, so that edges are smooth.
"""

from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from purerl.config import ConfigError
from purerl.report.plots.style import COLOURS, INK

BLUE, ORANGE, GREEN, PINK, YELLOW, SKY, PURPLE, GREY = COLOURS
DARK = INK
PAPER, SOFT, LINE = "#ffffff", "#eef1f4", "#b6bec7"
NIGHT, DUSK = "#1b2129", "#2b333d"  # The background of grids, and its cells.
# Colours of the channels of an observed grid.
CHANNELS = (SKY, YELLOW, "#55606d", ORANGE, PINK, GREEN, PAPER, PURPLE)
WIDTH, HEIGHT = 320, 240  # The size of a drawing in pixels.
_FINE = 3

Point = tuple[float, float]
Place = Sequence[float] | np.ndarray


def pillow(name: str) -> ModuleType:
    """Import a module of Pillow, such as `Image`.

    Raises:
        ConfigError: Pillow is not installed.
    """
    import importlib

    try:
        return importlib.import_module(f"PIL.{name}")
    except ImportError:
        raise ConfigError(
            "pictures of episodes need the package pillow: pip install 'purerl[video]'."
        ) from None


def rgb(colour: str) -> tuple[int, ...]:
    """Return the red, green and blue of a colour, bytes."""
    return pillow("ImageColor").getrgb(colour)


@cache
def font(size: float) -> Any:
    """Return the font of captions and legends in a size in pixels."""
    return pillow("ImageFont").load_default(size)


class Canvas:
    """A picture of `WIDTH x HEIGHT` pixels that is painted in its own coordinates.

    x grows to the right and y upwards, in the same unit, which is as large as the
    picture allows; `centre` lies in its middle.

    Attributes:
        scale: Pixels per unit.
    """

    def __init__(
        self,
        centre: Point = (0.0, 0.0),
        size: Point = (WIDTH, HEIGHT),
        background: str = PAPER,
    ) -> None:
        """Make an empty one.

        Args:
            centre: The point in the middle of the picture.
            size: Width and height that have to fit, in units.
            background: Colour of what is not painted.
        """
        self.scale = min(WIDTH / size[0], HEIGHT / size[1])
        self.centre = centre
        image = pillow("Image")
        full = (WIDTH * _FINE, HEIGHT * _FINE)
        self.image = image.new("RGB", full, background)
        self._draw = pillow("ImageDraw").Draw(self.image)

    def _at(self, point: Place) -> Point:
        """Column and row of a point in the picture that is painted."""
        column = WIDTH / 2 + (float(point[0]) - self.centre[0]) * self.scale
        row = HEIGHT / 2 - (float(point[1]) - self.centre[1]) * self.scale
        return column * _FINE, row * _FINE

    def line(self, points: Sequence[Place], colour: str, width: float = 2.0) -> None:
        """Paint a line with round ends.

        Args:
            points: Points of the line, at least two.
            colour: Colour to draw it in.
            width: Width of the line in pixels.
        """
        ends = [self._at(point) for point in points]
        pixels = max(1, round(width * _FINE))
        self._draw.line(ends, fill=colour, width=pixels, joint="curve")
        if pixels > _FINE:
            for column, row in (ends[0], ends[-1]):
                self._disc(column, row, pixels / 2 - 0.5, colour)

    def disc(self, point: Place, radius: float, colour: str, edge: str = "") -> None:
        """Paint a disc.

        Args:
            point: Centre, in units.
            radius: Radius in pixels.
            colour: Colour to draw it in.
            edge: Colour of a line of a pixel around it, if any.
        """
        self._disc(*self._at(point), radius * _FINE, colour, edge)

    def _disc(
        self, column: float, row: float, radius: float, colour: str, edge: str = ""
    ) -> None:
        box = (column - radius, row - radius, column + radius, row + radius)
        self._draw.ellipse(box, fill=colour, outline=edge or None, width=_FINE)

    def box(self, low: Place, high: Place, colour: str, radius: float = 0.0) -> None:
        """Paint a rectangle.

        Args:
            low: Lower left corner, in units.
            high: Upper right corner, in units.
            colour: Colour to draw it in.
            radius: Radius of its corners in pixels.
        """
        left, bottom = self._at(low)
        right, top = self._at(high)
        # Pillow counts the last pixel in.
        inside = (left, top, max(left, right - 1), max(top, bottom - 1))
        self._draw.rounded_rectangle(inside, radius * _FINE, fill=colour)

    def shape(self, points: Sequence[Place], colour: str) -> None:
        """Paint a polygon."""
        self._draw.polygon([self._at(point) for point in points], fill=colour)

    def text(
        self,
        point: Place,
        words: str,
        colour: str = DARK,
        size: float = 12,
        anchor: str = "lm",
    ) -> None:
        """Write a line of text.

        Args:
            point: Place of the anchor, in units.
            words: The text.
            colour: Colour to draw it in.
            size: Height of the font in pixels.
            anchor: Point of the text that lies at the anchor, as Pillow names it: `lm`
                is the left end at half the height.
        """
        self._draw.text(
            self._at(point), words, fill=colour, font=font(size * _FINE), anchor=anchor
        )

    def pixels(self) -> np.ndarray:
        """Return what is painted, uint8 `[HEIGHT, WIDTH, 3]`."""
        return np.asarray(self.image.reduce(_FINE))

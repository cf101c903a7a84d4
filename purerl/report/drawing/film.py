"""Films: episodes side by side, a caption over each, as a GIF or an MP4."""

import io
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from purerl.atomic import write_atomic
from purerl.config import ConfigError
from purerl.report.drawing import canvas as c
from purerl.report.drawing.registry import Drawing, Moment
from purerl.report.sweep_data import label

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("gif", "mp4")
PAGE = "html"  # The format of what is a page, not a film.
CAPTION = 44  # Height of what stands over a drawing, in pixels.
COLUMNS = 4  # Panels beside one another.
GIF_FPS = 50  # Most frames per second of a GIF: viewers slow down faster ones.
_PAUSE_MS = 1_500  # The last frame of an episode stays for so long.
_COLOURS = 255  # One of the 256 of a GIF is left for what did not change.
_SAMPLES = 8  # Number of frames from which the colours are chosen.
_EXACT = 24  # Number of colours that stay exactly as they were drawn.


class Take(NamedTuple):
    """One episode of one agent.

    Attributes:
        moments: Record of every moment, leaves `[T + 1, ...]`, on the host.
        episode_return: `[T + 1]` sum of rewards until then.
        length: Steps of the episode, T at most.
        ended: Whether the episode ended then; else it was cut.
    """

    moments: Moment
    episode_return: np.ndarray
    length: int
    ended: bool


class Panel(NamedTuple):
    """One agent's part of a film.

    Attributes:
        title: Name of the agent, such as `seed 3`.
        tag: Rank of the agent among the others, such as `best`; may be empty.
        takes: Episodes of the agent, one after the other.
    """

    title: str
    tag: str
    takes: Sequence[Take]


class Film:
    """The frames of some agents' episodes, drawn when they are asked for.

    The e-th episodes of all agents begin together; one that has ended stays on its last
    frame until the longest of them has.

    Attributes:
        times: Episode and step of each frame.
        size: Width and height in pixels.
    """

    def __init__(self, panels: Sequence[Panel], drawing: Drawing) -> None:
        """Lay it out.

        Args:
            panels: The agents, from the left to the right, in rows of `COLUMNS`.
            drawing: Drawing of the moments.
        """
        self.panels, self.drawing = panels, drawing
        self.times = [
            (number, step)
            for number, takes in enumerate(zip(*(p.takes for p in panels), strict=True))
            for step in range(1 + max(take.length for take in takes))
        ]
        self.columns = min(len(panels), COLUMNS)
        rows = -(-len(panels) // self.columns)
        self.size = (c.WIDTH * self.columns, (c.HEIGHT + CAPTION) * rows)
        # Panels that wait on their last frame are not drawn again.
        self._held: dict[int, tuple[tuple[int, int], Image]] = {}

    def frame(self, index: int) -> "Image":
        """Draw one frame."""
        episode, step = self.times[index]
        whole = c.pillow("Image").new("RGB", self.size, c.PAPER)
        for number, panel in enumerate(self.panels):
            at = min(step, panel.takes[episode].length)
            row, column = divmod(number, self.columns)
            corner = (column * c.WIDTH, row * (c.HEIGHT + CAPTION))
            whole.paste(self._panel(number, (episode, at)), corner)
        lines, (width, height) = c.pillow("ImageDraw").Draw(whole), self.size
        for x in range(c.WIDTH, width, c.WIDTH):
            lines.line([(x, 0), (x, height)], fill=c.LINE)
        for y in range(c.HEIGHT + CAPTION, height, c.HEIGHT + CAPTION):
            lines.line([(0, y), (width, y)], fill=c.LINE)
        return whole

    def is_last(self, index: int) -> bool:
        """Return whether a frame is the last one of its episode."""
        following = self.times[index + 1 : index + 2]
        return not following or following[0][0] != self.times[index][0]

    def _panel(self, number: int, time: tuple[int, int]) -> "Image":
        held = self._held.get(number)
        if held is not None and held[0] == time:
            return held[1]
        episode, step = time
        panel, image = self.panels[number], c.pillow("Image")
        take = panel.takes[episode]
        state, params = jax.tree.map(lambda x: x[step], take.moments)
        picture = image.new("RGB", (c.WIDTH, c.HEIGHT + CAPTION), c.PAPER)
        drawn = fitted(self.drawing.draw(state, params))
        left = (c.WIDTH - drawn.width) // 2
        picture.paste(drawn, (left, CAPTION + (c.HEIGHT - drawn.height) // 2))
        _write_caption(picture, panel, episode, step)
        self._held[number] = (time, picture)
        return picture


def fitted(drawn: Any) -> "Image":
    """Return a drawing as large as its place in a panel allows.

    Args:
        drawn: Picture, uint8 `[height, width, 3]`.

    Raises:
        ConfigError: it is something else.
    """
    array = np.asarray(drawn)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        raise ConfigError(
            "a drawing must return a picture, uint8 [height, width, 3], got "
            f"{array.dtype} {list(array.shape)}."
        )
    image = c.pillow("Image")
    picture = image.fromarray(array)
    scale = min(c.WIDTH / picture.width, c.HEIGHT / picture.height)
    if scale == 1:
        return picture
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    # A drawing with few pixels has cells, which stay sharp; one with many is smoothed.
    how = image.Resampling.NEAREST if scale >= 2 else image.Resampling.LANCZOS
    return picture.resize(size, how)


def _write_caption(picture: "Image", panel: Panel, episode: int, step: int) -> None:
    draw = c.pillow("ImageDraw").Draw(picture)
    take = panel.takes[episode]
    draw.text((10, 13), panel.title, c.DARK, c.font(14), anchor="lm")
    left = 10 + draw.textlength(panel.title, c.font(14)) + 8
    if panel.tag:
        wide = draw.textlength(panel.tag, c.font(11))
        draw.rounded_rectangle((left, 5, left + wide + 12, 21), 7, c.SOFT)
        draw.text((left + 6, 13), panel.tag, c.DARK, c.font(11), anchor="lm")
    right = c.WIDTH - 10
    if len(panel.takes) > 1:
        words = f"episode {episode + 1} of {len(panel.takes)}"
        draw.text((right, 13), words, c.DARK, c.font(11), anchor="rm")
    earned = return_text(take.episode_return[step])
    draw.text((10, 32), f"return {earned}", c.DARK, c.font(12), anchor="lm")
    over = step == take.length
    end = ("  ended" if take.ended else "  cut") if over else ""
    words, colour = f"step {step:,}{end}", c.ORANGE if over else c.DARK
    draw.text((right, 32), words, colour, c.font(12), anchor="rm")


def return_text(value: float) -> str:
    """Return a return as captions have it: whole numbers without a fraction."""
    number = float(value)
    if number.is_integer() and abs(number) < 1e6:
        return f"{int(number):,}"
    return f"{number:,.2f}" if 0.01 <= abs(number) < 1e5 else label(number)


def write_film(
    path: Path, panels: Sequence[Panel], drawing: Drawing, kind: str, fps: int
) -> int:
    """Write a film, so that no reader sees half of it.

    Args:
        path: Path of the file.
        panels: The agents.
        drawing: Drawing of the moments.
        kind: The format, of `FORMATS`.
        fps: Frames per second.

    Returns:
        The number of frames.

    Raises:
        ConfigError: a package is missing, or a drawing is no picture.
        OSError: the file cannot be written.
    """
    film = Film(panels, drawing)
    data = (_gif if kind == "gif" else _mp4)(film, fps)
    write_atomic(path, data)
    return len(film.times)


def check_format(kind: str, fps: int) -> None:
    """Refuse, before anything runs, what cannot be written.

    Raises:
        ConfigError: naming the package that is missing, or the limit.
    """
    c.pillow("Image")
    if kind == "mp4":
        _ffmpeg()
    elif fps > GIF_FPS:
        raise ConfigError(
            f"fps {fps} is more than programs show of a GIF, {GIF_FPS}: give fewer, or "
            "the format mp4."
        )


def _gif(film: Film, fps: int) -> bytes:
    image = c.pillow("Image")
    count = len(film.times)
    palette = _palette(film)

    def frames() -> Iterator["Image"]:
        for index in range(count):
            frame = film.frame(index)
            yield frame.quantize(palette=palette, dither=image.Dither.NONE)

    every = frames()
    # A GIF counts hundredths of a second, so that pauses differ where they must, and
    # add up to what is asked for.
    ends = [round(100 * i / fps) * 10 for i in range(count + 1)]
    steps = [after - before for before, after in pairwise(ends)]
    pauses = [_PAUSE_MS if film.is_last(i) else steps[i] for i in range(count)]
    buffer = io.BytesIO()
    next(every).save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=every,
        duration=pauses,
        loop=0,
        disposal=1,
    )
    return buffer.getvalue()


def _palette(film: Film) -> "Image":
    """An image with the colours of some of the frames, the frequent ones exactly."""
    image, last = c.pillow("Image"), len(film.times) - 1
    chosen = sorted({round(i * last / _SAMPLES) for i in range(_SAMPLES + 1)})
    samples = np.concatenate([np.asarray(film.frame(index)) for index in chosen])
    found = image.fromarray(samples).quantize(_COLOURS, image.Quantize.MEDIANCUT)
    red, green, blue = np.moveaxis(samples.astype(np.int64), -1, 0)
    packed, counts = np.unique(red << 16 | green << 8 | blue, return_counts=True)
    frequent = packed[np.argsort(-counts)[:_EXACT]]
    colours = np.array(found.getpalette()).reshape(-1, 3)
    # The most frequent colour is written last, so it wins.
    for number in frequent[::-1]:
        exact = np.array([number >> 16, number >> 8 & 255, number & 255])
        colours[np.square(colours - exact).sum(1).argmin()] = exact
        # Pillow looks for the colour that is nearest to the upper six bits of each.
        seen = exact & 0b11111100
        reach = np.square(exact - seen).sum()
        colours[np.square(colours - seen).sum(1) <= reach] = exact
    found.putpalette(colours.ravel().tolist())
    return found


def _mp4(film: Film, fps: int) -> bytes:
    ffmpeg = _ffmpeg()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.mp4"
        writer = ffmpeg.write_frames(
            str(path),
            film.size,
            fps=fps,
            codec="libx264",
            quality=None,
            output_params=["-crf", "18", "-movflags", "+faststart"],
            macro_block_size=2,
            ffmpeg_log_level="error",
        )
        with warnings.catch_warnings():
            # JAX warns of forks; this one becomes another program at once.
            warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
            writer.send(None)
        try:
            for index in range(len(film.times)):
                writer.send(np.ascontiguousarray(film.frame(index)))
        finally:
            writer.close()
        return path.read_bytes()


@cache
def _ffmpeg() -> Any:
    try:
        import imageio_ffmpeg
    except ImportError:
        raise ConfigError(
            "MP4 needs the package imageio-ffmpeg, which is not installed; install it "
            "with: pip install 'purerl[video]', or write a GIF (--format gif)."
        ) from None
    return imageio_ffmpeg

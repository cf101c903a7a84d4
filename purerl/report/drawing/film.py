"""Films: episodes side by side, a caption over each, as a GIF or an MP4."""

import io
import tempfile
import warnings
from collections.abc import Sequence
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

    def frame(self, index: int) -> "Image":
        """Draw one frame."""
        episode, step = self.times[index]
        whole = c.pillow("Image").new("RGB", self.size, c.PAPER)
        for number, panel in enumerate(self.panels):
            at = min(step, panel.takes[episode].length)
            row, column = divmod(number, self.columns)
            left, top = column * c.WIDTH, row * (c.HEIGHT + CAPTION)
            state, params = jax.tree.map(
                lambda x, t=at: x[t], panel.takes[episode].moments
            )
            drawn = fitted(self.drawing.draw(state, params))
            across = left + (c.WIDTH - drawn.width) // 2
            whole.paste(drawn, (across, top + CAPTION + (c.HEIGHT - drawn.height) // 2))
            _write_caption(whole, panel, episode, at, (left, top))
        lines, (width, height) = c.pillow("ImageDraw").Draw(whole), self.size
        for x in range(c.WIDTH, width, c.WIDTH):
            lines.line([(x, 0), (x, height)], fill=c.LINE)
        for y in range(c.HEIGHT + CAPTION, height, c.HEIGHT + CAPTION):
            lines.line([(0, y), (width, y)], fill=c.LINE)
        return whole


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


def _write_caption(
    picture: "Image", panel: Panel, episode: int, step: int, corner: tuple[int, int]
) -> None:
    draw = c.pillow("ImageDraw").Draw(picture)
    left, top = corner

    def write(x: float, y: float, words: str, size: int, colour: str = c.DARK) -> None:
        anchor = "lm" if x < c.WIDTH / 2 else "rm"
        draw.text((left + x, top + y), words, colour, c.font(size), anchor=anchor)

    write(10, 13, panel.title, 14)
    if panel.tag:
        x = 18 + draw.textlength(panel.title, c.font(14))
        wide = draw.textlength(panel.tag, c.font(11))
        box = (left + x, top + 5, left + x + wide + 12, top + 21)
        draw.rounded_rectangle(box, 7, c.SOFT)
        write(x + 6, 13, panel.tag, 11)
    which, earned, at = captions(panel, episode, step)
    over = step == panel.takes[episode].length
    write(c.WIDTH - 10, 13, which, 11)
    write(10, 32, earned, 12)
    write(c.WIDTH - 10, 32, at, 12, c.ORANGE if over else c.DARK)


def captions(panel: Panel, episode: int, step: int) -> tuple[str, str, str]:
    """Return what is written over a frame: the episode, the return, the step."""
    take, count = panel.takes[episode], len(panel.takes)
    which = f"episode {episode + 1} of {count}" if count > 1 else ""
    end = ("  ended" if take.ended else "  cut") if step == take.length else ""
    earned = f"return {return_text(take.episode_return[step])}"
    return which, earned, f"step {step:,}{end}"


def return_text(value: float) -> str:
    """Return a return as captions have it: whole numbers without a fraction."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


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
    image, count = c.pillow("Image"), len(film.times)
    # One palette for all frames, from some of them.
    samples = sorted({round(i * (count - 1) / _SAMPLES) for i in range(_SAMPLES + 1)})
    shown = np.concatenate([np.asarray(film.frame(index)) for index in samples])
    palette = image.fromarray(shown).quantize(_COLOURS, image.Quantize.MEDIANCUT)
    near_white = np.array(palette.getpalette()) >= 250  # Pillow compares six bits.
    colours = np.where(near_white, 255, palette.getpalette())
    palette.putpalette(colours.tolist())
    every = (
        film.frame(index).quantize(palette=palette, dither=image.Dither.NONE)
        for index in range(count)
    )
    # A GIF counts hundredths of a second, so that pauses differ where they must, and
    # add up to what is asked for.
    ends = [round(100 * i / fps) * 10 for i in range(count + 1)]
    pauses = [after - before for before, after in pairwise(ends)]
    for index, (episode, _) in enumerate(film.times):
        if index + 1 == count or film.times[index + 1][0] != episode:
            pauses[index] = _PAUSE_MS
    buffer = io.BytesIO()
    options = {"save_all": True, "append_images": every, "duration": pauses}
    next(every).save(buffer, format="GIF", loop=0, disposal=1, **options)
    return buffer.getvalue()


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

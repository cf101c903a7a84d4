"""Films: episodes side by side, a caption over each, as a GIF or an MP4."""

import io
import tempfile
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from purerl.acting.evaluate import Recording
from purerl.atomic import write_atomic
from purerl.config import ConfigError
from purerl.report.drawing import canvas as c
from purerl.report.drawing.scenes import Drawing

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


class Film:
    """The frames of some agents' episodes, drawn when they are asked for.

    The e-th episodes of all agents begin together; one that has ended stays on its last
    frame until the longest of them has.

    Attributes:
        titles: Names of the agents, from the left to the right, in rows of `COLUMNS`.
        played: Recordings on the host, the axis of the agents before the others.
        times: Episode and step of each frame.
        size: Width and height in pixels.
    """

    def __init__(
        self, titles: Sequence[str], played: Recording, drawing: Drawing
    ) -> None:
        """Lay it out."""
        self.titles, self.played, self.drawing = titles, played, drawing
        self.times = [
            (number, step)
            for number, longest in enumerate(played.episode_length.max(0))
            for step in range(1 + longest)
        ]
        self.columns = min(len(titles), COLUMNS)
        rows = -(-len(titles) // self.columns)
        self.size = (c.WIDTH * self.columns, (c.HEIGHT + CAPTION) * rows)

    def frame(self, index: int) -> "Image":
        """Draw one frame."""
        episode, step = self.times[index]
        whole = c.pillow("Image").new("RGB", self.size, c.PAPER)
        for member in range(len(self.titles)):
            at = min(step, self.played.episode_length[member, episode])
            row, column = divmod(member, self.columns)
            left, top = column * c.WIDTH, row * (c.HEIGHT + CAPTION)
            place = member, at, episode
            state, params = jax.tree.map(lambda x, p=place: x[p], self.played.kept)
            drawn = fitted(self.drawing.draw(state, params))
            across = left + (c.WIDTH - drawn.width) // 2
            whole.paste(drawn, (across, top + CAPTION + (c.HEIGHT - drawn.height) // 2))
            self._write_caption(whole, place, (left, top))
        return whole

    def _write_caption(
        self, picture: "Image", place: tuple[int, int, int], corner: tuple[int, int]
    ) -> None:
        draw, (left, top) = c.pillow("ImageDraw").Draw(picture), corner
        if left:
            draw.line([(left, top), (left, top + CAPTION + c.HEIGHT)], fill=c.LINE)
        which, earned, at = self.captions(*place)
        end = c.ORANGE if at.endswith(("ended", "cut")) else c.DARK
        for x, y, words, size, colour in (
            (10, 13, self.titles[place[0]], 14, c.DARK),
            (c.WIDTH - 10, 13, which, 11, c.DARK),
            (10, 32, earned, 12, c.DARK),
            (c.WIDTH - 10, 32, at, 12, end),
        ):
            anchor = "lm" if x < c.WIDTH / 2 else "rm"
            draw.text((left + x, top + y), words, colour, c.font(size), anchor=anchor)

    def captions(self, member: int, step: int, episode: int) -> tuple[str, str, str]:
        """Return what is written over a frame: the episode, the return, the step."""
        played, count = self.played, self.played.episode_length.shape[1]
        which = f"episode {episode + 1} of {count}" if count > 1 else ""
        end = "  ended" if played.ended[member, episode] else "  cut"
        is_over = step == played.episode_length[member, episode]
        earned = return_text(played.episode_return[member, step, episode])
        return which, f"return {earned}", f"step {step:,}{end if is_over else ''}"


def fitted(drawn: Any) -> "Image":
    """Return a drawing as large as its place in a panel allows.

    Args:
        drawn: Picture, uint8 `[height, width, 3]`.

    Raises:
        ConfigError: it is something else.
    """
    array = np.asarray(drawn)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        found = f"{array.dtype} {list(array.shape)}"
        what = "a drawing must return a picture, uint8 [height, width, 3]"
        raise ConfigError(f"{what}, got {found}.")
    image = c.pillow("Image")
    picture = image.fromarray(array)
    # A drawing with few pixels has cells, which stay sharp; one with many is smoothed.
    is_small = 2 * picture.width <= c.WIDTH and 2 * picture.height <= c.HEIGHT
    how = image.Resampling.NEAREST if is_small else image.Resampling.LANCZOS
    return c.pillow("ImageOps").contain(picture, (c.WIDTH, c.HEIGHT), how)


def return_text(value: float) -> str:
    """Return a return as captions have it: whole numbers without a fraction."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def write_film(path: Path, film: Film, kind: str, fps: int) -> None:
    """Write a film in a format of `FORMATS`, so that no reader sees half of it.

    Raises:
        ConfigError: a package is missing, or a drawing is no picture.
        OSError: the file cannot be written.
    """
    write_atomic(path, (_gif if kind == "gif" else _mp4)(film, fps))


def check_format(kind: str, fps: int) -> None:
    """Refuse, before anything runs, what cannot be written.

    Raises:
        ConfigError: naming the package that is missing, or the limit.
    """
    c.pillow("Image")
    if kind == "mp4":
        _ffmpeg()
    elif fps > GIF_FPS:
        most = f"programs show of a GIF, {GIF_FPS}"
        raise ConfigError(f"fps {fps} is more than {most}: give fewer, or an mp4.")


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
    # A GIF counts hundredths of a second.
    pauses = [10 * round(100 / fps)] * count
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
        options: Any = {"codec": "libx264", "quality": None, "macro_block_size": 2}
        options["output_params"] = ["-crf", "18", "-movflags", "+faststart"]
        options["ffmpeg_log_level"] = "error"
        writer = ffmpeg.write_frames(str(path), film.size, fps=fps, **options)
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
            "MP4 needs the package imageio-ffmpeg: pip install 'purerl[video]'."
        ) from None
    return imageio_ffmpeg

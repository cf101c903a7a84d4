"""purerl.render: a video of a run's agents in the environment that they learned in."""

import html
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl.acting.environment import bind_params, resolve_env
from purerl.acting.evaluate import Player, Recording, record
from purerl.acting.policy import recurrence_of
from purerl.config import ConfigError, TrainConfig
from purerl.envs.registry import is_on_host
from purerl.envs.wrappers import innermost
from purerl.precision import in_32_bits
from purerl.report import html as pages
from purerl.report.drawing import canvas, film
from purerl.report.drawing.film import Panel, Take
from purerl.report.drawing.registry import Drawing, drawing_of, moment_of
from purerl.report.folder import read_result
from purerl.runner.arguments import as_seed, seeds_named, split_seed
from purerl.runner.result import RunResult, load_run
from purerl.scale.devices import as_count, required
from purerl.scale.host import to_host, with_keys
from purerl.train import Bound, bind, make_algorithm
from purerl.types import Array, PyTree

EPISODE_SEED = 12345  # As in `purerl evaluate`, which plays the same episodes.
RANKS = ("best", "median", "worst")
VIEW = 420  # The height of one of brax's views in pixels.


class Rendering(NamedTuple):
    """A video, and what is in it.

    Attributes:
        path: Path of the file.
        seeds: Seeds of the S agents, from the left to the right.
        episode_return: `[S, E]` returns of the episodes.
        episode_length: `[S, E]` steps of the episodes.
        frames: Number of frames.
        diverged_at: The first update `[S]` of each agent with a number that is not
            finite, counted from 0, or -1.
    """

    path: Path
    seeds: tuple[int, ...]
    episode_return: np.ndarray
    episode_length: np.ndarray
    frames: int
    diverged_at: np.ndarray


@in_32_bits
def render(
    run: str | Path | RunResult,
    *,
    out: str | Path | None = None,
    format: str | None = None,
    seeds: str | int | Sequence[int] | None = None,
    episodes: int = 1,
    fps: int | None = None,
    max_steps: int | None = None,
    episode_seed: int = EPISODE_SEED,
) -> Rendering:
    """Write a video of a run's deterministic policies.

    The episodes are those that `purerl evaluate` plays with the same seed. They are
    played in one compiled call and drawn afterwards, on the host.

    Args:
        run: The folder of a run, `FOLDER:SEED` for one of its agents, or what
            `purerl.run` returned.
        out: Path of the file; `video.gif` (or what the format says) in the run's folder
            if not given.
        format: `gif` or `mp4`, and of brax's environments `html`, which is their
            default; the suffix of `out` says it too.
        seeds: Agents to show: `best`, `median`, `worst`, seeds, or several of these in
            a text with commas. By default the three, of which a run with fewer agents
            has fewer, ranked by the last evaluation, diverged ones last.
        episodes: Number E of episodes of each agent, one after the other.
        fps: Frames per second; what suits the environment if not given.
        max_steps: Steps after which an episode is cut; those of evaluations if not
            given.
        episode_seed: Seed of the episodes.

    Raises:
        ConfigError: no such run, seed or format, an environment on the host, or a
            package that is missing.
        OSError: the file cannot be written.
    """
    as_count("episodes", episodes)
    as_count("max_steps", max_steps)
    as_seed("episode_seed", episode_seed)
    saved, tags = _read(run, seeds)
    _check_inside(saved.config)
    bound = bind(saved.config, trains=False)
    inside = innermost(bound.env)
    is_page = inside.name.startswith("brax/")
    kind, path = _where(saved, out, format, is_page=is_page)
    drawing = _brax_drawing(inside, kind) if is_page else drawing_of(inside)
    fps = required("fps", drawing.fps if fps is None else fps)
    if kind != film.PAGE:
        film.check_format(kind, fps)
    steps = max_steps or bound.plan.eval_max_steps
    how = {"episodes": episodes, "steps": steps, "seed": episode_seed}
    played = play(saved, bound, drawing, **how)
    panels = _panels(saved.seeds, tags, played)
    if kind == film.PAGE:
        frames = _write_brax_page(path, panels, inside)
    else:
        frames = film.write_film(path, panels, drawing, kind, fps)
    returns = np.asarray(played.episode_return[:, -1])
    lengths = np.asarray(played.episode_length)
    return Rendering(path, saved.seeds, returns, lengths, frames, saved.diverged_at)


def _check_inside(config: TrainConfig) -> None:
    """Refuse a run in one of Gymnasium's or EnvPool's environments."""
    if is_on_host(config.env):
        raise ConfigError(
            f"purerl render has no drawing of {config.env}, which is stepped on the "
            "host. Record it with the package that it comes from and an exported "
            "policy (purerl export)."
        )


def can_render(config: TrainConfig) -> bool:
    """Return whether `render` can play a run, in whose environment is known here."""
    try:
        _check_inside(config)
        resolve_env(config)
    except (ConfigError, OSError):
        return False
    return True


def play(
    saved: RunResult,
    bound: Bound,
    drawing: Drawing,
    *,
    episodes: int,
    steps: int,
    seed: int,
) -> Recording:
    """Play the episodes of a run's agents in one compiled call.

    Args:
        saved: Run with the S agents.
        bound: Config with its environment.
        drawing: Drawing, which says what is kept of every moment.
        episodes: Number E of episodes of each agent.
        steps: Steps after which an episode is cut.
        seed: Seed of the episodes.

    Returns:
        Recordings on the host, with the axis of the agents before the others.
    """
    recurrence = recurrence_of(make_algorithm(saved.config))
    params = bind_params(bound.env, saved.config.env_params)

    @jax.jit
    @partial(jax.vmap, in_axes=(0, None))
    def recorded(state: PyTree, key: Array) -> Recording:
        return record(
            bound.env,
            params,
            Player(partial(recurrence.act, state), recurrence.init((episodes,))),
            key,
            num_episodes=episodes,
            max_steps=steps,
            keep=partial(moment_of, bound.env, drawing, params),
        )

    return to_host(recorded(with_keys(saved.state), jax.random.key(seed)))


def _panels(
    seeds: Sequence[int], tags: Sequence[str], played: Recording
) -> list[Panel]:
    """A panel for every agent of a recording `[S, T + 1, E]`, with its episodes."""

    def take(member: int, number: int) -> Take:
        return Take(
            jax.tree.map(lambda x: x[member][:, number], played.kept),
            np.asarray(played.episode_return[member, :, number]),
            int(played.episode_length[member, number]),
            bool(played.ended[member, number]),
        )

    episodes = range(played.episode_length.shape[1])
    return [
        Panel(f"seed {seed}", tag, [take(member, number) for number in episodes])
        for member, (seed, tag) in enumerate(zip(seeds, tags, strict=True))
    ]


def _read(
    run: str | Path | RunResult, seeds: str | int | Sequence[int] | None
) -> tuple[RunResult, tuple[str, ...]]:
    """The agents to show, of a folder or a result, and what each is called."""
    saved = rows = run
    if not isinstance(run, RunResult):
        out, seeds = split_seed(str(run), seeds, "seeds")
        saved, rows = load_run(out), read_result(out)
    assert isinstance(saved, RunResult) and isinstance(rows, RunResult)
    has_scores = rows.evaluation.get("episode_return", np.zeros((1, 0))).shape[1] > 0
    chosen = chosen_seeds(saved.seeds, rows.scores() if has_scores else None, seeds)
    named, tags = zip(*chosen, strict=True)
    return saved.only(named), tags


def chosen_seeds(
    seeds: Sequence[int],
    scores: np.ndarray | None,
    asked: str | int | Sequence[int] | None,
) -> list[tuple[int, str]]:
    """Choose agents; each once, with its rank where it has one.

    Args:
        seeds: Seeds of the run.
        scores: Scores of the agents, `[S]`, of which one that is not a number is the
            worst; None without an evaluation.
        asked: Ranks, seeds, a text of both with commas; None for all ranks.

    Raises:
        ConfigError: no such agent, nothing that ranks them, or something else.
    """
    if scores is None and asked is None and len(seeds) <= len(RANKS):
        return [(seed, "") for seed in seeds]
    if isinstance(asked, str):
        words = [word.strip() for word in asked.split(",")]
    else:  # One number, also one of numpy, or several.
        given = list(RANKS) if asked is None else np.atleast_1d(asked).tolist()
        words = list(map(str, given))
    known = {str(seed): seed for seed in seeds}
    ranks: dict[str, int] = {}
    if scores is not None:
        order = np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable")
        # The median of an even number is the lower middle one.
        places = (order[0], order[len(order) // 2], order[-1])
        ranks = {rank: seeds[at] for rank, at in zip(RANKS, places, strict=True)}
    for word in words:
        if word not in known | ranks:
            why = "" if ranks else "; it has no evaluation that ranks them"
            raise ConfigError(
                f"seeds: {word!r} is neither one of {', '.join(RANKS)} nor a seed of "
                f"this run, which has {seeds_named(seeds)}{why}."
            )
    found = dict.fromkeys((known | ranks)[word] for word in words)
    names = ("median", "worst", "best") if ranks and len(seeds) > 1 else ()
    tags = {ranks[rank]: rank for rank in names}  # Of two ranks the last one.
    return [(seed, tags.get(seed, "")) for seed in found]


def _where(
    saved: RunResult, out: str | Path | None, kind: str | None, *, is_page: bool
) -> tuple[str, Path]:
    """Format and path of the video; a page is possible, and the default, of brax."""
    formats = (film.PAGE, *film.FORMATS) if is_page else film.FORMATS
    suffix = Path(out).suffix.lstrip(".").lower() if out else ""
    kind = kind or suffix or formats[0]
    if kind not in formats:
        raise ConfigError(f"format must be one of {', '.join(formats)}, got {kind!r}.")
    if out is None:
        if saved.out is None:
            raise ConfigError("out: say where to write; the run has no folder.")
        one = len(saved.seeds) == 1
        name = f"video-seed-{saved.seeds[0]}" if one else "video"
        return kind, saved.out / f"{name}.{kind}"
    if suffix != kind:
        raise ConfigError(f"out must end with .{kind}, got {str(out)!r}.")
    if not Path(out).parent.is_dir():
        raise ConfigError(f"out: there is no folder {Path(out).parent}; make it first.")
    return kind, Path(out)


def _brax_drawing(env: Any, kind: str) -> Drawing:
    """The drawing of a brax environment; a page needs nothing, pictures need OpenGL."""
    from purerl.envs.adapters import brax_pictures

    def keep(state: Any, params: Any, obs: Any) -> Any:
        return brax_pictures.pose_of(state)

    try:
        fps = brax_pictures.steps_per_second(env)
        draw: Any = None
        if kind != film.PAGE:
            draw = brax_pictures.drawer(env, canvas.WIDTH, canvas.HEIGHT)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return Drawing(draw, min(50, fps), keep)


def _write_brax_page(path: Path, panels: Sequence[Panel], env: Any) -> int:
    """Write a page with a view for each agent and a section for each episode.

    Returns:
        The number of moments of the longest episodes.
    """
    several = len(panels[0].takes) > 1
    sections, count = dict[str, str](), 0
    for number, takes in enumerate(zip(*(p.takes for p in panels), strict=True)):
        views = [
            _view(env, panel, take) for panel, take in zip(panels, takes, strict=True)
        ]
        count += 1 + max(take.length for take in takes)
        title = f"Episode {number + 1}" if several else "Episode"
        row = "display: flex; flex-wrap: wrap; gap: 12px"
        sections[title] = f'<div style="{row}">{"".join(views)}</div>'
    note = "Drag to turn, scroll to zoom. The scripts of the view come from the web."
    pages.write_page(path, f"Video: {env.name}", sections, note)
    return count


def _view(env: Any, panel: Panel, take: Take) -> str:
    from purerl.envs.adapters import brax_pictures

    poses = [
        jax.tree.map(lambda x, at=step: x[at], take.moments.state)
        for step in range(take.length + 1)
    ]
    page = brax_pictures.page(env, poses, VIEW)
    tag = f" ({panel.tag})" if panel.tag else ""
    how = "ended" if take.ended else "cut"
    earned = film.return_text(take.episode_return[take.length])
    words = f"{panel.title}{tag}: return {earned}, {how} after {take.length:,} steps"
    frame = (
        f'<iframe title="{html.escape(panel.title)}" width="330" height="{VIEW}" '
        f'style="border: 0" srcdoc="{html.escape(page)}"></iframe>'
    )
    return f"<div>{pages.note(words)}{frame}</div>"

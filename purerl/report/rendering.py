"""purerl.render: a video of a run's agents in the environment that they learned in."""

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
from purerl.envs.registry import is_on_host, source_of
from purerl.envs.wrappers import innermost
from purerl.precision import in_32_bits
from purerl.report.brax_page import brax_drawing, is_brax, write_brax_page
from purerl.report.drawing import film
from purerl.report.drawing.film import Panel, Take
from purerl.report.drawing.registry import (
    Drawing,
    check_fps,
    drawing_of,
    moment_of,
)
from purerl.report.ranking import chosen_seeds, last_returns
from purerl.report.saved import read_result
from purerl.runner.arguments import as_seed, split_seed
from purerl.runner.result import RunResult, SavedRun, load_run
from purerl.scale.host import to_host, with_keys
from purerl.train import Bound, bind, make_algorithm
from purerl.types import Array, HostMetrics, PyTree

EPISODE_SEED = 12345  # As in `purerl evaluate`, which plays the same episodes.


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


class _Cast(NamedTuple):
    """The agents that are shown: a run with these alone, and what each is called."""

    saved: SavedRun
    tags: tuple[str, ...]
    out: Path | None


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
        ConfigError: no such run, seed or format, an environment without a drawing or
            on the host, or a package that is missing.
        OSError: the file cannot be written.
    """
    _check_numbers(episodes, max_steps, episode_seed)
    cast = _read(run, seeds)
    _check_inside(cast.saved.config)
    bound = bind(cast.saved.config)
    inside = innermost(bound.env)
    is_page = is_brax(inside)
    kind, path = _where(cast, out, format, is_page=is_page)
    drawing = brax_drawing(inside, kind) if is_page else drawing_of(inside)
    fps = check_fps(drawing.fps if fps is None else fps)
    if kind != film.PAGE:
        film.check_format(kind, fps)
    steps = max_steps or bound.plan.eval_max_steps
    played = play(
        cast.saved, bound, drawing, episodes=episodes, steps=steps, seed=episode_seed
    )
    panels = _panels(cast, played)
    if kind == film.PAGE:
        frames = write_brax_page(path, panels, inside)
    else:
        frames = film.write_film(path, panels, drawing, kind, fps)
    returns = np.asarray(played.episode_return[:, -1])
    lengths = np.asarray(played.episode_length)
    saved = cast.saved
    return Rendering(path, saved.seeds, returns, lengths, frames, saved.diverged_at)


def _check_inside(config: TrainConfig) -> None:
    """Refuse a run in one of Gymnasium's or EnvPool's environments."""
    if is_on_host(config.env):
        remedy = {
            "gymnasium": "gymnasium.wrappers.RecordVideo",
            "envpool": "envpool.make_gymnasium(..., render_mode='rgb_array').render()",
        }[source_of(config.env)]
        raise ConfigError(
            f"purerl render has no drawing of {config.env}: it plays episodes inside a "
            "compiled program, and this environment is stepped on the host. Use "
            f"{remedy} with an exported policy (purerl export)."
        )


def can_render(config: TrainConfig) -> bool:
    """Return whether `render` has a drawing of a run's environment.

    Args:
        config: Config of the run.
    """
    try:
        _check_inside(config)
        inside = innermost(resolve_env(config))
        return is_brax(inside) or bool(drawing_of(inside))
    except (ConfigError, OSError):  # The environment may also not be registered here.
        return False


def play(
    saved: SavedRun,
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


def _panels(cast: _Cast, played: Recording) -> list[Panel]:
    """Return a panel for every agent."""
    names = zip(cast.saved.seeds, cast.tags, strict=True)
    return [
        Panel(f"seed {seed}", tag, _takes(played, member))
        for member, (seed, tag) in enumerate(names)
    ]


def _takes(played: Recording, member: int) -> list[Take]:
    """The episodes of one agent, cut out of a recording `[S, T + 1, E]`."""

    def cut(x: Any, number: int) -> Any:
        return x[member][:, number]

    return [
        Take(
            jax.tree.map(partial(cut, number=number), played.kept),
            np.asarray(played.episode_return[member, :, number]),
            int(played.episode_length[member, number]),
            bool(played.ended[member, number]),
        )
        for number in range(played.episode_length.shape[1])
    ]


def _read(
    run: str | Path | RunResult, seeds: str | int | Sequence[int] | None
) -> _Cast:
    """The agents to show, of a folder or a result."""
    if isinstance(run, RunResult):
        if run.state is None:
            raise ConfigError(
                "this result was read from a folder without its agents; give the "
                "folder."
            )
        scores, out = last_returns(run.evaluation), run.out
        update = int(run.metrics["update"][0, -1]) if "update" in run.metrics else 0
        saved = SavedRun(run.config, run.seeds, update, run.state, run.diverged_at)
    else:
        out, seed = split_seed(str(run))
        if seed is not None and seeds is not None:
            raise ConfigError(
                f"seeds is {seeds!r}, and {run} names a seed already; give one of them."
            )
        seeds = seed if seed is not None else seeds
        saved = load_run(out)
        scores = last_returns(_evaluations_of(saved, read_result(out).evaluation))
    if scores is not None:
        scores = np.where(saved.diverged_at < 0, scores, np.nan)
    chosen = chosen_seeds(saved.seeds, scores, seeds)
    members = np.array([saved.seeds.index(seed) for seed, _ in chosen])
    state = jax.tree.map(lambda x: x[members], saved.state)
    named, tags = zip(*chosen, strict=True)
    shown = saved._replace(
        seeds=named, state=state, diverged_at=saved.diverged_at[members]
    )
    return _Cast(shown, tags, out)


def _evaluations_of(saved: SavedRun, evaluation: HostMetrics) -> HostMetrics:
    """Return the evaluations up to the agents' update: there may be later rows."""
    if "env_steps" not in evaluation:
        return evaluation
    last = saved.update * bind(saved.config, on_host=True).plan.steps_per_update
    seen = evaluation["env_steps"][0] <= last
    return {name: values[:, seen] for name, values in evaluation.items()}


def _where(
    cast: _Cast, out: str | Path | None, kind: str | None, *, is_page: bool
) -> tuple[str, Path]:
    """Format and path of the video; a page is possible, and the default, of brax."""
    formats = (film.PAGE, *film.FORMATS) if is_page else film.FORMATS
    if kind is not None and kind not in formats:
        only = "; html is for brax's environments" if kind == film.PAGE else ""
        raise ConfigError(
            f"format must be one of {', '.join(formats)}, got {kind!r}{only}."
        )
    if out is None:
        if cast.out is None:
            raise ConfigError("out: say where to write; the run has no folder.")
        kind = kind or formats[0]
        one = len(cast.saved.seeds) == 1
        name = f"video-seed-{cast.saved.seeds[0]}" if one else "video"
        return kind, cast.out / f"{name}.{kind}"
    path = Path(out)
    suffix = path.suffix.lstrip(".").lower()
    if suffix not in formats or kind not in (None, suffix):
        wanted = f".{kind}" if kind else " or ".join(f".{k}" for k in formats)
        raise ConfigError(f"out must end with {wanted}, got {str(path)!r}.")
    if not path.parent.is_dir():
        raise ConfigError(f"out: there is no folder {path.parent}; make it first.")
    return suffix, path


def _check_numbers(episodes: Any, max_steps: Any, episode_seed: Any) -> None:
    _check_count("episodes", episodes)
    if max_steps is not None:
        _check_count("max_steps", max_steps)
    as_seed("episode_seed", episode_seed)


def _check_count(name: str, value: Any) -> None:
    is_whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not is_whole or value < 1:
        raise ConfigError(
            f"{name} must be a whole number of at least 1, got {value!r}."
        )

"""purerl.evaluate and purerl.render: trained agents play fresh episodes."""

import html
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import envs
from purerl.acting.environment import bind_params, resolve_env
from purerl.acting.evaluate import Recording, play_episodes, record
from purerl.acting.policy import drawing, recurrence_of
from purerl.config import ConfigError, TrainConfig, apply_overrides, shown
from purerl.envs.registry import is_on_host
from purerl.envs.wrappers import RewardWrapper, Wrapper, innermost
from purerl.execution.format import with_noun
from purerl.execution.programs import current_cache
from purerl.population.search import BestMember
from purerl.precision import in_32_bits
from purerl.randomisation import is_random
from purerl.report import html as pages
from purerl.report.drawing import (
    FORMATS,
    HEIGHT,
    PAGE,
    WIDTH,
    Drawing,
    Film,
    check_format,
    drawing_of,
    moment_of,
    write_film,
)
from purerl.report.folder import read_result
from purerl.runner.arguments import as_seed, as_switch, seeds_named, split_seed
from purerl.runner.result import Best, RunResult, load_run, mean_return
from purerl.runner.rows import diverged_words
from purerl.scale.devices import as_count, required
from purerl.scale.host import agent_to_device, to_host, with_keys
from purerl.serialise import env_name
from purerl.sweeps.result import SweepResult
from purerl.train import Bound, bind, check_acts, evaluate_afresh, make_algorithm
from purerl.types import Array, HostMetrics, PyTree
from purerl.warm_start import check_agent

EPISODE_SEED = 12345  # Both play the same episodes.
RANKS = ("best", "median", "worst")
VIEW = 420  # The height of one of brax's views in pixels.


class Evaluated(NamedTuple):
    """Episodes of trained agents.

    Attributes:
        title: Words that say who played, where and how.
        seeds: Seeds of the S agents; 0, 1, ... of states that were given.
        episode_return: `[S, E]` undiscounted returns, of the rewards of the game.
        episode_length: `[S, E]` lengths in steps.
        cut_episodes: `[S]` episodes that were cut; see `purerl.types.Evaluation`.
        diverged_at: The first update `[S]` of the training with a number that is not
            finite, counted from 0, or -1.
    """

    title: str
    seeds: tuple[int, ...]
    episode_return: np.ndarray
    episode_length: np.ndarray
    cut_episodes: np.ndarray
    diverged_at: np.ndarray

    def __repr__(self) -> str:
        scores = np.where(self.diverged_at < 0, self.episode_return.mean(1), np.nan)
        words = with_noun(len(self.seeds), "agent")
        if np.isfinite(scores).any():
            words += f": {mean_return(scores)}"
        lost = diverged_words(self.seeds, self.diverged_at)
        cut = int(self.cut_episodes.sum())
        cuts = f"{with_noun(cut, 'episode')} cut before the end" if cut else ""
        lines = [f"Evaluated: {self.title}", words, lost, cuts]
        return "\n  ".join(line for line in lines if line)


@in_32_bits
def evaluate(
    what: str | Path | RunResult | SweepResult | Best | BestMember | TrainConfig,
    state: PyTree = None,
    *,
    episodes: int = 20,
    seed: int | None = None,
    deterministic: bool = True,
    gymnasium: bool = False,
    env_params: Mapping[str, Any] | None = None,
    episode_seed: int = EPISODE_SEED,
) -> Evaluated:
    """Play fresh episodes of trained agents, as `purerl evaluate` does.

    Args:
        what: The folder of a run, `FOLDER:SEED` for one of its agents, or what
            `purerl.run` returned; a sweep that kept its states, for its best
            configuration; the best member of a search; or the config of `state`.
        state: State of one agent or, leaves `[S, ...]`, of several, where `what` is a
            config, or the best of something that holds no state.
        episodes: Number E of episodes of each agent.
        seed: Seed of the one agent that is taken; all are where not given.
        deterministic: Whether the policy is deterministic, or draws its actions.
        gymnasium: Whether to play in the Gymnasium environment of the same name.
        env_params: Environment parameters to play with, by name; those that are not
            named stay as in training.
        episode_seed: Seed of the episodes.

    Raises:
        ConfigError: no such run, seed or states, states of another config, or an
            environment that has no use for an option.
    """
    required("episodes", episodes)
    deterministic = as_switch("deterministic", deterministic)
    gymnasium = as_switch("gymnasium", gymnasium)
    episode_seed = as_seed("episode_seed", episode_seed)
    saved = read_agents(what, state, seed)
    config, env = saved.config, bind(saved.config, on_host=True, trains=False).env
    if env.on_host and (gymnasium or env_params):
        raise ConfigError(
            f"gymnasium and env_params have no use for agents trained in {config.env}."
        )
    title = f"{env_name(config.env)}: {episodes} episodes, "
    title += "deterministic" if deterministic else "sampled"
    title += f" policy after update {saved.update:,}"
    title += ", rewards of the game" * bool(env.shapes_rewards)
    if gymnasium:
        _check_same_game(config, env_params)
        title = f"Gymnasium's own {title}"
        try:
            env = envs.make(f"gymnasium/{env_name(config.env)}")
        except ValueError as error:  # Gymnasium is missing, or has none of this name.
            raise ConfigError(str(error)) from None
    if env.on_host:
        played = _play_on_host(saved, env, episodes, episode_seed, deterministic)
    else:
        numbers = {f"env_params.{n}": v for n, v in (env_params or {}).items()}
        config = apply_overrides(config, numbers) if numbers else config
        key = jax.random.key(episode_seed)
        played = play_compiled(config, saved.state, episodes, key, deterministic)
    return Evaluated(title, saved.seeds, **played, diverged_at=saved.diverged_at)


def read_agents(what: Any, state: PyTree = None, seed: int | None = None) -> RunResult:
    """Return the agents that play, as those of a run; see `evaluate`.

    Raises:
        ConfigError: what was given has no agents, or not the one that is asked for.
    """
    if isinstance(what, str | Path):
        folder, seed = split_seed(str(what), seed)
        what = load_run(folder)
    if isinstance(what, RunResult | SweepResult) and state is not None:
        raise ConfigError("state goes with a config; this result has its own states.")
    if isinstance(what, SweepResult):
        what = _best_of(what)
    if isinstance(what, BestMember) and state is None:
        state = what.state
    if not isinstance(what, RunResult):
        what = _in_hand(getattr(what, "config", what), state)
    return what.only(what.seeds if seed is None else [seed])


def _best_of(sweep: SweepResult) -> RunResult:
    """The agents of a sweep's best configuration, one of each seed."""
    point = sweep.best().point
    points = sweep.design.points
    number = next(i for i, other in enumerate(points) if other is point)
    members = [sweep.state(point, seed) for seed in sweep.seeds]
    state = jax.tree.map(lambda *x: np.stack(x), *members)
    at = sweep["diverged_at"].values.reshape(len(points), -1)[number]
    update = int(state.update.max())
    return RunResult(sweep.config_at(point), sweep.seeds, update, state, at, {}, {})


def _in_hand(config: Any, state: PyTree) -> RunResult:
    """Agents whose states were given, of one or with an axis of several."""
    if not isinstance(config, TrainConfig):
        raise ConfigError(
            "what to evaluate must be a run or its folder, a sweep, the best of one, "
            f"or a config and a state, got {type(config).__name__}."
        )
    if np.ndim(getattr(state, "update", 0)) == 0:
        check_agent(state)
        state = jax.tree.map(lambda x: x[None], state)
    first = agent_to_device(state, 0)
    check_agent(first)
    bound = bind(config, on_host=True, trains=False)
    check_acts(bound, bound.algorithm(bound.config), first)
    seeds = tuple(range(len(state.update)))
    unknown = np.full(len(seeds), -1)
    return RunResult(config, seeds, int(first.update), state, unknown, {}, {})


def _play_on_host(
    saved: RunResult, env: Any, episodes: int, seed: int, deterministic: bool
) -> HostMetrics:
    """Play in an environment on the host; see `types.Evaluation`."""
    bound = bind(saved.config, on_host=True, trains=False)
    recurrence = recurrence_of(bound.algorithm(bound.config))
    drawn_by = None if deterministic else seed
    if not deterministic:
        recurrence = drawing(recurrence, jax.random.key(seed))
    act = current_cache().share(
        bound, ("_play_on_host", drawn_by), lambda: jax.jit(recurrence.act)
    )
    with closing(env.start(episodes)) as envs:
        played = [
            play_episodes(
                envs,
                partial(act, agent_to_device(saved.state, member)),
                recurrence.init((episodes,)),
                seed,
                bound.plan.eval_max_steps,
            )
            for member in range(len(saved.seeds))
        ]
    return jax.tree.map(lambda *x: np.stack(x), *played)


def _check_same_game(config: TrainConfig, env_params: Any) -> None:
    """Refuse what Gymnasium's environment does not do.

    Raises:
        ConfigError: the agents see it through wrappers that change more than rewards,
            were trained with other numbers or options, or numbers were given.
    """
    env, wrappers = resolve_env(config), []
    while isinstance(env, Wrapper):
        if not isinstance(env, RewardWrapper):
            wrappers.append(type(env).__name__)
        env = env.env
    own, given = env.default_params, config.env_params
    is_own = not is_random(given)
    if is_own:
        if isinstance(given, Mapping):  # without those of the wrappers
            given = {name: value for name, value in given.items() if hasattr(own, name)}
        pairs = jax.tree.leaves(own), jax.tree.leaves(bind_params(env, given))
        is_own = len(pairs[0]) == len(pairs[1]) and all(map(np.array_equal, *pairs))
    lacking = {
        "env_params": "" if is_own else shown(config.env_params),
        "env_kwargs": shown(config.env_kwargs) if config.env_kwargs else "",
        "wrappers": ", ".join(wrappers[::-1]),
    }
    for name, value in lacking.items():
        if value:
            raise ConfigError(
                f"gymnasium plays in Gymnasium's own environment, which lacks the "
                f"{name} that the agents were trained with, {value}; leave it out."
            )
    if env_params:
        raise ConfigError("gymnasium has its own numbers; leave env_params out.")


def play_compiled(
    config: TrainConfig,
    state: PyTree,
    episodes: int,
    key: Any,
    deterministic: bool = True,
) -> HostMetrics:
    """Play in the environment of a config; see `types.Evaluation`.

    Args:
        state: Host states of the agents, leaves `[S, ...]`.
        key: Random key of the episodes, the same of every agent.
    """
    bound = bind(config, trains=False)

    def play(state: PyTree, key: Any) -> Any:
        played = evaluate_afresh(
            bound, bound.config, state, key, episodes, deterministic
        )
        return played._asdict()

    compiled = current_cache().share(
        bound,
        ("play_compiled", episodes, deterministic),
        lambda: jax.jit(jax.vmap(play, in_axes=(0, None))),
    )
    return jax.device_get(compiled(with_keys(state), key))


# Videos.


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
    saved, titles = _read(run, seeds)
    _check_inside(saved.config)
    bound = bind(saved.config, trains=False)
    inside = innermost(bound.env)
    is_page = inside.name.startswith("brax/")
    kind, path = _where(saved, out, format, is_page=is_page)
    drawing = _brax_drawing(inside, kind) if is_page else drawing_of(inside)
    fps = required("fps", drawing.fps if fps is None else fps)
    if kind != PAGE:
        check_format(kind, fps)
    steps = max_steps or bound.plan.eval_max_steps
    played = record_agents(saved, bound, drawing, episodes, steps, episode_seed)
    made = Film(titles, played, drawing)
    if kind == PAGE:
        _write_brax_page(path, made, inside)
    else:
        write_film(path, made, kind, fps)
    returns, lengths = map(np.asarray, (played.episode_return, played.episode_length))
    found = returns[:, -1], lengths, len(made.times)
    return Rendering(path, saved.seeds, *found, saved.diverged_at)


def _check_inside(config: TrainConfig) -> None:
    """Refuse a run in one of Gymnasium's or EnvPool's environments."""
    if is_on_host(config.env):
        raise ConfigError(
            f"render has no drawing of {config.env}, which is stepped on the host."
        )


def can_render(config: TrainConfig) -> bool:
    """Return whether `render` can play a run, in whose environment is known here."""
    try:
        _check_inside(config)
        resolve_env(config)
    except (ConfigError, OSError):
        return False
    return True


def record_agents(
    saved: RunResult,
    bound: Bound,
    drawing: Drawing,
    episodes: int,
    steps: int,
    seed: int,
) -> Recording:
    """Record the episodes of a run's agents in one compiled call.

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
            partial(recurrence.act, state),
            recurrence.init((episodes,)),
            key,
            num_episodes=episodes,
            max_steps=steps,
            keep=partial(moment_of, bound.env, drawing, params),
        )

    return to_host(recorded(with_keys(saved.state), jax.random.key(seed)))


def _read(run: Any, asked: Any) -> tuple[RunResult, list[str]]:
    """The agents to show, of a folder or a result, and what each is called."""
    saved = read_agents(run)
    rows, scores = saved, None
    if not saved.evaluation and saved.out is not None:
        rows = read_result(saved.out)
    if rows.evaluation:
        known = dict(zip(rows.seeds, rows.scores(), strict=True))
        scores = np.array([known[seed] for seed in saved.seeds])
    chosen = chosen_seeds(saved.seeds, scores, asked)
    titles = [f"seed {seed} ({tag})" if tag else f"seed {seed}" for seed, tag in chosen]
    return saved.only([seed for seed, _ in chosen]), titles


def chosen_seeds(
    seeds: Sequence[int], scores: np.ndarray | None, asked: Any
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
    given = RANKS if asked is None else asked
    words = given.split(",") if isinstance(given, str) else np.atleast_1d(given)
    known, ranks = {str(seed): seed for seed in seeds}, dict[str, int]()
    if scores is not None:
        order = np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable")
        # The median of an even number is the lower middle one.
        places = (order[0], order[len(order) // 2], order[-1])
        ranks = {rank: seeds[at] for rank, at in zip(RANKS, places, strict=True)}
    found = dict[int, None]()
    for word in (str(word).strip() for word in words):
        if word not in known | ranks:
            why = "" if ranks else "; it has no evaluation that ranks them"
            raise ConfigError(
                f"seeds: {word!r} is neither one of {', '.join(RANKS)} nor a seed of "
                f"this run, which has {seeds_named(seeds)}{why}."
            )
        found[(known | ranks)[word]] = None
    names = ("median", "worst", "best") if ranks and len(seeds) > 1 else ()
    tags = {ranks[rank]: rank for rank in names}  # Of two ranks the last one.
    return [(seed, tags.get(seed, "")) for seed in found]


def _where(
    saved: RunResult, out: str | Path | None, kind: str | None, *, is_page: bool
) -> tuple[str, Path]:
    """Format and path of the video; a page is possible, and the default, of brax."""
    formats = (PAGE, *FORMATS) if is_page else FORMATS
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
    from purerl.envs.adapters import brax as pictures

    def keep(state: Any, params: Any, obs: Any) -> Any:
        return pictures.pose_of(state)

    try:
        fps = pictures.steps_per_second(env)
        draw: Any = None
        if kind != PAGE:
            draw = pictures.drawer(env, WIDTH, HEIGHT)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return Drawing(draw, min(50, fps), keep)


def _write_brax_page(path: Path, made: Film, env: Any) -> None:
    """Write a page with a section for each episode, and there a view of each agent."""
    from purerl.envs.adapters import brax as pictures

    sections, lengths = dict[str, str](), made.played.episode_length
    for episode in range(lengths.shape[1]):
        views = ""
        for member, length in enumerate(lengths[:, episode]):
            poses = [
                jax.tree.map(lambda x, p=(member, at, episode): x[p], made.played.kept)
                for at in range(length + 1)
            ]
            page = pictures.page(env, [pose.state for pose in poses], VIEW)
            title, view = made.titles[member], f'srcdoc="{html.escape(page)}"'
            size = f'width="330" height="{VIEW}" style="border: 0"'
            words = ", ".join(made.captions(member, length, episode)[1:])
            views += f"<div>{pages.note(f'{title}: {words}')}"
            views += f'<iframe title="{title}" {size} {view}></iframe></div>'
        row = "display: flex; flex-wrap: wrap; gap: 12px"
        sections[f"Episode {episode + 1}"] = f'<div style="{row}">{views}</div>'
    note = "Drag to turn, scroll to zoom. The scripts of the view come from the web."
    pages.write_page(path, f"Video: {env.name}", sections, note)

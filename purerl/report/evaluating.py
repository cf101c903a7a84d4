"""purerl.evaluate: trained agents play fresh episodes."""

from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import envs
from purerl.acting.environment import bind_params, resolve_env
from purerl.acting.evaluate import play_episodes
from purerl.acting.policy import drawing, recurrence_of
from purerl.config import ConfigError, TrainConfig, apply_overrides, shown
from purerl.envs.wrappers import RewardWrapper, Wrapper
from purerl.population.search import BestMember
from purerl.precision import in_32_bits
from purerl.randomisation import is_random
from purerl.report.rendering import EPISODE_SEED
from purerl.runner.arguments import as_seed, split_seed
from purerl.runner.result import Best, RunResult, load_run
from purerl.scale.host import agent_to_device, with_keys
from purerl.serialise import env_name
from purerl.sweeps.result import SweepResult
from purerl.train import bind, check_acts, evaluate_afresh
from purerl.types import HostMetrics, PyTree
from purerl.warm_start import check_agent


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
    if not isinstance(episodes, int) or episodes < 1:
        raise ConfigError(f"episodes must be at least 1, got {episodes!r}.")
    episode_seed = as_seed("episode_seed", episode_seed)
    saved = read_agents(what, state, seed)
    bound = bind(saved.config, on_host=True, trains=False)
    how = episodes, episode_seed, deterministic
    if bound.env.on_host:
        if gymnasium or env_params:
            raise ConfigError(
                "gymnasium and env_params have no use for agents that were trained in "
                f"{saved.config.env}: they play there, with its own numbers."
            )
        played = _play_on_host(saved, bound.env, *how)
    elif gymnasium:
        _check_same_game(saved.config, env_params)
        try:
            env = envs.make(f"gymnasium/{env_name(saved.config.env)}")
        except ValueError as error:  # Gymnasium is missing, or has none of this name.
            raise ConfigError(str(error)) from None
        played = _play_on_host(saved, env, *how)
    else:
        numbers = {f"env_params.{n}": v for n, v in (env_params or {}).items()}
        config = apply_overrides(saved.config, numbers) if numbers else saved.config
        key = jax.random.key(episode_seed)
        played = play_compiled(config, saved.state, episodes, key, deterministic)
    where = "Gymnasium's own " if gymnasium else ""
    kind = "deterministic" if deterministic else "sampled"
    title = (
        f"{where}{env_name(saved.config.env)}: {episodes} episodes, {kind} policy "
        f"after update {saved.update:,}"
    )
    if bound.env.shapes_rewards:
        title += ", rewards of the game"
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
    if not deterministic:
        recurrence = drawing(recurrence, jax.random.key(seed))
    act = jax.jit(recurrence.act)
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
    is_other = is_random(given)
    if not is_other:
        if isinstance(given, Mapping):  # without those of the wrappers
            given = {name: value for name, value in given.items() if hasattr(own, name)}
        given = bind_params(env, given)
        is_other = jax.tree.structure(own) != jax.tree.structure(given) or not all(
            map(np.array_equal, jax.tree.leaves(own), jax.tree.leaves(given))
        )
    lacking = {
        "env_params": shown(config.env_params) if is_other else "",
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
        raise ConfigError(
            "gymnasium plays with Gymnasium's own numbers; leave env_params out."
        )


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

    @jax.jit
    @partial(jax.vmap, in_axes=(0, None))
    def play(state: PyTree, key: Any) -> Any:
        played = evaluate_afresh(
            bound, bound.config, state, key, episodes, deterministic
        )
        return played._asdict()

    return jax.device_get(play(with_keys(state), key))

"""`purerl evaluate`: play the policies that a run saved."""

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Annotated, Any

import jax
import numpy as np
from rich.console import Console

from purerl import serialise
from purerl.acting.environment import bind_params, resolve_env
from purerl.acting.evaluate import play_episodes
from purerl.acting.policy import recurrence_of
from purerl.cli import flags, settings
from purerl.cli.flags import AgentSeed, EpisodeSeed, RunOrAgent, option, read_agent
from purerl.config import ConfigError, apply_overrides, shown
from purerl.envs import make
from purerl.randomisation import is_random
from purerl.report import tables
from purerl.report.rendering import EPISODE_SEED
from purerl.runner.arguments import as_seed, seeds_named
from purerl.runner.result import RunResult, load_run
from purerl.runner.rows import warn
from purerl.scale.host import agent_to_device, with_keys
from purerl.train import bind, evaluate_afresh
from purerl.types import HostMetrics, PyTree


@dataclasses.dataclass(kw_only=True)
class Evaluate:
    """Play the deterministic policies of a run's last checkpoint."""

    run: RunOrAgent
    episodes: Annotated[int, option("Number of episodes per agent.")] = 20
    seed: AgentSeed = None
    gymnasium: Annotated[
        bool, option("Play in the Gymnasium environment of the same name.")
    ] = False
    env_params: Annotated[
        tuple[str, ...],
        option(
            "Environment parameters to play with, name=value; those that are not named "
            "stay as in training."
        ),
    ] = ()
    episode_seed: EpisodeSeed = EPISODE_SEED


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    options = flags.parse(Evaluate, argv, "evaluate")
    if options.episodes < 1:
        raise ConfigError(f"episodes must be at least 1, got {options.episodes}.")
    as_seed("episode_seed", options.episode_seed)
    settings.enable_compile_cache()
    run, seed = read_agent(options)
    saved = pick(load_run(run), seed)
    warn(saved.seeds, saved.diverged_at)
    if bind(saved.config, on_host=True).env.on_host:
        _refuse_options(saved, options.gymnasium, options.env_params)
        played = play_on_host(saved, options.episodes, options.episode_seed)
    elif options.gymnasium:
        _refuse_changes(saved, options.env_params)
        played = play_gymnasium(saved, options.episodes, options.episode_seed)
    else:
        numbers = serialise.parse_params(
            flags.read_mapping("env_params", options.env_params)
        )
        played = play_compiled(saved, options.episodes, options.episode_seed, numbers)
    where = "Gymnasium's own " if options.gymnasium else ""
    title = (
        f"{where}{saved.config.env}: {options.episodes} episodes, deterministic "
        f"policy after update {saved.update:,}"
    )
    Console().print(
        tables.episodes_table(title, saved.seeds, played, saved.diverged_at)
    )
    return 0


def pick(saved: RunResult, seed: int | None) -> RunResult:
    """Return the run with only the agent of `seed`, or as it is.

    Raises:
        ConfigError: no agent of that seed.
    """
    if seed is None:
        return saved
    if seed not in saved.seeds:
        raise ConfigError(
            f"seed {seed} is not in this run; it has {seeds_named(saved.seeds)}, of "
            "which RUN:SEED takes one."
        )
    index = [saved.seeds.index(seed)]
    state = jax.tree.map(lambda x: x[np.asarray(index)], saved.state)
    return saved._replace(
        seeds=(seed,), state=state, diverged_at=saved.diverged_at[index]
    )


def _refuse_options(saved: RunResult, gymnasium: bool, numbers: Sequence[str]) -> None:
    """Refuse options that an environment of Gymnasium's does not have.

    Raises:
        ConfigError: naming the option.
    """
    for name, given in (("--gymnasium", gymnasium), ("--env-params", numbers)):
        if given:
            raise ConfigError(
                f"{name} has no use for agents that were trained in "
                f"{saved.config.env}: they play there, with its own numbers; leave it "
                "out."
            )


def play_on_host(
    saved: RunResult, episodes: int, seed: int, env: Any = None
) -> HostMetrics:
    """Play in an environment on the host; see `types.Evaluation`.

    Args:
        env: The environment, where it is not that of the training.
    """
    bound = bind(saved.config, on_host=True)
    recurrence = recurrence_of(bound.algorithm(bound.config))
    act = jax.jit(recurrence.act)
    with closing((env or bound.env).start(episodes)) as envs:
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


def _refuse_changes(saved: RunResult, numbers: Sequence[str]) -> None:
    """Refuse what Gymnasium's environment does not do.

    Raises:
        ConfigError: the agents see it through wrappers, were trained with other numbers
            or options, or numbers were given.
    """
    own = {
        "env_params": not _has_own_numbers(saved),
        "env_kwargs": bool(saved.config.env_kwargs),
        "env_wrappers": bool(saved.config.env_wrappers),
    }
    for name in (name for name, is_changed in own.items() if is_changed):
        raise ConfigError(
            f"--gymnasium plays in Gymnasium's own environment, which lacks the "
            f"{name} that the agents were trained with, "
            f"{shown(getattr(saved.config, name))}; leave it out."
        )
    if numbers:
        raise ConfigError(
            "--gymnasium plays with Gymnasium's own numbers; leave --env-params out."
        )


def _has_own_numbers(saved: RunResult) -> bool:
    """Return whether agents were trained with the environment's own numbers."""
    if is_random(saved.config.env_params):
        return False
    env = resolve_env(saved.config)
    own, given = env.default_params, bind_params(env, saved.config.env_params)
    is_alike = jax.tree.structure(own) == jax.tree.structure(given)
    return is_alike and all(map(np.array_equal, *map(jax.tree.leaves, (own, given))))


def play_compiled(
    saved: RunResult, episodes: int, seed: int, numbers: Mapping[str, Any]
) -> HostMetrics:
    """Play in the environment that the agents were trained in; see `types.Evaluation`.

    Args:
        numbers: Parameters that are others than in training, by name.
    """
    config = saved.config
    if numbers:
        config = apply_overrides(
            config, {f"env_params.{n}": v for n, v in numbers.items()}
        )
    bound = bind(config)

    @jax.jit
    @partial(jax.vmap, in_axes=(0, None))
    def play(state: PyTree, key: Any) -> Any:
        played = evaluate_afresh(bound, bound.config, state, key, episodes)
        return played._asdict()

    return jax.device_get(play(with_keys(saved.state), jax.random.key(seed)))


def play_gymnasium(saved: RunResult, episodes: int, seed: int) -> HostMetrics:
    """Play in Gymnasium's environment of the same name; see `types.Evaluation`.

    Episodes are as long as they may be in the environment of the training.

    Raises:
        ConfigError: Gymnasium is missing or has no such environment.
    """
    try:
        env = make(f"gymnasium/{saved.config.env}")
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return play_on_host(saved, episodes, seed, env)

"""Prioritised level replay around PPO (PLR; Jiang et al. 2021, arXiv:2010.03934).

Every update plays one level in each of `B` environments for `T` steps, and all episodes
of an environment are in its level. With probability `p` the levels are drawn from a
buffer of levels that were worth playing, and else they are new ones. What came of them
becomes their score; see `purerl.replay.levels`. The policy learns by PPO's own
update: `ppo.learn` on the rollout, and nothing of it is written anew here.

By default the agent learns from replayed levels only, and new ones are merely scored:
robust PLR (Jiang et al. 2021, "Replay-guided adversarial environment design",
arXiv:2110.02439). With `learn_on_new` it learns from all, and with
`replay_probability=0` besides it is domain randomisation: new levels in every update.

Where the policy does not learn from new levels, its losses are computed and reported
all the same, and its parameters stay. Statistics of observations move in every update,
and so does a step size that is annealed.

The defaults of what replay has are those of JaxUED's mazes (Coward, Beukman and
Foerster 2024, arXiv:2403.13091).
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from purerl.acting import rollout
from purerl.acting.rollout import carry_of, start_of
from purerl.algorithms import checks, on_policy, policy_gradient, ppo
from purerl.algorithms.on_policy import Agent, OnPolicyState
from purerl.algorithms.ppo import PPOConfig
from purerl.config import ConfigError, config_dataclass, dynamic, static
from purerl.envs.base import Environment, select_tree
from purerl.envs.wrappers import RandomLevels, RepeatedLevels
from purerl.fields import FRACTION, POSITIVE, one_of
from purerl.keys import update_keys
from purerl.replay import levels
from purerl.types import Algorithm, Array, Metrics, PyTree, Schedule

SCORES = ("max_monte_carlo", "positive_value_loss")
# The numbers of an update's keys; the first four are those of PPO.
_DECIDE, _NEW, _DRAW, _BEGIN, _NUM_KEYS = 4, 5, 6, 7, 8


@config_dataclass
class PLRConfig(PPOConfig):
    """Prioritised level replay, with PPO."""

    env: Any = "Maze-v0"
    env_wrappers: tuple[str, ...] = ("RandomLevels",)
    total_timesteps: int = 5_000_000
    num_envs: int = 32
    num_steps: int = static(256, "Steps, which end every episode.", POSITIVE)
    buffer_size: int = static(4_000, "Levels that are kept, K.", POSITIVE)
    replay_probability: float = dynamic(0.8, "Share of updates that replay.", FRACTION)
    temperature: float = dynamic(0.3, "Temperature of the ranks of scores.", POSITIVE)
    staleness_coef: float = dynamic(0.3, "Share of levels by staleness.", FRACTION)
    min_fill: float = dynamic(0.5, "Share of the buffer full before replay.", FRACTION)
    score: str = static("max_monte_carlo", "Score of a level.", one_of(*SCORES))
    learn_on_new: bool = static(False, "Learn from new levels too.")

    def check_numbers(self) -> None:
        """Refuse a run whose policy would never learn, as it replays nothing.

        Raises:
            ConfigError: naming the fields, their values, the constraint and the remedy.
        """
        known = self.replay_probability, self.min_fill
        if self.learn_on_new or any(isinstance(x, Tracer | Schedule) for x in known):
            return
        # The threshold is rounded as `choose` rounds it.
        fill = np.float32(self.min_fill) * np.float32(self.buffer_size)
        needed = max(1, math.ceil(fill))
        num_updates = self.total_timesteps // self.steps_per_update
        drawn = max(0, num_updates - 1) * self.num_envs
        if drawn < needed or float(self.replay_probability) == 0:
            raise ConfigError(
                "with learn_on_new=False only replayed levels are learned from, and "
                f"none would be: replay_probability is {self.replay_probability:g}; "
                f"{drawn:,} levels are played before the last update of the "
                f"{needed:,} (min_fill x buffer_size) that are needed."
            )


class Chosen(NamedTuple):
    """The levels of an update.

    Attributes:
        is_replay: `[]` bool, whether they are from the buffer.
        places: `[B]` int32, where in the buffer; meaningless for new ones.
        levels: Leaves `[B, ...]`.
    """

    is_replay: Array
    places: Array
    levels: PyTree


def validate(config: PLRConfig, env: Environment) -> None:
    """Check that the environment plays random levels, and what PPO checks.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    if type(env) is not RandomLevels:
        raise ConfigError(
            "PLRConfig needs RandomLevels as the last of env_wrappers, and numbers in "
            f"env_params, got env_wrappers={config.env_wrappers!r} around "
            f"{env.name} with env_params={config.env_params!r}."
        )
    if config.reset_scheme != "fresh":
        raise ConfigError(
            f"reset_scheme must be fresh, got {config.reset_scheme!r}: the episodes of "
            "an environment are in its level."
        )
    if config.score == "max_monte_carlo" and config.normalize_rewards:
        raise ConfigError(
            "score='max_monte_carlo' compares returns with values, so that "
            "normalize_rewards must be False."
        )
    checks.ppo(config, env)


def make(
    config: PLRConfig, env: RandomLevels, axis_name: str | None = None
) -> Algorithm:
    """Build PLR for a config and an environment with levels.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which this agent's environments are spread.

    Raises:
        ConfigError: there is such an axis.
    """
    if axis_name is not None:
        raise ConfigError(
            "PLRConfig trains an agent on one device, whose levels share a buffer; use "
            "purerl.pmap, which spreads agents."
        )
    agent = ppo.make_agent(config, RepeatedLevels(env.env))
    inner = on_policy.algorithm(agent, ppo.learn)
    return inner._replace(
        init=partial(init, agent), step=partial(step, agent), hosted=None
    )


def init(agent: Agent, key: Array) -> OnPolicyState:
    """Make fresh networks, environments in new levels, and an empty buffer."""
    state = on_policy.algorithm(agent, ppo.learn).init(key)
    level = jax.tree.map(lambda x: x[0], state.envs.state.level)
    return state._replace(level_buffer=levels.empty(level, agent.config.buffer_size))


def step(agent: Agent, state: OnPolicyState) -> tuple[OnPolicyState, Metrics]:
    """Make one update: choose levels, play them, learn, and score them."""
    config, buffer = agent.config, state.level_buffer
    keys = update_keys(state, _NUM_KEYS)
    chosen = choose(agent, state, keys)
    before = begin(agent, state, chosen.levels, keys[_BEGIN])
    played = on_policy.collect(agent, before, keys[:3])
    after, metrics = on_policy.learn_and_report(
        agent, ppo.learn, before, played, keys[3]
    )
    if not config.learn_on_new:
        learned = (after.params, after.opt_state)
        params, opt_state = select_tree(
            chosen.is_replay, learned, (before.params, before.opt_state)
        )
        after = after._replace(params=params, opt_state=opt_state)
    best = jnp.where(chosen.is_replay, buffer.best_return[chosen.places], -jnp.inf)
    results = score(agent, before, played, best)
    again = levels.update(buffer, chosen.places, results, state.update)
    offered = levels.insert(
        buffer, chosen.levels, results, state.update, *_numbers(config)
    )
    buffer = select_tree(chosen.is_replay, again, offered)
    metrics |= {
        "replayed": chosen.is_replay.astype(jnp.float32),
        "level_score": results.score.mean(),
        "levels_kept": buffer.size.astype(jnp.float32),
    }
    return after._replace(level_buffer=buffer), metrics


def choose(agent: Agent, state: OnPolicyState, keys: Array) -> Chosen:
    """Choose the levels of an update, all of them new or all from the buffer.

    Args:
        keys: `[8]` keys of the update.
    """
    config, buffer = agent.config, state.level_buffer
    env: Any = agent.stepper.env
    is_ready = buffer.size >= config.min_fill * config.buffer_size
    is_asked = jax.random.uniform(keys[_DECIDE]) < config.replay_probability
    is_replay = (buffer.size > 0) & is_ready & is_asked
    chances = levels.replay_probabilities(buffer, state.update, *_numbers(config))
    places = levels.draw(keys[_DRAW], chances, config.num_envs)
    each = jax.random.split(keys[_NEW], config.num_envs)
    new = jax.vmap(env.draw_level, (0, None))(each, agent.stepper.params)
    # Numbers that belong to no level, such as a time limit, are those of this run.
    drawn = env.drawn(agent.stepper.params)
    old = jax.tree.map(
        lambda is_drawn, kept, present: kept if is_drawn else present,
        drawn,
        levels.take(buffer, places),
        new,
    )
    return Chosen(is_replay, places, select_tree(is_replay, old, new))


def begin(
    agent: Agent, state: OnPolicyState, chosen: PyTree, key: Array
) -> OnPolicyState:
    """Return the agent with an episode begun in each of `[B, ...]` levels.

    Args:
        chosen: Levels, leaves `[B, ...]`.
        key: Random key, consumed.
    """
    env: Any = agent.stepper.env
    keys = jax.random.split(key, agent.config.num_envs)
    obs, env_state = jax.vmap(env.reset_in)(keys, chosen)
    envs = carry_of(jax.vmap(start_of)(obs, env_state), state.envs)
    return on_policy.restart(state, obs)._replace(envs=envs)


def score(
    agent: Agent,
    before: OnPolicyState,
    played: rollout.Played,
    best: Array,
) -> levels.Result:
    """Score the levels of a rollout by the critic that played them, `[B]` each.

    Args:
        before: State with which the rollout was collected.
        played: The rollout.
        best: `[B]` the highest return in each level before.
    """
    config = agent.config
    transitions, episodes = played.transitions, played.episodes
    seen, _ = policy_gradient.estimate(agent, before, played)
    best = jnp.maximum(best, levels.best_returns(episodes.done, episodes.paid))
    if config.score == "max_monte_carlo":
        return levels.Result(levels.max_monte_carlo(seen.value, best), best)
    advantage = policy_gradient.advantages(agent, seen, transitions)
    return levels.Result(levels.positive_value_loss(advantage), best)


def _numbers(config: PLRConfig) -> tuple[Array | float, Array | float]:
    """The numbers of the replay distribution."""
    return config.temperature, config.staleness_coef

"""Updates in pieces, for environments that are stepped on the host: see `types.Hosted`.

Inside a program an update is one function, because its environments are. Here the same
functions are put together around the steps: what draws the noise, what chooses actions,
what learns. There are two kinds of updates, those that learn from one rollout and those
of many rounds with a replay buffer, and so there are two ways of putting them together.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from purerl.acting import rollout
from purerl.keys import update_keys
from purerl.types import Array, Hosted, Metrics, PyTree

# Of actions, environments, restarts and learning: what an update has at least.
NUM_KEYS = 4


def of_rollout(
    config: Any,
    policy: Callable[[Any], rollout.Policy],
    learn: Callable[[Any, rollout.Rollout, Array], tuple[Any, Metrics]],
    restart: Callable[[Any, PyTree], Any],
) -> Hosted:
    """Put together an update that learns from one rollout.

    Args:
        config: Config with `num_steps` and `num_envs`.
        policy: `(state) -> Policy`, which remembers nothing.
        learn: `(state, rollout, keys) -> (state, metrics)`, what follows the rollout;
            it has the policy's outputs in the place of log-probabilities.
        restart: `(state, obs) -> state` whose episodes begin anew.
    """

    def remembering(state: Any) -> rollout.Policy:
        found = policy(state)
        return found._replace(act=rollout.without_memory(found.act))

    def then(state: Any, played: rollout.Played, keys: Array) -> tuple[Any, Metrics]:
        collected = (played.envs, played.transitions, played.episodes)
        return learn(state, collected, keys)

    return of_recurrent_rollout(config, remembering, then, restart, lambda state: ())


def of_recurrent_rollout(
    config: Any,
    policy: Callable[[Any], rollout.Policy],
    learn: Callable[[Any, rollout.Played, Array], tuple[Any, Metrics]],
    restart: Callable[[Any, PyTree], Any],
    memory_of: Callable[[Any], PyTree],
) -> Hosted:
    """Put together an update that learns from one rollout, with a memory.

    Args:
        config: Config with `num_steps` and `num_envs`.
        policy: `(state) -> Policy` that acts with a memory.
        learn: `(state, played, keys) -> (state, metrics)`, what follows the rollout.
        restart: `(state, obs) -> state` whose episodes begin anew.
        memory_of: `(state) -> memory` of the running episodes.
    """

    def begin(state: Any) -> tuple[Any, PyTree, PyTree]:
        key = update_keys(state, NUM_KEYS)[0]
        noise = policy(state).draw(key, (config.num_steps, config.num_envs))
        return state, memory_of(state), jax.tree.map(lambda x: x[None], noise)

    def act(state: Any, obs: Any, memory: PyTree, noise: PyTree) -> Any:
        chooser = policy(state)
        return chooser.act(chooser.prepare(obs), memory, noise)

    def learn_from(
        state: Any, number: Array, played: rollout.Played
    ) -> tuple[Any, Metrics]:
        del number  # There is one round.
        return learn(state, played, update_keys(state, NUM_KEYS))

    def finish(state: Any, reports: Metrics) -> tuple[Any, Metrics]:
        return state, {name: values[0] for name, values in reports.items()}

    return Hosted(1, config.num_steps, begin, act, learn_from, finish, restart)


def first_step(obs: PyTree) -> rollout.EnvCarry:
    """Return environments on the host whose episodes all begin.

    Args:
        obs: First observations `[B, ...]`.
    """
    num_envs = jax.tree.leaves(obs)[0].shape[0]
    return rollout.EnvCarry(
        (), obs, jnp.zeros(num_envs), jnp.zeros(num_envs, jnp.int32)
    )

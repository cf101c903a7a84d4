"""Updates in pieces, for environments that are stepped on the host: see `types.Hosted`.

Inside a program an update is one function, because its environments are. Here the same
functions are put together around the steps: what draws the noise, what chooses actions,
what learns. Here this is for updates that learn from one rollout; `every_step` has
those that learn in every step, `off_policy` those of many rounds with a replay buffer.
"""

from collections.abc import Callable
from typing import Any

import jax

from purerl.acting import rollout
from purerl.config import ConfigError
from purerl.keys import update_keys
from purerl.types import Array, Hosted, Metrics, PyTree

# An update has keys for actions, environments, restarts and learning at least.
NUM_KEYS = 4


def of_rollout(
    config: Any,
    policy: Callable[[Any], rollout.Player],
    learn: Callable[[Any, rollout.Played, Array], tuple[Any, Metrics]],
    restart: Callable[[Any, PyTree], Any],
    memory_of: Callable[[Any], PyTree] = lambda state: (),
) -> Hosted:
    """Put together an update that learns from one rollout.

    Args:
        policy: `(state) -> Player`, see `rollout.Player`.
        learn: `(state, played, keys) -> (state, metrics)`, what follows the rollout;
            it has the policy's outputs in the place of log-probabilities.
        restart: `(state, obs) -> state` whose episodes begin anew.
        memory_of: `(state) -> memory` of the running episodes; () without one.
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
        return learn(state, rollout.without_bad(played), update_keys(state, NUM_KEYS))

    def finish(state: Any, reports: Metrics) -> tuple[Any, Metrics]:
        return state, jax.tree.map(lambda x: x[0], reports)

    return Hosted(1, config.num_steps, begin, act, learn_from, finish, restart)


def first_step(envs: rollout.EnvCarry, obs: PyTree) -> rollout.EnvCarry:
    """Return environments on the host whose episodes all begin.

    Args:
        envs: The environments before, whose bad transitions are counted.
        obs: First observations `[B, ...]`.
    """
    start = jax.vmap(rollout.start_of)(obs, ())
    return rollout.carry_of(start, envs)


def reject_stateless_act(*args: Any, **kwargs: Any) -> Array:
    """Refuse to act without a memory: the `Algorithm.act` of a policy that remembers.

    Raises:
        ConfigError: always: acting on single observations would be another policy.
    """
    del args, kwargs
    raise ConfigError(
        "this policy remembers the episode so far: use `algorithm.recurrence`, or "
        "purerl.make_policy(config, state) and its `memory = policy.init()`."
    )

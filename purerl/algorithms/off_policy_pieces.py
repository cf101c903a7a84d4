"""An off-policy update of a state: whole, or in pieces for environments on the host.

Both are the functions of `off_policy`. Inside a program they are scanned; from the host
they are called round by round, see `types.Hosted`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl.acting import rollout
from purerl.algorithms import off_policy, pieces
from purerl.algorithms.off_policy import Experience, OffPolicyHooks
from purerl.algorithms.off_policy_config import OffPolicyConfig
from purerl.keys import update_keys
from purerl.types import Array, Hosted, Metrics, PyTree

# An update needs keys for actions, environments and restarts, for replay, and for
# learning.
_NUM_KEYS = 5


class Split(NamedTuple):
    """The state of an algorithm, taken apart for the pieces of an update.

    Attributes:
        hooks: Functions and numbers that the algorithm gives to the loop.
        learner: The learner: everything that `hooks.learn` changes.
        experience: Buffer and environments, as between two updates.
        join: `(learner, experience) -> state` after the update.
    """

    hooks: OffPolicyHooks
    learner: Any
    experience: Experience
    join: Callable[[Any, Experience], Any]


class Work(NamedTuple):
    """The values that one piece of an update hands on to the next.

    Attributes:
        state: State before the update, without buffer, priorities and environments.
        learner: The learner: everything that `hooks.learn` changes.
        experience: Experience as it is inside an update.
        noise: Random numbers of the gradient steps, `[R, G, ...]`.
    """

    state: Any
    learner: Any
    experience: Experience
    noise: PyTree


def step(whole: Split, state: Any) -> tuple[Any, Metrics]:
    """Make one update: rounds of acting, storing and learning.

    Args:
        whole: The state, taken apart.
        state: State of one agent.
    """
    learner, experience, metrics = off_policy.run(
        whole.hooks,
        whole.learner,
        whole.experience,
        update_keys(state, _NUM_KEYS),
        state.update,
    )
    return whole.join(learner, experience), metrics


def of_rounds(
    config: OffPolicyConfig, split: Callable[[Any], Split], update: Array
) -> Hosted:
    """Put together the pieces of an update for environments on the host.

    Args:
        config: Config of the agent; its leaves may be traced.
        split: Function that takes a state apart, `(state) -> Split`.
        update: `[]` int32, number of updates done.
    """
    rounds = config.rounds_per_update
    first = jnp.asarray(update).astype(jnp.uint32) * jnp.uint32(rounds)
    pieces = _Rounds(config, split, first)
    again = partial(restart, first * jnp.uint32(config.num_steps))
    return Hosted(
        rounds,
        config.num_steps,
        pieces.begin,
        pieces.act,
        pieces.learn,
        pieces.finish,
        again,
    )


class _Rounds(NamedTuple):
    """The pieces of an update, round by round; see `types.Hosted`.

    Attributes:
        config: Config of the agent; its leaves may be traced.
        split: Function that takes a state apart, `(state) -> Split`.
        first: `[]` uint32, number of rounds before this update.
    """

    config: OffPolicyConfig
    split: Callable[[Any], Split]
    first: Array

    def begin(self, state: Any) -> tuple[Work, PyTree, PyTree]:
        """Draw the randomness of all rounds, and open the replay buffer."""
        hooks, learner, experience, _ = self.split(state)
        rounds, num_envs = self.config.rounds_per_update, self.config.num_envs
        keys = update_keys(state, _NUM_KEYS)
        shape = (rounds * self.config.num_steps, num_envs)
        noise = off_policy.draw_actions(hooks, keys[0], shape)
        numbers = self.first + jnp.arange(rounds, dtype=jnp.uint32)
        count = partial(off_policy.numbers_of_steps, hooks, num_envs=num_envs)
        env_steps = jax.vmap(count)(numbers * jnp.uint32(self.config.steps_per_round))
        work = Work(
            _without_experience(state),
            learner,
            off_policy.opened(hooks, experience),
            off_policy.draw_learning(hooks, keys[3], keys[4]),
        )
        return work, (), (off_policy.by_round(hooks, noise), env_steps)

    def act(self, work: Work, obs: Any, memory: PyTree, noise: PyTree) -> Any:
        """Choose actions with the policy as it is in this round."""
        hooks, moments = self.split(work.state).hooks, work.experience.obs_moments
        chooser = off_policy.policy(hooks, work.learner, moments)
        return chooser.act(chooser.prepare(obs), noise), memory

    def learn(
        self, work: Work, number: Array, played: rollout.Played
    ) -> tuple[Work, tuple[rollout.Episodes, Metrics]]:
        """Remember the steps of a round, and learn where that is due."""
        hooks = self.split(work.state).hooks
        now = self.first + jnp.asarray(number).astype(jnp.uint32)
        experience = off_policy.remember(
            hooks,
            work.experience,
            now * jnp.uint32(self.config.steps_per_round),
            played.envs,
            played.transitions,
        )
        (learner, priorities), sums = off_policy.learn_if_due(
            hooks,
            work.learner,
            experience,
            now,
            jax.tree.map(lambda x: x[number], work.noise),
            work.state.key,
        )
        experience = experience._replace(priorities=priorities)
        work = work._replace(learner=learner, experience=experience)
        return work, (played.episodes, sums)

    def finish(self, work: Work, reports: Any) -> tuple[Any, Metrics]:
        """Close the replay buffer, and return the state and the update's metrics."""
        hooks, _, _, join = self.split(work.state)
        metrics = off_policy.report(hooks, self.first, *reports)
        num_envs = self.config.num_envs
        experience = off_policy.closed(hooks, work.experience, num_envs, metrics)
        return join(work.learner, experience), metrics


def restart(steps: Array, state: Any, obs: PyTree) -> Any:
    """Return the state with all episodes begun anew.

    The last step of every environment is marked as cut, so that no return of several
    steps goes on in an episode that it does not belong to.

    Args:
        steps: `[]` uint32, steps that every environment has taken.
        state: State of one agent, with a buffer.
        obs: First observations `[B, ...]`.
    """
    buffer = state.buffer
    rows = buffer.truncated.shape[0]
    last = jnp.where(steps > 0, (steps + rows - 1) % rows, rows).astype(jnp.int32)
    is_last = (jnp.arange(rows) == last)[:, None] & ~buffer.terminated
    buffer = buffer._replace(truncated=buffer.truncated | is_last)
    return state._replace(buffer=buffer, envs=pieces.first_step(state.envs, obs))


def _without_experience(state: Any) -> Any:
    """A state without what is large, or changes from round to round."""
    large = ("buffer", "priorities", "envs")
    return state._replace(**{name: () for name in large if hasattr(state, name)})

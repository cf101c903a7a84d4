"""Updates in pieces, for environments that are stepped on the host: see `types.Hosted`.

Inside a program an update is one function, because its environments are. Here the same
functions are put together around the steps: what draws the noise, what chooses actions,
what learns. There are three kinds of updates, those that learn from one rollout, those
that learn in every step, and those of many rounds with a replay buffer
(`off_policy`), and so there are three ways of putting them together.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from purerl.accelerator import kernels
from purerl.acting import rollout
from purerl.keys import update_keys
from purerl.types import Array, Hosted, Metrics, PyTree

# An update has keys for actions, environments, restarts and learning at least.
NUM_KEYS = 4
# An update that learns in every step has one key less: it draws its noise with the
# actions.
NUM_KEYS_OF_STEPS = 3


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


class Steps(NamedTuple):
    """An update that learns in every step, as the functions that it is made of.

    Attributes:
        draw: `(key, (T, B)) -> noise` of the actions and of what is learned.
        begin: `(state) -> learner`, what the steps change.
        act: `(learner, envs, noise) -> action` `[B]`, before a step of `envs`.
        learn: `(learner, envs, action, out, noise) -> (learner, trace)` after the step,
            with the environments before it and its outcome `out`.
        finish: `(state, learner, envs, traces) -> (state, metrics)`, traces with leaves
            `[T, B]` and the environments after the last step.
        restart: `(state, obs) -> state` whose episodes begin anew.
    """

    draw: rollout.Draw
    begin: Callable[[Any], PyTree]
    act: Callable[[PyTree, rollout.EnvCarry, PyTree], Array]
    learn: Callable[..., tuple[PyTree, PyTree]]
    finish: Callable[..., tuple[Any, Metrics]]
    restart: Callable[[Any, PyTree], Any]


class StepWork(NamedTuple):
    """The values that the pieces of an update that learns in every step hand on.

    Attributes:
        state: State before the update.
        learner: The learner: everything that the steps change.
        envs: The environments between two steps.
        noise: Random numbers of the update, leaves `[T, B, ...]`.
    """

    state: Any
    learner: PyTree
    envs: rollout.EnvCarry
    noise: PyTree


def take_steps(
    config: Any, stepper: rollout.Stepper, steps: Steps, state: Any
) -> tuple[Any, Metrics]:
    """Make an update that learns in every step, inside a program.

    Args:
        stepper: The environments.
        steps: Functions that the update is made of.
        state: State before the update.
    """
    keys = update_keys(state, NUM_KEYS_OF_STEPS)
    num_envs = state.envs.episode_return.shape[0]
    randomness = rollout.draw_randomness(
        stepper, keys, config.num_steps, num_envs, steps.draw
    )

    def body(carry: tuple[PyTree, rollout.EnvCarry], inputs: Any) -> Any:
        (learner, before), (noise, inputs_t) = carry, inputs
        action = steps.act(learner, before, noise)
        envs, out = rollout.step_envs(
            stepper, before, action, *randomness.restart(inputs_t)
        )
        learner, trace = steps.learn(learner, before, action, out, noise)
        nothing: Any = ()
        seen = nothing
        if config.metrics:
            rest = out.reward, out.next_obs, out.terminated, out.truncated
            seen = rollout.Transition(before.obs, action, nothing, *rest)
        return (learner, envs), (trace, seen)

    start = (steps.begin(state), state.envs)
    (learner, envs), (trace, seen) = kernels.scan(body, start, randomness.inputs)
    state, metrics = steps.finish(state, learner, envs, trace)
    return state, metrics | rollout.shown(jax.tree.map(lambda x: x[:, None], seen))


def of_steps(config: Any, steps: Steps) -> Hosted:
    """Put together an update that learns in every step: each of them is a round.

    Args:
        steps: Functions that the update is made of.
    """

    def begin(state: Any) -> tuple[StepWork, PyTree, PyTree]:
        key = update_keys(state, NUM_KEYS_OF_STEPS)[0]
        noise = steps.draw(key, (config.num_steps, config.num_envs))
        work = StepWork(state, steps.begin(state), state.envs, noise)
        return work, (), jax.tree.map(lambda x: x[:, None], noise)

    def act(work: StepWork, obs: Any, memory: PyTree, noise: PyTree) -> Any:
        action = steps.act(work.learner, work.envs._replace(obs=obs), noise)
        return (action, (), action), memory

    def learn(
        work: StepWork, number: Array, played: rollout.Played
    ) -> tuple[StepWork, PyTree]:
        noise = jax.tree.map(lambda x: x[number], work.noise)
        one, ends = jax.tree.map(lambda x: x[0], (played.transitions, played.episodes))
        out = rollout.StepOutput(
            one.reward,
            one.next_obs,
            one.terminated,
            one.truncated,
            ends.returns,
            ends.lengths,
        )
        envs = work.envs._replace(obs=one.obs)
        learner, trace = steps.learn(work.learner, envs, one.action, out, noise)
        seen = played.transitions if config.metrics else ()
        return work._replace(learner=learner, envs=played.envs), (trace, seen)

    def finish(work: StepWork, reports: PyTree) -> tuple[Any, Metrics]:
        traces, seen = reports
        state, metrics = steps.finish(work.state, work.learner, work.envs, traces)
        return state, metrics | rollout.shown(seen)

    return Hosted(config.num_steps, 1, begin, act, learn, finish, steps.restart)


def first_step(envs: rollout.EnvCarry, obs: PyTree) -> rollout.EnvCarry:
    """Return environments on the host whose episodes all begin.

    Args:
        envs: The environments before, whose bad transitions are counted.
        obs: First observations `[B, ...]`.
    """
    start = jax.vmap(rollout.start_of)(obs, ())
    return rollout.carry_of(start, envs)

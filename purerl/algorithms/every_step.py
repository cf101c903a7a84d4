"""Updates that learn in every step, inside a program and around the host's steps.

An algorithm of this kind is its `Steps`: what draws noise, what acts, what learns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax

from purerl.accelerator import kernels
from purerl.acting import rollout
from purerl.keys import update_keys
from purerl.types import Algorithm, Array, Hosted, Metrics, PyTree

# An update draws its noise with the actions, so that it has no key for learning.
NUM_KEYS = 3


class Steps(NamedTuple):
    """An algorithm that learns in every step, as the functions that it is made of.

    All of them take the parts of the agent first, which `of` binds: a record with
    `config` and `stepper`.

    Attributes:
        init: `(key) -> state`.
        decide: `(state, obs, key=None) -> action`, of whoever acts later.
        draw: `(key, (T, B)) -> noise` of the actions and of what is learned.
        begin: `(state) -> learner`, what the steps change.
        act: `(learner, envs, noise) -> action` `[B]`, before a step of `envs`.
        learn: `(learner, envs, action, out, noise) -> (learner, trace)` after the step,
            with the environments before it and its outcome `out`.
        finish: `(state, learner, envs, traces, episodes) -> (state, metrics)`, with
            traces `[T, B]` and the environments after the last step.
        restart: `(state, obs) -> state` whose episodes begin anew.
    """

    init: Callable[..., Any]
    decide: Callable[..., Array]
    draw: Callable[..., PyTree]
    begin: Callable[..., PyTree]
    act: Callable[..., Array]
    learn: Callable[..., tuple[PyTree, PyTree]]
    finish: Callable[..., tuple[Any, Metrics]]
    restart: Callable[..., Any]

    def of(self, parts: Any) -> Steps:
        """Return the functions of an agent."""
        bound: Any = (partial(function, parts) for function in self)
        return Steps(*bound)


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


def algorithm(steps: Steps, parts: Any) -> Algorithm:
    """Return the algorithm of some steps and of the parts of an agent."""
    steps = steps.of(parts)
    return Algorithm(
        steps.init,
        partial(take_steps, steps, parts),
        steps.decide,
        hosted=lambda update: of_steps(parts.config, steps),
    )


def take_steps(steps: Steps, parts: Any, state: Any) -> tuple[Any, Metrics]:
    """Make an update that learns in every step, inside a program.

    Args:
        steps: Functions that the update is made of, bound to the parts.
        state: State before the update.
    """
    config, stepper = parts.config, parts.stepper
    keys = update_keys(state, NUM_KEYS)
    randomness = rollout.draw_randomness(
        stepper, state.envs, keys, config.num_steps, steps.draw
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
        totals = out.episode_return, out.episode_length, nothing, out.shaped_return
        ends = rollout.Episodes(out.terminated ^ out.truncated, *totals)
        if config.metrics:
            rest = out.reward, out.next_obs, out.terminated, out.truncated
            seen = rollout.Transition(before.obs, action, nothing, *rest)
        return (learner, envs), (trace, ends, seen)

    start = (steps.begin(state), state.envs)
    (learner, envs), (trace, ends, seen) = kernels.scan(body, start, randomness.inputs)
    ends = ends._replace(bad=envs.bad)
    state, metrics = steps.finish(state, learner, envs, trace, ends)
    return state, metrics | rollout.shown(jax.tree.map(lambda x: x[:, None], seen))


def of_steps(config: Any, steps: Steps) -> Hosted:
    """Put together an update that learns in every step: each of them is a round.

    Args:
        steps: Functions that the update is made of.
    """

    def begin(state: Any) -> tuple[StepWork, PyTree, PyTree]:
        key = update_keys(state, NUM_KEYS)[0]
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
        return work._replace(learner=learner, envs=played.envs), (trace, ends, seen)

    def finish(work: StepWork, reports: PyTree) -> tuple[Any, Metrics]:
        traces, ends, seen = reports
        ends, after = ends._replace(bad=work.envs.bad), (work.learner, work.envs)
        state, metrics = steps.finish(work.state, *after, traces, ends)
        return state, metrics | rollout.shown(seen)

    return Hosted(config.num_steps, 1, begin, act, learn, finish, steps.restart)

"""A run in segments: updates in a scan, with evaluations between them."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import dynamic_update_index_in_dim

from purerl.accelerator import kernels
from purerl.acting.environment import bind_params, time_limit
from purerl.acting.evaluate import evaluate as play_evaluation
from purerl.acting.policy import drawing, recurrence_of
from purerl.config import ConfigError, TrainConfig
from purerl.hooks import OBSERVED
from purerl.keys import evaluation_key
from purerl.learning.averages import vary_like
from purerl.learning.branches import change_if, traced_once
from purerl.train.binding import Bound, check_environment_stays
from purerl.types import (
    Algorithm,
    Array,
    Evaluation,
    Metrics,
    Overrides,
    PyTree,
    Recurrence,
)


class SegmentProgram(NamedTuple):
    """A run in pieces: `init`, then `advance` any number of times.

    Attributes:
        init: Function that makes the first state, `(key) -> state`.
        advance: `(state, first_update, length) -> (state, metrics, evaluation)`:
            `length` updates from number `first_update` on. `length` is static;
            `first_update` may be traced but must not be batched, so that "is it time
            to evaluate?" stays one branch for a whole population. Updates past the
            end of the run leave the state as it is. What is observed is an entry
            `observed` of the evaluation.
    """

    init: Callable[[Array], PyTree]
    advance: Callable[[PyTree, Any, int], tuple[PyTree, Metrics, Metrics]]


def make_segment(
    bound: Bound,
    overrides: Overrides | None = None,
    axis_name: str | None = None,
    observe: Callable[[PyTree], PyTree] | None = None,
) -> SegmentProgram:
    """Make the run of a config and its overrides, to be advanced in segments.

    Args:
        bound: Config, environment and plan.
        overrides: Values of dynamic fields by name; they may be traced.
        axis_name: Mapped axis over which this agent's environments are spread, if any.
        observe: Function of the state that is called at every evaluation.
    """
    config = bound.at(overrides)
    check_time_limit(bound, config)
    check_environment_stays(config)
    algorithm = bound.algorithm(config, axis_name)
    num_updates = bound.plan.num_updates
    is_due = np.isin(np.arange(num_updates) + 1, bound.plan.evaluate_after)
    env_params = bind_params(bound.env, config.env_params)
    recurrence = recurrence_of(algorithm)
    observe = observe and traced_once(observe)

    def evaluate(state: PyTree) -> dict[str, Any]:
        played = evaluate_agent(bound, config, env_params, recurrence, state)
        return played if observe is None else played | {OBSERVED: observe(state)}

    def advance(
        state: PyTree, first_update: Any, length: int
    ) -> tuple[PyTree, Metrics, Metrics]:
        may_overrun = not isinstance(first_update, int) or (
            first_update + length > num_updates
        )
        update = partial(_update_or_keep, num_updates) if may_overrun else _update
        slots = max_evaluations(is_due, length, first_update)
        shapes = _evaluation_shapes(config.eval_episodes)
        if observe is not None:
            shapes[OBSERVED] = jax.eval_shape(observe, state)
        evaluations = jax.tree.map(
            lambda x: jnp.zeros((slots, *x.shape), x.dtype), shapes
        )
        state, evaluations = vary_like((state, evaluations), state.key)
        due = jnp.asarray(np.append(is_due, False))

        def body(carry: tuple, index: Array) -> tuple[tuple, Metrics]:
            state, evaluations, slot = carry
            state, metrics = update(algorithm, state, index)
            now = due[jnp.minimum(index, num_updates)]
            if slots:
                evaluations = jax.lax.cond(
                    now,
                    lambda: jax.tree.map(
                        lambda rows, row: dynamic_update_index_in_dim(
                            rows, row, slot, 0
                        ),
                        evaluations,
                        evaluate(state),
                    ),
                    lambda: evaluations,
                )
            return (state, evaluations, slot + now), metrics

        indices = jnp.asarray(first_update, jnp.int32) + jnp.arange(length)
        carry = (state, evaluations, jnp.int32(0))
        (state, evaluations, _), metrics = kernels.scan(body, carry, indices)
        return state, bound.moving(config, indices) | metrics, evaluations

    return SegmentProgram(algorithm.init, advance)


def _update(
    algorithm: Algorithm, state: PyTree, index: Array
) -> tuple[PyTree, Metrics]:
    """Make update number `index`."""
    # The same number, but one for all agents of a `vmap` over states: what an algorithm
    # derives from it ("is the warm-up over?") is not batched either.
    new, metrics = algorithm.step(state._replace(update=index))
    return new._replace(update=state.update + 1), metrics


def _update_or_keep(
    num_updates: int, algorithm: Algorithm, state: PyTree, index: Array
) -> tuple[PyTree, Metrics]:
    """Make update number `index`, or none where the run has ended by then."""
    update = partial(_update, algorithm, index=index)
    return change_if(index < num_updates, update, state)


def max_evaluations(is_due: np.ndarray, length: int, first_update: Any) -> int:
    """Return the most evaluations that fall into `length` consecutive updates.

    Args:
        is_due: Whether an evaluation follows each update, `[U]`.
        length: Number of updates.
        first_update: Number of the first one, where it is known before tracing.
    """
    total = np.concatenate([[0], np.cumsum(is_due)])
    known = isinstance(first_update, int)
    starts = np.array([first_update]) if known else np.arange(len(is_due))
    ends = np.minimum(starts + length, len(is_due))
    return int((total[ends] - total[starts]).max())


def check_time_limit(bound: Bound, config: TrainConfig) -> None:
    """Refuse overrides by which evaluation episodes outlast the plan.

    The plan's longest episode is a Python number: it bounds a loop and the share of
    evaluations. An override that makes the time limit longer would be cut there.

    Raises:
        ConfigError: naming both limits and what to set.
    """
    planned = bound.plan.eval_max_steps
    if not bound.plan.evaluate_after:
        return
    limit = time_limit(config, bound.env)
    if limit > planned:
        raise ConfigError(
            f"override 'env_params.max_steps_in_episode' is {limit}, but evaluations "
            f"are planned for {planned}. Set eval_max_steps, or num_evaluations=0."
        )


def evaluate_agent(
    bound: Bound,
    config: TrainConfig,
    env_params: PyTree,
    recurrence: Recurrence,
    state: PyTree,
) -> Metrics:
    """Play the deterministic policy's episodes, as `TrainResult.evaluation` keeps them.

    Args:
        config: Config with overrides, of which the number of episodes is read.
        env_params: Numbers of the environment.
        recurrence: Functions by which the algorithm acts with a memory.
    """
    key, episodes = evaluation_key(state), config.eval_episodes
    result = _play(bound, env_params, recurrence, state, key, episodes)
    steps = state.update.astype(jnp.uint32) * jnp.uint32(bound.plan.steps_per_update)
    return {"env_steps": steps, **result._asdict()}


def _evaluation_shapes(episodes: int) -> dict[str, Any]:
    """The shapes of what `evaluate_agent` returns, without tracing it."""
    each = jax.ShapeDtypeStruct
    return {
        "env_steps": each((), jnp.uint32),
        "episode_return": each((episodes,), jnp.float32),
        "episode_length": each((episodes,), jnp.int32),
        "cut_episodes": each((), jnp.int32),
    }


def _play(
    bound: Bound,
    env_params: PyTree,
    recurrence: Recurrence,
    state: PyTree,
    key: Array,
    episodes: int,
) -> Evaluation:
    played = play_evaluation(
        bound.env,
        env_params,
        partial(recurrence.act, state),
        key,
        memory=recurrence.init((episodes,)),
        num_episodes=episodes,
        max_steps=bound.plan.eval_max_steps,
    )
    # Episodes that break count with what they had earned: 0, which is the best return
    # where all rewards are negative.
    returns = jnp.where(parameters_finite(state), played.episode_return, jnp.nan)
    return played._replace(episode_return=returns)


def parameters_finite(state: Any) -> Array:
    """Return whether all parameters of an agent are finite numbers, bool `[]`.

    Args:
        state: State of one agent; what it holds under `params` is looked at.
    """
    # One sum over all of them: each layer's own would be kernels of its own.
    finite = [
        jnp.isfinite(leaf).ravel()
        for leaf in jax.tree.leaves(getattr(state, "params", ()))
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    ]
    return jnp.concatenate([*finite, jnp.ones(1, bool)]).all()


def evaluate_afresh(
    bound: Bound,
    config: TrainConfig,
    state: PyTree,
    key: Array,
    num_episodes: int | None = None,
    deterministic: bool = True,
) -> Evaluation:
    """Play fresh episodes of a trained agent.

    Args:
        config: Config with overrides, of which the environment's numbers are read.
        key: Random key of the episodes, consumed.
        num_episodes: Number of episodes, E; `eval_episodes` where not given.
        deterministic: Whether the policy is, or draws its actions.
    """
    recurrence = recurrence_of(bound.algorithm(config))
    if not deterministic:
        key, key_act = jax.random.split(key)
        recurrence = drawing(recurrence, key_act)
    env_params = bind_params(bound.env, config.env_params)
    episodes = num_episodes or config.eval_episodes
    return _play(bound, env_params, recurrence, state, key, episodes)

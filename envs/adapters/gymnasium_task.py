"""The task and its numbers, which Gymnasium's two kinds of environment share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from ..base import Environment
from ..registry import make, source_of
from ..wrappers import Wrapper
from .adapt import adapt
from .arrays import as_arrays
from .gymnasium_programs import Programs, programs_of
from .gymnasium_spaces import to_gym_space

RENDER_FPS = 30
"""Frames per second of a video: a rate to watch, whatever time a step stands for."""


@dataclasses.dataclass(frozen=True)
class Task:
    """An environment with its numbers, as Gymnasium sees it.

    Attributes:
        env: The environment.
        params: Numbers of the environment, arrays all of them.
        programs: Compiled reset and step.
        observation_space: Gymnasium's space of one observation.
        action_space: Gymnasium's space of one action.
    """

    env: Environment
    params: Any
    programs: Programs
    observation_space: gymnasium.Space
    action_space: gymnasium.Space

    @property
    def has_picture(self) -> bool:
        """True if `render` is written for the environment."""
        return self.env.has_picture

    def metadata(self) -> dict[str, Any]:
        """Return Gymnasium's `metadata`: render modes, and frames per second if any."""
        if not self.has_picture:
            return {"render_modes": []}
        return {"render_modes": ["rgb_array"], "render_fps": RENDER_FPS}

    def check_render_mode(self, render_mode: str | None) -> None:
        """Refuse a mode that the environment does not have.

        Raises:
            ValueError: it does not.
        """
        modes = [None, *self.metadata()["render_modes"]]
        if render_mode not in modes:
            raise ValueError(
                f"render_mode of {self.env.name} must be one of {modes}, got "
                f"{render_mode!r}."
            )


def make_task(env: Any, params: Any, options: Mapping[str, Any]) -> Task:
    """Find an environment and put its numbers in.

    Args:
        env: An id, an `Environment`, or an object of the gymnax 1.0 contract.
        params: Names and values, a whole structure, or None for the defaults.
        options: Options of `envs.make`, with an id only.

    Raises:
        ValueError: unknown id, option or number; options without an id.
        TypeError: the object does not keep the contract.
    """
    if isinstance(env, str):
        env = _make(env, options)
    elif options:
        raise ValueError(
            f"options are {sorted(options)}, but env is an object: they go with an id."
        )
    else:
        env = adapt(env)
    params = _bind(env, env.default_params, params)
    return Task(
        env,
        params,
        programs_of(env),
        to_gym_space(env.observation_space(params)),
        to_gym_space(env.action_space(params)),
    )


def read_options(options: Any, example: str) -> Mapping[str, Any]:
    """Return the options of a reset by name; none where none were given.

    Args:
        options: Options that `reset` got.
        example: Example of options for the message.

    Raises:
        ValueError: they are no dictionary.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise ValueError(
            f"options of reset must be a dictionary, such as {example}, or left out, "
            f"got {options!r}."
        )
    return options


def with_reset_options(task: Task, options: Mapping[str, Any] | None) -> Task:
    """Return the task with the numbers under `options["params"]`.

    Other options do nothing.

    Raises:
        ValueError: options that are no dictionary, an unknown number, or one that
            changes a space.
    """
    example = '{"params": {"max_steps_in_episode": 100}}'
    values = read_options(options, example).get("params")
    if values is None:
        return task
    params = _bind(task.env, task.params, values)
    spaces = (task.env.observation_space(params), task.env.action_space(params))
    if tuple(map(to_gym_space, spaces)) != (task.observation_space, task.action_space):
        changed = f"{sorted(values)} " if isinstance(values, Mapping) else ""
        raise ValueError(
            f"params {changed}change a space of {task.env.name}, which a reset "
            "cannot: make another environment with them."
        )
    return dataclasses.replace(task, params=params)


def _make(id: str, options: Mapping[str, Any]) -> Environment:
    # Only environments that nobody can redefine are shared, with what is compiled.
    if source_of(id) == "registered":
        return make(id, **options)
    try:
        return _make_shared(id, **options)
    except TypeError:  # An option cannot be hashed.
        return make(id, **options)


_make_shared = lru_cache(maxsize=64)(make)


def _bind(env: Environment, params: Any, values: Any) -> Any:
    """`params` with `values` put in, all of them arrays of a strong type."""
    if values is None:
        return as_arrays(params)
    if not isinstance(values, Mapping):
        if jax.tree.structure(values) != jax.tree.structure(params):
            raise ValueError(
                f"params of {env.name} must be names and numbers, or its whole "
                f"{type(params).__name__}, got {type(values).__name__}."
            )
        values = {f.name: getattr(values, f.name) for f in dataclasses.fields(values)}
    known = {field.name for field in dataclasses.fields(params)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(
            f"params of {env.name} have no {', '.join(unknown)}; they have "
            f"{', '.join(sorted(known))}."
        )
    fitted = {
        name: _fit(env, name, getattr(params, name), value)
        for name, value in values.items()
    }
    params = dataclasses.replace(params, **fitted)
    _check_wrappers(env, params)
    return as_arrays(params)


def _check_wrappers(env: Environment, params: Any) -> None:
    """Refuse numbers of wrappers that these would refuse where they are made."""
    wrapper = env
    while isinstance(wrapper, Wrapper):
        numbers = {name: getattr(params, name) for name in wrapper.numbers()}
        # In the shortest form that is the same number in 32 bits, for the message.
        short = {n: float(str(np.float32(x))) for n, x in numbers.items()}
        try:
            wrapper.check_numbers(short)
        except ValueError as error:
            raise ValueError(f"params of {env.name}: {error}") from None
        wrapper = wrapper.env


def _fit(env: Environment, name: str, default: Any, value: Any) -> Any:
    """The value with the dtype of the default, where that is one number or array.

    Raises:
        ValueError: it is none, or has another shape, or is broken where the default is
            whole, or a time limit that is no limit.
    """
    if not jax.tree_util.all_leaves([default]):
        return value
    dtype = jax.dtypes.canonicalize_dtype(jnp.result_type(default))
    shape, is_whole = np.shape(default), dtype.kind in "iub"
    needed = f"an array of shape {shape}" if shape else "one number"
    needed = needed.replace("number", "whole number") if is_whole else needed
    given = np.asarray(value)
    is_number = given.dtype.kind in "biuf" and given.shape == shape
    if not is_number or (is_whole and np.any(given != np.floor(given))):
        raise ValueError(
            f"params.{name} of {env.name} must be {needed}, got {value!r}."
        )
    if name == "max_steps_in_episode" and given < 1:
        raise ValueError(
            f"params.{name} of {env.name} must be at least 1, got {value!r}."
        )
    return jnp.asarray(given, dtype)

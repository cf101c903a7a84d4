"""Warm starts: training that begins with what another run has learned.

A run begins with a whole training state, and then goes on where that stopped, or with
networks, which are named arrays: all else (optimiser, environments, replay, the number
of the update) is fresh then. Which of them it is follows from what is given.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from purerl import auto
from purerl.algorithms.checks import check_parts
from purerl.config import ConfigError, TrainConfig, is_auto, shown
from purerl.learning.optimiser import is_in, name_leaves
from purerl.scale.host import to_device
from purerl.types import AgentState, Array, Overrides, PyTree

Networks: TypeAlias = dict[str, Any]
# The fields of a state that hold what a network learns and the statistics by which its
# inputs and targets are scaled. What the environments do meanwhile is no part of them.
LEARNED = ("params", "target_params")
STATISTICS = ("obs_moments", "reward_scale")
_RUNNING = "reward_scale.running"
_TARGET = "target_params."
# How a part of the networks is taken, in messages to those who call a function.
_BY_CALL = "purerl.networks_of(state, '{part}')"


def networks_of(state: PyTree, *parts: str) -> Networks:
    """Return the networks in a training state, as named arrays.

    They are what is learned (a temperature too, where there is one), target networks,
    and the statistics of observations and returns by which networks are fed. Names are
    paths with dots, such as `actor.torso.Dense_0.kernel`.

    Args:
        state: `TrainResult.state`; its arrays may have leading axes of agents.
        *parts: Names of the parts to return, such as `"torso"` or `"actor"`; all where
            none is given. Statistics come with any part, if anything was scaled by
            them (of traced states that is not known).

    Raises:
        ConfigError: the state has no such part, or no `params`.
    """
    if not hasattr(state, "params"):
        raise ConfigError(
            f"a {type(state).__name__} has no field params, in which an algorithm "
            "keeps what it learns; give the state of a training run."
        )
    return choose(_named(state), parts, "networks_of")


def _named(state: PyTree) -> dict[str, list[tuple[str, Any]]]:
    """Names and arrays of a state's networks, by the field that holds them."""
    fields = [name for name in (*LEARNED, *STATISTICS) if hasattr(state, name)]
    return {
        field: name_leaves(getattr(state, field), "" if field == "params" else field)
        for field in fields
    }


def choose(
    named: Mapping[str, Sequence[tuple[str, Any]]], parts: Sequence[str], owner: str
) -> Networks:
    """Return the networks among the named arrays of a state.

    Args:
        named: Names and arrays by the field of the state; other fields are left out.
        parts: Names of the parts to return; all where there is none.
        owner: Place where the parts were given, for the message.

    Raises:
        ConfigError: there is no such part.
    """
    learned = unique([leaf for field in LEARNED for leaf in named.get(field, ())])
    check_parts(parts, learned, owner)
    chosen = {
        name: leaf
        for name, leaf in learned.items()
        if not parts or any(is_in(name, part) for part in parts)
    }
    scales = dict(leaf for field in STATISTICS for leaf in named.get(field, ()))
    scales.pop(_RUNNING, None)
    unused = {
        name.rpartition(".")[0]
        for name, value in scales.items()
        if name.endswith(".count")
        and _is_known(value)
        and not np.any(np.asarray(value))
    }
    used = {n: x for n, x in scales.items() if n.rpartition(".")[0] not in unused}
    return chosen | used


def _is_known(value: Any) -> bool:
    """Return whether an array has numbers: it is no shape, and is not traced."""
    return not isinstance(value, Tracer | jax.ShapeDtypeStruct)


def taken_by(networks: Mapping[str, Any], state: PyTree) -> Networks:
    """Return networks without statistics of rewards where an agent scales none.

    Args:
        networks: Arrays by name; they may have leading axes of agents.
    """
    scales_rewards = hasattr(state, "reward_scale")
    return {
        name: value
        for name, value in networks.items()
        if scales_rewards or not name.startswith("reward_scale.")
    }


def put_networks(state: PyTree, networks: Mapping[str, Any]) -> PyTree:
    """Return the state with networks in the place of its own.

    Args:
        state: A state, on devices or on the host.
        networks: Arrays by name, of `networks_of`; those that it lacks stay, but a
            target network that it lacks becomes a copy of its network, as in a fresh
            agent.
    """

    def value_of(name: str, leaf: Any) -> Any:
        return networks.get(name, networks.get(name.removeprefix(_TARGET), leaf))

    leaves = [value_of(name, leaf) for name, leaf in name_leaves(state)]
    return jax.tree.unflatten(jax.tree.structure(state), leaves)


def check_networks(
    networks: Mapping[str, Any], state: PyTree, by: str = _BY_CALL
) -> None:
    """Refuse networks that have no place in a state.

    Args:
        by: How a part of the networks is taken, for the message; `{part}` stands for
            the name of the part.

    Raises:
        ConfigError: naming the array that does not fit, and what to do.
    """
    unique(name_leaves(state))  # `put_networks` goes by them.
    if not networks:
        raise ConfigError("start holds no networks; give purerl.networks_of(state).")
    remedy = (
        "Train with the sizes and spaces that it was trained with, take one agent of "
        "several with jax.vmap over start, or start from a part that fits, such as "
        f"{by.format(part='torso')}; statistics by which inputs were scaled come with "
        "every part."
    )
    _check_same(networks, networks_of(state), "start", "this agent", remedy, False)


def _kind(value: Any) -> str:
    """The type and shape of an array in words."""
    return f"{_dtype(value)} {np.shape(value)}"


def _dtype(value: Any) -> Any:
    return value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype


def check_scale(start: PyTree, config: Any) -> None:
    """Refuse networks of normalised observations where observations stay as they are.

    Under a trace nothing can be said.

    Args:
        start: A whole state, or networks by name.
        config: Config of the agent that is to begin with them.

    Raises:
        ConfigError: with the field, and what to do.
    """
    if getattr(config, "normalize_observations", True):
        return
    named = start.items() if isinstance(start, Mapping) else name_leaves(start)
    for name, value in named:
        is_count = name.startswith("obs_moments.") and name.endswith(".count")
        if is_count and _is_known(value) and np.any(np.asarray(value) > 0):
            raise ConfigError(
                "start: its networks have learned from normalised observations; train "
                "with normalize_observations=True."
            )


def check_finite(networks: Mapping[str, Any]) -> None:
    """Refuse networks of an agent that diverged: nothing can be learned from them.

    Under a trace nothing can be said.

    Raises:
        ConfigError: naming an array with a number that is not finite, and what to do.
    """
    for name, value in networks.items():
        if _is_known(value) and jnp.issubdtype(_dtype(value), jnp.floating):
            if not np.isfinite(np.asarray(value, np.float32)).all():
                raise ConfigError(
                    f"start: {name} holds numbers that are not finite, as an agent's "
                    "that diverged; start from another one."
                )


def check_state(start: PyTree, state: PyTree) -> None:
    """Refuse a whole state that this agent cannot go on with.

    Args:
        start: The state to go on with, or its shapes.
        state: Shapes of the state that this agent would begin with.

    Raises:
        ConfigError: naming the first array that does not fit, and what to do.
    """
    remedy = (
        "A whole state goes on with the same algorithm, environment, sizes and "
        "buffer_size alone; for another, give purerl.networks_of(state)."
    )
    check_agent(
        start, "start", " Networks by name do too; a folder is for purerl.run(start=)."
    )
    theirs, mine = (unique(name_leaves(x)) for x in (start, state))
    _check_same(theirs, mine, "start", "this agent", remedy)


def _check_same(
    theirs: Mapping[str, Any],
    mine: Mapping[str, Any],
    what: str,
    agent: str,
    remedy: str,
    is_whole: bool = True,
) -> None:
    """Refuse arrays that an agent does not have, has of another kind, or has alone."""
    for name in sorted(theirs.keys() - mine.keys()):
        raise ConfigError(f"{what}: {name} has no place in {agent}. {remedy}")
    for name in sorted(mine.keys() - theirs.keys()) if is_whole else ():
        raise ConfigError(f"{what}: only {agent} has {name}. {remedy}")
    for name, value in theirs.items():
        if _kind(value) != _kind(mine[name]):
            raise ConfigError(
                f"{what}: {name} is {_kind(value)}, and {agent} needs "
                f"{_kind(mine[name])}. {remedy}"
            )


def check_agent(state: PyTree, name: str = "state", also: str = "") -> None:
    """Refuse what is not the state of one agent.

    Args:
        state: Value that was given as a state.
        name: Name of the argument, for the message.
        also: What else may be given, a sentence.

    Raises:
        ConfigError: with what to give.
    """
    update = getattr(state, "update", None)
    if update is None or callable(update):  # A dictionary has such a method.
        raise ConfigError(
            f"{name} must be a training state, such as result.state, got "
            f"{type(state).__name__}.{also}"
        )
    if np.ndim(update) > 0:
        raise ConfigError(
            f"{name} holds {np.shape(update)} agents; pick one with "
            "jax.tree.map(lambda x: x[i], state), or vmap over states."
        )


def check_acts(state: PyTree, fresh: PyTree, agent: str) -> None:
    """Refuse a state whose networks are not those of a config's agent.

    Buffers, environments and optimisers may be others: no policy reads them.

    Args:
        state: State of one agent.
        fresh: Shapes of a state of the config's agent.
        agent: Name of the agent in the message.

    Raises:
        ConfigError: naming the first array that differs, and what to give.
    """
    remedy = "Give the config that the agent was trained with."
    if not hasattr(fresh, "params"):
        return  # It is not known where an algorithm of the user's own has its networks.

    theirs, mine = (
        {
            name: leaf
            for named in _named(one).values()
            for name, leaf in named
            if name != _RUNNING
        }
        for one in (state, fresh)
    )
    _check_same(theirs, mine, "state", agent, remedy)


def begin(
    init: Callable[[Array], AgentState],
    key: Array,
    start: PyTree,
    first_update: int | None,
    bound: Any,
    overrides: Overrides | None,
) -> tuple[PyTree, int]:
    """Return the state to begin with, and the number of updates that it has done.

    Args:
        init: `(key) -> state` of the agent that begins.
        key: Key of the agent, from which it draws from now on.
        start: A whole state, on devices or on the host, or networks by name.
        first_update: Updates that `start` has done, where that must be told.
        bound: Config and plan of the agent that begins, a `purerl.train.Bound`.
        overrides: Values of its dynamic fields by name.

    Raises:
        ConfigError: `start` does not fit, or nothing is left to train.
    """
    config, num_updates = bound.config, bound.plan.num_updates
    shapes = jax.eval_shape(init, key)
    if isinstance(start, Mapping):
        check_scale(start, config)
        networks = taken_by(start, shapes)
        check_networks(networks, shapes)
        check_finite(networks)
        arrays = {name: jnp.asarray(x) for name, x in networks.items()}
        return put_networks(init(key), arrays), 0
    if hasattr(start, "update"):  # What is no state is refused as it is.
        start = to_device(start)
    check_scale(start, config)
    check_state(start, shapes)
    _check_goes_on(bound.asked, config, overrides)
    if hasattr(start, "params"):  # An algorithm of the user's own may have none.
        check_finite(networks_of(start))
    first = _updates_done(start.update, first_update)
    if first >= num_updates:
        raise ConfigError(
            f"start has done {first:,} updates, and this run has {num_updates:,}: "
            "nothing is left to train."
        )
    return start._replace(key=key), first


def check_first_update(first_update: int | None, num_updates: int) -> None:
    """Refuse a number of updates after which a run has none left, or that is none.

    Args:
        first_update: Number of updates that a state is told to have done, or None.
        num_updates: Updates of the whole run.

    Raises:
        ConfigError: with the number and those that can be.
    """
    is_whole = type(first_update) is int or isinstance(first_update, np.integer)
    is_known = is_whole and 0 <= first_update < num_updates  # type: ignore[operator]
    if first_update is not None and not is_known:
        raise ConfigError(
            f"first_update must be a whole number from 0 to {num_updates - 1:,}, got "
            f"{shown(first_update)}: give int(state.update)."
        )


def _check_goes_on(
    asked: TrainConfig, config: TrainConfig, overrides: Overrides | None
) -> None:
    """Refuse to go on with a state where `auto` follows the length of the run."""
    # A state does not say how long its run was to be, so that an agent that has
    # explored would begin to explore anew in a longer one.
    is_read = getattr(config, "epsilon_schedule", "constant") != "constant"
    if not is_read or getattr(config, "noisy", False):
        return
    for share, follower in auto.FOLLOWED.items():
        given = (overrides or {}).get(follower, getattr(asked, follower))
        if is_auto(given):
            raise ConfigError(
                f"{follower} is auto ({share} of total_timesteps), and start is a "
                "state, which does not say how long its run was to be: give the number "
                f"of that run, {follower}=purerl.resolve(config).{follower} with its "
                "config."
            )


def _updates_done(update: Any, told: int | None) -> int:
    """Updates that a state has done, as a number: it fixes the length of a loop."""
    if not isinstance(update, Tracer):
        done = int(update)
        if told not in (None, done):
            raise ConfigError(
                f"first_update is {told:,}, and start has done {done:,} updates."
            )
        return done
    if told is None:
        raise ConfigError(
            "inside jax.jit and jax.vmap the number of updates that start has done is "
            "not known: give purerl.make_train(config, first_update=...) that number."
        )
    return told


def unique(named: Sequence[tuple[str, PyTree]]) -> Mapping[str, PyTree]:
    """Return named leaves as a mapping.

    Raises:
        ConfigError: two leaves have one name, as where a module is called `params`.
    """
    found = dict(named)
    if len(found) < len(named):
        names = [name for name, _ in named]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(
            f"two arrays of the networks are called {twice!r}; give the submodules of "
            "your network other names than 'params'."
        )
    return found

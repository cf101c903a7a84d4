"""Schedules in a config: the algorithm is made anew with the numbers of each update.

An algorithm's functions take the numbers of its config as they find them, traced or
not. So nothing in an algorithm knows of schedules: here it is made with the numbers of
the moment, inside the update. A config without schedules is made once, as it stands.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from purerl import schedules
from purerl.acting import exploration
from purerl.config import ConfigError, TrainConfig
from purerl.learning.optimiser import annealed
from purerl.types import Algorithm, Array, Hosted, Metrics, Recurrence


def follow_schedules(
    config: TrainConfig, make: Callable[[Any], Algorithm], num_updates: int
) -> Algorithm:
    """Make the algorithm of a config whose numbers may be schedules.

    A number that is read when a state is made is that of the beginning of the run.

    Args:
        config: Config of the agent; its leaves may be traced.
        make: Function that makes the algorithm of a config without schedules.
        num_updates: Number of updates of the whole run.
    """
    if not schedules.is_moving(config):
        return make(config)
    moving = schedules.without_flags(config)
    first = make(schedules.at(moving, 0.0))

    def now(state: Any) -> Algorithm:
        return make(schedules.at(moving, state.update / num_updates))

    recurrence = first.recurrence
    if recurrence is not None:

        def remember(state: Any, *inputs: Any, **named: Any) -> tuple[Array, Any]:
            found = now(state).recurrence
            assert found is not None
            return found.act(state, *inputs, **named)

        recurrence = Recurrence(recurrence.init, remember)

    def hosted(update: Array) -> Hosted:
        found = make(schedules.at(moving, update / num_updates)).hosted
        assert found is not None
        return found(update)

    return Algorithm(
        init=first.init,
        step=lambda state: now(state).step(state),
        act=lambda state, *inputs, **named: now(state).act(state, *inputs, **named),
        recurrence=recurrence,
        hosted=None if first.hosted is None else hosted,
    )


def moving_numbers(config: TrainConfig, update: Array, num_updates: int) -> Metrics:
    """Return every number of a config that moves within a run, by name, `[]` each.

    Each is what the update begins with: schedules, annealed step sizes, epsilon, and
    the exponent of importance weights. They follow from the number of the update, so
    that no update has to report them.

    Args:
        config: Config of the agent; its leaves may be traced.
        update: `[]` int32, number of updates done.
        num_updates: Number of updates of the whole run.
    """
    config, share = schedules.without_flags(config), update / num_updates
    found = {name: one(share) for name, one in schedules.named(config).items()}
    now: Any = schedules.at(config, share)
    for name, rate in schedules.annealed_rates(now).items():
        found[name] = annealed(rate, now.learned_share(update), 1)
    decays = getattr(now, "epsilon_schedule", "constant") != "constant"
    if (decays or "epsilon_end" in found) and not getattr(now, "noisy", False):
        found["epsilon"] = exploration.epsilon_of_update(now, update)
    if getattr(now, "prioritised", False):
        done = jnp.minimum(update * (now.steps_per_update / now.total_timesteps), 1.0)
        exponent = now.importance_exponent
        found["importance_exponent"] = exponent + (1.0 - exponent) * done
    return {name: jnp.asarray(x, jnp.float32) for name, x in found.items()}


def check_environment_stays(config: TrainConfig) -> None:
    """Refuse schedules among the parameters of the environment.

    Raises:
        ConfigError: naming the field, and why.
    """
    if schedules.is_moving(config.env_params):
        raise ConfigError(
            "env_params must be numbers, got a schedule among them: evaluations would "
            "be of a task that moves. Give the environment numbers."
        )

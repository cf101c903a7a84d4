"""Schedules in a config: the algorithm is made anew with the numbers of each update.

An algorithm's functions take the numbers of its config as they find them, traced or
not. So nothing in an algorithm knows of schedules: here it is made with the numbers of
the moment, inside the update. A config without schedules is made once, as it stands.
"""

from collections.abc import Callable
from typing import Any

from purerl import schedules
from purerl.config import ConfigError, TrainConfig
from purerl.types import Algorithm, Array, Hosted, Recurrence


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

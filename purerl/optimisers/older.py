"""Fields of configs from before there was `optimiser`, which mean what they did."""

import dataclasses
from typing import Any

from purerl.config import ConfigError
from purerl.optimisers.check import optimiser_fields


def take_epsilon(config: Any, name: str) -> None:
    """Put the older field of a config into its optimisers, and leave None there.

    `adam_eps=1e-5` is `eps` of every optimiser of the config. There is one number then,
    whoever set it last, and that is what is saved.

    Args:
        config: Config that is being made.
        name: Name of the older field, `adam_eps` or `optimiser_eps`.

    Raises:
        ConfigError: an optimiser has no such number.
    """
    eps = getattr(config, name)
    if eps is None:
        return
    for field in optimiser_fields(config):
        optimiser = getattr(config, field)
        if optimiser is None:
            continue
        if not hasattr(optimiser, "eps"):
            raise ConfigError(
                f"{name} is the older name of {field}.eps, but {field} is "
                f"{optimiser!r}, which has no eps; leave {name} out."
            )
        object.__setattr__(config, field, dataclasses.replace(optimiser, eps=eps))
    object.__setattr__(config, name, None)

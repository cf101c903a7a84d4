"""Kinds of action values, a file each: how they are estimated, and by which loss."""

from typing import Any

from purerl.algorithms.action_values.base import ActionValues as ActionValues
from purerl.algorithms.action_values.base import Levels as Levels
from purerl.algorithms.action_values.categorical import Categorical
from purerl.algorithms.action_values.expected import Expected
from purerl.algorithms.action_values.implicit import Implicit
from purerl.algorithms.action_values.quantile import Quantile

KINDS = ("expected", "categorical", "quantile", "implicit")


def make(config: Any) -> ActionValues:
    """Make the kind of action values that a config says.

    Args:
        config: A `DQNConfig`, whose leaves may be traced.
    """
    if config.values == "categorical":
        return Categorical(config.num_atoms, config.value_min, config.value_max)
    if config.values == "quantile":
        return Quantile(config.num_quantiles, config.kappa)
    if config.values == "implicit":
        return Implicit(
            config.num_tau_samples,
            config.num_tau_prime_samples,
            config.num_quantile_samples,
            config.kappa,
        )
    return Expected(config.value_loss)

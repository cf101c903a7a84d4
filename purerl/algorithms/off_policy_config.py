"""Fields of every algorithm with a replay buffer, their arithmetic and their checks."""

import math
from typing import Any

import jax.numpy as jnp

from purerl import networks
from purerl.algorithms.network_config import NetworkConfig
from purerl.config import (
    MAX_ENV_STEPS,
    NON_NEGATIVE,
    POSITIVE,
    Check,
    ConfigError,
    config_dataclass,
    dynamic,
    one_of,
    static,
)
from purerl.losses import SquaredError
from purerl.losses.check import check_value_loss
from purerl.optimisers.check import check_optimisers
from purerl.types import Array


@config_dataclass
class ReplayConfig(NetworkConfig):
    """Fields and arithmetic of replay, whether of steps or of sequences."""

    gradient_steps: int = static(
        1,
        "Gradient steps per round; updates_per_step wins where it is given.",
        POSITIVE,
    )
    buffer_size: int = static(
        100_000,
        "Transitions that are kept, in whole steps of all environments.",
        POSITIVE,
    )
    batch_size: int = static(256, "Transitions of one gradient step.", POSITIVE)
    n_step: int = static(1, "Rewards summed before bootstrapping.", POSITIVE)
    learning_starts: int = static(
        1_000, "Environment steps before which nothing is learned.", NON_NEGATIVE
    )
    value_loss: Any = dynamic(SquaredError(), "Loss of the TD error.")
    activation: str = static(
        "relu",
        "Activation function after each hidden layer.",
        one_of(*networks.ACTIVATIONS),
    )
    normalize_observations: bool = static(
        False,
        "Standardise observations, in acting and in batches, by running moments "
        "of those that were acted on.",
    )
    clip_observations: float = dynamic(
        10.0, "Largest normalised observation; CleanRL's and Baselines' 10.", POSITIVE
    )

    # A subclass says how many there are.
    num_steps = rounds_per_update = 1

    @property
    def steps_per_round(self) -> int:
        """Environment steps of one round, `T * B`."""
        return self.num_envs * self.num_steps

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one update."""
        return self.rounds_per_update * self.steps_per_round

    @property
    def gradient_steps_per_round(self) -> int:
        """Gradient steps of a round."""
        return self.gradient_steps

    @property
    def first_round(self) -> int:
        """Number of the round that learns first: the one that ends the warm-up."""
        return max(0, -(-self.learning_starts // self.steps_per_round) - 1)

    @property
    def total_gradient_steps(self) -> int:
        """Gradient steps of the whole run."""
        rounds = self.total_timesteps // self.steps_per_update * self.rounds_per_update
        return max(1, rounds - self.first_round) * self.gradient_steps_per_round

    def gradient_steps_before(self, number: Array) -> Array:
        """Return the number of gradient steps before a round, uint32 `[]`."""
        number, first = number.astype(jnp.uint32), jnp.uint32(self.first_round)
        rounds = jnp.where(number > first, number - first, jnp.uint32(0))
        return rounds * jnp.uint32(self.gradient_steps_per_round)

    def learned_share(self, update: Array) -> Array:
        """Return the share of the run's gradient steps before an update, `[]`."""
        number = update.astype(jnp.uint32) * jnp.uint32(self.rounds_per_update)
        return self.gradient_steps_before(number) / self.total_gradient_steps


@config_dataclass
class OffPolicyConfig(ReplayConfig):
    """Fields of every algorithm that replays single steps."""

    num_envs: int = static(
        1, "Environments that one agent steps in parallel.", POSITIVE
    )
    num_steps: int = static(1, "Steps per environment and round.", POSITIVE)
    updates_per_step: float = static(
        0.0,
        "Gradient steps per environment step, over all environments; 0 takes "
        "gradient_steps per round, whatever num_envs * num_steps is.",
        NON_NEGATIVE,
    )
    rounds_per_update: int = static(
        100, "Rounds of acting and learning in one row of the metrics.", POSITIVE
    )
    random_steps: int = static(
        -1,
        "Environment steps with random actions; -1 takes learning_starts.",
        Check(lambda x: x >= -1, "must be -1 or greater"),
    )

    @property
    def gradient_steps_per_round(self) -> int:
        """Gradient steps of a round, by `updates_per_step` or `gradient_steps`."""
        if not self.updates_per_step:
            return self.gradient_steps
        return max(1, round(self.updates_per_step * self.steps_per_round))

    @property
    def update_ratio(self) -> float:
        """Gradient steps per environment step after the warm-up."""
        return self.gradient_steps_per_round / self.steps_per_round

    @property
    def warm_up_steps(self) -> int:
        """Environment steps with random actions."""
        return self.learning_starts if self.random_steps < 0 else self.random_steps

    @property
    def sequential_steps(self) -> int:
        """Dependent operations of one update: environment and gradient steps."""
        return self.rounds_per_update * (self.num_steps + self.gradient_steps_per_round)

    @property
    def items_per_round(self) -> int:
        """Items that a round puts into the buffer."""
        return self.steps_per_round

    @property
    def capacity(self) -> int:
        """Transitions that the buffer holds: no more than the run has steps.

        A multiple of `num_envs`, so that every environment has slots of its own.
        """
        whole_steps = self.buffer_size // self.num_envs * self.num_envs
        num_updates = max(1, self.total_timesteps // self.steps_per_update)
        return min(whole_steps, num_updates * self.steps_per_update)


def validate(config: OffPolicyConfig) -> None:
    """Check what the sizes of an off-policy algorithm have to do with one another.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    if config.buffer_size < config.steps_per_round:
        raise ConfigError(
            f"buffer_size must hold the num_envs * num_steps = {config.steps_per_round}"
            f" transitions of a round, got {config.buffer_size}."
        )
    steps = config.updates_per_step * config.steps_per_round
    whole = config.gradient_steps_per_round
    if config.updates_per_step and abs(steps - whole) > 1e-6 * whole:
        below = max(1, math.floor(steps)) / config.steps_per_round
        above = max(1, math.ceil(steps)) / config.steps_per_round
        near = f"{below:g}" if below == above else f"{below:g} or {above:g}"
        raise ConfigError(
            "updates_per_step times the num_envs * num_steps = "
            f"{config.steps_per_round} steps of a round must be a whole number of "
            f"gradient steps, got {config.updates_per_step:g} (that is {steps:g}); "
            f"nearest: {near}."
        )
    if config.updates_per_step and config.gradient_steps not in (1, whole):
        raise ConfigError(
            f"gradient_steps and updates_per_step contradict each other: "
            f"{config.gradient_steps} per round, and {config.updates_per_step:g} per "
            f"step, which is {whole} per round. Give one of them."
        )
    validate_learning(config)
    window = config.n_step * config.num_envs
    if config.buffer_size < window:
        raise ConfigError(
            f"buffer_size must hold n_step * num_envs = {window} transitions, got "
            f"{config.buffer_size}."
        )
    if max(config.learning_starts, config.steps_per_round) < window:
        raise ConfigError(
            f"learning_starts must be at least n_step * num_envs = {window}, got "
            f"{config.learning_starts}: before that no n-step return is complete."
        )


def validate_learning(config: Any) -> None:
    """Check how often an algorithm with replay learns, its loss and its optimisers.

    Raises:
        ConfigError: it takes no gradient step, or more than can be counted, or a loss
            or an optimiser is none.
    """
    updates = config.total_timesteps // config.steps_per_update
    ran = updates * config.steps_per_update
    if ran and config.first_round >= updates * config.rounds_per_update:
        raise ConfigError(
            f"learning_starts must be at most the {ran} steps that are run "
            f"({updates} updates of {config.steps_per_update} steps; total_timesteps "
            f"is {config.total_timesteps}), got {config.learning_starts}: nothing "
            f"would be learned before round {config.first_round}."
        )
    if config.total_gradient_steps > MAX_ENV_STEPS:
        raise ConfigError(
            f"the run would take {config.total_gradient_steps} gradient steps, and at "
            f"most {MAX_ENV_STEPS} can be counted (32 bits): lower gradient_steps "
            f"({config.gradient_steps_per_round} per round) or total_timesteps "
            f"({config.total_timesteps})."
        )
    check_value_loss(config.value_loss)
    check_optimisers(config)

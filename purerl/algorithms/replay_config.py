"""Fields and arithmetic of algorithms with a replay buffer, and what is refused."""

from typing import Any

import jax.numpy as jnp

from purerl.algorithms.memory import NONE, has_memory
from purerl.algorithms.network_config import ObservedConfig
from purerl.config import MAX_ENV_STEPS, ConfigError, config_dataclass, dynamic, static
from purerl.fields import FRACTION, NON_NEGATIVE, POSITIVE, Check
from purerl.losses.check import check_value_loss
from purerl.losses.value import SquaredError
from purerl.types import Array

STEPS = Check(lambda x: x >= -1, "must be -1 or greater")


@config_dataclass
class ReplayConfig(ObservedConfig):
    """Fields and arithmetic of replay, whether of steps or of sequences."""

    gradient_steps: int = static(1, "Gradient steps per round.", POSITIVE)
    buffer_size: int = static(100_000, "Environment steps that are kept.", POSITIVE)
    batch_size: int = static(256, "Transitions of one gradient step.", POSITIVE)
    n_step: int = static(1, "Rewards summed before bootstrapping.", POSITIVE)
    learning_starts: int = static(
        1_000, "Environment steps before learning begins.", NON_NEGATIVE
    )
    value_loss: Any = dynamic(SquaredError(), "Loss of the TD error.")
    activation: str = "relu"

    # A subclass says how many there are, and what it remembers.
    num_steps = rounds_per_update = sequence_length = 1
    burn_in = 0
    memory = NONE

    @property
    def steps_per_item(self) -> int:
        """Steps of an item of the buffer: one, or with a memory a whole sequence."""
        return self.sequence_length if has_memory(self) else 1

    @property
    def round_steps(self) -> int:
        """Steps T of every environment in a round: with a memory, one sequence."""
        return self.num_steps * self.steps_per_item

    @property
    def steps_per_round(self) -> int:
        """Environment steps of one round, `T * B`."""
        return self.num_envs * self.round_steps

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one update."""
        return self.rounds_per_update * self.steps_per_round

    @property
    def warm_up_steps(self) -> int | None:
        """Environment steps with random actions; None where epsilon draws them all."""
        return None

    @property
    def gradient_steps_per_round(self) -> int:
        """Gradient steps of a round."""
        return self.gradient_steps

    @property
    def sequential_steps(self) -> int:
        """Dependent operations of one update: a memory learns through time too."""
        learned = self.sequence_length + self.burn_in if has_memory(self) else 1
        round_steps = self.round_steps + self.gradient_steps_per_round * learned
        return self.rounds_per_update * round_steps

    @property
    def items_per_round(self) -> int:
        """Items that a round puts into the buffer."""
        return self.steps_per_round // self.steps_per_item

    @property
    def items_per_batch(self) -> int:
        """Items of the buffer in a batch."""
        return self.batch_size

    @property
    def first_round(self) -> int:
        """Number of the round that learns first: the one that ends the warm-up.

        With a burn-in not the very first one, whose sequences have no steps before.
        """
        least = 1 if has_memory(self) and self.burn_in else 0
        return max(least, -(-self.learning_starts // self.steps_per_round) - 1)

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
    """Fields of every algorithm whose rounds are as long as the user wants."""

    num_envs: int = static(1, "Environments of one agent.", POSITIVE)
    num_steps: int = static(1, "Steps per environment and round.", POSITIVE)
    updates_per_step: float = static(
        0.0,
        "Gradient steps per environment step; 0 takes gradient_steps.",
        NON_NEGATIVE,
    )
    rounds_per_update: int = static(
        100, "Rounds of acting and learning in one row of the metrics.", POSITIVE
    )
    random_steps: int = static(
        -1, "Environment steps with random actions; -1 takes learning_starts.", STEPS
    )

    @property
    def gradient_steps_per_round(self) -> int:
        """Gradient steps of a round, by `updates_per_step` or `gradient_steps`.

        With a memory a round is `sequence_length` of those without one.
        """
        if not self.updates_per_step:
            return self.gradient_steps * self.steps_per_item
        return max(1, round(self.updates_per_step * self.steps_per_round))

    @property
    def update_ratio(self) -> float:
        """Gradient steps per environment step after the warm-up."""
        return self.gradient_steps_per_round / self.steps_per_round

    @property
    def warm_up_steps(self) -> int | None:
        """Environment steps with random actions."""
        return self.learning_starts if self.random_steps < 0 else self.random_steps

    @property
    def items_per_batch(self) -> int:
        """Items of the buffer in a batch, of `batch_size` steps."""
        return self.batch_size // self.steps_per_item

    @property
    def capacity(self) -> int:
        """Items that the buffer holds: no more than the run has.

        A multiple of `num_envs`, so that every environment has slots of its own.
        """
        steps_each = self.num_envs * self.steps_per_item
        num_updates = max(1, self.total_timesteps // self.steps_per_update)
        of_run = num_updates * self.steps_per_update // steps_each
        return min(self.buffer_size // steps_each, of_run) * self.num_envs


@config_dataclass
class PrioritisedConfig(OffPolicyConfig):
    """Fields of an algorithm that may replay steps by priority."""

    prioritised: bool = static(False, "Sample in proportion to TD errors.")
    priority_exponent: float = dynamic(0.6, "Power of the TD error.", NON_NEGATIVE)
    importance_exponent: float = dynamic(
        0.4, "Power of the importance weights at first; it grows to 1.", FRACTION
    )


def validate(config: OffPolicyConfig) -> None:
    """Check what the sizes of an off-policy algorithm have to do with one another.

    Raises:
        ConfigError: naming the fields, their values and the constraint.
    """
    length = "sequence_length" if has_memory(config) else "num_steps"
    steps = config.updates_per_step * config.steps_per_round
    whole = config.gradient_steps_per_round
    if config.updates_per_step and abs(steps - whole) > 1e-6 * whole:
        raise ConfigError(
            f"updates_per_step times the num_envs * {length} = "
            f"{config.steps_per_round} steps of a round must be a whole number of "
            f"gradient steps, got {config.updates_per_step:g} (that is {steps:g})."
        )
    validate_learning(config)
    window = config.n_step * config.num_envs
    least = max(window, config.steps_per_round)
    if config.buffer_size < least:
        raise ConfigError(
            f"buffer_size must be at least num_envs times {length} and times n_step, "
            f"{least} transitions, got {config.buffer_size}."
        )
    if max(config.learning_starts, config.steps_per_round) < window:
        raise ConfigError(
            f"learning_starts must be at least n_step * num_envs = {window}, got "
            f"{config.learning_starts}: before that no n-step return is complete."
        )


def validate_learning(config: Any) -> None:
    """Check that something is learned, and that gradient steps can be counted."""
    updates = config.total_timesteps // config.steps_per_update
    if updates and config.first_round >= updates * config.rounds_per_update:
        raise ConfigError(
            f"learning_starts must be at most the {updates * config.steps_per_update} "
            f"steps that are run (whole updates of {config.steps_per_update}), got "
            f"{config.learning_starts}: nothing would be learned."
        )
    if config.total_gradient_steps > MAX_ENV_STEPS:
        raise ConfigError(
            f"total_timesteps would take {config.total_gradient_steps} gradient steps, "
            f"and at most {MAX_ENV_STEPS} can be counted."
        )
    check_value_loss(config.value_loss)


def validate_sequences(config: Any) -> None:
    """Check the sequences of a memory against burn-in, returns and buffer."""
    length = config.sequence_length
    for name in ("burn_in", "n_step"):
        if getattr(config, name) > length:
            raise ConfigError(
                f"{name} must be at most sequence_length ({length}), got "
                f"{getattr(config, name)}."
            )
    least = (2 if config.burn_in else 1) * config.steps_per_round
    if config.buffer_size < least:
        raise ConfigError(
            f"buffer_size must hold the sequences that a gradient step needs with "
            f"burn_in={config.burn_in}, {least} steps, got {config.buffer_size}."
        )

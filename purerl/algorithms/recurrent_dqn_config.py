"""Fields of recurrent DQN, their arithmetic and their checks.

Returns of five steps and the priorities are those of R2D2 (Kapturowski et al. 2019),
the exponent of the importance weights is that of Acme's R2D2. Exploration and learning
have the numbers of `dqn`: with sequences of 16 steps, a gradient step on 32 of them for
every 40 environment steps replays as many steps for each step of the environment.
"""

from typing import Any

import jax.numpy as jnp

from purerl import networks
from purerl.acting import exploration
from purerl.acting.environment import Environment
from purerl.algorithms import (
    checks,
    exploration_config,
    memory_config,
    network_config,
)
from purerl.algorithms.network_config import NetworkConfig
from purerl.config import (
    FRACTION,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_OR_NONE,
    SIZES,
    ConfigError,
    config_dataclass,
    dynamic,
    one_of,
    static,
)
from purerl.losses import SquaredError
from purerl.losses.check import check_value_loss
from purerl.optimisers import Adam
from purerl.optimisers.check import check_optimisers
from purerl.types import Array

_PRIORITIES = ("priority_eta", "priority_exponent", "importance_exponent")


@config_dataclass
class RecurrentDQNConfig(NetworkConfig):
    """Deep Q-learning with a memory, from a replay buffer of sequences (R2D2)."""

    num_envs: int = static(
        10, "Environments that one agent steps in parallel.", POSITIVE
    )
    sequence_length: int = static(
        16,
        "Steps of a sequence, and of every environment in an update; gradients go "
        "through them.",
        POSITIVE,
    )
    burn_in: int = static(
        8,
        "Steps before a sequence that only bring its stored memory up to date, at most "
        "sequence_length.",
        NON_NEGATIVE,
    )
    buffer_size: int = static(
        10_000,
        "Steps that are kept, in whole sequences of all environments.",
        POSITIVE,
    )
    batch_size: int = static(32, "Sequences of one gradient step.", POSITIVE)
    gradient_steps: int = static(4, "Gradient steps of an update.", POSITIVE)
    learning_starts: int = static(
        1_000, "Environment steps before which nothing is learned.", NON_NEGATIVE
    )
    n_step: int = static(5, "Rewards summed before bootstrapping.", POSITIVE)
    double: bool = static(True, "Let the online network choose the target's action.")
    dueling: bool = static(
        False,
        "Split the head into value and advantages, each with one more hidden layer, "
        "as wide as what it is read off.",
    )
    value_rescaling: bool = static(
        False,
        "Learn values on the scale of sign(x) (sqrt(|x| + 1) - 1) + 0.001 x, for "
        "rewards of any size.",
    )
    prioritised: bool = static(
        False, "Sample sequences in proportion to their TD errors."
    )
    priority_eta: float = dynamic(
        0.9,
        "Weight of a sequence's largest TD error in its priority, against their mean.",
        FRACTION,
    )
    priority_exponent: float = dynamic(0.9, "Power of the priority.", NON_NEGATIVE)
    importance_exponent: float = dynamic(
        0.6, "Power of the importance weights at first; it grows to 1.", FRACTION
    )
    target_update_interval: int = static(
        50, "Gradient steps between updates of the target network.", POSITIVE
    )
    tau: float = dynamic(
        1.0, "Share of the online network in an update of the target one.", FRACTION
    )
    epsilon_schedule: str = exploration_config.schedule_field()
    epsilon_start: float = exploration_config.start_field()
    epsilon_end: float = exploration_config.end_field(0.05)
    epsilon_fraction: float = exploration_config.fraction_field(0.5)
    epsilon_steps: float = exploration_config.steps_field()
    value_loss: Any = dynamic(SquaredError(), "Loss of the TD error.")
    max_grad_norm: float | None = dynamic(
        10.0, "Largest global gradient norm; None for no bound.", POSITIVE_OR_NONE
    )
    optimiser: Any = dynamic(Adam(), "Optimiser of the network.")
    anneal_learning_rate: bool = static(False, "Decay the step size linearly to 0.")
    normalize_observations: bool = static(
        False,
        "Standardise observations, in acting and in batches, by running moments "
        "of those that were acted on.",
    )
    clip_observations: float = dynamic(
        10.0, "Largest normalised observation; CleanRL's and Baselines' 10.", POSITIVE
    )
    hidden_sizes: tuple[int, ...] = static(
        (128,), "Units of each hidden layer before the memory.", SIZES
    )
    memory: Any = memory_config.memory_field("gru")
    memory_size: int = memory_config.size_field()
    head_sizes: tuple[int, ...] = static(
        (),
        "Units of each hidden layer between the memory and the values.",
        SIZES,
    )
    activation: str = static(
        "relu",
        "Activation function after each hidden layer.",
        one_of(*networks.ACTIVATIONS),
    )

    @property
    def num_steps(self) -> int:
        """Steps of every environment in an update: those of one sequence."""
        return self.sequence_length

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one update, `L * B`."""
        return self.num_envs * self.sequence_length

    @property
    def sequential_steps(self) -> int:
        """Dependent operations of one update: a gradient step runs through time too."""
        learned = self.sequence_length + self.burn_in
        return self.sequence_length + self.gradient_steps * learned

    @property
    def capacity(self) -> int:
        """Sequences that the buffer holds.

        A multiple of `num_envs`, so that every environment has slots of its own.
        """
        return self.buffer_size // self.steps_per_update * self.num_envs

    @property
    def first_update(self) -> int:
        """Number of the update that learns first: the one that ends the warm-up.

        With a burn-in not the very first one, whose sequences have no steps before.
        """
        first = -(-self.learning_starts // self.steps_per_update) - 1
        return max(1 if self.burn_in else 0, first)

    @property
    def total_gradient_steps(self) -> int:
        """Gradient steps of the whole run."""
        updates = self.total_timesteps // self.steps_per_update
        return max(1, updates - self.first_update) * self.gradient_steps

    def gradient_steps_before(self, update: Array) -> Array:
        """Return the number of gradient steps before an update, uint32 `[]`."""
        updates = jnp.maximum(0, update - self.first_update).astype(jnp.uint32)
        return updates * jnp.uint32(self.gradient_steps)

    def learned_share(self, update: Array) -> Array:
        """Return the share of the run's gradient steps before an update, `[]`."""
        return self.gradient_steps_before(update) / self.total_gradient_steps

    def automatic(self, env: Environment) -> dict[str, Any]:
        """Return the decay's length in environment steps."""
        del env
        return exploration.automatic(self)


def validate(config: RecurrentDQNConfig, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    _check_buffer(config)
    exploration.check_share(config)
    num_actions = checks.check_discrete(config, env)
    check_value_loss(config.value_loss)
    check_optimisers(config)
    memory_config.check_values(config, env, num_actions)
    if config.dueling and network_config.own(config, "critic") is not None:
        raise ConfigError(
            "dueling must be False where critic is a whole network of your own, got "
            f"True and {network_config.described(config, 'critic')}; split the values "
            "in the module."
        )
    if not config.prioritised:
        checks.check_idle(config, _PRIORITIES, "prioritised", "prioritised=True")


def _check_buffer(config: RecurrentDQNConfig) -> None:
    """Refuse sequences that the buffer cannot hold, and a run that learns nothing."""
    length, burn_in = config.sequence_length, config.burn_in
    if burn_in > length:
        raise ConfigError(
            f"burn_in must be at most sequence_length ({length}), got {burn_in} (8 is "
            "the default): the steps before a sequence are those of the one before it."
        )
    if config.n_step > length:
        raise ConfigError(
            f"n_step must be at most sequence_length ({length}), got {config.n_step} "
            "(5 is the default): returns end with the sequence."
        )
    rounds = 2 if burn_in else 1
    least = rounds * config.steps_per_update
    if config.buffer_size < least:
        each = "the two sequences" if burn_in else "the sequence"
        raise ConfigError(
            f"buffer_size must hold {each} of every environment that a gradient step "
            f"needs with burn_in={burn_in}, {least} steps, got {config.buffer_size}."
        )
    updates = config.total_timesteps // config.steps_per_update
    if updates and config.first_update >= updates:
        raise ConfigError(
            f"learning_starts must be at most the {updates * config.steps_per_update} "
            f"steps that are run ({updates} updates of {config.steps_per_update} = "
            f"num_envs * sequence_length; total_timesteps is "
            f"{config.total_timesteps}), got {config.learning_starts}, and with a "
            "burn-in the first update never learns: nothing would be learned."
        )

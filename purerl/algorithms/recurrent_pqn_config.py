"""The config of recurrent PQN, and its checks."""

from typing import Any

from purerl.acting import exploration
from purerl.acting.environment import Environment
from purerl.algorithms import checks, memory_config
from purerl.algorithms.pqn import PQNConfig
from purerl.config import SIZES, config_dataclass, static
from purerl.losses.check import check_value_loss
from purerl.optimisers.check import check_optimisers


@config_dataclass
class RecurrentPQNConfig(PQNConfig):
    """Parallel Q-learning with a memory."""

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
    sequence_length: int = memory_config.length_field()
    burn_in: int = memory_config.burn_in_field()

    @property
    def samples_per_update(self) -> int:
        """The number of sequences from which minibatches are drawn."""
        return memory_config.num_sequences(self)

    @property
    def sequential_steps(self) -> int:
        """Dependent operations of one update: a gradient step runs through time too."""
        length = memory_config.steps_of_gradient(self)
        return self.num_steps + self.num_epochs * self.num_minibatches * length

    def automatic(self, env: Environment) -> dict[str, Any]:
        """Return PQN's numbers; a sequence is a whole rollout."""
        return {**super().automatic(env), "sequence_length": self.num_steps}


def validate(config: RecurrentPQNConfig, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    memory_config.check_sequences(config)
    exploration.check_share(config)
    num_actions = checks.check_discrete(config, env)
    check_value_loss(config.value_loss)
    check_optimisers(config)
    memory_config.check_values(config, env, num_actions)

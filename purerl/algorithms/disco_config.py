"""Fields of DiscoRL's agent, their arithmetic and their checks."""

from typing import Any

from purerl import networks
from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape
from purerl.algorithms import network_config
from purerl.algorithms.checks import check_hidden_sizes
from purerl.algorithms.network_config import NetworkConfig
from purerl.config import (
    AUTO,
    DECAY,
    FRACTION,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_OR_NONE,
    SIZES,
    Check,
    ConfigError,
    config_dataclass,
    dynamic,
    one_of,
    static,
)
from purerl.networks import composite
from purerl.optimisers import Adam
from purerl.optimisers.check import check_optimisers
from purerl.rules import CMPORule
from purerl.rules.disco.check import check_disco_rule

# Sizes where the rule has no network that reads predictions.
PREDICTION_SIZE = 1


@config_dataclass
class DiscoConfig(NetworkConfig):
    """DiscoRL: an agent that asks a rule what to learn from a buffer."""

    num_envs: int = static(
        2, "Environments that one agent steps in parallel.", POSITIVE
    )
    num_steps: int = static(29, "Steps of a trajectory, T.", POSITIVE)
    buffer_size: int = static(
        1_024 * 29,
        "Steps that are kept, in whole trajectories of all environments.",
        POSITIVE,
    )
    batch_size: int = static(64, "Trajectories of one gradient step.", POSITIVE)
    learning_starts: int = static(
        64 * 29, "Environment steps before which nothing is learned.", NON_NEGATIVE
    )
    gamma: float = dynamic(0.997, "Discount per step.", FRACTION)
    trace_decay: float = dynamic(0.95, "Lambda of Retrace.", FRACTION)
    rule: Any = dynamic(
        CMPORule(),
        "Rule that makes the targets of trajectories, by hand or discovered.",
    )
    prediction_size: int = static(
        AUTO,
        "Size of each prediction; auto takes that of the rule's network, or 1 if "
        "the rule has no network.",
        POSITIVE,
    )
    num_bins: int = static(
        601,
        "Number of bins of an action value's distribution.",
        Check(lambda x: x >= 2, "must be 2 or greater"),
    )
    max_abs_value: float = dynamic(
        300.0, "Largest bin, as the square root of a value.", POSITIVE, stays=True
    )
    policy_coef: float = dynamic(1.0, "Weight of the policy's loss.", NON_NEGATIVE)
    y_coef: float = dynamic(1.0, "Weight of the loss of y.", NON_NEGATIVE)
    z_coef: float = dynamic(1.0, "Weight of the loss of z.", NON_NEGATIVE)
    model_coef: float = dynamic(
        1.0, "Weight of the loss of the next observation's policy.", NON_NEGATIVE
    )
    value_coef: float = dynamic(0.2, "Weight of the action value's loss.", NON_NEGATIVE)
    target_decay: float = dynamic(
        0.9, "Share of the target network that an update keeps.", FRACTION
    )
    advantage_decay: float = dynamic(
        0.99, "Share that the moments of the advantage keep in an update.", DECAY
    )
    learning_rate: float = dynamic(3e-4, "Step size of the optimiser.", POSITIVE)
    optimiser: Any = dynamic(Adam(), "Optimiser of the network.")
    max_grad_norm: float | None = dynamic(
        None, "Largest global gradient norm; None for no bound.", POSITIVE_OR_NONE
    )
    max_update: float | None = dynamic(
        1.0,
        "Largest change of a parameter in one step, in step sizes; None for no bound.",
        POSITIVE_OR_NONE,
    )
    hidden_sizes: tuple[int, ...] = static(
        (512, 512), "Units of each hidden layer; the last is linear.", SIZES
    )
    activation: str = static(
        "relu",
        "Activation function after each hidden layer but the last.",
        one_of(*networks.ACTIVATIONS),
    )
    torso_gain: float = static(
        1.0, "Gain of the torso's orthogonal layers at first.", POSITIVE
    )
    model_size: int = static(128, "Units of the recurrent model.", POSITIVE)
    head_sizes: tuple[int, ...] = static(
        (128,),
        "Units of each hidden layer between the model and its predictions.",
        SIZES,
    )

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one update, `T * B`."""
        return self.num_envs * self.num_steps

    @property
    def sequential_steps(self) -> int:
        """Dependent operations of one update: the rollout, its way back, one step."""
        return 2 * self.num_steps + 1

    @property
    def capacity(self) -> int:
        """Trajectories that the buffer holds.

        A multiple of `num_envs`, so that every environment has slots of its own.
        """
        return self.buffer_size // self.steps_per_update * self.num_envs

    @property
    def first_update(self) -> int:
        """Number of the update that learns first: the one that ends the warm-up."""
        return max(0, -(-self.learning_starts // self.steps_per_update) - 1)

    def automatic(self, env: Environment) -> dict[str, Any]:
        """Return the size of the predictions that the rule is made for."""
        del env
        return {
            "prediction_size": getattr(self.rule, "prediction_size", PREDICTION_SIZE)
        }


def validate(config: DiscoConfig, env: Environment) -> None:
    """Check the network, the rule and the buffer against the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    check_hidden_sizes(config.hidden_sizes)
    check_optimisers(config)
    check_disco_rule(config.rule, config.prediction_size)
    space = env.action_space(env.default_params)
    if not hasattr(space, "n"):
        raise ConfigError(
            f"DiscoConfig needs discrete actions, one at a time, got {space} of "
            f"{env.name}; use PPOConfig."
        )
    if not network_config.is_auto(config, "critic"):
        raise ConfigError(
            "critic must be auto for DiscoConfig, which has one network, got "
            f"{network_config.described(config, 'critic')}; give its layers as torso."
        )
    if config.critic_gain != 1.0:
        raise ConfigError(
            "critic_gain must be 1 for DiscoConfig, whose values are no layer of a "
            f"critic, got {config.critic_gain:g}; leave it out."
        )
    network_config.check_torsos(config, env, ("torso",))
    if composite.has_mask(obs_shape(env.observation_space(env.default_params))):
        raise ConfigError(
            f"{env.name} says which actions are valid, and DiscoConfig's rules know "
            "nothing of that; use PPOConfig or LPGConfig."
        )
    _validate_buffer(config)


def _validate_buffer(config: DiscoConfig) -> None:
    if config.buffer_size < config.steps_per_update:
        raise ConfigError(
            "buffer_size must hold the num_envs * num_steps = "
            f"{config.steps_per_update} steps of an update, got {config.buffer_size}."
        )
    updates = config.total_timesteps // config.steps_per_update
    if updates and config.first_update >= updates:
        raise ConfigError(
            f"learning_starts must be at most the {updates * config.steps_per_update} "
            f"steps that are run ({updates} updates of {config.steps_per_update} = "
            f"num_envs * num_steps; total_timesteps is {config.total_timesteps}), got "
            f"{config.learning_starts}: nothing would be learned."
        )

"""Fields of DQN, and what they have to do with one another.

Defaults are those of CleanRL's `dqn.py` and, for the atoms, `c51.py` on CartPole-v1
(Huang et al. 2022); `dqn` says what is not as there. QR-DQN has 200 quantiles in its
paper and IQN 64 levels on both sides; the numbers here are for small networks.
"""

from typing import Any

from jax.core import Tracer

from purerl import networks
from purerl.acting import exploration
from purerl.acting.environment import Environment
from purerl.algorithms import (
    action_values,
    exploration_config,
    network_config,
    off_policy,
)
from purerl.algorithms.action_values.network import has_stream, num_outputs
from purerl.algorithms.checks import (
    check_action_value_network,
    check_idle,
    instead_of_values,
    needed_for_values,
)
from purerl.algorithms.off_policy_config import OffPolicyConfig
from purerl.config import (
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
from purerl.losses import SquaredError
from purerl.losses.check import check_value_loss
from purerl.optimisers import Adam
from purerl.optimisers.check import check_optimisers

SEVERAL = Check(lambda x: x >= 2, "must be at least 2")
NON_POSITIVE = Check(lambda x: x <= 0, "must be 0 or less")
# Fields that are read where an option is on.
_MUNCHAUSEN = ("munchausen_alpha", "munchausen_tau", "munchausen_clip")
_QUANTILES = (
    *("num_quantiles", "kappa", "num_tau_samples", "num_tau_prime_samples"),
    *("num_quantile_samples", "num_cosines"),
)


@config_dataclass
class DQNConfig(OffPolicyConfig):
    """Deep Q-learning, its distributional kinds and its extensions."""

    num_envs: int = static(
        10, "Environments that one agent steps in parallel.", POSITIVE
    )
    buffer_size: int = static(
        10_000,
        "Transitions that are kept, in whole steps of all environments.",
        POSITIVE,
    )
    batch_size: int = static(128, "Transitions of one gradient step.", POSITIVE)
    epsilon_schedule: str = exploration_config.schedule_field()
    epsilon_start: float = exploration_config.start_field()
    epsilon_end: float = exploration_config.end_field(0.05)
    epsilon_fraction: float = exploration_config.fraction_field(0.5)
    epsilon_steps: float = exploration_config.steps_field()
    target_update_interval: int = static(
        50, "Gradient steps between updates of the target network.", POSITIVE
    )
    tau: float = dynamic(
        1.0, "Share of the online network in an update of the target one.", FRACTION
    )
    value_loss: Any = dynamic(SquaredError(), "Loss of the TD error.")
    max_grad_norm: float | None = dynamic(
        10.0, "Largest global gradient norm; None for no bound.", POSITIVE_OR_NONE
    )
    optimiser: Any = dynamic(Adam(), "Optimiser of the network.")
    anneal_learning_rate: bool = static(False, "Decay the step size linearly to 0.")
    double: bool = static(True, "Let the online network choose the target's action.")
    dueling: bool = static(
        False,
        "Split the network into value and advantages, each with one more hidden layer, "
        "as wide as the torso's last.",
    )
    prioritised: bool = static(False, "Sample in proportion to the TD error.")
    priority_exponent: float = dynamic(0.6, "Power of the TD error.", NON_NEGATIVE)
    importance_exponent: float = dynamic(
        0.4, "Power of the importance weights at first; it grows to 1.", FRACTION
    )
    values: str = static(
        "expected",
        "Statistic of the return that is learned for each action: its mean (DQN), "
        "a distribution over atoms (C51), quantiles (QR-DQN), or quantiles at "
        "levels that are drawn (IQN).",
        one_of(*action_values.KINDS),
    )
    num_atoms: int = static(
        101, "Number of atoms where values is categorical.", SEVERAL
    )
    value_min: float = dynamic(-100.0, "Lowest atom, in units of return.", stays=True)
    value_max: float = dynamic(100.0, "Highest atom, in units of return.", stays=True)
    num_quantiles: int = static(
        51, "Number of quantiles where values is quantile.", POSITIVE
    )
    num_tau_samples: int = static(
        8,
        "Number of quantile levels of the prediction where values is implicit.",
        POSITIVE,
    )
    num_tau_prime_samples: int = static(
        8, "Number of quantile levels of the target where values is implicit.", POSITIVE
    )
    num_quantile_samples: int = static(
        32,
        "Number of quantile levels by which actions are chosen where values is "
        "implicit.",
        POSITIVE,
    )
    num_cosines: int = static(
        64,
        "Number of cosines that embed a quantile level where values is implicit.",
        POSITIVE,
    )
    kappa: float = dynamic(
        1.0, "TD error at which the Huber loss of quantiles turns linear.", POSITIVE
    )
    noisy: bool = static(
        False,
        "Explore by noise in the weights of the head, which gets a hidden layer as "
        "wide as the torso's last, in place of epsilon.",
    )
    noisy_sigma: float = static(
        0.5, "Noise at first, times the root of a layer's inputs.", NON_NEGATIVE
    )
    munchausen: bool = static(
        False, "Add the policy's log-probability to rewards; targets are soft."
    )
    munchausen_alpha: float = dynamic(
        0.9, "Share of the log-probability that is added.", FRACTION
    )
    munchausen_tau: float = dynamic(
        0.03, "Temperature of the policy, in units of return.", POSITIVE
    )
    munchausen_clip: float = dynamic(
        -1.0, "Lowest value of temperature times log-probability.", NON_POSITIVE
    )
    hidden_sizes: tuple[int, ...] = static(
        (120, 84), "Units of each hidden layer.", SIZES
    )
    activation: str = static(
        "relu",
        "Activation function after each hidden layer.",
        one_of(*networks.ACTIVATIONS),
    )

    def automatic(self, env: Environment) -> dict[str, Any]:
        """Return the decay's length in environment steps."""
        del env
        return exploration.automatic(self)


def validate(config: DQNConfig, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    off_policy.validate(config)
    exploration.check_share(config)
    check_value_loss(config.value_loss)
    check_optimisers(config)
    space: Any = env.action_space(env.default_params)
    if not hasattr(space, "n"):
        raise ConfigError(
            f"DQNConfig needs {needed_for_values(space)}, got {space} of "
            f"{env.name}; use {instead_of_values(space)}."
        )
    _check_values(config)
    _check_own(config)
    _check_stream(config)
    check_action_value_network(config, env, int(space.n), num_outputs(config))
    if config.dueling and network_config.own(config, "critic") is not None:
        raise ConfigError(
            "dueling must be False where critic is a whole network of your own, got "
            f"True and {network_config.described(config, 'critic')}; split the values "
            "in the module, or give the layers before the split as torso."
        )
    _check_idle(config)


def _check_idle(config: DQNConfig) -> None:
    """Refuse numbers of options that are off; presets have those of priorities."""
    if not config.munchausen:
        check_idle(config, _MUNCHAUSEN, "munchausen", "munchausen=True")
    if not config.noisy:
        check_idle(config, ("noisy_sigma",), "noisy", "noisy=True")
    if config.values == "expected":
        check_idle(config, _QUANTILES, "values", "values='quantile' or 'implicit'")


def _check_values(config: DQNConfig) -> None:
    """Refuse fields that contradict the kind of action values, or one another."""
    low, high = config.value_min, config.value_max
    known = not (isinstance(low, Tracer) or isinstance(high, Tracer))
    if config.values == "categorical" and known and low >= high:
        raise ConfigError(
            f"value_min must be less than value_max, got {low:g} and {high:g}: the "
            "atoms lie between them; take the range of discounted returns."
        )
    if config.values != "expected" and not isinstance(config.value_loss, SquaredError):
        raise ConfigError(
            f"value_loss must be left at SquaredError() where values is "
            f"{config.values!r}, which has a loss of its own, got "
            f"{config.value_loss!r}; for Huber's loss of quantiles set kappa."
        )
    if config.munchausen and config.double:
        raise ConfigError(
            "double must be False with munchausen, got True, its default: a soft "
            "target has no largest value that one network could choose for the other. "
            "Give double=False (--no-double) too."
        )
    if config.munchausen and config.n_step > 1:
        raise ConfigError(
            f"n_step must be 1 with munchausen, got {config.n_step}: replay keeps no "
            "log-probabilities of the steps between."
        )


def _check_stream(config: DQNConfig) -> None:
    """Refuse a hidden layer of the head whose width nothing says."""
    torso = config.torso if isinstance(config.torso, str) else ""
    if config.hidden_sizes or not has_stream(config) or torso in ("nature", "impala"):
        return
    fields = {
        "dueling": config.dueling,
        "noisy": config.noisy,
        "values": config.values == "implicit",
    }
    name = next(field for field, is_on in fields.items() if is_on)
    raise ConfigError(
        f"hidden_sizes must have a size with {name}={getattr(config, name)!r}, got "
        "(): the hidden layer of the head is as wide as the last of them."
    )


def _check_own(config: DQNConfig) -> None:
    """Refuse options that a whole network of the user's own cannot follow."""
    if network_config.own(config, "critic") is None:
        return
    module = network_config.described(config, "critic")
    if config.values == "implicit":
        raise ConfigError(
            "values must not be 'implicit' where critic is a whole network of your "
            f"own, got {module}, which takes no levels; give it as torso, or take "
            "'quantile'."
        )
    if config.noisy:
        raise ConfigError(
            "noisy must be False where critic is a whole network of your own, got "
            f"True and {module}; give the layers before the head as torso."
        )

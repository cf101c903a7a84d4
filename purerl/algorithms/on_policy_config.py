"""Fields of every on-policy actor-critic, and what they refuse together."""

from typing import Any, TypeVar

from purerl import networks
from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape
from purerl.algorithms import network_config
from purerl.algorithms.checks import check_hidden_sizes
from purerl.algorithms.network_config import NetworkConfig
from purerl.config import (
    FRACTION,
    NON_NEGATIVE,
    POSITIVE,
    ConfigError,
    config_dataclass,
    dynamic,
    number_of,
    one_of,
    static,
)
from purerl.losses import SquaredError
from purerl.losses.check import check_loss
from purerl.networks.distributions import Head
from purerl.networks.mixed import MixedHead, make_policy_head
from purerl.optimisers import Adam
from purerl.optimisers.check import check_optimisers


@config_dataclass
class OnPolicyConfig(NetworkConfig):
    """Fields that every on-policy actor-critic has."""

    num_steps: int = static(128, "Steps per environment and update.", POSITIVE)
    gae_lambda: float = dynamic(0.95, "Trace decay of the advantage.", FRACTION)
    value_loss: Any = dynamic(SquaredError(), "Loss of the critic.")
    entropy_coef: float = dynamic(0.0, "Weight of the entropy bonus.", NON_NEGATIVE)
    optimiser: Any = dynamic(Adam(), "Optimiser of the networks.")
    anneal_learning_rate: bool = static(False, "Decay the step size linearly to 0.")
    normalize_advantages: bool = static(True, "Standardise the advantages.")
    normalize_observations: bool = static(
        False, "Standardise observations by running moments."
    )
    normalize_rewards: bool = static(
        False, "Divide rewards by the std of running returns."
    )
    clip_observations: float = dynamic(
        10.0, "Largest normalised observation; CleanRL's and Baselines' 10.", POSITIVE
    )
    clip_rewards: float = dynamic(
        10.0, "Largest normalised reward; CleanRL's and Baselines' 10.", POSITIVE
    )
    policy: str = static(
        "auto",
        "Distribution of actions; auto takes categorical or gaussian.",
        one_of("auto", "categorical", "gaussian", "tanh_gaussian"),
    )
    log_std_init: float = static(0.0, "Initial log standard deviation.")
    state_dependent_std: bool = static(
        False,
        "Let the actor output the log standard deviation too, so that it depends "
        "on the state.",
    )
    actor: Any = network_config.actor_field()
    actor_gain: float = network_config.actor_gain_field()
    shared_torso: bool = static(
        False, "Give actor and critic one common torso in place of one each."
    )
    actor_keys: tuple[str, ...] = network_config.keys_field("actor")
    critic_keys: tuple[str, ...] = network_config.keys_field("critic")

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one update, `T * B`."""
        return self.num_envs * number_of(self, "num_steps")


ConfigT = TypeVar("ConfigT", bound=OnPolicyConfig)


def validate(
    config: OnPolicyConfig,
    env: Environment,
    memory_shape: tuple[int, ...] | None = None,
) -> None:
    """Check the networks, the head and the value loss against the environment.

    Args:
        config: Config of the agent.
        env: Environment, from `resolve_env`.
        memory_shape: Shape of what actor and critic see in place of an observation.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    check_hidden_sizes(config.hidden_sizes)
    check_loss("value_loss", config.value_loss, 3, "SquaredError()")
    check_optimisers(config)
    params = env.default_params
    try:
        head = make_policy_head(env.action_space(params), config.policy)
        shape = obs_shape(env.observation_space(params))
    except ValueError as error:
        raise ConfigError(f"{env.name}: {error}") from None
    check_shared(config)
    check_deviation(config, head)
    with_torso = ("actor", "critic") if memory_shape is None else ("torso",)
    network_config.check_torsos(config, env, with_torso)
    check_networks(config, head, memory_shape or shape)


def check_deviation(config: OnPolicyConfig, head: Head) -> None:
    """Refuse a standard deviation by state where there is none, or it cannot learn.

    Args:
        config: Config of the agent.
        head: Distribution of the actions.

    Raises:
        ConfigError: naming the fields.
    """
    if not config.state_dependent_std:
        return
    if head.is_discrete or not network_config.is_auto(config, "actor"):
        what = "discrete actions" if head.is_discrete else "an actor of your own"
        raise ConfigError(
            f"state_dependent_std=True has no effect with {what}; leave it out."
        )
    low, high = networks.LOG_STD_RANGE
    if not low < config.log_std_init < high:
        raise ConfigError(
            f"log_std_init must be greater than {low:g} and less than {high:g} with "
            f"state_dependent_std=True, which keeps it in between, got "
            f"{config.log_std_init}."
        )


def check_shared(config: OnPolicyConfig) -> None:
    """Refuse to share a torso between networks that do not have one in common.

    Raises:
        ConfigError: naming the network.
    """
    if config.shared_torso and config.actor_keys != config.critic_keys:
        raise ConfigError(
            "shared_torso needs actor_keys and critic_keys to be the same, got "
            f"{config.actor_keys!r} and {config.critic_keys!r}: what one torso sees, "
            "both networks know; set shared_torso=False."
        )
    for field in ("actor", "critic") if config.shared_torso else ():
        if not network_config.is_auto(config, field):
            raise ConfigError(
                f"shared_torso needs {field} to be auto, a head on the torso, got "
                f"{network_config.described(config, field)}; give the layers that both "
                "have as torso."
            )


def check_networks(config: OnPolicyConfig, head: Head, shape: Any) -> None:
    """Refuse whole networks of the user's own that do not fit head and values.

    Args:
        config: Config of the agent.
        head: Distribution of the actions.
        shape: Shape of what the networks see.

    Raises:
        ConfigError: naming the module and both shapes.
    """
    num = head.num_outputs
    outputs: Any = (num,) if head.is_discrete else [(num,), (num,)]
    if head.is_discrete:
        words = f"logits of {num} actions"
    elif isinstance(head, MixedHead):
        words = f"a pair of {num} logits and means, and {num} log standard deviations"
    else:
        words = f"a pair of mean and log standard deviation of {num} numbers"
    network_config.check_whole(config, "actor", [shape], outputs, words)
    network_config.check_whole(
        config, "critic", [shape], (), "one value per observation"
    )

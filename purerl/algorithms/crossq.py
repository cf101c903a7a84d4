"""CrossQ (Bhatt et al. 2024, arXiv:1902.05605v4): batch normalisation, and no targets.

The critics of `(s, a)` and of `(s', a')`, `a' ~ pi(s')`, are one pass of both together,

    [Q_i(s, a), Q_i(s', a')] = Q_i([s; s'], [a; a']),

so that batch normalisation sees the mixture of the two distributions of actions, and
its statistics fit both. Then there is no need of target networks:

    y = r + gamma (1 - terminated) (min_i Q_i(s', a') - alpha log pi(a'|s')),

through which no gradient goes, while it does go through the statistics of the batch.
Everything else is SAC: the policy, with batch normalisation of its own, maximises
critics that are normalised by their running statistics.

The paper has critics of 2,048 units, Adam with b1 = 0.5 and a step size of 1e-3, and
moves the policy in every third gradient step.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape
from purerl.algorithms import network_config
from purerl.algorithms.ensembles import Values
from purerl.algorithms.off_policy import Batch
from purerl.config import ConfigError
from purerl.networks import layers
from purerl.optimisers import Muon
from purerl.types import Array, PyTree


def validate(config: Any, env: Environment) -> None:
    """Refuse networks and optimisers in which batch normalisation has no place.

    Args:
        config: Config of the agent.
        env: Environment of the config.

    Raises:
        ConfigError: naming the field, its value and the remedy.
    """
    if hasattr(env.action_space(env.default_params), "n"):
        raise ConfigError(
            f"crossq must be False where actions are discrete, as those of {env.name}: "
            "its critics see observations beside continuous actions. Leave it out."
        )
    shape = obs_shape(env.observation_space(env.default_params))
    for field in ("actor", "critic"):
        is_own = network_config.own(config, field) is not None
        if is_own or not network_config.is_vector_torso(config, shape, field):
            raise ConfigError(
                f"{field} must have the dense layers of a vector where crossq is "
                f"True, got {network_config.described(config, field)} with torso "
                f"{network_config.described(config, 'torso')} for observations of "
                f"shape {shape}: batch normalisation stands between these layers. "
                "Leave torso, actor and critic at auto, and flatten the observation."
            )
        _check_optimiser(config, f"{field}_optimiser")


def _check_optimiser(config: Any, name: str) -> None:
    """Refuse an optimiser to which running statistics would be parameters.

    What sees all layers may take means over them. Muon moves each layer by itself.
    """
    chosen = getattr(config, name) or config.optimiser
    if getattr(chosen, "needs_layers", False) and not isinstance(chosen, Muon):
        raise ConfigError(
            f"{name} must not be {type(chosen).__name__}() where crossq is True: it "
            "sees all parameters at once, among which running statistics would be. "
            f"Use another for {name}, such as Adam() or Muon()."
        )


def check_one_device(config: Any, axis_name: str | None) -> None:
    """Refuse to spread an agent over devices, whose batches would differ.

    Raises:
        ConfigError: naming the field.
    """
    if config.crossq and axis_name is not None:
        raise ConfigError(
            "crossq must be False where one agent is spread over devices "
            "(purerl.data_parallel), however many they are: the statistics of a batch "
            "would be those of one device's part. Train agents of one device each "
            "(purerl.pmap), or leave it out."
        )


def evaluate_critics(
    critics: nn.Module,
    batch: Batch,
    next_action: Array,
    params: PyTree,
) -> tuple[Values, Values, PyTree]:
    """Return the values of a batch's actions and of those that come next, in one pass.

    Args:
        critics: The critics.
        batch: Batch from the replay buffer.
        next_action: `[N, A]` actions of the policy at the next observations.
        params: Parameters of the critics.

    Returns:
        Values of the batch's actions, values of the next ones without a gradient, and
        the critics' new running statistics.
    """
    num = batch.reward.shape[0]
    obs = jnp.concatenate([batch.obs, batch.next_obs])
    action = jnp.concatenate([batch.action, next_action])
    both, statistics = layers.forward(critics, params, obs, action)
    if isinstance(both, tuple):
        now, later = tuple(x[:num] for x in both), tuple(x[num:] for x in both)
    else:
        now, later = both[:, :num], both[:, num:]
    return now, jax.lax.stop_gradient(later), statistics

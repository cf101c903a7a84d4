"""The critics of TD3 and SAC: how many, what each estimates, what is made of them.

By default there are two that give a mean value, and the smaller counts (Fujimoto et al.
2018). Two families of options make something else of more critics:

* **REDQ** (`critic_subset`): the smallest of some that are chosen at random makes the
  target. See `redq`.
* **TQC** (`num_quantiles`; Kuznetsov et al. 2020, arXiv:2005.04269): every critic gives
  quantiles of the return, and the target is the distribution of all of them together
  without its largest, `dropped_quantiles` for each critic. See `losses.quantile`.

The policy maximises the smallest value, the mean of all or the first critic's
(`policy_value`), where the value of quantiles is their mean.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl import networks
from purerl.acting.environment import Environment
from purerl.acting.rollout import Draw
from purerl.algorithms import actor_critic, redq
from purerl.algorithms.actor_critic import ActorCriticConfig, Learner
from purerl.algorithms.checks import check_idle
from purerl.algorithms.off_policy import Batch
from purerl.config import (
    AUTO,
    FEW,
    FRACTION,
    NON_NEGATIVE,
    ConfigError,
    config_dataclass,
    dynamic,
    one_of,
    static,
)
from purerl.learning import optimiser
from purerl.learning.collectives import pmean
from purerl.losses import HuberError, SquaredError, quantile, value_error
from purerl.types import Array, Metrics, PyTree

# The numbers of prioritised replay.
PRIORITIES = ("priority_exponent", "importance_exponent")
# A batch's values: of two critics a pair `[N, ...]`, of an ensemble `[E, N, ...]`.
Values = Any


class CriticOutputs(NamedTuple):
    """The values of critics on a batch, and what they learn from.

    Attributes:
        values: Values of the batch's actions.
        target: `[N]`, or `[K, N]` samples of a distribution; no gradient goes through.
        statistics: New running statistics of batch normalisation; empty without.
    """

    values: Values
    target: Array
    statistics: PyTree = ()


@config_dataclass
class EnsembleConfig(ActorCriticConfig):
    """Fields of actor-critics whose critics may be many.

    Attributes:
        usual_value: The value that the policy maximises without quantiles and without a
            subset.
    """

    usual_value: ClassVar[str] = "min"

    num_critics: int = static(2, "Critics with parameters of their own.", FEW)
    critic_subset: int = static(
        0,
        "Critics, drawn anew in every gradient step, whose smallest value makes the "
        "target (REDQ's has 2 of 10); 0 takes all.",
        NON_NEGATIVE,
    )
    policy_value: str = static(
        AUTO,
        "Value that the policy maximises: the min of the critics, the mean of "
        "them, or that of the first; auto takes mean with num_quantiles or a "
        "critic_subset of fewer than all critics, else min for SAC and first for "
        "TD3.",
        one_of("min", "mean", "first"),
    )
    num_quantiles: int = static(
        0,
        "Quantiles of the return that a critic gives (TQC's has 25), fitted with "
        "value_loss, or Huber's where that is squared; 0 takes the mean alone.",
        NON_NEGATIVE,
    )
    dropped_quantiles: int = static(
        2,
        "Number of the largest quantiles of each critic that the target leaves "
        "out, where num_quantiles is not 0.",
        NON_NEGATIVE,
    )
    prioritised: bool = static(
        False, "Sample in proportion to the critics' mean absolute TD error."
    )
    priority_exponent: float = dynamic(0.6, "Power of the TD error.", NON_NEGATIVE)
    importance_exponent: float = dynamic(
        0.4, "Power of the importance weights at first; it grows to 1.", FRACTION
    )

    def automatic(self, env: Environment) -> dict[str, Any]:
        """Return which value the policy maximises."""
        is_mean = bool(self.num_quantiles) or uses_subset(self)
        value = "mean" if is_mean else self.usual_value
        return {**super().automatic(env), "policy_value": value}


def validate(config: EnsembleConfig) -> None:
    """Check what the fields of the critics have to do with one another.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    actor_critic.validate(config)
    if config.critic_subset > config.num_critics:
        raise ConfigError(
            f"critic_subset must be at most num_critics ({config.num_critics}), got "
            f"{config.critic_subset}; 0 takes all critics."
        )
    chosen = config.critic_optimiser or config.optimiser
    if getattr(chosen, "needs_layers", False) and is_stacked(config):
        kind = type(chosen).__name__
        raise ConfigError(
            f"critic_optimiser must not be {kind}() with num_critics "
            f"{config.num_critics} and critic_subset {config.critic_subset}: the "
            "layers of these critics lie side by side in one array each, and "
            f"{kind} must see them one by one. Use critic_optimiser=Adam(), or two "
            "critics without critic_subset."
        )
    if not config.prioritised:
        check_idle(config, PRIORITIES, "prioritised", "prioritised=True")
    if not config.num_quantiles:
        check_idle(config, ("dropped_quantiles",), "num_quantiles", "num_quantiles=25")
        return
    if config.dropped_quantiles >= config.num_quantiles:
        raise ConfigError(
            "dropped_quantiles must be less than num_quantiles "
            f"({config.num_quantiles}), got {config.dropped_quantiles}: nothing would "
            "be left of the target."
        )


def uses_subset(config: EnsembleConfig) -> bool:
    """Return whether the critics of the target are drawn anew in every step."""
    return 0 < config.critic_subset < config.num_critics


def is_stacked(config: EnsembleConfig) -> bool:
    """Return whether the critics' parameters lie side by side in one array each."""
    return config.num_critics != 2 or uses_subset(config)


def make_critics(config: ActorCriticConfig, make: Callable[[], nn.Module]) -> nn.Module:
    """Make the critics of a config: two side by side, or an ensemble in one.

    Args:
        config: Config of the agent.
        make: Function that returns a critic.
    """
    if isinstance(config, EnsembleConfig) and is_stacked(config):
        return networks.Ensemble(make, config.num_critics)
    return networks.Twin(make)


def subsets(config: EnsembleConfig) -> Draw | None:
    """Return what draws the critics of the target, as `OffPolicyHooks.draw_shared`."""
    if not uses_subset(config):
        return None
    return partial(
        redq.draw_subsets,
        num_critics=config.num_critics,
        subset=config.critic_subset,
    )


def with_subset(config: EnsembleConfig, noise: PyTree) -> tuple[PyTree, Array | None]:
    """Return the noise of a gradient step, and the critics of its target if some.

    Args:
        config: Config of the agent.
        noise: Noise that `off_policy.draw_learning` has drawn for the step.
    """
    return noise if uses_subset(config) else (noise, None)


def target_values(
    critics: Any, params: PyTree, subset: Array | None, *inputs: Any
) -> Values:
    """Return the values that the target is made of, of all critics or of some.

    Args:
        critics: The critics.
        params: Parameters of the critics.
        subset: `[M]` int32, numbers of the critics; None for all.
        *inputs: Inputs of the critics.
    """
    if subset is not None:
        critics, params = redq.members(critics, params, subset)
    return critics.apply(params, *inputs)


def policy_critics(
    config: EnsembleConfig, critics: Any, params: PyTree
) -> Callable[..., Values]:
    """Return the critics that `policy_objective` judges by, with their parameters.

    Of an ensemble that is the first alone where the others do not count. Of two critics
    beside one another the compiler leaves the second out by itself.

    Args:
        config: Config of the agent, whose `auto` is resolved.
        critics: The critics.
        params: Parameters of the critics.
    """
    if config.policy_value == "first" and isinstance(critics, networks.Ensemble):
        critics, params = redq.members(critics, params, slice(1))
    return partial(critics.apply, params)


def pessimistic(config: EnsembleConfig, values: Values) -> Array:
    """Return the pessimistic values of a target: the smallest, or a truncated mixture.

    Args:
        config: Config of the agent.
        values: Values of the critics.

    Returns:
        `[N, ...]`, or with quantiles `[K, N]` samples of a distribution.
    """
    if config.num_quantiles:
        return quantile.truncated(jnp.stack([*values]), config.dropped_quantiles)
    return _smallest(values)


def bootstrapped(batch: Batch, value: Array) -> Array:
    """Return `reward + discount * value`, of the shape of the value.

    Args:
        batch: Batch from the replay buffer.
        value: `[N]` values of the next observations, or `[K, N]` samples of them.
    """
    if value.ndim == 1:
        return batch.reward + batch.discount * value
    return batch.reward[None] + batch.discount[None] * value


def policy_objective(config: EnsembleConfig, values: Values) -> Array:
    """Return the value that the policy maximises, `[N, ...]`.

    Args:
        config: Config of the agent, whose `auto` is resolved.
        values: Values of the critics.
    """
    chosen = config.policy_value
    means = _means(config, values)
    if chosen == "first":
        # The other critics are not used, so the compiler leaves their computation out.
        return means[0]
    return _smallest(means) if chosen == "min" else jnp.stack([*means]).mean(0)


def _smallest(values: Values) -> Array:
    return jnp.minimum(*values) if isinstance(values, tuple) else values.min(0)


def _means(config: EnsembleConfig, values: Values) -> Values:
    """The values of the critics, of quantiles their mean."""
    if not config.num_quantiles:
        return values
    return jax.tree.map(lambda x: x.mean(-1), values)


def fit_critics(
    config: EnsembleConfig,
    axis_name: str | None,
    evaluate_critics: Callable[[PyTree], CriticOutputs],
    learner: Learner,
    batch: Batch,
) -> tuple[Learner, Array, Metrics]:
    """Move all critics towards the target, by the sum of their losses.

    Args:
        config: The numbers.
        axis_name: Mapped axis over which environments are spread, if any.
        evaluate_critics: Function from the critics' parameters to their outputs.
        learner: Learner before the step.
        batch: Batch that the values are of; it gives the samples' weights.

    Returns:
        The learner after the step, TD errors `[N]` (those of the first critic, or the
        mean of the absolute ones where replay goes by them), and losses.
    """

    def error(one: Array, target: Array) -> Array:
        if config.num_quantiles:
            return quantile.regression(_quantile_loss(config), one, target)
        return value_error(config.value_loss, one, target)

    def loss(params: PyTree) -> tuple[Array, tuple[Array, Metrics, PyTree]]:
        found, target, statistics = evaluate_critics(params)
        if isinstance(found, tuple):
            errors = error(found[0], target)
            errors = errors + error(found[1], target)
        else:
            errors = jax.vmap(error, in_axes=(0, None))(found, target).sum(0)
        total = (batch.weight * errors).mean()
        means = _means(config, found)
        metrics = {"value_loss": total, "q_value": means[0].mean()}
        return total, (_td_error(config, means, target), metrics, statistics)

    minimise = jax.grad(loss, has_aux=True)
    grads, (td_error, metrics, statistics) = minimise(learner.params["critics"])
    grads, metrics = pmean((grads, metrics), axis_name)
    learner = actor_critic.descend(config, learner, {"critics": grads})
    learner = actor_critic.put_statistics(config, learner, "critics", statistics)
    metrics["grad_norm"] = optimiser.grad_norm(learner.opt_state["critics"])
    return learner, td_error, metrics


def _quantile_loss(config: EnsembleConfig) -> Any:
    """The loss of one quantile: not the squared error, whose minimum is none."""
    chosen = config.value_loss
    return HuberError() if isinstance(chosen, SquaredError) else chosen


def _td_error(config: EnsembleConfig, means: Values, target: Array) -> Array:
    """TD errors `[N]`, of distributions those of their means."""
    center = target.mean(0) if config.num_quantiles else target
    if not config.prioritised:
        return center - means[0]
    return jnp.abs(center[None] - jnp.stack([*means])).mean(0)

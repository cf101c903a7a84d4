"""The critics of TD3 and SAC: how many, what each estimates, what is made of them.

By default there are two that give a mean value, and the smaller counts (Fujimoto et al.
2018). Three families of options make something else of them:

* **REDQ** (`critic_subset`; Chen et al. 2021, arXiv:2101.05982): of `E` critics, `M`
  chosen anew at random in every gradient step make the target, by their smallest value
  (algorithm 1, line 8). All critics are fitted to it, and the policy maximises their
  mean (line 13), once for each step of the environment. The paper has E = 10, M = 2 and
  20 gradient steps of the critics for each step of the environment; `policy_delay` is
  then 20 too.
* **TQC** (`num_quantiles`; Kuznetsov et al. 2020, arXiv:2005.04269): every critic gives
  quantiles of the return, and the target is the distribution of all of them together
  without its largest, `dropped_quantiles` for each critic. See `losses.quantile`.
* **Categorical critics** (`num_atoms`; Farebrother et al. 2024, arXiv:2403.03950):
  every critic gives probabilities of atoms between `value_min` and `value_max`, whose
  mean is its value. The scalar target is spread over the atoms, by a Gaussian or onto
  its two neighbours (`target_std`), and the loss is the divergence from it. The smaller
  expected value counts, in the target and, as in FastTD3 (Seo et al. 2025,
  arXiv:2505.22642), for the policy. FastTD3 projects the distribution of that critic
  (C51), where here its mean is projected.

The policy maximises the mean of all critics in the first two cases, where the value of
quantiles is their mean. Otherwise it is the smallest value in SAC, and the first
critic's in TD3.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from purerl import networks
from purerl.acting.rollout import Draw
from purerl.algorithms import action_values, actor_critic
from purerl.algorithms.actor_critic import (
    ActorCriticConfig,
    Agent,
    is_stacked,
    uses_subset,
)
from purerl.algorithms.off_policy import Batch, Learner
from purerl.algorithms.replay_config import PrioritisedConfig
from purerl.algorithms.replayed_memory import HEAD, WithMemory
from purerl.config import (
    ConfigError,
    check_idle,
    config_dataclass,
    dynamic,
    is_concrete,
    static,
)
from purerl.fields import FEW, NON_NEGATIVE, Check
from purerl.learning import optimiser
from purerl.learning.averages import pmean
from purerl.learning.branches import StepCount, change_or_wait
from purerl.losses import HuberError, SquaredError, quantile, value_error
from purerl.types import Array, Metrics, PyTree

NONE_OR_SEVERAL = Check(lambda x: x == 0 or x >= 2, "must be 0 or at least 2")
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
class EnsembleConfig(ActorCriticConfig, PrioritisedConfig):
    """Fields of actor-critics whose critics may be many.

    Attributes:
        usual_value: The value that the policy maximises without quantiles and without a
            subset.
        policy_metrics: Names of the numbers that a step of the policy reports.
    """

    usual_value: ClassVar[str] = "min"
    policy_metrics: ClassVar[tuple[str, ...]] = ("policy_loss",)

    num_critics: int = static(2, "Critics with parameters of their own.", FEW)
    critic_subset: int = static(
        0, "Critics, drawn every time, that make a target; 0 takes all.", NON_NEGATIVE
    )
    num_quantiles: int = static(
        0,
        "Quantiles of the return that a critic gives (TQC has 25), with "
        "value_loss, or Huber's where that is squared; 0 takes the mean alone.",
        NON_NEGATIVE,
    )
    dropped_quantiles: int = static(
        2, "Largest quantiles of each critic that the target leaves out.", NON_NEGATIVE
    )
    num_atoms: int = static(
        0,
        "Atoms of a categorical critic (FastTD3: 101); 0 takes the mean alone.",
        NONE_OR_SEVERAL,
    )
    value_min: float | None = dynamic(None, "Lowest atom, a return.", stays=True)
    value_max: float | None = dynamic(None, "Highest atom, a return.", stays=True)
    target_std: float = static(
        0.75,
        "Std of the Gaussian that spreads a target over atoms, in their "
        "distances (HL-Gauss); 0 shares it between its two neighbours.",
        NON_NEGATIVE,
    )

    @property
    def policy_value(self) -> str:
        """Value that the policy maximises: `min`, `mean` or `first` of the critics."""
        if self.num_quantiles or uses_subset(self):
            return "mean"
        return "min" if self.num_atoms else self.usual_value


def atoms_of(config: EnsembleConfig) -> action_values.Categorical:
    """Return the atoms of categorical critics."""
    low, high = config.value_min, config.value_max
    assert low is not None and high is not None  # See `validate`.
    return action_values.Categorical(config.num_atoms, low, high)


def validate(config: EnsembleConfig) -> None:
    """Check what the fields of the critics have to do with one another.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    if config.critic_subset > config.num_critics:
        raise ConfigError(
            f"critic_subset must be at most num_critics ({config.num_critics}), got "
            f"{config.critic_subset}; 0 takes all critics."
        )
    chosen = config.optimiser
    if optimiser.sees_layers(chosen) and is_stacked(config):
        kind = type(chosen).__name__
        raise ConfigError(
            f"optimiser must not be {kind}() with num_critics {config.num_critics} and "
            f"critic_subset {config.critic_subset}: the layers of these critics lie "
            f"side by side in one array. A class of yours that looks at numbers alone "
            "says needs_layers = False."
        )
    if not config.prioritised:
        check_idle(config, PRIORITIES, "prioritised", "prioritised=True")
    _check_atoms(config)
    if not config.num_quantiles:
        check_idle(config, ("dropped_quantiles",), "num_quantiles", "num_quantiles=25")
        return
    if config.dropped_quantiles >= config.num_quantiles:
        raise ConfigError(
            f"dropped_quantiles must be less than num_quantiles "
            f"({config.num_quantiles}), got {config.dropped_quantiles}."
        )


def _check_atoms(config: EnsembleConfig) -> None:
    """Refuse atoms without a range, and a range or another loss beside them."""
    low, high = config.value_min, config.value_max
    if not config.num_atoms:
        idle = "value_min", "value_max", "target_std"
        check_idle(config, idle, "num_atoms", "num_atoms=101")
        return
    is_known = is_concrete(low) and is_concrete(high)
    if low is None or high is None or (is_known and low >= high):
        raise ConfigError(
            f"num_atoms={config.num_atoms} needs value_min below value_max, got {low} "
            f"and {high}: the range of discounted returns, such as the smallest and "
            "the largest reward times 1 / (1 - gamma), for SAC with its entropies."
        )
    if config.num_quantiles or not isinstance(config.value_loss, SquaredError):
        raise ConfigError(
            f"num_atoms must be 0 with quantiles or another value_loss, got "
            f"{config.num_atoms} with num_quantiles={config.num_quantiles} and "
            f"value_loss={config.value_loss!r}: atoms have a loss of their own."
        )


def subsets(config: EnsembleConfig) -> Draw | None:
    """Return what draws the critics of the target, as `Hooks.draw_shared`.

    It draws sets of M of E, uniform without replacement, int32 `[*shape, M]`.
    """
    if not uses_subset(config):
        return None

    def draw(key: Array, shape: tuple[int, ...]) -> Array:
        # The places of the M largest of E independent numbers are a random subset.
        uniform = jax.random.uniform(key, (*shape, config.num_critics))
        return jax.lax.top_k(uniform, config.critic_subset)[1]

    return draw


def members(critics: Any, params: PyTree, subset: Array | slice) -> tuple[Any, PyTree]:
    """Return the critics of a set `[M]`, and their parameters, leaves `[M, ...]`.

    Critics with a memory have one for all.
    """
    if isinstance(critics, WithMemory):
        head, chosen = members(critics.head, params[HEAD], subset)
        return critics._replace(head=head), {**params, HEAD: chosen}
    chosen = jax.tree.map(lambda x: x[subset], params)
    few: Any = critics.clone(num=len(jax.tree.leaves(chosen)[0]))
    return few, chosen


def with_subset(config: EnsembleConfig, noise: PyTree) -> tuple[PyTree, Array | None]:
    """Return the noise of a gradient step, and the critics of its target if some."""
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
        critics, params = members(critics, params, subset)
    return critics.apply(params, *inputs)


def policy_critics(
    config: EnsembleConfig, critics: Any, params: PyTree
) -> Callable[..., Values]:
    """Return the critics that `policy_objective` judges by, with their parameters.

    Of an ensemble that is the first alone where the others do not count. Of two critics
    beside one another the compiler leaves the second out by itself.
    """
    if config.policy_value == "first" and isinstance(critics, networks.Ensemble):
        critics, params = members(critics, params, slice(1))
    return partial(critics.apply, params)


def pessimistic(config: EnsembleConfig, values: Values) -> Array:
    """Return the pessimistic values of a target: the smallest, or a truncated mixture.

    They are `[N, ...]`, or with quantiles `[K, N]` samples of a distribution.
    """
    if config.num_quantiles:
        return quantile.truncated(jnp.stack([*values]), config.dropped_quantiles)
    return _smallest(_means(config, values))


def bootstrapped(batch: Batch, value: Array) -> Array:
    """Return `reward + discount * value`, `[N]` or of samples `[K, N]`."""
    if value.ndim == 1:
        return batch.reward + batch.discount * value
    return batch.reward[None] + batch.discount[None] * value


def policy_objective(config: EnsembleConfig, values: Values) -> Array:
    """Return the value that the policy maximises, `[N, ...]`."""
    chosen = config.policy_value
    means = _means(config, values)
    if chosen == "first":
        # The other critics are not used, so the compiler leaves their computation out.
        return means[0]
    return _smallest(means) if chosen == "min" else jnp.stack([*means]).mean(0)


def _smallest(values: Values) -> Array:
    return jnp.minimum(*values) if isinstance(values, tuple) else values.min(0)


def _means(config: EnsembleConfig, values: Values) -> Values:
    """The values of the critics, of distributions their means."""
    if config.num_atoms:
        return jax.tree.map(atoms_of(config).values, values)
    if config.num_quantiles:
        return jax.tree.map(lambda x: x.mean(-1), values)
    return values


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
        batch: Batch that the values are of; it gives the samples' weights.

    Returns:
        The learner after the step, TD errors `[N]` (those of the first critic, or the
        mean of the absolute ones where replay goes by them), and losses.
    """

    def error(one: Array, target: Array) -> Array:
        if config.num_atoms:
            return atoms_of(config).loss_of_numbers(one, target, config.target_std)
        if not config.num_quantiles:
            return value_error(config.value_loss, one, target)
        # The squared error of quantiles has no minimum of its own.
        is_squared = isinstance(config.value_loss, SquaredError)
        of_one = HuberError() if is_squared else config.value_loss
        return quantile.regression(of_one, one, target)

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
        center = target.mean(0) if config.num_quantiles else target
        td_error = center - means[0]
        if config.prioritised:
            td_error = jnp.abs(center[None] - jnp.stack([*means])).mean(0)
        return total, (td_error, metrics, statistics)

    minimise = jax.grad(loss, has_aux=True)
    grads, (td_error, metrics, statistics) = minimise(learner.params["critics"])
    grads, metrics = pmean((grads, metrics), axis_name)
    learner = actor_critic.descend(config, learner, {"critics": grads})
    learner = actor_critic.put_statistics(config, learner, "critics", statistics)
    metrics["grad_norm"] = optimiser.grad_norm(learner.opt_state["critics"])
    return learner, td_error, metrics


def learn(
    agent: Agent,
    evaluate_critics: Callable[[PyTree], CriticOutputs],
    improve: Callable[[Learner], tuple[Learner, Metrics]],
    learner: Learner,
    batch: Batch,
    count: StepCount,
) -> tuple[Learner, Array, Metrics]:
    """Take a step of the critics, and where it is due one of the policy.

    Args:
        agent: Networks, environments, replay and config.
        improve: Step of the policy, and of what moves with it.
        batch: Batch from the replay buffer.
        count: Where the step stands among all.
    """
    config, axis = agent.config, agent.stepper.axis_name
    learner, td_error, metrics = fit_critics(
        config, axis, evaluate_critics, learner, batch
    )
    learner = actor_critic.descend_heads(agent, learner)

    def wait(learner: Learner) -> tuple[Learner, Metrics]:
        # Without a policy step, add zero to the sums of its numbers; as a product, so
        # that it varies over devices as the loss does.
        blank = 0.0 * metrics["value_loss"]
        return learner, dict.fromkeys(config.policy_metrics, blank)

    due = count.completes(config.policy_delay)
    learner, more = change_or_wait(due, improve, wait, learner)
    return learner, td_error, metrics | more

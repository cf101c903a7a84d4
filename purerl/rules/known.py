"""Rules that were written by hand: known algorithms in the form of a learned rule.

With them the agent of `purerl.algorithms.lpg` is an agent that is known: what it does
can be compared with other programs, and a learned rule with what it replaces.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from purerl.config import FRACTION, POSITIVE, ConfigError, dynamic
from purerl.learning.returns import gae, rewards_to_go
from purerl.types import Array


class RuleInputs(NamedTuple):
    """A rollout as a rule sees it: no observations and no actions.

    So a rule does not know how large an observation is or how many actions there are,
    and what was learned in one environment can be used in another.

    Attributes:
        reward: `[T, B]` rewards, as the environment gave them.
        terminated: `[T, B]` bool, the episode ended in a state of value zero.
        truncated: `[T, B]` bool, the episode was cut (time limit).
        gamma: `[]`, the discount of the config.
        log_prob: `[T, B]`, log of the probability of the action that was taken.
        log_prediction: `[T, B, M]`, log of the prediction `y(s_t)`.
        next_log_prediction: `[T, B, M]`, log of the prediction `y(s'_t)` of the
            observation after the step and *before* any reset.
        share: Share of the run that is over, float32 `[]`, 0 in the first update.
        num_updates: Updates of the whole run, float32 `[]`.
    """

    reward: Array
    terminated: Array
    truncated: Array
    gamma: Array | float
    log_prob: Array
    log_prediction: Array
    next_log_prediction: Array
    share: Array
    num_updates: Array

    @property
    def done(self) -> Array:
        """`[T, B]` bool, the step is the last one of its episode."""
        return self.terminated | self.truncated


class Targets(NamedTuple):
    """The targets that a rule sets the agent for a rollout.

    Attributes:
        policy: `[T, B]`, how much more probable the action shall become: the weight of
            the gradient of its log-probability.
        log_prediction: `[T, B, M]`, log of the distribution that the prediction of the
            observation shall come nearer to.
    """

    policy: Array
    log_prediction: Array


@struct.dataclass
class ReturnRule:
    """REINFORCE (Williams 1992): an action counts what followed it in the rollout.

    The target of the policy is the discounted sum of the rewards from the step on, up
    to the end of the episode or of the rollout, without a value of what lies beyond.
    The prediction is its own target, so that it never moves.
    """

    def __call__(self, inputs: RuleInputs) -> Targets:
        """Return the targets of a rollout, see `Targets`."""
        to_go = rewards_to_go(
            inputs.reward,
            jnp.zeros_like(inputs.reward),
            inputs.terminated,
            inputs.truncated,
            gamma=inputs.gamma,
        )
        return Targets(to_go, inputs.log_prediction)


@struct.dataclass
class ActorCriticRule:
    """Advantage actor-critic (Mnih et al. 2016), with the prediction as its critic.

    The `M` numbers of the prediction are the probabilities of `M` returns `z_i`, evenly
    spaced from `low` to `high`. Their mean is the value,

        V(s) = sum_i z_i y_i(s),

    the target of the policy is the generalised advantage estimate of these values
    (`learning.returns.gae`), and that of the prediction is a bell around the return
    `G = A + V`, cut off at `low` and `high`:

        y_hat_i  ~  exp(-(z_i - G)^2 / (2 sigma^2)),
        sigma    =  spread (high - low) / (M - 1).

    The agent minimises KL(y || y_hat), whose minimum over many samples of `G` is the
    geometric mean of the bells. This is a bell of the same width around the mean of
    `G`: values have no bias, but for what the ends of the support cut off.

    Attributes:
        low: Smallest return of the support.
        high: Largest return of the support.
        spread: Width of a bell, in distances between neighbours of the support.
        gae_lambda: Trace decay of the advantage.
    """

    low: float = dynamic(-100.0, "Smallest return of the support.")
    high: float = dynamic(100.0, "Largest return of the support.")
    spread: float = dynamic(1.0, "Width of a bell, in steps of the support.", POSITIVE)
    gae_lambda: float = dynamic(0.95, "Trace decay of the advantage.", FRACTION)

    def __post_init__(self) -> None:
        # JAX puts other objects in their place when it flattens.
        ends = self.low, self.high
        if all(isinstance(x, int | float) for x in ends) and not self.low < self.high:
            raise ConfigError(
                f"low must be less than high, got {self.low!r} and {self.high!r}; for "
                "example ActorCriticRule(low=-1.0, high=1.0)."
            )

    def __call__(self, inputs: RuleInputs) -> Targets:
        """Return the targets of a rollout, see `Targets`."""
        support = self.support(inputs.log_prediction.shape[-1])
        value = jnp.exp(inputs.log_prediction) @ support
        advantage = gae(
            inputs.reward,
            value,
            jnp.exp(inputs.next_log_prediction) @ support,
            inputs.terminated,
            inputs.truncated,
            gamma=inputs.gamma,
            gae_lambda=self.gae_lambda,
        )
        return Targets(advantage, self.bell(advantage + value, support))

    def support(self, size: int) -> Array:
        """Return the returns `[size]` whose probabilities a prediction has.

        Args:
            size: Numbers of the prediction vector, M.

        Raises:
            ConfigError: a single number, which cannot reach from `low` to `high`.
        """
        if size < 2:
            raise ConfigError(
                "prediction_size must be at least 2 with ActorCriticRule, got "
                f"{size}; for example prediction_size=30."
            )
        place = jnp.arange(size, dtype=jnp.float32) / (size - 1)
        return self.low + (jnp.asarray(self.high) - self.low) * place

    def bell(self, centre: Array, support: Array) -> Array:
        """Return the logs of a discrete bell around each return.

        Args:
            centre: `[...]` returns at the centres of the bells.
            support: `[M]` returns, evenly spaced, at least two.

        Returns:
            `[..., M]`.
        """
        width = self.spread * (support[-1] - support[0]) / (support.size - 1)
        inside = jnp.clip(centre, support[0], support[-1])[..., None]
        places = jnp.broadcast_to(support, (*centre.shape, support.size))
        return jax.nn.log_softmax(-0.5 * jnp.square((places - inside) / width))

"""The M-step of MPO: a Gaussian fitted to weighted actions, held by two constraints.

Maximum a posteriori policy optimisation (Abdolmaleki et al. 2018b, arXiv:1812.02256,
section 4.2.1) fits the policy by maximum likelihood while its mean and its standard
deviation each stay near the target policy's: each is fitted with the other held at the
target's, and each has a constraint of its own,

    KL_mean = sum_d (mu - mu')^2 / (2 sigma'^2)                          <= epsilon_mean
    KL_std  = sum_d [log(sigma / sigma') + sigma'^2 / (2 sigma^2) - 1/2]  <= epsilon_std

with primes for the target policy: KL(target || new), the other parameter shared. They
may bound each dimension `d` instead of the sum. The multipliers of the constraints are
learned by gradient, as softplus of a parameter. The weights are those of `temperature`.

Axes: `S` sampled actions, `N` states, `A` action dimensions.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.losses import temperature as e_step
from purerl.networks.distributions import Gaussian
from purerl.types import Array, Metrics

_HALF_LOG_2PI = float(0.5 * np.log(2.0 * np.pi))
_SMALLEST = 1e-6
"""Least value of a dual variable, as something is divided by them."""


class Divergence(NamedTuple):
    """KL(target || new) of the two decoupled policies, `[N, A]` each.

    Attributes:
        mean: Divergence of the policy with the new mean and the target's standard
            deviation.
        std: Divergence of the policy with the target's mean and the new standard
            deviation.
    """

    mean: Array
    std: Array


class Duals(NamedTuple):
    """Parameters whose softplus are the dual variables.

    Attributes:
        mean: `[D]` multipliers of the mean's constraints: one for each dimension of
            the action, or one.
        std: `[D]` multipliers of the std's constraints.
        temperature: `[]` multiplier of the constraint on the weights, where it is
            learned by gradient, else None.
    """

    mean: Array
    std: Array
    temperature: Array | None


class Improvement(NamedTuple):
    """The E-step's better policy, as weighted actions.

    Attributes:
        policy: The target policy at the observations, `[N, A]` each.
        raw: `[S, N, A]` actions sampled from it, before tanh.
        q_values: `[S, N]` values of these actions.
        weights: `[S, N]`; those of a state sum to 1.
        temperature: `[]` temperature with which the weights were made.
    """

    policy: Gaussian
    raw: Array
    q_values: Array
    weights: Array
    temperature: Array


class Bounds(NamedTuple):
    """The largest divergences, in nats.

    Attributes:
        weights: Bound on the divergence of the weights from the samples, mean over
            states.
        mean: Bound on the divergence by the policy's mean.
        std: Bound on the divergence by the policy's standard deviation.
    """

    weights: Array | float
    mean: Array | float
    std: Array | float


def fit_loss(
    duals: Duals, new: Gaussian, improvement: Improvement, bounds: Bounds
) -> tuple[Array, Metrics]:
    """Return the M-step's loss: weighted likelihood, penalties, losses of the duals.

    Args:
        duals: The dual variables' parameters; one multiplier of each kind bounds the
            sum over dimensions, one for each dimension bounds each.
        new: `[N, A]` each, outputs of the policy that is fitted.
        improvement: Result of the E-step.
        bounds: Bounds of the constraints.

    Returns:
        Loss `[]`, and what there is to say about it.
    """
    policy = improvement.policy
    likelihood = decoupled_log_likelihood(policy, new, improvement.raw)
    policy_loss = -(improvement.weights * likelihood).sum(0).mean()

    divergence = decoupled_divergence(policy, new)
    kl_mean = _bounded(divergence.mean, duals.mean)
    kl_std = _bounded(divergence.std, duals.std)
    multiplier_mean, multiplier_std = positive(duals.mean), positive(duals.std)
    penalty_mean, dual_mean = lagrangian(multiplier_mean, kl_mean, bounds.mean)
    penalty_std, dual_std = lagrangian(multiplier_std, kl_std, bounds.std)
    total = policy_loss + penalty_mean + penalty_std + dual_mean + dual_std
    if duals.temperature is not None:
        total = total + e_step.temperature_dual(
            positive(duals.temperature), improvement.q_values, bounds.weights
        )
    return total, {
        "policy_loss": policy_loss,
        "kl_weights": e_step.weights_divergence(improvement.weights).mean(),
        "kl_mean": kl_mean.mean(),
        "kl_std": kl_std.mean(),
        "multiplier_mean": multiplier_mean.mean(),
        "multiplier_std": multiplier_std.mean(),
        "temperature": improvement.temperature,
        "policy_std": jnp.exp(new.log_std).mean(),
    }


def _bounded(divergence: Array, multiplier: Array) -> Array:
    """Mean over states of `[N, A]`, as `[D]`: each dimension's, or their sum."""
    each = divergence.mean(0)
    return each if each.shape == multiplier.shape else each.sum(keepdims=True)


def positive(param: Array) -> Array:
    """Return a dual variable from its parameter, at least 1e-6."""
    return jax.nn.softplus(param) + _SMALLEST


def decoupled_divergence(target: Gaussian, new: Gaussian) -> Divergence:
    """Return KL(target || new) where either only the mean is new, or only the std.

    Args:
        target: `[N, A]` each, outputs of the target policy.
        new: `[N, A]` each, outputs of the policy that is fitted.

    Returns:
        One divergence per dimension; those of a diagonal Gaussian add up.
    """
    # The variance, not the std, divides the squared distance of the means.
    mean = 0.5 * jnp.square(new.mean - target.mean) * jnp.exp(-2.0 * target.log_std)
    narrower = target.log_std - new.log_std
    std = 0.5 * jnp.expm1(2.0 * narrower) - narrower
    return Divergence(mean, std)


def decoupled_log_likelihood(target: Gaussian, new: Gaussian, raw: Array) -> Array:
    """Return `log N(a; mu, sigma') + log N(a; mu', sigma)`: each is fitted by itself.

    So the fit of the mean is not weakened where the new std is large, and the std
    does not shrink around a mean that has already moved.

    Args:
        target: `[N, A]` each, outputs of the target policy.
        new: `[N, A]` each, outputs of the policy that is fitted.
        raw: `[S, N, A]` sampled actions, before tanh: its Jacobian has no parameters.

    Returns:
        `[S, N]`, summed over action dimensions.
    """
    fit_mean = _log_density(Gaussian(new.mean, target.log_std), raw)
    fit_std = _log_density(Gaussian(target.mean, new.log_std), raw)
    return fit_mean + fit_std


def _log_density(outputs: Gaussian, raw: Array) -> Array:
    mean, log_std = (jnp.broadcast_to(x[None], raw.shape) for x in outputs)
    distance = (raw - mean) * jnp.exp(-log_std)
    return -(0.5 * jnp.square(distance) + log_std + _HALF_LOG_2PI).sum(-1)


def lagrangian(
    multiplier: Array, divergence: Array, epsilon: Array | float
) -> tuple[Array, Array]:
    """Return the penalty of `divergence <= epsilon` and its multiplier's loss.

    Descending the first moves the policy inside, descending the second raises the
    multiplier while the policy is outside, and lowers it inside. Neither has a
    gradient with respect to the other's variables.

    Args:
        multiplier: `[D]`, positive; one for each constraint.
        divergence: `[D]` divergence, in nats.
        epsilon: Bound on each divergence.

    Returns:
        `(penalty [], multiplier_loss [])`.
    """
    penalty = (jax.lax.stop_gradient(multiplier) * divergence).sum()
    slack = epsilon - jax.lax.stop_gradient(divergence)
    return penalty, (multiplier * slack).sum()


def softplus_inverse(value: Array | float) -> Array:
    """Return the parameter whose softplus is `value`, a positive number; float32."""
    value = jnp.asarray(value, jnp.float32)
    return value + jnp.log(-jnp.expm1(-value))

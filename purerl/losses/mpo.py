"""The two steps of MPO: better actions by their values, and a policy fitted to them.

Maximum a posteriori policy optimisation (Abdolmaleki et al. 2018a, arXiv:1806.06920;
2018b, arXiv:1812.02256).

**E-step.** For each of `N` states `S` actions of the target policy are sampled and
weighed by

    w_sa = softmax_a(Q(s, a) / eta),

which is the best reweighting whose divergence from the samples is at most `epsilon`
when the temperature `eta` minimises the convex dual (2018b, eq. 4)

    g(eta) = eta epsilon + eta mean_s log mean_a exp(Q(s, a) / eta).

Its slope is `g'(eta) = epsilon - mean_s KL(w_s || uniform)`, and that divergence falls
monotonically from at most `log S` to 0 as `eta` grows. So the minimum is where the
divergence *is* `epsilon`, or, where it never reaches `epsilon`, the smallest
temperature that is allowed. Discrete actions are not sampled. All of them, of which the
target policy has the probabilities `pi'(a|s)`, are weighed by the better policy

    q(a|s) = pi'(a|s) exp(Q(s, a) / eta) / Z(s),

with the dual `eta epsilon + eta mean_s log sum_a pi'(a|s) exp(Q(s, a) / eta)`.

**M-step.** The policy is fitted to the weights by maximum likelihood, held near the
target policy by constraints whose multipliers are learned by gradient, as softplus of a
parameter. Mean and standard deviation of a Gaussian are each fitted with the other held
at the target's (2018b, section 4.2.1), with the constraints

    KL_mean = sum_d (mu - mu')^2 / (2 sigma'^2)                          <= epsilon_mean
    KL_std  = sum_d [log(sigma / sigma') + sigma'^2 / (2 sigma^2) - 1/2]  <= epsilon_std

with primes for the target policy: KL(target || new), the other parameter shared. They
may bound each dimension `d` instead of the sum. Logits have one constraint,

    mean_s sum_a pi'(a|s) log(pi'(a|s) / pi(a|s)) <= epsilon_mean.

Axes: `S` sampled actions, or all discrete ones; `N` states; `A` action dimensions.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.learning.averages import pmean
from purerl.networks.distributions import Gaussian
from purerl.types import Array, Metrics

_HALF_LOG_2PI = float(0.5 * np.log(2.0 * np.pi))
_SMALLEST = 1e-6
"""Least value of a dual variable, as something is divided by them."""
MIN_TEMPERATURE = 1e-6
"""Smallest temperature, in units of Q: where all sampled actions are worth the same,
any temperature gives the same weights."""

# Newton's method starts on the side of the root where it cannot overshoot. Six
# iterations then reach the rounding of a float for usual Q-values, twelve for states
# whose Q-values differ by seven orders of magnitude in scale.
_ITERATIONS = 16
# A step of log(eta) this small is one of a converged iteration, whatever rounding
# says about the bracket.
_CONVERGED = 1e-3
# Where actions have log-probabilities of their own, a divergence below this share of
# `epsilon` is too far from the root for Newton's method.
_NEAR = 0.1
_TINY = 1e-30
# Log-probability of an action that a mask excludes, see `observe.EXCLUDED`.
_IMPOSSIBLE = -1e8


class Duals(NamedTuple):
    """Parameters whose softplus are the dual variables; None for what there is not.

    Attributes:
        mean: `[D]` multipliers of the mean's constraints: one for each dimension of
            the action, or one.
        std: `[D]` multipliers of the std's constraints.
        policy: `[1]` multiplier of the constraint of discrete actions.
        temperature: `[]` multiplier of the constraint on the weights, where it is
            learned by gradient.
    """

    mean: Any = None
    std: Any = None
    policy: Any = None
    temperature: Any = None


class Improvement(NamedTuple):
    """The E-step's better policy, as weighted actions.

    Attributes:
        policy: The target policy at the observations: a Gaussian, `[N, A]` each, or
            log-probabilities `[S, N]`.
        raw: `[S, N, A]` actions sampled from a Gaussian, before tanh; None of discrete
            ones.
        q_values: `[S, N]` values of these actions; those of actions that a mask
            excludes are the best of the others.
        weights: `[S, N]`; those of a state sum to 1.
        temperature: `[]` temperature with which the weights were made.
    """

    policy: Any
    raw: Any
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


def temperature_dual(
    temperature: Array | float,
    q_values: Array,
    epsilon: Array | float,
    log_prior: Array | None = None,
) -> Array:
    """Return the dual `g(eta)` of the E-step, a convex function of the temperature.

    Args:
        temperature: `[]`, eta > 0, in units of Q.
        q_values: `[S, N]` values of actions sampled from the target policy.
        epsilon: Bound on the weights' divergence from the samples, in nats.
        log_prior: `[S, N]` log-probabilities of actions that were not sampled, but are
            all that there are; without them all have `1 / S`.

    Returns:
        float `[]`.
    """
    best = q_values.max(0, keepdims=True)
    scaled = (q_values - best) / temperature
    if log_prior is not None:
        log_sum = jax.nn.logsumexp(log_prior + scaled, axis=0)
        return best.mean() + temperature * (epsilon + log_sum.mean())
    log_mean = jnp.log(jnp.exp(scaled).mean(0))
    return best.mean() + temperature * (epsilon + log_mean.mean())


def solve_temperature(
    q_values: Array,
    epsilon: Array | float,
    axis_name: str | None = None,
    log_prior: Array | None = None,
) -> Array:
    """Minimise `temperature_dual`: the temperature, at least `MIN_TEMPERATURE`.

    Newton's method on `log KL(log eta) = log epsilon`, which is nearly linear (slope
    -2) for large temperatures and levels off for small ones. It starts where the
    divergence is at most `epsilon` by Hoeffding's lemma, `KL <= range^2 / (8 eta^2)`,
    from where its steps do not pass the root; should one leave the bracket (the mean
    over states of very different scales need not be concave), bisection takes its
    place, as it does where actions have a `log_prior` and the divergence is far below
    `epsilon`. The number of iterations is fixed, so that vmapped agents do not wait.

    Args:
        q_values: `[S, N]` values, of any scale.
        epsilon: Bound on the divergence from the samples, in nats (never over `log S`).
        axis_name: Mapped axis over which the states are spread, if any.
        log_prior: Log-probabilities of the prior, as in `temperature_dual`.

    Returns:
        float32 `[]`, in units of Q; correct to about 1e-5 of itself, and with a
        `log_prior` to 1e-3 where in few states only a rare action is better.
    """
    if log_prior is not None:
        q_values = without_impossible(log_prior, q_values)
    centred = q_values - q_values.max(0, keepdims=True)
    floor = jnp.log(jnp.float32(MIN_TEMPERATURE))

    def divergence(log_temperature: Array) -> tuple[Array, Array]:
        scaled = centred * jnp.exp(-log_temperature)
        if log_prior is not None:
            return pmean(_of_prior(log_prior, scaled), axis_name)
        return pmean(_of_samples(scaled), axis_name)

    def iterate(_: int, carry: tuple[Array, Array, Array]) -> tuple:
        low, high, x = carry
        kl, slope = divergence(x)
        is_left = kl > epsilon
        low, high = jnp.where(is_left, x, low), jnp.where(is_left, high, x)
        move = jnp.log(jnp.maximum(kl, _TINY) / epsilon)
        move = move * kl / jnp.maximum(slope, _TINY)
        newton = x + move
        is_inside = ((newton > low) & (newton < high)) | (jnp.abs(move) < _CONVERGED)
        if log_prior is not None:
            # Where only rare actions are better, the divergence far from the root
            # rounds to 0, and so does the step: that is no convergence.
            is_inside = is_inside & (kl > _NEAR * epsilon)
        return low, high, jnp.where(is_inside, newton, 0.5 * (low + high))

    start = jnp.maximum(_first(centred, epsilon, axis_name), floor)
    # This is the floor itself, but computed from the data: it then varies over devices
    # as the temperature in the loop does.
    low = jnp.minimum(floor, start)
    *_, solution = jax.lax.fori_loop(0, _ITERATIONS, iterate, (low, start, start))
    # The constraint does not bind where the dual grows from the smallest one on.
    is_slack = divergence(floor)[0] <= epsilon
    return jnp.exp(jnp.where(is_slack, floor, jnp.maximum(solution, floor)))


def _first(centred: Array, epsilon: Array | float, axis_name: str | None) -> Array:
    """Log temperature at which the divergence is at most `epsilon`, by Hoeffding."""
    squared_range = pmean(jnp.square(centred.min(0)).mean(), axis_name)
    return 0.5 * jnp.log(jnp.maximum(squared_range, _TINY) / (8.0 * epsilon))


def _of_samples(scaled: Array) -> tuple[Array, Array]:
    """Mean over states of KL(w || uniform), and its slope in -log eta."""
    factors = jnp.exp(scaled)  # The largest factor is 1.
    weights = factors / factors.sum(0, keepdims=True)
    mean = (weights * scaled).sum(0, keepdims=True)
    log_mean = jnp.log(factors.mean(0, keepdims=True))
    variance = (weights * jnp.square(scaled - mean)).sum(0)
    return (mean - log_mean).mean(), variance.mean()


def without_impossible(log_prior: Array, q_values: Array) -> Array:
    """Return values in which impossible actions are worth as much as the best others.

    What an impossible action would be worth must neither cost others their digits nor,
    divided by a small temperature, outweigh its log-probability, which is finite.

    Args:
        log_prior: `[S, N]` log-probabilities; those of impossible actions are at most
            -1e8, and no state has such actions alone.
        q_values: `[S, N]` values of all actions.
    """
    possible = log_prior > _IMPOSSIBLE
    best = jnp.where(possible, q_values, -jnp.inf).max(0, keepdims=True)
    return jnp.where(possible, q_values, jnp.broadcast_to(best, possible.shape))


def _of_prior(log_prior: Array, scaled: Array) -> tuple[Array, Array]:
    """Mean over states of KL(w || prior), and its slope; `w = prior exp(scaled) / Z`.

    In logarithms throughout: where the prior has no probability for the best action,
    factors of all others would vanish.
    """
    log_sum = jax.nn.logsumexp(log_prior + scaled, axis=0, keepdims=True)
    weights = jnp.exp(log_prior + scaled - log_sum)
    mean = (weights * scaled).sum(0, keepdims=True)
    variance = (weights * jnp.square(scaled - mean)).sum(0)
    return (mean - log_sum).mean(), variance.mean()


def action_weights(q_values: Array, temperature: Array | float) -> Array:
    """Return the E-step's weights `softmax_a(Q / eta)`.

    Args:
        q_values: `[S, N]` values of actions sampled from the target policy.
        temperature: `[]` temperature eta.

    Returns:
        `[S, N]`; the weights of a state sum to 1.
    """
    return jax.nn.softmax(q_values / temperature, axis=0)


def weights_divergence(weights: Array) -> Array:
    """Return the KL of the weights from uniform ones, in nats.

    Args:
        weights: `[S, N]`, those of a state sum to 1.

    Returns:
        `[N]`, between 0 and `log S`.
    """
    return jax.scipy.special.xlogy(weights, weights * weights.shape[0]).sum(0)


def improved(log_policy: Array, q_values: Array, temperature: Array) -> Improvement:
    """Make the E-step of discrete actions at a temperature.

    Args:
        log_policy: `[S, N]` log-probabilities of the target policy.
        q_values: `[S, N]` values of all actions.
        temperature: `[]` temperature eta.
    """
    q_values = without_impossible(log_policy, q_values)
    # The quotient is centred: beside a large one log-probabilities would lose their
    # digits.
    centred = q_values - q_values.max(0, keepdims=True)
    weights = jax.nn.softmax(log_policy + centred / temperature, axis=0)
    return Improvement(log_policy, None, q_values, weights, temperature)


def divergence_from(weights: Array, log_policy: Array) -> Array:
    """Return `KL(weights || policy)`, in nats, `[N]`.

    Args:
        weights: `[S, N]` probabilities of the actions.
        log_policy: `[S, N]` log-probabilities, finite.
    """
    return (jax.scipy.special.xlogy(weights, weights) - weights * log_policy).sum(0)


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


def fit_loss(
    duals: Duals, new: Gaussian, improvement: Improvement, bounds: Bounds
) -> tuple[Array, Metrics]:
    """Return the M-step's loss: weighted likelihood, penalties, losses of the duals.

    Args:
        duals: The dual variables' parameters; one multiplier of each kind bounds the
            sum over dimensions, one for each dimension bounds each.
        new: `[N, A]` each, outputs of the policy that is fitted.
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
        total = total + temperature_dual(
            positive(duals.temperature), improvement.q_values, bounds.weights
        )
    return total, {
        "policy_loss": policy_loss,
        "kl_weights": weights_divergence(improvement.weights).mean(),
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


def fit_discrete(
    duals: Duals, logits: Array, improvement: Improvement, bounds: Bounds
) -> tuple[Array, Metrics]:
    """Return the M-step's loss of discrete actions; see `fit_loss`.

    Args:
        duals: The dual variables' parameters.
        logits: `[N, S]` outputs of the policy that is fitted.
        bounds: Bounds of the constraints; that of the mean bounds the policy.

    Returns:
        Loss `[]`, and what there is to say about it.
    """
    log_new = jax.nn.log_softmax(logits).T
    policy_loss = -(improvement.weights * log_new).sum(0).mean()
    log_old = improvement.policy
    old = jnp.exp(log_old)
    kl_policy = (old * (log_old - log_new)).sum(0).mean(keepdims=True)
    multiplier = positive(duals.policy)
    penalty, dual = lagrangian(multiplier, kl_policy, bounds.mean)
    total = policy_loss + penalty + dual
    if duals.temperature is not None:
        total = total + temperature_dual(
            positive(duals.temperature),
            improvement.q_values,
            bounds.weights,
            log_old,
        )
    kl_weights = divergence_from(improvement.weights, log_old)
    return total, {
        "policy_loss": policy_loss,
        "kl_weights": kl_weights.mean(),
        "kl_policy": kl_policy[0],
        "multiplier_policy": multiplier[0],
        "temperature": improvement.temperature,
        "entropy": -(jnp.exp(log_new) * log_new).sum(0).mean(),
    }

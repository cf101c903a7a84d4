"""The E-step of MPO: sampled actions weighted without a parametric form.

Maximum a posteriori policy optimisation (Abdolmaleki et al. 2018a, arXiv:1806.06920;
2018b, arXiv:1812.02256) samples `S` actions of the target policy for each of `N` states
and weighs them by

    w_sa = softmax_a(Q(s, a) / eta),

which is the best reweighting whose divergence from the samples is at most `epsilon`
when the temperature `eta` minimises the convex dual (2018b, eq. 4)

    g(eta) = eta epsilon + eta mean_s log mean_a exp(Q(s, a) / eta).

Its slope is `g'(eta) = epsilon - mean_s KL(w_s || uniform)`, and that divergence falls
monotonically from at most `log S` to 0 as `eta` grows. So the minimum is where the
divergence *is* `epsilon`, or, where it never reaches `epsilon`, the smallest
temperature that is allowed.

Axes: `S` sampled actions, `N` states.
"""

import jax
import jax.numpy as jnp

from purerl.learning.collectives import pmean
from purerl.types import Array

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
# Log-probability of an action that a mask excludes, see `composite.EXCLUDED`.
_IMPOSSIBLE = -1e8


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

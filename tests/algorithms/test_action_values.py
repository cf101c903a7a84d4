"""Distributions of returns and Munchausen targets, against known values."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

import purerl
from purerl.acting.environment import resolve_env
from purerl.algorithms import action_values, dqn
from purerl.algorithms.action_values import Categorical
from purerl.learning import optimiser
from purerl.losses.quantile import quantile_huber
from tests import boxes
from tests.algorithms.agents import compiled
from tests.algorithms.test_dqn import make_batch
from tests.helpers import slow_but

N, ATOMS = 7, 5
CONFIG = purerl.DQNConfig(
    hidden_sizes=(5,), batch_size=N, num_atoms=ATOMS, num_quantiles=ATOMS
)
DISTRIBUTIONS = ("categorical", "quantile", "implicit")


@cache
def make(**changes):
    """A parts, the way back from flat parameters, and a learner with two networks."""
    config = CONFIG.replace(**changes)
    parts = dqn.build(config, resolve_env(config))
    init = jax.jit(partial(dqn.init, parts))
    online, target = (init(jax.random.key(i)).params for i in range(2))
    flat, restore = optimiser.flatten(online)
    # Values of both signs, so that choices differ from sample to sample.
    slow = 2.0 * optimiser.flatten(target)[0]
    state = jax.jit(dqn.make_optimiser(config, restore).init)(flat)
    return parts, restore, dqn.Learner(2.0 * flat, slow, state)


# The projection of C51.


def projected(points, probabilities, atoms):
    """Algorithm 1 of Bellemare et al. 2017 for one sample, atom by atom, in float64."""
    found, distance = np.zeros(len(atoms)), atoms[1] - atoms[0]
    for point, probability in zip(points, probabilities, strict=True):
        place = (np.clip(point, atoms[0], atoms[-1]) - atoms[0]) / distance
        low = int(np.floor(place + 1e-9))
        found[low] += probability * (1 - (place - low))
        if low + 1 < len(atoms):
            found[low + 1] += probability * (place - low)
    return found


def test_the_projection_is_the_papers():
    rng = np.random.default_rng(0)
    atoms = np.linspace(-2.0, 2.0, 9)
    probabilities = rng.dirichlet(np.ones(9), size=5)
    reward = np.array([0.3, 0.5, 9.0, -9.0, 1.25])
    # Within, exactly on atoms, beyond either end, and the end of an episode, whose
    # reward lies in the middle of two atoms.
    discount = np.array([0.9, 1.0, 0.9, 0.9, 0.0])
    points = reward[:, None] + discount[:, None] * atoms
    rows = zip(points, probabilities, strict=True)
    expected = [projected(*row, atoms) for row in rows]
    kind = Categorical(9, -2.0, 2.0)
    given = map(np.float32, (reward, discount, probabilities))
    got = np.asarray(jax.jit(kind.target)(*given))
    np.testing.assert_allclose(got, expected, atol=2e-6)


@pytest.mark.parametrize(("low", "high"), [(1000.0, 1001.0), (-1e4, -9990.0)])
def test_the_projection_keeps_all_mass_far_from_zero(low, high):
    """The distance of rounded atoms lost up to 6e-3 of it."""
    kind = Categorical(101, low, high)
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(101), 64).astype(np.float32)
    discount = np.linspace(0.9, 1.0, 64, dtype=np.float32)
    reward = low * (1 - discount) + np.linspace(-0.1, 0.1, 64, dtype=np.float32)
    target_of = jax.jit(kind.target)
    target = target_of(reward, discount, probabilities)
    np.testing.assert_allclose(np.asarray(target).sum(1), 1.0, atol=1e-5)
    np.testing.assert_allclose(
        target_of(0 * reward, 1 + 0 * discount, probabilities), probabilities, atol=5e-3
    )


def test_the_loss_of_atoms_is_the_divergence():
    kind = Categorical(3, 0.0, 2.0)
    logits = jnp.log(jnp.array([[0.5, 0.25, 0.25], [0.2, 0.3, 0.5]]))
    target = jnp.array([[1.0, 0.0, 0.0], [0.2, 0.3, 0.5]])
    loss = jax.jit(kind.loss)(logits, target)
    np.testing.assert_allclose(loss, [np.log(2.0), 0.0], atol=1e-6)
    np.testing.assert_allclose(kind.values(logits), [0.75, 1.3], rtol=1e-6)
    np.testing.assert_array_equal(kind.priority(logits, target, loss), loss)


# The loss of quantiles.


@pytest.mark.parametrize("kappa", [0.5, 2.0])
def test_the_quantile_huber_loss_is_the_papers(kappa):
    rng = np.random.default_rng(0)
    quantiles, target = (np.float32(rng.normal(size=(2, 3 + i))) for i in range(2))
    levels = np.float32(rng.uniform(size=(2, 3)))
    expected = np.zeros(2)
    for n in range(2):
        for i in range(3):
            for j in range(4):
                u = float(target[n, j] - quantiles[n, i])
                huber = 0.5 * u * u if abs(u) <= kappa else kappa * (abs(u) - kappa / 2)
                weight = abs(float(levels[n, i]) - (u < 0))
                expected[n] += weight * huber / kappa / 4
    got = jax.jit(partial(quantile_huber, kappa=kappa))(quantiles, target, levels)
    np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.parametrize("values", ["quantile", "implicit"])
def test_quantiles_of_the_taken_actions_are_judged_at_their_levels(values):
    parts, restore, learner = make(values=values, kappa=0.7)
    batch, target = make_batch(), jax.random.normal(jax.random.key(4), (N, 3))
    draws = dqn.draw(parts, jax.random.key(3), N)
    levels = draws.levels.online

    def both(flat):
        outputs = dqn.evaluate(parts, restore(flat), batch.obs, levels)
        return dqn.loss(parts, restore, flat, batch, target, draws)[0], outputs

    total, outputs = compiled(both, learner.params)
    if values == "quantile":
        levels = jnp.tile((jnp.arange(ATOMS) + 0.5) / ATOMS, (N, 1))
    chosen = outputs[np.arange(N), batch.action]
    expected = quantile_huber(chosen, target, levels, 0.7)
    np.testing.assert_allclose(total, (batch.weight * expected).mean(), rtol=1e-5)


# Targets: clipped, double by means, and Munchausen's.


def means_of(values, target):
    """The expected returns of targets, whatever these are."""
    if values == "categorical":
        return np.asarray(target) @ np.linspace(-100.0, 100.0, ATOMS)
    return target if values == "expected" else target.mean(-1)


@pytest.mark.parametrize("values", ["expected", "categorical", "quantile"])
def test_targets_stay_within_their_bound(values):
    kind = make(values=values, clip_targets=1.5)[0].kind
    reward = np.array([0.5, 9.0, -9.0], np.float32)
    shape = (3,) if values == "expected" else (3, ATOMS)
    likely = np.full(shape, 1 / ATOMS, np.float32)
    target = jax.jit(kind.target)(reward, 0 * reward, likely)  # Nothing follows.
    np.testing.assert_allclose(means_of(values, target), [0.5, 1.5, -1.5], atol=1e-5)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("values", slow_but(DISTRIBUTIONS, "quantile"))
def test_the_next_action_has_the_largest_mean(values, double):
    parts, restore, learner = make(values=values, double=double)
    batch = make_batch()

    def both(learner):
        draws = dqn.draw(parts, jax.random.key(3), N)
        target = dqn.td_target(parts, restore, learner, batch, draws)
        online, slow = (restore(p) for p in (learner.params, learner.target_params))
        means = [dqn.values_of(parts, p, batch.next_obs) for p in (online, slow)]
        outputs = dqn.evaluate(parts, slow, batch.next_obs, draws.levels.target)
        best = means[0 if double else 1].argmax(1)
        chosen = parts.kind.distribution(outputs)[jnp.arange(N), best]
        return target, parts.kind.target(batch.reward, batch.discount, chosen), means

    target, expected, means = compiled(both, learner)
    assert (means[0].argmax(1) != means[1].argmax(1)).any()
    np.testing.assert_allclose(target, expected, rtol=1e-5, atol=1e-6)


def munchausen_by_hand(now, following, batch, alpha, tau, clip):
    """Equation 4 of Vieillard et al. 2020, sample by sample, in float64."""
    found = []
    for i in range(N):
        log_now = now[i] / tau - logsumexp(now[i] / tau)
        log_next = following[i] / tau - logsumexp(following[i] / tau)
        bonus = alpha * np.clip(tau * log_now[int(batch.action[i])], clip, 0.0)
        soft = (np.exp(log_next) * (following[i] - tau * log_next)).sum()
        found.append(batch.reward[i] + bonus + batch.discount[i] * soft)
    return np.array(found)


@pytest.mark.parametrize("values", ["expected", *DISTRIBUTIONS])
def test_munchausen_targets_are_the_papers(values):
    numbers = {"munchausen_alpha": 0.8, "munchausen_tau": 0.5, "munchausen_clip": -0.4}
    parts, restore, learner = make(
        values=values, munchausen=True, double=False, **numbers
    )
    batch = make_batch()
    levels = parts.kind.acting_levels
    if levels is not None:  # Those that choose, so that means are of the same numbers.
        levels = jnp.tile(levels, (N, 1))
    draws = dqn.Draws(dqn.action_values.Levels(target=levels))
    slow = restore(learner.target_params)
    target, now, following = compiled(
        lambda: (
            dqn.td_target(parts, restore, learner, batch, draws),
            dqn.values_of(parts, slow, batch.obs),
            dqn.values_of(parts, slow, batch.next_obs),
        )
    )
    now, following = np.float64(now), np.float64(following)
    batch = jax.tree.map(np.asarray, batch)
    expected = munchausen_by_hand(now, following, batch, 0.8, 0.5, -0.4)
    # A sum over atoms of up to 100 has fewer digits.
    np.testing.assert_allclose(means_of(values, target), expected, rtol=1e-4, atol=1e-4)
    assert (np.asarray(batch.discount) == 0).any()


@pytest.mark.parametrize("std", [0.0, 0.3, 0.75])
def test_a_number_is_spread_over_the_atoms(std):
    atoms = np.linspace(-2.0, 4.0, 7)
    numbers = [-9.0, -2.0, -0.4, 0.5, 1.0, 3.2, 50.0]
    kind = action_values.Categorical(7, -2.0, 4.0)
    # The loss of uniform logits is log 7 less the entropy of the target.
    spread = jax.jit(partial(kind.loss_of_numbers, std=std))
    loss = spread(jnp.zeros((7, 7)), jnp.array(numbers))
    for index, number in enumerate(numbers):
        number = min(max(number, -2.0), 4.0)
        expected = np.zeros(7)
        for k, atom in enumerate(atoms):
            if std:
                edges = stats.norm.cdf([atom - 0.5, atom + 0.5], number, std)
                expected[k] = edges[1] - edges[0]
            else:
                expected[k] = max(0.0, 1.0 - abs(number - atom))
        expected /= expected.sum()
        entropy = -sum(p * np.log(p) for p in expected if p > 0)
        np.testing.assert_allclose(loss[index], np.log(7) - entropy, atol=1e-5)
        if not std or -0.5 < number < 2.5:  # The Gaussian is not cut.
            np.testing.assert_allclose(expected @ atoms, number, atol=0.05)
    if std:
        found = jax.jit(action_values.gaussian)(
            jnp.array(numbers), jnp.array(atoms, jnp.float32), std
        )
        np.testing.assert_allclose(np.sum(found, -1), 1.0, rtol=1e-5)


# Networks: the split, masks, modules of the user's own.


@pytest.mark.parametrize("values", DISTRIBUTIONS)
def test_advantages_are_centred_output_by_output(values):
    parts, restore, learner = make(values=values, dueling=True)
    obs = jax.random.normal(jax.random.key(5), (3, 4))
    params, levels = restore(learner.params), parts.kind.acting_levels
    evaluate = jax.jit(partial(dqn.evaluate, parts))
    outputs = np.asarray(evaluate(params, obs, levels))
    assert outputs.shape == (3, 2, ATOMS if levels is None else 32)
    # The advantages' layer moves no mean over the actions.
    moved = jax.tree.map(lambda x: x, params)
    head = moved["params"]["Dense_0"]
    moved["params"]["Dense_0"] = jax.tree.map(lambda x: 3.0 * x + 1.0, head)
    other = np.asarray(evaluate(moved, obs, levels))
    assert np.abs(other - outputs).max() > 0.1
    np.testing.assert_allclose(other.mean(1), outputs.mean(1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("values", slow_but(["quantile", "implicit"], "implicit"))
def test_invalid_actions_are_never_the_best(values):
    config = CONFIG.replace(env=boxes.MASKED, dueling=True, values=values)
    parts = dqn.build(config, resolve_env(config))
    obs = dqn.observe.example(parts.obs_space)
    lead = jax.tree.map(lambda x: np.tile(x, (3, *(1,) * (x.ndim - 1))), obs)
    mask = np.eye(parts.head.num_outputs, dtype=bool)[:3]

    def values_of(key):
        params = dqn.init(parts, key).params
        return dqn.values_of(parts, params, {**lead, dqn.observe.MASK: mask})

    best = compiled(values_of, jax.random.key(0)).argmax(1)
    np.testing.assert_array_equal(best, [0, 1, 2])

"""Critics of SAC and TD3 in numbers: REDQ's subsets, TQC's quantiles, priorities."""

import dataclasses
from functools import partial
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import purerl
from purerl import networks, optimisers
from purerl.acting.environment import resolve_env
from purerl.algorithms import action_values, ensembles, off_policy, sac, td3
from purerl.algorithms.off_policy import Batch
from purerl.envs.probe import ContinuousProbe
from purerl.learning.branches import StepCount
from purerl.losses import SquaredError, quantile
from purerl.replay import uniform as replay
from tests.algorithms import test_actor_critics
from tests.algorithms.agents import compiled
from tests.algorithms.test_actor_critics import RATE, descended, make
from tests.helpers import assert_close

N = 4
SAC = purerl.SACConfig(env="probe/continuous", hidden_sizes=(5,), batch_size=N)
TD3 = purerl.TD3Config(env="probe/continuous", hidden_sizes=(5,), batch_size=N)
REDQ = {"num_critics": 4, "critic_subset": 2}
TQC = {"num_critics": 3, "num_quantiles": 4, "dropped_quantiles": 1}


def make_batch():
    action = jnp.array([[-0.5], [0.0], [0.25], [1.0]])
    return test_actor_critics.make_batch()._replace(action=action)


def one_critic(params, index, obs, action):
    """What critic `index` of an ensemble gives, without flax: two layers."""
    layers = params["params"]["ActionCritic_0"]
    first = layers["MLP_0"]["Dense_0"]
    x = np.concatenate([obs, action]) @ first["kernel"][index] + first["bias"][index]
    last = layers["Dense_0"]
    return np.maximum(x, 0) @ last["kernel"][index] + last["bias"][index]


# REDQ.


def test_a_policy_that_climbs_the_first_critic_asks_no_other():
    """Of three critics side by side the first is computed alone, and is the first."""
    config = purerl.TD3Config(num_critics=3, hidden_sizes=(8,))
    parts = td3.build(config, resolve_env(config))
    params = jax.jit(partial(td3.init, parts))(jax.random.key(0)).params["critics"]
    inputs = np.ones((4, 3), np.float32), np.ones((4, 1), np.float32)
    climbed = ensembles.policy_critics(parts.config, parts.critics, params)
    every, one = compiled(
        lambda: (parts.critics.apply(params, *inputs), climbed(*inputs))
    )
    assert (every.shape, one.shape) == ((3, 4), (1, 4))
    objective = ensembles.policy_objective
    np.testing.assert_allclose(
        objective(parts.config, one), objective(parts.config, every), rtol=1e-6
    )
    config = config.replace(critic_subset=2)
    climbed = ensembles.policy_critics(config, parts.critics, params)
    assert jax.eval_shape(climbed, *inputs).shape[0] > 1


def test_subsets_are_drawn_without_replacement_and_all_are_as_likely():
    draws = 5_000
    draw = ensembles.subsets(SAC.replace(num_critics=5, critic_subset=2))
    found = draw(jax.random.key(0), (draws,))
    assert found.shape == (draws, 2) and found.dtype == jnp.int32
    pairs = np.sort(found, axis=-1)
    assert (pairs[:, 0] < pairs[:, 1]).all()
    kinds, counts = np.unique(pairs, axis=0, return_counts=True)
    assert len(kinds) == comb(5, 2)
    # A draw that favoured one critic by a tenth would have a p-value below 1e-6.
    assert stats.chisquare(counts).pvalue > 1e-3
    other = np.sort(draw(jax.random.key(1), (draws,)), axis=-1)
    assert (other != pairs).any(-1).mean() > 0.5


def test_an_ensemble_is_its_members_one_by_one():
    def make_critic():
        return networks.ActionCritic((6, 5), "relu")

    ensemble = networks.Ensemble(make_critic, 4)
    batch = make_batch()
    params = jax.jit(ensemble.init)(jax.random.key(0), batch.obs, batch.action)
    inner = jax.tree.map(np.asarray, params["params"]["ActionCritic_0"])

    def together(params):
        few, some = ensembles.members(ensemble, params, jnp.array([3, 1]))
        given = batch.obs, batch.action
        return ensemble.apply(params, *given), few.apply(some, *given)

    values, chosen = compiled(together, params)
    assert values.shape == (4, N)
    apply = jax.jit(make_critic().apply)
    for index in range(4):
        one = {"params": jax.tree.map(lambda x, i=index: x[i], inner)}
        alone = apply(one, batch.obs, batch.action)
        np.testing.assert_allclose(values[index], alone, rtol=1e-5, atol=1e-6)
    # No two have the same parameters, and kernels are orthogonal with their gain.
    kernel = np.asarray(inner["MLP_0"]["Dense_1"]["kernel"])
    assert np.abs(kernel[0] - kernel[1]).max() > 0.1
    np.testing.assert_allclose(kernel[2].T @ kernel[2], 2 * np.eye(5), atol=1e-5)
    np.testing.assert_allclose(chosen, values[[3, 1]], rtol=1e-5)


def test_the_target_of_redq_is_the_smallest_of_the_drawn_critics():
    parts, learner = make(td3, TD3.replace(**REDQ, policy_noise=0.0))
    batch, slow = make_batch(), learner.target_params
    subset, seen = jnp.array([3, 1]), set()
    target, action = compiled(
        lambda: (
            td3.td_target(parts, slow, batch, jnp.zeros((N, 1)), subset),
            parts.actor.apply(slow["actor"], batch.next_obs),
        )
    )
    batch, critics = jax.tree.map(np.asarray, (batch, slow["critics"]))
    for n in range(N):
        values = [
            one_critic(critics, i, batch.next_obs[n], action[n])[0] for i in range(4)
        ]
        expected = batch.reward[n] + batch.discount[n] * min(values[3], values[1])
        np.testing.assert_allclose(target[n], expected, rtol=1e-4, atol=1e-5)
        seen.add(int(np.argmin(values)))
    assert seen - {1, 3}  # somewhere a critic that was not drawn is the smallest


@pytest.mark.slow
def test_every_gradient_step_of_redq_draws_its_own_critics():
    # A step's target depends on its set; `learn` takes it from the noise.
    parts, learner = make(sac, SAC.replace(**REDQ))
    batch, noise = make_batch(), jnp.zeros((2, N, 1))
    learn = jax.jit(partial(sac.learn, parts))
    steps = [
        learn(learner, batch, (noise, jnp.array(pair)), StepCount(jnp.uint32(0)))[1]
        for pair in ([0, 1], [1, 0], [2, 3])
    ]
    np.testing.assert_allclose(steps[0], steps[1], rtol=1e-6)
    assert np.abs(steps[0] - steps[2]).max() > 1e-3


def test_the_policy_maximises_what_the_config_says():
    values = jnp.array([[1.0, 5.0], [3.0, 2.0], [8.0, 2.0]])
    policy_objective = ensembles.policy_objective
    config = SAC.replace(num_critics=3)
    np.testing.assert_allclose(policy_objective(config, values), [1.0, 2.0])
    # Without being told, REDQ maximises the mean, and TD3 its first critic.
    config = SAC.replace(num_critics=3, critic_subset=2)
    np.testing.assert_allclose(policy_objective(config, values), [4.0, 3.0])
    config = TD3.replace(num_critics=3)
    np.testing.assert_allclose(policy_objective(config, values), [1.0, 5.0])
    # Two that stand side by side are treated as an ensemble of two is.
    pair = (values[0], values[1])
    for two in (pair, values[:2]):
        np.testing.assert_allclose(policy_objective(SAC, two), [1.0, 2.0])


@pytest.mark.slow
@pytest.mark.parametrize("config", [SAC, TD3], ids=["sac", "td3"])
def test_all_of_two_critics_are_the_algorithm_itself(config):
    config = config.replace(
        total_timesteps=64, rounds_per_update=32, learning_starts=8, num_evaluations=0
    )

    def program(config):
        return jax.jit(purerl.make_train(config)).lower(jax.random.key(0)).as_text()

    assert program(config.replace(critic_subset=2, num_critics=2)) == program(config)
    assert program(config.replace(critic_subset=1)) != program(config)


# TQC.


def test_the_target_of_tqc_is_the_textbooks():
    parts, learner = make(sac, SAC.replace(**TQC))
    batch, noise = make_batch(), 0.7 * jax.random.normal(jax.random.key(3), (N, 1))
    target, outputs = compiled(
        lambda: (
            sac.td_target(parts, learner, batch, noise),
            parts.actor.apply(learner.params["actor"], batch.next_obs),
        )
    )
    assert target.shape == (3 * (4 - 1), N)
    batch, noise, slow, temperature = jax.tree.map(
        np.asarray,
        (
            *(batch, noise, learner.target_params["critics"]),
            np.exp(learner.params["log_temperature"]),
        ),
    )
    for n in range(N):
        mean, std = outputs.mean[n], np.exp(outputs.log_std[n])
        raw = mean + std * noise[n]
        action = np.tanh(raw)
        log_prob = stats.norm.logpdf(raw, mean, std)
        log_prob = (log_prob - np.log(1 - action**2)).sum()
        pooled = np.concatenate(
            [one_critic(slow, i, batch.next_obs[n], action) for i in range(3)]
        )
        kept = np.sort(pooled)[:9]
        expected = batch.reward[n] + batch.discount[n] * (kept - temperature * log_prob)
        np.testing.assert_allclose(target[:, n], expected, rtol=2e-4, atol=2e-5)


def test_a_step_of_tqc_has_the_loss_and_errors_of_its_quantiles():
    config = SAC.replace(**TQC)
    parts, learner = make(sac, config)
    batch, noise = make_batch(), jnp.zeros((2, N, 1))
    target, theta, (td_error, metrics) = compiled(
        lambda: (
            sac.td_target(parts, learner, batch, noise[0]),
            parts.critics.apply(learner.params["critics"], batch.obs, batch.action),
            sac.learn(parts, learner, batch, noise, StepCount(jnp.uint32(0)))[1:],
        )
    )
    tau = (2 * np.arange(4) + 1) / 8
    error = np.asarray(target)[None, :, :, None] - np.asarray(theta)[:, None]
    huber = np.where(np.abs(error) < 1, 0.5 * error**2, np.abs(error) - 0.5)
    cost = np.abs(tau - (error < 0)) * huber  # [E, K, N, Q]
    total = (np.asarray(batch.weight) * cost.mean((1, 3)).sum(0)).mean()
    np.testing.assert_allclose(metrics["value_loss"], total, rtol=1e-4)
    np.testing.assert_allclose(
        td_error, target.mean(0) - theta[0].mean(-1), rtol=1e-4, atol=1e-5
    )
    # The squared error, which is the default, stands for Huber's.
    assert config.value_loss == SquaredError()


def test_quantiles_are_held_to_their_present_values_as_constants():
    def product(value, target, old_value):
        del target
        return value * old_value

    theta, target = jnp.array([[1.0, 2.0]]), jnp.array([[0.5], [3.0]])
    slope = jax.grad(lambda x: quantile.regression(product, x, target).sum())(theta)
    # The weights are those of targets below and above: .75 and .25, then .25 and .75.
    np.testing.assert_allclose(slope, [[0.5 * 1.0 / 2, 0.5 * 2.0 / 2]])


# Categorical critics.

ATOMS = {"num_atoms": 6, "value_min": -1.0, "value_max": 1.5}
CATEGORICAL = {
    "atoms": ATOMS,
    "ensemble": ATOMS | {"num_critics": 3, "target_std": 0.3},
}


@pytest.mark.parametrize("changes", CATEGORICAL.values(), ids=CATEGORICAL)
def test_a_step_of_categorical_critics_is_that_of_their_means(changes):
    config = TD3.replace(policy_noise=0.0, learning_rate=RATE, **changes)
    parts, learner = make(td3, config)
    batch, slow = make_batch(), learner.target_params
    atoms = np.linspace(-1.0, 1.5, 6, dtype=np.float32)

    def means(logits):
        return jax.nn.softmax(jnp.stack([*logits])) @ atoms

    def loss(critics, expected):
        logits = parts.critics.apply(critics, batch.obs, batch.action)
        std = changes.get("target_std", 0.75)
        spread = action_values.gaussian(expected, jnp.asarray(atoms), std)
        entropy = -jax.scipy.special.xlogy(spread, spread).sum(-1)
        each = [-(spread * jax.nn.log_softmax(x)).sum(-1) - entropy for x in logits]
        return (batch.weight * sum(each)).mean()

    @jax.jit
    def textbook(params):
        action = parts.actor.apply(slow["actor"], batch.next_obs)
        later = parts.critics.apply(slow["critics"], batch.next_obs, action)
        expected = batch.reward + batch.discount * means(later).min(0)
        logits = parts.critics.apply(params["critics"], batch.obs, batch.action)
        climbed = ensembles.policy_objective(config, logits)
        moved = descended(loss, params["critics"], expected)
        return expected, means(logits), climbed, moved

    @jax.jit
    def learn(learner):
        given = learner, batch, jnp.zeros((N, 1))
        target = td3.td_target(parts, slow, batch, given[2])
        return target, td3.learn(parts, *given, StepCount(jnp.uint32(0)))

    expected, values, climbed, (total, critics) = textbook(learner.params)
    target, (new, td_error, metrics) = learn(learner)
    np.testing.assert_allclose(target, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(metrics["value_loss"], total, rtol=1e-4)
    np.testing.assert_allclose(td_error, expected - values[0], atol=1e-5)
    assert_close(new.params["critics"], critics, rtol=2e-4, atol=2e-6)
    # The policy climbs the smaller of the expected values.
    np.testing.assert_allclose(climbed, values.min(0), rtol=1e-4, atol=1e-6)


# Priorities.


def test_priorities_are_the_mean_absolute_errors_of_the_critics():
    # TD3 without noise on its targets: an item's error follows from the networks alone.
    config = TD3.replace(
        num_envs=2,
        rounds_per_update=8,
        total_timesteps=32,
        learning_starts=32,  # one gradient step, in the last round
        hidden_sizes=(5,),
        policy_noise=0.0,
        prioritised=True,
        priority_exponent=0.7,
        num_evaluations=0,
    )
    algorithm = purerl.make_algorithm(config)
    step = jax.jit(algorithm.step)
    before = step(jax.jit(algorithm.init)(jax.random.key(0)))[0]
    np.testing.assert_array_equal(before.priorities.p[:8], 1.0)  # not yet learned from
    after, metrics = step(before)
    assert metrics["gradient_steps"] == 1
    parts = td3.build(config, resolve_env(config))

    def error_of(items):
        discount, weight = 0.99 * (1.0 - items.terminated), jnp.ones(32)
        given = items.obs, items.action
        batch = Batch(*given, items.reward, items.next_obs, discount, weight)
        target = td3.td_target(parts, before.target_params, batch, jnp.zeros((32, 1)))
        values = parts.critics.apply(before.params["critics"], *given)
        return sum(jnp.abs(target - one) for one in values) / len(values)

    error = compiled(error_of, replay.in_order(after.buffer))
    expected = (error + 1e-6) ** 0.7
    found = np.asarray(after.priorities.p).reshape(-1)
    learned = found != 1.0
    assert 1 <= learned.sum() <= N
    np.testing.assert_allclose(found[learned], expected[learned], rtol=1e-3)
    assert after.priorities.largest == max(1.0, found.max())


# Normalised observations.


@dataclasses.dataclass(unsafe_hash=True)
class Shifted(ContinuousProbe):
    """The probe whose observations are `8 + 4 o`."""

    def reset_env(self, key, params):
        obs, state = super().reset_env(key, params)
        return 8.0 + 4.0 * obs, state

    def step_env(self, key, state, action, params):
        obs, *rest = super().step_env(key, state, action, params)
        return 8.0 + 4.0 * obs, *rest


NORMALISED = {
    "num_envs": 4,
    "rounds_per_update": 8,
    "total_timesteps": 64,
    "learning_starts": 16,
    "batch_size": 8,
    "hidden_sizes": (4,),
    "num_evaluations": 0,
    "normalize_observations": True,
}


@pytest.fixture(scope="module")
def normalised():
    config = purerl.SACConfig(env=Shifted(), **NORMALISED)
    return config, jax.jit(purerl.make_train(config))(jax.random.key(0)).state


def test_statistics_are_those_of_all_observations_that_were_acted_on(normalised):
    _, state = normalised
    seen = np.asarray(replay.in_order(state.buffer).obs, np.float64)
    assert seen.shape == (64, 1) and set(seen[:, 0]) == {4.0, 12.0}
    assert state.obs_moments.count == 64
    np.testing.assert_allclose(state.obs_moments.mean, seen.mean(0), rtol=1e-6)
    np.testing.assert_allclose(state.obs_moments.var, seen.var(0), rtol=1e-5)


def test_what_is_stored_is_what_the_environment_was_paid_for(normalised):
    item = replay.in_order(normalised[1].buffer)
    assert np.abs(item.action).max() <= 1.0
    taken = 1.0 + 2.0 * item.action[:, 0]  # the middle and half the range
    expected = -jnp.square(taken - (1.5 + (item.obs[:, 0] - 8.0) / 4.0))
    np.testing.assert_allclose(item.reward, expected, rtol=1e-4, atol=1e-5)


def test_the_policy_acts_on_normalised_observations(normalised):
    config, state = normalised
    parts = sac.build(config, resolve_env(config))
    obs = jnp.array([[4.0], [12.0], [1e6]])
    moments = jax.tree.map(np.asarray, state.obs_moments)
    scaled = (np.asarray(obs) - moments.mean) / np.sqrt(moments.var)
    scaled = jnp.clip(scaled, -10, 10)
    outputs = parts.actor.apply(state.params["actor"], scaled)
    expected = 1.0 + 2.0 * jnp.tanh(outputs.mean)
    policy = purerl.make_policy(config, state)
    np.testing.assert_allclose(policy(obs), expected, rtol=1e-4)
    assert np.abs(expected[0] - expected[1]) > 1e-4


# One agent over several devices, and configs.


@pytest.mark.slow
@pytest.mark.parametrize("changes", [REDQ, TQC], ids=["redq", "tqc"])
def test_devices_share_statistics_and_the_drawn_critics(changes):
    config = purerl.SACConfig(env=Shifted(), **{**NORMALISED, **changes})
    config = config.replace(prioritised=True)
    train = purerl.make_train(config, axis_name="devices")
    spread = jax.jit(jax.vmap(train, in_axes=None, axis_size=2, axis_name="devices"))
    state = spread(jax.random.key(0)).state
    shared = (state.params, state.target_params, state.obs_moments)
    for leaf in jax.tree.leaves(shared):
        np.testing.assert_array_equal(leaf[0], leaf[1])
    seen = np.asarray(state.buffer.obs).reshape(2, -1)
    assert (seen[0] != seen[1]).any()
    np.testing.assert_allclose(state.obs_moments.mean[0], [seen.mean()], rtol=1e-5)
    np.testing.assert_allclose(state.obs_moments.var[0], [seen.var()], rtol=1e-4)


def test_devices_draw_the_same_critics_and_their_own_noise():
    hooks = sac.make_hooks(sac.build(SAC.replace(**REDQ), resolve_env(SAC)))

    def draw(_):
        agent = hooks.agent
        stepper = agent.stepper._replace(axis_name="devices")
        spread = hooks._replace(agent=agent._replace(stepper=stepper))
        keys = jax.random.split(jax.random.key(0))
        return off_policy.draw_learning(spread, keys[0], keys[1])

    draws = jax.jit(jax.vmap(draw, axis_name="devices"))
    _, (noise, subset) = draws(jnp.arange(2))
    np.testing.assert_array_equal(subset[0], subset[1])
    assert (noise[0] != noise[1]).all() and len(np.unique(subset[0], axis=0)) > 1


def test_the_noise_of_an_environment_is_that_of_its_number_on_any_device():
    config = TD3.replace(num_envs=4, exploration_noise_max=0.4)
    agent = td3.build(config, resolve_env(config))
    state = jax.jit(partial(td3.init, agent))(jax.random.key(0))

    def act(noise, axis=None):
        stepper = agent.stepper._replace(axis_name=axis)
        hooks = td3.make_hooks(agent._replace(stepper=stepper))
        return hooks.explore(state, jnp.zeros((len(noise), 1)), (), noise, 0)[0]

    noise, alone = np.full((4, 1), 0.5, np.float32), jax.jit(act)
    policy = alone(0 * noise)
    spread = jax.jit(jax.vmap(partial(act, axis="devices"), axis_name="devices"))
    for found in (alone(noise), spread(noise.reshape(2, 2, 1))):
        added = (np.reshape(found, (4, 1)) - policy)[:, 0]
        np.testing.assert_allclose(added, [0.05, 0.1, 0.15, 0.2], rtol=1e-5)


@pytest.mark.parametrize("subset", [0, 2])
def test_two_critics_one_by_one_have_an_optimiser_that_needs_layers(subset):
    for chosen in (optimisers.Muon(), optimisers.LearnedOptimiser.make(3)):
        changed = {"critic_subset": subset, "optimiser": chosen}
        ensembles.validate(SAC.replace(**changed), resolve_env(SAC))

"""CrossQ: batch normalisation against NumPy, and a gradient step of the textbook."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import purerl
from purerl.acting.environment import resolve_env
from purerl.algorithms import actor_critic, sac
from purerl.algorithms.off_policy import Batch, Learner
from purerl.learning.branches import StepCount
from purerl.networks import layers
from purerl.optimisers import Adam

N, RATE = 6, 1e-2
CONFIG = purerl.SACConfig(
    env="probe/continuous",
    hidden_sizes=(5,),
    batch_size=N,
    learning_rate=RATE,
    optimiser=Adam(b1=0.5),
    crossq=True,
)


def layer(warm_up_steps, steps):
    """A layer of two features, and parameters of which none is at its start."""
    module = layers.BatchRenorm(momentum=0.9, eps=0.01, warm_up_steps=warm_up_steps)
    params = {
        "scale": jnp.array([2.0, 0.5]),
        "bias": jnp.array([0.25, -1.0]),
        "running_mean": jnp.array([1.0, -40.0]),
        "running_var": jnp.array([4.0, 0.25]),
        "running_steps": jnp.float32(steps),
    }
    return module, {"params": params}


X = np.array([[1.0, 2.0], [3.0, 2.5], [8.0, 0.0]])


def test_a_batch_is_normalised_by_its_own_statistics_and_moves_the_running_ones():
    module, params = layer(warm_up_steps=3, steps=2)
    found, new = layers.forward(module, params, jnp.asarray(X, jnp.float32))
    mean, var = X.mean(0), X.var(0)
    normal = (X - mean) / np.sqrt(var + 0.01)
    np.testing.assert_allclose(found, normal * [2.0, 0.5] + [0.25, -1.0], rtol=1e-5)
    np.testing.assert_allclose(
        new["running_mean"], [0.9 + 0.1 * mean[0], -36.0 + 0.1 * mean[1]], rtol=1e-6
    )
    np.testing.assert_allclose(
        new["running_var"], [3.6 + 0.1 * var[0], 0.225 + 0.1 * var[1]], rtol=1e-6
    )
    after = layers.put_statistics(params, new)["params"]
    assert after["running_steps"] == 3.0
    np.testing.assert_array_equal(after["scale"], params["params"]["scale"])
    np.testing.assert_array_equal(after["running_mean"], new["running_mean"])


def test_after_its_warm_up_a_batch_is_corrected_towards_the_running_statistics():
    module, params = layer(warm_up_steps=3, steps=3)
    found, _ = layers.forward(module, params, jnp.asarray(X, jnp.float32))
    s, deviation = np.sqrt(X.var(0) + 0.01), np.sqrt([4.01, 0.26])
    r = s / deviation
    d = (X.mean(0) - [1.0, -40.0]) / deviation
    assert (r < 3).all() and d[0] < 5 < d[1]  # the second is clipped
    normal = (X - X.mean(0)) / s * r + np.minimum(d, 5.0)
    np.testing.assert_allclose(found, normal * [2.0, 0.5] + [0.25, -1.0], rtol=1e-5)
    # Nothing is differentiated but the batch's own mean and deviation, not through r
    # or d: the slope of a weighted sum is r times that of batch normalisation.
    weight = np.array([1.0, -2.0, 4.0])[:, None]
    along = (weight * (X - X.mean(0)) / s).mean(0)
    slope = weight - weight.mean(0) - (X - X.mean(0)) / s * along
    grads = jax.grad(lambda x: (weight * layers.forward(module, params, x)[0]).sum())(
        jnp.asarray(X, jnp.float32)
    )
    np.testing.assert_allclose(grads, slope / s * r * [2.0, 0.5], rtol=1e-4)


def normalised(params, x, running=False):
    """A layer of batch normalisation without flax, at the start of its warm-up."""
    mean, var = x.mean(0), x.var(0)
    if running:
        mean, var = params["running_mean"], params["running_var"]
    normal = (x - mean[None]) / jnp.sqrt(var + 1e-3)[None]
    return normal * params["scale"][None] + params["bias"][None]


def torso(params, x, running=False):
    """Batch normalisation, a layer, relu, batch normalisation."""
    x = normalised(params["BatchRenorm_0"], x, running)
    dense = params["Dense_0"]
    x = jax.nn.relu(x @ dense["kernel"] + dense["bias"][None])
    return normalised(params["BatchRenorm_1"], x, running)


def critic(params, index, obs, action, running=False):
    """Values `[N]` of one of the critics."""
    params = params["params"][f"ActionCritic_{index}"]
    x = torso(params["MLP_0"], jnp.concatenate([obs, action], -1), running)
    return (x @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"][None])[:, 0]


def policy(params, obs, noise, running=False):
    """Actions `[N, 1]` and their log-densities `[N]`."""
    x = torso(params["params"]["torso"], obs, running)
    mean, log_std = (
        x @ params["params"][name]["kernel"] + params["params"][name]["bias"][None]
        for name in ("Dense_0", "Dense_1")
    )
    raw = mean + jnp.exp(log_std) * noise
    density = -0.5 * noise**2 - 0.5 * np.log(2 * np.pi) - log_std
    return jnp.tanh(raw), (density - jnp.log(1 - jnp.tanh(raw) ** 2)).sum(-1)


@pytest.fixture(scope="module")
def stepped():
    """A gradient step: parts, the learner before it, its batch and noise, what it gave.

    Parameters are scrambled; variances stay positive, and the warm-up at its start.
    """
    parts = sac.build(CONFIG, resolve_env(CONFIG))
    state = jax.jit(lambda key: sac.init(parts, key))(jax.random.key(0))
    rng = np.random.default_rng(0)

    def scramble(path, x):
        name = jax.tree_util.keystr(path)
        if "running_steps" in name:
            return x
        moved = x + 0.4 * rng.normal(size=x.shape)
        moved = np.abs(moved) + 0.1 if "running_var" in name else moved
        return jnp.asarray(moved, jnp.float32)

    params = jax.tree_util.tree_map_with_path(scramble, state.params)
    learner = Learner(params, state.target_params, state.opt_state)
    arrays = [jnp.asarray(rng.normal(size=(N, 1)), jnp.float32) for _ in range(3)]
    batch = Batch(
        obs=arrays[0],
        action=jnp.tanh(arrays[1]),
        reward=arrays[1][:, 0] * 2.0,
        next_obs=3.0 + 2.0 * arrays[2],  # another distribution than `obs`
        discount=jnp.array([0.9] * 5 + [0.0]),
        weight=jnp.asarray(rng.uniform(size=N), jnp.float32),
    )
    noise = jnp.asarray(0.5 * rng.normal(size=(2, N, 1)), jnp.float32)
    learn = jax.jit(lambda *given: sac.learn(parts, *given))
    new, _, metrics = learn(learner, batch, noise, StepCount(jnp.uint32(0)))
    return parts, learner, batch, noise, new, metrics


def expected_critics(learner, batch, noise):
    """Loss of the critics and its gradient: of both halves in one pass."""
    next_action, log_prob = policy(
        learner.params["actor"], batch.next_obs, noise[0], running=True
    )
    temperature = jnp.exp(learner.params["log_temperature"])

    def loss(params):
        obs = jnp.concatenate([batch.obs, batch.next_obs])
        action = jnp.concatenate([batch.action, next_action])
        both = [critic(params, i, obs, action) for i in (0, 1)]
        later = jnp.minimum(both[0][N:], both[1][N:]) - temperature * log_prob
        target = jax.lax.stop_gradient(batch.reward + batch.discount * later)
        return sum(
            (batch.weight * 0.5 * (one[:N] - target) ** 2).mean() for one in both
        )

    return jax.jit(jax.value_and_grad(loss))(learner.params["critics"])


def adam(params, grads):
    """The first step of Adam with b1 = 0.5; statistics have no gradient."""
    optim = optax.adam(RATE, b1=0.5)
    return optax.apply_updates(params, optim.update(grads, optim.init(params))[0])


def learned(tree):
    """What an optimiser moves: leaves that are no statistics, by name."""
    named = jax.tree_util.tree_leaves_with_path(tree)
    names = [(jax.tree_util.keystr(path), leaf) for path, leaf in named]
    return {name: leaf for name, leaf in names if "running" not in name}


def test_a_step_of_the_critics_is_the_textbooks(stepped):
    _, learner, batch, noise, new, metrics = stepped
    loss, grads = expected_critics(learner, batch, noise)
    np.testing.assert_allclose(metrics["value_loss"], loss, rtol=1e-4)
    moved = learned(adam(learner.params["critics"], grads))
    found = learned(new.params["critics"])
    assert moved.keys() == found.keys() and len(found) == 2 * 8
    for name, value in moved.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-3, atol=2e-4)
    # Separate passes, as without the joint one, would have another loss.
    assert new.target_params == {}


def test_statistics_follow_both_halves_and_no_optimiser_moves_them(stepped):
    _, learner, batch, noise, new, _ = stepped
    actor = learner.params["actor"]
    next_action, _ = policy(actor, batch.next_obs, noise[0], running=True)
    both = jnp.concatenate(
        [
            jnp.concatenate([batch.obs, batch.action], -1),
            jnp.concatenate([batch.next_obs, next_action], -1),
        ]
    )
    for index in (0, 1):
        inside = [
            params["critics"]["params"][f"ActionCritic_{index}"]["MLP_0"]
            for params in (learner.params, new.params)
        ]
        before, after = (layers["BatchRenorm_0"] for layers in inside)
        expected = 0.99 * before["running_mean"] + 0.01 * both.mean(0)
        np.testing.assert_allclose(after["running_mean"], expected, rtol=1e-4)
        expected = 0.99 * before["running_var"] + 0.01 * both.var(0)
        np.testing.assert_allclose(after["running_var"], expected, rtol=1e-4)
        assert after["running_steps"] == 1.0
    # The policy's are those of the batch's own observations.
    before, after = (
        params["actor"]["params"]["torso"]["BatchRenorm_0"]
        for params in (learner.params, new.params)
    )
    expected = 0.99 * before["running_mean"] + 0.01 * batch.obs.mean(0)
    np.testing.assert_allclose(after["running_mean"], expected, rtol=1e-4)


def test_the_policy_maximises_critics_with_running_statistics(stepped):
    _, learner, batch, noise, new, metrics = stepped
    action, log_prob = policy(learner.params["actor"], batch.obs, noise[1])
    values = [
        critic(new.params["critics"], i, batch.obs, action, running=True)
        for i in (0, 1)
    ]
    temperature = jnp.exp(learner.params["log_temperature"])
    loss = (temperature * log_prob - jnp.minimum(*values)).mean()
    np.testing.assert_allclose(metrics["policy_loss"], loss, rtol=1e-3, atol=1e-4)


def act(parts, state, obs, key=None):
    return actor_critic.act(actor_critic.decide, parts, state, obs, (), key)[0]


def test_acting_takes_the_running_statistics_of_the_policy(stepped):
    parts, _, batch, _, new, _ = stepped
    state = jax.jit(lambda key: sac.init(parts, key))(jax.random.key(0))
    state = state._replace(params=new.params)
    found = act(parts, state, batch.obs)
    expected, _ = policy(
        new.params["actor"], batch.obs, jnp.zeros((N, 1)), running=True
    )
    np.testing.assert_allclose(found, 1.0 + 2.0 * expected, rtol=1e-3, atol=1e-4)
    alone = act(parts, state, batch.obs[0])
    np.testing.assert_allclose(alone, found[0], rtol=1e-4, atol=1e-5)

"""PPO's arithmetic against an independent derivation in float64 numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import purerl
from purerl import losses
from purerl.algorithms import ppo
from purerl.learning import averages, optimiser
from purerl.optimisers import Adam
from tests.algorithms.agents import agent_of

SAMPLES = 24


PLAIN = purerl.PPOConfig(
    num_envs=4,
    num_steps=8,
    num_epochs=1,
    num_minibatches=1,
    hidden_sizes=(5,),
    total_timesteps=4 * 8 * 4,
    num_evaluations=0,
    normalize_observations=False,
    normalize_rewards=False,
)
CONTINUOUS = PLAIN.replace(env="probe/continuous")
CASES = {
    "discrete": PLAIN.replace(entropy_coef=0.03, value_coef=0.7),
    "gaussian": CONTINUOUS.replace(policy="gaussian", entropy_coef=0.03),
    "tanh": CONTINUOUS.replace(policy="tanh_gaussian", entropy_coef=0.0),
    "plain": PLAIN.replace(
        entropy_coef=0.01,
        normalize_advantages=False,
        value_loss=losses.SquaredError(),
        policy_loss=losses.ClipDrift(0.1),
    ),
}


def case(name):
    """A config's structure, parameters away from their start, and fixed samples."""
    config = CASES[name]
    parts = agent_of(config)
    rng = np.random.default_rng(0)
    width = 4 if parts.head.is_discrete else 1
    algorithm = purerl.make_algorithm(config)
    params = jax.eval_shape(algorithm.init, jax.random.key(0)).params
    params = jax.tree.map(lambda x: rng.normal(0, 0.5, x.shape), params)
    if parts.head.is_discrete:
        action = rng.integers(0, 2, SAMPLES)
    else:
        action = rng.normal(0, 0.7, (SAMPLES, 1))
    batch = ppo.Batch(
        obs=rng.normal(size=(SAMPLES, width)),
        action=action,
        log_prob=np.zeros(SAMPLES),
        value=rng.normal(size=SAMPLES),
        advantage=rng.normal(1.0, 2.0, SAMPLES),
        target=rng.normal(size=SAMPLES),
    )
    # Ratios on both sides of the clip, and inside it.
    log_prob, _ = policy(name, params, batch)
    batch = batch._replace(log_prob=log_prob - rng.normal(0, 0.3, SAMPLES))
    return config, parts, params, batch


def mlp(layers, x):
    hidden = (
        x @ layers["torso"]["Dense_0"]["kernel"] + layers["torso"]["Dense_0"]["bias"]
    )
    return np.tanh(hidden) @ layers["Dense_0"]["kernel"] + layers["Dense_0"]["bias"]


def policy(name, params, batch):
    """Log-probability of the samples' actions, and entropy; float64."""
    layers = params["actor"]["params"]
    out = mlp(layers, batch.obs)
    if "log_std" not in layers:
        log_p = out - np.log(np.exp(out).sum(-1, keepdims=True))
        chosen = log_p[np.arange(SAMPLES), batch.action]
        return chosen, -(np.exp(log_p) * log_p).sum(-1)
    std = np.exp(layers["log_std"])
    log_prob = stats.norm.logpdf(batch.action, out, std).sum(-1)
    entropy = np.full(SAMPLES, stats.norm.entropy(0, std).sum())
    if name == "tanh":
        # The action range is [-1, 3]: radius 2.
        slope = 2 * (1 - np.tanh(batch.action) ** 2)
        log_prob = log_prob - np.log(slope).sum(-1)
        entropy = np.full(SAMPLES, np.nan)  # has its own tests; its weight is 0 here
    return log_prob, entropy


def reference(name, config, params, batch):
    """The loss as the papers write it: minima, not drifts."""
    log_prob, entropy = policy(name, params, batch)
    value = mlp(params["critic"]["params"], batch.obs)[:, 0]
    advantage = batch.advantage
    if config.normalize_advantages:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio, eps = np.exp(log_prob - batch.log_prob), config.policy_loss.clip_eps
    clipped = np.clip(ratio, 1 - eps, 1 + eps)
    policy_loss = -np.minimum(ratio * advantage, clipped * advantage).mean()
    error = (value - batch.target) ** 2
    if isinstance(config.value_loss, losses.ClippedSquaredError):
        move = np.clip(value - batch.value, -0.2, 0.2)
        error = np.maximum(error, (batch.value + move - batch.target) ** 2)
    value_loss = 0.5 * error.mean()
    total = policy_loss + config.value_coef * value_loss
    if config.entropy_coef:
        total -= config.entropy_coef * entropy.mean()
    return total, {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy.mean(),
        "clip_fraction": (np.abs(ratio - 1) > config.policy_loss.clip_eps).mean(),
        "approx_kl": (ratio - 1 - np.log(ratio)).mean(),
    }


def float32(tree):
    return jax.tree.map(
        lambda x: jnp.asarray(x, jnp.int32 if x.dtype.kind == "i" else jnp.float32),
        tree,
    )


@pytest.mark.parametrize("name", CASES)
def test_the_loss_of_a_minibatch_equals_a_plain_derivation(name):
    config, parts, params, batch = case(name)
    total, metrics = ppo.loss(parts, float32(params), float32(batch))
    expected, expected_metrics = reference(name, config, params, batch)
    np.testing.assert_allclose(total, expected, rtol=1e-4)
    for metric, value in expected_metrics.items():
        if not np.isnan(value):
            np.testing.assert_allclose(metrics[metric], value, rtol=1e-3, atol=1e-6)
    assert 0.1 < metrics["clip_fraction"] < 0.9  # the clip binds for some samples


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_of_a_minibatch_equals_finite_differences(name):
    config, parts, params, batch = case(name)
    loss = jax.jit(jax.grad(lambda p, b: ppo.loss(parts, p, b)[0]))
    gradient = loss(float32(params), float32(batch))
    leaves, structure = jax.tree.flatten(params)
    rng = np.random.default_rng(1)
    for _ in range(5):
        direction = [rng.normal(size=x.shape) for x in leaves]

        def along(h, direction=direction):
            moved = [x + h * d for x, d in zip(leaves, direction, strict=True)]
            return reference(name, config, jax.tree.unflatten(structure, moved), batch)

        slope = (along(1e-6)[0] - along(-1e-6)[0]) / 2e-6
        products = zip(jax.tree.leaves(gradient), direction, strict=True)
        actual = sum(float((np.asarray(g) * d).sum()) for g, d in products)
        np.testing.assert_allclose(actual, slope, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize(("bound", "share"), [(None, 1.0), (1.0, 0.2), (10.0, 1.0)])
def test_clipping_acts_on_the_global_norm_not_elementwise(bound, share):
    # |(3, 4)| = 5, clipped to norm 1: (0.6, 0.8); clipping by element gives (1, 1).
    # With an epsilon far above the gradient, Adam's first step is -rate * g / eps.
    grads = {"a": jnp.array([3.0]), "b": jnp.array([4.0])}
    optim = optimiser.make(Adam(eps=1e4), 1.0, max_grad_norm=bound)
    updates, state = optim.update(grads, optim.init(grads), grads)
    np.testing.assert_allclose(updates["a"] * 1e4, [-3.0 * share], rtol=1e-3)
    np.testing.assert_allclose(updates["b"] * 1e4, [-4.0 * share], rtol=1e-3)
    # The norm is that before clipping.
    np.testing.assert_allclose(optimiser.grad_norm(state), 5.0, rtol=1e-6)


@pytest.mark.parametrize(
    ("update", "expected"), [(0, 1e-3), (1, 7.5e-4), (3, 2.5e-4), (4, 0.0)]
)
def test_the_step_size_decays_linearly_to_zero(update, expected):
    actual = optimiser.annealed(1e-3, jnp.int32(update), 4)
    np.testing.assert_allclose(actual, expected, atol=1e-10)


def test_explained_variance_golden():
    # Targets 0, 2, 4 (variance 8/3); errors 1, -1, 0 (variance 2/3): 1 - 1/4.
    value, target = jnp.array([[-1.0, 3.0, 4.0], [0.0, 2.0, 4.0]])
    found = averages.explained_variance(value, target, None)
    np.testing.assert_allclose(found, 0.75, rtol=1e-6)


def test_advantages_are_standardised_over_all_devices():
    advantage = jnp.array([[1.0, 2.0], [3.0, 6.0]])
    spread = jax.vmap(lambda a: averages.standardise(a, "devices"), axis_name="devices")
    # Mean 3, variance (4 + 1 + 0 + 9)/4 = 3.5.
    expected = (np.array([[1, 2], [3, 6]]) - 3) / np.sqrt(3.5)
    np.testing.assert_allclose(spread(advantage), expected, rtol=1e-5)
    np.testing.assert_allclose(
        averages.standardise(advantage.reshape(4), None), expected.reshape(4), rtol=1e-5
    )


def test_ratios_are_counted_outside_of_the_drifts_own_interval():
    config, parts, params, batch = case("discrete")
    given = float32(params), float32(batch)
    counted = {}
    drifts = {
        "both": losses.AsymmetricClipDrift(0.05, 0.4),
        "below": losses.AsymmetricClipDrift(0.05, 100.0),
        "above": losses.AsymmetricClipDrift(1.0, 0.4),
        "equal": losses.AsymmetricClipDrift(0.2, 0.2),
        "clip": losses.ClipDrift(0.2),
        "learned": losses.MLPDrift.zeros(4, base_clip=0.05),
        "narrow": losses.ClipDrift(0.05),
        "without": losses.DPODrift(),
    }
    for name, drift in drifts.items():
        changed = parts._replace(config=config.replace(policy_loss=drift))
        counted[name] = float(ppo.loss(changed, *given)[1]["clip_fraction"])
    assert 0 < counted["below"] < counted["both"]
    assert counted["both"] == pytest.approx(counted["below"] + counted["above"])
    assert counted["equal"] == counted["clip"] == counted["without"] > 0
    assert counted["learned"] == counted["narrow"] > counted["clip"]

"""TD3 and SAC: one gradient step against the textbook, and tasks with known answers."""

import dataclasses
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import purerl
from purerl.acting.environment import resolve_env
from purerl.algorithms import actor_critic, sac, td3
from purerl.algorithms.off_policy import Batch, Learner
from purerl.envs import spaces
from purerl.envs.probe import ContinuousProbe
from purerl.learning.branches import StepCount
from purerl.networks.distributions import Gaussian
from tests import boxes, nets
from tests.algorithms.q_probes import CONTINUOUS_PROBE
from tests.helpers import assert_close, assert_same_bits, slow_but

N, OBS, ACTIONS, RATE = 4, 1, 2, 1e-2


@dataclasses.dataclass(unsafe_hash=True)
class TwoActions(ContinuousProbe):
    """The probe with a second action that counts for nothing."""

    def action_space(self, params=None):
        params = self.default_params if params is None else params
        return spaces.Box(params.low, params.high, (ACTIONS,))


@dataclasses.dataclass(unsafe_hash=True)
class ThreeChoices(ContinuousProbe):
    """Of the probe nothing but its observation: three actions."""

    def action_space(self, params=None):
        return spaces.Discrete(3)


@cache
def make(algorithm, config):
    """A parts, and a learner whose targets and networks differ and are not small."""
    parts = algorithm.build(config, resolve_env(config))
    state = jax.jit(partial(algorithm.init, parts))(jax.random.key(0))
    draw = np.random.default_rng(1).normal

    def scrambled(x):
        return jnp.asarray(np.asarray(x) + 0.5 * draw(size=x.shape), jnp.float32)

    moved = jax.tree.map(scrambled, (state.params, state.target_params))
    return parts, Learner(*moved, state.opt_state)


def make_batch(discrete=False):
    keys = jax.random.split(jax.random.key(1), 5)
    action = jax.random.uniform(keys[4], (N, ACTIONS), minval=-1.0)
    return Batch(
        obs=jax.random.normal(keys[0], (N, OBS)),
        action=jnp.array([0, 1, 2, 0]) if discrete else action,
        reward=jax.random.normal(keys[1], (N,)),
        next_obs=jax.random.normal(keys[2], (N, OBS)),
        discount=jnp.array([0.0, 0.9, 0.81, 0.9]),  # 0: terminated
        weight=jax.random.uniform(keys[3], (N,)),
    )


def mlp(params, x):
    """Two layers of the networks here, without flax."""
    torso = params.get("torso", params.get("MLP_0"))["Dense_0"]
    x = jax.nn.relu(x @ torso["kernel"] + torso["bias"])
    return [
        x @ params[k]["kernel"] + params[k]["bias"] for k in sorted(params) if "D" in k
    ]


def critic(params, index, obs, action=None):
    """The value of an action `[]`, or of all `[n]`."""
    if action is None:
        last = params["params"][f"DiscreteCritic_{index}"]
        return mlp({"torso": params["params"][f"MLP_{index}"], **last}, obs)[0]
    twin = params["params"][f"ActionCritic_{index}"]
    return mlp(twin, jnp.concatenate([obs, action]))[0][0]


def descended(loss, params, *args):
    """The loss, and the parameters after Adam's first step."""
    value, grads = jax.value_and_grad(loss)(params, *args)
    return value, adam_step(params, grads)


def adam_step(params, grads):
    optim = optax.adam(RATE)
    return optax.apply_updates(params, optim.update(grads, optim.init(params))[0])


def followed(slow, fast):
    """Targets after a quarter of the way."""
    return jax.tree.map(
        lambda x, y: 0.75 * np.asarray(x) + 0.25 * np.asarray(y), slow, fast
    )


def critics_loss(params, batch, target):
    """`1/N sum_n w_n sum_i (Q_i(s_n, a_n) - y_n)^2 / 2`."""
    total = 0.0
    for n in range(N):
        for i in (0, 1):
            if batch.action.ndim == 1:
                q = critic(params, i, batch.obs[n])[batch.action[n]]
            else:
                q = critic(params, i, batch.obs[n], batch.action[n])
            total += batch.weight[n] * 0.5 * (q - target[n]) ** 2 / N
    return total


# TD3.

TD3 = purerl.TD3Config(
    env=TwoActions(), hidden_sizes=(5,), batch_size=N, learning_rate=RATE, tau=0.25
)


def td3_policy(params, obs):
    return jnp.tanh(mlp(params["params"], obs)[0])


def test_the_target_of_td3_is_the_textbooks():
    parts, learner = make(td3, TD3)
    batch, noise = make_batch(), 3 * jax.random.normal(jax.random.key(3), (N, ACTIONS))
    batch = batch._replace(next_obs=5 * batch.next_obs)
    slow = learner.target_params
    target = jax.jit(partial(td3.td_target, parts))(slow, batch, noise)

    @jax.jit
    @jax.vmap
    def expected(item, noise):
        added = jnp.clip(0.2 * noise, -0.5, 0.5)
        action = td3_policy(slow["actor"], item.next_obs) + added
        values = [
            critic(slow["critics"], i, item.next_obs, jnp.clip(action, -1, 1))
            for i in (0, 1)
        ]
        return item.reward + item.discount * jnp.minimum(*values), action

    wanted, action = expected(batch, noise)
    np.testing.assert_allclose(target, wanted, rtol=1e-4, atol=1e-5)
    assert (np.abs(action) > 1).any()  # the bounds of the action did count


def test_a_step_of_td3_is_the_textbooks_and_policy_and_targets_wait():
    parts, learner = make(td3, TD3)
    batch, noise = make_batch(), jax.random.normal(jax.random.key(3), (N, ACTIONS))
    params = learner.params

    def policy_loss(actor, critics):
        values = [critic(critics, 0, obs, td3_policy(actor, obs)) for obs in batch.obs]
        return -sum(values) / N

    @jax.jit
    def textbook():
        target = td3.td_target(parts, learner.target_params, batch, noise)
        loss, critics = descended(critics_loss, params["critics"], batch, target)
        return target, loss, critics, *descended(policy_loss, params["actor"], critics)

    target, loss, critics, actor_loss, actor = textbook()

    # The first of two steps moves the critics alone.
    learn = jax.jit(partial(td3.learn, parts))
    new, td_error, metrics = learn(learner, batch, noise, StepCount(jnp.int32(0)))
    assert_close(new.params["critics"], critics, rtol=2e-4, atol=2e-6)
    assert_same_bits(new.params["actor"], params["actor"])
    assert_same_bits(new.target_params, learner.target_params)
    np.testing.assert_allclose(metrics["value_loss"], loss, rtol=1e-4)
    assert metrics["policy_loss"] == 0.0  # it adds nothing to the sum
    first = jax.vmap(partial(critic, params["critics"], 0))(batch.obs, batch.action)
    np.testing.assert_allclose(td_error, target - first, rtol=1e-3, atol=1e-6)

    # The second moves policy and targets too, by the critics after their step.
    new, _, metrics = learn(learner, batch, noise, StepCount(jnp.int32(1)))
    assert_close(new.params, {"actor": actor, "critics": critics}, rtol=2e-4, atol=2e-6)
    np.testing.assert_allclose(metrics["policy_loss"], actor_loss, rtol=1e-4)
    wanted = followed(learner.target_params, new.params)
    assert_close(new.target_params, wanted, rtol=1e-6, atol=2e-6)


# SAC.

SAC = purerl.SACConfig(
    env=TwoActions(), hidden_sizes=(5,), batch_size=N, learning_rate=RATE, tau=0.25
)


def sac_choices(params, obs, noise):
    """What an expectation runs over: actions, log-probabilities, probabilities."""
    if noise is None:
        head = mlp(params["params"], obs)[0]
        probability = jnp.exp(head) / jnp.exp(head).sum()
        return [(a, jnp.log(probability[a]), probability[a]) for a in range(3)]
    mean, log_std = mlp(params["params"], obs)
    raw = mean + jnp.exp(log_std) * noise
    density = jnp.exp(-0.5 * ((raw - mean) / jnp.exp(log_std)) ** 2)
    density = density / (jnp.exp(log_std) * jnp.sqrt(2 * jnp.pi))
    density = density / (1 - jnp.tanh(raw) ** 2)
    return [(jnp.tanh(raw), jnp.log(density.prod()), 1.0)]


def sac_value(actor, critics, temperature, obs, noise):
    """`E[min_i Q_i - alpha log pi]` of one observation, and the entropy."""
    value, entropy = 0.0, 0.0
    for action, log_prob, probability in sac_choices(actor, obs, noise):
        if noise is None:
            values = [critic(critics, i, obs)[action] for i in (0, 1)]
        else:
            values = [critic(critics, i, obs, action) for i in (0, 1)]
        value += probability * (jnp.minimum(*values) - temperature * log_prob)
        entropy -= probability * log_prob
    return value, entropy


@pytest.fixture(params=slow_but(["continuous", "discrete"], "continuous"))
def case(request):
    if request.param == "discrete":
        parts, learner = make(sac, SAC.replace(env=ThreeChoices(), entropy_share=0.25))
        # A quarter of log 3.
        return parts, learner, make_batch(discrete=True), (), 0.25 * np.log(3)
    parts, learner = make(sac, SAC)
    noise = 0.7 * jax.random.normal(jax.random.key(3), (2, N, ACTIONS))
    return parts, learner, make_batch(), noise, -2.0


def rows(noise, which):
    return [None] * N if isinstance(noise, tuple) else list(noise[which])


def td_target(case):
    parts, learner, batch, noise, _ = case
    next_noise = None if isinstance(noise, tuple) else noise[0]
    return sac.td_target(parts, learner, batch, next_noise)


def test_the_target_of_sac_is_the_textbooks(case):
    _, learner, batch, noise, _ = case
    temperature = np.exp(learner.params["log_temperature"])
    actor, critics = learner.params["actor"], learner.target_params["critics"]

    @jax.jit
    def both():
        values = [
            sac_value(actor, critics, temperature, obs, drawn)[0]
            for obs, drawn in zip(batch.next_obs, rows(noise, 0), strict=True)
        ]
        return td_target(case), batch.reward + batch.discount * jnp.stack(values)

    target, expected = both()
    np.testing.assert_allclose(target, expected, rtol=1e-4, atol=1e-5)


def test_a_step_of_sac_is_the_textbooks(case):
    parts, learner, batch, noise, target_entropy = case
    params = learner.params

    def policy_loss(actor, critics):
        temperature = jnp.exp(params["log_temperature"])
        found = [
            sac_value(actor, critics, temperature, obs, drawn)
            for obs, drawn in zip(batch.obs, rows(noise, 1), strict=True)
        ]
        value, entropy = (sum(x) / N for x in zip(*found, strict=True))
        return -value, entropy

    @jax.jit
    def textbook():
        _, critics = descended(critics_loss, params["critics"], batch, td_target(case))
        grad = jax.value_and_grad(policy_loss, has_aux=True)
        (loss, entropy), grads = grad(params["actor"], critics)
        # d/d(log alpha) of log alpha (H - H*).
        slopes = {"actor": grads, "log_temperature": entropy - target_entropy}
        moved = adam_step({name: params[name] for name in slopes}, slopes)
        return loss, entropy, {**moved, "critics": critics}

    loss, entropy, expected = textbook()
    learn = jax.jit(partial(sac.learn, parts))
    new, _, metrics = learn(learner, batch, noise, StepCount(jnp.int32(0)))
    np.testing.assert_allclose(metrics["policy_loss"], loss, rtol=1e-4)
    np.testing.assert_allclose(metrics["entropy"], entropy, rtol=1e-4)
    assert_close(new.params, expected, rtol=2e-4, atol=2e-6)
    wanted = followed(learner.target_params["critics"], expected["critics"])
    assert_close(new.target_params["critics"], wanted, rtol=2e-4, atol=2e-6)


# The squashed Gaussian.


def test_densities_stay_exact_where_rounding_swallows_the_standard_deviation():
    # With std e^-20, mean + std * noise is the mean: (raw - mean) / std says noise 0.
    outputs = Gaussian(jnp.array([1.0]), jnp.array([-20.0]))
    _, log_prob = actor_critic.squash(outputs, jnp.array([2.0]))
    expected = stats.norm.logpdf(2.0) + 20 - np.log(1 - np.tanh(1.0) ** 2)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-5)


def test_a_fixed_temperature_is_the_configs_whatever_came_before():
    short = {"total_timesteps": 2_000, "num_evaluations": 0, "gradient_steps": 1}
    config = purerl.SACConfig(
        **{**CONTINUOUS_PROBE, **short},
        temperature_init=purerl.schedules.Linear(1.0, 0.0),
        learn_temperature=False,
    )
    state = jax.jit(purerl.make_algorithm(config).init)(jax.random.key(0))
    learned = {**state.params, "log_temperature": jnp.float32(np.log(0.7))}
    networks = purerl.networks_of(state._replace(params=learned))
    train = jax.jit(jax.vmap(purerl.make_train(config), (None, 0, None)))
    # It may be searched, and moved, within a run.
    searched = {"start": [0.05, 0.2, 1.0], "end": [0.05, 0.2, 0.0]}
    searched = {f"temperature_init.{x}": jnp.array(searched[x]) for x in searched}
    found = train(jax.random.key(1), searched, networks).metrics["temperature"]
    shares = np.arange(found.shape[1]) / found.shape[1]
    was_learning = ~np.isnan(found[0])
    for course, expected in zip(found, (0.05, 0.2, 1 - shares), strict=True):
        expected = np.broadcast_to(expected, course.shape)
        np.testing.assert_allclose(
            course[was_learning], expected[was_learning], rtol=1e-5
        )


# Configs.


@pytest.mark.parametrize("config", [TD3, SAC], ids=["td3", "sac"])
def test_pictures_are_made_features_before_they_stand_beside_the_action(config):
    sizes = {"hidden_sizes": (6,), "critic_hidden_sizes": (5,)}
    config = config.replace(env=nets.CONTINUOUS_PICTURES, **sizes)
    algorithm = purerl.make_algorithm(config)
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    shapes = jax.tree.map(lambda x: x.shape, state.params)
    # A convolution leaves 34x34 pixels of 16 channels.
    first = shapes["actor"]["params"]["torso"]["MLP_0"]["Dense_0"]
    assert first["kernel"] == (34 * 34 * 16, 6)
    critics = shapes["critics"]["params"]
    for index in range(2):
        assert critics[f"CNN_{index}"]["Conv_0"]["kernel"] == (3, 3, 2, 16)
        # Six features and an action of one number, then five units.
        layers = critics[f"ActionCritic_{index}"]["MLP_0"]
        assert layers["Dense_0"]["kernel"] == (7, 5)


@pytest.mark.parametrize("config", [TD3, SAC], ids=["td3", "sac"])
def test_simba_is_the_torso_of_the_actor_and_of_both_critics(config):
    config = config.replace(torso="simba", hidden_sizes=(8, 8))
    init = purerl.make_algorithm(config).init
    params = jax.eval_shape(init, jax.random.key(0)).params
    assert "LayerNorm_2" in params["actor"]["params"]["torso"]
    for critic in params["critics"]["params"].values():
        assert critic.keys() == {"SimBa_0", "Dense_0"}
    # The parts of an observation, 1 and 3 numbers, stand side by side with the action.
    init = purerl.make_algorithm(config.replace(env=boxes.Privileged(False))).init
    critics = jax.eval_shape(init, jax.random.key(0)).params["critics"]["params"]
    for critic in critics.values():
        assert critic["SimBa_0"]["Dense_0"]["kernel"].shape == (1 + 3 + 1, 8)


def test_a_buffer_is_no_longer_than_its_run():
    config = SAC.replace(total_timesteps=5_000, learning_starts=100)
    assert config.buffer_size == 1_000_000 and config.capacity == 5_000
    state = jax.eval_shape(purerl.make_algorithm(config).init, jax.random.key(0))
    assert state.buffer.reward.shape == (5_000, 1)
    # Whole updates of 4 * 100 steps.
    assert config.replace(num_envs=4, total_timesteps=4_999).capacity == 4_800
    # And whole steps of all environments.
    assert config.replace(num_envs=3, buffer_size=1_000).capacity == 999

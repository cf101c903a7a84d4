"""Off-policy updates as an accelerator computes them are the updates of a CPU."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import networks, optimisers
from purerl.accelerator import twins
from purerl.accelerator.kernels import traced_for
from purerl.acting.environment import resolve_env
from purerl.algorithms import sac, td3
from purerl.algorithms.off_policy import Learner
from tests.helpers import assert_close, assert_same_bits, slow_but

SMALL = {
    "num_envs": 2,
    "total_timesteps": 96,
    "rounds_per_update": 16,
    "learning_starts": 37,  # within an update, and within a round
    "batch_size": 8,
    "hidden_sizes": (8,),
    "num_evaluations": 0,
    "buffer_size": 64,
}
CONFIGS = {
    "dqn": purerl.DQNConfig(**SMALL, target_update_interval=3),
    "dqn-3-steps": purerl.DQNConfig(**SMALL, n_step=3, gradient_steps=3),
    "dqn-frozen": purerl.DQNConfig(**SMALL, frozen=("torso",)),
    "dqn-prioritised": purerl.DQNConfig(**SMALL, prioritised=True),
    "td3": purerl.TD3Config(**SMALL, gradient_steps=2, policy_delay=2),
    "td3-by-a-branch": purerl.TD3Config(**SMALL, policy_delay=2),
    "sac": purerl.SACConfig(**SMALL, gradient_steps=4, policy_delay=2),
    "sac-many-steps": purerl.SACConfig(**SMALL, gradient_steps=5),
    "sac-discrete": purerl.SACConfig(**SMALL, env="CartPole-v1"),
    "td3-quantiles": purerl.TD3Config(**SMALL, num_quantiles=5, dropped_quantiles=1),
    "sac-prioritised": purerl.SACConfig(**SMALL, prioritised=True),
    "mpo": purerl.MPOConfig(**SMALL, action_samples=3, target_update_interval=4),
    "sac-memory": purerl.SACConfig(
        **{**SMALL, "rounds_per_update": 4},
        memory="gru",
        memory_size=4,
        head_sizes=(4,),
        sequence_length=4,
        burn_in=2,
    ),
    # Sequences so short that they are rows of words.
    "recurrent_dqn": purerl.RecurrentDQNConfig(
        **{name: value for name, value in SMALL.items() if name != "rounds_per_update"},
        sequence_length=4,
        burn_in=2,
        n_step=2,
        memory_size=4,
        target_update_interval=3,
    ),
}
QUICK = ("dqn", "td3")


def trained(config, platform):
    with traced_for(platform):
        # A function of its own, as JAX keeps what it has traced.
        train = purerl.make_train(config)
        return jax.jit(lambda key: train(key))(jax.random.key(3))


@pytest.mark.parametrize("name", slow_but(CONFIGS, *QUICK))
def test_an_accelerators_run_is_the_one_of_a_cpu(name):
    known = trained(CONFIGS[name], "cpu")
    found = trained(CONFIGS[name], "cuda")
    assert jax.tree.structure(found) == jax.tree.structure(known)
    # The last steps have learned, and the first have not.
    per_update = CONFIGS[name].steps_per_update
    first = -(-SMALL["learning_starts"] // per_update) - 1
    learned = np.arange(SMALL["total_timesteps"] // per_update) >= first
    np.testing.assert_array_equal(known.metrics["gradient_steps"] > 0, learned)
    assert_close(found, known, rtol=2e-3, atol=2e-4)


# Two critics that learn as one network stay two in every state.

TWINS = {**SMALL, "hidden_sizes": (8, 8)}
ONE = {
    "td3": purerl.TD3Config(**TWINS),
    "sac": purerl.SACConfig(**TWINS),
    "quantiles": purerl.TD3Config(**TWINS, num_quantiles=5),
    "layer-norm": purerl.SACConfig(**TWINS, layer_norm=True),
    "discrete": purerl.SACConfig(**TWINS, env="CartPole-v1"),
}
TWO = {
    "frozen": purerl.TD3Config(**TWINS, frozen=("actor",)),
    "batch-norm": purerl.SACConfig(**TWINS, crossq=True),
    "pictures": purerl.SACConfig(**TWINS, env="Breakout-MinAtar"),
    "few-steps": purerl.TD3Config(**TWINS | {"rounds_per_update": 8}),
    "layers": purerl.TD3Config(**TWINS, optimiser=optimisers.Muon()),
    "own": purerl.SACConfig(**TWINS, critic=networks.ActionCritic((4,), "tanh")),
}


def build(config):
    module = td3 if isinstance(config, purerl.TD3Config) else sac
    return module, module.build(config, resolve_env(config))


def critics_of(config, platform):
    with traced_for(platform):
        parts = build(config)[1]
        return twins.as_one(parts.config, parts.critics)


def products(config, platform):
    """The products of matrices in the program of one update."""
    with traced_for(platform):
        algorithm = purerl.make_algorithm(config)
        state = jax.eval_shape(algorithm.init, jax.random.key(0))
        step = algorithm.step
        return str(jax.make_jaxpr(lambda s: step(s))(state)).count("dot_general[")


@pytest.mark.parametrize("name", ONE)
def test_two_dense_critics_are_one_network_on_an_accelerator(name):
    assert critics_of(ONE[name], "cuda").num == 2
    assert critics_of(ONE[name], "cpu") is None


@pytest.mark.parametrize("name", TWO)
def test_other_critics_stay_two(name):
    assert critics_of(TWO[name], "cuda") is None


def test_a_step_of_one_network_has_the_products_of_one(monkeypatch):
    # Products of few rows are written as sums.
    many = {"batch_size": 128, "buffer_size": 256, "total_timesteps": 512}
    config = purerl.SACConfig(**TWINS | many)
    one = products(config, "cuda")
    monkeypatch.setattr(twins, "as_one", lambda *_: None)
    # A critic of three layers has three products for the target, three for its loss,
    # five for the gradient of that, and for the policy three and three back.
    assert products(config, "cuda") - one == 17


@pytest.mark.parametrize("name", ["td3", "sac", "discrete"])
def test_joined_critics_come_apart_to_the_last_bit(name):
    module, parts = build(ONE[name])
    state = jax.jit(partial(module.init, parts))(jax.random.key(0))
    learner = Learner(state.params, state.target_params, state.opt_state)

    def with_numbers(x):
        return jnp.asarray(np.asarray(x) + np.arange(x.size).reshape(x.shape), x.dtype)

    numbered = jax.tree.map(with_numbers, learner)
    joined = jax.jit(twins.joined)(numbered)
    assert_same_bits(jax.jit(twins.separated)(joined), numbered)
    # One array each for both, of parameters, targets and both moments.
    for part in (joined.params, joined.target_params, joined.opt_state):
        count = len(jax.tree.leaves(part["critics"]))
        assert count < len(jax.tree.leaves(learner.params["critics"])) * 2
    outputs = networks.Ensemble(parts.critics.make, 2)
    seen = [jnp.ones((3, 4 if name == "discrete" else 3))]
    seen += [] if name == "discrete" else [jnp.ones((3, 1))]
    both = jax.jit(outputs.apply)(joined.params["critics"], *seen)
    pair = jax.jit(parts.critics.apply)(numbered.params["critics"], *seen)
    assert np.allclose(both, np.stack(pair), rtol=1e-5)


def test_only_the_norm_that_is_reported_is_computed():
    config = ONE["sac"]
    result = jax.jit(purerl.make_train(config))(jax.random.key(0))
    norms = {name: x[0].grad_norm for name, x in result.state.opt_state.items()}
    assert norms["critics"] > 0
    assert norms["actor"] == 0

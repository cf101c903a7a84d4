"""What every registered algorithm keeps."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import envs, serialise
from purerl.acting.policy import RecurrentPolicy, recurrence_of
from purerl.algorithms import ALGORITHMS
from purerl.config import ConfigError, TrainConfig, field_names
from purerl.metrics import held, is_defined
from purerl.train import bind
from purerl.types import Evaluation
from tests.helpers import (
    CONTINUOUS_CARTPOLE,
    LEVELLED_CARTPOLE,
    NUMBERED_CARTPOLE,
    assert_same_bits,
    slow_but,
)

UPDATES, EPISODES, MAX_STEPS = 3, 2, 15
KEY = jax.random.key(0)

# Of every algorithm with replay: the first update only warms up.
OFF_POLICY = {
    "num_envs": 2,
    "num_steps": 1,
    "rounds_per_update": 16,
    "buffer_size": 65,  # no multiple of the environments
    "batch_size": 8,
    "learning_starts": 37,
    "hidden_sizes": (4,),
    "total_timesteps": UPDATES * 2 * 16,
}
# Of every algorithm that learns from its own rollout.
ON_POLICY = {
    "num_envs": 2,
    "num_steps": 16,
    "hidden_sizes": (4,),
    "total_timesteps": UPDATES * 2 * 16,
}
PASSES = {**ON_POLICY, "num_epochs": 1, "num_minibatches": 2}
RECURRENT_PPO = {**PASSES, "memory_size": 4, "head_sizes": (4,)}
SEQUENCES = {**RECURRENT_PPO, "sequence_length": 8, "burn_in": 3}
RECURRENT_DQN = {
    "num_envs": 2,
    "sequence_length": 16,
    "batch_size": 3,
    "gradient_steps": 2,
    "learning_starts": 40,  # the first update only warms up
    "hidden_sizes": (4,),
    "memory_size": 4,
    "epsilon_end": 0.5,
    "total_timesteps": UPDATES * 2 * 16,
}
CONTINUOUS = {**OFF_POLICY, "env": CONTINUOUS_CARTPOLE}
REPLAYED_MEMORY = {
    **CONTINUOUS,
    "memory": "gru",
    "memory_size": 4,
    "head_sizes": (4,),
    "sequence_length": 4,
    "burn_in": 2,
    "rounds_per_update": 4,
}
DISCRETE = {**OFF_POLICY, "env": "CartPole-v1"}
REDQ = {
    **CONTINUOUS,
    "num_critics": 3,
    "critic_subset": 2,
    "prioritised": True,
    "normalize_observations": True,
}
# The smallest sensible run of each: a row per algorithm, or per `algorithm/variant`,
# on CartPole (with a continuous action where the algorithm needs one).
SMALL = {
    "ppo": PASSES,
    "recurrent_ppo": RECURRENT_PPO,
    "recurrent_ppo/lstm": {**RECURRENT_PPO, "memory": "lstm"},
    **{
        f"recurrent_ppo/{memory}": {**SEQUENCES, "memory": memory}
        for memory in ("lru", "s5", "transformer")
    },
    "vpg": {**ON_POLICY, "critic_iterations": 2},
    "dqn": {**OFF_POLICY, "epsilon_end": 0.5},
    "dqn/rainbow": {
        **OFF_POLICY,
        "values": "categorical",
        "noisy": True,
        "dueling": True,
        "prioritised": True,
        "n_step": 3,
    },
    "dqn/implicit": {
        **OFF_POLICY,
        "values": "implicit",
        "munchausen": True,
        "double": False,
        "epsilon_end": 0.5,
    },
    "td3": CONTINUOUS,
    "sac": CONTINUOUS,
    "sac/discrete": DISCRETE,
    "sac/redq": REDQ,
    "sac/tqc": {
        **CONTINUOUS,
        "num_critics": 3,
        "num_quantiles": 3,
        "dropped_quantiles": 1,
    },
    "sac/memory": REPLAYED_MEMORY,
    "td3/memory": {
        **REPLAYED_MEMORY,
        "memory": "lru",
        "prioritised": True,
        "num_critics": 3,
        "critic_subset": 2,
        "normalize_observations": True,
    },
    "mpo/memory": {
        **REPLAYED_MEMORY,
        "n_step": 3,
        "action_samples": 3,
        "bootstrap_samples": 2,
    },
    "sac/crossq": {**CONTINUOUS, "crossq": True},
    "td3/ensemble": {**REDQ, "num_quantiles": 3},
    "td3/wide": {
        **CONTINUOUS,
        "num_atoms": 5,
        "value_min": -9.0,
        "value_max": 9.0,
        "exploration_noise_max": 0.5,
        "torso": "simba",
    },
    "mpo/discrete": DISCRETE,
    "mpo": {**CONTINUOUS, "action_samples": 3, "bootstrap_samples": 2},
    "pqn": {**PASSES, "epsilon_end": 0.5},
    "recurrent_pqn": {**PASSES, "memory_size": 4, "epsilon_end": 0.5},
    "recurrent_dqn": {
        **RECURRENT_DQN,
        "burn_in": 8,
        "buffer_size": 140,  # four sequences of each environment, and some steps
        "n_step": 3,
    },
    "recurrent_dqn/prioritised": {
        **RECURRENT_DQN,
        "burn_in": 16,
        "buffer_size": 64,
        "memory": "lru",
        "dueling": True,
        "value_rescaling": True,
        "prioritised": True,
        "normalize_observations": True,
    },
    "lpg": ON_POLICY,
    "disco": {
        **ON_POLICY,
        "buffer_size": 128,
        "batch_size": 3,
        "learning_starts": 40,  # the first update only warms up
        "model_size": 3,
        "head_sizes": (3,),
        "num_bins": 5,
    },
    "tabular": {
        "env": NUMBERED_CARTPOLE,
        "num_envs": 2,
        "num_steps": 16,
        "epsilon": 0.5,
        "total_timesteps": UPDATES * 2 * 16,
    },
    "bandit": {
        "env": NUMBERED_CARTPOLE,
        "env_kwargs": {"cells": 1},
        "num_steps": 32,
        "epsilon": 0.5,
        "total_timesteps": UPDATES * 32,
    },
    "plr": {
        **PASSES,
        "env": LEVELLED_CARTPOLE,
        "num_steps": 32,  # episodes end with the update
        "buffer_size": 4,  # full enough to replay from after the first update
        "total_timesteps": UPDATES * 2 * 32,
    },
}
REQUIRED = {"env_steps", "episodes", "episode_return", "episode_length"}


def small(name, **changes):
    fields = {
        "num_evaluations": UPDATES,
        "eval_share": 1.0,
        "eval_episodes": EPISODES,
        "eval_max_steps": MAX_STEPS,
        **SMALL[name],
    }
    return ALGORITHMS[algorithm_of(name)].config(**{**fields, **changes})


def annealed(name):
    """With a step size that has come to zero at the end, where it has one that may."""
    is_there = "anneal_learning_rate" in field_names(small(name))
    return small(name, **({"anneal_learning_rate": True} if is_there else {}))


def environment(name):
    config = small(name)
    return envs.make(config.env, **config.env_kwargs)


def observations(name, count):
    """Random observations `[count, ...]`; of CartPole any four numbers are one."""
    space, key = environment(name).observation_space(), jax.random.key(0)
    if hasattr(space, "n"):
        return jax.random.randint(key, (count,), 0, space.n)
    return jax.random.normal(key, (count, 4))


def algorithm_of(name):
    """Its registered name, without the variant."""
    return name.split("/")[0]


def test_every_registered_algorithm_is_tested_here():
    assert {algorithm_of(name) for name in SMALL} == set(ALGORITHMS)


# Of which a row above has the same program otherwise, or a test of its own its parts.
LONG = (
    *(f"recurrent_ppo/{name}" for name in ("lstm", "lru", "s5", "transformer")),
    *("dqn/rainbow", "dqn/implicit", "recurrent_dqn/prioritised"),
    *("sac/redq", "sac/tqc", "sac/crossq", "td3/ensemble", "mpo/discrete"),
    *("td3/memory", "td3/wide", "mpo/memory"),
)


@pytest.fixture(
    scope="module",
    params=slow_but(SMALL, *(name for name in SMALL if name not in LONG)),
)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def steps(name):
    """States and metrics of the step function, compiled once for all updates."""
    algorithm = purerl.make_algorithm(annealed(name))

    def traced_once(state):
        return algorithm.step(state)

    chex.clear_trace_counter()  # it counts by source line, over all algorithms
    step = jax.jit(chex.assert_max_traces(traced_once, n=1))
    states = [jax.jit(algorithm.init)(jax.random.key(0))]
    metrics = []
    for _ in range(UPDATES):
        state, metric = step(states[-1])
        states.append(state)
        metrics.append(metric)
    return algorithm, states, metrics, step


@pytest.fixture(scope="module")
def result(name):
    """A whole run, of which neither init nor an update nor an evaluation uses any
    random key twice; `fold_in` uses no key up."""
    with jax.debug_key_reuse(True):
        return jax.jit(purerl.make_train(annealed(name)))(jax.random.key(0))


@pytest.fixture(scope="module")
def longer(name):
    """What a run of twice the updates returns without evaluations, as shapes.

    Its rollouts have four times the steps, where they have a length of their own.
    """
    config = small(name, num_evaluations=0)
    times = 1 if getattr(config, "steps_per_item", 1) > 1 else 4
    steps = {"num_steps": 4 * config.num_steps} if times > 1 else {}
    config = config.replace(total_timesteps=2 * times * config.total_timesteps, **steps)
    before = serialise.to_dict(config)
    # A config is a pytree: its leaves pass through jit, so none is read in Python.
    found = jax.eval_shape(lambda c, key: purerl.make_train(c)(key), config, KEY)
    assert serialise.to_dict(config) == before
    return found


def test_the_state_is_arrays_of_one_structure_and_dtype(steps):
    _, states, _, _ = steps
    for state in states:
        chex.assert_trees_all_equal_shapes_and_dtypes(state, states[0])
        for leaf in jax.tree.leaves(state):
            assert isinstance(leaf, jax.Array)
            # A weak type would compile the step a second time.
            assert not getattr(jax.typeof(leaf), "weak_type", False)


def test_an_annealed_step_size_has_come_to_zero_at_the_end(name, steps):
    """After as many updates as the run has, nothing that is learned moves."""
    if "anneal_learning_rate" not in field_names(small(name)):
        pytest.skip("it has no step size that decays")
    _, states, _, step = steps
    pairs = zip(*(jax.tree.leaves(x.params) for x in states[-2:]), strict=True)
    assert any((one != other).any() for one, other in pairs)
    after, _ = step(states[-1])
    assert_same_bits(after.params, states[-1].params)


def test_the_key_stays_and_the_counter_counts(steps):
    _, states, _, _ = steps
    for update, state in enumerate(states):
        assert state.update == update
        assert state.key == states[0].key


def test_an_updates_randomness_is_that_of_its_key_and_counter(steps):
    # Same networks, same environments: only key or counter differ. The known bug is a
    # key made anew inside, by which all seeds see the same rollouts. What the
    # environments look like afterwards depends on the actions that were drawn.
    _, states, _, step = steps
    start = states[0]

    def after(**changes):
        return np.concatenate(
            [np.ravel(x) for x in jax.tree.leaves(seen(start._replace(**changes)))]
        )

    def seen(state):
        envs = step(state)[0].envs
        return envs.obs, envs.state, envs.episode_length

    again = after()
    np.testing.assert_array_equal(step(start)[0].envs.obs, states[1].envs.obs)
    assert (again != after(key=jax.random.key(1))).any()
    assert (again != after(update=jnp.int32(1))).any()


def test_metrics_are_finite_scalars_with_the_required_names(steps):
    _, _, metrics, _ = steps
    for metric in metrics:
        assert set(metric) >= REQUIRED
        assert set(metric) == set(metrics[0])
        for metric_name, value in metric.items():
            assert value.shape == (), metric_name
            defined = bool(is_defined(metric_name, metric))
            # What did not happen is undefined, and what happened never is.
            assert bool(jnp.isfinite(value)) == defined, metric_name
    assert sum(int(m["episodes"]) for m in metrics) > 0
    assert metrics[-1].get("gradient_steps", 1) > 0


def test_every_number_that_moves_is_among_the_metrics(name, steps, result):
    """It follows from the number of the update, so that no step reports it."""
    still = small(name, num_evaluations=0)
    line = purerl.schedules.Linear(0.9, 0.1)
    fields = ("learning_rate", "gamma", "epsilon_end", "epsilon", "entropy_coef")
    moved = [n for n in fields if hasattr(still, n) and _may_move(still, n, line)]
    assert moved
    config = still.replace(**dict.fromkeys(moved, line))
    bound = bind(config)
    found = bound.moving(bound.config, jnp.arange(UPDATES))
    metrics = jax.eval_shape(purerl.make_train(config), KEY).metrics
    for field in moved:
        np.testing.assert_allclose(
            found[field], 0.9 - 0.8 * np.arange(UPDATES) / UPDATES
        )
        assert metrics[field].shape == (UPDATES,)
    bound, reported = bind(annealed(name)), set(steps[2][0])
    moving = set(bound.moving(bound.config, jnp.arange(UPDATES)))
    assert not moving & reported
    assert set(result.metrics) == moving | reported


def _may_move(config, name, schedule):
    try:
        bind(config.replace(**{name: schedule}))
    except ConfigError:
        return False
    return True


def test_acting_without_a_key_is_deterministic_and_with_keys_is_not(name, steps):
    algorithm, states, _, _ = steps
    recurrence = recurrence_of(algorithm)
    memory = recurrence.init(())  # empty where the policy has none
    zeros = jnp.zeros_like(observations(name, 1)[0])

    @jax.jit
    def act(state, keys):
        one = partial(recurrence.act, state, zeros, memory)
        return one()[0], jax.vmap(lambda key: one(key)[0])(keys)

    keys = jax.random.split(jax.random.key(0), 64)
    (greedy, actions), (again, _) = act(states[0], keys), act(states[0], keys[::-1])
    assert greedy == again
    space = environment(name).action_space()
    assert all(space.contains(action) for action in actions)
    assert len(np.unique(actions)) > 1


def test_a_policy_acts_on_one_observation_or_a_batch(name, result):
    policy = purerl.make_policy(small(name), result.state)
    batch = observations(name, 3)

    def act(obs):
        if isinstance(policy, RecurrentPolicy):
            return policy(obs, policy.init(obs.shape[: obs.ndim - batch[0].ndim]))[0]
        return policy(obs)

    actions, singly = jax.jit(lambda: (act(batch), [act(obs) for obs in batch]))()
    space = environment(name).action_space()
    assert actions.shape == (3, *space.shape)
    # Rounding of a product depends on its width, the choice among actions does not.
    np.testing.assert_allclose(actions, singly, atol=1e-5)


def test_train_returns_the_curves_of_all_updates(name, result):
    per_update = small(name).steps_per_update
    for metric_name, values in result.metrics.items():
        assert values.shape == (UPDATES,), metric_name
    np.testing.assert_array_equal(
        result.metrics["env_steps"], per_update * np.arange(1, UPDATES + 1)
    )
    assert result.state.update == UPDATES


def test_train_is_the_scan_of_step_whatever_is_evaluated(steps, result):
    # The steps alone never evaluate; `result` did after every update.
    _, states, metrics, _ = steps
    stacked = held(jax.tree.map(lambda *xs: jnp.stack(xs), *metrics))
    # Beside what steps report stand the numbers that move.
    reported = {metric: result.metrics[metric] for metric in stacked}
    chex.assert_trees_all_close(reported, stacked, rtol=1e-4, atol=1e-5)
    params, expected = result.state.params, states[-1].params
    chex.assert_trees_all_close(params, expected, rtol=1e-4, atol=1e-5)


def test_evaluations_are_of_whole_episodes_at_the_planned_steps(name, result):
    config = small(name)
    evaluation = result.evaluation
    assert set(evaluation) == {"env_steps", *Evaluation._fields}
    np.testing.assert_array_equal(
        evaluation["env_steps"], config.steps_per_update * np.arange(1, UPDATES + 1)
    )
    assert evaluation["episode_return"].shape == (UPDATES, EPISODES)
    lengths = np.asarray(evaluation["episode_length"])
    # CartPole pays 1 per step; no policy falls within four steps.
    np.testing.assert_array_equal(evaluation["episode_return"], lengths)
    assert ((lengths > 4) & (lengths <= MAX_STEPS)).all()


def test_without_evaluations_there_are_none(longer):
    assert longer.evaluation["episode_return"].shape == (0, EPISODES)
    assert longer.evaluation["env_steps"].shape == (0,)


def state_bytes(result):
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(result.state))


def test_what_train_returns_grows_by_one_row_of_scalars_per_update(longer, result):
    """With the steps of a rollout it does not grow."""
    assert state_bytes(longer) == state_bytes(result)
    assert longer.observed is None
    for metric in longer.metrics.values():
        assert metric.shape == (2 * UPDATES,)


def test_the_config_keeps_the_contract_of_configs(name):
    config = small(name)
    assert isinstance(config, TrainConfig)
    with pytest.raises(ConfigError, match=r"Did you mean 'learning_rate'"):
        config.replace(learning_rat=1.0)  # flax's own `replace` would not guess
    plain = serialise.to_dict(config)
    assert plain["algorithm"] == algorithm_of(name)
    assert serialise.to_dict(serialise.from_dict(plain)) == plain


@pytest.mark.parametrize("name", LONG)
def test_no_random_key_is_used_twice(name):
    """For those that are not compiled; see `result`."""
    with jax.debug_key_reuse(True):
        jax.eval_shape(purerl.make_train(small(name)), KEY)


@pytest.mark.parametrize("scheme", ["fresh", "pool"])
@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_no_random_key_is_used_twice_by_a_random_environment(name, scheme):
    random = {"env_wrappers": ("StickyActions(0.25)",), "reset_scheme": scheme}
    with jax.debug_key_reuse(True):
        jax.eval_shape(purerl.make_train(small(name, **random)), KEY)


def test_every_number_of_a_config_can_be_traced(name, longer):
    """And its config is as it was; see `longer`."""
    leaves = jax.tree.leaves(small(name))
    assert longer and len(leaves) >= 3 and all(isinstance(x, float) for x in leaves)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "dqn", "pqn", "mpo", "recurrent_dqn", "lpg"])
def test_no_bound_of_the_gradient_is_one_that_it_never_reaches(name):
    none, far = (
        jax.jit(purerl.make_train(small(name, max_grad_norm=bound)))(KEY)
        for bound in (None, 1e30)
    )
    # Another program, whose fusions may round otherwise.
    chex.assert_trees_all_close(
        none.state.params, far.state.params, rtol=1e-4, atol=1e-6
    )

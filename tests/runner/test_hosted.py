"""Training in Gymnasium's environments: the same learner, and the right transitions."""

import jax
import numpy as np
import pytest

import envs
import purerl
from purerl import schedules
from purerl.execution.hosted import HostedCohort, HostedProgram
from purerl.train import bind
from tests.helpers import CONTINUOUS_CARTPOLE, slow_but
from tests.runner import hosted_tasks
from tests.runner.hosted_tasks import LANES, SCRIPT

SEED = 3
SMALL = {"hidden_sizes": (8,), "num_envs": 2, "num_evaluations": 0}
ROLLOUT = {**SMALL, "num_steps": 32, "num_minibatches": 2, "num_epochs": 2}
REPLAY = {
    **SMALL,
    "num_steps": 2,
    "rounds_per_update": 10,
    "learning_starts": 50,
    "buffer_size": 90,  # overwritten before the end
    "batch_size": 8,
}
CONFIGS = {
    "ppo": purerl.PPOConfig(
        normalize_observations=True,
        normalize_rewards=True,
        learning_rate=schedules.Linear(1e-2, 1e-3),
        **ROLLOUT,
    ),
    "recurrent_ppo": purerl.RecurrentPPOConfig(memory_size=8, **ROLLOUT),
    "vpg": purerl.VPGConfig(**SMALL, num_steps=32, value_iterations=3),
    "pqn": purerl.PQNConfig(**ROLLOUT, normalize_observations=True),
    "dqn": purerl.DQNConfig(
        **REPLAY, prioritised=True, n_step=2, epsilon_steps=100.0, learning_rate=1e-2
    ),
    "td3": purerl.TD3Config(**REPLAY, learning_rate=1e-2, n_step=2),
    "sac": purerl.SACConfig(**REPLAY, learning_rate=1e-2),
    "mpo": purerl.MPOConfig(
        **{**REPLAY, "batch_size": 4}, action_samples=3, learning_rate=1e-2
    ),
}
CONTINUOUS = ("td3", "sac", "mpo")
UPDATES, LIMIT = 4, 12  # a time limit that cuts many episodes


@pytest.fixture(autouse=True, scope="module")
def registered():
    hosted_tasks.register()


def pair(name):
    """The config of a compiled run, and of the same one in an environment on the host."""
    config = CONFIGS[name]
    task = CONTINUOUS_CARTPOLE if name in CONTINUOUS else "CartPole-v1"
    config = config.replace(total_timesteps=UPDATES * config.steps_per_update)
    steps = config.steps_per_update // config.num_envs
    options = {"task": task, "limit": LIMIT, "seed": SEED, "steps": steps}
    return (
        config.replace(env=task, env_params={"max_steps_in_episode": LIMIT}),
        config.replace(
            env=f"gymnasium/{LANES}",
            env_kwargs={"vectorization_mode": "vector_entry_point", **options},
        ),
    )


@pytest.mark.parametrize("name", slow_but(CONFIGS, "ppo", "dqn"))
def test_the_learner_is_that_of_the_compiled_run(name):
    """With the same keys and environments, all that is learned and kept is the same.

    The environments are compiled by themselves here and in one program with the
    networks there, so that numbers differ in the last bits.
    """
    inside, outside = pair(name)
    expected = jax.jit(purerl.make_train(inside))(jax.random.key(SEED))
    found = purerl.run(outside, seeds=[SEED], segment_updates=1, progress=False)
    # Something was learned, and episodes ended in both ways.
    assert expected.metrics["episodes"].sum() > 10
    assert expected.metrics["episode_length"].min() < LIMIT
    for metric, values in expected.metrics.items():
        np.testing.assert_allclose(
            found.metrics[metric][0], values, rtol=1e-3, atol=1e-4, err_msg=metric
        )
    fields = [f for f in expected.state._fields if f not in ("key", "envs")]
    for field in fields:
        one, two = (getattr(s, field) for s in (expected.state, found.state))
        leaves = jax.tree_util.tree_leaves_with_path(one)
        assert leaves or field == "priorities"
        for (path, a), b in zip(leaves, jax.tree.leaves(two), strict=True):
            np.testing.assert_allclose(
                b[0], a, rtol=1e-3, atol=1e-4, err_msg=f"{field}{path}"
            )
    for field in ("obs", "episode_return", "episode_length"):
        one, two = (getattr(s.envs, field) for s in (expected.state, found.state))
        np.testing.assert_allclose(two[0], one, rtol=1e-4, atol=1e-5, err_msg=field)

"""CartpoleSwingup-v0 against trajectories of dm_control.

`experiments/record_swingup.py` of commit cd0c0c95 wrote them from MuJoCo's float64. The
contract tests (`tests/contracts/test_envs.py`) put all four ids through `envs.check`.
"""

import dataclasses
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from purerl.envs import swingup

DATA = dict(np.load(Path(__file__).parent / "data" / "swingup.npz"))
NAMES = sorted(key.removesuffix(".actions") for key in DATA if key.endswith(".actions"))
PARAMS = swingup.SwingupParams()
FIELDS = [field.name for field in dataclasses.fields(swingup.SwingupParams)]
# What the model of the recording `altered` has in place of the defaults.
ALTERED = {
    name: DATA[f"altered.{name}"] for name in FIELDS if f"altered.{name}" in DATA
}


def _wrapped(angle):
    return (angle + np.pi) % (2 * np.pi) - np.pi


def _params(name):
    """The constants of a recording, float32 `[]` each: one program for all."""
    params = PARAMS.replace(**(ALTERED if name == "altered" else {}))
    return jax.tree.map(jnp.float32, params)


def _difference(ours, recorded):
    """Ours less the recorded states, angles on the circle; float64 `[T, 4]`."""
    difference = np.asarray(ours, np.float64) - recorded
    difference[:, 2] = _wrapped(difference[:, 2])
    return difference


@jax.jit
@functools.partial(jax.vmap, in_axes=(0, 0, None))
def _single_steps(motion, action, params):
    """One step of both kinds of reward: observation, motion, rewards, terminated."""
    key = jax.random.key(0)
    state = swingup.SwingupState(jnp.int32(0), swingup.Motion(*motion))
    smooth = swingup.CartpoleSwingup().step_env(key, state, action[None], params)
    sparse = swingup.CartpoleSwingupSparse().step_env(key, state, action[None], params)
    return smooth[0], jnp.stack(smooth[1].motion), smooth[2], sparse[2], smooth[3]


@pytest.fixture(scope="module", params=NAMES)
def stepped(request):
    """A recording, and what we make of a step from each of its states."""
    name = request.param
    part = {key: DATA[f"{name}.{key}"] for key in ("observations", "smooth", "sparse")}
    states, actions = DATA[f"{name}.states"], DATA[f"{name}.actions"]
    before = states[:-1].copy()
    before[:, 2] = _wrapped(before[:, 2])
    out = _single_steps(jnp.asarray(before, jnp.float32), actions, _params(name))
    return {**part, "next": states[1:]}, [np.asarray(x) for x in out]


def test_a_step_equals_dm_controls(stepped):
    recorded, (_, motion, *_) = stepped
    difference = _difference(motion, recorded["next"])
    # float32 rounds velocities of 26 rad/s by 2e-6, and MuJoCo's solver stops up to
    # 4e-6 from its optimum.
    np.testing.assert_allclose(difference, 0, atol=5e-6)
    np.testing.assert_allclose(difference[:, [0, 2]], 0, atol=5e-7)


def test_observations_and_rewards_equal_dm_controls(stepped):
    recorded, (observation, _, smooth, sparse, terminated) = stepped
    np.testing.assert_allclose(observation, recorded["observations"], atol=5e-6)
    np.testing.assert_allclose(smooth, recorded["smooth"], atol=1e-6)
    np.testing.assert_array_equal(sparse, recorded["sparse"])
    assert not terminated.any()


@pytest.mark.parametrize(
    ("env", "name"),
    [(swingup.CartpoleSwingup(), "hanging"), (swingup.CartpoleBalance(), "upright")],
    ids=["hanging", "upright"],
)
def test_first_states_are_distributed_as_dm_controls(env, name):
    keys = jax.random.split(jax.random.key(0), 2_000)
    observation, state = jax.vmap(env.reset)(keys)
    ours, theirs = np.stack(state.motion, axis=-1), DATA[f"{name}.resets"]
    for column in range(4):
        result = scipy.stats.ks_2samp(ours[:, column], theirs[:, column])
        assert result.pvalue > 0.01, (column, result)
    # Each number is drawn by itself: correlations of 2000 pairs have std 0.022.
    correlation = np.corrcoef(ours.T) - np.eye(4)
    np.testing.assert_allclose(correlation, 0, atol=0.09)
    x, x_dot, theta, theta_dot = ours.T
    expected = np.stack([x, np.cos(theta), np.sin(theta), x_dot, theta_dot], axis=-1)
    np.testing.assert_allclose(observation, expected, atol=1e-6)
    assert not np.asarray(state.time).any()

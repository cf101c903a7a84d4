"""CartpoleSwingup-v0 against trajectories of dm_control, and against mechanics.

`experiments/record_swingup.py` of commit cd0c0c95 wrote them from MuJoCo's float64. The
contract tests (`tests/contracts/test_envs.py`) put all four ids through `envs.check`.
"""

import dataclasses
import functools
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from purerl import envs
from purerl.envs.swingup import (
    CartpoleBalance,
    CartpoleBalanceSparse,
    CartpoleSwingup,
    CartpoleSwingupSparse,
    Motion,
    SwingupParams,
    SwingupState,
    advance,
    smooth_reward,
    sparse_reward,
)
from tests.helpers import slow_but

DATA = dict(np.load(Path(__file__).parent / "data" / "swingup.npz"))
NAMES = sorted(key.removesuffix(".actions") for key in DATA if key.endswith(".actions"))
KINDS = (CartpoleSwingup, CartpoleSwingupSparse, CartpoleBalance, CartpoleBalanceSparse)
PARAMS = SwingupParams()
FIELDS = [field.name for field in dataclasses.fields(SwingupParams)]
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


def _state(x, x_dot, theta, theta_dot, time=0):
    numbers = (jnp.float32(v) for v in (x, x_dot, theta, theta_dot))
    return SwingupState(jnp.int32(time), Motion(*numbers))


def _difference(ours, recorded):
    """Ours less the recorded states, angles on the circle; float64 `[T, 4]`."""
    difference = np.asarray(ours, np.float64) - recorded
    difference[:, 2] = _wrapped(difference[:, 2])
    return difference


@jax.jit
@functools.partial(jax.vmap, in_axes=(0, 0, None))
def _single_steps(motion, action, params):
    """One step of both kinds of reward: observation, motion, rewards, terminated."""
    state, key = SwingupState(jnp.int32(0), Motion(*motion)), jax.random.key(0)
    smooth = CartpoleSwingup().step_env(key, state, action[None], params)
    sparse = CartpoleSwingupSparse().step_env(key, state, action[None], params)
    return smooth[0], jnp.stack(smooth[1].motion), smooth[2], sparse[2], smooth[3]


@jax.jit
def _run(motion, actions, params):
    """States `[T, 4]` after each action `[T]`."""

    def body(motion, action):
        motion = advance(motion, action, params)
        return motion, jnp.stack(motion)

    return jax.lax.scan(body, Motion(*motion), actions)[1]


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


def test_recordings_go_where_it_is_difficult():
    states = np.concatenate([DATA[f"{name}.states"] for name in NAMES])
    depth = np.abs(states[:, 0]) - PARAMS.rail_length
    # Both ends; past the curve of the impedance; within it, on both of its parabolas.
    assert states[:, 0].max() > 2 and states[:, 0].min() < -1.9
    assert ((depth > 0) & (depth < 5e-4)).sum() > 50
    assert ((depth > 5e-4) & (depth < 1e-3)).sum() > 50
    assert np.abs(states[:, 3]).max() > 20
    assert np.abs(DATA["thrown.actions"]).max() > 1.5
    sparse = np.concatenate([DATA[f"{name}.sparse"] for name in NAMES])
    assert 200 < sparse.sum() < len(sparse) - 200
    # Every constant of the physics is changed in one recording.
    rewards = set(FIELDS[FIELDS.index("reset_std") :])
    assert set(ALTERED) == set(FIELDS) - rewards - {"max_steps_in_episode"}
    assert all(value != getattr(PARAMS, name) for name, value in ALTERED.items())
    assert ALTERED["rail_timeconst"] < 2 * ALTERED["timestep"]
    altered = np.abs(DATA["altered.states"][:, 0]) - ALTERED["rail_length"]
    assert ((altered > 0) & (altered < ALTERED["rail_width"])).sum() > 5
    # A last discount of 1 says that the clock ran out.
    assert PARAMS.max_steps_in_episode == DATA["episode.length"] == 1_000
    assert DATA["episode.discount"] == 1.0


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


@pytest.mark.parametrize("name", slow_but(NAMES, "altered", "spinning"))
def test_whole_sequences_equal_dm_controls(name):
    states, actions = DATA[f"{name}.states"], DATA[f"{name}.actions"]
    ours = _run(jnp.asarray(states[0], jnp.float32), actions, _params(name))
    difference = np.abs(_difference(ours, states[1:]))
    # 150 to 400 steps of open-loop actions; a pole held upright amplifies rounding.
    held = (np.cos(states[1:, 2]) > 0.95).cumsum() > 25
    assert held.any() == (name in ("swing", "upright"))
    np.testing.assert_allclose(difference[~held], 0, atol=5e-4)
    np.testing.assert_allclose(difference[held], 0, atol=2e-2)


@pytest.mark.parametrize(
    ("env", "name"),
    [(CartpoleSwingup(), "hanging"), (CartpoleBalance(), "upright")],
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


def test_derived_constants_are_mujocos_and_follow_their_parts():
    # `body_inertia` 0.009424592767295598 + 0.1 * 0.5^2, and `dof_invweight0`.
    assert pytest.approx(0.034424592767295598, rel=1e-12) == PARAMS.pole_inertia
    assert pytest.approx(0.9733520544614127, rel=1e-12) == PARAMS.cart_mobility
    # A thin rod about its end: m h^2 / 3.
    rod = PARAMS.replace(pole_radius=0.0, pole_length=3.0, pole_mass=2.0)
    assert rod.pole_inertia == pytest.approx(2.0 * 9 / 3)
    assert rod.pole_moment == 3.0 and rod.total_mass == 3.0


def test_smooth_reward_by_hand():
    # At the margins of x and theta_dot the indicators are 0.1, so both factors are
    # (1 + 0.1) / 2; action 0.5 gives (4 + 1 - 0.25) / 5 = 0.95; at 60 degrees the
    # pole is (1 + 0.5) / 2 upright.
    motion = _state(-2.0, 9.0, math.pi / 3, 5.0).motion
    reward = smooth_reward(motion, jnp.float32(-0.5), PARAMS)
    np.testing.assert_allclose(reward, 0.75 * 0.95 * 0.55**2, rtol=1e-6)
    best = smooth_reward(_state(0, 0, 0, 0).motion, jnp.float32(0.0), PARAMS)
    assert best == 1.0
    hanging = smooth_reward(_state(0, 0, math.pi, 0).motion, jnp.float32(0), PARAMS)
    np.testing.assert_allclose(hanging, 0, atol=1e-6)


@pytest.mark.parametrize(
    ("x", "theta", "reward"),
    # arccos(0.995) = 0.100042
    [(0.25, 0.1, 1), (-0.25, -0.1, 1), (0.26, 0.1, 0), (-0.26, 0, 0), (0, 0.1001, 0)],
)
def test_sparse_reward_by_hand(x, theta, reward):
    assert sparse_reward(_state(x, 3.0, theta, 3.0).motion, PARAMS) == reward


def test_ids_make_the_four_tasks():
    for kind in KINDS:
        env = envs.make(f"{kind.__name__}-v0")
        assert type(env) is kind and env.name == f"{kind.__name__}-v0"
        assert env == kind() and hash(env) == hash(kind())
    assert CartpoleSwingup() != CartpoleSwingupSparse()
    paid = {kind: (kind.starts_upright, kind.pays_sparsely) for kind in KINDS}
    assert list(paid.values()) == [(0, 0), (0, 1), (1, 0), (1, 1)]

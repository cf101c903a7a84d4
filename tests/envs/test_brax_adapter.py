"""The brax adapter: brax's own physics, honest flags, physics as leaves."""

import ctypes.util
import inspect
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import envs
from purerl.acting.environment import is_built_in
from purerl.envs.adapters import brax as adapter
from purerl.envs.adapters.brax import BraxEnvironment, BraxParams
from tests.envs.episodes import played

# Compiling brax takes seconds: what can share a program does, on one worker.
pytestmark = [pytest.mark.usefixtures("lax_rank_promotion")]
LIMIT = 6
KEY = jax.random.key(0)


def test_making_an_environment_prints_nothing():
    code = "from purerl import envs; envs.make('brax/halfcheetah')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def _changed(field, value):
    """Another value of a number, far enough to see and near enough to stay stable."""
    value = jnp.asarray(value)
    if field == "gravity":
        return value - 2.0  # The pusher has none to begin with.
    return value * 1.3 + (0.1 if field in ("damping", "stiffness", "armature") else 0)


def _lanes(params):
    """Batched parameters: two lanes as they are, then one per changed field."""
    fields = [f for f in vars(params) if getattr(params, f) is not None]
    fields.remove("max_steps_in_episode")
    lanes = [params, params]
    for field in fields:
        changed = _changed(field, getattr(params, field))
        lanes.append(params.replace(**{field: changed}))
    return fields, jax.tree.map(lambda *xs: jnp.stack(xs), *lanes)


def _play(env, params, num_steps):
    """Random actions, observations before any reset, rewards and flags."""
    steps = played(env, params, KEY, num_steps)[1]
    return steps.action, steps.final, steps.reward, steps.terminated, steps.truncated


@pytest.fixture(
    scope="module", params=[("halfcheetah", None), ("inverted_pendulum", "generalized")]
)
def run(request, lax_rank_promotion):
    """Environment, names of the changed fields, and what every lane played."""
    name, backend = request.param
    env = BraxEnvironment(name, backend, max_steps_in_episode=LIMIT)
    fields, lanes = _lanes(env.default_params)
    steps = jax.jit(jax.vmap(lambda p: _play(env, p, 2 * LIMIT + 1)))(lanes)
    return env, fields, jax.tree.map(np.asarray, steps)


@pytest.mark.slow
def test_leaves_are_those_the_backend_reads(run):
    env, fields, _ = run
    shared = {"gravity", "mass", "inertia", "gear"}
    expected = {
        "spring": shared | {"friction"},
        # Nothing touches anything in the pendulum: no friction.
        "generalized": shared | {"damping", "stiffness", "armature"},
    }
    assert set(fields) == expected[env.backend]


@pytest.mark.slow(optimised=False)
def test_equals_bare_brax(run):
    """An action is the actuator's control; the pendulum's brax takes a third of it."""
    env, _, (actions, final, reward, terminated, _) = run
    scale = 3.0 if env.brax_name == "inverted_pendulum" else 1.0
    assert float(env.action_space().high[0]) == scale
    bare, key_reset = env.wrapped, jax.random.split(KEY, 3)[0]  # As `played` has it.

    def body(state, action):
        after = bare.step(state, action / scale)
        kept = ("pipeline_state", "obs", "reward", "done")
        state = state.replace(**{name: getattr(after, name) for name in kept})
        return state, (after.obs, after.reward, after.done)

    with adapter._quiet():
        start = bare.reset(key_reset)
        play = jax.jit(lambda: jax.lax.scan(body, start, actions[0, :LIMIT])[1])
        obs, bare_reward, done = (np.asarray(x) for x in play())
    first = int(done.argmax()) + 1 if done.any() else LIMIT
    assert first >= 3  # Something was compared.
    for ours, theirs in ((final, obs), (reward, bare_reward), (terminated, done)):
        np.testing.assert_allclose(
            ours[0][:first], theirs[:first], rtol=2e-3, atol=2e-3
        )


def test_which_environments_rescale_is_read_from_the_installed_sources():
    rescaling = {
        name
        for name, kind in adapter.brax_envs._envs.items()
        if "ctrl_range" in inspect.getsource(kind.step)
    }
    assert rescaling == set(adapter.RESCALES_ACTIONS)


BAD = [
    (lambda env: BraxEnvironment("cheetah"), "none of brax's. Did you mean 'half"),
    (lambda env: envs.make("brax/ant", legs=5), r"were \['legs'\], which it does"),
    (lambda env: env.reset(KEY, BraxParams()), "gravity .* must be a number"),
    (
        lambda env: env.reset(KEY, env.default_params.replace(damping=jnp.ones(6))),
        "params.damping of brax/hopper must be None",
    ),
]


@pytest.mark.parametrize(("make", "sentence"), BAD)
def test_bad_input(make, sentence):
    env = envs.make("brax/hopper")
    assert env.backend == "spring"
    with pytest.raises(ValueError, match=sentence):
        make(env)


ALL = [(name, None) for name in envs.registry.BRAX_NAMES] + [
    *(("halfcheetah", backend) for backend in ("positional", "generalized", "mjx")),
    ("inverted_pendulum", "generalized"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "backend"), ALL)
def test_all_environments(name, backend):
    """Each compiles, is finite, keeps its limit; each leaf matters."""
    env = BraxEnvironment(name, backend, max_steps_in_episode=LIMIT)
    fields, lanes = _lanes(env.default_params)
    steps = jax.jit(jax.vmap(lambda p: _play(env, p, LIMIT + 1)))(lanes)
    _, final, reward, terminated, truncated = jax.tree.map(np.asarray, steps)
    assert final.shape[2:] == env.observation_space().shape
    assert np.isfinite(final[0]).all() and np.isfinite(reward[0]).all()
    assert not (terminated & truncated).any()
    assert (terminated | truncated)[0, :LIMIT].any()
    np.testing.assert_array_equal(final[0], final[1])
    unchanged = {
        field
        for field, lane in zip(fields, final[2:], strict=True)
        if np.array_equal(lane, final[0])
    }
    # Six steps after a reset nothing has touched yet in some of them.
    assert unchanged <= {"friction"}


@pytest.fixture
def own(monkeypatch, lax_rank_promotion):
    """Brax's registry, with two environments of a user's own until the test's end."""
    monkeypatch.setattr(adapter.brax_envs, "_envs", dict(adapter.brax_envs._envs))

    class Slower(adapter.brax_envs.fast.Fast):
        """Pays what was seen in the step before, and counts in its metrics."""

        def reset(self, rng):
            start = jax.random.uniform(rng, (2,))
            state = super().reset(rng)
            return state.replace(obs=start, metrics={"steps": jnp.zeros(())})

        def step(self, state, action):
            after = super().step(state, action)
            steps = state.metrics["steps"] + 1
            metrics = {"steps": steps, "force": action[0]}
            done = jnp.where(steps < 5, 0.0, 1.0)
            return after.replace(reward=state.obs[0], metrics=metrics, done=done)

    class Doubled(adapter.brax_envs.inverted_pendulum.InvertedPendulum):
        def step(self, state, action):
            state = super().step(state, action)
            return state.replace(reward=2 * state.reward)

    brax_envs = adapter.brax_envs
    brax_envs.register_environment("slower", Slower)
    brax_envs.register_environment("doubled", Doubled)
    return brax_envs


def test_swimmer_has_the_backend_that_can_move_it():
    assert envs.make("brax/swimmer").backend == "generalized"


@pytest.mark.usefixtures("own")
def test_an_environment_of_the_users_own_is_found_in_brax():
    env = envs.make("brax/slower", max_steps_in_episode=7)
    envs.check(env)
    _, obs, reward, terminated, _ = _play(env, env.default_params, 10)
    np.testing.assert_array_equal(reward[1:4], obs[:3, 0])  # seen in the step before
    assert np.flatnonzero(terminated).tolist() == [4, 9]  # by what it counts itself
    assert envs.describe("brax/slower").source == "registered"
    assert not is_built_in(purerl.PPOConfig(env="brax/slower"))


@pytest.mark.usefixtures("own")
def test_an_own_environment_is_stepped_as_brax_does():
    env = envs.make("brax/doubled")
    assert env.backend == "generalized" and env.note == ""  # what its class chooses
    assert envs.make("brax/doubled", backend="spring").backend == "spring"
    assert (env.action_space().low, env.action_space().high) == (-1, 1)
    assert env.default_params.gravity[2] == pytest.approx(-9.81)
    assert env._to_brax(jnp.ones(1)) == 1  # which `step` rescales


@pytest.mark.usefixtures("own")
def test_names_in_brax_are_asked_when_they_are_looked_up(own):
    with pytest.raises(ValueError, match="Did you mean 'brax/slower"):
        envs.make("brax/slowr")
    del own._envs["slower"]
    with pytest.raises(ValueError, match=r"`envs\.register` adds one.*--import"):
        envs.make("brax/slower")


def test_an_object_of_brax_is_refused_with_the_way_by_its_name(own):
    env = own.get_environment("slower")
    with pytest.raises(purerl.ConfigError, match="registered there: env='brax/NAME'"):
        purerl.make_train(purerl.PPOConfig(env=env))


# Where the pole is in two pictures: the mean column of what is bright above the rail.
SCRIPT = """
import numpy as np
from purerl import envs
from purerl.envs.adapters import brax as pictures
env = envs.make("brax/inverted_pendulum")
draw = pictures.drawer(env, 160, 120)
for x in (-0.5, 0.5):
    picture = draw({"q": np.array([x, 0.0])}, None)
    rows, columns = np.nonzero(picture[:55].max(-1) > 60)
    print("place", columns.mean(), picture.shape)
"""


@pytest.mark.slow
@pytest.mark.skipif(not ctypes.util.find_library("OSMesa"), reason="needs libosmesa6")
def test_a_cart_that_is_moved_moves_in_the_picture():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        env={**os.environ, "MUJOCO_GL": "osmesa"},
    )
    places = [line.split() for line in done.stdout.splitlines() if "place" in line]
    assert len(places) == 2, done.stderr
    left, right = (float(words[1]) for words in places)
    assert right > left + 40
    assert abs(left + right - 159) < 2  # The camera stands in the middle.
    assert done.stdout.count("(120, 160, 3)") == 2
    assert "Exception ignored" not in done.stderr  # as Python ends

"""The gymnax adapter plays gymnax's own episodes; other objects keep their wrappers."""

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax import wrappers
from gymnax.environments import environment as gymnax_environment

import purerl
from purerl import envs
from purerl.envs.adapters.adapt import ContractEnvironment
from purerl.envs.adapters.adapted import as_space
from purerl.envs.adapters.gymnax import GymnaxEnvironment
from purerl.envs.cartpole import CartPole
from tests.envs.episodes import played

# The package's own code broadcasts across ranks here and there; ours does not.
pytestmark = pytest.mark.usefixtures("lax_rank_promotion")
KEY = jax.random.key(0)


LIMITS = [
    ("Pendulum-v1", 7),
    pytest.param("Catch-bsuite", 5, marks=pytest.mark.slow),
    pytest.param("FrozenLake-misc", 6, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("id", "limit"), LIMITS)
def test_the_same_key_gives_gymnaxs_own_episode(id, limit):
    ours = envs.make(id)
    theirs, params = gymnax.make(id)
    params = params.replace(max_steps_in_episode=limit)
    sample = ours.action_space(params).sample
    actions = jax.vmap(sample)(jax.random.split(jax.random.key(1), 30))
    ((obs, _), mine), ((their_obs, _), their) = (
        played(env, params, KEY, 30, actions) for env in (ours, theirs)
    )
    np.testing.assert_allclose(obs, their_obs, rtol=1e-6)
    for name in ("obs", "reward", "terminated", "final"):
        one, other = getattr(mine, name), getattr(their, name)
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    # The one difference: both flags of gymnax are up where an end meets the limit.
    np.testing.assert_array_equal(mine.truncated, their.truncated & ~their.terminated)
    assert (mine.terminated | mine.truncated).sum() >= 3  # Episodes did end.


def test_adapt_takes_the_shortest_way():
    own = CartPole()
    assert envs.adapt(own) is own
    theirs, _ = gymnax.make("CartPole-v1")
    assert isinstance(envs.adapt(theirs), GymnaxEnvironment)
    wrapped = envs.adapt(wrappers.LogWrapper(theirs))
    assert isinstance(wrapped, ContractEnvironment)
    # DeepSea has a `step` of its own, so only `reset` and `step` are used.
    deep_sea, _ = gymnax.make("DeepSea-bsuite")
    assert isinstance(envs.adapt(deep_sea), ContractEnvironment)
    # Options reach the constructor of what gymnax makes.
    assert envs.make("DeepSea-bsuite", size=4).observation_space().shape == (4, 4)


class _NegatedReward(wrappers.purerl.GymnaxWrapper):
    def reset(self, key, params=None):
        return self._env.reset(key, params)

    def step(self, key, state, action, params=None):
        out = self._env.step(key, state, action, params)
        return *out[:2], -out[2], *out[3:]


@pytest.mark.slow
def test_a_wrapper_is_not_bypassed():
    """Its `step_env` is the inner environment's; using it would lose the wrapper."""
    wrapped = _NegatedReward(gymnax.make("CartPole-v1")[0])
    env = envs.adapt(wrapped)
    _, state = env.reset(KEY)
    assert env.step(KEY, state, jnp.int32(1))[2] == -1.0
    assert wrapped.step_env(KEY, state, 1, env.default_params)[2] == 1.0
    assert not env.steps_without_reset
    with pytest.raises(NotImplementedError, match="known by its `reset` and `step`"):
        env.step_env(KEY, state, jnp.int32(1), env.default_params)


def test_a_step_without_final_observation_is_refused():
    class Forgetful(_NegatedReward):
        def step(self, key, state, action, params=None):
            out = super().step(key, state, action, params)
            return *out[:5], {}

    env = envs.adapt(Forgetful(gymnax.make("CartPole-v1")[0]))
    _, state = env.reset(KEY)
    with pytest.raises(ValueError, match="expected 'final_observation' too"):
        env.step(KEY, state, jnp.int32(1))


def test_a_users_own_gymnax_environment_can_be_passed():
    class Count(gymnax_environment.Environment):
        def reset_env(self, key, params):
            return jnp.zeros(1), gymnax_environment.EnvState(time=0)

        def step_env(self, key, state, action, params):
            state = state.replace(time=state.time + 1)
            obs = jnp.float32(state.time)[None]
            return obs, state, jnp.float32(1), jnp.asarray(False), {}

        def action_space(self, params):
            return gymnax.environments.spaces.Discrete(2)

        def observation_space(self, params):
            return gymnax.environments.spaces.Box(0, 99, (1,))

    env = envs.adapt(Count())
    params = env.default_params.replace(max_steps_in_episode=2)
    (_, state), steps = played(env, params, KEY, 4, jnp.zeros(4, jnp.int32))
    assert state.time.dtype == jnp.int32
    np.testing.assert_array_equal(steps.truncated, [False, True, False, True])
    np.testing.assert_array_equal(steps.final[:, 0], [1, 2, 1, 2])
    envs.check(env)


def test_fractions_are_not_cut_to_the_whole_numbers_of_a_space():
    class Whole(gymnax.environments.classic_control.CartPole):
        def observation_space(self, params):
            return gymnax.environments.spaces.Box(-9, 9, (4,), jnp.int32)

    words = r"an observation of float32, expected int32 .* Box\(-9, 9, \(4,\), int32\)"
    with pytest.raises(envs.EnvCheckError, match=words):
        envs.check(Whole())
    with pytest.raises(purerl.ConfigError, match=words):
        purerl.make_train(purerl.PPOConfig(env=Whole()))
    catch = envs.adapt(gymnax.make("Catch-bsuite")[0])
    assert catch.reset(KEY)[0].dtype == jnp.int32


def test_spaces_of_several_parts_are_taken():
    theirs = gymnax.environments.spaces
    inner = theirs.Tuple((theirs.Discrete(2), theirs.Box(0.0, 1.0, (2,))))
    space = as_space(theirs.Dict({"b": inner, "a": theirs.Discrete(3)}))
    assert repr(space) == (
        "Dict({'a': Discrete(3), 'b': Tuple(Discrete(2), Box(0, 1, (2,), float32))})"
    )
    with pytest.raises(ValueError, match=r"action_space\['a'\] is <object.* none of"):
        as_space(theirs.Dict({"a": object()}), "action_space")


def test_an_observation_of_several_parts_has_the_types_of_its_space():
    class Pair(gymnax.environments.classic_control.CartPole):
        def get_obs(self, state, params=None, key=None):
            return {"x": state.x, "moves": (state.x_dot > 0, 1)}

        def observation_space(self, params):
            theirs = gymnax.environments.spaces
            moves = theirs.Tuple((theirs.Discrete(2), theirs.Discrete(2)))
            return theirs.Dict({"x": theirs.Box(-9.0, 9.0, ()), "moves": moves})

    env = envs.adapt(Pair())
    obs, _ = env.reset(jax.random.key(0))
    assert jax.tree.map(lambda x: x.dtype.name, obs) == {
        "x": "float32",
        "moves": ("int32", "int32"),
    }
    assert env.observation_space(env.default_params).contains(obs)


@pytest.mark.parametrize("name", ["Asterix", "Breakout", "Freeway", "SpaceInvaders"])
def test_pictures_of_minatar_are_zeros_and_ones(name):
    env = envs.make(f"{name}-MinAtar")
    stack = envs.wrappers.FrameStack(env, 2)
    theirs = gymnax.make(f"{name}-MinAtar")[0]
    for each, copies in ((env, 1), (stack, 2)):
        obs, _ = jax.jit(each.reset)(jax.random.key(0), each.default_params)
        expected, _ = theirs.reset(jax.random.key(0))
        np.testing.assert_array_equal(obs, np.tile(expected, copies).astype(bool))
        assert obs.dtype == bool and set(np.unique(expected)) == {0.0, 1.0}
        assert each.observation_space().contains(obs)

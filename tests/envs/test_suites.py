"""Craftax and MuJoCo Playground: their dynamics, flags that say why, fresh resets."""

import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import envs
from tests.envs.episodes import played
from tests.helpers import assert_same_bits

SUITES = {"craftax": "craftax", "jumanji": "jumanji", "mujoco_playground": "playground"}
# The short games: compiling one takes a minute and more.
CRAFTAX = "craftax/Craftax-Classic-Symbolic-v1"
PLAYGROUND = "playground/CartpoleSwingup"
LIMIT = 4
KEY = jax.random.key(0)


@pytest.fixture
def suite(request):
    """An environment's id, where its package is installed."""
    for package, name in SUITES.items():
        if request.param.startswith(f"{name}/"):
            pytest.importorskip(package)
    return request.param


@pytest.mark.parametrize(
    ("package", "extra", "make"),
    [
        *((key, name, partial(envs.make, f"{name}/X")) for key, name in SUITES.items()),
        ("envpool", "envpool", lambda: envs.make("envpool/CartPole-v1")),
        ("gymnasium", "gymnasium", lambda: envs.to_gymnasium("CartPole-v1")),
    ],
)
def test_a_missing_package_says_what_to_install(package, extra, make, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=rf"needs the package {package}.*\[{extra}\]"):
        make()


def test_ids_are_the_packages_and_built_in():
    from purerl.acting.environment import is_built_in

    for name in SUITES.values():
        assert envs.source_of(f"{name}/Something") == name
        assert not envs.registry.is_on_host(f"{name}/Something")
    assert is_built_in(purerl.PPOConfig(env=CRAFTAX))
    with pytest.raises(ValueError, match="did you mean craftax/Craftax-Symbolic-v1"):
        envs.make("craftax-symbolic")
    with pytest.raises(ValueError, match=r"did you mean craftax/Pixels\?"):
        envs.make("Craftax/Pixels")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite", "options", "sentence"),
    [
        (
            CRAFTAX,
            {"size": 3},
            r"were \['size'\], which it does not take; it takes map_",
        ),
        ("playground/Cartpole", {}, "'Cartpole' is none of Playground's: .*Cartpole"),
        (PLAYGROUND, {"episode_length": 3}, "take no notice; set max_steps_in_episode"),
    ],
    indirect=["suite"],
)
def test_what_is_not_there_is_said(suite, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        envs.make(suite, **options)


@pytest.mark.slow
@pytest.mark.parametrize("suite", [CRAFTAX, PLAYGROUND], indirect=True)
def test_the_time_limit_truncates_and_resets_are_fresh(suite):
    env = envs.make(suite)
    params = env.default_params.replace(max_steps_in_episode=LIMIT)
    run = jax.jit(lambda params: played(env, params, KEY, 2 * LIMIT + 1)[1])
    steps = jax.tree.map(np.asarray, run(params)._replace(state=(), info=()))
    _, obs, final, _, reward, terminated, truncated, _ = steps
    assert not terminated.any() and np.isfinite(reward).all()
    np.testing.assert_array_equal(np.flatnonzero(truncated) + 1, [LIMIT, 2 * LIMIT])
    np.testing.assert_array_equal(obs[~truncated], final[~truncated])
    first, second = np.flatnonzero(truncated)
    assert (obs[first] != final[first]).any() and (obs[first] != obs[second]).any()


@pytest.mark.slow
def test_death_terminates_also_on_the_last_step():
    """Craftax says `done` at death and at the limit; here they are two flags."""
    pytest.importorskip("craftax")
    env: Any = envs.make(CRAFTAX)
    params = env.default_params
    _, state = env.reset(KEY, params)
    dying = state.replace(game=state.game.replace(player_health=jnp.int32(-100)))
    step = jax.jit(env.step)

    def flags(state, limit):
        changed = params.replace(max_steps_in_episode=limit)
        return tuple(bool(x) for x in step(KEY, state, 0, changed)[3:5])

    assert flags(state, 100) == (False, False)
    assert flags(state, 1) == (False, True)
    assert flags(dying, 100) == (True, False)
    assert flags(dying, 1) == (True, False)
    bare = env.wrapped.step_env(KEY, dying.game, 0, env._endless(params))
    final = step(KEY, dying, 0, params)[5]["final_observation"]
    np.testing.assert_array_equal(final, bare[0])


@pytest.mark.slow(optimised=False)
def test_equals_bare_playground():
    pytest.importorskip("mujoco_playground")
    env: Any = envs.make(PLAYGROUND)
    actions = jnp.linspace(-1, 1, 3)[:, None]

    def ours():
        _, state = env.reset_env(KEY, env.default_params)

        def body(state, action):
            obs, state, reward, _, _ = env.step_env(KEY, state, action, None)
            return state, (obs, reward)

        return jax.lax.scan(body, state, actions)[1]

    def theirs():
        def body(state, action):
            state = env.wrapped.step(state, action)
            return state, (state.obs, state.reward)

        return jax.lax.scan(body, env.wrapped.reset(KEY), actions)[1]

    with jax.numpy_rank_promotion("allow"):
        found, bare = jax.jit(ours)(), jax.jit(theirs)()
    for one, other in zip(found, bare, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


KEPT = [f"jumanji/{name}" for name in ("Snake-v1", "Tetris-v0", "Connector-v3")]


@pytest.mark.slow(optimised=False)
@pytest.mark.parametrize("suite", KEPT, indirect=True)
def test_the_contract_is_kept(suite):
    envs.check(envs.make(suite))


@pytest.mark.slow
@pytest.mark.parametrize("suite", [CRAFTAX, PLAYGROUND], indirect=True)
def test_a_run_is_saved_and_goes_on_to_the_same_end(suite, tmp_path):
    # Playground's state has arrays without elements: the contacts of a pole.
    options = {"impl": "jax"} if suite == PLAYGROUND else {}
    config = purerl.PPOConfig(
        env=suite,
        env_kwargs=options,
        total_timesteps=64,
        num_envs=2,
        num_steps=8,
        num_minibatches=2,
        hidden_sizes=(4,),
        num_evaluations=0,
        anneal_learning_rate=False,
    )
    said = {"seeds": 2, "lanes": 2, "progress": False}
    whole = purerl.run(config, **said)
    out = tmp_path / "run"
    purerl.run(config.replace(total_timesteps=32), **said, out=out)
    found = purerl.run(config, **said, out=out, resume=True, extend=True)
    assert_same_bits(found.state, whole.state)

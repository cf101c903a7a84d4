"""Every registered environment keeps the contract."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs
from purerl.envs.registry import GYMNAX_IDS
from tests.envs.episodes import played
from tests.helpers import slow_but

OWN_IDS = [id for id in envs.registered() if envs.source_of(id) == "purerl"]
OPTIONS = [
    ("Doors-v0", {"observation": "planes"}),
    ("Doors-v0", {"size": (7, 9)}),
    ("probe/chain", {"length": 9}),
    ("probe/chain", {"continuous": True}),
    ("CliffWalking-v0", {"size": (4, 12), "cliff_ends": False}),
    ("GridWorld-v0", {"size": (3, 5), "start": (1, 1), "goal": (2, 4)}),
    ("KArmedBandit-v0", {"num_arms": 3}),
    ("ObjectGrid-v0", {"size": (3, 4), "num_objects": 2, "observation": "vector"}),
    ("Maze-v0", {"size": (4, 3), "view": 3, "max_walls": 5}),
]

# Every wrapper, and all kinds of space; the first is in `make test`.
WRAPPED = [
    ("probe/delayed-reward", ("ActionRepeat(2)", "PreviousActionReward")),
    ("FrozenLake-misc", ("OneHotObservation", "TimeObservation", "StickyActions")),
    ("CartPole-v1", ("FrameStack(3)", "TerminalLimit")),
    ("Breakout-MinAtar", ("StickyActions(0.1)", "FrameStack(2, zero)", "ClipReward")),
    ("Catch-bsuite", ("FlattenObservation", "ScaleReward(0.5)", "FrameStack(2)")),
    (
        "Pendulum-v1",
        (
            *("SelectObservation((0, 1))", "PreviousActionReward", "ActionRepeat(3)"),
            "TimeObservation",
        ),
    ),
    ("Maze-v0", ("FrameStack(2)", "RandomLevels")),
]

# Observations of these leave the bounds that gymnax 1.0.1 declares, now and then.
LEAVES_ITS_SPACE = {
    "GaussianBandit-misc",
    "MemoryChain-bsuite",
    "MetaMaze-misc",
    "UmbrellaChain-bsuite",
}
# One or two of each family and kind of space, and those that leave it; each of the
# others is a compilation of several seconds, which `make test-slow` has time for.
EVERY_TIME = (
    "DeepSea-bsuite",
    "FourRooms-misc",
    "GaussianBandit-misc",
    "MNISTBandit-bsuite",
    "MemoryChain-bsuite",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
    "Swimmer-misc",
    "UmbrellaChain-bsuite",
)
NEEDS_DATA = {"MNISTBandit-bsuite": "downloads MNIST when it is made"}


# The same class as another one with other numbers.
SAME_CODE = (
    "CartpoleSwingupSparse-v0",
    "CartpoleBalance-v0",
    "CartpoleBalanceSparse-v0",
    "MatchingPennies-v0",
    "Chicken-v0",
    "GridWorld-v0",
)
# What `make test` tries is in tests/envs; the contract takes seconds to compile.
COSTLY = (
    *("CartpoleSwingup-v0", "IteratedPrisonersDilemma-v0", "cheap-talk/CartPole-v1"),
    *("probe/action-observation", "probe/chain", "probe/memory"),
)
OWN = [
    pytest.param(id, {}, marks=[pytest.mark.slow] if id in SAME_CODE + COSTLY else [])
    for id in OWN_IDS
]


def test_those_of_the_same_code_are_environments():
    assert {*SAME_CODE, *COSTLY} < set(OWN_IDS)


@pytest.mark.parametrize(
    ("id", "options"),
    [*OWN, *(pytest.param(*o, marks=pytest.mark.slow) for o in OPTIONS)],
)
def test_own_environments_pass_the_checker(id, options):
    envs.check(envs.make(id, **options), key=jax.random.key(7))


@pytest.mark.parametrize(
    ("id", "texts"),
    [WRAPPED[0], *(pytest.param(*row, marks=pytest.mark.slow) for row in WRAPPED[1:])],
)
def test_wrapped_environments_pass_the_checker(id, texts):
    with jax.numpy_rank_promotion("allow"):
        envs.check(envs.wrap(envs.make(id), texts), key=jax.random.key(7))


def test_every_wrapper_is_checked():
    named = {text.split("(")[0] for _, texts in WRAPPED for text in texts}
    ours = {
        cls.__name__
        for cls in envs.wrappers.WRAPPERS.values()
        if cls.__module__.startswith("purerl.")
    }
    assert named == ours


@pytest.mark.parametrize("id", slow_but(GYMNAX_IDS, *EVERY_TIME))
def test_gymnax_environments_keep_the_contract(id):
    """One compiled, vmapped rollout with a time limit of 5."""
    if id in NEEDS_DATA:
        pytest.skip(NEEDS_DATA[id])
    env = envs.make(id)
    params = env.default_params
    limit = type(params.max_steps_in_episode)(5)  # A float in one of them.
    params = params.replace(max_steps_in_episode=limit)
    space = env.observation_space(params)
    keys = jax.random.split(jax.random.key(0), 3)
    traces = []

    def play(key):
        traces.append(id)
        steps = played(env, params, key, 24)[1]
        return steps, jax.vmap(space.contains)(steps.final)

    with jax.numpy_rank_promotion("allow"):  # gymnax's code broadcasts across ranks.
        fn = jax.jit(jax.vmap(play))
        fn(keys)
        steps, inside = fn(jax.random.split(jax.random.key(0), 3))
    _, obs, final, _, reward, terminated, truncated, _ = steps
    assert len(traces) == 1
    assert obs.shape[2:] == final.shape[2:] == space.shape
    assert obs.dtype == final.dtype == space.dtype
    assert reward.dtype == jnp.float32 and reward.shape == (3, 24)
    assert terminated.dtype == truncated.dtype == jnp.bool_
    assert jnp.isfinite(final.astype(jnp.float32)).all() and jnp.isfinite(reward).all()
    assert not (terminated & truncated).any()
    done = np.asarray(terminated | truncated)
    np.testing.assert_array_equal(np.asarray(obs)[~done], np.asarray(final)[~done])
    for row in done:  # Nobody outlasts the limit.
        ends = np.concatenate([[-1], np.flatnonzero(row)])
        assert (np.diff(ends) <= 5).all() and len(ends) >= 5
    assert inside.all() or id in LEAVES_ITS_SPACE

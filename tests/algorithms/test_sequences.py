"""Sequences of a rollout: what they begin with, and what burn-in does and leaves."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl.acting.environment import resolve_env
from purerl.algorithms import policy_gradient, ppo
from tests import boxes, nets
from tests.algorithms import by_hand
from tests.algorithms.agents import rolled as rolled_from
from tests.algorithms.agents import rows_of
from tests.helpers import slow_but

STEPS, ENVS = 12, 4
CONFIG = purerl.RecurrentPPOConfig(
    env="probe/chain",  # terminations and truncations
    env_kwargs={"length": 5},
    num_envs=ENVS,
    num_steps=STEPS,
    sequence_length=STEPS,
    num_minibatches=1,
    total_timesteps=ENVS * STEPS * 4,
    hidden_sizes=(4,),
    memory=nets.Leaky(4),
    head_sizes=(),
    normalize_advantages=False,
    entropy_coef=0.0,
)


APART = {"env": boxes.WatchedChain(5), "env_kwargs": {}, "actor_keys": ("some",)}


class Side(NamedTuple):
    """One of the memories of an agent, and where it is found.

    Attributes:
        changes: Fields that give actor and critic one memory, or two.
        core: Name of its parameters, and of its network among the parts.
        memory: Name of it among two memories.
        key: Key of what heads see of it, of two.
    """

    changes: dict
    core: str = "core"
    memory: str = ""
    key: str = ""

    def of(self, memories):
        return getattr(memories, self.memory) if self.memory else memories

    def seen(self, obs):
        return obs[self.key] if self.key else obs


SIDES = {
    "one memory": Side({}),
    "the actor's": Side(APART, "core", "actor", "<features>"),
    "the critic's": Side(APART, "critic_core", "critic", "<features of the critic>"),
}


class Rolled:
    """A rollout of a state in the midst of training, and its losses by parameters."""

    def __init__(self, side):
        self.side = side
        self.config = CONFIG.replace(**side.changes)
        self.env = resolve_env(self.config)
        parts = policy_gradient.make_agent(self.config, self.env)
        self.state, self.played = rolled_from(parts, ppo.learn)
        rng = np.random.default_rng(0)
        self.moved = jax.tree.map(
            lambda x: x + jnp.asarray(rng.normal(0, 0.3, x.shape), jnp.float32),
            self.state.params,
        )

    def parts(self, **changes):
        return policy_gradient.make_agent(self.config.replace(**changes), self.env)

    def seen(self, params, *cuts):
        """What heads see of a memory, `[B, T, H]`, in the order of the steps."""

        @jax.jit
        def see(params, state, played):
            found = []
            for parts in (self.parts(**cut) for cut in cuts):
                rows = rows_of(ppo, parts, state, played)
                obs = parts.samples_of(params, rows).obs
                found.append(self.side.seen(obs).reshape(ENVS, STEPS, -1))
            return found

        return [np.asarray(x) for x in see(params, self.state, self.played)]


@pytest.fixture(scope="module", params=slow_but(SIDES, "one memory"))
def rolled(request):
    found = Rolled(SIDES[request.param])
    done = found.played.transitions.terminated | found.played.transitions.truncated
    assert done[3].any() and not done[3].all()  # just before the second sequence of 4
    return found


CUTS = ({}, {"sequence_length": 4}, {"sequence_length": 4, "burn_in": 3})


@pytest.mark.slow(optimised=False)
def test_with_the_parameters_that_acted_all_cuts_are_the_whole_rollout(rolled):
    cuts = (*CUTS, {"sequence_length": 6, "burn_in": 6})
    whole, *others = rolled.seen(rolled.state.params, *cuts)
    stored = rolled.side.of(rolled.played.memories).output.swapaxes(0, 1)
    for found in (stored, *others):
        np.testing.assert_allclose(found, whole, rtol=1e-5, atol=1e-6)


def test_with_other_parameters_a_sequence_begins_where_its_cut_says(rolled):
    # The reference: the steps again, one environment at a time, from the memory that
    # was stored before the sequence or before its burn-in.
    parts, moved = rolled.parts(), rolled.moved
    first = np.zeros((STEPS, ENVS), bool)
    ended = rolled.played.transitions.terminated | rolled.played.transitions.truncated
    first[1:] = ended[:-1]
    side = rolled.side
    stored = side.of(rolled.played.memories).carry
    core, obs = getattr(parts.memory, side.core), rolled.played.transitions.obs
    entering = np.asarray(by_hand.entering(core, moved[side.core], obs))
    seen = rolled.seen(moved, *CUTS)
    for changes, found in zip(CUTS, seen, strict=True):
        length = changes.get("sequence_length", STEPS)
        burn_in = changes.get("burn_in", 0)
        for k in range(STEPS // length):
            begin = max(0, k * length - burn_in)
            before = side.of(rolled.state.memory).carry
            total = before if begin == 0 else stored[begin - 1]
            total = np.asarray(total)
            for t in range(begin, (k + 1) * length):
                total = np.where(first[t][:, None], 0.0, 0.5 * total) + entering[t]
                if t >= k * length:
                    np.testing.assert_allclose(found[:, t], total, rtol=1e-4, atol=1e-5)
    # So the cuts differ, and burn-in lies between stored memories and the whole.
    whole, cut, burned = seen
    far, near = np.abs(cut - whole)[:, 4:], np.abs(burned - whole)[:, 4:]
    assert far.max() > 0.01 and near.mean() < 0.5 * far.mean()


def test_no_gradient_goes_through_the_steps_before_a_sequence(rolled):
    # With the memory after the burn-in put in by hand, as a constant, the gradient is
    # the same; and of a cut without burn-in it is another.
    _, cut, burned = (rolled.parts(**changes) for changes in CUTS)

    @jax.jit
    def slopes(params, state, played):
        def slope(parts, rows):
            return jax.grad(lambda params: ppo.loss(parts, params, rows)[0])(params)

        rows = rows_of(ppo, burned, state, played)
        constant = burned.memory.begun(params, rows)
        other = slope(cut, rows_of(ppo, cut, state, played))
        return slope(burned, rows), slope(burned, constant), other

    found = slopes(rolled.moved, rolled.state, rolled.played)
    far = 0.0
    for x, y, z in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)
        far = max(far, float(np.abs(x - z).max()))
    assert far > 1e-3


def test_burnt_in_steps_are_learned_from_once_and_only_there(rolled):
    # Each step of the rollout is a sample of one sequence: what burn-in sees of it are
    # observations and flags alone.
    gather = jax.jit(partial(rows_of, ppo, rolled.parts(**CUTS[2])))
    rows = gather(rolled.state, rolled.played)
    assert rows.batch.action.shape == (ENVS * 3, 4)
    transitions = rolled.played.transitions
    action = np.asarray(rows.batch.action).reshape(ENVS, STEPS)
    np.testing.assert_array_equal(action, transitions.action.T)
    for burned, played in zip(
        *map(jax.tree.leaves, (rows.burn_in.obs, transitions.obs)), strict=True
    ):
        obs = np.asarray(burned).reshape(ENVS, 3, 3, -1)
        for k in (1, 2):
            steps = played[4 * k - 3 : 4 * k].swapaxes(0, 1)
            np.testing.assert_array_equal(obs[:, k], steps)
    exists = rows.burn_in.exists.reshape(ENVS, 3)
    np.testing.assert_array_equal(exists, np.tile([False, True, True], (ENVS, 1)))


def test_a_gradient_step_is_as_deep_as_its_sequence():
    """What evaluations may cost follows from it."""
    cut = CONFIG.replace(sequence_length=4, burn_in=2, num_epochs=3, num_minibatches=2)
    assert CONFIG.sequential_steps == STEPS * (1 + CONFIG.num_epochs)
    assert cut.sequential_steps == STEPS + 3 * 2 * (4 + 2)

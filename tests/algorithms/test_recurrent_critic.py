"""A critic of recurrent PPO that sees more than the actor: its own memory, not theirs.

What the tests of recurrent PPO and of sequences say of one memory, they say of two as
well: `test_recurrent_ppo.py` and `test_sequences.py`.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import envs
from purerl.acting.rollout import Memories
from purerl.algorithms import on_policy, ppo
from tests import boxes, nets
from tests.algorithms.agents import agent_of, rows_of
from tests.algorithms.agents import rolled as rolled_from
from tests.helpers import assert_same_bits, slow_but

CONFIG = purerl.RecurrentPPOConfig(
    env=boxes.Privileged(),
    actor_keys=("obs",),
    critic_keys=("obs", "state"),
    num_envs=4,
    num_steps=12,  # three episodes
    num_minibatches=1,
    total_timesteps=4 * 12 * 3,
    hidden_sizes=(8,),
    memory_size=8,
    head_sizes=(8,),
    num_evaluations=0,
)
MASKED = envs.ActionMask(
    boxes.Privileged(), lambda state, params: jnp.stack([state.time % 2 > 0, True])
)
CUT = {"sequence_length": 4, "burn_in": 3}
CONFIGS = {
    "gru": CONFIG,
    "lstm": CONFIG.replace(memory="lstm", normalize_observations=True),
    "transformer": CONFIG.replace(memory="transformer", **CUT),
    "own": CONFIG.replace(memory=nets.Leaky(4), critic=nets.Value(), **CUT),
    "masked": CONFIG.replace(env=MASKED),
    "continuous": CONFIG.replace(env=boxes.Privileged(is_discrete=False)),
}
ACTOR, CRITIC = ("actor", "core"), ("critic", "critic_core")


def shifted(obs):
    """Observations of which the critic alone sees something else."""
    return {**obs, "state": obs["state"] + jnp.sin(1.0 + obs["state"])}


class Rolled:
    """A rollout as it was, and with other numbers for the critic alone."""

    def __init__(self, config):
        self.parts = agent_of(config)
        self.state, self.played = rolled_from(self.parts, ppo.learn)
        self.rows = jax.jit(partial(rows_of, ppo, self.parts))(self.state, self.played)
        batch, burn_in = self.rows.batch, self.rows.burn_in
        if burn_in is not None:
            burn_in = burn_in._replace(obs=shifted(burn_in.obs))
        batch = batch._replace(obs=shifted(batch.obs))
        self.moved = self.rows._replace(batch=batch, burn_in=burn_in)

    def outputs(self, network, rows):
        """What a network says of the steps, `[N, ...]`."""
        samples = self.parts.samples_of(self.state.params, rows)
        head = self.parts.networks[network]
        found = head.apply(self.state.params[network], samples.obs)
        if network == "critic":
            return found
        return self.parts.head.log_prob(found, samples.action)

    def gradients(self, **changes):
        """Of the rows as they were, and as the critic alone sees them otherwise."""
        parts = self.parts._replace(config=self.parts.config.replace(**changes))
        slope = jax.jit(jax.grad(lambda p, rows: ppo.loss(parts, p, rows)[0]))
        return [slope(self.state.params, rows) for rows in (self.rows, self.moved)]


@pytest.fixture(scope="module", params=slow_but(CONFIGS, "gru"))
def rolled(request):
    return Rolled(CONFIGS[request.param])


def test_the_policy_does_not_depend_on_what_the_critic_alone_sees(rolled):
    """Actions, memories and log-probabilities are the same bits; values are not."""
    parts, state = rolled.parts, rolled.state
    obs = jax.tree.map(lambda x: x[:3], rolled.played.transitions.obs)
    act = jax.jit(partial(on_policy.act, parts))
    memory = parts.memory.kind.blank((4,))
    assert not isinstance(memory, Memories)
    for key in (None, jax.random.key(2)):
        one = two = memory
        for t in range(3):
            now = jax.tree.map(lambda x, t=t: x[t], obs)
            first, one = act(state, now, one, key)
            second, two = act(state, shifted(now), two, key)
            assert_same_bits(first, second)
            assert_same_bits(one, two)
    for network, is_same in (("actor", True), ("critic", False)):
        outputs = jax.jit(partial(rolled.outputs, network))
        one, two = outputs(rolled.rows), outputs(rolled.moved)
        assert np.array_equal(one, two) == is_same


def test_each_loss_has_the_gradient_of_its_own_networks(rolled):
    """And that of the policy is the same bits, whatever the critic alone sees."""
    one, two = rolled.gradients(value_coef=0.0, entropy_coef=0.1)
    assert_same_bits(one, two)
    assert all(largest(one[name]) > 0 for name in ACTOR)
    assert all(largest(one[name]) == 0 for name in CRITIC)

    both, other = rolled.gradients(entropy_coef=0.1)
    for name in ACTOR:
        assert largest(jax.tree.map(jnp.subtract, both[name], one[name])) < 1e-6
    for name in CRITIC:
        assert largest(both[name]) > 0
        assert largest(jax.tree.map(jnp.subtract, both[name], other[name])) > 1e-4


def largest(tree):
    return max(float(jnp.abs(x).max()) for x in jax.tree.leaves(tree))


# Which keys give the critic a memory of its own, and what is refused


def test_the_same_keys_in_other_words_are_one_memory():
    def names(**keys):
        algorithm = purerl.make_algorithm(CONFIG.replace(**keys))
        return set(jax.eval_shape(algorithm.init, jax.random.key(0)).params)

    one = {"core", "actor", "critic"}
    assert names(actor_keys=(), critic_keys=("state", "obs")) == one
    assert names(actor_keys=("obs",), critic_keys=("obs",)) == one
    assert names(actor_keys=("obs",), critic_keys=()) == {*one, "critic_core"}
    assert names(actor_keys=(), critic_keys=("state",)) == {*one, "critic_core"}


def test_the_step_size_of_the_critic_is_that_of_its_memory_too():
    config = CONFIG.replace(critic_learning_rate=1e-9, total_timesteps=4 * 12)
    algorithm = purerl.make_algorithm(config)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    difference = partial(jax.tree.map, jnp.subtract)
    after = jax.jit(algorithm.step)(state)[0].params
    moved = {x: largest(difference(after[x], state.params[x])) for x in after}
    assert all(moved[name] > 1e-5 for name in ACTOR)
    assert all(moved[name] < 1e-7 for name in CRITIC)

"""The learned policy gradient: its update in closed forms, rules and meta-gradient."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from scipy import special

import purerl
from purerl import optimisers, serialise
from purerl.algorithms import lpg, on_policy, policy_gradient, vpg
from purerl.config import ConfigError
from purerl.keys import update_keys
from purerl.rules import ActorCriticRule, LPGRule, ReturnRule, RuleInputs, Targets
from tests.algorithms.agents import agent_of, compiled, samples_of
from tests.helpers import assert_close, assert_same_bits

NETWORKS = {"num_envs": 2, "num_steps": 32, "hidden_sizes": (5,), "num_evaluations": 0}
UPDATES = 4
SIZE = 3
RULE = LPGRule.make(4, SIZE, 5, seed=1)
# Gradient descent with steps of size 1: a step is the gradient.
CONFIG = purerl.LPGConfig(
    **NETWORKS,
    rule=RULE,
    learning_rate=1.0,
    optimiser=optimisers.SGD(),
    total_timesteps=UPDATES * 2 * 32,
)


def bound(config, make_agent=lpg.make_agent):
    return agent_of(purerl.resolve(config), make_agent)


@pytest.fixture(scope="module")
def played():
    """Parts, a state, and the rollout of its first update, in which episodes end."""
    parts, init = bound(CONFIG), jax.jit(purerl.make_algorithm(CONFIG).init)
    state = init(jax.random.key(0))
    collect = jax.jit(lambda state: on_policy.collect(parts, state, keys_of(state)))
    collected = collect(state)
    assert collected.transitions.terminated.any()
    return parts, state, collected


def keys_of(state):
    return update_keys(state, 3)


def learned(parts, state, collected):
    """Parameters after the update of a rollout, and its metrics."""

    @jax.jit
    def learn(state, collected):
        return lpg.learn(parts, state, collected, keys_of(state)[0])

    new = learn(state, collected)
    return new.params, new.metrics


def with_config(parts, **changes):
    return parts._replace(config=parts.config.replace(**changes))


def moved(state, params):
    """By how much the parameters moved, against the gradient."""
    return jax.tree.map(lambda old, new: old - new, state.params, params)


# The agent's update.


def test_with_returns_as_targets_a_step_is_that_of_vpg(played):
    parts, state, collected = played
    config = purerl.VPGConfig(
        **NETWORKS,
        advantage="rewards_to_go",
        baseline=False,
        normalize_advantages=False,
        total_timesteps=UPDATES * 2 * 32,
    )
    theirs = bound(config, policy_gradient.make_agent)
    init = purerl.make_algorithm(config).init
    shapes = jax.eval_shape(init, jax.random.key(0))
    # REINFORCE knows nothing of what lies beyond a cut; VPG's critic says 0 there.
    critic = jax.tree.map(lambda x: np.zeros(x.shape), shapes.params["critic"])
    params = {"actor": state.params["actor"], "critic": critic}

    @jax.jit
    def gradient(transitions):
        start = state._replace(params=params)
        batch = samples_of(vpg, theirs, start, transitions)
        slope = jax.grad(vpg.policy_loss, argnums=1, has_aux=True)
        return slope(theirs, params["actor"], batch)[0]

    expected = gradient(collected.transitions)

    reinforce = with_config(parts, rule=ReturnRule())
    step = moved(state, learned(reinforce, state, collected)[0])
    assert_close(step["actor"], expected, rtol=1e-3, atol=1e-5)
    assert min(np.abs(x).max() for x in jax.tree.leaves(expected)) > 1e-3
    # The prediction is its own target, where the divergence has its minimum.
    assert max(np.abs(x).max() for x in jax.tree.leaves(step["critic"])) < 1e-5


def test_the_prediction_moves_along_the_divergence_in_closed_form(played):
    # d KL(y || q) / d logits = y (log y - log q - KL), and that is also the gradient of
    # the last biases, averaged over the samples.
    parts, state, collected = played
    rule = LPGRule.make(4, SIZE, 5, seed=2)
    there = with_config(parts, rule=rule, prediction_coef=0.7)
    inputs = compiled(partial(lpg.rule_inputs, there), state, collected.transitions)
    log_y = np.asarray(inputs.log_prediction, float)
    log_q = np.asarray(compiled(rule.__call__, inputs).log_prediction, float)
    y = np.exp(log_y)
    np.testing.assert_allclose(y.sum(-1), 1.0, rtol=1e-5)
    divergence = (y * (log_y - log_q)).sum(-1, keepdims=True)
    expected = 0.7 * (y * (log_y - log_q - divergence)).mean((0, 1))

    params, metrics = learned(there, state, collected)
    step = moved(state, params)["critic"]["params"]["Dense_0"]["bias"]
    assert np.abs(expected).max() > 1e-2
    np.testing.assert_allclose(step, expected, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(metrics["prediction_loss"], divergence.mean(), rtol=1e-4)


def test_the_policy_moves_along_the_weighted_score_in_closed_form(played):
    # The gradient of the last biases is that of the logits, onehot(a) - pi.
    parts, state, collected = played
    there = with_config(parts, prediction_coef=0.0)
    transitions = collected.transitions
    inputs = compiled(partial(lpg.rule_inputs, there), state, transitions)
    weight = compiled(RULE.__call__, inputs).policy
    logits = compiled(parts.actor.apply, state.params["actor"], transitions.obs)
    score = np.eye(2)[transitions.action] - special.softmax(logits, -1)
    expected = (weight[..., None] * score).mean((0, 1))
    step = moved(state, learned(there, state, collected)[0])
    bias = step["actor"]["params"]["Dense_0"]["bias"]
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(-bias, expected, rtol=1e-3, atol=1e-6)
    assert max(np.abs(x).max() for x in jax.tree.leaves(step["critic"])) == 0


def test_the_entropy_bonus_flattens_the_policy(played):
    # dH / d logits = -pi (log pi + H).
    parts, state, collected = played
    there = with_config(parts, rule=Share(), prediction_coef=0.0, entropy_coef=0.5)
    obs = collected.transitions.obs
    logits = compiled(parts.actor.apply, state.params["actor"], obs)
    log_pi = special.log_softmax(np.asarray(logits, float), -1)
    pi = np.exp(log_pi)
    slope = -pi * (log_pi - (pi * log_pi).sum(-1, keepdims=True))
    # The first update, in which the share of the run is 0: nothing else acts.
    step = moved(state, learned(there, state, collected)[0])
    bias = step["actor"]["params"]["Dense_0"]["bias"]
    np.testing.assert_allclose(-bias, 0.5 * slope.mean((0, 1)), rtol=1e-3, atol=1e-7)


# Rules that were written by hand.


def inputs_of(reward, log_prediction, next_log_prediction, ends, gamma=0.9):
    """Inputs of one environment; `ends` has t, T or a dot for every step."""
    flags = np.array(list(ends))
    column = np.asarray(reward, np.float32)[:, None]
    return RuleInputs(
        reward=jnp.asarray(column),
        terminated=jnp.asarray(flags == "T")[:, None],
        truncated=jnp.asarray(flags == "t")[:, None],
        gamma=gamma,
        log_prob=jnp.log(jnp.full(column.shape, 0.5)),
        log_prediction=jnp.asarray(log_prediction, jnp.float32)[:, None],
        next_log_prediction=jnp.asarray(next_log_prediction, jnp.float32)[:, None],
        share=jnp.float32(0.25),
        num_updates=jnp.float32(8.0),
    )


def test_the_actor_critic_rule_is_the_advantage_of_its_values():
    # Two returns, 0 and 1: the value is the second probability. Values 0.5, 0.2, 0.4,
    # and 0.2, 0.9, 0.3 after the step; it terminates after the first, is cut after the
    # second, and the rollout ends with the third.
    value, after = np.array([0.5, 0.2, 0.4]), np.array([0.2, 0.9, 0.3])
    stacked = [np.log(np.stack([1 - v, v], -1)) for v in (value, after)]
    targets = ActorCriticRule(low=0.0, high=1.0, gae_lambda=0.5)(
        inputs_of([1.0, 0.1, 0.0], *stacked, "Tt.")
    )
    expected = [1.0 - 0.5, 0.1 + 0.9 * 0.9 - 0.2, 0.9 * 0.3 - 0.4]
    np.testing.assert_allclose(targets.policy[:, 0], expected, rtol=1e-5)
    # Bells of width 1 around 1, 0.91 and 0.27: two weights exp(-z^2 / 2).
    centre = np.array([1.0, 0.91, 0.27])
    weights = np.exp(-0.5 * (np.array([0.0, 1.0]) - centre[:, None]) ** 2)
    weights /= weights.sum(-1, keepdims=True)
    found = np.exp(targets.log_prediction[:, 0])
    np.testing.assert_allclose(found, weights, rtol=1e-5)


def test_what_bells_settle_on_is_the_bell_of_their_mean():
    # The minimum of E[KL(y || q)] is proportional to exp(E[log q]).
    rule = ActorCriticRule(low=-2.0, high=6.0, spread=1.5)
    support, returns = rule.support(30), jnp.array([0.5, 3.0, 1.0])
    settled = jax.nn.log_softmax(rule.bell(returns, support).mean(0))
    np.testing.assert_allclose(settled, rule.bell(returns.mean(), support), atol=1e-4)
    np.testing.assert_allclose(jnp.exp(settled) @ support, 1.5, atol=1e-2)


# The learned rule.


def random_inputs(ends):
    draw = np.random.default_rng(0).normal
    weights = np.exp(draw(size=(2, len(ends), SIZE)))
    logs = np.log(weights / weights.sum(-1, keepdims=True))
    return inputs_of(draw(size=len(ends)), *logs, ends)


def test_a_step_hears_of_itself_and_of_what_follows_in_its_episode():
    ends = "..t..T.."
    inputs = random_inputs(ends)

    @jax.jit
    def policy(reward):
        return RULE(inputs._replace(reward=reward[:, None])).policy[:, 0]

    slopes = np.asarray(jax.jit(jax.jacobian(policy))(inputs.reward[:, 0]))
    episode = np.cumsum([0, *(end != "." for end in ends)])[:-1]
    later = np.arange(8)[None] >= np.arange(8)[:, None]
    heard = later & (episode[None] == episode[:, None])
    np.testing.assert_array_equal(slopes != 0, heard)


def test_a_prediction_beyond_a_time_limit_counts_and_beyond_an_end_does_not():
    inputs = random_inputs(".t.T..")

    @jax.jit
    @jax.grad
    def slopes_of(beyond):
        found = RULE(inputs._replace(next_log_prediction=beyond))
        return found.policy.sum() + (found.log_prediction**2).sum()

    slopes = slopes_of(inputs.next_log_prediction)
    counts = (np.asarray(slopes)[:, 0] != 0).any(-1)
    np.testing.assert_array_equal(counts, [True, True, True, False, True, True])


def test_a_time_limit_looks_like_the_end_of_the_rollout():
    inputs = random_inputs("....")
    cut = inputs._replace(truncated=inputs.truncated.at[1].set(True))
    first_two = jax.tree.map(lambda x: x[:2] if jnp.ndim(x) > 1 else x, inputs)
    targets = jax.jit(RULE.__call__)
    for whole, short in zip(targets(cut), targets(first_two), strict=True):
        np.testing.assert_allclose(whole[:2], short, rtol=1e-5, atol=1e-6)


def test_a_rule_with_silent_outputs_is_its_base():
    base = ActorCriticRule(low=-1.0, high=2.0)
    rule = LPGRule.make(4, SIZE, 5, init="zeros", base=base)
    inputs = random_inputs("..T.")
    rules = rule, base, rule.replace(base=None)
    both, known, alone = compiled(lambda x: [each(x) for each in rules], inputs)
    np.testing.assert_array_equal(both.policy, known.policy)
    np.testing.assert_allclose(both.log_prediction, known.log_prediction, atol=1e-6)
    np.testing.assert_array_equal(alone.policy, 0.0)
    np.testing.assert_allclose(alone.log_prediction, -np.log(SIZE), rtol=1e-6)


@struct.dataclass
class Share:
    """A rule whose target of the policy is the share of the run."""

    def __call__(self, inputs):
        share = jnp.full_like(inputs.reward, inputs.share)
        return Targets(share, inputs.log_prediction)


def test_a_rule_is_told_the_share_of_the_run():
    train = jax.jit(purerl.make_train(CONFIG.replace(rule=Share())))
    seen = train(jax.random.key(0)).metrics["policy_target"]
    np.testing.assert_allclose(seen, np.arange(UPDATES) / UPDATES, rtol=1e-6)


def test_a_temporally_aware_rule_sees_the_share_and_the_length_of_the_run():
    aware = LPGRule.make(4, SIZE, 5, temporal=True)
    inputs = random_inputs("....")
    features = aware.features(inputs)
    assert features.shape == (4, 1, 8)
    np.testing.assert_array_equal(features[..., 6], 0.25)
    np.testing.assert_allclose(features[..., 7], np.log(8.0), rtol=1e-6)
    later = inputs._replace(share=jnp.float32(0.75))
    assert (aware(inputs).policy != aware(later).policy).all()
    np.testing.assert_array_equal(RULE(inputs).policy, RULE(later).policy)


def test_every_number_of_a_rule_has_a_finite_meta_gradient(played):
    parts, state, collected = played
    leaves = jax.tree.leaves(state.params)

    def outcome(rule):
        params, _ = learned(with_config(parts, rule=rule), state, collected)
        after = jax.tree.leaves(params)
        return sum(((x - y) ** 2).sum() for x, y in zip(after, leaves, strict=True))

    based = LPGRule.make(4, SIZE, 5, base=ActorCriticRule(low=-1.0, high=50.0))
    slopes = jax.tree.leaves(jax.jit(jax.grad(outcome))(based))
    assert all(np.isfinite(x).all() for x in slopes)
    assert all(np.abs(x).max() > 0 for x in slopes)


# Rules in files, on command lines, and evolved.


def test_a_rule_is_read_from_text_and_from_a_config():
    text = "LPGRule(hidden_size=4, prediction_size=3, init='zeros', "
    text += "base=ActorCriticRule(low=-1.0, high=1.0))"
    rule = serialise.parse_part(text, "rule")
    assert rule.prediction_size == 3 and rule.base == ActorCriticRule(-1.0, 1.0)
    np.testing.assert_array_equal(rule.params["policy"][0], np.zeros((4, 1)))
    config = CONFIG.replace(rule=rule)
    again = serialise.from_dict(serialise.to_dict(config))
    assert_same_bits(again.rule, rule)
    assert purerl.resolve(config).prediction_size == 3
    assert purerl.resolve(purerl.LPGConfig()).prediction_size == 30


@pytest.mark.parametrize(
    "rule",
    [
        ActorCriticRule(),
        LPGRule.make(prediction_size=1, init="zeros", base=ActorCriticRule()),
    ],
)
def test_one_number_is_no_support_of_returns(rule):
    """The bells would have no width, and the targets would be 0 / 0."""
    words = "^prediction_size must be at least 2 with ActorCriticRule.*, got 1; for"
    with pytest.raises(ConfigError, match=words):
        purerl.make_train(CONFIG.replace(rule=rule, prediction_size=1))
    alone = CONFIG.replace(rule=LPGRule.make(4, 1, 5), prediction_size=1)
    purerl.make_train(alone)


def test_what_is_no_rule_is_refused():
    for changes, words in (
        ({"rule": LPGRule}, "got the class LPGRule"),
        ({"rule": len}, "must be an instance of a flax.struct.dataclass"),
        ({"rule": optimisers.SGD()}, "SGD failed on them"),
        ({"prediction_size": 7}, "must be that of the rule, 3, got 7"),
        ({"env": "Pendulum-v1"}, "needs discrete actions"),
    ):
        with pytest.raises(ConfigError, match=words):
            purerl.make_train(CONFIG.replace(**changes))
    with pytest.raises(ConfigError, match="low must be less than high"):
        ActorCriticRule(low=1.0, high=1.0)
    with pytest.raises(ConfigError, match=r"there is no rule 'LPG'.*LPGRule"):
        serialise.parse_part("LPG()", "rule")
    with pytest.raises(ConfigError, match="init must be zeros or random"):
        LPGRule.make(init="ones")
    with pytest.raises(ConfigError, match="hidden_size must be a whole number"):
        LPGRule.make(hidden_size=0)

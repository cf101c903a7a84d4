"""DiscoRL's network against the authors' code, and what a rule must keep."""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import serialise
from purerl.config import ConfigError
from purerl.contrib.disco import algorithm
from purerl.contrib.disco import rules as disco_rules
from purerl.rules import CMPORule, DiscoRule
from tests.contrib import disco_case as known
from tests.helpers import assert_same_bits, lane

# The authors' weights (2.8 MB, CC-BY 4.0) are not in the repository.
WEIGHTS = os.environ.get("PURERL_DISCO_WEIGHTS", "")


class Numbers:
    """The numbers of a config that values read."""

    gamma, trace_decay = known.GAMMA, known.TRACE_DECAY
    advantage_decay, max_abs_value = known.DECAY, known.TOP


@pytest.fixture(scope="module")
def made(disco_file):
    return calls(DiscoRule.load(disco_file), known.SIZES)


def calls(rule, sizes):
    """What the values and the rule make of the calls, one by one."""
    memory, moments = rule.init(), algorithm.init_moments()

    @jax.jit
    def call(inputs, memory, moments):
        values, moments = algorithm.estimate(Numbers, inputs, moments)
        inputs = inputs._replace(values=values)
        return (inputs, *rule(inputs, memory), values), moments

    found = []
    for number in range(known.CALLS):
        inputs = trajectories(known.case(number, sizes))
        made, moments = call(inputs, memory, moments)
        memory = made[2]
        found.append(made)
    return found


def trajectories(case):
    """A case as inputs: as in the authors' code, what follows a step is the next one.

    With us it is the observation before any reset, which for a step within an episode
    is the same.
    """
    single = jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(float)), case)
    now, after = slice(None, -1), slice(1, None)
    flag = jnp.asarray(case.terminated)
    return disco_rules.DiscoInputs(
        jnp.asarray(case.action),
        single.reward,
        flag,
        jnp.zeros_like(flag),
        single.behaviour,
        lane(single.online, now),
        lane(single.online, after),
        lane(single.target, now),
        lane(single.target, after),
    )


def close(found, expected, tolerance=2e-5):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("call", range(known.CALLS))
def test_values_are_those_of_the_authors_code(made, reference, call):
    values = made[call][3]
    assert np.abs(reference[f"{call}/adv"]).max() > 1.0
    for ours, theirs in {
        "target": "q_target",
        "advantage": "adv",
        "standardised": "normalized_adv",
        "action_advantage": "qv_adv",
        "action_standardised": "normalized_qv_adv",
    }.items():
        close(getattr(values, ours), reference[f"{call}/{theirs}"])


@pytest.mark.parametrize("call", range(known.CALLS))
def test_targets_and_memory_are_those_of_the_authors_code(made, reference, call):
    _, targets, memory, _ = made[call]
    close(targets.logits, reference[f"{call}/pi"])
    close(targets.y, reference[f"{call}/y"])
    close(targets.z, reference[f"{call}/z"])
    close(memory.hidden, reference[f"{call}/memory"])
    # They would not be without what the agent remembers: the first gain is its bias.
    assert np.ptp(reference[f"{call}/pi"]) > 0.05


@pytest.mark.skipif(not WEIGHTS, reason="PURERL_DISCO_WEIGHTS names no file")
def test_the_published_weights_make_what_the_authors_code_makes(reference):
    rule = DiscoRule.load(WEIGHTS)
    assert rule.prediction_size == 600
    found = calls(rule, disco_rules.Sizes())
    for call in range(known.CALLS):
        close(found[call][1].logits, reference[f"published/{call}/pi"], 1e-4)
    last = known.CALLS - 1
    close(found[last][1].y[..., :4], reference[f"published/{last}/y"], 1e-4)
    close(found[last][1].z[..., :4], reference[f"published/{last}/z"], 1e-4)


# Ends of episodes.


@pytest.fixture(scope="module")
def follow(disco_file):
    """What the rule makes of inputs with an empty memory."""
    rule = DiscoRule.load(disco_file)
    return jax.jit(lambda inputs: rule(inputs, rule.init())[0])


def inputs_of(made, terminated=(), truncated=()):
    """The inputs of the first call whose episodes end after some steps, `[T, B]`."""

    def flags(steps):
        flag = np.zeros((known.STEPS, known.BATCH), bool)
        flag[list(steps)] = True
        return jnp.asarray(flag)

    return made[0][0]._replace(terminated=flags(terminated), truncated=flags(truncated))


def changed_after(inputs, step):
    """The same inputs up to a step, and others after it."""

    def change(x):
        is_later = (np.arange(known.STEPS) > step).reshape(-1, *[1] * (x.ndim - 1))
        return np.asarray(x) + np.float32(is_later)

    numbers = (inputs.reward, inputs.online, inputs.next_target, inputs.values)
    reward, online, next_target, values = jax.tree.map(change, numbers)
    return inputs._replace(
        reward=reward, online=online, next_target=next_target, values=values
    )


@pytest.mark.parametrize(
    ("ends", "hears"),
    [({}, True), ({"terminated": [2]}, False), ({"truncated": [2]}, False)],
    ids=["within an episode", "terminated", "truncated"],
)
def test_a_step_hears_of_what_follows_within_its_episode_only(
    follow, made, ends, hears
):
    inputs = inputs_of(made, **ends)
    before, after = follow(inputs), follow(changed_after(inputs, 2))
    for one, two in zip(before, after, strict=True):
        assert (np.asarray(one[3:]) != np.asarray(two[3:])).any()
        assert (np.asarray(one[:3]) != np.asarray(two[:3])).any() == hears


def test_the_network_is_told_of_a_termination_and_not_of_a_time_limit(follow, made):
    # Both empty the memory at the last step, where it is empty anyhow.
    last = known.STEPS - 1
    targets = [
        np.asarray(follow(inputs_of(made, **ends)).logits)
        for ends in ({}, {"truncated": [last]}, {"terminated": [last]})
    ]
    np.testing.assert_array_equal(targets[0], targets[1])
    assert np.abs(targets[0] - targets[2]).max() > 1e-4


# Rules by hand.


def test_cmpo_multiplies_the_target_policy_by_clipped_advantages(made):
    inputs = made[0][0]
    targets, memory = CMPORule(clip=0.5)(inputs, ())
    prior = np.exp(np.asarray(inputs.target.logits, float))
    advantage = np.asarray(inputs.values.action_standardised)
    assert (np.abs(advantage) > 0.5).any() and (np.abs(advantage) < 0.5).any()
    weight = prior * np.exp(np.clip(advantage, -0.5, 0.5))
    expected = weight / weight.sum(-1, keepdims=True)
    close(jax.nn.softmax(targets.logits), expected, 1e-5)
    # Its predictions are their own targets.
    np.testing.assert_array_equal(targets.y, inputs.online.y)
    taken = np.take_along_axis(
        np.asarray(inputs.online.z), np.asarray(inputs.action)[..., None, None], 2
    )
    np.testing.assert_array_equal(targets.z, taken[:, :, 0])
    assert memory == ()


# In configs and files, and what is refused.


def test_a_rule_of_a_file_is_a_path_in_the_config_and_comes_back(disco_file):
    rule = DiscoRule.load(disco_file)
    assert jax.tree.leaves(rule) == []  # nothing of it is in a state or in a YAML file
    config = purerl.DiscoConfig(rule=rule)
    text = serialise.to_dict(config)["rule"]
    assert text == {
        "type": "DiscoRule",
        "params": None,
        "path": str(disco_file),
        "sha256": disco_rules.read(str(disco_file))[1],
    }
    assert serialise.from_dict(serialise.to_dict(config)) == config
    assert serialise.parse_part(f"DiscoRule(path='{disco_file}')", "rule") == rule
    resolved: Any = purerl.resolve(config)
    assert resolved.prediction_size == known.SIZES.prediction


def test_a_random_rule_has_its_numbers_as_leaves_and_comes_back(tmp_path):
    rule = DiscoRule.make(
        hidden_size=3, lifetime_size=2, prediction_size=4, units=2, embedding_size=1
    )
    assert rule.prediction_size == 4
    layers = disco_rules.shapes_of(disco_rules.Sizes(3, 2, 4, 2, 1))
    assert len(jax.tree.leaves(rule)) == 2 * len(layers)
    path = serialise.save_part(rule, tmp_path / "rule.npz", "rule")
    assert_same_bits(serialise.load_part(path, "rule").params, rule.params)


def test_the_published_network_has_as_many_numbers_as_the_paper_says():
    shapes = disco_rules.shapes_of(disco_rules.Sizes())
    assert sum(rows * units + units for rows, units in shapes.values()) == 754_778


def test_files_that_cannot_be_used_are_refused_in_a_sentence(tmp_path):
    missing = tmp_path / "none.npz"
    with pytest.raises(
        ConfigError, match=r"can be read, got .*none\.npz.*No such file"
    ):
        DiscoRule.load(missing)
    text = tmp_path / "text.npz"
    text.write_text("no weights")
    with pytest.raises(ConfigError, match=r"file of DiscoRL's weights.*text\.npz"):
        DiscoRule.load(text)
    with text.open("wb") as file:  # One array, as of an .npy file.
        np.save(file, np.zeros(3))
    with pytest.raises(ConfigError, match=r"text\.npz.*one array"):
        DiscoRule.load(text)
    with pytest.raises(ConfigError, match=r"text\.npz.*is no file that"):
        serialise.load_part(text)

    def saved(**changes):
        path = tmp_path / "changed.npz"
        arrays = {**known.published(), **changes}
        np.savez(path, **{n: x for n, x in arrays.items() if x is not None})
        return path

    with pytest.raises(ConfigError, match="has no array 'lstm/linear_2/b'"):
        DiscoRule.load(saved(**{"lstm/linear_2/b": None}))
    with pytest.raises(ConfigError, match=r"'lstm/linear_3' has the shapes \(6, 4\)"):
        DiscoRule.load(saved(**{"lstm/linear_3/w": np.zeros((6, 4))}))
    with pytest.raises(ConfigError, match=r"finite weights.*'lstm/linear_1'"):
        DiscoRule.load(saved(**{"lstm/linear_1/b": np.array([np.nan])}))


def test_another_file_in_the_place_of_the_first_is_refused(tmp_path):
    path = tmp_path / "meta_network.npz"
    np.savez(path, **known.published(seed=0))
    config = purerl.DiscoConfig(rule=DiscoRule.load(path))
    np.savez(path, **known.published(seed=1))
    with pytest.raises(ConfigError, match="holds others: its SHA-256 is not"):
        purerl.make_train(config)

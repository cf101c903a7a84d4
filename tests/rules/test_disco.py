"""DiscoRL's network and losses against the authors' code, and what a rule must keep."""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.algorithms import disco_losses
from purerl.learning import moving
from purerl.networks.action_model import Predictions
from purerl.rules import DiscoRule
from purerl.types import Transition
from tests.rules import disco_case as known

REFERENCE = Path(__file__).with_name("disco_reference.npz")
# The authors' weights (2.8 MB, CC-BY 4.0) are not in the repository.
WEIGHTS = os.environ.get("PURERL_DISCO_WEIGHTS", "")
LOSSES = {
    "policy_loss": "pi_cost",
    "y_loss": "y_cost",
    "z_loss": "z_cost",
    "model_loss": "aux_policy_cost",
    "value_loss": "value_cost",
}


class Numbers:
    """The numbers of a config that values and losses read."""

    gamma, trace_decay = known.GAMMA, known.TRACE_DECAY
    advantage_decay, max_abs_value = known.DECAY, known.TOP


@pytest.fixture(scope="module")
def reference():
    with np.load(REFERENCE) as file:
        return {name: file[name] for name in file.files}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("disco") / "weights.npz"
    np.savez(path, **known.published())
    return path


@pytest.fixture(scope="module")
def made(file):
    return calls(DiscoRule.load(file), known.SIZES)


def calls(rule, sizes):
    """What the rule, the values and the losses make of the calls, one by one."""
    memory, moments = rule.init(), moving.init_moments()
    found = []
    for number in range(known.CALLS):
        batch, outputs = trajectories(known.case(number, sizes))
        values, moments = disco_losses.estimate(Numbers, batch, outputs, moments)
        inputs = disco_losses.rule_inputs(batch, outputs, values)
        targets, memory = rule(inputs, memory)
        losses = disco_losses.losses(Numbers, batch, outputs, targets, values)
        found.append((inputs, targets, memory, values, losses))
    return found


def trajectories(case):
    """A case as a batch: as in the authors' code, what follows a step is the next one.

    With us it is the observation before any reset, which for a step within an episode
    is the same.
    """
    single = jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(float)), case)

    def of(made, part):
        return Predictions(*(x[part] for x in made))

    now, after = slice(None, -1), slice(1, None)
    outputs = disco_losses.Made(
        of(single.online, now),
        of(single.online, after),
        of(single.target, now),
        of(single.target, after),
    )
    flag = jnp.asarray(case.terminated)
    batch = Transition(
        obs=jnp.zeros(()),
        action=jnp.asarray(case.action),
        log_prob=single.behaviour,
        reward=single.reward,
        next_obs=jnp.zeros(()),
        terminated=flag,
        truncated=jnp.zeros_like(flag),
    )
    return batch, outputs


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
    _, targets, memory, _, _ = made[call]
    close(targets.logits, reference[f"{call}/pi"])
    close(targets.y, reference[f"{call}/y"])
    close(targets.z, reference[f"{call}/z"])
    close(memory.hidden, reference[f"{call}/memory"])
    # They would not be without what the agent remembers: the first gain is its bias.
    assert np.ptp(reference[f"{call}/pi"]) > 0.05


@pytest.mark.parametrize("call", range(known.CALLS))
@pytest.mark.parametrize("name", LOSSES)
def test_each_loss_is_that_of_the_authors_code(made, reference, call, name):
    expected = reference[f"{call}/{LOSSES[name]}"]
    assert expected.max() > 0.05
    # The authors' two-hot weights are off by a share of 1e-5.
    close(made[call][4][name], expected, 5e-5)

"""The peers of a comparison are given the numbers that purerl has."""

import json
from pathlib import Path

import gpu_day
import pytest
from gpu_parts import config_of
from same_numbers import for_brax, for_purejaxrl, for_rejax

from tests.helpers import slow_but


@pytest.mark.parametrize("part", slow_but(gpu_day.PRESETS, "wide-cartpole"))
def test_all_have_numbers_and_whole_updates(part):
    _, _, preset, changes = gpu_day.PRESETS[part]
    config = config_of(preset, changes)
    rejax, other = for_rejax(config), for_purejaxrl(config, Path("files/ppo.py"))
    # Nothing is left to purerl's own choice, which a peer would take for a number.
    assert "auto" not in json.dumps([rejax, other])
    samples = rejax["num_envs"] * rejax["num_steps"]
    assert rejax["total_timesteps"] % samples == 0
    assert samples % rejax["num_minibatches"] == 0
    assert other["NUM_ENVS"] * other["NUM_STEPS"] == samples
    is_brax = preset == "ppo-brax"
    assert other["path"].endswith("ppo_continuous_action.py" if is_brax else "ppo.py")
    assert other["ENV_NAME"] == config.env.removeprefix("brax/")


def test_an_update_of_brax_has_as_many_samples():
    config = config_of("ppo-brax", {})
    theirs = for_brax(config)
    rows = theirs["batch_size"] * theirs["num_minibatches"]
    assert rows * theirs["unroll_length"] == config.num_envs * config.num_steps

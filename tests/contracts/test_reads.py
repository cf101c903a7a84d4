"""Every number of a config is read by a run, unless an option that is off says why not.

What a run reads is found in its traced program; nothing here is compiled.
"""

import dataclasses

import jax
import pytest

import purerl
from purerl.accelerator.kernels import traced_for
from purerl.train import bind, read_by_start, read_by_updates
from purerl.types import Schedule
from tests.contracts.tools import rows
from tests.helpers import slow_but

CONFIGS = {**rows.defaults(), **rows.variants()}
QUICK = ("vpg", "dqn", "sac", "tabular", "bandit-gradient")


def is_discrete(config):
    return hasattr(bind(config).env.action_space(), "n")


# Numbers of options, and whether a config has the option on.
OPTIONS = {
    "clip_observations": lambda c: c.normalize_observations,
    "clip_rewards": lambda c: c.normalize_rewards,
    "gae_lambda": lambda c: getattr(c, "advantage", "gae") == "gae",
    "priority_exponent": lambda c: c.prioritised,
    "importance_exponent": lambda c: c.prioritised,
    "priority_eta": lambda c: c.prioritised,
    "epsilon_start": lambda c: not getattr(c, "noisy", False),
    "epsilon_end": lambda c: not getattr(c, "noisy", False),
    "epsilon_steps": lambda c: not getattr(c, "noisy", False),
    "value_min": lambda c: getattr(c, "values", "categorical") == "categorical",
    "value_max": lambda c: getattr(c, "values", "categorical") == "categorical",
    "kappa": lambda c: c.values in ("quantile", "implicit"),
    "munchausen_alpha": lambda c: c.munchausen,
    "munchausen_tau": lambda c: c.munchausen,
    "munchausen_clip": lambda c: c.munchausen,
    "entropy_share": is_discrete,
    "entropy_per_dimension": lambda c: not is_discrete(c),
    "temperature_init": lambda c: getattr(c, "temperature", "") != "exact",
    "exploration": lambda c: c.method == "ucb",
    "epsilon": lambda c: getattr(c, "method", "") not in ("gradient", "ucb"),
    "initial_value": lambda c: c.method != "gradient",
}
# Numbers that have no option, and are not read: a bandit's episodes have one step.
NEVER = {("BanditConfig", "gamma")}
# Numbers that are read when an agent is made, and never again.
AT_START = {
    ("SACConfig", "temperature_init"),
    ("MPOConfig", "temperature_init"),
    ("MPOConfig", "multiplier_mean"),
    ("MPOConfig", "multiplier_std"),
    ("TabularConfig", "initial_value"),
}


def numbers_of(config):
    """The fields of a config that are numbers, or hold some."""
    found = {}
    # `epsilon_fraction` says what `epsilon_steps` is where that is not given.
    left_out = ("epsilon_fraction",)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in left_out or not jax.tree.leaves(value):
            continue
        if field.metadata.get("pytree_node", True):
            found[field.name] = 0.0 if isinstance(value, Schedule) else value
    return found


@pytest.mark.parametrize("name", slow_but(CONFIGS, *QUICK))
def test_a_run_reads_every_number_whose_option_is_on(name):
    bound = bind(CONFIGS[name])
    config, kind = bound.config, type(bound.config).__name__
    numbers = numbers_of(config)
    later = read_by_updates(bound, numbers)
    at_start = read_by_start(bound, numbers)
    off = {n for n in numbers if n in OPTIONS and not OPTIONS[n](config)}
    off |= {n for n in numbers if (kind, n) in NEVER}
    assert set(numbers) - later - at_start == off
    once = {n for n in numbers if (kind, n) in AT_START} - off
    assert at_start - later == once
    assert {"learning_rate"} <= later


# Programs are written otherwise for an accelerator: every algorithm can be traced. What
# they compute is held in `tests/algorithms/test_few_kernels.py` and
# `tests/core/test_packing.py`.
ACCELERATED = ("ppo", "ppo-continuous", "ppo-dict-masked", "dqn")


@pytest.mark.parametrize("name", slow_but(CONFIGS, *ACCELERATED))
def test_a_run_is_traced_for_an_accelerator_as_for_a_cpu(name):
    def shapes(platform):
        with traced_for(platform):
            # A function of its own, as JAX keeps what it has traced.
            train = purerl.make_train(CONFIGS[name])
            return jax.eval_shape(train, jax.random.key(0))

    assert shapes("cuda") == shapes("cpu")

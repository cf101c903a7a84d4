import json
import math

import numpy as np
import pytest

import purerl
from purerl.losses import ClipDrift, DPODrift
from purerl.randomisation import Uniform
from purerl.space.axes import ends, from_dict, label, labels, read_axis, to_dict
from purerl.space.design import expand
from purerl.space.points import for_fields
from tests.helpers import tiny_config

INSIDE = {
    "policy_loss": [ClipDrift(0.1), ClipDrift(0.3)],
    "policy_loss.clip_eps": [0.1, 0.2],
}


@pytest.mark.parametrize(
    "search",
    [
        lambda config: purerl.sweep(config, INSIDE),
        lambda config: purerl.plan(config, INSIDE),
        lambda config: purerl.tune(config, INSIDE, trials=1),
        lambda config: purerl.pbt(config, INSIDE),
        lambda config: purerl.halving(config, INSIDE),
    ],
)
def test_an_axis_inside_another_is_refused(search):
    with pytest.raises(
        purerl.ConfigError,
        match=r"axes name policy_loss and policy_loss\.clip_eps, which is inside it",
    ):
        search(tiny_config())


def test_loguniform_is_even_in_the_logarithm():
    design = expand({"a": purerl.loguniform(1e-5, 1e-1)}, "random", 4_000)
    logs = np.log10([p["a"] for p in design.points])
    counts, _ = np.histogram(logs, bins=4, range=(-5, -1))
    assert (abs(counts - 1_000) < 100).all()  # 3.6 standard deviations


def test_whole_ends_give_whole_numbers_with_both_ends():
    for axis in (purerl.uniform(2, 4), purerl.loguniform(2, 4)):
        design = expand({"n": axis}, "random", 300)
        values = {p["n"] for p in design.points}
        assert values == {2, 3, 4} and all(type(v) is int for v in values)


def test_loguniform_over_whole_numbers_gives_each_its_interval():
    design = expand({"n": purerl.loguniform(1, 3)}, "random", 6_000)
    values = np.array([p["n"] for p in design.points])
    total = math.log(3.5 / 0.5)
    for number in (1, 2, 3):
        share = math.log((number + 0.5) / (number - 0.5)) / total
        assert abs((values == number).mean() - share) < 0.02


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("env_params.length", {"env_params": {"length": 0.7}}),
        ("critic_learning_rate", {}),
        ("target_kl", {}),
        ("learning_rate.start", {"learning_rate": purerl.schedules.Linear(1, 0)}),
        ("optimiser.b1", {"optimiser": purerl.optimisers.Adam(b1=0)}),
    ],
)
def test_a_field_with_a_fraction_draws_fractions_whatever_its_value(name, fields):
    config = purerl.PPOConfig(**fields)
    axes = for_fields(config, {name: purerl.uniform(0, 2)})
    values = [point[name] for point in expand(axes, "random", 6, 0).points]
    plain = expand({name: purerl.uniform(0.0, 2.0)}, "random", 6, 0).points
    assert values == [point[name] for point in plain]
    assert not any(value.is_integer() for value in values)


@pytest.mark.parametrize("name", ["num_envs", "env_params.max_steps_in_episode"])
@pytest.mark.parametrize("params", [None, {"length": 0.7, "max_steps_in_episode": 9}])
def test_a_field_of_whole_numbers_draws_whole_ones(name, params):
    config = purerl.PPOConfig(env_params=params)
    axes = for_fields(config, {name: purerl.uniform(2, 4)})
    points = expand(axes, "random", 30, 0).points
    assert {repr(point[name]) for point in points} == {"2", "3", "4"}


def test_a_list_is_a_choice_and_another_distribution_is_refused():
    class Own:
        def draw(self, rng):
            return rng.normal()

    assert read_axis("a", [1, (2,)]) == purerl.choice([1, (2,)])
    assert ends(purerl.choice([1, 2, 3])) == (1, 2, 3)
    assert ends(purerl.uniform(1, 3)) == (1, 3)
    with pytest.raises(purerl.ConfigError, match="'a' must have ends or values, got O"):
        read_axis("a", Own())
    assert len(expand({"a": Own()}, "random", 3).points) == 3  # a sweep draws it


def test_axes_are_read_as_they_were_written():
    axes = {
        "learning_rate": purerl.loguniform(1e-4, 1e-2),
        "num_epochs": purerl.uniform(1, 8),
        "hidden_sizes": purerl.choice([(8,), (8, 8)]),
        "value_loss": purerl.choice(["MSEValueLoss()", "best.npz"]),
        "policy_loss": purerl.choice([ClipDrift(0.1), DPODrift()]),
        "env_params": purerl.choice([{}, {"length": Uniform(0.4, 0.6)}]),
    }
    written = to_dict(axes)
    assert written["hidden_sizes"] == {"kind": "choice", "values": [[8], [8, 8]]}
    assert written["num_epochs"] == {"kind": "uniform", "low": 1, "high": 8}
    again = from_dict(json.loads(json.dumps(written)))
    assert again == axes
    assert json.dumps(to_dict(again)) == json.dumps(written)


def test_labels_tell_values_apart():
    assert label((64, 64)) == "64-64" and label(0.5) == 0.5
    assert label(DPODrift(2.0, 0.6)) == "DPODrift(alpha=2.0, beta=0.6)"
    import jax

    make = purerl.losses.MLPValueLoss.create
    losses = [make(jax.random.key(i)) for i in range(2)]
    assert labels(losses) == ["MLPValueLoss#0", "MLPValueLoss#1"]
    assert labels([ClipDrift(0.1), ClipDrift(0.2)]) == [
        "ClipDrift(clip_eps=0.1)",
        "ClipDrift(clip_eps=0.2)",
    ]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: purerl.uniform(2, 1), "lower one first, got 2 and 1"),
        (lambda: purerl.loguniform(0, 1), "positive ends, got 0"),
        (lambda: purerl.uniform(0, math.inf), "two finite ends"),
        (lambda: purerl.choice([]), "at least one value"),
    ],
)
def test_bad_axes_get_a_sentence(call, words):
    with pytest.raises(purerl.ConfigError, match=words):
        call()

import math

import numpy as np
import pytest

import purerl
from purerl.losses import ClipDrift, DPODrift
from purerl.randomisation import LogUniform, Uniform
from purerl.space.axes import expand
from purerl.sweeps import groups as grouping
from purerl.sweeps.groups import group_points, member_id
from purerl.sweeps.loop import group_label, notes_of
from tests.helpers import assert_same_bits, ordered, tiny_config

from .conftest import outline_of


def groups_of(axes, config=None, **options):
    return group_points(config or tiny_config(), expand(axes, **options).points)


def test_dynamic_fields_share_a_program_and_static_ones_do_not():
    rates, discounts = np.float32([1e-3, 1e-2]), np.float32([0.9, 0.99])
    groups = groups_of(
        {"learning_rate": [1e-3, 1e-2], "num_envs": [2, 4], "gamma": [0.9, 0.99]}
    )
    assert [g.static for g in groups] == [{"num_envs": 2}, {"num_envs": 4}]
    assert [g.bound.config.num_envs for g in groups] == [2, 4]
    for group in groups:
        found = group.overrides
        np.testing.assert_array_equal(found["learning_rate"], np.repeat(rates, 2))
        np.testing.assert_array_equal(found["gamma"], np.tile(discounts, 2))


POINTS = [
    {"length": 1.0, "gravity": 9.0},
    {"masscart": 2.0, "length": 3.0},
    {"length": 2.0, "masscart": 1.0},
    {},
]
RANGES = [{"length": Uniform(low, 0.9)} for low in (0.3, 0.4)]
OTHERS = [{"length": LogUniform(0.3, 0.9)}, {"gravity": Uniform(9.0, 10.0)}]
DRAWN = {"env_params": {"length": Uniform(0.1, 0.2)}}
TEXTS = ["Uniform(0.4,0.6)", "Uniform(0.3,0.5)"]
LIMITS = [15, Uniform(10, 20), Uniform(15, 20), Uniform(10, 900)]


@pytest.mark.parametrize(
    ("axes", "changes", "points"),
    [
        # Points in the grid's order: rate, environments, discount (the fastest).
        ({"gamma": [0.9, 0.99], "num_envs": [2, 4]}, {}, [(0, 2), (1, 3)]),
        ({"policy_loss.clip_eps": [0.1, 0.3]}, {}, [(0, 1)]),
        ({"policy_loss": [ClipDrift(0.1), ClipDrift(0.2)]}, {}, [(0, 1)]),
        ({"policy_loss": ["ClipDrift(clip_eps=0.1)", DPODrift()]}, {}, [(0,), (1,)]),
        # A number, None and auto are programs of their own.
        ({"max_grad_norm": [0.1, None, 0.2]}, {}, [(0, 2), (1,)]),
        ({"target_kl": [None], "gamma": [0.9, 0.99]}, {}, [(0, 1)]),
        ({"entropy_coef": ["auto", 0.1, 0.2]}, {}, [(0,), (1, 2)]),
        # Points that name other parameters of the environment do not share an array.
        ({"env_params": POINTS}, {}, [(0,), (1, 2), (3,)]),
        # Ranges of one kind are one program, of two kinds two.
        ({"env_params": RANGES}, DRAWN, [(0, 1)]),
        ({"env_params": [*RANGES, *OTHERS]}, DRAWN, [(0, 1), (2,), (3,)]),
        ({"env_params": [*RANGES, *OTHERS]}, {}, [(0, 1), (2,), (3,)]),
        # A randomised environment and a plain one are two, also beside a range.
        ({"env_params": [{}, RANGES[0]]}, {}, [(0,), (1,)]),
        ({"env_params": [None, {**RANGES[0], "gravity": 9.0}]}, DRAWN, [(0,), (1,)]),
        ({"env_params.length": [0.5, RANGES[0]["length"]]}, DRAWN, [(0,), (1,)]),
        ({"env_params.length": [0.5, *TEXTS]}, {}, [(0,), (1, 2)]),
        # Evaluations are planned for the time limit that a point has alone.
        (
            {"env_params.max_steps_in_episode": LIMITS},
            {"eval_max_steps": 0, "total_timesteps": 100_000},
            [(0,), (1,), (2,), (3,)],
        ),
        ({"env_kwargs.num_doors": [2, 3]}, {"env": "Doors-v0"}, [(0,), (1,)]),
    ],
)
def test_points_that_differ_in_numbers_alone_are_one_program(axes, changes, points):
    groups = groups_of(axes, tiny_config(**changes))
    assert [group.points for group in groups] == points


def test_what_a_program_takes_is_what_the_points_say():
    (group,) = groups_of({"env_params.length": [0.5, 1.0]})
    np.testing.assert_array_equal(group.overrides["env_params.length"], [0.5, 1.0])
    (group,) = groups_of({"policy_loss": [ClipDrift(0.1), ClipDrift(0.2)]})
    leaf = group.overrides["policy_loss"].clip_eps
    np.testing.assert_array_equal(leaf, np.float32([0.1, 0.2]))
    _, none = groups_of({"max_grad_norm": [0.1, None]})
    assert none.overrides == {"max_grad_norm": None}
    first, _ = groups_of({"entropy_coef": ["auto", 0.1]})
    assert first.bound.at(first.overrides).entropy_coef == 0.01
    length = groups_of({"env_params": POINTS})[1].overrides["env_params"]["length"]
    np.testing.assert_array_equal(length, np.float32([3.0, 2.0]))
    (group,) = groups_of({"env_params": RANGES}, tiny_config(**DRAWN))
    low = group.overrides["env_params"]["length"].low
    np.testing.assert_array_equal(low, np.float32([0.3, 0.4]))
    axes = {"env_params.max_steps_in_episode": LIMITS}
    groups = groups_of(axes, tiny_config(eval_max_steps=0, total_timesteps=100_000))
    assert [g.bound.plan.eval_max_steps for g in groups] == [500, 20, 20, 900]
    groups = groups_of({"env_kwargs.num_doors": [2, 3]}, tiny_config(env="Doors-v0"))
    assert [g.bound.config.env_kwargs["num_doors"] for g in groups] == [2, 3]


def test_a_plan_says_what_the_points_of_each_group_share():
    def labels(axes):
        return [group_label(group) for group in groups_of(axes)]

    assert labels({"gamma": [0.9, 0.99]}) == ["all"]
    losses = ["ClipDrift(clip_eps=0.1)", DPODrift()]
    assert labels({"policy_loss": losses, "num_envs": [2]}) == [
        "num_envs=2, policy_loss=ClipDrift",
        "num_envs=2, policy_loss=DPODrift",
    ]
    lengths = [0.5, Uniform(0.4, 0.6)]
    assert labels({"env_params.length": lengths}) == [
        "all",
        "env_params.length=Uniform",
    ]


def test_members_are_identified_by_values_and_seed():
    point = {"a": 0.1, "b": (8, 8)}
    assert member_id(point, 3) == member_id({"b": (8, 8), "a": 0.1}, 3)
    ids = {
        member_id(point, 3),
        member_id(point, 4),
        member_id({**point, "a": 0.1 + 1e-12}, 3),
        member_id({"a": 0.1}, 3),
    }
    assert len(ids) == 4


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({"learning_rat": [1.0]}, "no field 'learning_rat'. Did you mean 'learning_r"),
        ({"learning_rate": [1e-3, -1.0]}, "at learning_rate=-1.0: .*greater than 0"),
        ({"learning_rate": ["fast"]}, "learning_rate must be a number, got 'fast'"),
        ({"gamma": [0.9, None]}, "'gamma' must be a number"),
        ({"learning_rate": [float("nan")]}, "learning_rate must be finite"),
        ({"env_params.len": [1.0]}, "has no 'len'. Did you mean 'length'"),
        ({"num_envs": [2, 0]}, "at num_envs=0: num_envs must be greater than 0"),
        ({"num_minibatches": [5]}, "must be divisible by num_minibatches, got 5"),
        ({"algorithm": ["pppo"]}, "no algorithm 'pppo'. Did you mean 'ppo'"),
        ({"algorithm": ["dqn"]}, "at algorithm='dqn': total_timesteps must cover"),
        ({"hidden_sizes.0": [3]}, "hidden_sizes has nothing inside"),
        ({"policy_loss": ["Clip(0.1)"]}, "no loss 'Clip'. Did you mean 'ClipDrift'"),
    ],
)
def test_bad_points_get_a_sentence_before_anything_is_traced(axes, words):
    with pytest.raises(purerl.ConfigError, match=words):
        groups_of(axes)


def test_a_longer_time_limit_than_the_evaluations_is_refused():
    axes = {"env_params.max_steps_in_episode": [10, 999]}
    with pytest.raises(purerl.ConfigError, match="evaluations are planned for 500"):
        groups_of(axes, tiny_config(eval_max_steps=0))


def test_points_looked_at_alone_or_together_are_the_same(monkeypatch):
    axes = {
        "learning_rate": [1e-3, 2, 3e-3],
        "gamma": [0.9, 0.99],
        "env_params.length": [0.4, 0.6],
        "policy_loss": [ClipDrift(clip_eps=0.1), ClipDrift(clip_eps=0.3)],
        "num_envs": [2, 4],
    }
    args = (tiny_config(), axes, 2)
    quick = outline_of(*args)
    monkeypatch.setattr(grouping, "_shape_of", lambda *args: None)
    slow = outline_of(*args)
    assert len(quick.groups) == len(slow.groups) == 2
    for one, two in zip(quick.groups, slow.groups, strict=True):
        assert one.group.name == two.group.name
        assert list(one.ids) == list(two.ids)
        assert len(set(one.ids)) == one.num_members == 48
        assert_same_bits(one.members.overrides, two.members.overrides)
        assert list(one.members.overrides) == list(two.members.overrides)


@pytest.mark.parametrize("bad", [-1e-3, 0, math.inf])
def test_a_bad_number_among_many_points_is_named(bad):
    rates = [1e-3, 2e-3, bad, 3e-3]
    words = r"at learning_rate=.*learning_rate must"
    with pytest.raises(purerl.ConfigError, match=words):
        outline_of(tiny_config(), {"learning_rate": rates}, 1)


def test_every_point_is_refused_whose_numbers_are_wrong_together(monkeypatch):
    config = ordered(monkeypatch, total_timesteps=256, num_envs=2, num_steps=8)
    points = [{"gamma": 0.9, "entropy_coef": x} for x in (0.1, 0.5, 0.95)]
    assert group_points(config, points[:2])[0].points == (0, 1)
    with pytest.raises(purerl.ConfigError, match=r"entropy_coef=0.95: one of"):
        group_points(config, points)


def test_a_number_is_checked_by_the_field_of_its_own_algorithm():
    """The step size of a table is at most 1, and that of PPO any positive number."""
    table = {"algorithm": "tabular", "env": "CliffWalking-v0"}
    config = tiny_config(env="CliffWalking-v0")
    points = [{**table, "learning_rate": rate} for rate in (0.5, 2.0)]
    for some in (points, points[1:]):
        with pytest.raises(purerl.ConfigError, match="must lie between 0 and 1"):
            group_points(config, [{"algorithm": "ppo", "learning_rate": 0.5}, *some])
    own = [{"algorithm": "ppo", "learning_rate": rate} for rate in (0.5, 2.0)]
    assert [g.points for g in group_points(config, own)] == [(0, 1)]


def test_notes_say_of_which_groups_they_are():
    axes = {"env": ["CartPole-v1", "Acrobot-v1", "Pendulum-v1"]}
    one, two = notes_of(groups_of(axes, tiny_config(num_evaluations=0)))[1:]
    assert one.startswith("env=CartPole-v1 and 1 more group: auto: normalize_obs")
    assert two.startswith("env=Pendulum-v1: auto: normalize_observations=True")
    same = notes_of(groups_of({"num_envs": [2, 4]}, tiny_config(num_evaluations=0)))
    assert [line.partition(":")[0] for line in same] == ["no evaluations", "auto"]

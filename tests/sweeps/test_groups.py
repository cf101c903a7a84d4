import math

import jax
import numpy as np
import pytest

import purerl
from purerl.algorithms import ALGORITHMS
from purerl.config import config_dataclass
from purerl.envs.wrappers import Randomised
from purerl.losses import ClipDrift, DPODrift
from purerl.randomisation import LogUniform, Uniform
from purerl.space.design import expand
from purerl.sweeps import groups as grouping
from purerl.sweeps.groups import group_points, member_id
from purerl.sweeps.loop import group_label
from tests.helpers import tiny_config

from .conftest import outline_of


def groups_of(axes, config=None, **options):
    return group_points(config or tiny_config(), expand(axes, **options).points)


def test_dynamic_fields_share_a_program_and_static_ones_do_not():
    groups = groups_of(
        {"learning_rate": [1e-3, 1e-2], "num_envs": [2, 4], "gamma": [0.9, 0.99]}
    )
    assert [g.static for g in groups] == [{"num_envs": 2}, {"num_envs": 4}]
    assert [g.bound.config.num_envs for g in groups] == [2, 4]
    # Points in the grid's order: rate, environments, discount (the fastest).
    assert groups[0].points == (0, 1, 4, 5) and groups[1].points == (2, 3, 6, 7)
    for group in groups:
        np.testing.assert_array_equal(
            group.overrides["learning_rate"], np.float32([1e-3, 1e-3, 1e-2, 1e-2])
        )
        np.testing.assert_array_equal(
            group.overrides["gamma"], np.float32([0.9, 0.99, 0.9, 0.99])
        )


def test_numbers_inside_losses_and_environments_are_dynamic():
    (group,) = groups_of(
        {"policy_loss.clip_eps": [0.1, 0.3], "env_params.length": [0.5, 1.0]}
    )
    assert group.points == (0, 1, 2, 3)
    np.testing.assert_array_equal(
        group.overrides["env_params.length"], np.float32([0.5, 1, 0.5, 1])
    )


def test_losses_of_one_kind_are_one_program_and_of_two_kinds_two():
    same = groups_of({"policy_loss": [ClipDrift(0.1), ClipDrift(0.2)]})
    assert len(same) == 1
    leaf = same[0].overrides["policy_loss"].clip_eps
    np.testing.assert_array_equal(leaf, np.float32([0.1, 0.2]))
    other = groups_of({"policy_loss": ["ClipDrift(clip_eps=0.1)", DPODrift()]})
    assert len(other) == 2


def test_a_number_none_and_auto_are_programs_of_their_own():
    config = tiny_config(max_grad_norm=0.5, target_kl=0.02, entropy_coef=0.05)
    groups = groups_of({"max_grad_norm": [0.1, None, 0.2]}, config)
    assert [group.points for group in groups] == [(0, 2), (1,)]
    assert groups[1].overrides == {"max_grad_norm": None}
    (group,) = groups_of({"target_kl": [None], "gamma": [0.9, 0.99]}, config)
    assert group.points == (0, 1)
    groups = groups_of({"entropy_coef": ["auto", 0.1, 0.2]}, config)
    assert [group.points for group in groups] == [(0,), (1, 2)]
    first = groups[0]
    assert first.bound.at(first.overrides).entropy_coef == 0.01
    with pytest.raises(purerl.ConfigError, match="'gamma' must be a number"):
        groups_of({"gamma": [0.9, None]}, config)


def test_a_plan_says_what_the_points_of_each_group_share():
    def labels(axes):
        return [group_label(group) for group in groups_of(axes)]

    assert labels({"gamma": [0.9, 0.99]}) == ["-"]
    losses = ["ClipDrift(clip_eps=0.1)", DPODrift()]
    assert labels({"policy_loss": losses, "num_envs": [2]}) == [
        "num_envs=2, policy_loss=ClipDrift",
        "num_envs=2, policy_loss=DPODrift",
    ]
    lengths = [0.5, Uniform(0.4, 0.6)]
    assert labels({"env_params.length": lengths}) == [
        "-",
        "env_params.length=Uniform",
    ]


def test_points_that_name_other_parameters_are_groups_of_their_own():
    points = [
        {"length": 1.0, "gravity": 9.0},
        {"masscart": 2.0, "length": 3.0},
        {"length": 2.0, "masscart": 1.0},
        {},
    ]
    groups = groups_of({"env_params": points})
    assert [group.points for group in groups] == [(0,), (1, 2), (3,)]
    length = groups[1].overrides["env_params"]["length"]
    np.testing.assert_array_equal(length, np.float32([3.0, 2.0]))


@pytest.mark.parametrize(
    "axes",
    [
        {"env_params": [{}, {"length": Uniform(0.4, 0.6)}]},
        {"env_params": [None, {"length": Uniform(0.4, 0.6), "gravity": 9.0}]},
        {"env_params.length": [0.5, Uniform(0.4, 0.6)]},
        {"env_params.length": [0.5, "Uniform(0.4,0.6)", "Uniform(0.3,0.5)"]},
    ],
)
def test_a_randomised_environment_and_a_plain_one_are_two_programs(axes):
    plain, drawn = groups_of(axes)
    assert plain.points == (0,) and drawn.points[0] == 1
    assert not isinstance(plain.bound.env, Randomised)
    assert isinstance(drawn.bound.env, Randomised)
    # Beside a config that is randomised, what is not becomes a program of its own too.
    config = tiny_config(env_params={"length": Uniform(0.1, 0.2)})
    plain, drawn = groups_of(axes, config)
    assert not isinstance(plain.bound.env, Randomised)
    assert isinstance(drawn.bound.env, Randomised)


def test_ranges_of_one_kind_are_one_program_and_of_two_kinds_two():
    config = tiny_config(env_params={"length": Uniform(0.1, 0.2)})
    ranges = [{"length": Uniform(low, 0.9)} for low in (0.3, 0.4)]
    (group,) = groups_of({"env_params": ranges}, config)
    leaf = group.overrides["env_params"]["length"].low
    np.testing.assert_array_equal(leaf, np.float32([0.3, 0.4]))
    others = [{"length": LogUniform(0.3, 0.9)}, {"gravity": Uniform(9.0, 10.0)}]
    for base in (tiny_config(), config):
        groups = groups_of({"env_params": [*ranges, *others]}, base)
        assert [group.points for group in groups] == [(0, 1), (2,), (3,)]


def test_drawn_time_limits_plan_evaluations_of_their_own():
    limits = [Uniform(10, 20), Uniform(15, 20), Uniform(10, 900)]
    axes = {"env_params.max_steps_in_episode": [15, *limits]}
    groups = groups_of(axes, tiny_config(eval_max_steps=0, total_timesteps=100_000))
    assert [g.bound.plan.eval_max_steps for g in groups] == [500, 20, 20, 900]


def test_options_of_the_environment_are_static():
    groups = groups_of(
        {"env_kwargs.num_doors": [2, 3]}, tiny_config(env="Doors-v0", eval_max_steps=0)
    )
    assert [dict(g.bound.config.env_kwargs) for g in groups] == [
        {"num_doors": 2},
        {"num_doors": 3},
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
        ({"learning_rate": [float("nan")]}, "learning_rate must be finite"),
        ({"env_params.len": [1.0]}, "has no 'len'. Did you mean 'length'"),
        ({"num_envs": [2, 0]}, "at num_envs=0: num_envs must be greater than 0"),
        ({"num_minibatches": [5]}, "must be divisible by num_minibatches, got 5"),
        ({"algorithm": ["pppo"]}, "no algorithm 'pppo'. Did you mean 'ppo'"),
        ({"algorithm": ["dqn"]}, "at algorithm='dqn': total_timesteps must cover"),
        ({"hidden_sizes.0": [3]}, "hidden_sizes has nothing inside"),
        (
            {"policy_loss": ["Clip(0.1)"]},
            "no loss 'Clip'. Did you mean 'ClipDrift'",
        ),
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
        same = jax.tree.map(
            np.array_equal, one.members.overrides, two.members.overrides
        )
        assert all(jax.tree.leaves(same))
        assert list(one.members.overrides) == list(two.members.overrides)


@pytest.mark.parametrize("bad", [-1e-3, 0, math.inf])
def test_a_bad_number_among_many_points_is_named(bad):
    rates = [1e-3, 2e-3, bad, 3e-3]
    with pytest.raises(
        purerl.ConfigError, match=r"at learning_rate=.*learning_rate must"
    ):
        outline_of(tiny_config(), {"learning_rate": rates}, 1)


@config_dataclass
class Ordered(purerl.PPOConfig):
    """PPO whose entropy bonus must not be above its discount."""

    def check_numbers(self):
        if not isinstance(self.gamma, jax.core.Tracer):
            if self.entropy_coef > self.gamma:
                raise purerl.ConfigError("entropy_coef must be at most gamma.")


@pytest.fixture
def ordered(monkeypatch):
    entry = ALGORITHMS["ppo"]._replace(config=Ordered)
    monkeypatch.setitem(ALGORITHMS, "ordered", entry)
    return Ordered(total_timesteps=256, num_envs=2, num_steps=8)


def test_every_point_is_refused_whose_numbers_are_wrong_together(ordered):
    points = [{"gamma": 0.9, "entropy_coef": x} for x in (0.1, 0.5, 0.95)]
    assert group_points(ordered, points[:2])[0].points == (0, 1)
    with pytest.raises(purerl.ConfigError, match=r"entropy_coef=0.95: .* most gamma"):
        group_points(ordered, points)


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

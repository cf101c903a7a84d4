"""Parts, wrappers and distributions in configs: flags and files."""

import dataclasses

import numpy as np
import pytest

import purerl
from purerl import envs, losses, optimisers, serialise
from purerl.acting.environment import resolve_env
from purerl.cli import flags
from purerl.config import ConfigError
from purerl.envs.wrappers import FrameStack, Randomised, StickyActions
from purerl.randomisation import Choice, Uniform
from purerl.report import playing
from purerl.runner.manifest import is_rebuildable
from purerl.schedules import Cosine, Linear, WarmUp
from tests.helpers import tiny_config


@dataclasses.dataclass
class Options:
    """Nothing but the config."""


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"env_params": {"length": 0.7}}, "env_params"),
        ({"env_params": {"length": Uniform(0.4, 0.6)}}, "env_params"),
        ({"env": "Doors-v0", "env_kwargs": {"size": (9, 9)}}, "env_kwargs"),
    ],
)
def test_gymnasium_has_not_the_numbers_of_the_training(changes, name):
    with pytest.raises(ConfigError, match=rf"lacks the {name} that the agents"):
        playing._check_same_game(tiny_config(**changes), ())
    own = tiny_config(env_params={"length": 0.5, "max_steps_in_episode": 500})
    playing._check_same_game(own, ())


def read(words, config=None):
    """The config of a command line."""
    config = config or purerl.PPOConfig()
    parsed = flags.parse(flags.parser_class(config, Options), words, "train")
    return flags.read_config(parsed, config)


def test_flags_give_wrappers_and_distributions():
    config = read(
        [
            *("--env-wrappers", "StickyActions(0.1)", "FrameStack(n=2, padding=zero)"),
            *("--env-params", "length=Uniform(0.4, 0.6)", "gravity=12.0"),
            *("tau=Choice((0.02, 0.04))",),
        ]
    )
    assert config.env_wrappers == (
        "StickyActions(0.1)",
        "FrameStack(n=2, padding=zero)",
    )
    assert config.env_params == {
        "length": Uniform(0.4, 0.6),
        "gravity": 12.0,
        "tau": Choice((0.02, 0.04)),
    }
    # What a preset or a resumed run has stands as the flags' defaults.
    assert read([], config) == config
    env = resolve_env(config)
    assert isinstance(env, Randomised) and isinstance(env.env, FrameStack)
    assert isinstance(env.env.env, StickyActions) and env.env.padding == "zero"


def test_a_wrapper_that_does_not_fit_is_refused_before_training():
    with pytest.raises(ConfigError, match=r"no wrapper 'FrameStak'.*FrameStack"):
        purerl.make_train(tiny_config(env_wrappers=("FrameStak(2)",)))
    with pytest.raises(ConfigError, match=r"has no 'reward_factr'.*'reward_factor'"):
        config = tiny_config(env_wrappers=("ScaleReward",))
        purerl.make_train(config.replace(env_params={"reward_factr": 1.0}))


def test_wrappers_are_saved_in_files_and_one_alone_may_stand_as_a_text(tmp_path):
    config = tiny_config(env_wrappers=["FrameStack(2)", "ClipReward"])
    serialise.to_yaml(config, tmp_path / "config.yaml")
    assert serialise.from_yaml(tmp_path / "config.yaml") == config
    assert is_rebuildable(config)
    one = resolve_env(tiny_config(env_wrappers="FrameStack(2)"))
    assert one == FrameStack(envs.make("CartPole-v1"), 2)


def test_a_wrapper_of_this_program_alone_is_no_other_processs(monkeypatch):
    @dataclasses.dataclass(unsafe_hash=True)
    class Same(envs.Wrapper):
        pass

    known = dict(envs.wrappers.WRAPPERS)
    monkeypatch.setattr("purerl.envs.wrappers.WRAPPERS", known)
    envs.register_wrapper("Same", Same)
    config = tiny_config(env_wrappers=("Same",))
    assert isinstance(resolve_env(config), Same) and not is_rebuildable(config)


RANDOM = tiny_config(
    env_wrappers=("StickyActions(0.3)", "FrameStack(2)"),
    env_params={"length": Uniform(0.4, 0.6), "gravity": Choice((9.0, 12.0))},
    total_timesteps=320,
)


@pytest.mark.slow(optimised=False)
def test_a_sweep_moves_ranges_and_a_wrappers_numbers():
    axes = {
        "env_params.sticky_probability": [0.0, 0.9],
        "env_params.length.high": [0.5, 2.0],
    }
    options = {"seeds": 2, "lanes": 2, "segment_updates": 5, "progress": False}
    losses = purerl.sweep(RANDOM, axes, **options).dataset["policy_loss"]
    assert losses.shape[:3] == (2, 2, 2)
    assert len(np.unique(losses.values[..., -1])) == 8
    # Two points have both values of both axes between them.
    for i, j, probability, high in ((0, 1, 0.0, 2.0), (1, 0, 0.9, 0.5)):
        params = {"sticky_probability": probability, "length": Uniform(0.4, high)}
        point = RANDOM.replace(env_params={**RANDOM.env_params, **params})
        alone = purerl.run(point, **options).metrics["policy_loss"]
        np.testing.assert_allclose(losses.values[i, j], alone, rtol=1e-3, atol=1e-4)


def test_nested_lists_are_options_of_the_environment_too():
    """What a preset or an environment variable holds comes back from its own flags."""
    config = read(["--env-kwargs", "walls=[[1, 2], [3, [4]]]", "by={a: [[0, x]]}"])
    assert config.env_kwargs["walls"] == ((1, 2), (3, (4,)))
    assert config.env_kwargs["by"]["a"] == ((0, "x"),)
    assert isinstance(hash(config.env_kwargs), int)
    assert read([], config) == config


@pytest.mark.parametrize(
    ("line", "field", "expected"),
    [
        ("--optimiser;Adam(b1=0.95)", "optimiser", optimisers.Adam(0.95)),
        (
            "--optimiser;SGD(momentum=0.9, nesterov=True)",
            "optimiser",
            optimisers.SGD(0.9, nesterov=True),
        ),
        ("--optimiser;lion", "optimiser", optimisers.Lion()),
        (
            "--policy-loss;ClipDrift(Linear(0.3, 0.1))",
            "policy_loss",
            losses.ClipDrift(Linear(0.3, 0.1)),
        ),
        ("--learning-rate;1e-3", "learning_rate", 1e-3),
        (
            "--learning-rate;Linear(1e-3, until=0.5)",
            "learning_rate",
            Linear(1e-3, until=0.5),
        ),
        (
            "--entropy-coef;WarmUp(0.1, Cosine(0.02))",
            "entropy_coef",
            WarmUp(0.1, Cosine(0.02)),
        ),
        ("--entropy-coef;auto", "entropy_coef", "auto"),
    ],
)
def test_a_flag_sets_a_part_with_its_numbers(line, field, expected):
    assert getattr(read(line.split(";")), field) == expected
    assert read(line.split(";")) == purerl.PPOConfig(
        **{field: expected}
    )  # and nothing else


def test_a_step_size_of_some_parameters_is_none_or_a_number():
    config = read(
        ["--optimiser", "Lion", "--actor-learning-rate", "1e-4"], purerl.SACConfig()
    )
    assert config.optimiser == optimisers.Lion()
    assert (config.actor_learning_rate, config.critic_learning_rate) == (1e-4, None)

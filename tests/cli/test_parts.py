"""Losses, optimisers and schedules as flags."""

import dataclasses

import pytest

import purerl
from purerl import losses, optimisers
from purerl.cli import flags
from purerl.config import ConfigError
from purerl.schedules import Cosine, Linear, WarmUp


@dataclasses.dataclass
class Options:
    """Nothing but the config."""


def read(line, config=None):
    """The config of a command line."""
    config = config or purerl.PPOConfig()
    parsed = flags.parse(flags.parser_class(config, Options), line.split(";"), "train")
    return flags.read_config(parsed, config)


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
    assert getattr(read(line), field) == expected
    assert read(line) == purerl.PPOConfig(**{field: expected})  # and nothing else


def test_a_step_size_of_some_parameters_is_none_or_a_number():
    config = read("--optimiser;Lion;--actor-learning-rate;1e-4", purerl.SACConfig())
    assert config.optimiser == optimisers.Lion()
    assert (config.actor_learning_rate, config.critic_learning_rate) == (1e-4, None)


@pytest.mark.parametrize(
    ("line", "fragment"),
    [
        ("--optimiser;Adma", "Did you mean 'Adam'?"),
        ("--learning-rate;Linea(1)", "no schedule 'Linea'. Did you mean 'Linear'"),
    ],
)
def test_a_bad_flag_gets_a_sentence(line, fragment):
    with pytest.raises(ConfigError) as error:
        purerl.make_train(read(line))
    assert fragment in str(error.value)


@pytest.mark.parametrize("name", ["cosine", "Cosine"])
def test_a_schedule_without_its_numbers_gets_a_sentence(name, capsys):
    with pytest.raises(SystemExit):
        read(f"--learning-rate;{name}")
    words = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "a schedule is written with its numbers, such as Cosine(1e-3)" in words

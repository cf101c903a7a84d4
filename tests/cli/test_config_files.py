"""Config files that a person wrote: what is wrong in one is said in a sentence."""

import warnings
from functools import partial
from pathlib import Path

import pytest
import yaml

from purerl import PPOConfig, serialise
from purerl.cli import flags, main
from purerl.cli.train import base_config, parser
from purerl.config import ConfigError
from purerl.contrib.hardware.estimate import load_device

# Nine to the power of 8 values in 600 characters begin like this.
BOMB = "[&a [1, 1, 1, 1, 1, 1, 1, 1, 1], [*a, *a, *a, *a, *a, *a, *a, *a, *a]]"


def config_file(folder, text):
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    "line, fragment",
    [
        ("learning_rate: [1.0e-3, 1.0e-4]", "must be a number, got [0.001, 0.0001]. A"),
        ("gamma: 0.9,0.99", "such as --axis gamma=0.9,0.99 of purerl sweep."),
        (
            "env_params: [0.1]",
            "env_params must map names of fields to values, got [0.1",
        ),
        ("num_envs: null", "num_envs must be a whole number, got None"),
        ('normalize_rewards: "yes"', "must be True or False, got 'yes"),
        ('hidden_sizes: "64,64"', "got '64,64'"),
        ("5: 3", "the names of a config's fields are texts, got 5; leave it out"),
        ("algorithm: [ppo]", "there is no algorithm ['ppo']"),
        ("env: 2020-13-45", "cannot read the config"),
        ("policy_loss: {}", "the loss must have a type and its fields, such as {type"),
        ("hidden_sizes: &x [*x]", "it has an alias, such as *x; write the value"),
        (
            "num_envs: 4\nnum_envs: 8",
            "num_envs is given twice, in lines 1 and 2; leave",
        ),
        ("env_params: {length: 1, length: 2}", "length is given twice, in lines 1 "),
    ],
)
def test_a_value_that_no_field_can_have_is_a_sentence(line, fragment, tmp_path, capsys):
    path = config_file(tmp_path, f"{line}\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["train", "--config", path, "--dry-run"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("purerl train: ") and fragment in told
    assert told.count("\n") == 1


NUMBERS = {"010": 10, "08": 8, "0x10": 16, "0o17": 15, "1e6": 10**6, "1_000": 1000}


@pytest.mark.parametrize("text, number", NUMBERS.items())
def test_numbers_are_those_of_yaml_1_2(text, number, tmp_path):
    path = config_file(tmp_path, f"total_timesteps: {text}\nlearning_rate: {text}\n")
    config = serialise.from_yaml(path)
    assert (config.total_timesteps, config.learning_rate) == (number, number)
    assert type(config.total_timesteps) is int


@pytest.mark.parametrize("text", [*NUMBERS, "1:30", ".5", "1.", "-.inf", ".nan", "-"])
def test_text_that_looks_like_a_number_stays_text(text):
    assert serialise.read_yaml(serialise.yaml_text({"a": text})) == {"a": text}


READERS = {
    "a config": serialise.from_yaml,
    "a loss": partial(serialise.load_part, kind="loss"),
    "a device": load_device,
    "a flag": lambda path: flags.read_mapping(
        "env_kwargs", [f"a={Path(path).read_text()}"]
    ),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_every_reader_has_the_limits(read, tmp_path):
    path = config_file(tmp_path, f"{{name: {BOMB}}}")
    with pytest.raises(ConfigError):
        read(path)
    assert serialise.mapping_of(f"{{name: {BOMB}}}") is None


def test_one_wrapper_may_stand_without_a_list(tmp_path):
    path = config_file(tmp_path, "env_wrappers: FrameStack(2)\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(path).env_wrappers == "FrameStack(2)"


@pytest.mark.parametrize(
    "field, values",
    [
        ("env_kwargs", {"path": "5", "word": "true", "none": None, "small": 1e-7}),
        ("env_kwargs", {"several": [None, "1", 1e-7], "more": {"text": "a: b"}}),
        ("env_params", {"length": 0.25, "force_mag": "Uniform(5, 15)"}),
    ],
)
def test_mappings_of_a_file_are_what_it_says(field, values, tmp_path):
    path = config_file(tmp_path, yaml.safe_dump({field: values}))
    config = read(path)
    assert config == serialise.from_yaml(path)
    assert config != PPOConfig()
    argv = ["--config", path, f"--{field.replace('_', '-')}", "length=0.5"]
    assert dict(getattr(read(path, argv), field)) == {"length": 0.5}


def read(path, argv=None):
    argv = argv or ["--config", path]
    base = base_config(argv)
    parsed = flags.parse(parser(base), argv, "train")
    return flags.read_config(parsed, base)


@pytest.mark.parametrize("flag", ["--env-params", "--env-kwargs"])
def test_a_name_that_is_given_twice_in_a_flag_is_a_sentence(flag, capsys):
    assert main(["train", "--dry-run", flag, "length=0.5", "length=0.7"]) == 2
    told = capsys.readouterr().err
    assert f"{flag} gives length twice, as 0.5 and as 0.7; leave one out" in told
    assert main(["train", "--dry-run", flag, "length=0.5", flag, "force_mag=5"]) == 2
    assert f"{flag} is given twice; give one with all its" in capsys.readouterr().err
    assert main(["train", "--dry-run", flag, "length={a: 1, a: 2}"]) == 2
    assert "cannot read the value of 'length={a: 1, a: 2}'" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["16,8", "16 8", "(16, 8)", "[16,8]"])
def test_sizes_are_written_as_in_the_shell_or_in_python(text):
    words = ["--hidden-sizes", *text.split(" ")]
    assert flags.parse(parser(PPOConfig()), words, "train").hidden_sizes == (16, 8)

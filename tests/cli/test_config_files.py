"""Config files that a person wrote: what is wrong in one is said in a sentence."""

import warnings

import pytest
import yaml

from purerl import PPOConfig, serialise
from purerl.cli import flags, main
from purerl.cli.train import SHARED, Train, base_config
from purerl.config import ConfigError


def config_file(folder, text):
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("command", ["train", "sweep"])
@pytest.mark.parametrize(
    "line, fragment",
    [
        (
            "learning_rate: [1.0e-3, 1.0e-4]",
            "must be a number, got [0.001, 0.0001]. A ",
        ),
        ("gamma: [0.9]", "A sweep trains several values: --axis gamma=0.9."),
        ("gamma: []", "gamma must be a number, got []."),
        (
            "env_params: [0.1]",
            "env_params must map names of fields to values, got [0.1",
        ),
        ('env_params: "length=0.1"', "env_params must map names of fields to values"),
        ("env_params: {5: 3}", "got the name 5"),
        ("env_kwargs: [a]", "env_kwargs must map names of fields to values"),
        ("num_envs: null", "num_envs must be a whole number, got None"),
        (
            'normalize_rewards: "yes"',
            "normalize_rewards must be True or False, got 'yes",
        ),
        ('hidden_sizes: "64,64"', "got '64,64'"),
        ("5: 3", "the names of a config's fields are texts, got 5; leave it out"),
        ("~: 3", "the names of a config's fields are texts, got None"),
        ("on: 3", "the names of a config's fields are texts, got True"),
        ("algorithm: [ppo]", "there is no algorithm ['ppo']"),
        ("env: 2020-13-45", "cannot read the config"),
    ],
)
def test_a_value_that_no_field_can_have_is_a_sentence(
    command, line, fragment, tmp_path, capsys
):
    path = config_file(tmp_path, f"{line}\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main([command, "--config", path, "--dry-run"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"purerl {command}: ") and fragment in told
    assert told.count("\n") == 1


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
    parsed = flags.parse(flags.parser_class(base, Train, *SHARED), argv, "train")
    return flags.read_config(parsed, base)


def test_from_dict_refuses_names_that_are_no_texts():
    with pytest.raises(ConfigError, match="are texts, got 5; leave it out, or put"):
        serialise.from_dict({"num_envs": 4, 5: 3})

"""`purerl compare`: what is compared, where it is written, mistakes."""

import pytest

import purerl
from purerl.cli import main
from purerl.comparison.api import parse_settings
from purerl.config import ConfigError
from purerl.space.axes import parse_environments

TINY = [
    *("--total-timesteps", "320", "--num-envs", "2", "--num-steps", "16"),
    *("--num-epochs", "1", "--num-minibatches", "2", "--hidden-sizes", "8"),
]
COMMAND = ["compare", "--seeds", "2", "--no-progress", *TINY]
RATES = ["--setting", "slow: learning_rate=1e-3", "--setting", "a: learning_rate=0.1"]


@pytest.mark.slow(optimised=False)
def test_settings_by_name_in_a_folder_with_its_page(tmp_path, capsys):
    out = tmp_path / "out"
    assert main([*COMMAND, *RATES, "--baseline", "a", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "learning_rate on 2 held-out seeds" in text
    assert "differences from a" in text and "with report.html" in text
    assert "slow: learning_rate=1e-3" in (out / "report.html").read_text()
    # All of it is there: the same command trains nothing, and says so.
    assert main([*COMMAND[:3], *TINY, *RATES, "--out", str(out)]) == 0
    assert "everything had been trained before" in capsys.readouterr().err


def test_what_a_setting_says():
    read = parse_settings(
        [
            "own:",
            "wide: hidden_sizes=(64, 64); torso=mlp",
            "DQN: preset=dqn-cartpole; learning_rate=1e-4",
            "huber: value_loss=HuberError(delta=2.0)",
        ]
    )
    assert read["own"] == {}
    assert read["wide"] == {"hidden_sizes": (64, 64), "torso": "mlp"}
    assert isinstance(read["DQN"], purerl.DQNConfig)
    assert read["DQN"].learning_rate == 1e-4
    assert read["huber"] == {"value_loss": "HuberError(delta=2.0)"}


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([], "say what to compare, such as --setting 'own:'"),
        (["learning_rate=1"], "write NAME: field=value"),
        (["a: learning_rate=1", "a: gamma=1"], "with another NAME each time"),
        (["a: learning_rate"], "each name once, got 'learning_rate'"),
        (["a: gamma=1; gamma=2"], "each name once, got 'gamma=2'"),
        (["a: preset=nowhere"], "nowhere"),
    ],
)
def test_text_that_is_no_setting(texts, words):
    with pytest.raises(ConfigError, match=words):
        parse_settings(texts)


def test_environments_are_read_with_their_changes():
    assert parse_environments(["Acrobot-v1; total_timesteps=320", "CartPole-v1"]) == [
        {
            "env": "Acrobot-v1",
            "total_timesteps": 320,
            "name": "Acrobot-v1; total_timesteps=320",
        },
        {"env": "CartPole-v1"},
    ]

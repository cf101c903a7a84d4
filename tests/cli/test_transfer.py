"""`purerl transfer`: what is compared, where it is written, mistakes."""

import pytest

import purerl
from purerl.cli import main

TINY = [
    *("--total-timesteps", "320", "--num-envs", "2", "--num-steps", "16"),
    *("--num-epochs", "1", "--num-minibatches", "2", "--hidden-sizes", "8"),
]
COMMAND = ["transfer", "--seeds", "2", "--no-progress", *TINY]


@pytest.mark.slow
def test_losses_by_name_and_file_in_two_environments(tmp_path, capsys):
    learned = purerl.losses.HuberError(3.0)
    purerl.save_loss(learned, tmp_path / "loss.npz")
    words = ["--loss", f"learned={tmp_path / 'loss.npz'}", "--loss", "huber(delta=9.0)"]
    words += ["--env", "CartPole-v1", "--env", "CartPole-v1; num_epochs=2"]
    out = tmp_path / "out"
    words += ["--out", str(out), "--baseline", "huber(delta=9.0)"]
    assert main([*COMMAND, *words]) == 0
    text = capsys.readouterr().out
    assert "differences from huber(delta=9.0)" in text
    assert "all environments, final return" in text
    result = purerl.load_comparison(out)
    assert result.settings == ("learned", "huber(delta=9.0)")
    assert result.environments == ("CartPole-v1", "CartPole-v1; num_epochs=2")
    configs = result.about["environments"]
    assert [config["num_epochs"] for config in configs.values()] == [1, 2]
    assert result.about["settings"]["learned"]["value_loss"]["loss"] == (
        "HuberError(delta=3.0)"
    )


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        ([], "say which losses to compare, such as --loss learned="),
        (["--loss", "squared", "--loss", "squared"], "the name 'squared' is taken"),
        (["--loss", "a=squared", "--loss", "a=huber"], "write a-2=huber."),
        (["--loss", "squared", "--field", "gamma"], "--field must be value_loss or"),
        (["--loss", "a=nowhere.npz"], "cannot read the loss 'nowhere.npz'"),
        (["--loss", "squared; value_coef"], "after a semicolon comes name=value"),
        (["--loss", "squared;"], "has nothing on one side of a semicolon"),
        (["--loss", "squared", "--env"], "--env needs a value"),
        (["--loss", "squared", "--env", "CartPole-v1; lr=1"], "no field 'lr'"),
        (["--field", "policy_loss", "--loss", "squared"], "there is no loss 'squared'"),
        (["--field", "policy_loss", "--loss", "SquaredError"], "loss of 2 arrays [N]"),
        (["--evolution", "nowhere"], "nowhere"),
        (["--loss", "squared", "--baseline", "foo"], "baseline must be one of the"),
        (
            ["--loss", "squared", "--baseline", "foo", "--dry-run"],
            "baseline must be one of the settings (squared), got 'foo'",
        ),
    ],
)
def test_mistakes_print_one_sentence_and_exit_with_2(words, fragment, capsys, tmp_path):
    assert main([*COMMAND, *words, "--out", str(tmp_path / "out")]) == 2
    assert fragment in capsys.readouterr().err

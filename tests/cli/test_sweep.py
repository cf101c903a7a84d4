import pytest

import purerl
from purerl.cli import main

TINY = [
    *("--total-timesteps", "640", "--num-envs", "2", "--num-steps", "16"),
    *("--num-epochs", "2", "--num-minibatches", "2", "--hidden-sizes", "8"),
    *("--num-evaluations", "3", "--eval-episodes", "2", "--eval-max-steps", "20"),
    *("--eval-share", "1.0", "--lanes", "2", "--segment-updates", "4"),
]
AXIS = ["--axis", "learning_rate=1e-3,1e-2"]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A finished sweep's folder."""
    out = tmp_path_factory.mktemp("cli") / "sweep"
    assert main(["sweep", *AXIS, "--seeds", "3", "--out", str(out), *TINY]) == 0
    return out


def test_again_trains_nothing_and_more_seeds_need_a_word(swept, capsys):
    command = ["sweep", *AXIS, "--out", str(swept), *TINY]
    assert main([*command, "--seeds", "3"]) == 0
    assert "all 6 members had finished" in capsys.readouterr().err
    assert main([*command, "--seeds", "4"]) == 2
    assert "--extend" in capsys.readouterr().err


@pytest.mark.slow
def test_lanes_are_measured(capsys):
    flags = [*TINY[:-4], "--widths", "1", "2", "--seconds", "0.01"]
    assert main(["lanes", *flags]) == 0
    out = capsys.readouterr().out
    assert "100%" in out and "fastest: --lanes " in out


@pytest.mark.slow
def test_seeds_alone_are_a_sweep_with_a_page(tmp_path):
    out = tmp_path / "sweep"
    assert main(["sweep", "--seeds", "3", "--out", str(out), *TINY]) == 0
    page = (out / "report.html").read_text()
    assert "Learning curves" in page and "<h2>Axes" not in page


def test_a_sweep_of_environments_has_a_table_of_each_and_no_common_best(
    tmp_path, capsys
):
    out = tmp_path / "sweep"
    axes = ["--axis", "env=CartPole-v1,Catch-bsuite", *AXIS]
    options = ["--seeds", "1", "--out", str(out), *TINY, "--num-evaluations", "0"]
    assert main(["sweep", *axes, *options]) == 0
    printed = capsys.readouterr().out
    for name in ("CartPole-v1", "Catch-bsuite"):
        assert f"{name}: best 2 of 2 configurations" in " ".join(printed.split())
        assert f"{name}: Best configurations" in (out / "report.html").read_text()
    for flags in ([], ["--metric", "entropy"]):
        assert main(["plot", str(out), *flags]) == 0
    assert (out / "curve.png").exists() and (out / "entropy.png").exists()
    with pytest.raises(purerl.ConfigError, match=r"best\(env='CartPole-v1'\)"):
        purerl.load_sweep(out).best()

"""Studies of a chain whose score is its reward times a number of the seed."""

import pytest

import purerl
from purerl.envs.probe import ChainMDP
from purerl.report import style

REWARDS = (1.0, 2.0, 4.0, 8.0)
STEPS = 12 * 16  # updates times steps of each


@pytest.fixture(scope="session")
def chain() -> purerl.PPOConfig:
    """Twelve updates of 16 steps, an evaluation after every second one."""
    return purerl.PPOConfig(
        env=ChainMDP(),
        env_params={"reward": 2.0},
        total_timesteps=STEPS,
        num_envs=4,
        num_steps=4,
        num_epochs=1,
        num_minibatches=1,
        hidden_sizes=(4,),
        num_evaluations=6,
        eval_episodes=8,
        eval_share=1.0,
    )


@pytest.fixture
def unrendered(monkeypatch):
    """Figures are made and not rendered, which takes as long as a small study."""
    monkeypatch.setattr(style, "as_bytes", lambda *args, **options: b"")


def tune(config, axes=None, **options):
    """Without pictures, progress, or a comparison, where a test does not ask."""
    defaults = {
        "trials": 6,
        "seeds": 2,
        "batch": 3,
        "pruner": None,
        "reports": 6,
        "holdout_seeds": 0,
        "lanes": 2,
        "progress": False,
    }
    axes = axes or {"env_params.reward": list(REWARDS)}
    return purerl.tune(config, axes, **{**defaults, **options})

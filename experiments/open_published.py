"""PPO with the published weights of OPEN (Goldie et al. 2024), beside Adam.

    python experiments/open_published.py --weights breakout_OPEN.npy

The weights are a file of the authors' repository,
https://github.com/AlexGoldie/rl-learned-optimization, rl_optimizer/pretrained. The
settings are those of its rl_optimizer/configs.py for MinAtar, with the 10 million steps
of the paper. What differs there: an episode that is cut counts as ended, and the share
of the run is 1, not just below 1, in the last update. The authors give the return of
their tuned Adam as `PPO_TEMP`, by which they divide; it is printed beside ours.

Prints a table; the same command goes on with what was stopped.
"""

from pathlib import Path

from frame import hardware, options, show_table

import purerl
from purerl.optimisers import Adam, OpenOptimiser

# The authors' returns of Adam, in their configs.
ADAM = {
    "Asterix-MinAtar": 15.0353,
    "Breakout-MinAtar": 50.0822,
    "Freeway-MinAtar": 61.8369,
    "SpaceInvaders-MinAtar": 167.0913,
}
NAMES = ["OPEN", "Adam", "Adam, annealed"]


def main() -> None:
    """Train with both, and print."""
    asked = options(
        __doc__,
        is_cached=True,
        weights=(Path, "the authors' file"),
        env=("Breakout-MinAtar", ADAM),
        steps=10_000_000,
        seeds=1,
        only=(str, NAMES, "train only this"),
        out=Path("runs/open-published"),
    )
    if asked.weights is None:
        raise SystemExit("--weights names a file of the authors' repository.")
    settings = {
        "OPEN": {
            "optimiser": OpenOptimiser.load(asked.weights),
            "learning_rate": 1e-3,
            "anneal_learning_rate": False,
            "max_grad_norm": 1e9,  # The optimiser clips each network by itself.
        },
        "Adam": {"optimiser": Adam(eps=1e-5), "learning_rate": 1e-3},
        # PureJaxRL's step size for MinAtar, with which it has these very settings.
        "Adam, annealed": {
            "optimiser": Adam(eps=1e-5),
            "learning_rate": 5e-3,
            "anneal_learning_rate": True,
        },
    }
    chosen = [asked.only] if asked.only else NAMES
    # As the authors train it on MinAtar.
    config = purerl.PPOConfig(
        env=asked.env,
        total_timesteps=asked.steps,
        num_envs=64,
        num_steps=128,
        num_epochs=4,
        num_minibatches=8,
        gamma=0.99,
        gae_lambda=0.95,
        entropy_coef=0.01,
        value_coef=0.5,
        torso="mlp",
        hidden_sizes=(64, 64),
        activation="relu",
        num_evaluations=0,
    )
    result = purerl.compare(
        config,
        {name: settings[name] for name in chosen},
        seeds=asked.seeds,
        out=asked.out / f"{asked.env}-{asked.steps}",
    )
    show_table(result.table())
    print(f"the authors' Adam on {asked.env}: {ADAM[asked.env]}")
    print(hardware())


if __name__ == "__main__":
    main()

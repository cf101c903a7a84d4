"""Two algorithms in one figure of a paper, their curves in pandas, their configs kept.

    python examples/figure.py

The same call after a kill goes on with what is missing.
"""

import pandas as pd

import purerl
from purerl.report import plots


def main(steps=40_960, seeds=10, out="runs/figure", **options):
    """Train PPO and DQN; write `curves.pdf` and `curves.csv`; return the frame."""
    base = {"env": "CartPole-v1", "total_timesteps": steps, "num_evaluations": 8}
    configs = {"PPO": purerl.PPOConfig(**base), "DQN": purerl.DQNConfig(**base)}
    options |= {"seeds": seeds, "resume": "auto"}
    runs = {n: purerl.run(c, out=f"{out}/{n}", **options) for n, c in configs.items()}

    frames = {name: run.to_dataframe(curves=True) for name, run in runs.items()}
    frame = pd.concat(frames, names=["algorithm", None]).reset_index("algorithm")
    frame.to_csv(f"{out}/curves.csv", index=False)

    with plots.paper(columns=1):  # 3.25 inches, letters of 8 points
        figure, axes = plots.curves(runs, "iqm")
    axes.axhline(500, linestyle=":", color="black", linewidth=0.8)
    plots.save(figure, f"{out}/curves.pdf")
    print(f"Figure 1. {figure.get_label()}.")

    again = purerl.load(f"{out}/PPO").config  # as it was trained, to the last bit
    print(
        again == runs["PPO"].config, frame.groupby("algorithm")["episode_return"].max()
    )
    return frame


if __name__ == "__main__":
    main()

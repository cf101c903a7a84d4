"""A learned optimiser (after OPEN, Goldie et al. 2024), evolved from a tuned Adam.

    python experiments/evolve_optimiser.py [--out runs/evolve-optimiser]

First Adam is tuned: its step size, decays and epsilon are evolved over three tasks.
There the way forks. One branch goes on tuning these four numbers. The other puts a
`LearnedOptimiser` in Adam's place, which begins as that Adam, and evolves its weights
and the step size. Both branches have as many generations, members, tasks and steps, so
that what the network adds is what the second has above the first. All are judged on
held-out seeds, in the three tasks and in three that no branch has seen.

Prints the tables; writes experiments/results/evolve-optimiser.json and
docs/images/evolution-optimiser-*.png. The same command goes on with what was stopped.
"""

from functools import partial
from pathlib import Path
from typing import Any

from frame import IMAGES, evolve_seconds, history, keep, options, plain_rows, show_table

import purerl
from purerl.optimisers import LearnedOptimiser
from purerl.report import plots

# The returns that count 0 and 1: of acting at random, about, and of having learned.
TASKS = {
    "CartPole-v1": (20.0, 500.0),
    "Acrobot-v1": (-500.0, -80.0),
    "Catch-bsuite": (-1.0, 1.0),
}
HELD_OUT = ("FourRooms-misc", "FrozenLake-misc", "Doors-v0")
EVOLVED = "learning_rate,optimiser"


def main() -> None:
    """Evolve, judge, print and write."""
    asked = options(
        __doc__,
        is_cached=True,
        out=Path("runs/evolve-optimiser"),
        steps=(30_000, "of an inner run"),
        population=24,
        tuning=(16, "generations to fork"),
        generations=(32, "of each branch"),
        hidden=(4, "units of the network"),
        sigma=0.15,
        seeds=(32, "held out, of each task"),
        dry=(False, "keep no numbers"),
    )
    # PPO with its defaults and small networks; evolution starts at its Adam.
    config: Any = purerl.PPOConfig(
        env=next(iter(TASKS)),
        total_timesteps=asked.steps,
        hidden_sizes=(32, 32),
        num_evaluations=0,
        learning_rate=1e-3,
    )
    evolve = partial(
        purerl.evolve,
        population=asked.population,
        environments=list(TASKS),
        baselines=TASKS,
        snapshot_every=asked.tuning,
    )
    adam = evolve(
        config,
        EVOLVED,
        strategy="cma-es(sigma=0.3)",
        generations=asked.tuning + asked.generations,
        out=asked.out / "adam",
    )
    fork: Any = adam.snapshots()[asked.tuning]
    same = {name: getattr(fork.optimiser, name) for name in ("b1", "b2", "eps")}
    network = evolve(
        fork.replace(optimiser=LearnedOptimiser.make(asked.hidden, **same)),
        EVOLVED,
        strategy=f"sep-cma-es(sigma={asked.sigma})",
        generations=asked.generations,
        out=asked.out / "learned",
    )
    evolved_at = asked.seconds()
    # The first is the baseline.
    judged_configs: dict[str, Any] = {
        "tuned Adam": adam.learned,
        "learned": network.learned,
        "tuned Adam, at the fork": fork,
        "Adam, untuned": config,
    }
    judged = purerl.compare(
        config,
        {
            name: {"learning_rate": x.learning_rate, "optimiser": x.optimiser}
            for name, x in judged_configs.items()
        },
        environments=[*TASKS, *HELD_OUT],
        seeds=asked.seeds,
        out=asked.out / "judged",
    )
    judge_seconds = asked.seconds() - evolved_at
    show_table(judged.table())
    branches = {"adam": adam, "learned": network}
    found = {name: _numbers(x.learned) for name, x in branches.items()}
    for name, result in branches.items():
        mean = [f"{x:.3f}" for x in result.history["mean"]]
        print(f"{name}: mean fitness by generation {' '.join(mean)}")
        print(f"{name}: {found[name]}")
    print(f"evolved {evolved_at:.0f} s, judged {judge_seconds:.0f} s")
    if asked.dry:
        return
    seconds = {f"evolve {name}": evolve_seconds(x) for name, x in branches.items()}
    numbers = {
        "config": purerl.serialise.to_dict(config),
        "settings": {name: x.settings for name, x in branches.items()},
        "history": {name: history(x) for name, x in branches.items()},
        "seconds": {**seconds, "judge": round(judge_seconds)},
        "found": {"fork": _numbers(fork), **found},
        "judged": plain_rows(judged.rows),
    }
    keep("evolve-optimiser", asked, numbers)
    learned: Any = network.learned
    picture = plots.optimiser_figure(learned.optimiser)
    plots.save(picture, IMAGES / "evolution-optimiser.png")
    plots.save(network.plot(), IMAGES / "evolution-optimiser-curve.png")
    plots.save(judged.plot(), IMAGES / "evolution-optimiser-judged.png")


def _numbers(config: Any) -> dict[str, float]:
    """The step size, and the numbers of the optimiser."""
    own = {name: float(getattr(config.optimiser, name)) for name in ("b1", "b2", "eps")}
    return {"learning_rate": float(config.learning_rate), **own}


if __name__ == "__main__":
    main()

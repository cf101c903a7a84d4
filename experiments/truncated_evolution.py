"""Evolve PPO's numbers by whole runs and by quarters of runs, with the same steps.

    python experiments/truncated_evolution.py

Whole runs move the mean seldom, and quarters four times as often. Open-ES by quarters
sees of a number only what it earns at once; the persistent and the noise-reuse
strategies see what it earns until the run ends. What each has found is trained on
held-out seeds, for whole runs. It goes on where it was stopped.
"""

from frame import ROOT, evolve_seconds, keep, options, show_table

import purerl

UPDATES, PARTS = 192, 4
EVOLVED = "learning_rate,entropy_coef,gamma,gae_lambda"
OPTIONS = "(sigma=0.2, learning_rate=0.1)"
# Way -> strategy, and parts of a run.
WAYS = {
    "open-es, whole runs": ("open-es", 1),
    "open-es, quarters": ("open-es", PARTS),
    "persistent-es, quarters": ("persistent-es", PARTS),
    "noise-reuse-es, quarters": ("noise-reuse-es", PARTS),
}


def main() -> None:
    """Evolve in all ways, and judge what came of them."""
    asked = options(
        __doc__,
        is_cached=True,
        runs=12,
        population=16,
        seeds=32,
        env="Acrobot-v1",
        out=ROOT / "runs/truncated-evolution",
    )
    config = purerl.PPOConfig(env=asked.env, num_evaluations=0)
    config = config.replace(
        total_timesteps=UPDATES * purerl.resolve(config).steps_per_update
    )
    settings, seconds = {}, {}
    for way, (strategy, parts) in WAYS.items():
        result = purerl.evolve(
            config,
            EVOLVED,
            strategy=strategy + OPTIONS,
            population=asked.population,
            generations=asked.runs * parts,
            truncation=None if parts == 1 else UPDATES // parts,
            out=asked.out / way.replace(", ", "-").replace(" ", "-"),
            progress=False,
        )
        settings[way], seconds[way] = result, evolve_seconds(result)
        found = {name: f"{float(x):.4g}" for name, x in result.solution.items()}
        print(f"{way}: {seconds[way]} s, {found}", flush=True)
    compared = purerl.compare(
        config,
        {"PPO's own numbers": {}, **settings},
        seeds=asked.seeds,
        measures=("training_curve",),
        baseline="PPO's own numbers",
        out=asked.out / "judged",
        progress=False,
    )
    show_table(compared.table())
    rows = compared.to_dataframe().to_dict("records")
    given = {**asked.given(), "out": ""}
    keep(
        "truncated-evolution", asked, {"rows": rows, "seconds": seconds, "asked": given}
    )


if __name__ == "__main__":
    main()

"""Evolve PPO's numbers by whole runs and by quarters of runs, with the same steps.

    python experiments/truncated_evolution.py

Whole runs move the mean seldom, and quarters four times as often. Open-ES by quarters
sees of a number only what it earns at once; the persistent and the noise-reuse
strategies see what it earns until the run ends. What each has found is trained on
held-out seeds, for whole runs. It goes on where it was stopped.
"""

import argparse
import json
from pathlib import Path

from results import hardware
from rich.console import Console

import purerl
from purerl.atomic import write_atomic
from purerl.cli.settings import enable_compile_cache

ROOT = Path(__file__).parents[1]
STORE = ROOT / "experiments" / "results" / "truncated-evolution.json"
UPDATES, PARTS = 192, 4
EVOLVED = "learning_rate,entropy_coef,gamma,gae_lambda"
OPTIONS = "(sigma=0.2, learning_rate=0.1)"
WAYS = {
    "open-es, whole runs": ("open-es", 1),
    "open-es, quarters": ("open-es", PARTS),
    "persistent-es, quarters": ("persistent-es", PARTS),
    "noise-reuse-es, quarters": ("noise-reuse-es", PARTS),
}


def evolved(
    config: purerl.PPOConfig, way: str, runs: int, population: int, out: Path
) -> purerl.EvolutionResult:
    """Evolve in one of the ways, or go on.

    Args:
        config: What members train with.
        way: Key of `WAYS`.
        runs: Training runs of every member, one after the other.
        population: Members of a generation.
        out: Folder of all ways.
    """
    strategy, parts = WAYS[way]
    return purerl.evolve(
        config,
        EVOLVED,
        strategy=strategy + OPTIONS,
        population=population,
        generations=runs * parts,
        truncation=None if parts == 1 else UPDATES // parts,
        out=out / way.replace(", ", "-").replace(" ", "-"),
        progress=False,
    )


def main() -> None:
    """Evolve in all ways, and judge what came of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--population", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=32)
    parser.add_argument("--env", default="Acrobot-v1")
    parser.add_argument("--out", type=Path, default=ROOT / "runs/truncated-evolution")
    asked = parser.parse_args()
    enable_compile_cache()
    config = purerl.PPOConfig(env=asked.env, num_evaluations=0)
    config = config.replace(
        total_timesteps=UPDATES * purerl.resolve(config).steps_per_update
    )
    settings, seconds = {}, {}
    for way in WAYS:
        result = evolved(config, way, asked.runs, asked.population, asked.out)
        settings[way] = result
        seconds[way] = round(float(result.history["seconds"].sum()))
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
    Console(width=160, highlight=False).print(compared.table())
    rows = compared.to_dataframe().to_dict("records")
    kept = {"rows": rows, "seconds": seconds, "asked": {**vars(asked), "out": ""}}
    write_atomic(STORE, json.dumps({**kept, **hardware()}, indent=1, default=str))


if __name__ == "__main__":
    main()

"""Evolve the numbers of PQN and of DQN over tasks, and judge them on others.

    python experiments/evolve_values.py evolve           # both, one after the other
    python experiments/evolve_values.py evolve dqn
    python experiments/evolve_values.py judge

It is `evolve_ppo.py tuned` for algorithms that learn action values: the same five
tasks, runs as long, the same strategy, and the same unseen tasks at the end, in the
same units: 0 for a policy that does not learn and 1 for the evolved numbers.

Everything goes on where it was stopped with the same command. `judge` prints a table
for each algorithm and writes experiments/results/evolve-values.json.
"""

import argparse
import json
import os
from pathlib import Path
from typing import NamedTuple

from evolve_ppo import ROOT, SEEDS, STEPS, TASKS, TRAINING, normalised, show
from results import hardware
from rich.console import Console

import purerl
from purerl.cli.settings import enable_compile_cache
from purerl.config import TrainConfig
from purerl.serialise import to_dict, write_atomic

STORE = ROOT / "experiments" / "results" / "evolve-values.json"


class Setting(NamedTuple):
    """An algorithm, and the numbers of it that are evolved.

    Attributes:
        default: Its config before the evolution.
        evolve: Names of the numbers, with scales.
        generations: Generations of the evolution.
    """

    default: TrainConfig
    evolve: dict[str, str]
    generations: int


SHARED = {
    "learning_rate": "log",
    "gamma": "logit",
    "max_grad_norm": "log",
    "epsilon_end": "logit",
    "epsilon_steps": "log",
}
SETTINGS = {
    "pqn": Setting(
        # As many updates as PPO has in runs of this length, where PQN's own 2,048
        # steps would leave 20.
        purerl.PQNConfig(
            env="CartPole-v1",
            total_timesteps=STEPS,
            num_evaluations=0,
            num_envs=8,
            num_steps=16,
            num_minibatches=4,
        ),
        {**SHARED, "trace_decay": "logit", "optimiser.eps": "log"},
        32,
    ),
    "dqn": Setting(
        purerl.DQNConfig(env="CartPole-v1", total_timesteps=STEPS, num_evaluations=0),
        {**SHARED, "optimiser.eps": "log"},
        24,
    ),
}


def evolve(name: str, out: Path) -> None:
    """Evolve the numbers of an algorithm, or go on, and print how it went.

    Args:
        name: Key of `SETTINGS`.
        out: Folder of all evolutions.
    """
    load, setting = os.getloadavg()[0], SETTINGS[name]
    environments = [change for change, _ in TRAINING]
    labels = [f"{c['env']} #{number}" for number, c in enumerate(environments)]
    result = purerl.evolve(
        setting.default,
        setting.evolve,
        strategy="cma-es(sigma=0.3)",
        population=16,
        generations=setting.generations,
        environments=environments,
        baselines=dict(zip(labels, (b for _, b in TRAINING), strict=True)),
        out=out / name,
        progress=False,
    )
    mean, seconds = result.history["mean"], result.history["seconds"].sum()
    print(
        f"{name}: {result.done} generations, {seconds:.0f} s, mean fitness "
        f"{mean[0]:.3f} to {mean[-1]:.3f}, load before {load:.1f}",
        flush=True,
    )
    print(json.dumps(result.solution, default=float), flush=True)


def judge(name: str, out: Path, seeds: int) -> dict[str, object]:
    """Train with the evolved numbers, without and not at all on the unseen tasks.

    Args:
        name: Key of `SETTINGS`.
        out: Folder of all evolutions.
        seeds: Number of seeds.

    Returns:
        What is kept: the evolved config, the course of the evolution and the scores.
    """
    result = purerl.load_evolution(out / name)
    compared = purerl.compare(
        SETTINGS[name].default,
        {
            "tuned": result,
            "default": {},
            "no learning": {"learning_rate": 1e-12},
        },
        environments=TASKS["unseen"],
        baseline="default",
        seeds=seeds,
        measures=("training_curve",),
        out=out / f"judged-{name}",
        progress=False,
    )
    Console(width=200, highlight=False).print(compared.table())
    scores = normalised(compared)
    show(f"{name}: 0 no learning, 1 its evolved numbers, {seeds} seeds", scores)
    return {
        "generations": result.done,
        "seconds": round(float(result.history["seconds"].sum())),
        "mean": result.history["mean"].tolist(),
        "learned": to_dict(result.learned),
        "seeds": seeds,
        "scores": scores,
    }


def main() -> None:
    """Evolve or judge, as asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "evolve-values")
    parser.add_argument("command", choices=("evolve", "judge"))
    parser.add_argument("names", nargs="*", metavar="ALGORITHM")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of the judgement")
    asked = parser.parse_args()
    unknown = set(asked.names) - set(SETTINGS)
    if unknown:
        parser.error(f"no setting {', '.join(unknown)}: {', '.join(SETTINGS)}")
    enable_compile_cache()
    for name in asked.names or SETTINGS:
        if asked.command == "evolve":
            evolve(name, asked.out)
            continue
        kept = json.loads(STORE.read_text()) if STORE.exists() else {}
        kept |= {name: judge(name, asked.out, asked.seeds), **hardware()}
        write_atomic(STORE, json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()

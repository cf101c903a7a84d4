"""Evolve the numbers and the losses of PPO over tasks, and judge them on others.

    python experiments/evolve_ppo.py evolve                # every setting, one by one
    python experiments/evolve_ppo.py evolve tuned robust   # some of them
    python experiments/evolve_ppo.py judge --tasks chosen-on
    python experiments/evolve_ppo.py judge --tasks unseen     # also held-out, minatar

A setting is a form of PPO (its own losses, others, learned ones) and the numbers of it
that are evolved, all over the same tasks, for as many runs. `tuned` is PPO as it is,
with its eight plain numbers evolved: the opponent of all others. These start from its
first half with a fresh strategy, while it goes on with its own for a second half.

Every setting is judged on seeds that no evolution has seen: on tasks on which one
setting is chosen, and once on tasks that no choice was made on. A score is the area
under the training curve, 0 for a policy that does not learn and 1 for `tuned`.
Intervals are of the interquartile mean over tasks and seeds; they resample the seeds of
all settings together, so that the uncertainty of both units is in them. Tasks on which
`tuned` does not learn are left out, as they have no unit.

Everything goes on where it was stopped with the same command. `judge` prints the tables
and writes experiments/results/evolve-ppo.json.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from results import hardware
from rich.console import Console
from rich.table import Table

import purerl
from purerl.cli.settings import enable_compile_cache
from purerl.comparison.result import Comparison
from purerl.losses import (
    AsymmetricClipDrift,
    DPODrift,
    MLPDrift,
    RobustError,
    TemporalDrift,
)
from purerl.randomisation import LogUniform, Uniform
from purerl.report.statistics import aggregates
from purerl.schedules import Linear
from purerl.serialise import to_dict, write_atomic

ROOT = Path(__file__).parents[1]
STORE = ROOT / "experiments" / "results" / "evolve-ppo.json"
STEPS = 40_960
GENERATIONS = 24
SEEDS = 32
RESAMPLES = 4_000

# Returns that count 0 and 1: of a random policy, and of a good one.
TRAINING: list[tuple[dict[str, Any], tuple[float, float]]] = [
    ({"env": "CartPole-v1"}, (20.0, 500.0)),
    (
        {
            "env": "CartPole-v1",
            "env_params": {
                "length": Uniform(0.2, 1.5),
                "force_mag": LogUniform(5.0, 20.0),
            },
        },
        (20.0, 500.0),
    ),
    ({"env": "Acrobot-v1"}, (-500.0, -80.0)),
    ({"env": "Catch-bsuite"}, (-0.6, 1.0)),
    (
        {
            "env": "GridWorld-v0",
            "env_kwargs": {"size": (5, 5)},
            "env_params": {"max_steps_in_episode": 30},
        },
        (0.1, 1.0),
    ),
]
TASKS: dict[str, list[dict[str, Any]]] = {
    "chosen-on": [
        {"env": "FrozenLake-misc"},
        {"env": "PointRobot-misc"},
        {"env": "CartpoleSwingup-v0"},
    ],
    "held-out": [
        {"env": "FourRooms-misc"},
        {"env": "Doors-v0"},
        {"env": "CliffWalking-v0"},
        {"env": "CartpoleBalance-v0"},
        {"env": "Reacher-misc"},
    ],
    # None of these was looked at with another setting than `tuned`, the default and no
    # learning before all were evolved: those three say which have a unit.
    "unseen": [
        {"env": "UmbrellaChain-bsuite"},
        {
            "env": "DeepSea-bsuite",
            "env_kwargs": {"size": 5},
            "env_params": {"max_steps_in_episode": 5},
        },
        {"env": "ObjectGrid-v0"},
        {"env": "Catch-bsuite", "env_kwargs": {"rows": 8, "columns": 8}},
        {
            "env": "GridWorld-v0",
            "env_kwargs": {"size": (8, 8)},
            "env_params": {"max_steps_in_episode": 60},
        },
        {
            "env": "Acrobot-v1",
            "env_params": {"link_length_1": 1.5, "link_mass_2": 1.5},
        },
        {
            "env": "CartPole-v1",
            "env_params": {"gravity": 20.0, "masscart": 2.0, "length": 1.0},
        },
        {"env": "Doors-v0", "env_params": {"max_steps_in_episode": 30}},
    ],
    "minatar": [
        {"env": "Breakout-MinAtar"},
        {"env": "Asterix-MinAtar"},
        {"env": "SpaceInvaders-MinAtar"},
    ],
}


class Setting(NamedTuple):
    """A form of PPO, and what of it is evolved.

    Attributes:
        changes: From PPO as it was tuned so far, the fields that differ from it.
        evolve: Names of what is evolved beside `PLAIN`, with scales.
        without: Names of `PLAIN` that are not evolved, as the form does not have them.
    """

    changes: Callable[[purerl.PPOConfig], dict[str, Any]]
    evolve: dict[str, str]
    without: tuple[str, ...] = ()


PLAIN = {
    "learning_rate": "log",
    "entropy_coef": "log",
    "gamma": "logit",
    "gae_lambda": "logit",
    "value_coef": "log",
    "max_grad_norm": "log",
    "policy_loss.clip_eps": "log",
    "value_loss.clip_eps": "log",
}
CLIP, VALUE_CLIP = "policy_loss.clip_eps", "value_loss.clip_eps"
# Fields that the settings have in different forms.
FORMS = ("policy_loss", "value_loss", "anneal_learning_rate")
ADAM = {"optimiser.b1": "logit", "optimiser.b2": "logit", "optimiser.eps": "log"}
ROBUST = {"value_loss.alpha": "linear", "value_loss.scale": "log"}
MOVING = {
    f"{name}.{end}": "log"
    for name in ("learning_rate", "entropy_coef")
    for end in ("start", "end")
}
ENDS = {
    f"policy_loss.{side}.{end}": "logit" if side == "low" else "log"
    for side in ("low", "high")
    for end in ("start", "end")
}


def moving(tuned: purerl.PPOConfig) -> dict[str, Any]:
    """Step size and entropy as lines, the first as steep as the default's almost."""
    rate, entropy = float(tuned.learning_rate), float(tuned.entropy_coef)
    return {
        "learning_rate": Linear(rate, 0.05 * rate),
        "entropy_coef": Linear(entropy, entropy),
        "anneal_learning_rate": False,
    }


def clip_of(tuned: purerl.PPOConfig) -> float:
    """Half-width of the clip so far, at most what a lower end can have."""
    return min(float(tuned.policy_loss.clip_eps), 0.9)


def two_ends(tuned: purerl.PPOConfig) -> dict[str, Any]:
    """A clip whose ends are two numbers, from where they are one."""
    return {"policy_loss": AsymmetricClipDrift(clip_of(tuned), clip_of(tuned))}


def everything(tuned: purerl.PPOConfig) -> dict[str, Any]:
    """Losses, entropy, step size and optimiser together, all of them in closed form."""
    line = Linear(clip_of(tuned), clip_of(tuned))
    return {
        **moving(tuned),
        "policy_loss": AsymmetricClipDrift(line, line),
        "value_loss": RobustError(1.0, 1.0),
    }


def temporal(tuned: purerl.PPOConfig) -> dict[str, Any]:
    """A drift network that knows the share of the run, and a robust error."""
    drift = TemporalDrift.zeros(2, base_clip=clip_of(tuned))
    return {"policy_loss": drift, "value_loss": RobustError(1.0, 1.0)}


SETTINGS = {
    "tuned": Setting(lambda tuned: {}, {}),
    "everything": Setting(
        everything,
        {**MOVING, **ADAM, **ROBUST, **ENDS},
        (CLIP, VALUE_CLIP, "learning_rate", "entropy_coef"),
    ),
    "robust": Setting(
        lambda tuned: {"value_loss": RobustError(1.0, 1.0)}, ROBUST, (VALUE_CLIP,)
    ),
    "temporal": Setting(
        temporal, {**ROBUST, "policy_loss": "linear"}, (CLIP, VALUE_CLIP)
    ),
    "schedules": Setting(moving, MOVING, ("learning_rate", "entropy_coef")),
    "adam": Setting(lambda tuned: {}, ADAM),
    "asymmetric": Setting(
        two_ends, {"policy_loss.low": "logit", "policy_loss.high": "log"}, (CLIP,)
    ),
    "drift": Setting(
        lambda tuned: {"policy_loss": MLPDrift.zeros(4, base_clip=clip_of(tuned))},
        {"policy_loss": "linear"},
        (CLIP,),
    ),
    "dpo": Setting(
        lambda tuned: {"policy_loss": DPODrift(2.0, 0.6)},
        {"policy_loss.alpha": "log", "policy_loss.beta": "log"},
        (CLIP,),
    ),
}


def default() -> purerl.PPOConfig:
    """PPO as it is, for the tasks of this file."""
    return purerl.PPOConfig(
        env="CartPole-v1", total_timesteps=STEPS, num_evaluations=0, entropy_coef=0.01
    )


def evolve(name: str, out: Path) -> None:
    """Evolve a setting, or go on, and print how it went.

    `tuned` is evolved twice as long as the others, which start from its first half: so
    all of them have the same budget.

    Args:
        name: Name of the setting, or `tuned` and the others before its second half.
        out: Folder of all evolutions.
    """
    load = os.getloadavg()[0]
    config, setting, generations = default(), SETTINGS[name], GENERATIONS
    if name != "tuned":
        if finished("tuned", out) is None:
            sys.exit(f"{name} starts from tuned: `evolve tuned` first")
        half = purerl.load_evolution(out / "tuned").snapshots()[GENERATIONS]
        assert isinstance(half, purerl.PPOConfig)
        config = half.replace(**setting.changes(half))
    elif (out / name / "manifest.json").exists():
        before = purerl.load_evolution(out / name)
        generations *= 1 + (before.finished or before.generations > GENERATIONS)
    environments = [change for change, _ in TRAINING]
    labels = [f"{c['env']} #{number}" for number, c in enumerate(environments)]
    plain = {n: s for n, s in PLAIN.items() if n not in setting.without}
    result = purerl.evolve(
        config,
        {**plain, **setting.evolve},
        strategy=f"cma-es(sigma={0.3 if name == 'tuned' else 0.2})",
        population=16,
        generations=generations,
        environments=environments,
        baselines=dict(zip(labels, (b for _, b in TRAINING), strict=True)),
        out=out / name,
        snapshot_every=GENERATIONS,
        progress=False,
    )
    mean, seconds = result.history["mean"], result.history["seconds"].sum()
    print(
        f"{name}: {result.done} generations, {seconds:.0f} s, mean fitness "
        f"{mean[0]:.3f} to {mean[-1]:.3f}, load before {load:.1f}",
        flush=True,
    )


def finished(name: str, out: Path) -> purerl.EvolutionResult | None:
    """The evolution of a setting; None where there is none that has ended.

    Args:
        name: Name of the setting.
        out: Folder of all evolutions.
    """
    if not (out / name / "manifest.json").exists():
        return None
    found = purerl.load_evolution(out / name)
    return found if found.finished else None


def learned(name: str, out: Path) -> dict[str, Any] | None:
    """What a setting changes of PPO's default, as evolved; None before it ended."""
    found = finished(name, out)
    if found is None:
        return None
    config = found.learned
    fields = {n.split(".")[0] for n in found.solution} | set(FORMS)
    return {field: getattr(config, field) for field in sorted(fields)}


def distilled(drift: dict[str, Any], out: Path) -> dict[str, Any]:
    """The setting `drift` with a closed form in the place of its network.

    Args:
        drift: What that setting changes.
        out: Folder of all evolutions, where the closed form is kept.
    """
    file = out / "drift" / "distilled.npz"
    if not file.exists():
        found = purerl.distil(drift["policy_loss"])
        print(found, flush=True)
        purerl.save_part(found.drift, file)
    return {**drift, "policy_loss": purerl.load_part(file)}


def judge(tasks: str, out: Path, seeds: int) -> Comparison:
    """Train with every setting that is there on tasks and seeds that are new to it.

    Args:
        tasks: Key of `TASKS`.
        out: Folder of all evolutions.
        seeds: Number of seeds.
    """
    changes = {name: learned(name, out) for name in SETTINGS}
    if changes["drift"] is not None:
        changes["drift, distilled"] = distilled(changes["drift"], out)
    return purerl.compare(
        default(),
        {
            **{name: found for name, found in changes.items() if found is not None},
            "default": {"learning_rate": 2.5e-4},
            "no learning": {"learning_rate": 1e-12, "entropy_coef": 1e-12},
        },
        environments=TASKS[tasks],
        baseline="tuned",
        seeds=seeds,
        measures=("training_curve",),
        out=out / f"judged-{tasks}",
        progress=False,
    )


def normalised(compared: Comparison) -> dict[str, dict[str, Any]]:
    """Scores of each setting, 0 for no learning and 1 for `tuned`, with intervals.

    Returns:
        By setting, `iqm`, `low`, `high` over the tasks with a unit; `difference`, that
        of the interquartile means from `tuned`'s with its interval, paired by seed;
        `tasks`, the mean by task with a unit; and `raw`, the mean area of every task.
    """
    scores = compared.dataset["training_curve"]
    table = np.nan_to_num(scores.values, nan=-np.inf)  # [task, setting, seed]
    worst = np.where(np.isfinite(table), table, np.inf).min(axis=(1, 2), keepdims=True)
    table = np.where(np.isfinite(table), table, worst)
    names = [str(name) for name in scores.setting.values]
    tasks = np.array([str(task) for task in scores.environment.values])
    one, zero = names.index("tuned"), names.index("no learning")
    raw = {
        name: dict(zip(tasks.tolist(), table[:, i].mean(-1).tolist(), strict=True))
        for i, name in enumerate(names)
    }
    learns = np.array([_is_above(x[one], x[zero]) for x in table])
    table, tasks = table[learns], tasks[learns]
    random = np.random.default_rng(0)
    number = table.shape[-1]
    draws = [np.arange(number)] + [
        random.integers(number, size=number) for _ in range(RESAMPLES)
    ]

    def units(index: np.ndarray) -> np.ndarray:
        drawn = table[..., index]
        low = drawn[:, zero].mean(-1)[:, None, None]
        high = drawn[:, one].mean(-1)[:, None, None]
        return (drawn - low) / (high - low)

    pooled = np.array(
        [
            [float(aggregates.iqm(x.T)) for x in units(d).transpose(1, 0, 2)]
            for d in draws
        ]
    )
    low, high = np.quantile(pooled[1:], [0.025, 0.975], axis=0)
    apart = pooled - pooled[:, one, None]
    ends = np.quantile(apart[1:], [0.025, 0.975], axis=0)
    means = units(draws[0]).mean(-1)
    return {
        name: {
            "iqm": float(pooled[0, i]),
            "low": float(low[i]),
            "high": float(high[i]),
            "difference": [float(apart[0, i]), *ends[:, i].tolist()],
            "tasks": dict(zip(tasks, means[:, i].tolist(), strict=True)),
            "raw": raw[name],
        }
        for i, name in enumerate(names)
    }


def _is_above(scores: np.ndarray, others: np.ndarray) -> bool:
    """Whether the mean of some scores is above that of others, beyond three errors."""
    error = np.sqrt((scores.var(ddof=1) + others.var(ddof=1)) / len(scores))
    return bool(scores.mean() - others.mean() > 3.0 * error)


def show(title: str, found: dict[str, dict[str, Any]]) -> None:
    """Print the scores of all settings, the best first."""
    order = sorted(found, key=lambda name: -found[name]["iqm"])
    tasks = list(found[order[0]]["tasks"])
    columns = ("setting", "interquartile mean", "less tuned's", *tasks)
    table = Table(*columns, title=title)
    for name in order:
        x = found[name]
        means = [f"{x['tasks'][t]:.2f} ({x['raw'][t]:.4g})" for t in tasks]
        interval = f"{x['iqm']:.3f} ({x['low']:.3f} to {x['high']:.3f})"
        apart = "{:+.3f} ({:+.3f} to {:+.3f})".format(*x["difference"])
        table.add_row(name, interval, apart, *means)
    Console(width=200, highlight=False).print(table)


def keep(tasks: str, found: dict[str, Any], out: Path, seeds: int) -> None:
    """Write what was judged beside what was before.

    Args:
        tasks: Key of `TASKS`.
        found: From `normalised`.
        out: Folder of all evolutions.
        seeds: Number of seeds.
    """
    kept = json.loads(STORE.read_text()) if STORE.exists() else {}
    evolved = {}
    for name in SETTINGS:
        result = finished(name, out)
        if result is None:
            continue
        evolved[name] = {
            "generations": result.done,
            "seconds": round(float(result.history["seconds"].sum())),
            "mean": result.history["mean"].tolist(),
            "learned": to_dict(result.learned),
        }
    closed = out / "drift" / "distilled.npz"
    if closed.exists():
        kept["distilled"] = purerl.load_part(closed).formula()
    kept |= {"evolved": evolved, tasks: {"seeds": seeds, "scores": found}, **hardware()}
    write_atomic(STORE, json.dumps(kept, indent=1) + "\n")


def main() -> None:
    """Evolve or judge, as asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "evolve-ppo")
    commands = parser.add_subparsers(dest="command", required=True)
    evolving = commands.add_parser("evolve")
    evolving.add_argument("names", nargs="*", metavar="SETTING")
    judging = commands.add_parser("judge")
    judging.add_argument("--tasks", choices=sorted(TASKS), default="chosen-on")
    judging.add_argument("--seeds", type=int, default=SEEDS)
    judging.add_argument("--dry", action="store_true", help="keep no numbers")
    asked = parser.parse_args()
    enable_compile_cache()
    if asked.command == "evolve":
        unknown = set(asked.names) - set(SETTINGS)
        if unknown:
            parser.error(f"no setting {', '.join(unknown)}: {', '.join(SETTINGS)}")
        for name in asked.names or [*SETTINGS, "tuned"]:
            evolve(name, asked.out)
        return
    compared = judge(asked.tasks, asked.out, asked.seeds)
    Console(width=200, highlight=False).print(compared.table())
    found = normalised(compared)
    show(f"{asked.tasks}: 0 no learning, 1 tuned PPO, {asked.seeds} seeds", found)
    if not asked.dry:
        keep(asked.tasks, found, asked.out, asked.seeds)


if __name__ == "__main__":
    main()

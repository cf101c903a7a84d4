"""Evolve the numbers and the losses of PPO over tasks, and judge them on others.

    python experiments/evolve_ppo.py evolve                # every setting, one by one
    python experiments/evolve_ppo.py evolve tuned robust   # some of them
    python experiments/evolve_ppo.py judge --tasks chosen-on
    python experiments/evolve_ppo.py judge --tasks unseen     # also held-out, minatar
    python experiments/evolve_ppo.py --study ten evolve
    python experiments/evolve_ppo.py --study ten judge --tasks final

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

The study `five` has five tasks, nine forms and 16 members. The study `ten` has those
tasks and five more, twice the members and so four times the steps, and the forms in
which more than the losses is evolved together.

Everything goes on where it was stopped with the same command. `judge` prints the tables
and writes experiments/results/evolve-ppo.json, or evolve-ppo-ten.json.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import frame
import numpy as np
from evolve_ppo_forms import FORMS, PLAIN, SETTINGS
from evolve_ppo_tasks import STEPS, TASKS, TRAINING, WIDE, Scored

import purerl
from purerl.report.statistics import aggregate

SEEDS = 32
RESAMPLES = 4_000


class Study(NamedTuple):
    """Tasks, how long forms are evolved over them, and where that is kept.

    Attributes:
        name: Name of the folder of its evolutions, and of the file of its results.
        training: The tasks, with the returns that count 0 and 1.
        population: Members of the evolution.
        generations: Generations of a half of `tuned`, and of every other form.
        forms: Keys of `SETTINGS`, in the order in which they are evolved.
    """

    name: str
    training: list[Scored]
    population: int
    generations: int
    forms: tuple[str, ...]


STUDIES = {
    "five": Study(
        "evolve-ppo",
        TRAINING,
        16,
        24,
        tuple(name for name in SETTINGS if name != "whole"),
    ),
    "ten": Study("evolve-ppo-ten", WIDE, 32, 24, ("tuned", "everything", "whole")),
}


def default() -> purerl.PPOConfig:
    """PPO as it is, for the tasks of this file."""
    return purerl.PPOConfig(
        env="CartPole-v1", total_timesteps=STEPS, num_evaluations=0, entropy_coef=0.01
    )


def over_tasks(training: list[Scored], is_numbered: bool = True) -> dict[str, Any]:
    """Return the arguments of `purerl.evolve` about tasks and their returns."""
    tasks = [change for change, _ in training]
    labels = [task["env"] for task in tasks]
    if is_numbered or len(set(labels)) < len(labels):
        labels = [f"{label} #{number}" for number, label in enumerate(labels)]
    returns = dict(zip(labels, (ends for _, ends in training), strict=True))
    return {"environments": tasks, "baselines": returns}


def print_course(name: str, result: purerl.EvolutionResult, load: float) -> None:
    """Print how an evolution went."""
    mean = result.history["mean"]
    print(
        f"{name}: {result.done} generations, {frame.evolve_seconds(result)} s, mean "
        f"fitness {mean[0]:.3f} to {mean[-1]:.3f}, load before {load:.1f}",
        flush=True,
    )


def evolve(study: Study, name: str, out: Path) -> purerl.EvolutionResult:
    """Evolve a setting, or go on.

    `tuned` is evolved twice as long as the others, which start from its first half: so
    all of them have the same budget.

    Args:
        study: The study.
        name: Name of the setting, or `tuned` and the others before its second half.
        out: Folder of all evolutions.
    """
    config, setting, generations = default(), SETTINGS[name], study.generations
    if name != "tuned":
        if finished("tuned", out) is None:
            sys.exit(f"{name} starts from tuned: `evolve tuned` first")
        half: Any = purerl.load_evolution(out / "tuned").snapshots()[study.generations]
        config = half.replace(**setting.changes(half))
    elif (out / name / "manifest.json").exists():
        before = purerl.load_evolution(out / name)
        generations *= 1 + (before.finished or before.generations > study.generations)
    plain = {n: s for n, s in PLAIN.items() if n not in setting.without}
    return purerl.evolve(
        config,
        {**plain, **setting.evolve},
        strategy=f"cma-es(sigma={0.3 if name == 'tuned' else 0.2})",
        population=study.population,
        generations=generations,
        out=out / name,
        snapshot_every=study.generations,
        progress=False,
        **over_tasks(study.training),
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
    """Return the changes of PPO's default that were evolved; None before the end."""
    found = finished(name, out)
    if found is None:
        return None
    config = found.learned
    fields = {n.split(".")[0] for n in found.solution} | set(FORMS)
    return {field: getattr(config, field) for field in sorted(fields)}


def judge(study: Study, tasks: str, out: Path, seeds: int) -> purerl.Comparison:
    """Train with every setting that is there on tasks and seeds that are new to it."""
    changes = {name: learned(name, out) for name in study.forms}
    if (drift := changes.get("drift")) is not None:
        # Also with a closed form in the place of its network.
        file = out / "drift" / "distilled.npz"
        if not file.exists():
            found = purerl.distil(drift["policy_loss"])
            print(found, flush=True)
            purerl.save_part(found.drift, file)
        closed = {**drift, "policy_loss": purerl.load_part(file)}
        changes["drift, distilled"] = closed
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


def normalised(compared: purerl.Comparison) -> dict[str, dict[str, Any]]:
    """Scores of each setting, 0 for no learning and 1 for `tuned`, with intervals.

    Returns:
        By setting, `iqm`, `low`, `high` over the tasks with a unit; `difference`, that
        of the interquartile means from `tuned`'s with its interval, paired by seed;
        `mean_difference`, the same of the means over tasks, in which every task counts
        alike; `tasks`, the mean by task with a unit; and `raw`, the mean area of every
        task.
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
        [[aggregate(x.T, "iqm") for x in units(d).transpose(1, 0, 2)] for d in draws]
    )
    low, high = np.quantile(pooled[1:], [0.025, 0.975], axis=0)
    apart, ends = _apart(pooled, one)
    by_task = np.array([units(d).mean((0, 2)) for d in draws])  # [draw, setting]
    mean_apart, mean_ends = _apart(by_task, one)
    means = units(draws[0]).mean(-1)
    return {
        name: {
            "iqm": float(pooled[0, i]),
            "low": float(low[i]),
            "high": float(high[i]),
            "difference": [float(apart[i]), *ends[:, i].tolist()],
            "mean_difference": [float(mean_apart[i]), *mean_ends[:, i].tolist()],
            "tasks": dict(zip(tasks, means[:, i].tolist(), strict=True)),
            "raw": raw[name],
        }
        for i, name in enumerate(names)
    }


def _apart(found: np.ndarray, one: int) -> tuple[np.ndarray, np.ndarray]:
    """Differences `[settings]` from one setting, and their ends `[2, settings]`.

    Args:
        found: `[draws, settings]`, of which the first draw is the sample itself.
        one: Place of the setting that the others are compared with.
    """
    apart = found - found[:, one, None]
    return apart[0], np.quantile(apart[1:], [0.025, 0.975], axis=0)


def _is_above(scores: np.ndarray, others: np.ndarray) -> bool:
    """Return whether the mean of some scores is three errors above that of others."""
    error = np.sqrt((scores.var(ddof=1) + others.var(ddof=1)) / len(scores))
    return bool(scores.mean() - others.mean() > 3.0 * error)


def show_scores(title: str, found: dict[str, dict[str, Any]]) -> None:
    """Print the scores of all settings, the best first."""
    form = "{:+.3f} ({:+.3f} to {:+.3f})"
    order = sorted(found, key=lambda name: -found[name]["iqm"])
    tasks, rows = list(found[order[0]]["tasks"]), []
    for name in order:
        x = found[name]
        interval = f"{x['iqm']:.3f} ({x['low']:.3f} to {x['high']:.3f})"
        apart = (form.format(*x[by]) for by in ("difference", "mean_difference"))
        means = [f"{x['tasks'][t]:.2f} ({x['raw'][t]:.4g})" for t in tasks]
        rows.append([name, interval, *apart, *means])
    columns = ("setting", "interquartile mean", "less tuned's", "of means", *tasks)
    frame.show(title, columns, rows, 200)


def numbers_of(result: purerl.EvolutionResult) -> dict[str, Any]:
    """What is kept of an evolution."""
    return {
        "generations": result.done,
        "seconds": frame.evolve_seconds(result),
        "mean": result.history["mean"].tolist(),
        "learned": purerl.serialise.to_dict(result.learned),
    }


def keep_scores(
    study: Study, tasks: str, found: dict[str, Any], out: Path, seeds: int
) -> None:
    """Write what was judged beside what was before."""
    path = frame.RESULTS / f"{study.name}.json"
    kept = frame.read(path)
    results = {name: finished(name, out) for name in study.forms}
    evolved = {name: numbers_of(x) for name, x in results.items() if x is not None}
    closed = out / "drift" / "distilled.npz"
    if closed.exists():
        kept["distilled"] = purerl.load_part(closed).formula()
    kept |= {
        "evolved": evolved,
        tasks: {"seeds": seeds, "scores": found},
        **frame.hardware(),
    }
    frame.write(path, kept)


def main() -> None:
    """Evolve or judge, as asked for."""
    asked = frame.options(
        __doc__,
        is_cached=True,
        study=("five", STUDIES),
        out=(Path, "folder of the study's evolutions"),
        what=frame.Words(["evolve", "judge"], "COMMAND", is_one=True),
        names=frame.Words(SETTINGS, "SETTING"),
        tasks=("chosen-on", TASKS),
        seeds=SEEDS,
        dry=(False, "keep no numbers"),
    )
    study = STUDIES[asked.study]
    out = asked.out or frame.ROOT / "runs" / study.name
    if asked.what == "evolve":
        if unknown := sorted(set(asked.names) - set(study.forms)):
            sys.exit(f"the study has {', '.join(study.forms)}, not {unknown}")
        for name in asked.names or [*study.forms, "tuned"]:
            print_course(name, evolve(study, name, out), asked.load_before)
        return
    compared = judge(study, asked.tasks, out, asked.seeds)
    frame.show_table(compared.table(), 200)
    found = normalised(compared)
    show_scores(
        f"{asked.tasks}: 0 no learning, 1 tuned PPO, {asked.seeds} seeds", found
    )
    if not asked.dry:
        keep_scores(study, asked.tasks, found, out, asked.seeds)


if __name__ == "__main__":
    main()

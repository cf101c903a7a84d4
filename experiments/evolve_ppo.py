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
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import frame
import numpy as np

import purerl
from purerl.losses import (
    AsymmetricClipDrift,
    DPODrift,
    MLPDrift,
    RobustError,
    TemporalDrift,
)
from purerl.randomisation import LogUniform, Uniform
from purerl.report.statistics import aggregate
from purerl.schedules import Linear

SEEDS = 32
RESAMPLES = 4_000

STEPS = 40_960
Task = dict[str, Any]
# A task, and the returns that count 0 and 1.
Scored = tuple[Task, tuple[float, float]]


def task(
    env: str, limit: int | None = None, kwargs: Task | None = None, **params: Any
) -> Task:
    """Return the changes of a config that a task makes.

    Args:
        env: Name of the environment.
        limit: Steps after which an episode is cut.
        kwargs: Keyword arguments of the environment.
        **params: Its parameters.
    """
    if limit is not None:
        params = {"max_steps_in_episode": limit, **params}
    parts = {"env_kwargs": kwargs, "env_params": params}
    return {"env": env, **{name: part for name, part in parts.items() if part}}


def grid(width: int, height: int, limit: int, **params: Any) -> Task:
    """Return a grid world."""
    return task("GridWorld-v0", limit, {"size": (width, height)}, **params)


def sea(size: int) -> Task:
    """Return a deep sea, which takes as many steps as it is deep."""
    return task("DeepSea-bsuite", size, {"size": size})


def catch(rows: int, columns: int) -> Task:
    """Return a game of Catch."""
    return task("Catch-bsuite", kwargs={"rows": rows, "columns": columns})


CARTPOLES: Task = {"length": Uniform(0.2, 1.5), "force_mag": LogUniform(5.0, 20.0)}
ACROBOTS: Task = {"link_length_1": Uniform(0.7, 1.4), "link_mass_2": Uniform(0.7, 1.4)}
# Returns that count 0 and 1: of a random policy, and of a good one.
TRAINING: list[Scored] = [
    (task("CartPole-v1"), (20.0, 500.0)),
    (task("CartPole-v1", **CARTPOLES), (20.0, 500.0)),
    (task("Acrobot-v1"), (-500.0, -80.0)),
    (task("Catch-bsuite"), (-0.6, 1.0)),
    (grid(5, 5, 30), (0.1, 1.0)),
]
# Those and five more, whose kin the judgement `final` leaves out but for CartPole.
WIDE: list[Scored] = [
    *TRAINING,
    (task("Acrobot-v1", **ACROBOTS), (-500.0, -80.0)),
    (catch(7, 6), (-0.7, 1.0)),
    (grid(7, 4, 40, step_reward=-0.01), (-0.25, 0.9)),
    (sea(4), (0.05, 1.0)),
    (task("ObjectGrid-v0", 30), (-0.7, 1.5)),
]
TASKS: dict[str, list[Task]] = {
    "chosen-on": [
        task(name)
        for name in ("FrozenLake-misc", "PointRobot-misc", "CartpoleSwingup-v0")
    ],
    "held-out": [
        task("FourRooms-misc"),
        task("Doors-v0"),
        task("CliffWalking-v0"),
        task("CartpoleBalance-v0"),
        task("Reacher-misc"),
    ],
    # None of these was looked at with another setting than `tuned`, the default and no
    # learning before all were evolved: those three say which have a unit.
    "unseen": [
        task("UmbrellaChain-bsuite"),
        sea(5),
        task("ObjectGrid-v0"),
        catch(8, 8),
        grid(8, 8, 60),
        task("Acrobot-v1", link_length_1=1.5, link_mass_2=1.5),
        task("CartPole-v1", gravity=20.0, masscart=2.0, length=1.0),
        task("Doors-v0", 30),
    ],
    # For the forms that are evolved over `WIDE`. Named before anything was evolved.
    "final": [
        task("UmbrellaChain-bsuite", chain_length=20),
        task("FrozenLake-misc"),
        task("Doors-v0", 25),
        task("CliffWalking-v0", 50),
        task("FourRooms-misc", 100),
        task("Maze-v0", 20, {"size": (4, 4), "max_walls": 4}),
        task("CartPole-v1", gravity=5.0, force_mag=5.0, length=0.3),
        task("PointRobot-misc", dense_reward=True),
        task("CartpoleSwingup-v0", pole_mass=0.3),
        task("Breakout-MinAtar"),
    ],
    "minatar": [task(f"{n}-MinAtar") for n in ("Breakout", "Asterix", "SpaceInvaders")],
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


def whole(tuned: purerl.PPOConfig) -> dict[str, Any]:
    """Step size and entropy as lines, the optimiser, and both losses of `temporal`."""
    return {**moving(tuned), **temporal(tuned)}


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
    "whole": Setting(
        whole,
        {**MOVING, **ADAM, **ROBUST, "policy_loss": "linear"},
        (CLIP, VALUE_CLIP, "learning_rate", "entropy_coef"),
    ),
}


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

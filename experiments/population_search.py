"""Population-based training and Hyperband against random search, at equal steps.

    python experiments/population_search.py [--tasks doors invaders] [--searches 16]

Every method searches the same axes with the same number of environment steps, that of
16 runs; Hyperband's number of points is the largest that stays below. A method is
repeated with 16 search seeds, and each repetition is judged twice by what it did not
see:

* agent: the best agent that the search itself trained, in 256 fresh episodes;
* setting: the best setting (of PBT: the best agent's schedule), which `purerl.compare`
  trains from scratch on 4 held-out seeds and evaluates in `eval_episodes` episodes.

Random search is the population of PBT without exploit: its points are PBT's first ones.
All choose by training returns, which cost no further steps. Intervals are those of
`purerl.report.statistics.mean_interval` over searches. Numbers go to
experiments/results/population-TASK.json, whose tables `--show` prints again. Those that
are kept there were judged by an earlier version, on seeds 1000 to 1003 of
`purerl.train_schedules` and with evaluation episodes of other keys.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from results import hardware
from rich.console import Console
from rich.table import Table

import purerl
from purerl.atomic import write_atomic
from purerl.population.halving import make_plan
from purerl.population.pbt import PBTResult
from purerl.population.result import Result
from purerl.population.schedules import Schedule
from purerl.report.statistics import heading_of, mean_interval
from purerl.scale.host import to_device
from purerl.serialise import to_dict
from purerl.train import bind, evaluate_afresh

STORE = Path(__file__).parent / "results"
MEMBERS, UPDATES, READY, MIN_UPDATES = 16, 96, 8, 3
LANES = 8
HELD_OUT_SEEDS = 4
FRESH_EPISODES = 256

AXES = {
    "learning_rate": purerl.loguniform(1e-5, 1e-1),
    "gamma": purerl.uniform(0.8, 0.999),
    "gae_lambda": purerl.uniform(0.8, 1.0),
    "entropy_coef": purerl.loguniform(1e-4, 0.3),
    "policy_loss.clip_eps": purerl.uniform(0.05, 0.5),
}
TASKS = {
    "cartpole": purerl.PPOConfig(
        env="CartPole-v1",
        total_timesteps=UPDATES * 256,
        num_steps=64,
        num_evaluations=0,
        eval_episodes=64,
    ),
    "doors": purerl.PPOConfig(
        env="Doors-v0",
        env_kwargs={"observation": "planes"},
        env_params={"max_steps_in_episode": 60},
        total_timesteps=UPDATES * 1024,
        num_envs=16,
        num_steps=64,
        num_minibatches=8,
        torso="mlp",
        num_evaluations=0,
        eval_episodes=64,
    ),
}
TASKS["invaders"] = TASKS["doors"].replace(
    env="SpaceInvaders-MinAtar", env_kwargs={}, env_params={}
)


def hyperband_points() -> int:
    """The largest first bracket whose search takes no more updates than 16 runs."""
    points = 1
    while _updates(points + 1) <= MEMBERS * UPDATES:
        points += 1
    return points


def _updates(points: int) -> int:
    plan = make_plan(UPDATES, MIN_UPDATES, 3, points, "hyperband")
    spans = np.diff(plan.rungs, prepend=0)
    return sum(
        plan.alive(end) * int(span) for end, span in zip(plan.rungs, spans, strict=True)
    )


def methods(config: purerl.PPOConfig, searches: int) -> dict[str, Callable[[], Result]]:
    """Name -> a call that searches with every search seed."""
    shared: dict[str, Any] = {"searches": searches, "lanes": LANES, "progress": False}
    population = {"population": MEMBERS, "ready_updates": READY}

    def random_search() -> Result:
        result = purerl.pbt(config, AXES, quantile=0.0, **population, **shared)
        assert (result.dataset.parent == np.arange(MEMBERS)).all(), "one diverged"
        return result

    def hyperband() -> Result:
        return purerl.halving(
            config,
            AXES,
            num_points=hyperband_points(),
            min_updates=MIN_UPDATES,
            fitness="final_return",
            **shared,
        )

    return {
        "random search": random_search,
        "Hyperband": hyperband,
        "PBT": lambda: purerl.pbt(config, AXES, **population, **shared),
    }


def fresh_returns(config: purerl.PPOConfig, states: list[Any]) -> np.ndarray:
    """Mean return `[N]` of trained agents in fresh episodes, the same ones for all."""
    bound, key = bind(config), jax.random.key(123_456)

    def one(state: Any) -> jax.Array:
        played = evaluate_afresh(bound, bound.config, state, key, FRESH_EPISODES)
        return played.episode_return.mean()

    stacked = jax.tree.map(lambda *x: np.stack(x), *states)
    return np.asarray(jax.jit(jax.vmap(one))(to_device(stacked)))


def run_task(name: str, searches: int, console: Console) -> dict[str, Any]:
    """Search with every method, judge afresh; the numbers that are kept."""
    config = TASKS[name]
    found: dict[str, Any] = {}
    schedules: dict[str, Schedule] = {}
    for method, search in methods(config, searches).items():
        began = time.perf_counter()
        result = search()
        seconds = time.perf_counter() - began
        bests = [result.best(seed) for seed in result.seeds]
        schedules |= {f"{method} {i}": best.schedule for i, best in enumerate(bests)}
        found[method] = {
            "training_steps_per_search": result.training_steps // searches,
            "evaluation_steps_per_search": result.evaluation_steps // searches,
            "seconds": round(seconds, 1),
            "compile_seconds": result.summary["compile_seconds"],
            "own_score": [round(best.score, 2) for best in bests],
            "agent": fresh_returns(config, [b.state for b in bests]).tolist(),
            "final": [best.point for best in bests],
            "copies": _copies(result),
        }
        steps = found[method]["training_steps_per_search"]
        console.print(f"{name}, {method}: {steps:,} steps each, {seconds:.0f} s")
    began = time.perf_counter()
    judged = purerl.compare(
        config,
        schedules,
        seeds=HELD_OUT_SEEDS,
        measures=("evaluation",),
        lanes=HELD_OUT_SEEDS,
        segment_updates=READY,
        progress=False,
    )
    score = judged.scores["evaluation"][0]
    console.print(f"{name}: judged in {time.perf_counter() - began:.0f} s")
    per_search = score.mean(-1).reshape(len(found), searches)
    for numbers, setting in zip(found.values(), per_search, strict=True):
        numbers["setting"] = setting.tolist()
        for kind in ("agent", "setting"):
            numbers[f"{kind}_mean"] = float(np.mean(numbers[kind]))
    return {
        "task": name,
        "command": f"python experiments/population_search.py --tasks {name} "
        f"--searches {searches}",
        "searches": searches,
        "held_out_seeds": HELD_OUT_SEEDS,
        "config": to_dict(config),
        "methods": found,
        **hardware(),
    }


def _copies(result: Result) -> float | None:
    """Copies per search and exploit."""
    if not isinstance(result, PBTResult):
        return None
    parents = result.dataset.parent.values[:, :-1]
    return float((parents != np.arange(result.size)).sum(-1).mean())


def table(numbers: dict[str, Any]) -> Table:
    """A row per method."""
    searches = numbers["searches"]
    heading = heading_of(searches)
    title = f"{numbers['task']}: {searches} searches each, mean ({heading})"
    found = Table(title=title)
    found.add_column("method")
    for header in ("steps per search", "own score", "agent", "setting", "time"):
        found.add_column(header, justify="right")
    for method, row in numbers["methods"].items():
        cells = [_words(row[kind], heading) for kind in ("agent", "setting")]
        found.add_row(
            method,
            f"{row['training_steps_per_search']:,}",
            f"{np.mean(row['own_score']):,.1f}",
            *cells,
            f"{row['seconds']:.0f} s",
        )
    return found


def _words(values: list[float], heading: str) -> str:
    digits = 1 if abs(np.mean(values)) >= 100 else 2
    ends = mean_interval(np.asarray(values)).text(digits, heading)
    return f"{np.mean(values):,.{digits}f} ({ends})"


def main() -> None:
    """Run the tasks that were asked for; write and print their numbers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--searches", type=int, default=16)
    parser.add_argument("--dry", action="store_true", help="keep no numbers")
    parser.add_argument("--show", action="store_true", help="print what was kept")
    options = parser.parse_args()
    console = Console(width=110)
    if options.show:
        for path in sorted(STORE.glob("population-*.json")):
            console.print(table(json.loads(path.read_text())))
        return
    jnp.zeros(()).block_until_ready()
    for name in options.tasks:
        numbers = run_task(name, options.searches, console)
        if not options.dry:
            STORE.mkdir(exist_ok=True)
            path = STORE / f"population-{name}.json"
            write_atomic(path, json.dumps(numbers, indent=1) + "\n")
        console.print(table(numbers))


if __name__ == "__main__":
    main()

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
experiments/results/population-TASK.json. Those that are kept there were judged by an
earlier version, on seeds 1000 to 1003 of `purerl.train_schedules` and with evaluation
episodes of other keys.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from frame import interval_text, keep, options, show

import purerl
from purerl.population.halving import make_plan
from purerl.report.statistics import heading_of
from purerl.scale.host import to_device
from purerl.train import bind, evaluate_afresh

Result = purerl.PBTResult | purerl.HalvingResult
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


def run_task(name: str, searches: int) -> dict[str, Any]:
    """Search with every method, judge afresh; the numbers that are kept."""
    config = TASKS[name]
    found: dict[str, Any] = {}
    schedules: dict[str, Any] = {}
    for method, search in methods(config, searches).items():
        began = time.perf_counter()
        result = search()
        seconds = time.perf_counter() - began
        bests = [result.best(seed) for seed in result.seeds]
        schedules |= {f"{method} {i}": best.schedule for i, best in enumerate(bests)}
        steps = result.training_steps // searches
        found[method] = {
            "training_steps_per_search": steps,
            "evaluation_steps_per_search": result.evaluation_steps // searches,
            "seconds": round(seconds, 1),
            "compile_seconds": result.summary["compile_seconds"],
            "own_score": [round(best.score, 2) for best in bests],
            "agent": fresh_returns(config, [b.state for b in bests]).tolist(),
            "final": [best.point for best in bests],
        }
        print(f"{name}, {method}: {steps:,} steps each, {seconds:.0f} s", flush=True)
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
    print(f"{name}: judged in {time.perf_counter() - began:.0f} s", flush=True)
    score = judged.scores["evaluation"][0]
    per_search = score.mean(-1).reshape(len(found), searches)
    for numbers, setting in zip(found.values(), per_search, strict=True):
        numbers["setting"] = setting.tolist()
        for kind in ("agent", "setting"):
            numbers[f"{kind}_mean"] = float(np.mean(numbers[kind]))
    return {
        "task": name,
        "searches": searches,
        "held_out_seeds": HELD_OUT_SEEDS,
        "config": purerl.serialise.to_dict(config),
        "methods": found,
    }


def show_task(numbers: dict[str, Any]) -> None:
    """Print a row per method."""
    searches = numbers["searches"]
    heading = heading_of(searches)

    def words(values: list[float]) -> str:
        digits = 1 if abs(np.mean(values)) >= 100 else 2
        return interval_text(values, digits, heading)

    show(
        f"{numbers['task']}: {searches} searches each, mean ({heading})",
        ["method", "steps per search", "own score", "agent", "setting", "time"],
        [
            [
                method,
                f"{row['training_steps_per_search']:,}",
                f"{np.mean(row['own_score']):,.1f}",
                *(words(row[kind]) for kind in ("agent", "setting")),
                f"{row['seconds']:.0f} s",
            ]
            for method, row in numbers["methods"].items()
        ],
    )


def main() -> None:
    """Run the tasks that were asked for; write and print their numbers."""
    asked = options(
        __doc__,
        tasks=(list(TASKS), TASKS),
        searches=16,
        dry=(False, "keep no numbers"),
    )
    for name in asked.tasks:
        numbers = run_task(name, asked.searches)
        asked.command = (
            f"python experiments/population_search.py --tasks {name} "
            f"--searches {asked.searches}"
        )
        keep(f"population-{name}", asked, numbers)
        show_task(numbers)


if __name__ == "__main__":
    main()

"""PPO that tunes its own numbers online, against fixed numbers, from a poor start.

    python experiments/self_tuning.py [--steps 100000]

On two tasks step size, discount, trace decay and entropy bonus begin at numbers that
learn slowly. One agent keeps them, one moves them by meta-gradients in its single life
(Xu et al. 2018, Zahavy et al. 2020), and one has the best fixed numbers of a grid by
`purerl.sweep`. What a user would have to choose, the point of the grid as well as the
step size of the meta-gradients, is chosen by five seeds, and judged by ten others.

Prints a table; writes experiments/results/self-tuning.json and
docs/images/self-tuning.png. The same command goes on where it was stopped.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import frame
import jax
import numpy as np
from pictures import between, smooth, style

import purerl

PARTS = frame.ROOT / "runs" / "self-tuning"
TASKS = ("CartPole-v1", "Acrobot-v1")
NAMES = ("learning_rate", "gamma", "gae_lambda", "entropy_coef")
START = {"learning_rate": 1e-4, "gamma": 0.99, "gae_lambda": 0.95, "entropy_coef": 0.01}
GRID = {"learning_rate": [1e-4, 3e-4, 1e-3, 3e-3], "gamma": [0.95, 0.99]}
META_RATES = (0.01, 0.05)
CHOOSING, JUDGING, LANES = 5, 10, 5
COURSE = 100  # points of a curve in the file


def make_config(task: str, steps: int) -> purerl.PPOConfig:
    """PPO with a step size that is too small for so few steps."""
    config = purerl.PPOConfig(
        env=task, total_timesteps=steps, num_envs=8, num_evaluations=1
    )
    return config.replace(**START)


def keys_of(purpose: str) -> jax.Array:
    """The seeds that choose, or the others that judge."""
    count = {"choose": CHOOSING, "judge": JUDGING}[purpose]
    return jax.random.split(jax.random.key(1 if purpose == "judge" else 0), count)


def summary(result: Any, seconds: float) -> dict[str, Any]:
    """Scores of the seeds, and their mean curve."""
    returns = np.asarray(result.metrics["episode_return"])
    rows = np.linspace(0, returns.shape[1] - 1, COURSE).astype(int)
    evaluated = np.asarray(result.evaluation["episode_return"])[:, -1]
    return {
        "scores": evaluated.mean(-1).tolist(),
        "steps": np.asarray(result.metrics["env_steps"])[0, rows].tolist(),
        "returns": smooth(returns, 10)[:, rows].tolist(),
        "seconds": round(seconds, 1),
    }


def train(make: Callable[..., Any], purpose: str, *more: Any) -> tuple[Any, float]:
    """Train all seeds in one call; the seconds hold the compilation."""
    begin = time.perf_counter()
    axes = (0, *(None for _ in more))
    result = purerl.pmap(make, lanes=LANES, in_axes=axes)(keys_of(purpose), *more)
    jax.block_until_ready(result.metrics)
    return result, time.perf_counter() - begin


def fixed(config: purerl.PPOConfig, point: dict[str, float]) -> dict[str, Any]:
    """Train with the numbers of a point of the grid, which stay."""
    numbers = {name: np.float32(value) for name, value in point.items()}
    return summary(*train(purerl.make_train(config), "judge", numbers))


def tuned(config: purerl.PPOConfig, purpose: str, rate: float) -> dict[str, Any]:
    """Train agents that tune themselves."""
    make = purerl.self_tune(config, NAMES, meta_learning_rate=rate)
    result, seconds = train(make, purpose)
    found = summary(result, seconds)
    rows = np.linspace(0, result.course["update"].shape[1] - 1, COURSE).astype(int)
    found["course"] = {
        name: np.asarray(result.course[name])[:, rows].tolist()
        for name in ("update", *NAMES)
    }
    return found


def best_of_grid(config: purerl.PPOConfig) -> dict[str, Any]:
    """The point of the grid with the best evaluation, by the seeds that choose."""
    result = purerl.sweep(config, GRID, seeds=CHOOSING, progress=False)
    last = result.dataset["evaluation_return"].isel(evaluation=-1)
    scores = last.mean(["seed", "episode"])
    best = scores.isel(scores.argmax(...))
    point = {name: float(best[name]) for name in GRID}
    return {"point": point, "score": float(best)}


def study(task: str, asked: Any) -> dict[str, Any]:
    """Choose by some seeds and judge by others; all numbers of a task."""
    config = make_config(task, asked.steps)
    settings = {"steps": asked.steps, "start": START, "grid": GRID, "seeds": CHOOSING}

    def done(name: str, make: Callable[..., Any], *arguments: Any) -> Any:
        path, call = PARTS / f"{task}-{name}.json", partial(make, config, *arguments)
        return frame.part(path, call, settings)[0]["result"]

    grid = done("grid", best_of_grid)
    scores = {
        rate: float(np.mean(done(str(rate), tuned, "choose", rate)["scores"]))
        for rate in META_RATES
    }
    rate = max(scores, key=lambda rate: scores[rate])
    begin = {name: START[name] for name in GRID}
    return {
        "config": purerl.serialise.to_dict(config),
        "grid": grid,
        "meta_rates": {str(rate): score for rate, score in scores.items()},
        "meta_learning_rate": rate,
        "judged": {
            "start": done("start", fixed, begin),
            "self-tuned": done("tuned", tuned, "judge", rate),
            "best of the grid": done("best", fixed, grid["point"]),
        },
    }


def figure(tasks: dict[str, Any]) -> Any:
    """Curves of the three agents, and the course of the numbers, a row per task."""
    picture = style.new_figure(width=14.0, height=3.2 * len(tasks))
    rows = picture.subplots(len(tasks), 1 + len(NAMES), squeeze=False)
    for axes, (task, found) in zip(rows, tasks.items(), strict=True):
        for number, (name, judged) in enumerate(found["judged"].items()):
            _curve(axes[0], judged, name, style.COLOURS[number])
        axes[0].legend(frameon=False, fontsize=8)
        style.finish(axes[0], task, "environment steps", "return in training")
        style.step_axis(axes[0])
        course = found["judged"]["self-tuned"]["course"]
        for panel, name in zip(axes[1:], NAMES, strict=True):
            _course(panel, course, name, found["grid"]["point"].get(name))
    return picture


def _curve(axes: Any, judged: dict[str, Any], name: str, colour: str) -> None:
    curves = np.asarray(judged["returns"])
    known = np.isfinite(curves).any(0)  # from the first episode's end on
    curves, steps = curves[:, known], np.asarray(judged["steps"])[known]
    ends = np.nanmin(curves, axis=0), np.nanmax(curves, axis=0)
    between(axes, steps, np.nanmean(curves, axis=0), ends, colour, name)


def _course(axes: Any, course: dict[str, Any], name: str, best: float | None) -> None:
    updates, values = np.asarray(course["update"])[0], np.asarray(course[name])
    axes.plot(updates, values.T, color=style.COLOURS[1], alpha=0.4, lw=0.8)
    axes.axhline(START[name], color=style.COLOURS[0], lw=1.0, ls=":")
    if best is not None:
        axes.axhline(best, color=style.COLOURS[2], lw=1.0, ls="--")
    if name in ("learning_rate", "entropy_coef"):
        style.log_axis(axes, "y")
    style.finish(axes, name, "update")


def main() -> None:
    """Choose, judge, print and write."""
    asked = frame.options(
        __doc__,
        is_cached=True,
        steps=(100_000, "steps of an agent"),
    )
    tasks = {task: study(task, asked) for task in TASKS}
    rows = []
    for task, found in tasks.items():
        judged = list(found["judged"].values())
        point = ", ".join(f"{k}={v:g}" for k, v in found["grid"]["point"].items())
        words = (f"{found['meta_learning_rate']:g}", point)
        evaluated = [frame.interval_text(one["scores"], 0) for one in judged]
        last = [[row[-1] for row in one["returns"]] for one in judged]
        rows.append([f"{task}: evaluation", *evaluated, *words])
        trained = [frame.interval_text(x, 0) for x in last]
        rows.append(["training, last 10 updates", *trained])
    names = next(iter(tasks.values()))["judged"]
    frame.show("", ["task", *names, "meta", "point"], rows, 170)
    for task, found in tasks.items():
        seconds = {name: judged["seconds"] for name, judged in found["judged"].items()}
        print(f"{task}: seconds of {JUDGING} seeds with compilation: {seconds}")
    style.save(figure(tasks), frame.IMAGES / "self-tuning.png")
    numbers = {"command": asked.command, "tasks": frame.plain(tasks, 4)}
    path = frame.RESULTS / "self-tuning.json"
    frame.write(path, numbers | frame.hardware(), indent=None)


if __name__ == "__main__":
    main()

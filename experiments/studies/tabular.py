"""Tables of action values on a grid world and along a cliff.

python experiments/studies/tabular.py [--quick]
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from measure import compiled, timed
from study import Budget, Findings, Row, interval_text, main, study_of

# isort: split
from pictures import band, smooth, style

import purerl

STUDY, WORDS = study_of("tabular", "jym")
METHODS = {
    "q_learning": "Q-learning",
    "sarsa": "SARSA",
    "expected_sarsa": "expected SARSA",
    "double_q": "double Q-learning",
}
TASKS = {"GridWorld-v0": (8, 12), "CliffWalking-v0": (4, 11)}
AGENTS, STEPS = 30, 100_000
RATES = tuple(round(0.1 * k, 1) for k in range(1, 11))
RUNS, BOOK_STEPS, EPISODES = 50, 25_000, 500
BOOK = {
    "env": "CliffWalking-v0",
    "env_kwargs": {"size": (4, 12), "cliff_ends": False},
    "env_params": {"goal_reward": -1.0},
    "gamma": 1.0,
    "num_steps": 10,  # No episode is shorter than 13, so no update has two ends.
    "num_evaluations": 0,
}
CLAIMS = {  # iterations per second of jym's notebooks: one agent, 30 agents
    ("GridWorld-v0", "q_learning"): ("1,470,000", "43,400"),
    ("GridWorld-v0", "expected_sarsa"): ("890,000", "29,600"),
    ("GridWorld-v0", "double_q"): ("1,070,000", "-"),
    ("CliffWalking-v0", "q_learning"): ("10,700", "291"),
    ("CliffWalking-v0", "expected_sarsa"): ("-", "486"),
}


def train_grid(task: str, method: str, agents: int, steps: int) -> dict[str, float]:
    """Time a call of agents on one of jym's tasks: seconds, and those of compiling."""
    config = purerl.TabularConfig(
        env=task, method=method, total_timesteps=steps, num_evaluations=0
    )
    train = jax.vmap(purerl.make_train(config))
    keys = jax.random.split(jax.random.key(0), agents)
    call, compile_seconds = compiled(train, keys)
    call(keys)
    seconds = timed(call, keys, repeats=3 if agents <= AGENTS else 1)
    return {"seconds": seconds, "compile": compile_seconds}


def train_book(method: str, runs: int, steps: int) -> dict[str, Any]:
    """Train every step size with so many runs in one call; returns by episode."""
    config = purerl.TabularConfig(
        **{**BOOK, "method": method, "total_timesteps": steps}
    )
    keys = jax.random.split(jax.random.key(1), runs)
    train = jax.vmap(purerl.make_train(config), (0, None))
    every = jax.vmap(lambda keys, rate: train(keys, rate).metrics, (None, 0))
    rates = {"learning_rate": jnp.asarray(RATES)}
    call, compile_seconds = compiled(every, keys, rates)
    metrics = jax.device_get(call(keys, rates))
    returns = metrics["episode_return"].reshape(len(RATES) * runs, -1)
    has_ended = metrics["episodes"].reshape(returns.shape) > 0
    episodes = [row[ended] for row, ended in zip(returns, has_ended, strict=True)]
    first = [row[:100].mean() for row in episodes]
    last = [row[-100:].mean() for row in episodes]
    chosen = episodes[RATES.index(0.5) * runs :][:runs]
    count = min(EPISODES, *map(len, chosen))
    return {
        "compile": compile_seconds,
        "interim": np.reshape(first, (len(RATES), runs)).tolist(),
        "asymptotic": np.reshape(last, (len(RATES), runs)).tolist(),
        "fewest": min(map(len, episodes)),
        "curves": [row[:count].tolist() for row in chosen],
    }


def measure(budget: Budget) -> Findings:
    """Measure everything, part by part."""
    agents, steps = (4, 2_000) if budget.quick else (AGENTS, STEPS)
    runs, book_steps = (2, 4_000) if budget.quick else (RUNS, BOOK_STEPS)
    methods = list(METHODS)[:1] if budget.quick else list(METHODS)
    cases = [(task, method) for task in TASKS for method in methods]
    size: dict[str, Any] = {"agents": agents, "steps": steps}
    book_size: dict[str, Any] = {"runs": runs, "steps": book_steps}
    grids = {
        case: budget.part("-".join(case), train_grid, *case, agents, steps, **size)
        for case in cases
    }
    book = {
        method: budget.part(
            f"book-{method}", train_book, method, runs, book_steps, **book_size
        )
        for method in methods
    }
    speeds = measure_speeds(budget, grids, agents, steps)
    curves = {METHODS[method]: found["curves"] for method, found in book.items()}
    caption = WORDS.fill("picture episodes", **book_size)
    figure = budget.save(curve_figure(curves), "episodes", caption)
    text = [WORDS["bootstrap"]]
    rows = [*speed_rows(speeds), *book_rows(book)]
    return Findings(rows, [figure], text)


def measure_speeds(
    budget: Budget, grids: dict, agents: int, steps: int
) -> dict[tuple[str, str], dict[int, float]]:
    """Find iterations per second by task, method and number of agents."""
    speeds: dict[tuple[str, str], dict[int, float]] = {}
    for case in (case for case in grids if case in CLAIMS):
        name, found = "-".join(case), {agents: steps / grids[case]["seconds"]}
        one = budget.part(f"{name}-one", train_grid, *case, 1, steps, steps=steps)
        found[1] = steps / one["seconds"]
        speeds[case] = found
    return speeds


def speed_rows(speeds: dict[tuple[str, str], dict[int, float]]) -> list[Row]:
    """Put jym's rates beside what was measured."""
    rows = []
    for (task, method), found in speeds.items():
        some = min(n for n in found if n > 1)
        for agents, claim in zip((1, some), CLAIMS[task, method], strict=True):
            if claim == "-":
                continue
            rate = found[agents]
            ratio = rate / float(claim.replace(",", ""))
            digits = 0 if ratio > 10 else 2 if ratio < 1 else 1
            row = WORDS.row(
                "rate",
                method=METHODS[method],
                task=task,
                agents=agents,
                s="s" * (agents > 1),
                claim=claim,
                rate=rate,
                steps=agents * rate,
                note=WORDS.fill(task, ratio=f"{ratio:,.{digits}f}"),
            )
            rows.append(row)
    return rows


def book_rows(book: dict[str, dict[str, Any]]) -> list[Row]:
    """Put the book's returns along the cliff beside what was measured."""
    claimed = {"q_learning": "about -50", "sarsa": "about -25"}
    rows = []
    for method, found in book.items():
        words = f"{claimed[method]} (example 6.6)" if method in claimed else "-"
        here = interval_text(np.asarray(found["curves"])[:, -100:].mean(1))
        row = WORDS.row("book", method=METHODS[method], claimed=words, here=here)
        rows.append(row)
    return rows


def curve_figure(found: dict[str, Any]) -> Any:
    """Draw the return of each episode of the book's cliff."""
    figure = style.new_figure(width=7.5, height=4.4)
    axes = figure.subplots()
    for (name, curves), colour in zip(found.items(), style.COLOURS, strict=False):
        y = smooth(curves, 10)
        x = np.arange(1, y.shape[1] + 1)
        band(axes, x, y, colour, name, linewidth=1.3)
    axes.set_ylim(-100, -10)
    axes.legend(frameon=False, loc="lower right")
    style.finish(axes, "", "episode", "return of the episode")
    return figure


if __name__ == "__main__":
    main(STUDY, measure)

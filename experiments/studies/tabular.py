"""Tables of action values on a grid world and along a cliff.

python experiments/studies/tabular.py [--quick]
"""

from typing import Any

import jax
import numpy as np
from measure import time_agents
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
AGENTS, STEPS = 30, 100_000
RUNS, BOOK_STEPS, EPISODES = 50, 25_000, 500
BOOK = {
    "env": "CliffWalking-v0",
    "env_kwargs": {"size": (4, 12), "cliff_ends": False},
    "env_params": {"goal_reward": -1.0},
    "gamma": 1.0,
    "learning_rate": 0.5,
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
    """Time a call of agents on one of jym's tasks."""
    config = purerl.TabularConfig(
        env=task, method=method, total_timesteps=steps, num_evaluations=0
    )
    return time_agents(config, agents, 3 if agents <= AGENTS else 1)


def train_book(method: str, runs: int, steps: int) -> dict[str, Any]:
    """Train so many runs along the book's cliff in one call; returns by episode."""
    config = purerl.TabularConfig(
        **{**BOOK, "method": method, "total_timesteps": steps}
    )
    keys = jax.random.split(jax.random.key(1), runs)
    metrics = jax.jit(jax.vmap(purerl.make_train(config)))(keys).metrics
    returns, ended = (np.asarray(metrics[n]) for n in ("episode_return", "episodes"))
    episodes = [row[ends > 0] for row, ends in zip(returns, ended, strict=True)]
    count = min(EPISODES, *map(len, episodes))
    return {"curves": [row[:count].tolist() for row in episodes]}


def measure(budget: Budget) -> Findings:
    """Measure everything, part by part."""
    agents, steps = (4, 2_000) if budget.quick else (AGENTS, STEPS)
    runs, book_steps = (2, 4_000) if budget.quick else (RUNS, BOOK_STEPS)
    methods = list(METHODS)[:1] if budget.quick else list(METHODS)
    book_size: dict[str, Any] = {"runs": runs, "steps": book_steps}
    speeds: dict[tuple[str, str], dict[int, float]] = {}
    for case in (case for case in CLAIMS if case[1] in methods):
        speeds[case] = {}
        for n in (1, agents):
            given = (f"{'-'.join(case)}-{n}", train_grid, *case, n, steps)
            seconds = budget.part(*given, steps=steps)["train"]
            speeds[case][n] = steps / seconds
    book = {
        method: budget.part(
            f"book-{method}", train_book, method, runs, book_steps, **book_size
        )
        for method in methods
    }
    curves = {METHODS[method]: found["curves"] for method, found in book.items()}
    caption = WORDS.fill("picture episodes", **book_size)
    figure = budget.save(curve_figure(curves), "episodes", caption)
    text = [WORDS["bootstrap"]]
    rows = [*speed_rows(speeds), *book_rows(book)]
    return Findings(rows, [figure], text)


def speed_rows(speeds: dict[tuple[str, str], dict[int, float]]) -> list[Row]:
    """Put jym's rates beside what was measured."""
    rows = []
    for (task, method), found in speeds.items():
        claims = CLAIMS[task, method]
        for (agents, rate), claim in zip(found.items(), claims, strict=True):
            if claim == "-":
                continue
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

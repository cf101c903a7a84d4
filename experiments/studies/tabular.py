"""Tables of action values on a grid world and along a cliff.

python experiments/studies/tabular.py [--quick]
"""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from measure import compiled, timed
from study import Budget, Findings, Row, Table, interval_text, main, study_of

# isort: split
from frame import mean_interval
from pictures import band, legend_below, smooth, style

import purerl
from purerl import envs
from purerl.envs.gridworld import MOVES

STUDY, WORDS = study_of("tabular", "jym", (0, 1))
METHODS = {
    "q_learning": "Q-learning",
    "sarsa": "SARSA",
    "expected_sarsa": "expected SARSA",
    "double_q": "double Q-learning",
}
TASKS = {"GridWorld-v0": (8, 12), "CliffWalking-v0": (4, 11)}
AGENTS, STEPS = 30, 100_000
# The time of many agents is linear in their steps, so they are timed on a part of them.
WIDE, WIDE_STEPS = 1_000, 2_000
RATES = tuple(round(0.1 * k, 1) for k in range(1, 11))
RUNS, BOOK_STEPS, EPISODES = 50, 25_000, 500
NEVER = 1_000  # In place of the length of a path that does not lead to the goal.
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
    ("GridWorld-v0", "sarsa"): ("-", "-"),  # For the sentence on wide calls.
    ("GridWorld-v0", "expected_sarsa"): ("890,000", "29,600"),
    ("GridWorld-v0", "double_q"): ("1,070,000", "-"),
    ("CliffWalking-v0", "q_learning"): ("10,700", "291"),
    ("CliffWalking-v0", "expected_sarsa"): ("-", "486"),
}


def trained(task: str, method: str, agents: int, steps: int) -> tuple[Any, ...]:
    """Train agents on one of jym's tasks.

    Returns:
        What they learned, the compiled call and its keys, and the seconds of compiling.
    """
    config = purerl.TabularConfig(
        env=task, method=method, total_timesteps=steps, num_evaluations=0
    )
    train = jax.vmap(purerl.make_train(config))
    keys = jax.random.split(jax.random.key(0), agents)
    call, compile_seconds = compiled(train, keys)
    return call(keys), call, keys, compile_seconds


def train_grid(task: str, method: str, agents: int, steps: int) -> dict[str, Any]:
    """Train agents on one of jym's tasks: what they learned, and the time."""
    result, call, keys, compile_seconds = trained(task, method, agents, steps)
    seconds = timed(call, keys, repeats=3 if agents <= AGENTS else 1)
    tables = np.asarray(result.state.params["q"]).mean(1)  # double Q-learning's two
    model: Any = envs.make(task)
    lengths = [greedy_length(model, q) for q in tables]
    metrics = {
        name: np.asarray(result.metrics[name], float)
        for name in ("episode_return", "episode_length")
    }
    return {
        "seconds": seconds,
        "compile": compile_seconds,
        "q": tables.mean(0).tolist(),
        "visits": np.asarray(result.state.visits).sum(-1).mean(0).tolist(),
        "greedy_lengths": lengths,
        **{name: values.tolist() for name, values in metrics.items()},
    }


def greedy_walk(env: Any, q: np.ndarray) -> tuple[str, list[int]]:
    """Walk from the start as the greedy policy does, until it is known how that ends.

    Args:
        env: Environment with a model.
        q: `[S, A]` action values.

    Returns:
        `goal`; `cliff` after a fall; `still` for a cell that is never left, because the
        agent pushes against a wall; or `circle`. And the cells that were walked from.
    """
    model, width = env.model(), env.size[1]
    goal = env.goal[0] * width + env.goal[1]
    state, cells = env.start[0] * width + env.start[1], []
    while state not in cells:
        cells.append(state)
        action = int(np.argmax(q[state]))
        following = int(model.next_state[state, action])
        if following == goal:
            return "goal", cells
        if model.terminated[state, action]:
            return "cliff", cells
        if following == state:
            return "still", cells
        state = following
    return "circle", cells


def greedy_length(env: Any, q: np.ndarray) -> int:
    """Count the steps of the greedy policy to the goal; `NEVER` if it is not reached.

    Args:
        env: Environment with a model.
        q: `[S, A]` action values.
    """
    end, cells = greedy_walk(env, q)
    return len(cells) if end == "goal" else NEVER


def greedy_ends(task: str, method: str, agents: int, steps: int) -> dict[str, int]:
    """Count how the greedy walks of trained agents end, and where they stand still."""
    env: Any = envs.make(task)
    tables = np.asarray(trained(task, method, agents, steps)[0].state.params["q"])
    counts = Counter()
    for q in tables.mean(1):
        end, cells = greedy_walk(env, q)
        on_start = end == "still" and len(cells) == 1
        counts["still on the start" if on_start else end] += 1
    return dict(counts)


def time_grid(task: str, method: str, agents: int, steps: int) -> dict[str, float]:
    """Time a call of so many agents: seconds, and those of compilation."""
    found = train_grid(task, method, agents, steps)
    return {name: found[name] for name in ("seconds", "compile")}


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
    ends = {
        case: budget.part(
            f"{'-'.join(case)}-ends", greedy_ends, *case, agents, steps, **size
        )
        for case, found in grids.items()
        if max(found["greedy_lengths"]) == NEVER
    }
    speeds = measure_speeds(budget, grids, agents, steps)
    named = {METHODS[method]: found for method, found in book.items()}
    on_tasks = {METHODS[m]: [grids[task, m] for task in TASKS] for m in methods}
    figures = []
    for task, name in zip(TASKS, ("gridworld", "cliff"), strict=True):
        picture = grid_figure({METHODS[m]: grids[task, m] for m in methods}, task)
        caption = WORDS.fill("picture gridworld", task=task, **size)
        figures.append(budget.save(picture, name, caption))
    fewest = min(found["fewest"] for found in book.values())
    curves = {name: found["curves"] for name, found in named.items()}
    for name, picture, numbers in (
        ("learning", learning_figure(on_tasks, steps), size),
        ("episodes", curve_figure(curves), book_size),
        ("step-sizes", rate_figure(named, RATES), {"fewest": fewest, **book_size}),
    ):
        caption = WORDS.fill(f"picture {name}", **numbers)
        figures.append(budget.save(picture, name, caption))
    text = [WORDS["bootstrap"]]
    text += [ends_text(METHODS[m], task, found) for (task, m), found in ends.items()]
    wide = [
        f"{METHODS[method]} {WIDE * found[WIDE]:,.0f}"
        for (_, method), found in speeds.items()
        if WIDE in found
    ]
    if wide:
        numbers = {"agents": WIDE, "steps": WIDE_STEPS, "some": AGENTS}
        text.append(WORDS.fill("wide", rates=", ".join(wide), **numbers))
    rows = [*speed_rows(speeds), *book_rows(book)]
    tables = [] if len(book) < len(METHODS) else [learned_table(grids)]
    return Findings(rows, figures, tables, text)


def measure_speeds(
    budget: Budget, grids: dict, agents: int, steps: int
) -> dict[tuple[str, str], dict[int, float]]:
    """Find iterations per second by task, method and number of agents."""
    speeds: dict[tuple[str, str], dict[int, float]] = {}
    for case in (case for case in grids if case in CLAIMS):
        name, found = "-".join(case), {agents: steps / grids[case]["seconds"]}
        one = budget.part(f"{name}-one", time_grid, *case, 1, steps, steps=steps)
        found[1] = steps / one["seconds"]
        if case[0] == "GridWorld-v0" and not budget.quick:
            sizes = (WIDE, WIDE_STEPS)
            part = (f"{name}-wide", time_grid, *case, *sizes)
            wide = budget.part(*part, steps=WIDE_STEPS)
            found[WIDE] = WIDE_STEPS / wide["seconds"]
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


def learned_table(grids: dict[tuple[str, str], dict[str, Any]]) -> Table:
    """Return how many agents reach the goal, and in how many steps."""
    rows = []
    for (task, method), found in grids.items():
        lengths = found["greedy_lengths"]
        reached = [length for length in lengths if length < NEVER]
        words = interval_text(reached) if reached else "-"
        shortest = {"GridWorld-v0": 18, "CliffWalking-v0": 12}[task]
        rate = f"{STEPS / found['seconds']:,.0f}"
        count = f"{len(reached)} of {len(lengths)}"
        rows.append([task, METHODS[method], count, words, shortest, rate])
    heads = ["task", "method", "agents that reach the goal", "their steps, greedy"]
    heads += ["shortest", "iterations/s, 30 agents"]
    return Table("What was learned", heads, rows)


def ends_text(method: str, task: str, counts: dict[str, int]) -> str:
    """Say how the greedy walks of a method's agents end."""
    words = {
        "goal": "reach the goal",
        "still on the start": "stand still on the start and push against the wall",
        "still": "stand still in another cell at the wall",
        "circle": "walk in a circle",
        "cliff": "fall from the cliff",
    }
    found = ", ".join(f"{counts.get(end, 0)} {said}" for end, said in words.items())
    numbers = {"agents": sum(counts.values()), "method": method, "task": task}
    said = WORDS.fill("ends", found=found, **numbers)
    return f"{said} {WORDS['staying']}" if task == "CliffWalking-v0" else said


def grid_figure(found: dict[str, dict[str, Any]], task: str) -> Any:
    """Draw values with greedy actions, and visits below, a column per method.

    Args:
        found: What each method learned, `q` `[S, A]` and `visits` `[S]`.
        task: Name of the environment.
    """
    from matplotlib.colors import LogNorm

    env: Any = envs.make(task)
    shape, done = env.size, _ends(env)
    height = 2 * (2.9 * shape[0] / shape[1] + 0.2) + 0.3
    figure = style.new_figure(width=3.0 * len(found) + 0.9, height=height)
    panels = figure.subplots(2, len(found), squeeze=False)
    tables = {name: np.asarray(one["q"]) for name, one in found.items()}
    values = {
        name: np.where(done, np.nan, q.max(1)).reshape(shape)
        for name, q in tables.items()
    }
    low = min(np.nanmin(v) for v in values.values())
    high = max(np.nanmax(v) for v in values.values())
    visits = {
        n: np.where(done, np.nan, one["visits"]).reshape(shape)
        for n, one in found.items()
    }
    most = max(np.nanmax(v) for v in visits.values())
    image: Any = None
    image_visits: Any = None
    for (above, below), name in zip(panels.T, found, strict=True):
        image = above.imshow(values[name], style.COLOUR_MAP, vmin=low, vmax=high)
        _arrows(above, tables[name].reshape(*shape, -1), done.reshape(shape))
        seen = np.maximum(visits[name], 1)
        image_visits = below.imshow(seen, "magma", norm=LogNorm(1, most))
        above.set_title(name, fontsize=11, color=style.INK, loc="left")
        for axes in (above, below):
            axes.set_facecolor("#d0d7de")  # What no agent acts in.
            row, column = env.goal
            centred = {"ha": "center", "va": "center", "weight": "bold"}
            axes.text(column, row, "G", fontsize=9, color="black", **centred)
            # The start has an arrow of its own, so its letter stands beside the grid.
            row, column = env.start
            outside = -0.85 if column == 0 else shape[1] - 0.15
            axes.text(outside, row, "S", fontsize=10, color=style.INK, **centred)
            axes.set_xticks([])
            axes.set_yticks([])
            style.ink(axes)
    for row, drawn, words in (
        (0, image, "largest action value"),
        (1, image_visits, "visits per agent"),
    ):
        bar = figure.colorbar(drawn, ax=list(panels[row]), shrink=0.85, pad=0.01)
        bar.set_label(words, color=style.INK)
        bar.ax.tick_params(colors=style.INK, labelsize=9)
    return figure


def _ends(env: Any) -> np.ndarray:
    """Cells in which no agent ever acts: the goal and the cliff, bool `[S]`."""
    height, width = env.size
    cells = [np.array(divmod(s, width)) for s in range(height * width)]
    return np.array([bool(env.is_cliff(c)) or tuple(c) == env.goal for c in cells])


def _arrows(axes: Any, q: np.ndarray, done: np.ndarray) -> None:
    """An arrow for the greedy action of every cell that has one best action."""
    values = q.max(-1)[~done]
    light = float(values.min() + 0.7 * np.ptp(values))
    for row, column in np.argwhere(~done):
        best = np.flatnonzero(q[row, column] == q[row, column].max())
        if len(best) > 1:
            continue
        down, right = MOVES[best[0]]
        start = (column - 0.3 * right, row - 0.3 * down)
        end = (column + 0.35 * right, row + 0.35 * down)
        # White is not seen on the palest cells of the map.
        best_value = float(q[row, column].max())
        colour = "white" if best_value < light else style.INK
        arrow = {"arrowstyle": "->", "color": colour, "linewidth": 0.9}
        axes.annotate("", end, start, arrowprops=arrow)


def learning_figure(found: dict[str, list[dict[str, Any]]], steps: int) -> Any:
    """Draw episodes in training: lengths on the grid world, returns on the cliff.

    Args:
        found: By method, what was measured on both tasks.
        steps: Environment steps of an agent.
    """
    figure = style.new_figure(height=4.2)
    left, right = figure.subplots(1, 2)
    for (name, (grid, cliff)), colour in zip(
        found.items(), style.COLOURS, strict=False
    ):
        for axes, one, key in (
            (left, grid, "episode_length"),
            (right, cliff, "episode_return"),
        ):
            y = smooth(one[key], 20)
            every = max(1, y.shape[1] // 100)
            x = np.linspace(0, steps, y.shape[1])[::every]
            band(axes, x, y[:, ::every], colour, name, linewidth=1.3)
    style.log_axis(left, "y")
    shortest = {"color": style.INK, "linewidth": 0.8, "linestyle": ":"}
    left.axhline(18, label="shortest path", **shortest)
    left.legend(frameon=False)
    style.finish(left, "GridWorld-v0", "environment steps", "steps of an episode")
    style.finish(right, "CliffWalking-v0", "environment steps", "return of an episode")
    for axes in (left, right):
        style.step_axis(axes)
    return figure


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


def rate_figure(found: dict[str, dict[str, Any]], rates: tuple[float, ...]) -> Any:
    """Draw returns against the step size, of the first and of the last episodes."""
    figure = style.new_figure(width=7.5, height=4.8)
    axes = figure.subplots()
    kinds = (("interim", "-", "first 100"), ("asymptotic", "--", "last 100"))
    for i, (name, one) in enumerate(found.items()):
        look: dict[str, Any] = {"color": style.COLOURS[i], "marker": style.MARKERS[i]}
        look |= {"markersize": 4, "linewidth": 1.2}
        for key, line, words in kinds:
            runs = np.asarray(one[key], float).T
            ends, mean = mean_interval(runs), runs.mean(0)
            bars = [mean - ends.low, ends.high - mean]
            label = f"{name}, {words}"
            axes.errorbar(rates, mean, bars, linestyle=line, label=label, **look)
    axes.set_ylim(-150, -10)
    axes.set_xticks(rates)
    style.finish(axes, "", "step size", "return of an episode")
    legend_below(figure, axes)
    return figure


if __name__ == "__main__":
    main(STUDY, measure)

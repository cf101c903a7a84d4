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
from tabular_figures import curve_figure, grid_figure, learning_figure, rate_figure

import purerl
from purerl import envs

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
    size, book_size = {"agents": agents, "steps": steps}, {"runs": runs}
    book_size["steps"] = book_steps
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
    figures = [
        budget.save(
            grid_figure({METHODS[m]: grids[task, m] for m in methods}, envs.make(task)),
            name,
            f"{task}: above, the largest action value of every cell and the greedy "
            f"action, both of the mean table of {agents} agents after {steps:,} steps, "
            "which need not be the action of any one of them; below, how often a "
            "cell was visited by an agent, on a logarithmic scale. S is beside the "
            "start, G on the goal; a cell without an arrow has several actions of one "
            "largest value.",
        )
        for task, name in zip(TASKS, ("gridworld", "cliff"), strict=True)
    ]
    figures += [
        budget.save(
            learning_figure(on_tasks, steps),
            "learning",
            f"In training, mean over {agents} agents with its 95% interval, averaged "
            "over twenty updates of 100 steps: steps of an episode on the grid world, "
            "whose shortest path has 18, and the return on the cliff, where an episode "
            "ends after a fall.",
        ),
        budget.save(
            curve_figure({name: found["curves"] for name, found in named.items()}),
            "episodes",
            f"The book's cliff (example 6.6) at step size 0.5: return of each episode "
            f"in training, mean over {runs} runs with its 95% interval, averaged over "
            f"ten episodes. A run has {book_steps:,} steps. The picture is cut "
            "at -100; the first episodes lie below.",
        ),
        budget.save(
            rate_figure(named, RATES),
            "step-sizes",
            "The book's cliff (figure 6.3): return in training against the step size, "
            f"over the first 100 episodes and over the last 100 of {book_steps:,} "
            f"steps, means of {runs} runs with their 95% intervals. The run with the "
            f"fewest episodes has {min(one['fewest'] for one in book.values()):,}. The "
            "picture is cut at -150.",
        ),
    ]
    text = [WORDS["bootstrap"]]
    text += [ends_text(METHODS[m], task, found) for (task, m), found in ends.items()]
    wide = [
        f"{METHODS[method]} {WIDE * found[WIDE]:,.0f}"
        for (_, method), found in speeds.items()
        if WIDE in found
    ]
    if wide:
        text.append(
            f"{WIDE:,} agents in one call take, in steps per second over all agents: "
            f"{', '.join(wide)} (timed on {WIDE_STEPS:,} steps each). The table's "
            f"iterations per second are of {AGENTS} agents in one call."
        )
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
            rows.append(
                Row(
                    f"{METHODS[method]}, {task}, {agents} agent{'s' * (agents > 1)}",
                    f"{claim} iterations/s (an iteration is a step of every agent)",
                    f"{rate:,.0f} iterations/s, {agents * rate:,.0f} steps/s",
                    speed_note(task, rate, claim),
                )
            )
    return rows


def book_rows(book: dict[str, dict[str, Any]]) -> list[Row]:
    """Put the book's returns along the cliff beside what was measured."""
    claimed = {"q_learning": "about -50", "sarsa": "about -25"}
    return [
        Row(
            f"{METHODS[method]}: return in training along the book's cliff, last "
            "100 of 500 episodes",
            claimed.get(method, "-") + " (example 6.6)" * (method in claimed),
            interval_text(np.asarray(found["curves"])[:, -100:].mean(1)),
            "Step size 0.5, epsilon 0.1; the book does not state its step size, "
            "on which the return depends (see the picture of step sizes).",
        )
        for method, found in book.items()
    ]


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


def speed_note(task: str, here: float, claim: str) -> str:
    """Return how a rate compares with the source's, and why they differ.

    Args:
        task: Id of the task.
        here: Iterations per second that were measured.
        claim: The source's iterations per second, as text.
    """
    ratio = here / float(claim.replace(",", ""))
    words = f"{ratio:,.{0 if ratio > 10 else 2 if ratio < 1 else 1}f} times its rate"
    if task == "CliffWalking-v0":
        return f"{words}: jym keeps the whole history of the table here."
    return (
        f"{words}: another machine, and a step here also counts visits, cuts episodes "
        "by time and keeps their returns."
    )


def ends_text(method: str, task: str, counts: dict[str, int]) -> str:
    """Say how the greedy walks of a method's agents end."""
    words = {
        "goal": "reach the goal",
        "still on the start": "stand still on the start and push against the wall",
        "still": "stand still in another cell at the wall",
        "circle": "walk in a circle",
        "cliff": "fall from the cliff",
    }
    found = [f"{counts.get(end, 0)} {said}" for end, said in words.items()]
    said = (
        f"Of the greedy policies of {sum(counts.values())} agents, trained with "
        f"{method} on {task}, {', '.join(found)}."
    )
    if task != "CliffWalking-v0":
        return said
    return (
        f"{said} With gamma 0.9 staying for ever is worth -10, and the way along the "
        "upper wall, which takes 16 steps, about -8."
    )


if __name__ == "__main__":
    main(STUDY, measure)

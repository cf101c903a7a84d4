"""Doors-v0 in Gymnasium and in JAX, and DQN in three stacks: rlbyexample's figures.

python experiments/studies/doors.py [--quick]
"""

from typing import Any

import doors_speed
import jax
import numpy as np
from doors_agents import loop
from doors_agents.config import make_config
from doors_speed import KINDS, SIZE, TIMED
from measure import compiled, timed, torch_threads
from study import Budget, Findings, Row, interval_text, main, study_of

# isort: split
from frame import RESULTS, read
from pictures import STACKS as COLOURS
from pictures import between, legend_below, smooth, stacked, style

import purerl

STUDY, WORDS = study_of("doors", "rlbyexample")
STACKS = {
    "torch": "PyTorch + Gymnasium",
    "flax": "Flax + Gymnasium",
    "jax": "all JAX",
}
SEEDS = 10
WINDOW = 3  # Rows that a curve averages: episodes of one row are few at first.
# PyTorch, Flax, all JAX.
STACK_COLOURS = (COLOURS["PyTorch"], COLOURS["Flax"], COLOURS["purerl"])
BUSY = 10.0  # A load average at which the two cores have not been idle.


def host_agent(stack: str, config: purerl.DQNConfig, seed: int) -> dict[str, Any]:
    """Train an agent around Gymnasium; how it went, and what it achieves."""
    if stack == "torch":
        from doors_agents import torch_dqn as agent

        torch_threads(1)
    else:
        from doors_agents import flax_dqn as agent
    learner, course = agent.train(config, seed)
    score = loop.score(learner.greedy)
    return {**course._asdict(), "train": course.seconds[-1], "score": score.numbers()}


def jax_agents(config: purerl.DQNConfig, seeds: int) -> list[dict[str, Any]]:
    """Train agents in one call, and one alone for the time; as `host_agent` returns.

    Args:
        config: Settings.
        seeds: Number of agents.
    """
    train = purerl.make_train(config)
    keys = jax.random.split(jax.random.key(0), seeds)
    alone, compile_seconds = compiled(train, keys[0])
    seconds = timed(alone, keys[0])
    result = jax.jit(jax.vmap(train))(keys)
    found = []
    for i in range(seeds):
        state = jax.tree.map(lambda x, i=i: x[i], result.state)
        act = jax.jit(purerl.make_policy(config, state))
        score = loop.score(lambda obs, act=act: np.asarray(act(obs)))
        metrics = {name: np.asarray(x[i], float) for name, x in result.metrics.items()}
        steps = metrics["env_steps"]
        found.append(
            {
                "env_steps": steps.tolist(),
                "episode_return": metrics["episode_return"].tolist(),
                "episode_length": metrics["episode_length"].tolist(),
                # The seconds of one agent alone; every step costs the same.
                "seconds": (steps / steps[-1] * seconds).tolist(),
                "score": score.numbers(),
                "train": seconds,
                "compile": compile_seconds,
            }
        )
    return found


def measure(budget: Budget) -> Findings:
    """Measure everything, part by part."""
    size, repeats, steps = (8, 2, 64) if budget.quick else (SIZE, 3, 512)
    seconds: dict[str, float] = {}
    loads: dict[str, float] = {}
    settings: dict[str, Any] = {"size": size, "repeats": repeats, "steps": steps}
    for kind in TIMED:
        given = (doors_speed.in_own_process, kind, size, repeats, steps)
        seconds[kind] = budget.part(f"speed-{kind}", *given, **settings)
        loads[kind] = budget.used[-1].get("load_before", 0.0)
    config, seeds = make_config(budget.quick), 1 if budget.quick else SEEDS
    same = purerl.serialise.to_dict(config)
    agents: dict[str, list[dict[str, Any]]] = {
        stack: [
            budget.part(f"{stack}-{n}", host_agent, stack, config, n, config=same)
            for n in range(seeds)
        ]
        for stack in ("torch", "flax")
    }
    agents["jax"] = budget.part(
        "jax", jax_agents, config, seeds, config=same, seeds=seeds
    )
    named = {STACKS[stack]: runs for stack, runs in agents.items()}
    cpu = budget.used[-1]["hardware"]
    caption = WORDS.fill("picture dqn", seeds=seeds, cpu=cpu)
    figure = budget.save(curves_figure(named), "dqn", caption)
    tuned = read(RESULTS / "tune-doors-dqn.json")
    rows = [*speed_rows(seconds, size), *agent_rows(agents)]
    rows += [tuning_row(tuned)] if tuned else []
    *texts, last = (WORDS[f"text {number}"] for number in range(1, 6))
    step, scan = loads["jax-step"], loads["jax-scan"]
    if max(step, scan) >= BUSY:
        texts.append(WORDS["busy"].format(step=step, scan=scan))
    return Findings(rows, [figure], [*texts, last])


def speed_rows(seconds: dict[str, float], most: int) -> list[Row]:
    """Put the source's environment benchmark beside what was measured."""
    ratio = min(seconds["sync"], seconds["async"]) / seconds["jax-scan"]
    here = ", ".join(f"{seconds[kind]:.3g}" for kind in KINDS)
    steps = WORDS.row("steps", most=most, here=here)
    return [steps, WORDS.row("ratio", most=most, ratio=ratio)]


def agent_rows(agents: dict[str, list[dict[str, Any]]]) -> list[Row]:
    """Put the source's training times and scores beside what was measured."""
    every = {k: [run["train"] for run in v] for k, v in agents.items()}
    numbers: dict[str, Any] = {k: float(np.mean(v)) for k, v in every.items()}
    for k, v in every.items():
        numbers[f"{k}_range"] = f"{min(v):.1f} to {max(v):.1f}"
    count, first = len(agents["jax"]), agents["jax"][0]
    numbers |= {"ratio": numbers["torch"] / numbers["jax"], "count": count}

    def scores(name: str, digits: int) -> str:
        each = ([run["score"][name] for run in agents[stack]] for stack in STACKS)
        return "; ".join(interval_text(values, digits) for values in each)

    steps, returns = int(first["env_steps"][-1]), scores("episode_return", 2)
    return [
        WORDS.row("stacks", compile=first["compile"], **numbers),
        WORDS.row("return", steps=steps, here=returns, count=count),
        WORDS.row("stepwise", here=scores("stepwise", 3), count=count),
    ]


def tuning_row(found: dict[str, Any]) -> Row:
    """Return the row of the tuned DQN, from what `experiments/tune_doors.py` wrote."""
    shares, holdout = found["importance"], found["holdout"]
    first, second = sorted(shares, key=lambda name: -shares[name])[:2]
    tuned, default = (
        f"{x['mean']:.2f} ({x['low']:.2f} to {x['high']:.2f})"
        for x in (holdout["best"], holdout["default"])
    )
    names = {"first": first, "second": second, "tuned": tuned, "default": default}
    numbers = {"first_share": shares[first], "second_share": shares[second]}
    numbers |= {"minutes": found["wall_seconds"] / 60, "seeds": len(holdout["seeds"])}
    facts = {name: found[name] for name in ("trials", "hardware", "date")}
    return WORDS.row("tuned", **names, **numbers, **facts)


def curves_figure(agents: dict[str, list[dict[str, Any]]]) -> Any:
    """Draw return and step-wise reward over steps, and the return over seconds.

    Args:
        agents: Runs by the name of their stack.
    """
    figure = style.new_figure(height=3.9)
    left, middle, right = figure.subplots(1, 3)
    for colour, (name, runs) in zip(STACK_COLOURS, agents.items(), strict=False):
        returns = smooth(stacked(runs, "episode_return"), WINDOW)
        lengths = smooth(stacked(runs, "episode_length"), WINDOW)
        steps = np.asarray(runs[0]["env_steps"], float)
        seconds = stacked(runs, "seconds").mean(0)
        for axes, x, y in (
            (left, steps, returns),
            (middle, steps, returns / lengths),
            (right, seconds, returns),
        ):
            between(axes, x, y.mean(0), (y.min(0), y.max(0)), colour, name)
    shortest = {"color": style.INK, "linestyle": "--", "linewidth": 0.9}
    for axes, best in ((left, 15.21), (middle, 0.776), (right, 15.21)):
        axes.axhline(best, label="shortest path", **shortest)
    style.log_axis(right, "x")
    legend_below(figure, left, 4)
    style.finish(left, "Return", "environment steps", "episode return")
    style.finish(middle, "Step-wise reward", "environment steps", "return / length")
    style.finish(right, "Return over time", "seconds of one agent", "episode return")
    style.step_axis(left)
    style.step_axis(middle)
    return figure


if __name__ == "__main__":
    main(STUDY, measure)

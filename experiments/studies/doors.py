"""Doors-v0 in Gymnasium and in JAX, and DQN in three stacks: rlbyexample's figures.

python experiments/studies/doors.py [--quick]
"""

from typing import Any

import doors_speed
import jax
import numpy as np
from doors_agents import loop
from doors_agents.config import make_config
from doors_figures import curves_figure, speed_figure
from doors_speed import CLAIMED, KINDS, SIZES, TIMED
from doors_words import SOURCE, TEXT, TUNED, busy, tuning_pictures, tuning_row
from measure import compiled, interval_text, one_torch_thread, timed
from study import Budget, Findings, Row, Study, Table, main

import purerl

STUDY = Study(
    name="doors",
    title="Doors: Gymnasium against JAX, and DQN in three stacks",
    source=SOURCE,
    question="First, 512 steps of 1 to 481 environments of Doors-v0 are timed in four "
    "ways: a NumPy environment in Gymnasium's sync and async vectors, and the JAX "
    "environment with one call from Python per step, and with all steps in one scan. "
    "Then one DQN with the same settings is trained in three stacks: in PyTorch and in "
    "Flax, both around Gymnasium's sync vector (the faster of the two), and with "
    "everything in JAX. The NumPy environment equals the JAX one bit for bit, as a "
    "test checks.",
    headlines=(1, 2),
    system="rlbyexample",
)
STACKS = {
    "torch": "PyTorch + Gymnasium",
    "flax": "Flax + Gymnasium",
    "jax": "all JAX",
}
SEEDS = 10


def speeds(
    budget: Budget,
) -> tuple[dict[str, dict[int, dict[str, float]]], dict[str, float]]:
    """Measure the environment in four ways, a part for each way and all its sizes.

    Returns:
        The measurements by way and size, and the machine's load average before each
        way.
    """
    sizes, repeats, steps = ((8,), 2, 64) if budget.quick else (SIZES, 3, 512)
    found: dict[str, dict[int, dict[str, float]]] = {}
    loads: dict[str, float] = {}
    for kind in TIMED:
        measured = budget.part(
            f"speed-{kind}",
            lambda k=kind: doors_speed.in_own_process(k, sizes, repeats, steps),
            sizes=sizes,
            repeats=repeats,
            steps=steps,
        )
        found[kind] = {int(size): numbers for size, numbers in measured.items()}
        loads[kind] = budget.used[-1].get("load_before", 0.0)
    return found, loads


def host_agent(stack: str, config: purerl.DQNConfig, seed: int) -> dict[str, Any]:
    """Train an agent around Gymnasium; how it went, and what it achieves.

    Args:
        stack: `torch` or `flax`.
        config: Settings.
        seed: Seed of everything that is drawn.
    """
    if stack == "torch":
        from doors_agents import torch_dqn as agent

        one_torch_thread()
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
    seconds_together = seconds
    if seeds == 1:
        result = jax.tree.map(lambda x: x[None], alone(keys[0]))
    else:
        together, _ = compiled(jax.vmap(train), keys)
        seconds_together = timed(together, keys)
        result = together(keys)
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
                "train_together": seconds_together,
            }
        )
    return found


def measure(budget: Budget) -> Findings:
    """Measure everything, part by part."""
    found, loads = speeds(budget)
    cpu = str(budget.used[-1]["hardware"])
    config = make_config(budget.quick)
    seeds = 1 if budget.quick else SEEDS
    settings = purerl.serialise.to_dict(config)
    agents: dict[str, list[dict[str, Any]]] = {}
    for stack in ("torch", "flax"):
        agents[stack] = [
            budget.part(
                f"{stack}-{seed}",
                lambda k=stack, s=seed: host_agent(k, config, s),
                config=settings,
            )
            for seed in range(seeds)
        ]
    agents["jax"] = budget.part(
        "jax", lambda: jax_agents(config, seeds), config=settings, seeds=seeds
    )
    named = {STACKS[stack]: runs for stack, runs in agents.items()}
    figures = [
        budget.save(
            speed_figure(found, cpu),
            "speed",
            "Seconds that 512 steps of N environments take. The lines are the median "
            f"of three measurements on {cpu}; the hollow marks are the source's, at "
            "481 environments on an RTX 5060 Ti and a Ryzen 5 7600X. Compilation is "
            "not counted.",
        ),
        budget.save(
            curves_figure(named),
            "dqn",
            f"DQN in training on {cpu}: the mean of {seeds} agents of each stack, and "
            "their range. The return and the step-wise reward (mean return over mean "
            "length) are those of the episodes that ended, over environment steps, and "
            "in the right panel over the seconds that one agent takes alone, without "
            "compilation. The dashed lines are the shortest path's, 15.21 and .776.",
        ),
    ]
    # Those of a quick run lie elsewhere, and have no page above them.
    figures += [] if budget.quick else tuning_pictures(TUNED)
    tables = [speed_table(found), agents_table(agents)]
    rows = [*speed_rows(found), *agent_rows(agents), *tuning_row(TUNED)]
    return Findings(rows, figures, tables, [*TEXT[:-1], *busy(loads), TEXT[-1]])


def speed_rows(found: dict[str, dict[int, dict[str, float]]]) -> list[Row]:
    """Put the source's environment benchmark beside what was measured."""
    most = max(found["sync"])
    here = {kind: times[most]["seconds"] for kind, times in found.items()}
    fastest = min(here["sync"], here["async"])
    return [
        Row(
            f"512 steps of {most} environments, in seconds: sync, async, JAX with one "
            "call per step, JAX in one scan",
            "2.758, 5.453, 1.541, 0.0706 (481 environments; RTX 5060 Ti, Ryzen 5 "
            "7600X)",
            f"{here['sync']:.3g}, {here['async']:.3g}, {here['jax-step']:.3g}, "
            f"{here['jax-scan']:.3g}",
            "Medians of three measurements, on another machine without a GPU. With one "
            "call per step, every call starts a small program, which a CPU begins at "
            "once and a GPU only after a launch. Observations are used here, as the "
            "compiler would otherwise leave them out of the scan. Async has a process "
            f"for each environment: {most} processes on two cores.",
        ),
        Row(
            f"512 steps of {most} environments of Doors-v0: JAX in one scan against "
            "the faster Gymnasium vector",
            "39 times as fast",
            f"{fastest / here['jax-scan']:.0f} times as fast",
            "The source's time is the same from 1 to 481 environments, which a GPU "
            "steps in parallel; on a CPU the time grows with their number.",
        ),
    ]


def agent_rows(agents: dict[str, list[dict[str, Any]]]) -> list[Row]:
    """Put the source's training times and scores beside what was measured."""
    every = {k: [run["train"] for run in v] for k, v in agents.items()}
    seconds = {k: float(np.mean(v)) for k, v in every.items()}
    ranges = {k: f"{min(v):.1f} to {max(v):.1f}" for k, v in every.items()}
    count = len(agents["jax"])
    stepwise = {
        k: interval_text([run["score"]["stepwise"] for run in v], 3)
        for k, v in agents.items()
    }
    returns = {
        k: interval_text([run["score"]["episode_return"] for run in v], 2)
        for k, v in agents.items()
    }
    steps = int(agents["jax"][0]["env_steps"][-1])
    compile_seconds = agents["jax"][0]["compile"]
    return [
        Row(
            "training time of one DQN agent on Doors-v0: PyTorch, Flax, all JAX",
            "22.5 min, 22.8 min, 2.3 min (RTX 5060 Ti, Ryzen 5 7600X): ten times as "
            "fast",
            f"{seconds['torch']:.0f} s ({ranges['torch']} in {count} runs), "
            f"{seconds['flax']:.0f} s ({ranges['flax']} in {count} runs), "
            f"{seconds['jax']:.1f} s (one call, without {compile_seconds:.0f} s of "
            f"compilation): {seconds['torch'] / seconds['jax']:.0f} times as fast as "
            "PyTorch",
            "Here the three do the same work. The source's third agent has 16 times as "
            "many environments, hence fewer rounds, and its data pass through the "
            "host. Its first two take equally long, as both copy their whole buffer on "
            "the host in every step (our reading of its code). Here neither does, so "
            "that most of their time is learning, which Flax compiles as one call.",
        ),
        Row(
            f"return after {steps:,} steps: PyTorch, Flax, all JAX",
            "-",
            "; ".join(returns[stack] for stack in STACKS),
            f"Means of {count} agents each with the 95% interval of the mean. The "
            "policies are greedy and play from all 225 starts; the shortest path has "
            "15.21.",
        ),
        Row(
            "step-wise reward: PyTorch, Flax, all JAX",
            ".73, .64, .71",
            "; ".join(stepwise[stack] for stack in STACKS),
            f"The same {count} agents each, over the same starts; at most .776 is "
            "possible. The source's numbers are of training, with limits of 10 to 17 "
            "steps: see below.",
        ),
    ]


def speed_table(found: dict[str, dict[int, dict[str, float]]]) -> Table:
    """Return all seconds of the environment's benchmark."""
    rows = [
        [f"{size:,}", *(f"{found[kind][size]['seconds']:.3g}" for kind in KINDS)]
        for size in found["sync"]
    ]
    rows.append(
        ["before the first step", *(f"{_start(found[kind]):.3g}" for kind in KINDS)]
    )
    rows.append(["source, 481", *(f"{CLAIMED[kind]:.3g}" for kind in KINDS)])
    return Table(
        "Seconds for 512 steps of N environments, without what comes before the first "
        "step (Gymnasium's start of its environments, JAX's compilation), which has a "
        "row of its own for the most environments",
        ["environments", *KINDS.values()],
        rows,
    )


def _start(times: dict[int, dict[str, float]]) -> float:
    return times[max(times)]["start"]


def agents_table(agents: dict[str, list[dict[str, Any]]]) -> Table:
    """Return time and scores of the three stacks."""
    rows = []
    for stack, runs in agents.items():
        scores = [run["score"] for run in runs]
        rows.append(
            [
                STACKS[stack],
                f"{np.mean([run['train'] for run in runs]):.1f}",
                interval_text([score["episode_return"] for score in scores], 2),
                interval_text([score["stepwise"] for score in scores], 3),
                interval_text([100 * score["solved"] for score in scores], 0),
            ]
        )
    together, count = agents["jax"][0]["train_together"], len(agents["jax"])
    steps = int(agents["jax"][0]["env_steps"][-1])
    rows.append(["shortest path", "-", "15.21", "0.776", "100"])
    return Table(
        f"Means of {count} agents of each stack after {steps:,} environment steps; the "
        "policies are greedy and play from all 225 starts. The time is that of one "
        f"agent alone; {count} agents in one call of JAX took {together:.1f} s",
        ["stack", "training, s", "return", "step-wise reward", "goals reached, %"],
        rows,
    )


if __name__ == "__main__":
    main(STUDY, measure)

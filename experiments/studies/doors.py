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
from doors_speed import CLAIMED, KINDS, SIZES
from doors_words import SOURCE, TEXT, TUNED, tuning_pictures, tuning_row
from measure import compiled, interval_text, one_torch_thread, timed
from study import Budget, Findings, Row, Study, Table, main

import purerl

STUDY = Study(
    name="doors",
    title="Doors: Gymnasium against JAX, and DQN in three stacks",
    source=SOURCE,
    question="First 512 steps of 1 to 481 environments of Doors-v0: a NumPy "
    "environment in Gymnasium's sync and async vectors, the JAX environment called "
    "from Python step by step, and in one scan. Then one DQN with the same settings "
    "three times: PyTorch and Flax around Gymnasium's vector (in this process, which "
    "is the faster one), and all of it in JAX. The NumPy environment equals the JAX "
    "one in every bit of every step, which a test holds.",
    headline=2,
    system="rlbyexample",
)
STACKS = {
    "torch": "PyTorch + Gymnasium",
    "flax": "Flax + Gymnasium",
    "jax": "all JAX",
}
SEEDS = 10


def speeds(budget: Budget) -> dict[str, dict[int, dict[str, float]]]:
    """Measure the environment in four ways, a part for each way and size."""
    sizes, repeats, steps = ((8,), 2, 64) if budget.quick else (SIZES, 3, 512)
    found: dict[str, dict[int, dict[str, float]]] = {}
    for kind in KINDS:
        measured = budget.part(
            f"speed-{kind}",
            lambda k=kind: doors_speed.in_own_process(k, sizes, repeats, steps),
            sizes=sizes,
            repeats=repeats,
            steps=steps,
        )
        found[kind] = {int(size): numbers for size, numbers in measured.items()}
    return found


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
    found = speeds(budget)
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
            speed_figure(found),
            "speed",
            "Seconds that 512 steps of N environments take, the median of three: "
            "measured on this CPU (lines), and the source's at 481 environments on an "
            "RTX 5060 Ti and a Ryzen 5 7600X (hollow marks). Compilation is apart.",
        ),
        budget.save(
            curves_figure(named),
            "dqn",
            f"DQN in training, {seeds} agents of each stack, their mean and range: "
            "return and step-wise reward (mean return over mean length) of the "
            "episodes that ended, over environment steps, and the return over seconds. "
            "The dashed lines are the shortest path's, 15.21 and .776.",
        ),
    ]
    # Those of a quick run lie elsewhere, and have no page above them.
    figures += [] if budget.quick else tuning_pictures(TUNED)
    tables = [speed_table(found), agents_table(agents)]
    rows = [*speed_rows(found), *agent_rows(agents), *tuning_row(TUNED)]
    return Findings(rows, figures, tables, list(TEXT))


def speed_rows(found: dict[str, dict[int, dict[str, float]]]) -> list[Row]:
    """Put the source's environment benchmark beside what was measured."""
    most = max(found["sync"])
    here = {kind: times[most]["seconds"] for kind, times in found.items()}
    fastest = min(here["sync"], here["async"])
    return [
        Row(
            f"512 steps of {most} environments, in seconds: sync, async, JAX by steps, "
            "JAX in one scan",
            "2.758, 5.453, 1.541, 0.0706 (481 environments; RTX 5060 Ti, Ryzen 5 "
            "7600X)",
            f"{here['sync']:.3g}, {here['async']:.3g}, {here['jax-step']:.3g}, "
            f"{here['jax-scan']:.3g}",
            "Another machine, without a GPU. By steps every call starts one small "
            "program, which a CPU begins at once and a GPU only after a launch. Here "
            "observations are used, else the "
            "compiler of the scan would leave them out. Async has a process for each "
            f"environment, {most} on this machine's cores.",
        ),
        Row(
            "one scan against the faster Gymnasium vector",
            "39 times as fast",
            f"{fastest / here['jax-scan']:.0f} times as fast",
            "The source's time is the same from 1 to 481 environments, which a GPU "
            "steps in parallel; a CPU's grows.",
        ),
    ]


def agent_rows(agents: dict[str, list[dict[str, Any]]]) -> list[Row]:
    """Put the source's training times and scores beside what was measured."""
    seconds = {k: float(np.mean([r["train"] for r in v])) for k, v in agents.items()}
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
            "training time of one DQN agent: PyTorch, Flax, all JAX",
            "22.5 min, 22.8 min, 2.3 min (RTX 5060 Ti, Ryzen 5 7600X): ten times as "
            "fast",
            f"{seconds['torch']:.0f} s, {seconds['flax']:.0f} s, {seconds['jax']:.1f} s"
            f" (and {compile_seconds:.0f} s of compilation): "
            f"{seconds['torch'] / seconds['jax']:.0f} times as fast as PyTorch",
            "Here the three do the same work. The source's third has 16 times as many "
            "environments, hence fewer rounds, and passes through the host. Its first "
            "two take alike, as both copy their whole buffer on the host in every "
            "step (our reading of its code); here neither does, and what is left is "
            "the learning, which Flax compiles as one call.",
        ),
        Row(
            f"return after {steps:,} steps: PyTorch, Flax, all JAX",
            "-",
            "; ".join(returns[stack] for stack in STACKS),
            "Greedy, over all 225 starts; the shortest path has 15.21.",
        ),
        Row(
            "step-wise reward: PyTorch, Flax, all JAX",
            ".73, .64, .71",
            "; ".join(stepwise[stack] for stack in STACKS),
            "Greedy, over all 225 starts, at most .776. The source's numbers are of "
            "training, with limits of 10 to 17 steps: see below.",
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
        "Seconds for 512 steps of N environments; before them, at the most "
        "environments, Gymnasium's start and JAX's compilation",
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
        f"One agent of each stack after {steps:,} environment steps, greedy, from all "
        f"225 starts; {count} in one call of JAX took {together:.1f} s",
        ["stack", "training, s", "return", "step-wise reward", "goals reached, %"],
        rows,
    )


if __name__ == "__main__":
    main(STUDY, measure)

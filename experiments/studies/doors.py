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
from measure import compiled, timed, torch_threads
from study import Budget, Findings, Picture, Row, Table, interval_text, main, study_of

# isort: split
from frame import RESULTS, read

import purerl

STUDY, WORDS = study_of("doors", "rlbyexample", (1, 2))
STACKS = {
    "torch": "PyTorch + Gymnasium",
    "flax": "Flax + Gymnasium",
    "jax": "all JAX",
}
SEEDS = 10
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
    sizes, repeats, steps = ((8,), 2, 64) if budget.quick else (SIZES, 3, 512)
    found: dict[str, dict[int, dict[str, float]]] = {}
    loads: dict[str, float] = {}
    settings: dict[str, Any] = {"sizes": sizes, "repeats": repeats, "steps": steps}
    for kind in TIMED:
        given = (doors_speed.in_own_process, kind, sizes, repeats, steps)
        measured = budget.part(f"speed-{kind}", *given, **settings)
        found[kind] = {int(size): numbers for size, numbers in measured.items()}
        loads[kind] = budget.used[-1].get("load_before", 0.0)
    cpu = str(budget.used[-1]["hardware"])
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
    tuned = read(RESULTS / "tune-doors-dqn.json")
    # Those of a quick run lie elsewhere, and have no page above them.
    figures += tuning_pictures() if tuned and not budget.quick else []
    tables = [speed_table(found), agents_table(agents)]
    rows = [*speed_rows(found), *agent_rows(agents)]
    rows += [tuning_row(tuned)] if tuned else []
    *texts, last = (WORDS[f"text {number}"] for number in range(1, 6))
    step, scan = loads["jax-step"], loads["jax-scan"]
    if max(step, scan) >= BUSY:
        texts.append(WORDS["busy"].format(step=step, scan=scan))
    return Findings(rows, figures, tables, [*texts, last])


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
            WORDS["steps"].format(most=most),
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
    count, first = len(agents["jax"]), agents["jax"][0]

    def scores(name: str, digits: int) -> str:
        each = ([run["score"][name] for run in agents[stack]] for stack in STACKS)
        return "; ".join(interval_text(values, digits) for values in each)

    return [
        Row(
            "training time of one DQN agent on Doors-v0: PyTorch, Flax, all JAX",
            "22.5 min, 22.8 min, 2.3 min (RTX 5060 Ti, Ryzen 5 7600X): ten times as "
            "fast",
            f"{seconds['torch']:.0f} s ({ranges['torch']} in {count} runs), "
            f"{seconds['flax']:.0f} s ({ranges['flax']} in {count} runs), "
            f"{seconds['jax']:.1f} s (one call, without {first['compile']:.0f} s of "
            f"compilation): {seconds['torch'] / seconds['jax']:.0f} times as fast as "
            "PyTorch",
            WORDS["stacks"],
        ),
        Row(
            f"return after {int(first['env_steps'][-1]):,} steps: PyTorch, Flax, all "
            "JAX",
            "-",
            scores("episode_return", 2),
            f"Means of {count} agents each with the 95% interval of the mean. The "
            "policies are greedy and play from all 225 starts; the shortest path has "
            "15.21.",
        ),
        Row(
            "step-wise reward: PyTorch, Flax, all JAX",
            ".73, .64, .71",
            scores("stepwise", 3),
            f"The same {count} agents each, over the same starts; at most .776 is "
            "possible. The source's numbers are of training, with limits of 10 to 17 "
            "steps: see below.",
        ),
    ]


def tuning_row(found: dict[str, Any]) -> Row:
    """Return the row of the tuned DQN, from what `experiments/tune_doors.py` wrote."""
    shares, holdout = found["importance"], found["holdout"]
    first, second = sorted(shares, key=lambda name: -shares[name])[:2]
    best, default = (
        f"{x['mean']:.2f} ({x['low']:.2f} to {x['high']:.2f})"
        for x in (holdout["best"], holdout["default"])
    )
    minutes = found["wall_seconds"] / 60
    return Row(
        f"{found['trials']} trials of DQN's settings by TPE and Hyperband, with at "
        "most 57,600 steps each",
        "the length of an episode matters most",
        f"{first} ({shares[first]:.0%}) and {second} ({shares[second]:.0%}) matter "
        f"most; on {len(holdout['seeds'])} fresh seeds the best has a return of "
        f"{best}, and the default {default}",
        WORDS["tuned"].format(minutes=minutes, **found),
    )


def tuning_pictures() -> list[Picture]:
    """Return the pictures of the tuned DQN, which `docs/tuning.md` shows too."""
    words = {
        "history": "the score of every trial, the best score so far, and the score of "
        "the default settings.",
        "importance": "the share of each setting in what makes a trial good, estimated "
        "by PED-ANOVA.",
        "contour": "the score over pairs of the three most important settings. The "
        "dots are the complete trials, and the star is the best of them. The surface "
        "averages the scores of the trials near each point, and fades to white where "
        "no trial is near.",
    }
    return [
        Picture(f"../tuning-dqn-{name}.png", f"DQN on Doors-v0, 40 trials: {caption}")
        for name, caption in words.items()
    ]


def speed_table(found: dict[str, dict[int, dict[str, float]]]) -> Table:
    """Return all seconds of the environment's benchmark."""
    rows = [
        [f"{size:,}", *(f"{found[kind][size]['seconds']:.3g}" for kind in KINDS)]
        for size in found["sync"]
    ]
    starts = [found[kind][max(found[kind])]["start"] for kind in KINDS]
    rows.append(["before the first step", *(f"{start:.3g}" for start in starts)])
    rows.append(["source, 481", *(f"{CLAIMED[kind]:.3g}" for kind in KINDS)])
    return Table(
        "Seconds for 512 steps of N environments, without what comes before the first "
        "step (Gymnasium's start of its environments, JAX's compilation), which has a "
        "row of its own for the most environments",
        ["environments", *KINDS.values()],
        rows,
    )


def agents_table(agents: dict[str, list[dict[str, Any]]]) -> Table:
    """Return time and scores of the three stacks."""
    rows = []
    for stack, runs in agents.items():
        scores = [run["score"] for run in runs]
        seconds = f"{np.mean([run['train'] for run in runs]):.1f}"
        numbers = [
            interval_text([scale * score[name] for score in scores], digits)
            for name, scale, digits in (
                ("episode_return", 1, 2),
                ("stepwise", 1, 3),
                ("solved", 100, 0),
            )
        ]
        rows.append([STACKS[stack], seconds, *numbers])
    first, count = agents["jax"][0], len(agents["jax"])
    rows.append(["shortest path", "-", "15.21", "0.776", "100"])
    return Table(
        f"Means of {count} agents of each stack after {int(first['env_steps'][-1]):,} "
        "environment steps; the policies are greedy and play from all 225 starts. The "
        f"time is that of one agent alone; {count} agents in one call of JAX took "
        f"{first['train_together']:.1f} s",
        ["stack", "training, s", "return", "step-wise reward", "goals reached, %"],
        rows,
    )


if __name__ == "__main__":
    main(STUDY, measure)

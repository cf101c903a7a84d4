"""PPO on CartPole-v1 beside a PyTorch PPO: PureJaxRL's figures, measured here.

python experiments/studies/purejaxrl.py [--quick]
"""

import json
import statistics
import time
from pathlib import Path
from typing import Any

import jax
import learned
import numpy as np
from measure import compiled, interval_text, one_torch_thread, smooth, timed
from purejaxrl_figures import (
    ENTROPIES,
    STEPS,
    WHOLE,
    Found,
    entropy_figure,
    learning_figure,
    width_figure,
)
from study import Budget, Findings, Picture, Row, Study, Table, main

import purerl
from purerl import presets
from purerl.config import TrainConfig
from purerl.contrib.hardware import device, estimate
from purerl.train import bind

STUDY = Study(
    name="purejaxrl",
    title="PPO against PyTorch, and 1 to 2,048 agents in one call",
    source="PureJaxRL (Lu): the blog's figures and the walkthrough notebook, with "
    "CleanRL's PPO as the PyTorch agent",
    question="PPO with CleanRL's settings on CartPole-v1, 500,000 steps: purerl's, and "
    "a PPO in plain PyTorch with a Gymnasium vector environment "
    "(experiments/studies/torch_agents/ppo.py). The returns of the episodes in "
    "training over steps and over seconds, then the time of 1, 2, 4 ... 2,048 agents "
    "in one call, and a sweep of 7 entropy coefficients by 8 seeds. The seconds of "
    "training do not include compilation, and end when the results are there.",
    headlines=(0, 1, 2),
    system="PureJaxRL",
)
# What `experiments/benchmarks/gpu_day.py` measured on a GPU.
GPU_DAY = Path(__file__).parents[1] / "results" / "gpu-day"
SEEDS = 10
# Preset -> a run of the source on a GPU, and what it claims.
ON_A_GPU = {
    "ppo-minatar": (
        "PPO on SpaceInvaders-MinAtar, one agent, 10,000,000 steps",
        "about 45 s with compilation, returns of 165 to 170 in training, one seed on "
        "an A40 (read off a plot)",
    ),
    "ppo-brax": (
        "PPO on brax's Hopper (positional), one agent, 50,000,000 steps",
        "about 2.5 minutes with compilation, returns of 1,400 to 1,650 in training, "
        "one seed on an A40 (read off a plot)",
    ),
}


GPU_NOTES = {
    "ppo-minatar": "Here ten agents were trained in one call, once, and the "
    "returns are those of the deterministic policy. The prediction for one agent is "
    "too high: it counts kernels from array shapes, and finds about four times as many "
    "as the compiled program for MinAtar has. The [learning results](results.md) have "
    "the rows `ppo-minatar`, `ppo-minatar-spaceinvaders` and `ppo-minatar-breakout`.",
    "ppo-brax": "Hopper was not run: 2,048 environments step side by side in this "
    "run, which needs a GPU. Its prediction, too, counts kernels from array shapes, of "
    "which the compiled program has about a quarter ([performance](performance.md)), "
    "and is too high. HalfCheetah is a row of the [learning results](results.md) "
    "(`ppo-halfcheetah`).",
}


TEXT = (
    f"On the CPU up to {WHOLE} agents train for all 500,000 steps. More than {WHOLE} "
    "train for a tenth of the steps, and more than 128 for a fiftieth; their times are "
    "scaled up.",
    "The seconds of CartPole-v1 on the H200 are one run each, with jax 0.11.2 on "
    "2026-11-26, printed by `python experiments/benchmarks/gpu_day.py --prepare 4 "
    "--rounds 1 --purejaxrl PATH/ppo.py` (8 and 2,048 agents were run without the "
    "other libraries). The predicted seconds are those of `purerl plan --preset NAME "
    "--seeds N --device h200 --no-compile`. The source has 17.5 s for one agent on an "
    "A40; its own program took 5.9 s on the H200 ([performance](performance.md)).",
    "PPO on MinAtar's Breakout (`ppo-minatar-breakout`) and on brax's HalfCheetah "
    "(`ppo-halfcheetah`) are rows of the [learning results](results.md), which also "
    "have the evolved value loss. The source trains one agent on MinAtar's Breakout in "
    "about 34 s, and one of CleanRL's in 485 s; this study has no PyTorch agent of "
    "MinAtar to compare with.",
)


def torch_agents(budget: Budget, steps: int, seeds: int) -> list[dict[str, Any]]:
    """Train the PyTorch agents, each a part that is kept."""
    from torch_agents import ppo

    one_torch_thread()
    settings = ppo.Settings(total_timesteps=steps)
    return [
        budget.part(f"torch-{seed}", lambda s=seed: ppo.train(settings, s), steps=steps)
        for seed in range(seeds)
    ]


def our_agents(steps: int, seeds: int) -> dict[str, Any]:
    """Train ours in one call, and keep the same curves."""
    config = purerl.PPOConfig(total_timesteps=steps, num_evaluations=0)
    train = jax.jit(jax.vmap(purerl.make_train(config)))
    result = train(jax.random.split(jax.random.key(0), seeds))
    returns = np.asarray(result.metrics["episode_return"], float)
    return {
        "env_steps": np.asarray(result.metrics["env_steps"][0]).tolist(),
        "episode_return": returns.tolist(),
    }


def time_agents(agents: int, steps: int, repeats: int) -> dict[str, float]:
    """Time a call of so many agents: seconds of compilation and of training.

    `purerl.pmap` cuts them into blocks, as `purerl.run` does, and uses every core.
    """
    config = purerl.PPOConfig(total_timesteps=steps, num_evaluations=0)
    call = purerl.pmap(purerl.make_train(config))
    keys = jax.random.split(jax.random.key(0), agents)
    # Enough of them for blocks of the same width, and so for the same program.
    first = keys[:32]
    began = timed(call, first)
    compile_seconds = began - timed(call, first)
    return {"compile": compile_seconds, "train": timed(call, keys, repeats=repeats)}


def predict(config: TrainConfig, agents: int) -> float:
    """Estimate the seconds of so many agents on an H200 that is not here.

    `purerl plan --device h200 --no-compile` prints the same estimate.
    """
    found = estimate.estimate(
        bind(config), agents, 64, device.load_device("h200"), is_compiled=False
    )
    return found.seconds


def seconds_on_gpu() -> dict[int, float]:
    """Return what `gpu_day.py` measured on an H200: agents of ours, and seconds.

    The first of several runs warms up and does not count, as in its own tables.
    """
    rows = [
        row
        for file in GPU_DAY.glob("ppo-*.json")
        for row in json.loads(file.read_text())["rows"]
        if row["who"] == "purerl" and "seconds" in row
    ]
    rows.sort(key=lambda row: row["agents"])
    return {
        row["agents"]: statistics.median(row["seconds"][1:] or row["seconds"])
        for row in rows
    }


def entropy_sweep(steps: int) -> dict[str, Any]:
    """Train 7 entropy coefficients by 8 seeds in one call."""
    config = purerl.PPOConfig(total_timesteps=steps, num_evaluations=0)
    train = jax.vmap(purerl.make_train(config))
    keys = jax.random.split(jax.random.key(42), 8)
    grid = jax.numpy.repeat(jax.numpy.asarray(ENTROPIES), len(keys))
    many = jax.numpy.tile(keys, len(ENTROPIES))
    overrides = {"entropy_coef": grid}
    call, compile_seconds = compiled(train, many, overrides)
    began = time.perf_counter()
    returns = np.asarray(call(many, overrides).metrics["episode_return"], float)
    seconds = time.perf_counter() - began
    return {
        "compile": compile_seconds,
        "train": seconds,
        "episode_return": returns.reshape(len(ENTROPIES), len(keys), -1).tolist(),
    }


def measure(budget: Budget) -> Findings:
    """Measure everything, part by part."""
    steps, seeds = (20_000, 2) if budget.quick else (STEPS, SEEDS)
    widths = [2**i for i in range(4 if budget.quick else 12)]
    theirs = torch_agents(budget, steps, seeds)
    ours = budget.part("ours", lambda: our_agents(steps, seeds), steps=steps)
    times = {}
    for agents in widths:
        share = 1 if budget.quick or agents <= WHOLE else 10 if agents <= 128 else 50
        found = budget.part(
            f"agents-{agents}",
            lambda n=agents, s=share: time_agents(n, steps // s, 3 if n <= 4 else 1),
            steps=steps,
            mapped="pmap",
        )
        # The time of a run is linear in its steps: wide ones are timed on a part of it.
        times[agents] = {**found, "train": found["train"] * share}
    predicted = {
        agents: budget.part(
            f"h200-{agents}",
            lambda n=agents: predict(
                purerl.PPOConfig(total_timesteps=steps, num_evaluations=0), n
            ),
            steps=steps,
        )
        for agents in widths
    }
    large = {
        name: budget.part(
            f"h200-{name}", lambda n=name: predict(presets.load(n), 1), preset=name
        )
        for name in ([] if budget.quick else ON_A_GPU)
    }
    on_gpu = seconds_on_gpu()
    sweep = budget.part("entropy", lambda: entropy_sweep(steps), steps=steps)
    found = Found(ours, theirs, times, predicted, on_gpu, sweep, large)
    cpu = str(budget.used[-1]["hardware"])
    return findings(budget, found, pictures(budget, found, steps, cpu))


def pictures(budget: Budget, found: Found, steps: int, cpu: str) -> list[Picture]:
    """Draw all figures.

    Args:
        budget: The budget of the study.
        found: The results of its parts.
        steps: Environment steps of an agent.
        cpu: Name of the CPU that the agents were trained on.
    """
    agents = len(found.theirs)
    return [
        budget.save(
            learning_figure(found, steps),
            "learning",
            f"Episode return in training: the mean of {agents} agents of each kind "
            "with the 95% interval of the mean, where each agent's return is averaged "
            "over ten updates. Left over environment steps; right over the seconds "
            "that one agent takes alone, for purerl the median of three calls and for "
            f"PyTorch the mean of {agents} runs.",
        ),
        budget.save(
            width_figure(found, cpu),
            "agents",
            f"Seconds of training against the number of agents in one call. On {cpu} "
            "filled circles were measured, and hollow ones, from 32 agents on, are "
            "extrapolated from a part of the run; the horizontal line is one PyTorch "
            f"agent there, the mean of {agents} runs. Squares were measured on an "
            "H200, one run each; triangles are what `purerl plan` predicts for one "
            "(see Performance).",
        ),
        budget.save(
            entropy_figure(found.sweep, steps),
            "entropy",
            "Seven entropy coefficients by eight seeds, trained in one call. Each "
            "panel has the episode return in training of one coefficient, the mean of "
            "its eight seeds with the 95% interval of the mean, where each seed's "
            "return is averaged over 20 updates; the means of the other coefficients "
            "are grey. The last panel has the mean return over all updates for each "
            "coefficient, with its 95% interval.",
        ),
    ]


def findings(budget: Budget, found: Found, figures: list[Picture]) -> Findings:
    """Put claims beside what was measured."""
    rows = [*cartpole_rows(found), *gpu_rows(found.large)]
    tables = [] if budget.quick else [times_table(found)]
    return Findings(rows, figures, tables, list(TEXT))


def cartpole_rows(found: Found) -> list[Row]:
    """Return the source's claims of CartPole beside what was measured."""
    times, sweep = found.times, found.sweep
    curves = found.ours["episode_return"], [x["episode_return"] for x in found.theirs]
    last = [smooth(np.array(x, float), 50)[:, -1] for x in curves]
    runs = found.torch_runs()
    torch = statistics.mean(runs)
    one, most = times[1]["train"], max(times)
    return [
        Row(
            "PPO on CartPole-v1, 500,000 steps: return in the last 50 updates",
            "the same curve as CleanRL's",
            f"purerl {interval_text(last[0])}, PyTorch {interval_text(last[1])}; "
            f"{len(runs)} agents each",
            "The settings are the same, and both treat truncation as different from "
            "termination.",
        ),
        Row(
            "one PPO agent on CartPole-v1, 500,000 steps",
            "about 17.5 s against 186 s for CleanRL's, on a GPU (A40): more than ten "
            "times as fast",
            f"{one:.1f} s against {torch:.0f} s ({min(runs):.0f} to {max(runs):.0f} "
            f"in {len(runs)} runs) on the same CPU: {torch / one:.0f} times as fast, "
            f"without purerl's {times[1]['compile']:.0f} s of compilation; "
            f"{_on_gpu(found.on_gpu, 1)} on an H200",
            "PyTorch uses one thread, and purerl what XLA takes of two cores. purerl's "
            "time on the CPU is the median of three calls, of which only the median "
            "was kept.",
        ),
        Row(
            f"{most:,} PPO agents on CartPole-v1 in one call, 500,000 steps each",
            "about 98 s, half the time of one CleanRL agent (188 s), on an A100",
            f"{times[most]['train']:,.0f} s on this CPU (scaled up from a part of the "
            f"run), {times[most]['train'] / torch:.1f} times as long as one PyTorch "
            f"agent takes there, so that {most * torch / times[most]['train']:,.0f} "
            "agents are trained in the time of one; " + _most_on_gpu(found, torch),
            "On a CPU the blocks of `purerl.pmap` keep both cores busy, and more "
            "agents in one call gain nothing. The claim is of a GPU; no PyTorch agent "
            "was run on the H200.",
        ),
        Row(
            "7 entropy coefficients by 8 seeds in one call",
            "26.80 s with compilation, on Colab's GPU",
            f"{sweep['train']:.0f} s, and {sweep['compile']:.0f} s of compilation",
            "This is one call on two CPU cores, by a plain `jax.vmap`; in the table "
            "below the blocks of `purerl.pmap` use both cores.",
        ),
    ]


def _most_on_gpu(found: Found, torch: float) -> str:
    """Return the seconds of the most agents on a GPU, beside one PyTorch agent here.

    Args:
        found: The results of the study's parts.
        torch: Seconds of one PyTorch agent on this CPU.
    """
    most = max(found.times)
    words = f"{_on_gpu(found.on_gpu, most)} on an H200"
    if most in found.on_gpu:
        words += f", which is {found.on_gpu[most] / torch:.2f} of that agent's time"
    return f"{words} ({found.predicted[most]:.1f} s predicted)"


def times_table(found: Found) -> Table:
    """Return the table of times against agents."""
    return Table(
        "Seconds of training against the number of agents; from 32 agents on, the "
        "seconds on the CPU are scaled up from a part of the run",
        [
            "agents",
            "seconds",
            "steps per second",
            "compilation",
            "H200, predicted",
            "H200, measured",
        ],
        [
            [
                f"{n:,}",
                f"{t['train']:,.1f}",
                f"{n * STEPS / t['train']:,.0f}",
                f"{t['compile']:.1f} s",
                f"{found.predicted[n]:.1f} s",
                _on_gpu(found.on_gpu, n),
            ]
            for n, t in found.times.items()
        ],
    )


def _on_gpu(seconds: dict[int, float], agents: int) -> str:
    """The seconds that were measured on a GPU, or that they were not."""
    return f"{seconds[agents]:.2f} s" if agents in seconds else "not measured"


def gpu_rows(seconds: dict[str, float]) -> list[Row]:
    """Return the rows of the source's other runs on a GPU, with the estimated time.

    Args:
        seconds: Estimate of one agent's training by preset.
    """
    return [
        Row(
            what,
            claim,
            f"{as_measured(name)}; {seconds[name]:.0f} s for one agent predicted on an "
            "H200",
            GPU_NOTES[name],
        )
        for name, (what, claim) in ON_A_GPU.items()
        if name in seconds
    ]


def as_measured(name: str) -> str:
    """Return what the run gave, or a shorter one of MinAtar, if it is a row.

    Args:
        name: Name of the preset, and of its row of the learning results.
    """
    row, words = learned.load(name), ""
    if row is None and name == "ppo-minatar":
        row = learned.load("ppo-minatar-spaceinvaders")
        words = "not measured; on a CPU a shorter run gave "
    if row is None:
        return "not measured"
    seconds, compiling = row["train_seconds"] or 0.0, row["compile_seconds"] or 0.0
    return (
        f"{words}{interval_text(row['per_seed'])} after {row['steps']:,} steps, "
        f"{row['seeds']} agents"
        + (f" in {seconds:,.0f} s and {compiling:.0f} s of compilation" * bool(seconds))
        + f" ({row['hardware']}, jax {row['jax']})"
    )


if __name__ == "__main__":
    main(STUDY, measure)

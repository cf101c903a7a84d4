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
from purerl.hardware import device, estimate
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
    "in one call, and a sweep of 7 entropy coefficients by 8 seeds. Compilation is "
    "apart, and results are waited for.",
    headline=1,
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
    "ppo-minatar": "Ten agents in one call, and the deterministic policy's returns. "
    "The prediction for one agent takes kernels from shapes, which are about four "
    "times those of the compiled program for MinAtar, so that it is too high. Rows of "
    "the learning results: `ppo-minatar`, `ppo-minatar-spaceinvaders`, "
    "`ppo-minatar-breakout`.",
    "ppo-brax": "2,048 environments step side by side there; the row needs a GPU. Its "
    "prediction, too, takes kernels from shapes, of which the compiled program has a "
    "quarter or so (docs/performance.md), and is too high. Hopper was not run; "
    "HalfCheetah is a row of the learning results (`ppo-halfcheetah`).",
}


TEXT = (
    f"Up to {WHOLE} agents train for all 500,000 steps, up to 128 for a tenth of "
    "them, more for a fiftieth; the time is multiplied accordingly. PPO on "
    "MinAtar's Breakout (`ppo-minatar-breakout`) and on brax's HalfCheetah "
    "(`ppo-halfcheetah`) are rows of the [learning results](results.md); Hopper "
    "was not run. The evolved value loss stands there too. Predicted times of an "
    "H200 are those of `purerl plan --preset NAME --seeds N --device h200 "
    "--no-compile`; measured ones are of `experiments/benchmarks/gpu_day.py`, with "
    "the same sizes, on 2026-11-26. The source has 17.5 s for one agent on an A40; "
    "on the H200 its own program took 5.9 s beside ours "
    "([performance](performance.md)). The source also has one agent on MinAtar's "
    "Breakout in about 34 s beside 485 s of CleanRL's; there is no PyTorch agent "
    "of MinAtar here to put beside ours."
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


def time_torch(steps: int) -> float:
    """Time one PyTorch agent: seconds, its environments included."""
    from torch_agents import ppo

    one_torch_thread()
    return ppo.train(ppo.Settings(total_timesteps=steps), 0)["seconds"]


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
    torch_seconds = budget.part(
        "torch-time", lambda: time_torch(steps // 5) * 5, steps=steps
    )
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
    found = Found(ours, theirs, times, predicted, on_gpu, torch_seconds, sweep, large)
    return findings(budget, found, pictures(budget, found, steps))


def pictures(budget: Budget, found: Found, steps: int) -> list[Picture]:
    """Draw all figures."""
    return [
        budget.save(
            learning_figure(found, steps),
            "learning",
            f"Episode return in training, mean of {len(found.theirs)} agents each with "
            "the 95% interval of the mean, each the average over ten updates: over "
            "environment steps, and over the seconds that one agent of its kind takes "
            "alone.",
        ),
        budget.save(
            width_figure(found),
            "agents",
            "Seconds of training against the number of agents in one call. On this "
            "CPU filled marks were measured, and hollow ones, from 32 agents on, are "
            "extrapolated from a part of the run. Squares were measured on an H200, "
            "triangles are what `purerl plan` predicts for one (see Performance).",
        ),
        budget.save(
            entropy_figure(found.sweep, steps),
            "entropy",
            "Seven entropy coefficients by eight seeds, trained in one call: the mean "
            "over seeds of the episodes' return in training, averaged over 20 updates.",
        ),
    ]


def findings(budget: Budget, found: Found, figures: list[Picture]) -> Findings:
    """Put claims beside what was measured."""
    rows = [*cartpole_rows(found), *gpu_rows(found.large)]
    return Findings(rows, figures, [] if budget.quick else [times_table(found)], [TEXT])


def cartpole_rows(found: Found) -> list[Row]:
    """Return the source's claims of CartPole beside what was measured."""
    times, torch_seconds, sweep = found.times, found.torch_seconds, found.sweep
    curves = found.ours["episode_return"], [x["episode_return"] for x in found.theirs]
    last = [smooth(np.array(x, float), 50)[:, -1] for x in curves]
    one, most = times[1]["train"], max(times)
    return [
        Row(
            "return of the last 50 updates' episodes, 500,000 steps",
            "the same curve as CleanRL's",
            f"purerl {interval_text(last[0])}, PyTorch {interval_text(last[1])}",
            "The same settings, and truncation is not termination in both.",
        ),
        Row(
            "one agent, 500,000 steps",
            "about 17.5 s against 186 s for CleanRL's, on a GPU (A40): more than ten "
            "times as fast",
            f"{one:.1f} s against {torch_seconds:.0f} s on the same CPU: "
            f"{torch_seconds / one:.0f} times as fast (and {times[1]['compile']:.0f} s "
            f"of compilation); {_on_gpu(found.on_gpu, 1)} on an H200",
            "PyTorch with one thread, purerl with what XLA takes of two cores.",
        ),
        Row(
            f"{most:,} agents in one call",
            "about 98 s, half the time of one CleanRL agent (188 s), on an A100",
            f"{times[most]['train']:,.0f} s on this CPU (timed on a part of it), "
            f"{times[most]['train'] / torch_seconds:.1f} times the one PyTorch agent; "
            "in the time of the one PyTorch agent, "
            f"{most * torch_seconds / times[most]['train']:,.0f} are trained; "
            f"{_on_gpu(found.on_gpu, most)} on an H200, "
            f"{found.predicted[most]:.0f} s predicted",
            "On a CPU the blocks of `purerl.pmap` keep both cores busy, and more width "
            "gains nothing. The claim is of a GPU, and so is to be met on one.",
        ),
        Row(
            "7 entropy coefficients by 8 seeds in one call",
            "26.80 s with compilation, on Colab's GPU",
            f"{sweep['train']:.0f} s and {sweep['compile']:.0f} s of compilation",
            "Two CPU cores here, and a plain `jax.vmap`, where the table below has "
            "`purerl.pmap`'s blocks on both cores.",
        ),
    ]


def times_table(found: Found) -> Table:
    """Return the table of times against agents."""
    return Table(
        "Time against agents",
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
    seconds = row["train_seconds"]
    return (
        f"{words}{interval_text(row['per_seed'])} after {row['steps']:,} steps, "
        f"{row['seeds']} agents"
        + (f" in {seconds:,.0f} s" if seconds else "")
        + f" ({row['hardware']})"
    )


if __name__ == "__main__":
    main(STUDY, measure)

"""PPO on CartPole-v1 beside a PyTorch PPO: PureJaxRL's figures, measured here.

python experiments/studies/purejaxrl.py [--quick]
"""

import statistics
import time
from typing import Any

import jax
import learned
import numpy as np
from measure import compiled, timed, torch_threads
from purejaxrl_figures import (
    ENTROPIES,
    STEPS,
    WHOLE,
    Found,
    entropy_figure,
    learning_figure,
    width_figure,
)
from study import Budget, Findings, Picture, Row, Table, interval_text, main, study_of

# isort: split
from frame import RESULTS, read
from pictures import smooth

import purerl
from purerl import presets
from purerl.config import TrainConfig
from purerl.hardware import device, estimate
from purerl.train import bind

STUDY, WORDS = study_of("purejaxrl", "PureJaxRL", (0, 1, 2))
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


def plain(steps: int) -> purerl.PPOConfig:
    """Return PPO with CleanRL's settings, without evaluations."""
    return purerl.PPOConfig(total_timesteps=steps, num_evaluations=0)


def our_agents(steps: int, seeds: int) -> dict[str, Any]:
    """Train ours in one call, and keep the same curves."""
    train = jax.jit(jax.vmap(purerl.make_train(plain(steps))))
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
    call = purerl.pmap(purerl.make_train(plain(steps)))
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
    files = (RESULTS / "gpu-day").glob("ppo-*.json")
    rows = [row for file in files for row in read(file)["rows"]]
    ours = [row for row in rows if row["who"] == "purerl" and "seconds" in row]
    return {
        row["agents"]: statistics.median(row["seconds"][1:] or row["seconds"])
        for row in sorted(ours, key=lambda row: row["agents"])
    }


def entropy_sweep(steps: int) -> dict[str, Any]:
    """Train 7 entropy coefficients by 8 seeds in one call."""
    train = jax.vmap(purerl.make_train(plain(steps)))
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
    from torch_agents import ppo

    steps, seeds = (20_000, 2) if budget.quick else (STEPS, SEEDS)
    widths = [2**i for i in range(4 if budget.quick else 12)]
    torch_threads(1)
    settings = ppo.Settings(total_timesteps=steps)
    theirs = [
        budget.part(f"torch-{seed}", ppo.train, settings, seed, steps=steps)
        for seed in range(seeds)
    ]
    ours = budget.part("ours", our_agents, steps, seeds, steps=steps)
    times, predicted = {}, {}
    for agents in widths:
        share = 1 if budget.quick or agents <= WHOLE else 10 if agents <= 128 else 50
        given = (time_agents, agents, steps // share, 3 if agents <= 4 else 1)
        found = budget.part(f"agents-{agents}", *given, steps=steps, mapped="pmap")
        # The time of a run is linear in its steps: wide ones are timed on a part of it.
        times[agents] = {**found, "train": found["train"] * share}
        given = (predict, plain(steps), agents)
        predicted[agents] = budget.part(f"h200-{agents}", *given, steps=steps)
    large = {
        name: budget.part(f"h200-{name}", predict, presets.load(name), 1, preset=name)
        for name in ([] if budget.quick else ON_A_GPU)
    }
    sweep = budget.part("entropy", entropy_sweep, steps, steps=steps)
    on_gpu = seconds_on_gpu()
    found = Found(ours, theirs, times, predicted, on_gpu, sweep, large)
    cpu = str(budget.used[-1]["hardware"])
    rows = [*cartpole_rows(found), *gpu_rows(large)]
    tables = [] if budget.quick else [times_table(found)]
    texts = [WORDS[f"text {number}"] for number in (1, 2, 3)]
    return Findings(rows, pictures(budget, found, steps, cpu), tables, texts)


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
    heads = ["agents", "seconds", "steps per second", "compilation"]
    return Table(
        "Seconds of training against the number of agents; from 32 agents on, the "
        "seconds on the CPU are scaled up from a part of the run",
        [*heads, "H200, predicted", "H200, measured"],
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
            WORDS[name],
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
    if not row and name == "ppo-minatar":
        row = learned.load("ppo-minatar-spaceinvaders")
        words = "not measured; on a CPU a shorter run gave "
    if not row:
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

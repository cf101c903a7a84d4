"""PPO on CartPole-v1 beside a PyTorch PPO: PureJaxRL's figures, measured here.

python experiments/studies/purejaxrl.py [--quick]
"""

import statistics
from typing import Any, NamedTuple

import jax
import numpy as np
from measure import time_agents, torch_threads, train_settings
from study import Budget, Findings, Row, interval_text, main, study_of

# isort: split
from frame import RESULTS, read
from pictures import STACKS, smooth, style

import purerl
from purerl.contrib.hardware import estimate
from purerl.train import bind

STUDY, WORDS = study_of("purejaxrl", "PureJaxRL")
SEEDS = 10
STEPS = 500_000
WHOLE = 16  # Up to so many agents train for all steps; more of them for a part.
ENTROPIES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)


class Found(NamedTuple):
    """The results of the parts of the study."""

    ours: list[list[float]]
    theirs: list[dict[str, Any]]
    times: dict[int, dict[str, float]]
    predicted: dict[int, float]
    on_gpu: dict[int, float]
    sweep: dict[str, Any]

    def torch_runs(self) -> list[float]:
        """Return the seconds of every PyTorch agent."""
        return [run["seconds"] for run in self.theirs]


def plain(steps: int) -> purerl.PPOConfig:
    """Return PPO with CleanRL's settings, without evaluations."""
    return purerl.PPOConfig(total_timesteps=steps, num_evaluations=0)


def our_agents(steps: int, seeds: int) -> list[list[float]]:
    """Train ours in one call; returns of the episodes that ended in each update."""
    train = jax.jit(jax.vmap(purerl.make_train(plain(steps))))
    result = train(jax.random.split(jax.random.key(0), seeds))
    return np.asarray(result.metrics["episode_return"], float).tolist()


def predict(config: purerl.TrainConfig, agents: int) -> float:
    """Estimate the seconds of so many agents on an H200 that is not here.

    `purerl plan --device h200` prints the same estimate.
    """
    device = estimate.load_device("h200")
    return estimate.estimate(bind(config), agents, 64, device).seconds


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
    return train_settings(plain(steps), 42, 8, {"entropy_coef": ENTROPIES})[1]


def measure(budget: Budget) -> Findings:
    """Measure everything, part by part."""
    from torch_agents import ppo

    steps, seeds = (20_000, 2) if budget.quick else (STEPS, SEEDS)
    widths = [2**i for i in range(4 if budget.quick else 12)]
    torch_threads(1)
    settings = purerl.resolve(plain(steps))
    theirs = [
        budget.part(f"torch-{seed}", ppo.train, settings, seed, steps=steps)
        for seed in range(seeds)
    ]
    ours = budget.part("ours-returns", our_agents, steps, seeds, steps=steps)
    times, predicted = {}, {}
    for agents in widths:
        share = 1 if budget.quick or agents <= WHOLE else 10 if agents <= 128 else 50
        repeats = 3 if agents <= 4 else 1
        given = (time_agents, plain(steps // share), agents, repeats, "pmap")
        found = budget.part(f"agents-{agents}", *given, steps=steps, mapped="pmap")
        # The time of a run is linear in its steps: wide ones are timed on a part of it.
        times[agents] = {**found, "train": found["train"] * share}
        given = (predict, plain(steps), agents)
        predicted[agents] = budget.part(f"h200-{agents}", *given, steps=steps)
    sweep = budget.part("entropy", entropy_sweep, steps, steps=steps)
    on_gpu = seconds_on_gpu()
    found = Found(ours, theirs, times, predicted, on_gpu, sweep)
    cpu = str(budget.used[-1]["hardware"])
    caption = WORDS.fill("picture agents", cpu=cpu, agents=len(theirs))
    figures = [budget.save(width_figure(found, cpu), "agents", caption)]
    texts = [WORDS[f"text {number}"] for number in (1, 2, 3)]
    return Findings(cartpole_rows(found), figures, texts)


def cartpole_rows(found: Found) -> list[Row]:
    """Return the source's claims of CartPole beside what was measured."""
    times, runs = found.times, found.torch_runs()
    curves = found.ours, [x["episode_return"] for x in found.theirs]
    ours, theirs = (interval_text(smooth(x, 50)[:, -1]) for x in curves)
    torch, one, most = statistics.mean(runs), times[1]["train"], max(times)
    seconds, own = times[most]["train"], {"torch": torch, "agents": len(runs)}
    on_gpu = f"{_on_gpu(found.on_gpu, most)} on an H200"
    if most in found.on_gpu:
        on_gpu += f", which is {found.on_gpu[most] / torch:.2f} of that agent's time"
    ends = {"low": min(runs), "high": max(runs), "ratio": torch / one}
    first = {"on_gpu": _on_gpu(found.on_gpu, 1), "compile": times[1]["compile"]}
    many: dict[str, Any] = {"ratio": seconds / torch, "many": most * torch / seconds}
    many |= {"seconds": seconds, "on_gpu": on_gpu, "predicted": found.predicted[most]}
    return [
        WORDS.row("return", ours=ours, theirs=theirs, agents=len(runs)),
        WORDS.row("one", one=one, **first, **ends, **own),
        WORDS.row("most", most=most, **many),
        WORDS.row("sweep", **found.sweep),
    ]


def _on_gpu(seconds: dict[int, float], agents: int) -> str:
    """The seconds that were measured on a GPU, or that they were not."""
    return f"{seconds[agents]:.2f} s" if agents in seconds else "not measured"


def width_figure(found: Found, cpu: str) -> Any:
    """Draw seconds against agents, with the one PyTorch agent as a line."""
    figure = style.new_figure(width=7.5, height=4.6)
    axes, colour = figure.subplots(), STACKS["purerl"]
    agents = list(found.times)
    seconds = {n: times["train"] for n, times in found.times.items()}
    axes.plot(agents, list(seconds.values()), color=colour)
    few = {n: x for n, x in seconds.items() if n <= WHOLE}
    many = {n: x for n, x in seconds.items() if n > WHOLE}
    here: dict[str, Any] = {"color": colour, "linestyle": "none", "marker": "o"}
    predicted: dict[str, Any] = {
        "color": style.COLOURS[7],
        "linestyle": "--",
        "marker": "^",
    }
    measured: dict[str, Any] = {"color": style.COLOURS[6], "marker": "s"}
    on_gpu = {n: x for n, x in found.on_gpu.items() if n in seconds}
    curves: list[tuple[dict[int, float], str, dict[str, Any]]] = [
        (few, f"purerl on {cpu}, measured", here),
        (many, f"purerl on {cpu}, from a part of the run", here | {"mfc": "white"}),
        (found.predicted, "purerl on an H200, predicted", predicted),
        (on_gpu, "purerl on an H200, measured", measured),
    ]
    for numbers, words, look in curves:
        axes.plot(list(numbers), list(numbers.values()), label=words, **look)
    torch, label = statistics.mean(found.torch_runs()), f"one PyTorch agent on {cpu}"
    axes.axhline(torch, color=STACKS["PyTorch"], label=label)
    axes.set_xscale("log", base=2)
    style.log_axis(axes, "y")
    axes.set_xticks(agents, [f"{n:,}" for n in agents], rotation=45)
    axes.legend(frameon=False)
    title = f"PPO, CartPole-v1, {STEPS:,} steps per agent"
    words = "seconds of training, without compilation"
    style.finish(axes, title, "agents in one call", words)
    return figure


if __name__ == "__main__":
    main(STUDY, measure)

"""Draw the figures of docs/results/speed.md from what the benchmarks wrote.

    python experiments/benchmarks/figures.py

It reads experiments/results/benchmarks: gpu-program.json, which `gpu_program.py --out`
wrote with `--peers` and `--purejaxrl`, and share.json, of `share.py --out`; and of
experiments/results/gpu-day what `gpu_day.py --out` wrote. Nothing is measured here. A
figure whose file is missing is left as it is, and said.
"""

from statistics import median
from typing import Any

from bench import ROOT, read
from contenders import ppo_config
from gpu_day import timed

from purerl.contrib.hardware import estimate
from purerl.train import bind

# isort: split
from pictures import style

RESULTS = ROOT / "experiments" / "results"
IMAGES = ROOT / "docs" / "images"
OWN = "ppo-cartpole"
PEERS = {OWN: "purerl", "PureJaxRL": "PureJaxRL", "rejax": "rejax 0.1.3"}


def finish_bars(axes: Any, labels: dict[float, str], most: float) -> None:
    """Set up axes with horizontal bars, the first on top, by their places."""
    axes.set_yticks(list(labels), list(labels.values()))
    axes.invert_yaxis()
    axes.set_xlim(0.0, most)
    axes.grid(visible=False, axis="y")


def kernels(found: dict[str, Any]) -> Any:
    """Kernels of PPO's whole run for a GPU, beside the peers' programs.

    Args:
        found: What `gpu_program.py --out` wrote.
    """
    names = [name for name in PEERS if name in found]
    figure = style.new_figure(7.6, 2.2)
    axes = figure.subplots()
    for place, name in enumerate(names):
        number = found[name]["kernels"]
        colour = style.COLOURS[0] if name == OWN else style.COLOURS[7]
        axes.barh(place, number / 1e6, height=0.62, color=colour)
        times = number / found[OWN]["kernels"]
        words = f" {number / 1e6:.2f} M" + ("" if name == OWN else f" ({times:.1f} x)")
        axes.text(number / 1e6, place, words, va="center", fontsize=10)
    title = (
        f"PPO, CartPole-v1, {found[OWN]['agents']:,} agents x 500,000 steps, compiled "
        "for an H200"
    )
    style.finish(axes, title, "dependent kernels of the whole run, millions")
    most = 1.2 * max(found[name]["kernels"] for name in names) / 1e6
    finish_bars(axes, {n: PEERS[name] for n, name in enumerate(names)}, most)
    return figure


def share(found: dict[str, Any]) -> Any:
    """Steps per second of training, beside those of its matrix products alone.

    Args:
        found: What `share.py --out` wrote.
    """
    cases = [name for name in found if "agent" in name]
    figure = style.new_figure(7.6, 1.0 + 1.3 * len(cases))
    axes, place, labels = figure.subplots(), 0.0, dict[float, str]()
    most = max(max(rates) for name in cases for rates in found[name].values()) / 1e3
    for case in cases:
        own = median(found[case]["purerl"])
        for number, (name, rates) in enumerate(found[case].items()):
            middle, low, high = median(rates), min(rates) / 1e3, max(rates) / 1e3
            is_own = name == "purerl"
            colour = style.COLOURS[0 if is_own else 7]
            alpha = 1.0 if number < 2 else 0.55
            axes.barh(place, middle / 1e3, height=0.8, color=colour, alpha=alpha)
            axes.plot([low, high], [place] * 2, color="black")
            words = f"{middle / 1e3:,.0f}k"
            words += "" if is_own else f", of which training reaches {own / middle:.0%}"
            axes.text(high + 0.01 * most, place, words, va="center")
            labels[place] = f"{case}: {name}" if is_own else name
            place += 1.0
        place += 0.6
    machine = found["hardware"]
    title = f"PPO, CartPole-v1, {machine['cores']} cores of {machine['cpu']}"
    words = "environment steps per second, thousands (line: all rounds)"
    style.finish(axes, title, words)
    finish_bars(axes, labels, 1.7 * most)
    return figure


def gpu_agents(first: dict[str, Any]) -> Any:
    """Seconds of training against agents, measured on a GPU, and as they are estimated.

    Args:
        first: The file of one part of `gpu_day.py`, for the device.
    """
    files = sorted((RESULTS / "gpu-day").glob("ppo-*.json"))
    rows = [x for file in files for x in read(file)["rows"] if "seconds" in x]
    rows.sort(key=lambda row: row["agents"])
    figure = style.new_figure(7.6, 4.6)
    axes = figure.subplots()
    for number, who in enumerate(dict.fromkeys(row["who"] for row in rows)):
        own = [row for row in rows if row["who"] == who]
        axes.plot(
            [row["agents"] for row in own],
            [timed(row)[0] for row in own],
            color=style.COLOURS[number],
            marker=style.MARKERS[number],
            label=f"{who}, measured",
        )
    config = ppo_config(500_000)
    widths = [2**n for n in range(12)]
    axes.plot(
        widths,
        [_estimated(config, agents) for agents in widths],
        color=style.COLOURS[0],
        linestyle="--",
        label="purerl, `purerl plan --device h200`",
    )
    axes.set_xscale("log", base=2)
    style.log_axis(axes, "y")
    axes.set_xticks(widths, [f"{n:,}" for n in widths], rotation=45)
    axes.legend(frameon=False)
    name = first["device"].removeprefix("gpu ")
    title = f"PPO, CartPole-v1, 500,000 steps per agent, on one {name}"
    style.finish(axes, title, "agents in one call", "seconds, without compilation")
    return figure


def _estimated(config: Any, agents: int) -> float:
    described = estimate.load_device("h200")
    found = estimate.estimate(bind(config), agents, 64, described)
    return found.seconds


FIGURES = {
    "gpu-program": (kernels, "benchmarks/gpu-program.json"),
    "share": (share, "benchmarks/share.json"),
    "gpu-agents": (gpu_agents, "gpu-day/ppo-1.json"),
}


def main() -> None:
    """Draw what there are numbers of."""
    for name, (draw, place) in FIGURES.items():
        found = read(RESULTS / place)
        if not found:
            print(f"{place} is not there: its figure is left alone")
            continue
        image = IMAGES / f"performance-{name}.png"
        style.save(draw(found), image)
        print(image.relative_to(ROOT))


if __name__ == "__main__":
    main()

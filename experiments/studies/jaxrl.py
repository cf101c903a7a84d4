"""VPG, TD3, SAC and MPO beside plain PyTorch: seconds per 1,000 steps, and where.

python experiments/studies/jaxrl.py [--quick]
"""

from typing import Any

import numpy as np
from jaxrl_timers import config_of, in_turns
from study import Budget, Findings, Row, interval_text, main, study_of

# isort: split
from frame import cores, mean_interval
from pictures import legend_below, style

import purerl
from purerl import presets, serialise

STUDY, WORDS = study_of("jaxrl", "jax-rl")
TITLES = {"mpo": "MPO, temperature exact", "mpo-gradient": "MPO, by gradient"}
# Seconds per 1,000 training steps in the source's table: JAX, PyTorch.
CLAIMED = {
    "vpg": ("-", "-"),
    "td3": ("2.35 ± 0.17", "6.93 ± 0.16"),
    "sac": ("5.57 ± 0.07", "32.37 ± 1.32"),
    "mpo": ("39.19 ± 1.09", "107.51 ± 3.56"),
    "mpo-gradient": ("38.26 ± 2.74", "-"),
}
# Steps that are timed; of VPG, epochs.
STEPS = {
    "full": {"vpg": 4, "td3": 800, "sac": 800, "mpo": 200},
    "quick": {"vpg": 1, "td3": 40},
}


def seconds_of(x: dict[str, float], stack: str, part: str) -> float:
    """Return the seconds of a stack, with the better number of threads.

    Args:
        x: What `timers` measured.
        stack: `ours` or `torch`.
        part: `update` or `loop`.
    """
    return min(value for kind, value in x.items() if f"{stack}-{part}" in kind)


def temperature_config(quick: bool) -> Any:
    """Return the settings with which MPO learns with either temperature."""
    config = presets.load("mpo-pendulum")
    return config.replace(total_timesteps=2_000) if quick else config


def temperatures(quick: bool) -> dict[str, list[float]]:
    """Train MPO with either temperature: deterministic returns at the end by seed."""
    config = temperature_config(quick)
    compared = purerl.compare(
        config,
        {name: {"temperature": name} for name in ("exact", "gradient")},
        seeds=2 if quick else 16,
        measures=("evaluation",),
        progress=False,
    )
    scores = compared.dataset["evaluation"].isel(environment=0)
    return {
        str(name): scores.sel(setting=name).values.tolist()
        for name in scores.setting.values
    }


def learning_row(returns: dict[str, list[float]]) -> Row:
    """Return the row on what MPO learns with either temperature."""
    ends = {name: np.array(scores) for name, scores in returns.items()}
    ends["gap"] = ends["exact"] - ends["gradient"]
    found, verdict = mean_interval(ends["gap"]), WORDS["not apart"]
    if not found.low <= 0 <= found.high:
        better = "exact" if found.low > 0 else "by gradient"
        verdict = WORDS.fill("apart", better=better)
    numbers = {name: interval_text(values) for name, values in ends.items()}
    seeds = len(ends["gap"])
    return WORDS.row("temperatures", verdict=verdict, seeds=seeds, **numbers)


def measure(budget: Budget) -> Findings:
    """Measure everything, part by part."""
    # More threads than idle cores wait for one another, so a quick run has one.
    rounds, threads = (1, 1) if budget.quick else (3, cores())
    names = ["vpg", "td3"] if budget.quick else list(CLAIMED)
    found: dict[str, dict[str, float]] = {}
    for name in names:
        steps = STEPS["quick" if budget.quick else "full"][name.split("-")[0]]
        settings: dict[str, Any] = {
            "steps": steps,
            "rounds": rounds,
            "threads": threads,
        }
        settings["config"] = serialise.to_dict(config_of(name))
        given = (name, in_turns, name, steps, rounds, threads)
        found[name] = budget.part(*given, **settings)
    config = serialise.to_dict(temperature_config(budget.quick))
    learned = budget.part("temperatures", temperatures, budget.quick, config=config)
    figure = budget.save(figure_of(found), "times", WORDS["caption"])
    rows = [time_row(name, x) for name, x in found.items()]
    rows.append(learning_row(learned))
    return Findings(rows, [figure], [WORDS["text"]])


def title_of(name: str) -> str:
    """Return an algorithm's name in tables."""
    return TITLES.get(name, name.upper())


def digits(number: float) -> str:
    """Return a number with three significant digits, zeros at its end included."""
    return f"{number:#.3g}".rstrip(".")


def time_row(name: str, x: dict[str, float]) -> Row:
    """Return the row on the time of an algorithm.

    Args:
        name: Name in `CLAIMED`.
        x: What `timers` measured.
    """
    claims = CLAIMED[name]
    claim = f"JAX {claims[0]}, PyTorch {claims[1]}"
    ours, theirs = (seconds_of(x, stack, "loop") for stack in ("ours", "torch"))
    return WORDS.row(
        "time",
        title=title_of(name),
        claim="-" if claims == ("-", "-") else claim,
        ours=digits(ours),
        theirs=digits(theirs),
        ratio=theirs / ours,
        note=note_of(name, ours, theirs),
    )


def note_of(name: str, ours: float, theirs: float) -> str:
    """Return what a reader should know of a time: absolute times of two machines.

    Args:
        name: Name in `CLAIMED`.
        ours: Seconds per 1,000 steps of purerl.
        theirs: Those of PyTorch here.
    """
    first, second = (claim.split(" ")[0] for claim in CLAIMED[name])
    if first == "-":
        return ""
    note = WORDS.fill("ours", ours=ours / float(first))
    if second != "-":
        ratio = float(second) / float(first)
        words = WORDS.fill("theirs", theirs=theirs / float(second), ratio=ratio)
        note += f" {words}"
    return f"{WORDS['td3']} {note}." if name == "td3" else f"{note}."


def figure_of(found: dict[str, dict[str, float]]) -> Any:
    """Draw the loop and the update of both as marks, per algorithm."""
    figure = style.new_figure(height=4.4)
    axes = figure.subplots()
    places = np.arange(len(found))
    for i, (kind, name) in enumerate((("ours", "purerl"), ("torch", "PyTorch"))):
        shift, colour = (i - 0.5) * 0.44, style.COLOURS[i]
        for part, dodge, face, words in (
            ("loop", -0.07, colour, "with environment and replay"),
            ("update", 0.07, "none", "gradient steps alone"),
        ):
            values = [seconds_of(x, kind, part) for x in found.values()]
            axes.plot(
                places + shift + dodge,
                values,
                linestyle="none",
                marker=style.MARKERS[i],
                markersize=8,
                color=colour,
                markerfacecolor=face,
                label=f"{name}, {words}",
            )
            for place, value in zip(places, values, strict=True):
                # Marks of almost equal times stand side by side, so that numbers beside
                # them would meet.
                is_whole = part == "loop"
                axes.annotate(
                    f"{value:.3g}",
                    (place + shift + dodge, value),
                    (0, 8 if is_whole else -8),
                    textcoords="offset points",
                    ha="center",
                    va="bottom" if is_whole else "top",
                    fontsize=9,
                    color=style.INK,
                )
    titles = {"mpo": "MPO\nexact", "mpo-gradient": "MPO\nby gradient"}
    axes.set_xticks(places, [titles.get(name, name.upper()) for name in found])
    axes.set_xlim(-0.6, len(found) - 0.4)
    axes.margins(y=0.12)
    style.log_axis(axes, "y")
    legend_below(figure, axes)
    style.finish(axes, "", "", "seconds per 1,000 steps")
    return figure


if __name__ == "__main__":
    main(STUDY, measure)

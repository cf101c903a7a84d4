"""The ten-armed testbed: the figures of Sutton and Barto's second chapter.

python experiments/studies/bandits.py [--quick]
"""

from typing import Any

import numpy as np
from measure import train_settings
from study import Budget, Findings, Row, interval_text, main, study_of

# isort: split
from frame import mean_interval
from pictures import legend_below, style

import purerl

STUDY, WORDS = study_of("bandits", "jym")
RUNS, PULLS = 2_000, 1_000
AVERAGE = {"step_size": "sample_average"}
GRADIENT = {"method": "gradient", "env_params": {"value_mean": 4.0}}

# Figure -> curve -> static fields, and numbers that one program takes as overrides.
Curves = dict[str, tuple[dict[str, Any], dict[str, float]]]
FIRST, UCB_FIELDS = "first estimate", {"method": "ucb", **AVERAGE}
TENTH = (AVERAGE, {"epsilon": 0.1})
FIGURES: dict[str, Curves] = {
    "epsilon": {
        "epsilon 0 (greedy)": (AVERAGE, {"epsilon": 0.0}),
        "epsilon 0.01": (AVERAGE, {"epsilon": 0.01}),
        "epsilon 0.1": TENTH,
    },
    "optimistic": {
        f"optimistic: {FIRST} 5, greedy": ({}, {"initial_value": 5.0, "epsilon": 0.0}),
        f"realistic: {FIRST} 0, epsilon 0.1": (
            {},
            {"initial_value": 0.0, "epsilon": 0.1},
        ),
    },
    "ucb": {
        "upper confidence bound, c = 2": (UCB_FIELDS, {"exploration": 2.0}),
        "epsilon 0.1": TENTH,
    },
    "gradient": {
        f"step size {rate}, {words} baseline": (
            {**GRADIENT, "baseline": words == "with"},
            {"learning_rate": rate},
        )
        for words in ("with", "without")
        for rate in (0.1, 0.4)
    },
}


def config_of(fields: dict[str, Any], pulls: int) -> purerl.BanditConfig:
    """Return the config of curves with these static fields."""
    params = {"max_steps_in_episode": pulls, **fields.get("env_params", {})}
    return purerl.BanditConfig(
        **{"total_timesteps": pulls, **fields, "env_params": params}
    )


def curves(figure: Curves, runs: int, pulls: int) -> dict[str, Any]:
    """Train the curves of a figure: a call for all that share their static fields."""
    found: dict[str, Any] = {}
    for fields in [one for one, _ in figure.values()]:
        names = [n for n, (f, _) in figure.items() if f == fields and n not in found]
        if not names:
            continue
        values = [figure[name][1] for name in names]
        numbers = {key: [v[key] for v in values] for key in values[0]}
        metrics, seconds = train_settings(config_of(fields, pulls), 0, runs, numbers)
        for name, reward, optimal in zip(
            names, metrics["reward"], metrics["optimal_action"], strict=True
        ):
            found[name] = {
                "reward": reward.mean(0).round(4).tolist(),
                "optimal": optimal.mean(0).round(4).tolist(),
                "last": [x[:, -100:].mean(1).tolist() for x in (reward, optimal)],
                "seconds": seconds["train"] / len(names),
            }
    return found


def measure(budget: Budget) -> Findings:
    """Measure everything, part by part."""
    runs, pulls = (50, 100) if budget.quick else (RUNS, PULLS)
    jym_runs, jym_pulls = (20, 100) if budget.quick else (300, 2_500)
    size: dict[str, Any] = {"runs": runs, "pulls": pulls}
    jym_size: dict[str, Any] = {"runs": jym_runs, "pulls": jym_pulls}
    found = {
        name: budget.part(name, curves, figure, runs, pulls, **size)
        for name, figure in FIGURES.items()
    }
    few = FIGURES["epsilon"]
    jym = budget.part("jym", curves, few, jym_runs, jym_pulls, **jym_size)
    caption = WORDS.fill("picture ucb", runs=runs)
    figure = budget.save(curve_figure(found["ucb"]), "ucb", caption)
    flat = {name: curve for one in found.values() for name, curve in one.items()}
    rows = [WORDS.row(name, here=last_words(curve)) for name, curve in flat.items()]
    rows.append(jym_row(jym, jym_runs, jym_pulls))
    seconds = sum(curve["seconds"] for curve in flat.values())
    text = WORDS.fill("text", curves=len(flat), seconds=seconds, **size)
    return Findings(rows, [figure], [text])


def last_words(curve: dict[str, Any]) -> str:
    """Return reward and share of best arms of the last pulls, in words."""
    reward, optimal = (np.asarray(x) for x in curve["last"])
    share = interval_text(100 * optimal, 1)
    return f"reward {interval_text(reward, 2)}, best arm in {share} % of pulls"


def jym_row(jym: dict[str, Any], runs: int, pulls: int) -> Row:
    """Return the row on jym's runs, by their curves."""
    seconds = sum(curve["seconds"] for curve in jym.values())
    smaller, larger = (
        mean_interval(np.asarray(jym[name]["last"][0]))
        for name in ("epsilon 0.01", "epsilon 0.1")
    )
    later = "The rewards of epsilon 0.01 and 0.1 cannot be told apart here."
    if smaller.low > larger.high:
        later = "Epsilon 0.01 has the larger reward here."
    rate = 3 * runs * pulls / seconds
    end = "; ".join(f"{name}: {last_words(curve)}" for name, curve in jym.items())
    numbers = {"runs": runs, "pulls": pulls, "seconds": seconds, "rate": rate}
    return WORDS.row("jym", end=end, later=later, **numbers)


def curve_figure(found: dict[str, Any]) -> Any:
    """Draw rewards and the share of best arms over pulls."""
    figure = style.new_figure(height=4.4)
    left, right = figure.subplots(1, 2)
    for (name, curve), colour in zip(found.items(), style.COLOURS, strict=False):
        for axes, key, scale in ((left, "reward", 1.0), (right, "optimal", 100.0)):
            y = scale * np.asarray(curve[key])
            x = np.arange(1, len(y) + 1)
            axes.plot(x, y, color=colour, linewidth=1.0, label=name)
    style.finish(left, "Average reward", "pull", "reward")
    style.finish(right, "Best arm taken", "pull", "% of runs")
    right.set_ylim(0, 100)
    legend_below(figure, left)
    return figure


if __name__ == "__main__":
    main(STUDY, measure)

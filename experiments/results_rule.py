"""The part of docs/results.md on a rule of learning that was evolved.

Rendered by `python experiments/results.py` from experiments/results/evolve-lpg.json.
"""

import json
from pathlib import Path
from typing import Any

from printed import printed_on

RESULTS = Path(__file__).parent / "results"
STORE = RESULTS / "evolve-lpg.json"
LEARNED = ("learn-lpg", "learn-lpg-temporal", "learn-lpg-annealed")
PICTURES = {
    "evolution-lpg-curve.png": "The evolution: the mean of the members with their "
    "standard deviation in the band, and the best member",
    "evolution-lpg-course.png": "The rule along the evolution, judged: on the training "
    "grids with their range in the band, on held-out grids with the 95% interval",
}


def section() -> list[str]:
    """Lines of markdown; none where there are no numbers."""
    if not STORE.exists():
        return []
    numbers = json.loads(STORE.read_text())
    settings, means = numbers["settings"], numbers["history"]["mean"]
    rates = ", ".join(
        f"{name.removesuffix(', tuned')} {found['learning_rate']:.2g}"
        for name, found in numbers["tuned"].items()
    )
    seconds = ", ".join(f"{k} {v:,} s" for k, v in numbers["seconds"].items())
    return [
        "",
        '## <a id="evolve-lpg"></a>A rule of learning, evolved on grids',
        "",
        "The rule of [LPG](algorithms/lpg.md), an LSTM, evolved together with the step "
        f"size of the agents, by Open-ES with {settings['population']} members, on "
        f"{len(numbers['settings']['baselines'])} grids (ObjectGrid-v0) with agents of "
        f"{numbers['config']['total_timesteps']:,} steps. In grids 0 is the return of "
        "a policy that takes every action equally often and 1 that of the best policy, "
        "which dynamic programming gives; in Catch returns are as they are. *Area* is "
        "the mean of the training curve, *final* that of its last tenth. Intervals are "
        "95% ones over the held-out grids and, in Catch, over seeds; of the training "
        "grids it is the range of the grids.",
        f"Step sizes of the baselines were tuned on the training grids: {rates}; the "
        f"evolved one is {numbers['learned_learning_rate']:.2g}.",
        f"The population's mean fitness went from {means[0]:.2f} in the first to "
        f"{means[-1]:.2f} in the last of {len(means)} generations.",
        "",
        *_table(numbers["judged"]),
        "",
        *(
            line
            for file, text in PICTURES.items()
            for line in (f"![{text}](images/{file})", "", f"*{text}.*", "")
        ),
        f"`{numbers['command']}`: {seconds}; {printed_on(numbers)}.",
        *_learned(),
    ]


def _learned() -> list[str]:
    """Return the section on rules learned by meta-gradients, a table per command."""
    lines = [
        "",
        '## <a id="learn-lpg"></a>A rule of learning, learned by meta-gradients',
        "",
        "A rule of the same kind with twice the units, learned by 64 agents that live "
        "on 256 grids by `purerl.meta_train`, and judged after some of its steps like "
        "the evolved one, with the same grids and seeds; 1,000 steps are 51 million "
        "environment steps.",
        "",
        "![Areas of the learned rules over meta-training](images/learn-lpg.png)",
        "",
        "*Areas of the learned rules over meta-training, on held-out grids with the "
        "95% interval in the band.*",
    ]
    for name in LEARNED:
        file = RESULTS / f"{name}.json"
        if not file.exists():
            continue
        numbers = json.loads(file.read_text())
        seconds = sum(numbers["course"]["seconds"])
        rows = {n: x for n, x in numbers["judged"].items() if n.startswith("step")}
        lines += [
            "",
            *_table(rows),
            "",
            f"`{numbers['command']}`: learned in {seconds:,.0f} s, "
            f"compilation included; {printed_on(numbers)}.",
        ]
    return lines


def _table(judged: dict[str, Any]) -> list[str]:
    places = list(next(iter(judged.values())))
    columns = [f"{place}: {part}" for place in places for part in ("area", "final")]
    lines = [f"| rule | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, rows in judged.items():
        cells = [
            "{:.2f} ({:.2f} to {:.2f})".format(*rows[place][part])
            for place in places
            for part in ("area", "final")
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines

"""VPG and TD3 on HalfCheetah with the source's best settings.

    python experiments/studies/halfcheetah.py [--quick | --long]

At full budget the curves are rows of the learning results, which
`python experiments/results.py vpg-halfcheetah td3-halfcheetah td3-halfcheetah-cpu`
trains; it continues where it was stopped. With `--long` the agents of `td3-halfcheetah`
and `vpg-halfcheetah-wide` that are missing are trained here, an hour or more each of
the first.
"""

from typing import Any

import learned
from halfcheetah_grid import SMALL, grid
from study import Budget, Findings, main, study_of

# isort: split
from pictures import ALGORITHMS, style

from purerl import presets

STUDY, WORDS = study_of("halfcheetah", "JAX 4 Deep RL")
# Row of the learning results -> its name here, the claim.
SHOWN = {
    "vpg-halfcheetah": ("VPG, 750,000 steps", "-50 ± 50 (3 seeds)"),
    "vpg-halfcheetah-wide": ("VPG with 128-128-128, 750,000 steps", "-"),
    "td3-halfcheetah": ("TD3, 1,200,000 steps", "5,000 ± 300 (3 seeds)"),
    "td3-halfcheetah-cpu": ("TD3, a short run of 320,000 steps", "-"),
}
# Algorithm and line of a row.
LINES = {
    "td3-halfcheetah": ("TD3", "-"),
    "td3-halfcheetah-cpu": ("TD3", "--"),
    "vpg-halfcheetah": ("VPG", "-"),
    "vpg-halfcheetah-wide": ("VPG", "--"),
}


def measure(budget: Budget) -> Findings:
    """Read or train the curves, and draw them."""
    if budget.quick:
        found = {}
        off_policy = {"rounds_per_update": 4, "gradient_steps": 2}
        start = {"random_steps": 500, "learning_starts": 500}
        td3 = presets.load("td3-halfcheetah").replace(**SMALL, **off_policy, **start)
        for name, config in (("VPG", grid(quick=True)[0]), ("TD3", td3)):
            short = config.replace(num_evaluations=2)
            row = budget.part(name, learned.train, short)
            found[f"{name.lower()}-halfcheetah"] = row
    else:
        learned.complete(budget, ["vpg-halfcheetah-wide", "td3-halfcheetah"])
        found = {name: learned.load(name) for name in SHOWN}
    known = {name: row for name, row in found.items() if row}
    figure = budget.save(
        figure_of(known),
        "returns",
        "Return of the deterministic policy on brax's HalfCheetah (spring), the mean "
        f"of {_numbers_of_agents(known)}. The bar beside each curve's last point is "
        f"{learned.bars(known.values())}. The source's returns are of another physics "
        "and are not drawn.",
    )
    rows = []
    for name, (title, claim) in SHOWN.items():
        row = known.get(name, {})
        note = note_of(name, row)
        rows.append(learned.row_of(f"{title}: return at the end", claim, row, 0, note))
    printed = learned.printed(known.values())
    return Findings(rows, [figure], [WORDS["differences"]], printed)


def note_of(name: str, row: dict[str, Any]) -> str:
    """Return the note of a row, which is empty where it was not run."""
    missing = learned.what_is_missing(name, row)
    if not row:
        return missing
    return " ".join(filter(None, [missing, WORDS["other physics"], WORDS.get(name)]))


def _numbers_of_agents(found: dict[str, dict[str, Any]]) -> str:
    """Return how many agents the curves are of, in words.

    Args:
        found: Rows by their names.
    """
    numbers = {name: len(row["per_seed"]) for name, row in found.items()}
    most = max(numbers.values())
    fewer = [
        f"{number} with {SHOWN[name][0]}"
        for name, number in numbers.items()
        if number < most
    ]
    return f"{most} agents each" + (f" ({'; '.join(fewer)})" if fewer else "")


def figure_of(found: dict[str, dict[str, Any]]) -> Any:
    """Draw the curves, a colour for each row."""
    figure = style.new_figure(width=7.5, height=4.4)
    axes = figure.subplots()
    for place, (name, row) in enumerate(found.items()):
        algorithm, line = LINES[name]
        learned.draw(axes, row, ALGORITHMS[algorithm], SHOWN[name][0], line, place)
    learned.finish(axes, "center right")
    return figure


if __name__ == "__main__":
    main(STUDY, measure)

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
from halfcheetah_grid import grids
from palette import ALGORITHMS
from study import Budget, Findings, Row, Study, main

from purerl.report.plots import style

STUDY = Study(
    name="halfcheetah",
    title="VPG and TD3 on HalfCheetah with the source's best settings",
    source='"JAX 4 Deep RL" (Glazer-Cavanagh and Aguilar-Lussier 2023), returns of '
    "three seeds on MuJoCo's HalfCheetah-v2; an i5-10400F and an RTX 3060",
    question="The deterministic policy's return over environment steps on brax's "
    "HalfCheetah (spring). VPG has the source's best settings: layers of 128-64 and "
    "150 epochs of 5,000 steps (preset `vpg-halfcheetah`). It is also shown with "
    "layers of 128-128-128, the best cell of the grid here (`vpg-halfcheetah-wide`), "
    "where that row was run. TD3 has the source's best settings, layers of "
    "256-256-256, batches of 100 and 1,200,000 steps (`td3-halfcheetah`), where that "
    "row was run. It is also shown with layers of 128-128, batches of 256, sixteen "
    "environments, one gradient step per four of their steps, and 320,000 steps "
    "(`td3-halfcheetah-cpu`). All curves are rows of the [learning "
    "results](results.md).",
    headlines=(0, 2),
    system="JAX 4 Deep RL",
)
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
OTHER_PHYSICS = (
    "The physics differs: brax's spring backend here, MuJoCo there, so that the "
    "returns cannot be compared."
)
SMALLER = {
    "td3-halfcheetah-cpu": "The layers, the batches and the number of steps also "
    "differ from the source's, which reports 5,000 ± 300 after 1,200,000 steps."
}


def measure(budget: Budget) -> Findings:
    """Read or train the curves, and draw them."""
    if budget.quick:
        found = {
            f"{name.lower()}-halfcheetah": budget.part(
                name, lambda c=config: learned.train(c.replace(num_evaluations=2))
            )
            for name, (config, _) in grids(quick=True).items()
        }
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
    rows = [
        Row(
            f"{title}: return at the end",
            claim,
            learned.score_text(known[name], 0) if name in known else "not measured",
            note_of(name, known.get(name)),
            learned.command_of(known.get(name)),
        )
        for name, (title, claim) in SHOWN.items()
    ]
    text = [
        "In PyTorch the source reports 6,000 ± 3,500 for SpinningUp's TD3 with these "
        "settings. Its TD3 in JAX differs from the algorithm in three ways: the target "
        "networks follow the online ones almost at once, because the weights of the "
        "Polyak average are swapped; the smoothing noise is never negative; and all 50 "
        "updates of a block draw the same noise. Here the average has the right "
        "weights, the noise is symmetric, and every update draws its own."
    ]
    return Findings(rows, [figure], [], text, learned.printed(known.values()))


def note_of(name: str, row: dict[str, Any] | None) -> str:
    """Return the note of a row.

    Args:
        name: Name of the row.
        row: The row; None where it was not run.
    """
    missing = learned.what_is_missing(name, row)
    if row is None:
        return missing
    return " ".join(filter(None, [missing, OTHER_PHYSICS, SMALLER.get(name, "")]))


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
    """Draw the curves, a colour for each row.

    Args:
        found: Rows by their names.
    """
    figure = style.new_figure(width=7.5, height=4.4)
    axes = figure.subplots()
    for place, (name, row) in enumerate(found.items()):
        algorithm, line = LINES[name]
        learned.draw(axes, row, ALGORITHMS[algorithm], SHOWN[name][0], line, place)
    axes.legend(frameon=False, loc="center right")
    style.finish(axes, "", "environment steps", "episode return")
    style.step_axis(axes)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    return figure


if __name__ == "__main__":
    main(STUDY, measure)

"""The learning graph of TD3, SAC and MPO on the cart-pole swing-up.

    python experiments/studies/swingup.py [--quick | --long]

At full budget the curves are those of the learning results, ten seeds each, which
`python experiments/results.py td3-swingup sac-swingup mpo-swingup` trains (two hours of
two cores, and it continues where it was stopped). The rows `td3-jaxrl`, `sac-jaxrl` and
`mpo-jaxrl`, which have the source's own sizes, are also drawn where they were run; with
`--long` those of their agents that are missing are trained, which takes days.
"""

from typing import Any

import learned
from study import Budget, Findings, main, study_of

# isort: split
from pictures import ALGORITHMS, style

from purerl import presets

STUDY, WORDS = study_of("swingup", "jax-rl")
# Read off the source's plot at 250,000 steps.
CLAIMED = {"td3": 470, "sac": 770, "mpo": 740}
CLAIMS = {name: f"about {value}" for name, value in CLAIMED.items()}
CLAIMS["td3"] += ", in a band of 260 to 670"
QUICK = {"num_evaluations": 2, "total_timesteps": 4_000, "eval_share": 1.0}


def trained(name: str) -> dict[str, Any]:
    """Train one agent for a few steps, in place of a row of the learning results."""
    config = presets.load(f"{name}-swingup").replace(
        **QUICK, learning_starts=500, hidden_sizes=(16,), batch_size=16
    )
    return learned.train(config)


def measure(budget: Budget) -> Findings:
    """Read or train the curves, and draw them."""
    theirs: dict[str, dict[str, Any]] = {name: {} for name in CLAIMED}
    if budget.quick:
        ours = {name: budget.part(name, trained, name) for name in CLAIMED}
    else:
        learned.complete(budget, [f"{name}-jaxrl" for name in CLAIMED])
        ours = {name: learned.load(f"{name}-swingup") for name in CLAIMED}
        theirs = {name: learned.load(f"{name}-jaxrl") for name in CLAIMED}
    ours = {name: row for name, row in ours.items() if row}
    same_sizes = {name: row for name, row in theirs.items() if row}
    seeds, drawn = len(ours["td3"]["per_seed"]), [*ours.values(), *same_sizes.values()]
    figure = budget.save(
        figure_of(ours, same_sizes),
        "returns",
        f"Return of the deterministic policy, the mean of {seeds} agents each. The bar "
        f"beside each curve's last point is {learned.bars(drawn)}. The dotted lines, "
        "in the colours of the algorithms, were read off the source's plot at 250,000 "
        "steps."
        + " Broken lines are agents with the source's sizes; the table says how many "
        "there are." * bool(same_sizes),
    )
    rows = []
    for name, row in ours.items():
        words = f"{name.upper()}: return at the end", CLAIMS[name]
        rows.append(learned.row_of(*words, row, 1, WORDS[name]))
    for name, row in theirs.items():
        what = f"{name.upper()} with the source's sizes: return at the end"
        note = learned.what_is_missing(f"{name}-jaxrl", row)
        rows.append(learned.row_of(what, CLAIMS[name], row, 1, note))
    text = WORDS["sizes"] if same_sizes else f"{WORDS['sizes']} {WORDS['not run']}"
    return Findings(rows, [figure], [text], learned.printed(drawn))


def figure_of(ours: dict[str, Any], same_sizes: dict[str, Any]) -> Any:
    """Draw the curves of three algorithms.

    Args:
        ours: Rows with the sizes that were tuned here, by algorithm.
        same_sizes: Rows with the source's sizes.
    """
    figure = style.new_figure(width=7.5, height=4.4)
    axes = figure.subplots()
    for i, name in enumerate(CLAIMED):
        colour = ALGORITHMS[name.upper()]
        learned.draw(axes, ours[name], colour, name.upper(), place=i)
        if name in same_sizes:
            label = f"{name.upper()}, the source's sizes"
            learned.draw(axes, same_sizes[name], colour, label, "--", place=i + 3)
        axes.axhline(CLAIMED[name], color=colour, linestyle=":", linewidth=1)
    label = "the source's return at 250,000 steps"
    axes.plot([], [], color=style.INK, linestyle=":", linewidth=1, label=label)
    axes.set_ylim(-20, 1_000)  # Marks at zero are whole.
    learned.finish(axes, "lower right", "episode return, at most 1,000")
    return figure


if __name__ == "__main__":
    main(STUDY, measure)

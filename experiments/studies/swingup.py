"""The learning graph of TD3, SAC and MPO on the cart-pole swing-up.

    python experiments/studies/swingup.py [--quick | --long]

At full budget the curves are those of the learning results, ten seeds each, which
`python experiments/results.py td3-swingup sac-swingup mpo-swingup` trains (two hours of
two cores, and it goes on where it was stopped). The rows `td3-jaxrl`, `sac-jaxrl` and
`mpo-jaxrl`, which have the source's own sizes, are drawn too where they were run; with
`--long` those of their agents that are missing are trained, which takes days.
"""

from typing import Any

import learned
from measure import interval_text
from study import Budget, Findings, Row, Study, main

from purerl import presets
from purerl.report.plots import style

STUDY = Study(
    name="swingup",
    title="TD3, SAC and MPO on the cart-pole swing-up",
    source="jax-rl (Prior): the README's plot of returns over 250,000 steps; the "
    "hardware of its plot is not stated, that of its times is a 2019 MacBook Pro",
    question="The deterministic policy's return over environment steps, of ten agents "
    "of each algorithm, on a cart-pole swing-up with the physics and rewards of the DM "
    "Control suite's: with settings tuned here (presets `td3-swingup`, `sac-swingup`, "
    "`mpo-swingup`). The source's sizes (`td3-jaxrl`, `sac-jaxrl`, `mpo-jaxrl`) are "
    "drawn besides where they were run; `--long` trains those that are missing. Rows "
    "of the [learning results](results.md) are drawn, which say how long they were "
    "trained.",
    system="jax-rl",
)
# Read off the source's plot at 250,000 steps.
CLAIMED = {"td3": 470, "sac": 770, "mpo": 740}
WORDS = {"td3": ", in a band of 260 to 670"}
# Why the source's numbers and ours differ.
NOTES = {
    "td3": "Not the source's sizes: eight environments, a gradient step per two of "
    "their steps, layers of 128-128, batches of 128 (there one environment, a gradient "
    "step per step, 256-256, batches of 256). The source's targets follow the online "
    "networks almost at once (its Polyak average is the wrong way round), and it acts "
    "without exploration after its warm-up.",
    "sac": "Not the source's sizes: eight environments, a gradient step per four of "
    "their steps, layers of 128-128, batches of 256 (there one environment, a gradient "
    "step per step, policy of 200-200, critics of 500-500). The source has the same "
    "Polyak average and acts with the mean of its policy after its warm-up.",
    "mpo": "Not the source's sizes: eight environments, a gradient step per four of "
    "their steps, layers of 64-64, batches of 256 (there one environment, a gradient "
    "step per step, policy of 200-200, critics of 500-500). The source passes standard "
    "deviations where its divergence takes variances. The claim lies within our "
    "interval.",
}
NOT_RUN = (
    " They were not run here for want of time, so that nothing on this page compares "
    "agents of the same sizes."
)
AT_END = "the source's, at 250,000 steps"
QUICK = {"num_evaluations": 2, "total_timesteps": 4_000, "eval_share": 1.0}


def trained(name: str) -> dict[str, Any]:
    """Train one agent for a few steps, in place of a row of the learning results."""
    config = presets.load(f"{name}-swingup").replace(
        **QUICK, learning_starts=500, hidden_sizes=(16,), batch_size=16
    )
    return learned.train(config)


def measure(budget: Budget) -> Findings:
    """Read or train the curves, and draw them."""
    if budget.quick:
        ours = {name: budget.part(name, lambda n=name: trained(n)) for name in CLAIMED}
        theirs = dict.fromkeys(CLAIMED)
    else:
        learned.complete(budget, [f"{name}-jaxrl" for name in CLAIMED])
        ours = {name: learned.load(f"{name}-swingup") for name in CLAIMED}
        theirs = {name: learned.load(f"{name}-jaxrl") for name in CLAIMED}
    ours = {name: row for name, row in ours.items() if row}
    same_sizes = {name: row for name, row in theirs.items() if row}
    seeds = len(ours["td3"]["per_seed"])
    figure = budget.save(
        figure_of(ours, same_sizes),
        "returns",
        f"Return of the deterministic policy, mean of {seeds} agents each, and at the "
        "end the 95% interval of the mean; the dotted lines are what was read off the "
        "source's plot at 250,000 steps."
        + " Broken lines have the source's sizes, of as many agents as the table says; "
        "of fewer than ten the range of the agents is drawn." * bool(same_sizes),
    )
    rows = [
        Row(
            f"{name.upper()}: return at the end",
            f"about {CLAIMED[name]}{WORDS.get(name, '')}",
            interval_text(row["per_seed"]),
            NOTES[name],
        )
        for name, row in ours.items()
    ]
    rows += [same_sizes_row(name, theirs[name]) for name in CLAIMED]
    text = [
        "The presets `td3-jaxrl`, `sac-jaxrl` and `mpo-jaxrl` have the source's own "
        "sizes, with a gradient step after every environment step, and not its errors: "
        "the Polyak average goes the right way, acting explores, and a time limit is "
        "no end." + NOT_RUN * (not same_sizes)
    ]
    printed = learned.printed([*ours.values(), *same_sizes.values()])
    return Findings(rows, [figure], [], text, printed)


def same_sizes_row(name: str, row: dict[str, Any] | None) -> Row:
    """Return the row of an algorithm with the source's sizes.

    Args:
        name: Name of the algorithm.
        row: Row of the learning results; None where it was not run.
    """
    return Row(
        f"{name.upper()} with the source's sizes: return at the end",
        f"about {CLAIMED[name]}{WORDS.get(name, '')}",
        interval_text(row["per_seed"]) if row else "not measured",
        learned.what_is_missing(f"{name}-jaxrl", row),
    )


def figure_of(ours: dict[str, Any], same_sizes: dict[str, Any]) -> Any:
    """Draw the curves of three algorithms.

    Args:
        ours: Rows with the sizes that were tuned here, by algorithm.
        same_sizes: Rows with the source's sizes.
    """
    figure = style.new_figure(width=7.5, height=4.4)
    axes = figure.subplots()
    for i, name in enumerate(CLAIMED):
        learned.draw(axes, ours[name], i, name.upper())
        if name in same_sizes:
            label = f"{name.upper()}, the source's sizes"
            learned.draw(axes, same_sizes[name], i, label, "--", place=i + 3)
        colour = style.COLOURS[i]
        axes.axhline(CLAIMED[name], color=colour, linestyle=":", linewidth=1)
    axes.plot([], [], color=style.INK, linestyle=":", linewidth=1, label=AT_END)
    axes.set_ylim(0, 1_000)
    axes.legend(frameon=False, loc="lower right")
    style.finish(axes, "", "environment steps", "episode return, at most 1,000")
    style.step_axis(axes)
    return figure


if __name__ == "__main__":
    main(STUDY, measure)

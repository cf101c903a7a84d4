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
from palette import ALGORITHMS
from study import Budget, Findings, Row, Study, main

from purerl import presets
from purerl.report.plots import style

STUDY = Study(
    name="swingup",
    title="TD3, SAC and MPO on the cart-pole swing-up",
    source="jax-rl (Prior): the README's plot of returns over 250,000 steps; the "
    "hardware of its plot is not stated, that of its times is a 2019 MacBook Pro",
    question="The deterministic policy's return over environment steps on a cart-pole "
    "swing-up with the physics and rewards of the DM Control suite's. Ten agents of "
    "each algorithm have settings tuned here (presets `td3-swingup`, `sac-swingup`, "
    "`mpo-swingup`). Agents with the source's network sizes and batches (`td3-jaxrl`, "
    "`sac-jaxrl`, `mpo-jaxrl`) are also drawn where they were run; `--long` trains "
    "those that are missing. All curves are rows of the [learning "
    "results](results.md), which say how long the training took.",
    headlines=(0, 1, 2),
    system="jax-rl",
)
# Read off the source's plot at 250,000 steps.
CLAIMED = {"td3": 470, "sac": 770, "mpo": 740}
WORDS = {"td3": ", in a band of 260 to 670"}
# Why the source's numbers and ours differ.
NOTES = {
    "td3": "The sizes are not the source's. Here there are eight environments, one "
    "gradient step per two of their steps, layers of 128-128 and batches of 128; there "
    "one environment, one gradient step per step, layers of 256-256 and batches of "
    "256. The source's target networks follow the online ones almost at once, because "
    "the weights of its Polyak average are swapped, and it acts without exploration "
    "after its warm-up.",
    "sac": "The sizes are not the source's. Here there are eight environments, one "
    "gradient step per four of their steps, layers of 128-128 and batches of 256; "
    "there one environment, one gradient step per step, a policy of 200-200 and "
    "critics of 500-500. The source's Polyak average has the same error as in TD3, and "
    "it acts with the mean of its policy after its warm-up.",
    "mpo": "The sizes are not the source's. Here there are eight environments, one "
    "gradient step per four of their steps, layers of 64-64 and batches of 256; there "
    "one environment, one gradient step per step, a policy of 200-200 and critics of "
    "500-500. The source passes standard deviations to a divergence that takes "
    "variances. The claim lies within our interval.",
}
NOT_RUN = (
    " They were not run here for lack of time, so that nothing on this page compares "
    "agents of the same sizes."
)
AT_END = "the source's return at 250,000 steps"
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
    rows = [
        Row(
            f"{name.upper()}: return at the end",
            f"about {CLAIMED[name]}{WORDS.get(name, '')}",
            learned.score_text(row, 1),
            NOTES[name],
            learned.command_of(row),
        )
        for name, row in ours.items()
    ]
    rows += [same_sizes_row(name, theirs[name]) for name in CLAIMED]
    text = [
        "The presets `td3-jaxrl`, `sac-jaxrl` and `mpo-jaxrl` have the source's own "
        "sizes, with one gradient step after every environment step. They do not have "
        "its errors: the Polyak average has the right weights, the agent explores "
        "while it acts, and a time limit does not count as termination."
        + NOT_RUN
        * (not same_sizes)
    ]
    printed = learned.printed(drawn)
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
        learned.score_text(row, 1) if row else "not measured",
        learned.what_is_missing(f"{name}-jaxrl", row),
        learned.command_of(row),
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
        colour = ALGORITHMS[name.upper()]
        learned.draw(axes, ours[name], colour, name.upper(), place=i)
        if name in same_sizes:
            label = f"{name.upper()}, the source's sizes"
            learned.draw(axes, same_sizes[name], colour, label, "--", place=i + 3)
        axes.axhline(CLAIMED[name], color=colour, linestyle=":", linewidth=1)
    axes.plot([], [], color=style.INK, linestyle=":", linewidth=1, label=AT_END)
    axes.set_ylim(-20, 1_000)  # Marks at zero are whole.
    axes.legend(frameon=False, loc="lower right")
    style.finish(axes, "", "environment steps", "episode return, at most 1,000")
    style.step_axis(axes)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    return figure


if __name__ == "__main__":
    main(STUDY, measure)

"""The learning graph of TD3, SAC and MPO on the cart-pole swing-up.

    python experiments/studies/swingup.py [--quick]

At full budget the curves are those of the learning results, ten seeds each, which
`python experiments/results.py td3-swingup sac-swingup mpo-swingup` trains (two hours of
two cores, and it goes on where it was stopped).
"""

import json
from typing import Any

import jax
import numpy as np
from measure import interval_text
from study import STORE, Budget, Findings, Row, Study, main

from purerl import make_train, presets
from purerl.report.plots import style

STUDY = Study(
    name="swingup",
    title="TD3, SAC and MPO on the cart-pole swing-up",
    source="jax-rl (Prior): the README's plot of returns over 250,000 steps",
    question="The deterministic policy's return over environment steps, of ten agents "
    "of each algorithm, on a cart-pole swing-up with the physics and rewards of the DM "
    "Control suite's (presets `td3-swingup`, `sac-swingup`, `mpo-swingup`). Rows of "
    "the learning results are drawn, which say where and how long they were trained.",
)
# Read off the source's plot at 250,000 steps.
CLAIMED = {"td3": 470, "sac": 770, "mpo": 740}
WORDS = {"td3": ", in a band of 260 to 670"}
QUICK = {"num_evaluations": 2, "total_timesteps": 4_000, "eval_share": 1.0}


def trained(name: str) -> dict[str, Any]:
    """Train one agent for a few steps, in place of a row of the learning results."""
    config = presets.load(f"{name}-swingup").replace(
        **QUICK, learning_starts=500, hidden_sizes=(16,), batch_size=16
    )
    result = jax.jit(jax.vmap(make_train(config)))(jax.random.key(0)[None])
    returns = np.asarray(result.evaluation["episode_return"]).mean(-1)
    return {
        "curve_steps": np.asarray(result.evaluation["env_steps"][0]).tolist(),
        "curve": returns.mean(0).tolist(),
        "per_seed": returns[:, -1].tolist(),
    }


def measure(budget: Budget) -> Findings:
    """Read or train the curves, and draw them."""
    found = {
        name: budget.part(name, lambda n=name: trained(n))
        if budget.quick
        else json.loads((STORE.parent / f"{name}-swingup.json").read_text())
        for name in CLAIMED
    }
    seeds = len(found["td3"]["per_seed"])
    figure = budget.save(
        figure_of(found),
        "returns",
        f"Return of the deterministic policy, mean of {seeds} agents each; the dotted "
        "lines are what was read off the source's plot at 250,000 steps.",
    )
    rows = [
        Row(
            f"{name.upper()}: return at the end",
            f"about {CLAIMED[name]}{WORDS.get(name, '')}",
            interval_text(x["per_seed"]),
            "Other sizes than the source's, whose targets follow the online networks "
            "almost at once (its Polyak average is the wrong way round) and which acts "
            "without exploration after its warm-up."
            if name == "td3"
            else "",
        )
        for name, x in found.items()
    ]
    text = [
        "The [learning results](results.md) have the rows with their seeds, times and "
        "hardware. The presets `td3-jaxrl`, `sac-jaxrl` and `mpo-jaxrl` have the "
        "source's own sizes, with a gradient step after every environment step."
    ]
    printed = "; ".join(
        f"`{x['command']}`: {x['hardware']}, jax {x['jax']}, {x['date']}"
        for x in found.values()
        if "command" in x
    )
    return Findings(rows, [figure], [], text, printed)


def figure_of(found: dict[str, dict[str, Any]]) -> Any:
    """Draw the three curves."""
    figure = style.new_figure(width=7.5, height=4.4)
    axes = figure.subplots()
    for i, (name, x) in enumerate(found.items()):
        colour = style.COLOURS[i]
        steps, curve = [0, *x["curve_steps"]], [np.nan, *x["curve"]]
        marker = style.MARKERS[i]
        axes.plot(steps, curve, color=colour, marker=marker, label=name.upper())
        axes.axhline(CLAIMED[name], color=colour, linestyle=":", linewidth=1)
    axes.set_ylim(0, 1_000)
    axes.legend(frameon=False, loc="upper left")
    style.finish(axes, "", "environment steps", "episode return, at most 1,000")
    style.step_axis(axes)
    return figure


if __name__ == "__main__":
    main(STUDY, measure)

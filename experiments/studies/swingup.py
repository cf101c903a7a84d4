"""The learning graph of TD3, SAC and MPO on the cart-pole swing-up.

    python experiments/studies/swingup.py [--quick | --long]

At full budget the curves are those of the learning results, ten seeds each, which
`python experiments/results.py td3-swingup sac-swingup mpo-swingup` trains (two hours of
two cores, and it continues where it was stopped). The rows `td3-jaxrl`, `sac-jaxrl` and
`mpo-jaxrl`, which have the source's own sizes, are also drawn where they were run; with
`--long` those of their agents that are missing are trained, which takes days.
"""

import learned
from learned import Shown
from study import Budget, Findings, main, study_of

# isort: split
from pictures import ALGORITHMS, style

from purerl import TrainConfig, presets

STUDY, WORDS = study_of("swingup", "jax-rl")
# Read off the source's plot at 250,000 steps.
CLAIMED = {"TD3": 470, "SAC": 770, "MPO": 740}
CLAIMS = {name: f"about {value}" for name, value in CLAIMED.items()}
CLAIMS["TD3"] += ", in a band of 260 to 670"
# Rows with the sizes that were tuned here, and with the source's.
TUNED = {
    f"{name.lower()}-swingup": Shown(name, CLAIMS[name], name, note=WORDS[name.lower()])
    for name in CLAIMED
}
SAME_SIZES = {
    f"{name.lower()}-jaxrl": Shown(
        f"{name} with the source's sizes", CLAIMS[name], name, "--"
    )
    for name in CLAIMED
}
SHOWN = TUNED | SAME_SIZES
QUICK = {
    "num_evaluations": 2,
    "total_timesteps": 4_000,
    "eval_share": 1.0,
    "learning_starts": 500,
    "hidden_sizes": (16,),
    "batch_size": 16,
}


def quick() -> dict[str, TrainConfig]:
    """Return small configs in place of the rows."""
    return {name: presets.load(name).replace(**QUICK) for name in TUNED}


def measure(budget: Budget) -> Findings:
    """Read or train the curves, and draw them."""
    found = learned.known(budget, SHOWN, SAME_SIZES, quick)
    figure, axes = learned.draw(SHOWN, found)
    for name, value in CLAIMED.items():
        axes.axhline(value, color=ALGORITHMS[name], linestyle=":", linewidth=1)
    label = "the source's return at 250,000 steps"
    axes.plot([], [], color=style.INK, linestyle=":", linewidth=1, label=label)
    axes.set_ylim(-20, 1_000)  # Marks at zero are whole.
    learned.finish(axes, "lower right", "episode return, at most 1,000")
    seeds, bars = len(found["td3-swingup"]["per_seed"]), learned.bars(found.values())
    caption = WORDS.fill("picture", seeds=seeds, bars=bars)
    text = WORDS["sizes"]
    if SAME_SIZES.keys() & found.keys():
        caption = f"{caption} {WORDS['picture sizes']}"
    else:
        text = f"{text} {WORDS['not run']}"
    pictures = [budget.save(figure, "returns", caption)]
    rows, printed = learned.rows_of(SHOWN, found, 1), learned.printed(found.values())
    return Findings(rows, pictures, [text], printed)


if __name__ == "__main__":
    main(STUDY, measure)

"""VPG and TD3 on HalfCheetah with the source's best settings.

    python experiments/studies/halfcheetah.py [--quick | --long]

At full budget the curves are rows of the learning results, which
`python experiments/results.py vpg-halfcheetah td3-halfcheetah td3-halfcheetah-cpu`
trains; it continues where it was stopped. With `--long` the agents of `td3-halfcheetah`
and `vpg-halfcheetah-wide` that are missing are trained here, an hour or more each of
the first.
"""

import learned
from halfcheetah_grid import SMALL, grid
from learned import Found, Shown
from study import Budget, Findings, main, study_of

# isort: split
from purerl import TrainConfig, presets

STUDY, WORDS = study_of("halfcheetah", "JAX 4 Deep RL")
PHYSICS = WORDS["other physics"]
# By the names of the learning results.
SHOWN = {
    "vpg-halfcheetah": Shown(
        "VPG, 750,000 steps", "-50 ± 50 (3 seeds)", "VPG", note=PHYSICS
    ),
    "vpg-halfcheetah-wide": Shown(
        "VPG with 128-128-128, 750,000 steps", "-", "VPG", "--", PHYSICS
    ),
    "td3-halfcheetah": Shown(
        "TD3, 1,200,000 steps", "5,000 ± 300 (3 seeds)", "TD3", note=PHYSICS
    ),
    "td3-halfcheetah-cpu": Shown(
        "TD3, a short run of 320,000 steps",
        *("-", "TD3", "--", f"{PHYSICS} {WORDS['td3-halfcheetah-cpu']}"),
    ),
}


def quick() -> dict[str, TrainConfig]:
    """Return small configs in place of two rows."""
    off_policy = {"rounds_per_update": 4, "gradient_steps": 2}
    start = {"random_steps": 500, "learning_starts": 500}
    td3 = presets.load("td3-halfcheetah").replace(**SMALL, **off_policy, **start)
    both = {"vpg-halfcheetah": grid(quick=True)[0], "td3-halfcheetah": td3}
    return {name: config.replace(num_evaluations=2) for name, config in both.items()}


def measure(budget: Budget) -> Findings:
    """Read or train the curves, and draw them."""
    long = ["vpg-halfcheetah-wide", "td3-halfcheetah"]
    found = learned.known(budget, SHOWN, long, quick)
    figure, axes = learned.draw(SHOWN, found)
    learned.finish(axes, "center right")
    agents, bars = _numbers_of_agents(found), learned.bars(found.values())
    caption = WORDS.fill("picture", agents=agents, bars=bars)
    pictures = [budget.save(figure, "returns", caption)]
    rows, printed = learned.rows_of(SHOWN, found, 0), learned.printed(found.values())
    return Findings(rows, pictures, [WORDS["differences"]], printed)


def _numbers_of_agents(found: Found) -> str:
    """Return how many agents the curves are of, in words."""
    numbers = {name: len(row["per_seed"]) for name, row in found.items()}
    most = max(numbers.values())
    fewer = [
        f"{number} with {SHOWN[name].title}"
        for name, number in numbers.items()
        if number < most
    ]
    return f"{most} agents each" + (f" ({'; '.join(fewer)})" if fewer else "")


if __name__ == "__main__":
    main(STUDY, measure)

"""VPG's grid of "JAX 4 Deep RL" over layers and steps per epoch, as sweeps.

    python experiments/studies/halfcheetah_grid.py [--quick | --long]

There is a sweep for each choice of layers, which continues where it was stopped; what
it found is kept in the repository, so that the grid can be trained in sittings. Its 45
million environment steps are hours of two CPU cores, so that cells which are not there
are only trained with `--long`.
"""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from study import Budget, Findings, interval_text, main, study_of

# isort: split
from pictures import STACKS, legend_below, style

import purerl
from purerl import presets, serialise

STUDY, WORDS = study_of("halfcheetah_grid", "JAX 4 Deep RL")
NAMES = {"hidden_sizes": "layers", "num_steps": "steps per epoch"}
SEEDS = 3
NUM_ENVS = 5  # Environments of VPG, whose `num_steps` are those of each.
VPG_SIZES = [(64, 32), (64, 64), (128, 64), (128, 128, 64), (128, 128, 128)]
EPOCHS = [3_000, 4_000, 5_000, 10_000]  # Steps, of five environments together.
# A small task that stands for HalfCheetah in a quick run.
SMALL: dict[str, Any] = {
    "env": "Pendulum-v1",
    "env_kwargs": {},
    "reset_scheme": "fresh",
    "total_timesteps": 2_000,
}


def grid(quick: bool) -> tuple[Any, dict[str, list[Any]]]:
    """Return the config and the axes of the sweep; a quick one has four cells."""
    config = presets.load("vpg-halfcheetah").replace(num_evaluations=1)
    if quick:
        config = config.replace(**SMALL, num_envs=2, critic_iterations=2)
        return config, {"hidden_sizes": [(8, 8), (16,)], "num_steps": [100, 200]}
    steps = [n // NUM_ENVS for n in EPOCHS]
    return config, {"hidden_sizes": VPG_SIZES, "num_steps": steps}


def train(
    config: Any, axes: dict[str, list[Any]], folder: Path
) -> list[dict[str, Any]]:
    """Train some cells; return them with the scores of their seeds.

    Args:
        config: The config of all cells.
        axes: The axes of the sweep.
        folder: Folder of the sweep.
    """
    result = purerl.sweep(config, axes, seeds=SEEDS, out=folder, progress=False)
    frame = result.to_dataframe()
    names = list(axes)
    cells = []
    groups: Any = frame.groupby([frame[n].astype(str) for n in names])
    for point, rows in groups:
        scores = [float(x) for x in rows["episode_return"]]
        cells.append({"point": dict(zip(names, point, strict=True)), "scores": scores})
    return cells


def cells_of(budget: Budget) -> list[dict[str, Any]]:
    """Return the cells of the grid, in the order of its axes: those that are there."""
    config, axes = grid(budget.quick)
    cells: list[dict[str, Any]] = []
    for layers in axes["hidden_sizes"]:
        some = {**axes, "hidden_sizes": [layers]}
        label = f"VPG-{'-'.join(map(str, layers))}"
        settings = {"config": serialise.to_dict(config), "axes": some}
        given = (train, config, some, budget.folder / label.lower())
        found = budget.lasting(label, *given, **settings) or []
        cells += sorted(found, key=lambda cell: int(cell["point"]["num_steps"]))
    return cells


def measure(budget: Budget) -> Findings:
    """Train the grid and say which cells are best."""
    cells = cells_of(budget)
    best = max(cells, key=lambda cell: np.mean(cell["scores"]))
    by_median = max(cells, key=lambda cell: np.median(cell["scores"]))
    row = WORDS.row(
        "best",
        cells=len(cells),
        here=f"{interval_text(best['scores'], 0)}: {in_words(best['point'])}",
        median=np.median(by_median["scores"]),
        by_median=in_words(by_median["point"]),
    )
    figure = budget.save(figure_of(cells), "vpg", WORDS["picture"])
    text = [] if budget.quick else [WORDS["epochs"], budget.sittings()]
    return Findings([row], [figure], text)


def shown(point: dict[str, str]) -> dict[str, str]:
    """Return a cell's point as it is shown: steps per epoch, of all environments.

    Args:
        point: Texts of the fields of the config, by their names.
    """
    return {
        name: f"{int(text) * NUM_ENVS:,}" if name == "num_steps" else text
        for name, text in point.items()
    }


def in_words(point: dict[str, str]) -> str:
    """Return a cell's point in words."""
    return ", ".join(f"{NAMES[name]} {text}" for name, text in shown(point).items())


def figure_of(cells: list[dict[str, Any]]) -> Any:
    """Draw every seed's score by cell, a panel for each choice of layers."""
    layers, axis = cells[0]["point"]
    groups = [
        (sizes, list(some))
        for sizes, some in itertools.groupby(cells, lambda cell: cell["point"][layers])
    ]
    figure = style.new_figure(height=0.27 * len(cells) + 0.42 * len(groups) + 1.3)
    heights = [len(some) for _, some in groups]
    panels = figure.subplots(
        len(groups), sharex=True, height_ratios=heights, squeeze=False
    )[:, 0]
    for axes, (sizes, some) in zip(panels, groups, strict=True):
        for i, cell in enumerate(some):
            scores = cell["scores"]
            look = {"color": STACKS["purerl"], "label": "a seed" if not i else None}
            axes.plot(scores, [i] * len(scores), "o", **look)
            look = {"color": style.INK, "label": None if i else "mean of the cell"}
            axes.plot(np.mean(scores), i, "|", ms=13, mew=2, **look)
        labels = [shown(cell["point"])[axis] for cell in some]
        axes.set_yticks(range(len(some)), labels)
        axes.set_ylim(len(some) - 0.4, -0.6)
        style.finish(axes, f"{NAMES[layers]} {sizes}")
        axes.xaxis.set_major_formatter("{x:,.0f}")
    panels[-1].set_xlabel("VPG: episode return at the end of training")
    figure.supylabel(NAMES[axis], fontsize="medium", color=style.INK)
    legend_below(figure, panels[0], loc="outside upper right")
    return figure


if __name__ == "__main__":
    main(STUDY, measure)

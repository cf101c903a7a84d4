"""The grids of "JAX 4 Deep RL" over layers, steps per epoch and batches, as sweeps.

    python experiments/studies/halfcheetah_grid.py [--quick | --long]

There is a sweep for each choice of layers, which continues where it was stopped; what
it found is kept in the repository, so that the grids can be trained in sittings. VPG's
45 million environment steps are hours of two CPU cores, and TD3's 43 million gradient
steps are days. So the grids are trained where JAX has an accelerator, and on a CPU with
`--long`.
"""

import itertools
from pathlib import Path
from typing import Any

import jax
import numpy as np
from study import Budget, Findings, Row, interval_text, main, study_of

# isort: split
from pictures import STACKS, legend_below, style

import purerl
from purerl import presets, serialise

STUDY, WORDS = study_of("halfcheetah_grid", "JAX 4 Deep RL")
NAMES = {
    "hidden_sizes": "layers",
    "num_steps": "steps per epoch",
    "batch_size": "batch size",
}
# The row of the learning results that trains the best cell again.
AGAIN = {
    "VPG": "; the row `vpg-halfcheetah-wide` of the [learning results](results.md) "
    "trained ten agents of it"
}
SEEDS = 3
NUM_ENVS = 5  # Environments of VPG, whose `num_steps` are those of each.
VPG_SIZES = [(64, 32), (64, 64), (128, 64), (128, 128, 64), (128, 128, 128)]
EPOCHS = [3_000, 4_000, 5_000, 10_000]  # Steps, of five environments together.
TD3_SIZES = [(256, 256), (256, 256, 128), (256, 256, 256), (256, 256, 256, 256)]
BATCHES = [100, 500, 1_000]


def grids(quick: bool) -> dict[str, tuple[Any, dict[str, list[Any]]]]:
    """Return the config and the axes of each algorithm's sweep.

    Args:
        quick: Whether a small task stands for HalfCheetah, and two cells for the grid.
    """
    vpg, td3 = (
        presets.load(f"{name}-halfcheetah").replace(num_evaluations=1)
        for name in ("vpg", "td3")
    )
    steps = [n // NUM_ENVS for n in EPOCHS]
    axes_vpg: dict[str, list[Any]] = {"hidden_sizes": VPG_SIZES, "num_steps": steps}
    axes_td3: dict[str, list[Any]] = {"hidden_sizes": TD3_SIZES, "batch_size": BATCHES}
    if quick:
        small: dict[str, Any] = {
            "env": "Pendulum-v1",
            "env_kwargs": {},
            "reset_scheme": "fresh",
            "total_timesteps": 2_000,
        }
        vpg = vpg.replace(**small, num_envs=2, critic_iterations=2)
        axes_vpg = {"hidden_sizes": [(8, 8), (16,)], "num_steps": [100, 200]}
        off_policy = {"rounds_per_update": 4, "gradient_steps": 2}
        start = {"random_steps": 500, "learning_starts": 500}
        td3 = td3.replace(**small, **off_policy, **start)
        axes_td3 = {"hidden_sizes": [(8, 8), (16,)], "batch_size": [16, 32]}
    return {"VPG": (vpg, axes_vpg), "TD3": (td3, axes_td3)}


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


def cells_of(budget: Budget, name: str) -> list[dict[str, Any]]:
    """Return the cells of an algorithm's grid: those that are there, or all.

    Args:
        budget: The budget. On a CPU no cell is trained without `--long`.
        name: The algorithm.
    """
    config, axes = grids(budget.quick)[name]
    first, *others = axes
    is_fast = budget.quick or budget.long or jax.default_backend() != "cpu"
    cells: list[dict[str, Any]] = []
    for layers in axes[first]:
        some = {first: [layers], **{other: axes[other] for other in others}}
        label = f"{name}-{'-'.join(map(str, layers))}"
        settings = {"config": serialise.to_dict(config), "axes": some}
        if is_fast or budget.has(label, lasting=True, **settings):
            folder = budget.folder / label.lower()
            given = (train, config, some, folder)
            cells += budget.part(label, *given, lasting=True, **settings)
    return cells


def not_trained(name: str, claimed: str) -> Row:
    """Return the row of a grid of which no cell is trained."""
    config, axes = grids(quick=False)[name]
    cells = int(np.prod([len(values) for values in axes.values()]))
    steps = config.total_timesteps * cells * SEEDS
    kind = "gradient" if name == "TD3" else "environment"
    numbers = {"cells": cells, "steps": steps, "kind": kind}
    return WORDS.row("not trained", name=name, claim=claimed, **numbers)


def measure(budget: Budget) -> Findings:
    """Train the grids and say which cells are best."""
    claimed = {
        "VPG": "-50 ± 50; best with 128-64 and 5,000 steps per epoch",
        "TD3": "5,000 ± 300; best with 256-256-256 and batches of 100",
    }
    found = Findings([], [], [])
    for name, words in claimed.items():
        cells = cells_of(budget, name)
        if not cells:
            found.rows.append(not_trained(name, words))
            continue
        _, axes = grids(budget.quick)[name]
        cells = in_order(cells, axes)
        others = int(np.prod([len(values) for values in axes.values()])) - len(cells)
        found.rows.append(row_of(name, words, cells, others))
        caption = WORDS.fill("picture", name=name)
        found.figures.append(budget.save(figure_of(cells, name), name.lower(), caption))
        if name == "VPG" and not budget.quick and not others:
            found.text.append(WORDS["epochs"])
    found.text.extend(filter(None, [budget.sittings()]))
    return found


def row_of(name: str, claim: str, cells: list[dict[str, Any]], others: int) -> Row:
    """Return the row of a grid's best cell.

    Args:
        name: The algorithm.
        claim: What is claimed of it.
        cells: The cells that are trained.
        others: Number of those that are not.
    """
    best = max(cells, key=lambda cell: np.mean(cell["scores"]))
    by_median = max(cells, key=lambda cell: np.median(cell["scores"]))
    missing = f" The other {others} cells are not trained yet." if others else ""
    return WORDS.row(
        "best",
        name=name,
        cells=len(cells),
        claim=claim,
        here=f"{interval_text(best['scores'], 0)}: {in_words(best['point'])}",
        again=AGAIN.get(name, ""),
        median=np.median(by_median["scores"]),
        by_median=in_words(by_median["point"]),
        missing=missing,
    )


def in_order(
    cells: list[dict[str, Any]], axes: dict[str, list[Any]]
) -> list[dict[str, Any]]:
    """Return cells in the order of the grid's axes, of which a cell has the texts.

    Args:
        cells: Cells of the grid.
        axes: Axes of the grid.
    """
    (sizes, layers), (axis, values) = axes.items()
    texts = ["-".join(map(str, layer)) for layer in layers]

    def place(cell: dict[str, Any]) -> tuple[int, int]:
        return texts.index(cell["point"][sizes]), values.index(int(cell["point"][axis]))

    return sorted(cells, key=place)


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


def figure_of(cells: list[dict[str, Any]], name: str) -> Any:
    """Draw every seed's score by cell, a panel for each choice of layers.

    Args:
        cells: Cells in the order of the grid's axes.
        name: The algorithm.
    """
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
    panels[-1].set_xlabel(f"{name}: episode return at the end of training")
    figure.supylabel(NAMES[axis], fontsize="medium", color=style.INK)
    legend_below(figure, panels[0], loc="outside upper right")
    return figure


if __name__ == "__main__":
    main(STUDY, measure)

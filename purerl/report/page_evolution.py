"""The page of an evolution: its curve, what was learned, how it transfers."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from purerl import serialise
from purerl.algorithms import name_of
from purerl.config import ConfigError, TrainConfig
from purerl.execution.format import program, quoted
from purerl.report import plots
from purerl.report.html import (
    Section,
    about,
    code_html,
    figure_html,
    made_with,
    table_html,
    write_page,
)
from purerl.report.page_comparison import curves_html, scores_html

if TYPE_CHECKING:
    from purerl.comparison.result import Comparison
    from purerl.meta.result import EvolutionResult

_CAPTIONS = {
    "value_loss": "Left: the loss from its value at zero error, beside the squared "
    "error scaled to the same mean slope. Right: its gradient.",
    "policy_loss": "Above: the drift beside PPO's and DPO's, on one scale. Below: the "
    "slope of the objective that the policy maximises, at four advantages.",
}
_STEPS = (
    "The step of a parameter over Adam's, both in units of the step size, for a "
    "gradient that has been the same for long."
)


def evolution_page(
    result: "EvolutionResult",
    path: str | Path | None = None,
    *,
    transfer: "Comparison | None" = None,
) -> Path:
    """Write the report of an evolution: curve, pictures of what was learned, rows.

    Args:
        result: The result of `purerl.evolve` or `purerl.load_evolution`, finished or
            not.
        path: The path of the page; `report.html` in the evolution's folder if not
            given.
        transfer: The comparison of what was learned with others, by `purerl.compare`.

    Raises:
        ConfigError: neither a path nor a folder.
        OSError: the page cannot be written.
    """
    if path is None and result.out is None:
        raise ConfigError(
            "path: say where to write the page; the evolution has no folder."
        )
    path = Path(path) if path else Path(str(result.out)) / "report.html"
    sections = [Section("Curve", _curves(result))]
    pictures, learned = result.pictures(), result.learned
    for name in (*result.losses(learned), *result.optimisers(learned)):
        body = ""
        if name in pictures:
            body = figure_html(pictures[name], _CAPTIONS.get(name, _STEPS))
        sections.append(Section(_title(name), body + _use(result, name)))
    numbers = _numbers(result)
    if numbers:
        headers = ["field", "start", "learned", "best member"]
        sections.append(Section("Numbers", table_html(headers, numbers)))
    if transfer is not None:
        judged = curves_html(transfer) + scores_html(transfer)
        sections.append(Section("Held-out seeds", judged))
    sections.append(Section("Generations", _generations(result)))
    sections.append(_about(result))
    evolved = ", ".join(result.settings["evolve"])
    title = f"Evolution: {evolved} in {_environments(result)}"
    return write_page(path, title, *sections, note=_note(result))


def _curves(result: "EvolutionResult") -> str:
    body = figure_html(result.plot(), "Mean and best member of every generation.")
    if result.history["returns"].shape[1] > 1:
        figure = plots.evolution_returns(result.history["returns"], _names(result))
        body += figure_html(
            figure, "Mean over members and rollouts, in units of each environment."
        )
    return body


def _use(result: "EvolutionResult", name: str) -> str:
    if result.out is None:
        return ""
    file = result.out / f"{name}.npz"
    config = type(result.config).__name__
    return code_html(train_command(result.config, name, file)) + code_html(
        f"import purerl\n\nconfig = purerl.{config}({name}=purerl.load_part("
        f"{str(file)!r}))"
    )


def train_command(config: TrainConfig, name: str, file: Path) -> str:
    """Return the command that trains the same algorithm with an evolved part.

    Args:
        config: Config of the evolution.
        name: Name of the field that holds the part.
        file: File of the part.
    """
    algorithm = name_of(config)
    chosen = "" if algorithm == "ppo" else f"--algorithm {algorithm} "
    return f"{program()} train {chosen}--{name.replace('_', '-')} {quoted(file)}"


def _numbers(result: "EvolutionResult") -> list[list[Any]]:
    """Name, start, learned and best of every number that is no part of a network."""
    rows = []
    is_known = np.isfinite(result.history["best"]).any()
    best = result.best().point if is_known else result.start
    three = (result.start, result.solution, best)
    flat = [jax.tree_util.tree_flatten_with_path(values)[0] for values in three]
    for (where, start), (_, learned), (_, highest) in zip(*flat, strict=True):
        if np.ndim(start) == 0:
            name = where[0].key + jax.tree_util.keystr(where[1:])
            rows.append([name, *(float(x) for x in (start, learned, highest))])
    return rows


def _generations(result: "EvolutionResult") -> str:
    history = result.history
    names = ["best", "mean", "std", "best_so_far", "sigma", "failed", "seconds"]
    headers = ["generation", *(name.replace("_", " ") for name in names)]
    rows = [
        [number + 1, *(float(history[name][number]) for name in names)]
        for number in range(result.done)
    ]
    return table_html(headers, rows)


def _about(result: "EvolutionResult") -> Section:
    settings = result.settings
    load = "import purerl\n\n"
    load += f"result = purerl.load_evolution({str(result.out or 'FOLDER')!r})\n"
    load += "print(result.learned, result.history['mean'])"
    facts = {
        "generations": f"{result.done:,} of {result.generations:,}",
        "population": f"{settings['population']:,} x {settings['rollouts']} rollouts",
        "fitness": settings["fitness"],
        "environments": ", ".join(_names(result)),
        "strategy": settings["strategy"],
        "evolved": settings["evolve"],
        "seed": str(settings["seed"]),
        "members failed": f"{int(result.history['failed'].sum()):,}",
        **{key: f"{result.summary[key]:,}" for key in _COSTS if key in result.summary},
        **made_with(result.out),
    }
    return about(serialise.to_dict(result.config), load, **facts)


_COSTS = ("agents", "env_steps", "steps_per_second", "train_seconds")


def _note(result: "EvolutionResult") -> str:
    history = result.history
    return (
        f"Generation {result.done:,} of {result.generations:,}: mean "
        f"{history['mean'][-1]:,.4g}, best {history['best'][-1]:,.4g}; in the first "
        f"mean {history['mean'][0]:,.4g}, best {history['best'][0]:,.4g}."
    )


def _names(result: "EvolutionResult") -> list[str]:
    changes = result.settings["environments"] or [{}]
    own = str(serialise.plain(result.config.env, "env"))
    return [str(change.get("env", own)) for change in changes]


def _environments(result: "EvolutionResult") -> str:
    return ", ".join(dict.fromkeys(_names(result)))


def _title(name: str) -> str:
    titles = {"value_loss": "The value loss", "policy_loss": "The drift"}
    return titles.get(name, f"The {name.replace('_', ' ')}")

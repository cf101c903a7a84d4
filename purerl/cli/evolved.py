"""The output of `purerl evolve`: the costs of an evolution, and its result."""

from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from purerl.cli import report
from purerl.execution.format import format_count, program, quoted, with_noun
from purerl.meta.estimate import Estimate
from purerl.meta.result import EvolutionResult


def estimate_table(cost: Estimate, what: dict[str, Any]) -> Table:
    """Return the cost of an evolution as a table."""
    table = Table(show_header=False, box=None)
    strategy = {
        name: value
        for name, value in what["strategy"].items()
        if name != "options" and value is not None
    }
    rows = {
        "evolve": (
            f"{with_noun(cost.numbers, 'number')} of {', '.join(what['evolve'])}"
        ),
        "strategy": yaml.safe_dump(strategy, default_flow_style=True, width=72).strip(),
        "population": (
            f"{what['population']:,} x {with_noun(what['rollouts'], 'rollout')}"
        ),
        "generations": f"{cost.generations:,}",
        "agents": f"{cost.agents:,}",
        "environment steps": format_count(cost.env_steps),
        "measured here": f"{format_count(cost.steps_per_second)} steps/s "
        f"({with_noun(cost.lanes, 'lane')})",
        "estimated hours": _hours(cost.hours),
    }
    for name, text in rows.items():
        table.add_row(name, text)
    return table


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}"


def show(result: EvolutionResult) -> None:
    """Print what came out; write pictures and the page into the folder.

    Args:
        result: The result of the evolution.
    """
    from purerl.report import plots

    console = Console()
    history = result.history
    console.print(
        f"generation {result.done:,}/{result.generations:,}: mean "
        f"{history['mean'][-1]:.4g}, best {history['best'][-1]:.4g}; best of all "
        f"{result.best_fitness:.4g} in generation {result.best_generation + 1:,}; "
        f"{with_noun(int(history['failed'].sum()), 'member')} failed",
        highlight=False,
    )
    numbers = result.summary
    console.print(
        f"compile {numbers['compile_seconds']:.1f} s; in all {numbers['agents']:,} "
        f"agents in {numbers['train_seconds']:.1f} s "
        f"({numbers['agents_per_second']:.3g} agents/s, "
        f"{format_count(numbers['steps_per_second'])} steps/s)",
        highlight=False,
    )
    folder = result.out
    if folder is None:
        return
    plots.save(result.plot(), folder / "evolution.png")
    for name, figure in result.pictures().items():
        plots.save(figure, folder / f"{name}.png")
    _say_how_to_train(result, folder, console)
    report.write(folder)
    console.print(
        f"written to {folder}/, with report.html; in Python "
        f"purerl.load_evolution({str(folder)!r})",
        highlight=False,
        soft_wrap=True,
    )


def _say_how_to_train(result: EvolutionResult, folder: Path, console: Console) -> None:
    """Print the commands that train with what was learned."""
    from purerl.report.page_evolution import train_command

    learned = result.learned
    for name in (*result.losses(learned), *result.optimisers(learned)):
        console.print(
            f"train with it: {train_command(learned, name, folder / f'{name}.npz')}",
            highlight=False,
            soft_wrap=True,
        )
    if (folder / "rule.npz").exists():
        console.print(
            f"learn with it: {train_command(learned, 'rule', folder / 'rule.npz')}",
            highlight=False,
            soft_wrap=True,
        )
    whole = folder / "learned.yaml"
    if whole.exists():
        console.print(
            "train with all that was learned: "
            f"{program()} train --config {quoted(whole)}",
            highlight=False,
            soft_wrap=True,
        )

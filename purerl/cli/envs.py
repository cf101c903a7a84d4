"""`purerl envs`: list the environments, or describe one."""

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from purerl import envs
from purerl.cli import flags
from purerl.cli.flags import option
from purerl.config import ConfigError
from purerl.envs.registry import SUITES, is_on_host


@dataclasses.dataclass(kw_only=True)
class Envs:
    """List every environment, or describe one."""

    id: Annotated[
        tyro.conf.Positional[str | None],
        option("Name of an environment to describe; all are listed if not given."),
    ] = None


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    options = flags.parse(Envs, argv, "envs")
    console = Console(highlight=False)
    if options.id is None:
        console.print(listing())
        prefixes = ", ".join(f"{name}/" for name in SUITES)
        words = f"purerl envs ID describes one; also {prefixes} with a name of theirs."
        names = ", ".join(envs.wrappers.WRAPPERS)
        console.print(f"{words}\nWrappers, for --env-wrappers: {names}.")
        return 0
    try:
        about = envs.describe(options.id)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    console.print(f"[bold]{about.id}[/bold] ({about.source}): {about.summary}")
    console.print(f"observation: {about.observation_space}")
    console.print(f"action:      {about.action_space}")
    if about.note:
        console.print(f"note:        {about.note}")
    if is_on_host(about.id):
        words = f"options: --env-kwargs name=value, which {about.source}.make takes"
        console.print(words)
        return 0
    console.print(parameters(about.params))
    return 0


def listing() -> Table:
    """List ids by where they come from, in columns."""
    groups: dict[str, list[str]] = {}
    for id in envs.registered():
        groups.setdefault(envs.source_of(id), []).append(id)
    table = Table(show_lines=True)
    table.add_column("from")
    table.add_column("environments")
    for name, ids in groups.items():
        table.add_row(name, "  ".join(ids))
    return table


def parameters(params: Any) -> Table:
    """List names and defaults of parameters; each can be set and vmapped."""
    table = Table(title="parameters: --env-params name=value, or vmap env_params.name")
    table.add_column("name")
    table.add_column("default", justify="right")
    if dataclasses.is_dataclass(params):
        for field in dataclasses.fields(params):
            table.add_row(field.name, _brief(getattr(params, field.name)))
    return table


def _brief(value: Any) -> str:
    if dataclasses.is_dataclass(value):  # It is a part with numbers of its own.
        inner = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        return "\n".join(f"{name}: {_brief(part)}" for name, part in inner)
    shape = getattr(value, "shape", ())
    if shape:
        return f"array {tuple(shape)}"
    return inspect.cleandoc(f"{value:g}" if isinstance(value, float) else f"{value}")

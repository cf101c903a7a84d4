"""Tables of fields and of metrics, made from the code when the site is built.

A page says where they belong with the lines `<!-- fields: ppo -->` and
`<!-- metrics: ppo -->`, the name being one of `purerl.algorithms.ALGORITHMS`.

Names, defaults, kinds and meanings of fields come from the dataclass, so that they
cannot differ from the code; what an `auto` field stands for comes from
`purerl.resolve`. Where a default comes from is written in `defaults.yaml` beside this
file, together with the default it was written for: a default that has changed since
fails the build, and so does one without an origin. Names of metrics are those that an
update returns; `metrics.yaml` has their meanings, and must have all.
"""

import dataclasses
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

MARKER = re.compile(r"^<!-- (fields|metrics): (\w+) -->$", re.MULTILINE)
TASKS = {"discrete": "CartPole-v1", "continuous": "Pendulum-v1"}
LEVELS = {"mazes": "Maze-v0"}  # PLR trains in nothing but levels.
OWN_TASKS = {"plr": LEVELS, "tabular": {"": "GridWorld-v0"}}
OWN_TASKS["bandit"] = {"": "KArmedBandit-v0"}
ORIGINS = Path(__file__).with_name("defaults.yaml")
MEANINGS = Path(__file__).with_name("metrics.yaml")
SHARED = ("env_steps", "episodes", "episode_return", "episode_length")
SHARED += ("bad_transitions",)  # metrics of every algorithm
# Of the fields that every algorithm has, those that are looked for first.
FIRST = ("total_timesteps", "num_envs", "gamma", "learning_rate")
HEADER = "| field | default | kind | meaning, and where the default is from |"

_log = logging.getLogger("mkdocs.hooks.config_tables")


class Row(NamedTuple):
    """One field of a config.

    Attributes:
        name: Name of the field.
        default: Default as the page shows it, with what `auto` stands for.
        kind: `dynamic` or `static`.
        meaning: Help text of the field.
        origin: Where the default comes from.
        is_shared: Whether it stands in the second table, of what all algorithms have.
    """

    name: str
    default: str
    kind: str
    meaning: str
    origin: str
    is_shared: bool


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace the markers of a page; MkDocs calls it for each of them."""

    def tables(marker: re.Match[str]) -> str:
        make = render if marker[1] == "fields" else render_metrics
        try:
            return make(marker[2])
        except ValueError as error:  # a warning fails a strict build
            _log.warning("%s: %s", page.file.src_uri, error)
            return ""

    return MARKER.sub(tables, markdown)


def render(algorithm: str) -> str:
    """The tables of an algorithm: its own fields, then those that all have.

    Args:
        algorithm: Name in `purerl.algorithms.ALGORITHMS`.

    Raises:
        ValueError: A field has no origin, or one that was written for another default.
    """
    rows = fields_of(algorithm)
    own = _table([row for row in rows if not row.is_shared])
    shared = _table([row for row in rows if row.is_shared])
    indented = "\n".join(f"    {line}" for line in shared.splitlines())
    return (
        f'{own}\n\n??? note "Fields that every algorithm has"\n\n{indented}\n'
        "\nA *dynamic* field is a number that can be vmapped, swept and evolved within "
        "one compiled program; a *static* field is part of the program's structure.\n"
    )


def render_metrics(algorithm: str) -> str:
    """The table of an algorithm's own metrics, or with `shared` of those that all have.

    And a link to the section on metrics of your own.

    Raises:
        ValueError: A metric has no meaning in `metrics.yaml`.
    """
    meanings = yaml.safe_load(MEANINGS.read_text())
    meanings |= meanings.get(algorithm, {})
    names = SHARED
    if algorithm != "shared":
        names = sorted(metrics_of(algorithm) - set(SHARED))
    if unknown := [name for name in names if not isinstance(meanings.get(name), str)]:
        raise ValueError(f"{algorithm}: {MEANINGS.name} says nothing of {unknown}.")
    rows = [f"| `{name}` | {meanings[name]} |" for name in names]
    table = "\n".join(["| metric | meaning |", "|---|---|", *rows])
    return f"{table}\n\n[Add your own](../training.md#metrics-of-your-own).\n"


def metrics_of(algorithm: str) -> set[str]:
    """Names of what an update reports, in its tasks of every kind."""
    import jax

    import purerl
    from purerl.algorithms import config_class
    from purerl.config import ConfigError

    names: set[str] = set()
    for env in OWN_TASKS.get(algorithm, TASKS).values():
        try:
            made = purerl.make_algorithm(config_class(algorithm)(env=env))
        except ConfigError:  # not for this kind of actions
            continue
        state = jax.eval_shape(made.init, jax.random.key(0))
        names |= jax.eval_shape(made.step, state)[1].keys()
    return names


def fields_of(algorithm: str) -> list[Row]:
    """The fields of an algorithm's config, in the order of the dataclass.

    Args:
        algorithm: Name in `purerl.algorithms.ALGORITHMS`.

    Raises:
        ValueError: A field has no origin, or one that was written for another default.
    """
    from purerl.algorithms import config_class
    from purerl.config import TrainConfig

    cls = config_class(algorithm)
    resolved = _resolved(cls, LEVELS if algorithm == "plr" else TASKS)
    origins = read_origins()
    rows = []
    for field in dataclasses.fields(cls):
        value = _default_of(field)
        kind = "dynamic" if field.metadata["pytree_node"] else "static"
        shown = f"`{text_of(value)}`"
        if field.name in resolved:
            shown += f": {resolved[field.name]}"
        origin = _origin(origins, cls, field.name, text_of(value))
        is_shared = field.name in set(TrainConfig.__annotations__) - set(FIRST)
        meaning = re.sub(r"<(\w+)>", r"\\<\1>", field.metadata["help"])
        rows.append(Row(field.name, shown, kind, meaning, origin, is_shared))
    return rows


def read_origins() -> dict[str, dict[str, list[str]]]:
    """Class name -> name of a field -> the default as text, and its origin."""
    return yaml.safe_load(ORIGINS.read_text())


def text_of(value: Any) -> str:
    """A default as one would type it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        numbers = {
            f.name: f"{getattr(value, f.name):g}" for f in dataclasses.fields(value)
        }
        inner = numbers.values()
        if len(numbers) > 1:  # Without its name, nobody knows which number is which.
            inner = [f"{name}={number}" for name, number in numbers.items()]
        return f"{type(value).__name__}({', '.join(inner)})"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return str(dict(value))
    return str(value)


def _default_of(field: Any) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _origin(
    origins: dict[str, dict[str, list[str]]], cls: type, name: str, default: str
) -> str:
    for owner in cls.__mro__:
        if name in origins.get(owner.__name__, {}):
            written_for, origin = origins[owner.__name__][name]
            if str(written_for) != default:
                raise ValueError(
                    f"{owner.__name__}.{name}: {ORIGINS.name} tells the origin of "
                    f"{written_for}, but {cls.__name__}'s default is {default}."
                )
            return origin
    raise ValueError(f"{cls.__name__}.{name} has no origin in {ORIGINS.name}.")


def _resolved(cls: type, tasks: Mapping[str, str]) -> dict[str, str]:
    """Return the values that `auto` stands for in a config, by kind of task."""
    import purerl
    from purerl.config import Auto, ConfigError

    names = [f.name for f in dataclasses.fields(cls) if isinstance(f.default, Auto)]
    found: dict[str, dict[str, str]] = {name: {} for name in names}
    for kind, env in tasks.items() if names else ():
        try:
            config = purerl.resolve(cls(env=env))
        except ConfigError:  # not for this kind of actions
            continue
        for name in names:
            found[name][kind] = text_of(getattr(config, name))
    return {name: _by_kind(values) for name, values in found.items()}


def _by_kind(values: dict[str, str]) -> str:
    if len(set(values.values())) == 1:
        return f"`{next(iter(values.values()))}`"
    return ", ".join(f"`{value}` ({kind})" for kind, value in values.items())


def _table(rows: list[Row]) -> str:
    return "\n".join([HEADER, "|---|---|---|---|", *_lines(rows)])


def _lines(rows: list[Row]) -> Iterator[str]:
    for row in rows:
        meaning = f"{row.meaning}<br>*{row.origin}*"
        cells = (f"`{row.name}`", row.default, row.kind, meaning)
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

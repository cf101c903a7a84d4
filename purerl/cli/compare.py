"""`purerl compare`: settings, losses or algorithms on held-out seeds."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from purerl import presets, serialise
from purerl.cli import changes, comparing, settings
from purerl.cli.options import Repeated, option
from purerl.cli.train import base_config, default_folder
from purerl.comparison.api import check_out, compare, planned
from purerl.config import ConfigError, TrainConfig


@dataclasses.dataclass(kw_only=True)
class Compare:
    """Train with several settings on held-out seeds, and compare them in one table.

    --setting and --env may be given several times: every setting trains in every
    environment. Run the same command again after a kill: it trains what is missing.
    """

    setting: Annotated[
        Repeated,
        option(
            "Setting to compare, NAME: CHANGES, with semicolons between the changes: "
            "'fast: learning_rate=1e-3; "
            "hidden_sizes=(64,64)'; 'huber: value_loss=HuberError(delta=2.0)'; 'DQN: "
            "algorithm=dqn'. Whole configs: 'DQN: preset=dqn-cartpole', 'own: "
            "config=FILE'. What was evolved: 'learned: evolution=FOLDER'. NAME: alone "
            "is the config as it is."
        ),
    ] = ()
    baseline: Annotated[
        str | None,
        option(
            "Setting that others are compared with; the first --setting if not given."
        ),
    ] = None
    out: Annotated[
        Path | None,
        option("Folder to write; runs/compare-<env>-<time> if not given."),
    ] = None


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    parsed, config, environments = comparing.read(argv, Compare, base_config)
    named = read_settings(parsed.setting)
    settings.enable_compile_cache()
    options = comparing.keywords(parsed)
    if parsed.dry_run:
        check_out(parsed.out)
        asked = (options["seeds"], parsed.measures, parsed.baseline)
        parts = planned(config, named, environments, *asked)
        comparing.show_plan(parts, parsed)
        return 0
    folder = parsed.out or default_folder(f"compare-{config.env}")
    result = compare(
        config,
        named,
        environments=environments,
        baseline=parsed.baseline,
        out=folder,
        **options,
    )
    comparing.show(result, folder)
    return 0


def read_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Read settings by name from `NAME: field=value; ...`.

    Raises:
        ConfigError: none, one that cannot be read, or a name that is given twice.
    """
    by_name: dict[str, Any] = {}
    for text in texts:
        name, colon, rest = (part.strip() for part in text.partition(":"))
        if not colon or not name:
            raise ConfigError(
                f"--setting {text!r}: write NAME: field=value; ..., such as "
                "'fast: learning_rate=1e-3'."
            )
        if name in by_name:
            raise ConfigError(f"--setting {text!r}: the name {name!r} is taken.")
        values = changes.read_changes(
            "--setting", text, changes.split(rest) if rest else []
        )
        by_name[name] = _whole(text, values)
    if not by_name:
        raise ConfigError(
            "say what to compare, such as --setting 'own:' --setting "
            "'fast: learning_rate=1e-3'."
        )
    return by_name


def _whole(text: str, values: dict[str, Any]) -> Any:
    """The changes, or the whole config or evolution that one of them names."""
    wholes = [name for name in ("preset", "config", "evolution") if name in values]
    if not wholes:
        return values
    if len(wholes) > 1 or (wholes == ["evolution"] and len(values) > 1):
        raise ConfigError(
            f"--setting {text!r}: {wholes[0]} says all of it; leave "
            f"{', '.join(name for name in values if name != wholes[0])} out."
        )
    value = str(values.pop(wholes[0]))
    if wholes == ["evolution"]:
        return Path(value)
    config = presets.load(value) if wholes == ["preset"] else serialise.from_yaml(value)
    return _changed(config, values)


def _changed(config: TrainConfig, values: dict[str, Any]) -> TrainConfig:
    read = {name: serialise.parse_text(name, value) for name, value in values.items()}
    return config.replace(**read)

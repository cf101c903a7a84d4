"""`purerl compare`: settings, losses or algorithms on held-out seeds."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from purerl import presets, serialise
from purerl.algorithms import ALGORITHMS
from purerl.cli import changes, flags, settings
from purerl.cli.train import base_config, default_folder
from purerl.comparison.api import DEFAULT_SEEDS, MEASURES, compare, planned
from purerl.config import ConfigError, TrainConfig
from purerl.report.comparison import WORDS


def _arg(text: str) -> object:
    return tyro.conf.arg(help=text)


@dataclasses.dataclass(kw_only=True)
class Compare:
    """Train with several settings on held-out seeds, and compare them in one table.

    --setting and --env may be given several times: every setting trains in every
    environment. Run the same command again after a kill: it trains what is missing.
    """

    setting: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]],
        _arg(
            "NAME: CHANGES, with semicolons between them: 'fast: learning_rate=1e-3; "
            "hidden_sizes=(64,64)'; 'huber: value_loss=HuberError(delta=2.0)'; 'DQN: "
            "algorithm=dqn'. Whole configs: 'DQN: preset=dqn-cartpole', 'own: "
            "config=FILE'. What was evolved: 'learned: evolution=FOLDER'. NAME: alone "
            "is the config as it is."
        ),
    ] = ()
    baseline: Annotated[
        str | None,
        _arg("Setting that others are compared with; the first one if not given."),
    ] = None
    seeds: Annotated[int, _arg("Held-out seeds.")] = DEFAULT_SEEDS
    first_seed: Annotated[int, _arg("Number of the first one.")] = 0
    seed: Annotated[int, _arg("From whose key the held-out ones come.")] = 0
    measures: Annotated[tuple[str, ...], _arg(f"Of {', '.join(WORDS)}.")] = MEASURES
    algorithm: Annotated[str, _arg(f"One of {', '.join(ALGORITHMS)}.")] = "ppo"
    preset: Annotated[
        str | None, _arg(f"Start from a preset: {', '.join(presets.names())}.")
    ] = None
    config: Annotated[Path | None, _arg("Start from a YAML file of a config.")] = None
    out: Annotated[
        Path | None,
        _arg("Folder to write; runs/compare-<env>-<time> if not given."),
    ] = None
    lanes: Annotated[int | None, _arg("Agents per block of the compiled call.")] = None
    segment_updates: Annotated[int | None, _arg("Updates per compiled call.")] = None
    memory_limit: Annotated[
        str | None, _arg("Bytes for training, such as 2GB; most of what is free.")
    ] = None
    dry_run: Annotated[bool, _arg("Say what it would cost here, and stop.")] = False
    progress: Annotated[bool, _arg("Show the progress.")] = True


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    rest, texts = changes.take_environments(argv)
    base = base_config(rest)
    parsed = flags.parse(flags.parser_class(base, Compare), rest, "compare")
    config = flags.read_config(parsed, base)
    environments = [changes.read_environment(config, text) for text in texts]
    if environments:
        config = config.replace(env=environments[0]["env"])
    named = read_settings(parsed.setting)
    settings.enable_compile_cache()
    if parsed.dry_run:
        parts = planned(config, named, environments, parsed.seeds, parsed.measures)
        changes.show_plan(parts, parsed.seeds, parsed.lanes, parsed.segment_updates)
        return 0
    folder = parsed.out or default_folder(f"compare-{config.env}")
    result = compare(
        config,
        named,
        environments=environments,
        baseline=parsed.baseline,
        seeds=range(parsed.first_seed, parsed.first_seed + parsed.seeds),
        seed=parsed.seed,
        measures=parsed.measures,
        out=folder,
        lanes=parsed.lanes,
        segment_updates=parsed.segment_updates,
        memory_limit=parsed.memory_limit,
        progress=parsed.progress,
    )
    changes.show(result, folder, ["compare", *argv])
    return 0


def read_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Read settings by name from `NAME: field=value; ...`.

    Raises:
        ConfigError: none, one that cannot be read, or a name that is given twice.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, colon, rest = (part.strip() for part in text.partition(":"))
        if not colon or not name:
            raise ConfigError(
                f"--setting {text!r}: write NAME: field=value; ..., such as "
                "'fast: learning_rate=1e-3'."
            )
        if name in found:
            raise ConfigError(f"--setting {text!r}: the name {name!r} is taken.")
        values = changes.read_changes(
            "--setting", text, changes.split(rest) if rest else []
        )
        found[name] = _whole(text, values)
    if not found:
        raise ConfigError(
            "say what to compare, such as --setting 'own:' --setting "
            "'fast: learning_rate=1e-3'."
        )
    return found


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
    whole = presets.load(value) if wholes == ["preset"] else serialise.from_yaml(value)
    return _changed(whole, values)


def _changed(whole: TrainConfig, values: dict[str, Any]) -> TrainConfig:
    read = {
        name: serialise.parse_loss(value) if name.endswith("_loss") else value
        for name, value in values.items()
    }
    return whole.replace(**read)

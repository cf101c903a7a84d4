"""`purerl transfer`: losses compared on held-out seeds and environments."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from purerl import presets
from purerl.algorithms import ALGORITHMS
from purerl.cli import changes, flags, settings
from purerl.cli.train import base_config, default_folder
from purerl.comparison.api import DEFAULT_SEEDS, MEASURES, compare_losses, planned
from purerl.comparison.losses import read_loss, settings_of
from purerl.config import ConfigError, TrainConfig
from purerl.meta import store
from purerl.report.comparison import WORDS
from purerl.runner import manifest

# A name before the first "=", unless a bracket comes first: HuberError(delta=1.0).
_NAMED = re.compile(r"([^=(]+)=(.*)", re.DOTALL)


def _arg(text: str) -> object:
    return tyro.conf.arg(help=text)


@dataclasses.dataclass(kw_only=True)
class Transfer:
    """Train with several losses on held-out seeds, and compare them in one table.

    --loss and --env may be given several times: every loss trains in every
    environment. Run the same command again after a kill: it trains what is missing.
    """

    field: Annotated[
        str,
        _arg(
            "value_loss or policy_loss; the evolved one with --evolution, else "
            "value_loss."
        ),
    ] = ""
    loss: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]],
        _arg(
            "NAME=LOSS or LOSS: a file (learned=value_loss.npz), or a loss by name "
            "(squared; huber(delta=2.0)). Changes of the config may follow after "
            "semicolons: 'tuned=squared; value_coef=0.1'."
        ),
    ] = ()
    evolution: Annotated[
        Path | None,
        _arg(
            "Folder of an evolution: its config, and its loss as 'learned' and as "
            "'generation 0', beside those of --loss."
        ),
    ] = None
    baseline: Annotated[
        str | None,
        _arg("Loss that others are compared with; the first --loss if not given."),
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
        _arg(
            "Folder to write; 'transfer' in that of the evolution, else "
            "runs/transfer-<env>-<time>."
        ),
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
    base = _base(rest)
    parsed = flags.parse(flags.parser_class(base, Transfer), rest, "transfer")
    config = flags.read_config(parsed, base)
    environments = [changes.read_environment(config, text) for text in texts]
    if environments:
        config = config.replace(env=environments[0]["env"])
    field, losses, baseline = parsed.field or "value_loss", {}, parsed.baseline
    if parsed.evolution:
        field, losses = _evolved(parsed.evolution, parsed.field)
    for text in parsed.loss:
        name, value = _loss(field, text)
        if name in losses:
            raise ConfigError(
                f"--loss {text}: the name {name!r} is taken; write {name}-2={text}."
            )
        losses[name] = value
        baseline = baseline or name
    if not losses:
        raise ConfigError(
            "say which losses to compare, such as --loss learned=value_loss.npz "
            "--loss squared, or give --evolution FOLDER."
        )
    settings.enable_compile_cache()
    if parsed.dry_run:
        asked = settings_of(config, field, losses)
        parts = planned(config, asked, environments, parsed.seeds, parsed.measures)
        changes.show_plan(parts, parsed.seeds, parsed.lanes, parsed.segment_updates)
        return 0
    result = compare_losses(
        config,
        field,
        losses,
        environments,
        range(parsed.first_seed, parsed.first_seed + parsed.seeds),
        _folder(parsed, str(config.env)),
        baseline=baseline or list(losses)[-1],
        measures=parsed.measures,
        seed=parsed.seed,
        lanes=parsed.lanes,
        segment_updates=parsed.segment_updates,
        memory_limit=parsed.memory_limit,
        progress=parsed.progress,
    )
    changes.show(result, _folder(parsed, str(config.env)), ["transfer", *argv])
    return 0


def _base(argv: Sequence[str]) -> TrainConfig:
    """The config whose values are the flags' defaults."""
    folder = flags.option_before_parsing(argv, "evolution")
    if folder is None:
        return base_config(argv)
    for other in ("preset", "config", "algorithm"):
        if flags.option_before_parsing(argv, other):
            raise ConfigError(
                f"--evolution brings its own config; leave --{other} out."
            )
    return manifest.read_config(Path(folder), store.load(Path(folder)))


def _loss(field: str, text: str) -> tuple[str, Any]:
    """Name and loss, or changes of the config, from the text of a `--loss`."""
    first, *others = changes.split(text)
    named = _NAMED.fullmatch(first)
    if named:
        name, value = (part.strip() for part in named.groups())
    else:
        value = first
        is_file = value.endswith((".npz", ".yaml", ".yml"))
        name = Path(value).stem if is_file else value
    loss = read_loss(field, value)
    if not others:
        return name, loss
    return name, {field: loss, **changes.read_changes("--loss", text, others)}


def _evolved(folder: Path, field: str) -> tuple[str, dict[str, Any]]:
    """The field that an evolution evolved; all that it evolved, after and before.

    What else was evolved beside the loss (a learning rate, the other loss) belongs to
    it: the loss was never worth anything without.
    """
    from purerl.meta.result import load_evolution

    result = load_evolution(folder)
    learned, start = result.losses(result.learned), result.losses(result.config)
    if (field and field not in learned) or not learned:
        raise ConfigError(
            f"--evolution {folder} has evolved {', '.join(result.solution)}, not "
            f"{field or 'a loss'}."
        )
    if not field and len(learned) > 1:
        raise ConfigError(
            f"--evolution {folder} has evolved {' and '.join(learned)}; say which with "
            "--field."
        )
    field = field or next(iter(learned))
    touched = list(dict.fromkeys(name.split(".")[0] for name in result.solution))
    if "env_params" in touched:
        raise ConfigError(
            f"--evolution {folder} has evolved the environment too (env_params): its "
            "loss cannot be judged apart; give it with --loss and its file."
        )
    if touched == [field]:
        return field, {"learned": learned[field], "generation 0": start[field]}
    return field, {
        name: {each: getattr(config, each) for each in touched}
        for name, config in (
            ("learned", result.learned),
            ("generation 0", result.config),
        )
    }


def _folder(parsed: Any, env: str) -> Path:
    if parsed.out is None:
        # One name for the whole call: the default holds the time.
        inside = parsed.evolution and parsed.evolution / "transfer"
        parsed.out = inside or default_folder(f"transfer-{env}")
    return parsed.out

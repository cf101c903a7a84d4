"""`purerl transfer`: losses compared on held-out seeds and environments."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from purerl.cli import flags
from purerl.cli.flags import Repeated, option
from purerl.cli.tools import read_comparison, run_comparison
from purerl.cli.train import base_config, default_folder
from purerl.comparison.settings import (
    read_changes,
    read_loss,
    settings_of,
    split_parts,
)
from purerl.comparison.training import Compared
from purerl.config import ConfigError, TrainConfig, part_kind
from purerl.meta import store
from purerl.runner import manifest

# A name before the first "=", unless a bracket comes first: HuberError(delta=1.0).
_NAMED = re.compile(r"([^=(]+)=(.*)", re.DOTALL)


@dataclasses.dataclass(kw_only=True)
class Transfer:
    """Train with several losses on held-out seeds, and compare them in one table.

    --loss and --env may be given several times: every loss trains in every
    environment. Run the same command again after a kill: it trains what is missing.
    """

    field: Annotated[
        str,
        option(
            "Field of the losses, value_loss or policy_loss; if not given, the one "
            "that --evolution has evolved, else value_loss."
        ),
    ] = ""
    loss: Annotated[
        Repeated,
        option(
            "Loss to compare, NAME=LOSS or LOSS: a file "
            "(learned=value_loss.npz), or a loss by name (squared; huber(delta=2.0)). "
            "Changes of the config may follow after semicolons: 'tuned=squared; "
            "value_coef=0.1'."
        ),
    ] = ()
    evolution: Annotated[
        Path | None,
        option(
            "Folder of an evolution, whose config is taken, and whose loss is compared "
            "as 'learned' and as 'generation 0', beside those of --loss."
        ),
    ] = None
    baseline: Annotated[
        str | None,
        option("Loss that others are compared with; the first --loss if not given."),
    ] = None
    out: Annotated[
        Path | None,
        option(
            "Folder to write; if not given, 'transfer' in the evolution's folder, else "
            "runs/transfer-<env>-<time>."
        ),
    ] = None


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    parsed, given = read_comparison(argv, _base, Transfer, Compared)
    field, losses = parsed.field or "value_loss", {}
    if part_kind(field) != "loss":
        raise ConfigError(f"--field must be value_loss or policy_loss, got {field!r}.")
    if parsed.evolution:
        field, losses = _evolved(parsed.evolution, parsed.field)
    own = _given(field, parsed.loss, losses)
    losses = {**losses, **own}
    if not losses:
        raise ConfigError(
            "say which losses to compare, such as --loss learned=value_loss.npz "
            "--loss squared, or give --evolution FOLDER."
        )
    config = given["config"]
    given["settings"] = settings_of(config, field, losses)
    if parsed.dry_run:
        return run_comparison(parsed, given, None)
    given["baseline"] = parsed.baseline or next(iter(own), list(losses)[-1])
    return run_comparison(parsed, given, _folder(parsed, str(config.env)))


def _given(field: str, texts: Sequence[str], evolved: Mapping[str, Any]) -> dict:
    """Losses by name from the texts of `--loss`, beside those of an evolution."""
    losses: dict[str, Any] = {}
    for text in texts:
        name, value = _loss(field, text)
        if name in losses or name in evolved:
            named = _NAMED.fullmatch(split_parts(text)[0])
            unnamed = text.partition("=")[2].strip() if named else text
            raise ConfigError(
                f"--loss {text}: the name {name!r} is taken; write {name}-2={unnamed}."
            )
        losses[name] = value
    return losses


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
    first, *others = split_parts(text)
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
    return name, {field: loss, **read_changes("--loss", text, others)}


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
        name: {part: getattr(config, part) for part in touched}
        for name, config in (
            ("learned", result.learned),
            ("generation 0", result.config),
        )
    }


def _folder(parsed: Any, env: str) -> Path:
    inside = parsed.evolution and parsed.evolution / "transfer"
    return parsed.out or inside or default_folder(f"transfer-{env}")

"""Losses as they are given for a comparison: objects, files, text, changes by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from purerl import serialise
from purerl.config import ConfigError, TrainConfig, check_known, field_names
from purerl.losses import LOSSES, POLICY_LOSSES, VALUE_LOSSES

# A loss: an object, the path of a saved one, text such as "HuberError(delta=2.0)", or
# changes of the config by name, the field among them or not.
Losses = Mapping[str, Any]


def settings_of(config: TrainConfig, field: str, losses: Losses) -> dict[str, Any]:
    """Return the losses as settings: changes of the config by name, with the loss.

    Args:
        config: The config into whose field the losses are put.
        field: The name of that field, `value_loss` or `policy_loss`.
        losses: The losses by name, see `Losses`.

    Raises:
        ConfigError: a field that is no loss, no losses, or one that cannot be read.
    """
    check_field(config, field)
    if not isinstance(losses, Mapping) or not losses:
        raise ConfigError(
            "losses must map at least one name to a loss, such as "
            "{'squared': purerl.losses.SquaredError()}, got "
            f"{losses if not isinstance(losses, Mapping) else 'none'!r}."
        )
    settings = {}
    for name, value in losses.items():
        if isinstance(value, Mapping) and "type" not in value:
            settings[name] = {**value, field: value.get(field, getattr(config, field))}
        else:
            settings[name] = {field: read_loss(field, value)}
    return settings


def check_field(config: TrainConfig, field: str) -> None:
    """Refuse what is no loss of the config.

    Raises:
        ConfigError: naming the losses.
    """
    known = [name for name in field_names(config) if name.endswith("_loss")]
    if not known:
        raise ConfigError(
            f"field: {type(config).__name__} has no loss that can be replaced; take an "
            "algorithm that has one, such as PPO."
        )
    check_known(str(field), known, f"field: {type(config).__name__}")


def read_loss(field: str, value: Any) -> Any:
    """Read a loss from its object, path, or text; the start of a name is enough.

    Args:
        field: The field that it is for, `value_loss` or `policy_loss`: `"squared"` and
            `"clip"` mean the `SquaredError` of the one and the `ClipDrift` of the
            other.
        value: The loss as it is given.

    Raises:
        ConfigError: it cannot be read, or is the start of no name.
    """
    if isinstance(value, Path):
        return serialise.load_loss(value)
    if isinstance(value, str):
        value = _full_name(field, value.strip())
    return serialise.parse_loss(value)


def _full_name(field: str, text: str) -> str:
    """The text with its loss's whole name, where only the start was given."""
    start, bracket, rest = text.partition("(")
    kinds = {
        "value_loss": VALUE_LOSSES,
        "policy_loss": POLICY_LOSSES,
    }
    known = list(kinds.get(field, {}))
    if not start.isidentifier() or start in LOSSES:
        return text
    matches = [name for name in known if name.lower().startswith(start.lower())]
    return f"{matches[0]}{bracket}{rest}" if len(matches) == 1 else text

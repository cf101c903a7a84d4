"""Checks of arguments that every trained thing takes: its folder, times."""

from pathlib import Path

from purerl.config import ConfigError


def as_folder(name: str, value: str | Path | None) -> Path | None:
    """Return a folder that was given, or None where none was; `~` is the user's home.

    Args:
        name: The name of the argument, for the sentence.
        value: The path that was given.

    Raises:
        ConfigError: the path is an empty text, which would be the working directory.
    """
    if value is None:
        return None
    if isinstance(value, str) and not value.strip():
        raise ConfigError(
            f"{name} is empty; give a folder, such as runs/first, or leave it out."
        )
    return Path(value).expanduser()


def check_seconds(name: str, value: float) -> None:
    """Refuse what is no time.

    Args:
        name: The name of the argument, for the sentence.
        value: The number of seconds; infinity is one.

    Raises:
        ConfigError: the value is negative, not a number, or none at all.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not value >= 0:
        raise ConfigError(
            f"{name} must be a number of seconds, 0 or more, got {value!r}; for "
            "example 30."
        )

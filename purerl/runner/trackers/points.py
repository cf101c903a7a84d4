"""What trackers are told of a sweep: its members, and files of its folder."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from purerl.runner.trackers.base import Member, Row
from purerl.runner.trackers.members import Ended


def ended(
    number: int,
    params: Mapping[str, Any],
    seed: int,
    rows: Mapping[str, Iterable[Row]],
) -> Ended:
    """Return a member of a sweep as trackers are told it.

    Args:
        number: Number of the member.
        params: Values by which the member's point differs, by name.
        seed: Seed of the member.
        rows: Rows by their kind, `train` and `evaluation`; none are known of a member
            that has not been trained yet.
    """
    values = ", ".join(f"{k}={_brief(v)}" for k, v in params.items())
    text = f"{values}, seed={seed}" if values else f"seed={seed}"
    told = [(kind, row) for kind, some in rows.items() for row in some]
    told.sort(key=lambda kind_and_row: kind_and_row[1]["env_steps"])
    return Ended(number, Member(text, seed, dict(params)), told)


def _brief(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def files_of(folder: Path | None) -> dict[str, Path]:
    """Return the files of a folder that trackers keep, by the name under which."""
    if folder is None:
        return {}
    pictures = sorted(folder.glob("*.png"))
    figures = {f"figures/{path.name}": path for path in pictures}
    plain = [folder / name for name in ("config.yaml", "manifest.json")]
    return figures | {f"sweep/{path.name}": path for path in plain if path.exists()}

"""The files of a comparison: written, and read again.

comparison.json   what was compared, scores, and the rows of the table
comparison.csv    these rows
comparison.npz    learning curves
comparison.png    a picture of them
trained/          scores of every setting in every environment, as they were finished
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from purerl.atomic import write_atomic
from purerl.config import ConfigError
from purerl.execution.format import this_command
from purerl.report import plots
from purerl.report.comparison import Row
from purerl.storage import checkpoint, folders
from purerl.storage.files import DAMAGE, load_arrays, read_json, save_arrays, write_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND, FILE, FORMAT = folders.COMPARISON, folders.COMPARISON_FILE, 2
REPEAT = "Repeat the call that wrote it: nothing is trained again."


class Stored(NamedTuple):
    """The contents of the files of a comparison.

    Attributes:
        values: Names, seeds, and what the settings and environments are, as plain
            values; scores and steps are nested lists with None for no number.
        curves: Curves by environment, as `Comparison` has them.
        rows: The rows of the table; they are not read again.
    """

    values: dict[str, Any]
    curves: dict[str, np.ndarray]
    rows: Sequence[Row] = ()


def write(folder: Path, stored: Stored, figure: "Figure") -> None:
    """Write a comparison's files.

    Args:
        folder: The folder, which is made where there is none.
        stored: The contents of the files.
        figure: The picture of the curves.

    Raises:
        OSError: the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    values = {"kind": KIND, "format": FORMAT, "command": this_command()}
    values |= stored.values
    values["rows"] = [_plain_row(row) for row in stored.rows]
    path = folder / FILE
    curves = {f"curve{i}": x for i, x in enumerate(stored.curves.values())}
    values["curves_sha256"] = checkpoint.digest(curves).hex()
    plots.save(figure, path.with_suffix(".png"))
    write_atomic(path.with_suffix(".csv"), _csv(stored.rows))
    save_arrays(path.with_suffix(".npz"), curves)
    # Written last: a reader that finds this file finds the others too.
    write_json(path, values)


def read(folder: Path) -> Stored:
    """Read what `write` wrote.

    Raises:
        ConfigError: there is no comparison, it is damaged, or of another version.
    """
    path = folder / FILE
    if not path.exists() and folders.kind_of(folder) == KIND:
        raise ConfigError(f"there is no {path}. {REPEAT}")
    if not path.exists():
        raise ConfigError(folders.not_wanted(folder, folders.kind_of(folder), KIND))
    try:
        values = read_json(path, REPEAT)
        if (values["kind"], values["format"]) != (KIND, FORMAT):
            raise ValueError(f"it is {values['kind']}, format {values['format']}")
        stored = load_arrays(path.with_suffix(".npz"))
        if values["curves_sha256"] != checkpoint.digest(stored).hex():
            raise ValueError("its curves were written by a call that did not end")
        environments = list(values["environments"])
        return Stored(
            values, {e: stored[f"curve{i}"] for i, e in enumerate(environments)}
        )
    except ConfigError:
        raise
    except DAMAGE as error:
        raise ConfigError(
            f"cannot read the comparison of {path} and {path.with_suffix('.npz').name} "
            f"({error}). {REPEAT}"
        ) from None


def _csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row._fields)
    writer.writerows(rows)
    return text.getvalue()


def plain(values: np.ndarray) -> Any:
    """Return nested lists, None where there is no number."""
    if values.ndim > 1:
        return [plain(part) for part in values]
    return [x if np.isfinite(x) else None for x in values.tolist()]


def _plain_row(row: Row) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not np.isfinite(value) else value
        for name, value in row._asdict().items()
    }

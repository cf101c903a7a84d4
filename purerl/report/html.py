"""The parts of HTML pages: sections, tables, figures, and the file itself.

A page is one HTML file without a server or network, its pictures inside. Text takes the
colours that the reader prefers (dark or light); tables sort by a click on their header.
"""

import base64
import dataclasses
import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from purerl.atomic import write_atomic
from purerl.report import page_parts
from purerl.report.sweep_data import label
from purerl.storage import folders

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_ROWS = 1_000
# Texts that are numbers, with a comma before every three digits or with none.
NUMBER = re.compile(r"-?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?")
# Longer tables scroll in a box of their own; shorter ones are read and printed whole.
SCROLLED_ROWS = 25


@dataclasses.dataclass(frozen=True)
class Section:
    """A heading and HTML under it; make the HTML with the functions of this module."""

    title: str
    body: str


def write_page(
    path: str | Path, title: str, *sections: Section, note: str = ""
) -> Path:
    """Write a page, atomically.

    Args:
        path: Path of the HTML file.
        title: Title of the page, as text.
        *sections: Sections in their order.
        note: A line of text under the title.

    Returns:
        The path.

    Raises:
        OSError: the folder cannot be written to.
    """
    links = "".join(
        f'<a href="#s{i}">{html.escape(s.title)}</a>' for i, s in enumerate(sections)
    )
    parts = "".join(
        f'<section id="s{i}"><h2>{html.escape(s.title)}</h2>{s.body}</section>'
        for i, s in enumerate(sections)
    )
    lead = note_html(note) if note else ""
    text = page_parts.PAGE.format(
        title=html.escape(title),
        style=page_parts.STYLE,
        script=page_parts.SCRIPT,
        note=lead,
        links=links,
        sections=parts,
    )
    write_atomic(path, text)
    return Path(path)


def figure_html(figure: "Figure", caption: str = "") -> str:
    """Return a figure as inline SVG, or as PNG where SVG would be large."""
    picture = page_parts.picture(figure)
    words = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{picture}{words}</figure>"


def video_html(path: str | Path, caption: str = "") -> str:
    """Return a GIF or an MP4 as it is, inside the page.

    Args:
        path: Path of the file.
        caption: A line of text under it.

    Raises:
        OSError: the file cannot be read.
    """
    path = Path(path)
    kind = path.suffix.lstrip(".").lower()
    data = base64.b64encode(path.read_bytes()).decode()
    words = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    if kind == "mp4":
        source = f"data:video/mp4;base64,{data}"
        shown = f'<video controls loop muted width="100%" src="{source}"></video>'
    else:
        shown = f'<img alt="video" src="data:image/{kind};base64,{data}">'
    return f"<figure>{shown}{words}</figure>"


def table_html(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a sortable table; numbers are aligned and sorted as numbers.

    Texts that are numbers, such as "1,575", are too, and are shown as they are.

    Args:
        headers: Heading of each column.
        rows: Cells of each row; a note counts those after the first `MAX_ROWS`.
    """
    head = "".join(f"<th>{html.escape(str(name))}</th>" for name in headers)
    body = "".join(
        f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in rows[:MAX_ROWS]
    )
    left = len(rows) - MAX_ROWS
    more = f"<p class=note>{left:,} further rows are not shown.</p>" if left > 0 else ""
    table = f"<table class=sort><thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    kind = "wide tall" if len(rows) > SCROLLED_ROWS else "wide"
    return f'<div class="{kind}">{table}</table></div>{more}'


def settings_html(values: Mapping[str, Any], *, closed: str = "") -> str:
    """Return names and values, behind a heading that opens on a click if given."""
    cells = "<tr><td>{}</td><td><code>{}</code></td></tr>"
    rows = "".join(
        cells.format(html.escape(str(name)), _text(value))
        for name, value in values.items()
    )
    table = f'<div class="wide"><table>{rows}</table></div>'
    if not closed:
        return table
    return f"<details><summary>{html.escape(closed)}</summary>{table}</details>"


def note_html(text: str) -> str:
    """Return a line of small text."""
    return f"<p class=note>{html.escape(text)}</p>"


def code_html(text: str) -> str:
    """Return code as it is."""
    return f"<pre><code>{html.escape(text)}</code></pre>"


def about(config: Mapping[str, Any], load: str, **facts: Any) -> Section:
    """Say where results come from: facts, config, how to load.

    Args:
        config: Config as plain values.
        load: Python code that reads the results; may be empty.
        **facts: Further lines, such as those of `made_with`; empty ones are left out.
    """
    lines = {name.replace("_", " "): value for name, value in facts.items() if value}
    body = settings_html(lines)
    body += settings_html(config, closed=f"Configuration ({len(config)} fields)")
    if load:
        body += "<h3>Load it</h3>" + code_html(load)
    return Section("About", body)


def made_with(folder: Path | None) -> dict[str, str]:
    """Return the lines of `about` that say how the results in a folder were made.

    This process may be another one, on another machine; it says nothing of them.

    Args:
        folder: The folder; without one, or without a manifest in it, nothing is known.
    """
    stored = folders.load(folder) if folder and folders.is_begun(folder) else {}
    versions = stored.get("versions", {}).items()
    options = stored.get("options", {}).items()
    return {
        "options": ", ".join(f"{name}={value}" for name, value in options),
        "device": stored.get("device", ""),
        "versions": ", ".join(f"{name} {version}" for name, version in versions),
        "command": stored.get("command", ""),
    }


def _cell(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(NUMBER, value):
        number = float(value.replace(",", ""))
        return f'<td class=n data-v="{number}">{html.escape(value)}</td>'
    if isinstance(value, bool | str) or value is None:
        return f"<td>{html.escape('-' if value is None else str(value))}</td>"
    if isinstance(value, int | float | np.number):
        number = float(value)
        known = math.isfinite(number)
        digits = 0 if isinstance(value, int | np.integer) else 1
        text = label(value) if abs(number) < 1e3 else f"{number:,.{digits}f}"
        shown = text if known else "-"
        return f'<td class=n data-v="{number if known else ""}">{shown}</td>'
    return f"<td>{_text(value)}</td>"


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return html.escape(text)

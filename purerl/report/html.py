"""HTML pages: sections, tables, figures, and the file itself.

A page is one HTML file without a server or network, its pictures inside. Text takes the
colours that the reader prefers (dark or light); tables sort by a click on their header.
"""

import base64
import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from purerl.atomic import write_atomic
from purerl.report import style
from purerl.report.sweep_data import label
from purerl.storage import folders

MAX_ROWS = 1_000
LARGE = 400_000  # Characters of SVG; beyond it, a PNG is smaller and draws faster.
# Texts that are numbers, with a comma before every three digits or with none; what
# stands in brackets behind them does not count.
NUMBER = re.compile(r"([+-]?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?)( \(.*\))?")


def write_page(
    path: str | Path, title: str, sections: Mapping[str, str], note: str = ""
) -> Path:
    """Write a page, atomically.

    Args:
        path: Path of the HTML file.
        title: Title of the page, as text.
        sections: HTML by the heading over it, in their order; empty ones are left out.
        note: A line of text under the title.

    Returns:
        The path.

    Raises:
        OSError: the folder cannot be written to.
    """
    links, parts = "", ""
    bodies = [(html.escape(name), body) for name, body in sections.items() if body]
    for number, (heading, body) in enumerate(bodies):
        links += f'<a href="#s{number}">{heading}</a>'
        parts += f'<section id="s{number}"><h2>{heading}</h2>{body}</section>'
    text = Template(files("purerl.report").joinpath("page.html").read_text("utf-8"))
    named = {"title": html.escape(title), "links": links}
    named["note"] = f"<p class=note>{html.escape(note)}</p>" if note else ""
    write_atomic(path, text.substitute(named, sections=parts))
    return Path(path)


def figure(picture: style.Picture, caption: str = "", large: int = LARGE) -> str:
    """Return a picture as inline SVG, or as PNG where SVG is large and PNG smaller."""
    shown = style.to_svg(picture.figure)
    if len(shown) > large:
        data, size = picture._repr_png_()
        source = _inside("image/png", data)
        png = f'<img alt="figure" width="{size["width"]}" src="{source}">'
        shown = min(shown, png, key=len)
    return _captioned(shown, caption)


def figures(*pictures: style.Picture) -> str:
    """Return pictures without captions."""
    return "".join(map(figure, pictures))


def file(path: str | Path, caption: str = "") -> str:
    """Return a picture, a GIF or an MP4 as it is, inside the page.

    Args:
        path: Path of the file.
        caption: A line of text under it.

    Raises:
        OSError: the file cannot be read.
    """
    path = Path(path)
    kind = path.suffix.lstrip(".").lower()
    source = _inside(
        "video/mp4" if kind == "mp4" else f"image/{kind}", path.read_bytes()
    )
    shown = f'<img alt="{html.escape(caption)}" src="{source}">'
    if kind == "mp4":
        shown = f'<video controls loop muted width="100%" src="{source}"></video>'
    return _captioned(shown, caption)


def _captioned(shown: str, caption: str) -> str:
    words = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{shown}{words}</figure>"


def _inside(kind: str, data: bytes) -> str:
    """An address that is the file itself."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
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
    rest = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide tall"><table class=sort>{rest}</table></div>{more}'


def settings(values: Mapping[str, Any], *, closed: str = "") -> str:
    """Return names and values, behind a heading that opens on a click if given."""
    cells = "<tr><td>{}</td><td><code>{}</code></td></tr>"
    rows = "".join(
        cells.format(html.escape(str(name)), _text(value))
        for name, value in values.items()
    )
    body = f'<div class="wide"><table>{rows}</table></div>'
    if not closed:
        return body
    return f"<details><summary>{html.escape(closed)}</summary>{body}</details>"


def note(*texts: str) -> str:
    """Return lines of small text; empty ones are left out."""
    return "".join(f"<p class=note>{html.escape(x)}</p>" for x in texts if x)


def code(text: str) -> str:
    """Return code as it is."""
    return f"<pre><code>{html.escape(text)}</code></pre>"


# Entries of a manifest that say how results were made.
MADE = ("design", "axes", "seeds", "generations", "options", "device", "versions")


def about(folder: Path | None, config: Mapping[str, Any]) -> str:
    """Say where results come from: how they were made, config, how to load them.

    Args:
        folder: The folder of the results. What its manifest and summary say is shown;
            this process may be on another machine.
        config: Config as plain values, where no folder holds one.
    """
    stored, numbers = {}, {}
    if folder and folders.is_begun(folder):
        stored, numbers = folders.load(folder), folders.read_summary(folder)
    config = stored.get("config", config)
    facts = {name: _words(stored[name]) for name in MADE if name in stored}
    facts |= {n: f"{x:,}" for n, x in numbers.items() if isinstance(x, int)}
    facts |= {n: label(x) for n, x in numbers.items() if isinstance(x, float)}
    facts["command"] = stored.get("command", "")
    body = settings({n.replace("_", " "): x for n, x in facts.items() if x})
    body += settings(config, closed=f"Configuration ({len(config)} fields)")
    load = f"import purerl\n\nresult = purerl.load({str(folder or 'FOLDER')!r})"
    return f"{body}<h3>Load it</h3>{code(load)}"


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={one}" for name, one in value.items())
    if isinstance(value, list) and len(value) > 8:
        return f"{value[0]} to {value[-1]}, {len(value):,} in all"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _cell(value: Any) -> str:
    if isinstance(value, str) and (found := re.fullmatch(NUMBER, value)):
        number = float(found[1].replace(",", ""))
        return f'<td class=n data-v="{number}">{html.escape(value)}</td>'
    if isinstance(value, bool | str) or value is None:
        return f"<td>{html.escape('-' if value is None else str(value))}</td>"
    if isinstance(value, int | float | np.number):
        is_known = math.isfinite(value)
        number, shown = (value, label(value)) if is_known else ("", "-")
        return f'<td class=n data-v="{number}">{shown}</td>'
    return f"<td>{_text(value)}</td>"


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return html.escape(text)

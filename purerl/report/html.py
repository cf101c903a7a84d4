"""HTML pages: sections, tables, figures, and the file itself.

A page is one HTML file without a server or network, its pictures inside. Text takes the
colours that the reader prefers (dark or light); tables sort by a click on their header.
"""

import base64
import dataclasses
import html
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from purerl.atomic import write_atomic
from purerl.report import plots
from purerl.report.sweep_data import label
from purerl.storage import folders

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_ROWS = 1_000
LARGE = 400_000  # Characters of SVG; beyond it, a PNG is smaller and draws faster.
# Texts that are numbers, with a comma before every three digits or with none.
NUMBER = re.compile(r"-?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?")
# Longer tables scroll in a box of their own; shorter ones are read and printed whole.
SCROLLED_ROWS = 25


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{note}
<nav>{links}</nav>
{sections}
</main>
<script>{script}</script>
</body>
</html>
"""

STYLE = """
:root { --ink: #24292f; --paper: #ffffff; --soft: #f3f5f7; --line: #d5dae0;
  --dim: #5d6773; --link: #0a60a8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #dde3ea; --paper: #14171b; --soft: #1e2329; --line: #39414a;
    --dim: #98a3af; --link: #6cb6ff; } }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 24px 20px 64px; }
h1 { font-size: 26px; margin: 8px 0 4px; }
h2 { font-size: 19px; margin: 36px 0 10px; border-bottom: 1px solid var(--line);
  padding-bottom: 4px; }
h3 { font-size: 15px; margin: 22px 0 6px; }
.note, figcaption { color: var(--dim); margin: 4px 0; }
nav { columns: 2 300px; column-gap: 24px; }
nav a { color: var(--link); display: block; text-decoration: none; }
nav a:hover { text-decoration: underline; }
figure { margin: 18px 0; }
figure svg, figure img { max-width: 100%; height: auto; display: block; }
figure img { background: #ffffff; border-radius: 6px; }
.wide { overflow-x: auto; }
.tall { max-height: 560px; overflow-y: auto; }
table { border-collapse: collapse; font-size: 13.5px; }
th, td { padding: 4px 10px 4px 6px; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { position: sticky; top: 0; background: var(--soft); }
table.sort th { cursor: pointer; user-select: none; }
table.sort th::after { content: " \\2195"; color: var(--dim); font-size: 11px; }
table.sort th[aria-sort=ascending]::after { content: " \\2191"; color: var(--ink); }
table.sort th[aria-sort=descending]::after { content: " \\2193"; color: var(--ink); }
@media (max-width: 720px) {
  th, td { min-width: 96px; }
  figure { overflow-x: auto; }
  figure svg, figure img { max-width: none; width: 680px; } }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tbody tr:hover { background: var(--soft); }
code { font: 13px/1.45 ui-monospace, Menlo, Consolas, monospace;
  overflow-wrap: anywhere; }
pre { background: var(--soft); padding: 12px 14px; border-radius: 6px;
  overflow-x: auto; }
summary { cursor: pointer; margin: 10px 0; color: var(--link); }
"""

# Rows sort by the number in data-v, or by text; what has no number comes last.
SCRIPT = """
for (const table of document.querySelectorAll("table.sort")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const sort = (head) => {
    const at = heads.indexOf(head), up = head.ariaSort !== "ascending";
    const key = (row) => {
      const cell = row.cells[at];
      return "v" in cell.dataset ? parseFloat(cell.dataset.v) : cell.textContent;
    };
    const order = (a, b) => {
      const x = key(a), y = key(b);
      if (typeof x === "number" && typeof y === "number") {
        if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y);
        return up ? x - y : y - x;
      }
      const text = String(x).localeCompare(String(y), undefined, {numeric: true});
      return up ? text : -text;
    };
    body.append(...[...body.rows].sort(order));
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
  };
  for (const head of heads) {
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(head));
    head.addEventListener("keydown", (key) => key.key === "Enter" && sort(head));
  }
}
"""


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
    links, parts = [], []
    for number, section in enumerate(sections):
        heading = html.escape(section.title)
        links.append(f'<a href="#s{number}">{heading}</a>')
        parts.append(
            f'<section id="s{number}"><h2>{heading}</h2>{section.body}</section>'
        )
    text = PAGE.format(
        title=html.escape(title),
        style=STYLE,
        script=SCRIPT,
        note=note_html(note) if note else "",
        links="".join(links),
        sections="".join(parts),
    )
    write_atomic(path, text)
    return Path(path)


def figure_html(figure: "Figure", caption: str = "") -> str:
    """Return a figure as inline SVG, or as PNG where SVG would be large."""
    shown = plots.to_svg(figure)
    if len(shown) > LARGE:
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
        shown = f'<img alt="figure" src="{_inside("image/png", buffer.getvalue())}">'
    return _captioned(shown, caption)


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
    if kind == "mp4":
        source = _inside("video/mp4", path.read_bytes())
        shown = f'<video controls loop muted width="100%" src="{source}"></video>'
    else:
        source = _inside(f"image/{kind}", path.read_bytes())
        shown = f'<img alt="video" src="{source}">'
    return _captioned(shown, caption)


def _captioned(shown: str, caption: str) -> str:
    words = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{shown}{words}</figure>"


def _inside(kind: str, data: bytes) -> str:
    """An address that is the file itself."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


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

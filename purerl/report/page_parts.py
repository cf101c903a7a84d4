"""The frame of every page: its style, its script, and how pictures get in."""

import base64
import io
from typing import TYPE_CHECKING

from purerl.report import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGE = 400_000  # Characters of SVG; beyond it, a PNG is smaller and draws faster.

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


def picture(figure: "Figure") -> str:
    """Return a figure as an element of a page that needs nothing else."""
    text = plots.to_svg(figure)
    if len(text) <= LARGE:
        return text
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="figure" src="data:image/png;base64,{data}">'

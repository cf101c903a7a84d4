"""Render the studies: docs/results/studies.md, and one HTML page with everything.

    python experiments/studies/page.py                      # what is in the repository
    python experiments/studies/page.py --quick              # what quick runs left

The first also writes docs/results/studies.md, with the claims and a picture of each
study. The HTML page has all rows, notes, tables and pictures, and goes to
runs/studies.html, or to runs/studies-quick/studies.html.
"""

import html
import re
from pathlib import Path
from typing import Any

from study import IMAGES, QUICK, ROOT, STORE, printed_on

# isort: split
from frame import markdown as table_lines
from frame import options, raw_words, read, words_of, write_atomic

from purerl.report import html as pages

# A link of Markdown, with its words as a group.
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
# Minutes of compilation even where it only estimates, so it comes last.
LONG = ("halfcheetah_grid",)
CLAIM = ("what", "claimed", "here", "note")
CLAIM_HEADERS = ["what", "claimed", "measured here", "note"]


def names() -> list[str]:
    """Return the names of the studies, long ones last."""
    found = [
        path.stem
        for path in Path(__file__).parent.glob("*.py")
        if "\nSTUDY, WORDS = " in path.read_text()
    ]
    return sorted(found, key=lambda name: (name in LONG, name))


def load(folder: Path) -> list[dict[str, Any]]:
    """Return what the studies in a folder found, by source system and title.

    Args:
        folder: Folder with `NAME.json`, or with a folder of that name with it inside.
    """
    found = map(read, [*folder.glob("*.json"), *folder.glob("*/*.json")])
    studies = (kept for kept in found if "rows" in kept)
    return sorted(studies, key=lambda k: (k.get("system", "").lower(), k["title"]))


def duration(kept: dict[str, Any]) -> str:
    """Return how long the parts of a study took."""
    minutes = kept["seconds"] / 60
    return f"{minutes:.0f} minutes" if minutes >= 2 else f"{kept['seconds']} seconds"


def facts(kept: dict[str, Any]) -> str:
    """Return the command, the time and the hardware of a study, in a line."""
    if kept.get("printed"):
        return "; ".join(
            f"`{one['command']}`: {one['hardware']}, jax {one['jax']}, {one['date']}, "
            + training(one)
            for one in kept["printed"]
        )
    return f"`{kept['command']}`: {duration(kept)}; {printed_on(kept)}"


def training(printed: dict[str, Any]) -> str:
    """Return the seconds of training of a command, where they are known."""
    seconds = printed["seconds"]
    return f"{seconds:,.0f} seconds" if seconds else "time not known"


def markdown(studies: list[dict[str, Any]]) -> str:
    """Return the page of the documentation."""
    rows = [[f"[{x['title']}](#{x['name']})", x.get("system") or "-"] for x in studies]
    lines = [raw_words("studies")["introduction"], ""]
    lines += [*table_lines(["study", "the claim is of"], rows), ""]
    for kept in studies:
        lines += [*summary(kept), ""]
    lines += [raw_words("studies")["commands"], ""]
    missing = sorted(set(names()) - {kept["name"] for kept in studies})
    if missing:
        lines += ["## Not yet run at full budget", ""]
        lines += [f"* `python experiments/studies/{name}.py`" for name in missing]
    return "\n".join(lines).rstrip() + "\n"


def summary(kept: dict[str, Any]) -> list[str]:
    """Return a study on that page: claim, picture, rows, doubts and where it ran.

    Four optional parts of the study's words say what stands there: `claim`, `doubts`,
    `shown` (the numbers of the rows) and `drawn` (the end of the picture's name).
    """
    name = kept["name"]
    words = words_of(name) if name in names() else {}
    picked = words.get("shown", "").split()
    rows = enumerate(kept["rows"])
    shown = [row for n, row in rows if not picked or str(n) in picked]
    figures = [
        figure
        for figure in kept["figures"]
        if figure["file"].endswith(f"{words.get('drawn', '')}.png")
    ]
    lines = [f'## <a id="{name}"></a>{kept["title"]}', ""]
    lines += [words.get("claim") or kept["question"], ""]
    for figure in figures[:1]:
        caption, *_ = figure["caption"].split(". ")
        file = figure["file"]
        lines += [f"![{Path(file).stem}](../images/studies/{file})", ""]
        lines += [f"*{caption.rstrip('.')}.*", ""]
    claims = [[row[part] for part in ("what", "claimed", "here")] for row in shown]
    lines += [*table_lines(CLAIM_HEADERS[:3], claims), ""]
    if "doubts" in words:
        lines += [f"**To question:** {words['doubts']}", ""]
    lines += ['??? note "Source, command and machine"', ""]
    return [*lines, f"    Source: {kept['source']}. {facts(kept)}."]


def inline(text: str) -> str:
    """Return a paragraph of Markdown as HTML: bold, code, and links as their words."""
    words = html.escape(re.sub(LINK, r"\1", text))
    words = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", words)
    return re.sub(r"`(.+?)`", r"<code>\1</code>", words)


def section(kept: dict[str, Any], images: Path) -> str:
    """Return a study as HTML.

    Args:
        kept: What the study's file holds.
        images: Folder of its figures.
    """
    body = f"<p>{inline(kept['question'])}</p>"
    body += pages.note(f"Source: {kept['source']}.")
    body += pages.note(facts(kept).replace("`", "") + ".")
    cells = [[row[name].replace("`", "") for name in CLAIM] for row in kept["rows"]]
    rows = [[re.sub(LINK, r"\1", cell) for cell in row] for row in cells]
    body += pages.table(CLAIM_HEADERS, rows)
    body += "".join(f"<p>{inline(text)}</p>" for text in kept["text"])
    for figure in kept["figures"]:
        body += pages.file(images / figure["file"], figure["caption"])
    for table in kept.get("tables", []):
        body += f"<h3>{html.escape(table['title'])}</h3>"
        body += pages.table(table["headers"], table["rows"])
    return body


def write(quick: bool, folder: Path | None = None) -> Path:
    """Write the pages and return the path of the HTML file.

    Args:
        quick: Whether what quick runs left is shown, and not the repository's.
        folder: Folder of the quick runs.
    """
    source = (folder or ROOT / "runs" / "studies-quick") if quick else STORE
    studies = load(source)
    path = source / "studies.html" if quick else ROOT / "runs" / "studies.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    title = "purerl: studies" + " at a tiny budget" * quick
    sections: dict[str, str] = {}
    for kept in studies:
        images = source / kept["name"] if quick else IMAGES
        sections[kept["title"]] = section(kept, images)
    pages.write_page(path, title, sections, QUICK if quick else "")
    if not quick:
        write_atomic(ROOT / "docs" / "results" / "studies.md", markdown(studies))
    return path


if __name__ == "__main__":
    print(write(options(__doc__, quick=(False, "what quick runs left")).quick))

"""Render docs/results/studies.md: the claims and a picture of each study.

    python experiments/studies/page.py

Further rows, their notes and paragraphs stand in experiments/results/studies/NAME.json.
"""

from pathlib import Path
from typing import Any

from study import ROOT, STORE, printed_on

# isort: split
from frame import markdown as table_lines
from frame import raw_words, read, words_of, write_atomic

# Minutes of compilation even where it only estimates, so it comes last.
LONG = ("halfcheetah_grid",)
HEADERS = ["what", "claimed", "measured here"]


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
        return "; ".join(map(printed_by, kept["printed"]))
    return f"`{kept['command']}`: {duration(kept)}; {printed_on(kept)}"


def printed_by(one: dict[str, Any]) -> str:
    """Return a command, its machine, and its seconds of training where known."""
    seconds = f"{one['seconds']:,.0f} seconds" if one["seconds"] else "time not known"
    machine = f"{one['hardware']}, jax {one['jax']}, {one['date']}"
    return f"`{one['command']}`: {machine}, {seconds}"


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

    Three optional parts of the study's words say what stands there: `claim`, `doubts`
    and `shown` (the numbers of the rows).
    """
    name = kept["name"]
    words = words_of(name) if name in names() else {}
    picked = words.get("shown", "").split()
    rows = enumerate(kept["rows"])
    shown = [row for n, row in rows if not picked or str(n) in picked]
    lines = [f'## <a id="{name}"></a>{kept["title"]}', ""]
    lines += [words.get("claim") or kept["question"], ""]
    for figure in kept["figures"]:
        caption, *_ = figure["caption"].split(". ")
        file = figure["file"]
        lines += [f"![{Path(file).stem}](../images/studies/{file})", ""]
        lines += [f"*{caption.rstrip('.')}.*", ""]
    claims = [[row[part] for part in ("what", "claimed", "here")] for row in shown]
    lines += [*table_lines(HEADERS, claims), ""]
    if "doubts" in words:
        lines += [f"**To question:** {words['doubts']}", ""]
    lines += ['??? note "Source, command and machine"', ""]
    return [*lines, f"    Source: {kept['source']}. {facts(kept)}."]


def write() -> Path:
    """Write the page and return its path."""
    path = ROOT / "docs" / "results" / "studies.md"
    write_atomic(path, markdown(load(STORE)))
    return path


if __name__ == "__main__":
    print(write())

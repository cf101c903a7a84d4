"""Pages of the notebooks in `examples/notebooks`, with the outputs that they hold.

A notebook becomes the page `notebooks/NAME.md`: its text, its code, and what it printed
and drew. Nothing is run when the site is built.
"""

import base64
import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
TERMINAL = re.compile(r"\x1b\[[\d;]*m")  # colours


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and their pictures; MkDocs calls it once."""
    from mkdocs.structure.files import File  # not among what the tests need

    for path in sorted(FOLDER.glob("*.ipynb")):
        text, pictures = page_of(path)
        made = {f"notebooks/{path.stem}.md": text, **pictures}
        for name, content in made.items():
            files.append(File.generated(config, name, content=content))
    return files


def page_of(path: Path) -> tuple[str, dict[str, bytes]]:
    """The Markdown of a notebook, and its pictures by their place in the site."""
    parts, pictures = [], {}
    for number, cell in enumerate(json.loads(path.read_text())["cells"]):
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(re.sub(r"\((\S+)\.ipynb\)", r"(\1.md)", text))
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            shown, picture = _shown(output)
            if picture:
                name = f"{path.stem}-{number}.png"
                pictures[f"notebooks/{name}"] = picture
                shown = f"![]({name})"
            parts += [shown] if shown else []
    where = f"examples/notebooks/{path.name}"
    title, *rest = parts[0].split("\n", 1)
    note = f"*This page shows `{where}` of the repository, as it was last run.*"
    return "\n\n".join([title, note, *rest, *parts[1:]]), pictures


def _shown(output: dict[str, Any]) -> tuple[str, bytes | None]:
    """The Markdown of an output, or its picture."""
    data = output.get("data", {})
    if "image/png" in data:
        return "", base64.b64decode("".join(data["image/png"]))
    text = "".join(data.get("text/plain", output.get("text", "")))
    text = TERMINAL.sub("", text).rstrip()
    return (f"```text\n{text}\n```" if text else ""), None

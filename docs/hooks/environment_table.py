"""Tables of the registered environments, made from the registry when the site is built.

A page says where they belong with a line `<!-- environments -->`.
"""

from typing import Any

MARKER = "<!-- environments -->"
HEADER = "| environment | observation | action | what it is |\n|---|---|---|---|"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the marker of a page; MkDocs calls it for each of them."""
    return markdown.replace(MARKER, render()) if MARKER in markdown else markdown


def render() -> str:
    """Return a table for each package that environments come from."""
    from purerl import envs

    tables: dict[str, list[str]] = {}
    for id in envs.registered():
        try:
            about = envs.describe(id)
        except ValueError:  # Its package downloads files, and could not.
            cells = ["", "", "needs files that are downloaded"]
        else:
            spaces = map(short, (about.observation_space, about.action_space))
            # The summaries of other packages repeat the name.
            is_own = about.source == "purerl"
            cells = [*spaces, about.summary.rstrip(".") if is_own else ""]
        row = f"| {' | '.join([f'`{id}`', *cells])} |"
        tables.setdefault(envs.source_of(id), []).append(row)
    parts = [
        f"### From {source}\n\n{HEADER}\n" + "\n".join(rows)
        for source, rows in sorted(tables.items(), key=lambda pair: pair[0] != "purerl")
    ]
    return "\n\n".join(parts)


def short(space: Any) -> str:
    """Return a space without the bounds of its numbers."""
    from purerl.envs.spaces import Box

    if isinstance(space, Box):
        shape = " x ".join(map(str, space.shape)) or "1"
        kind = "number" if "float" in str(space.dtype) else "integer"
        return f"{shape} {kind}{'s' * (shape != '1')}"
    return f"`{space}`"

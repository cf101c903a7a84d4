"""What every page names is there: public names, commands, presets, its place."""

import ast
import itertools
import re
import shlex
from functools import reduce

import pytest
import yaml

import purerl
from purerl import envs, presets
from purerl.cli import COMMANDS
from tests.docs import pages

SITE = sorted(
    path.relative_to(pages.ROOT).as_posix()
    for path in (pages.ROOT / "docs").rglob("*.md")
)


class _Loader(yaml.SafeLoader):
    """Without the tags that belong to MkDocs."""


def _names(code: str) -> set[str]:
    """Dotted names of `purerl` and `envs` that some code uses."""
    dotted = (ast.unparse(node) for node in ast.walk(ast.parse(code)))
    return {name for name in dotted if re.fullmatch(r"(purerl|envs)(\.\w+)+", name)}


@pytest.mark.parametrize("page", ["README.md", *SITE])
def test_what_a_page_names_is_there(page):
    modules = {"purerl": purerl, "envs": envs}
    for block in pages.blocks(pages.ROOT / page):
        if block.language == "python":
            for name in _names(block.code):
                first, *rest = name.split(".")
                reduce(getattr, rest, modules[first])
        if block.language in ("sh", "bash"):
            _check_commands(block.code.replace("\\\n", " "))


def _check_commands(code: str) -> None:
    for line in code.splitlines():
        words = shlex.split(line, comments=True)
        for first, command in itertools.pairwise(words):
            if first == "purerl":
                assert command in COMMANDS, line
        if "--preset" in words and words[1] != "evolve":
            assert words[words.index("--preset") + 1] in presets.names(), line


def test_every_page_has_a_place_in_the_menu():
    config = yaml.load((pages.ROOT / "mkdocs.yml").read_text(), _Loader)

    def leaves(node):
        if isinstance(node, str):
            return [node]
        values = node.values() if isinstance(node, dict) else node
        return [leaf for value in values for leaf in leaves(value)]

    made = [f"docs/notebooks/{path.stem}.md" for path in pages.NOTEBOOKS]
    listed = [f"docs/{page}" for page in leaves(config["nav"])]
    assert sorted(listed) == sorted([*SITE, *made])


def test_nothing_is_fetched_from_outside_when_a_page_is_read():
    config = yaml.load((pages.ROOT / "mkdocs.yml").read_text(), _Loader)
    assert config["theme"]["font"] is False
    extra = config.get("extra_css", []) + config.get("extra_javascript", [])
    assert not [path for path in extra if "//" in path]

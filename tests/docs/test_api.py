"""The pages of the API have every public name, and show nothing that is not there."""

import inspect
import pkgutil
import re

import purerl
from purerl.config import TrainConfig
from tests.docs import pages

ENTRY = re.compile(r"^::: (\S+)$", re.MULTILINE)
SHOWN = {
    name
    for path in (pages.ROOT / "docs" / "api").glob("*.md")
    for name in ENTRY.findall(path.read_text())
}
NAMES = re.findall(r" as (\w+)", (pages.ROOT / "purerl/__init__.pyi").read_text())
PUBLIC = {name: getattr(purerl, name) for name in NAMES}


def test_every_public_name_is_on_a_page():
    """But for modules, and for configs, which have pages of their own."""
    missing = [
        name
        for name, value in PUBLIC.items()
        if f"purerl.{name}" not in SHOWN
        and not inspect.ismodule(value)
        and not (inspect.isclass(value) and issubclass(value, TrainConfig))
    ]
    assert missing == []
    for name in SHOWN:
        pkgutil.resolve_name(name)

"""The pages of the API have every public name, and what public calls return."""

import inspect
import pkgutil
import re
from collections.abc import Iterator

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


def test_what_public_calls_return_is_on_a_page():
    shown = [pkgutil.resolve_name(name) for name in SHOWN]
    missing = {
        f"{owner}: {kind.__module__}.{kind.__qualname__}"
        for name, value in PUBLIC.items()
        for owner, kind in returned(name, value)
        if kind not in shown
    }
    assert missing == set()


def returned(name: str, value: object) -> Iterator[tuple[str, type]]:
    """Yield the classes of purerl in the annotations of calls and attributes."""
    if inspect.isclass(value):
        for part, member in vars(value).items():
            function = member.fget if isinstance(member, property) else member
            if inspect.isfunction(function) and not part.startswith("_"):
                yield from classes_of(f"{name}.{part}", function)
        for part, text in inspect.get_annotations(value).items():
            module = inspect.getmodule(value)
            yield from classes_in(f"{name}.{part}", text, vars(module))
    elif inspect.isfunction(value):
        yield from classes_of(name, value)


def classes_of(owner: str, function: object) -> Iterator[tuple[str, type]]:
    """Yield the classes of purerl in what a function returns."""
    plain = inspect.unwrap(function)
    annotation = inspect.signature(plain).return_annotation
    yield from classes_in(owner, annotation, plain.__globals__)


def classes_in(
    owner: str, annotation: object, known: dict
) -> Iterator[tuple[str, type]]:
    """Yield the classes of purerl that an annotation names."""
    kinds = [annotation] if inspect.isclass(annotation) else []
    for word in re.findall(r"\w+", str(annotation)):
        kinds.append(known.get(word))
    for kind in kinds:
        if inspect.isclass(kind) and kind.__module__.startswith("purerl"):
            yield owner, kind

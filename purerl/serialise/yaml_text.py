"""Plain values as YAML, both ways, loaded safely."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

# A rule of DiscoRL, the largest part of a config, has 750,000 numbers.
MAX_TEXT = 20_000_000  # Characters of a file.
MAX_VALUES = 1_000_000  # Values of a file, those of an alias counted where it stands.
MAX_DEPTH = 50


def yaml_text(values: Mapping[str, Any]) -> str:
    """Write plain values as YAML, in their order."""
    return yaml.dump(dict(values), Dumper=_Dumper, sort_keys=False)


def read_file(path: str | Path) -> str:
    """Return the text of a file, of a longer one than `read_yaml` takes its beginning.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it is no text.
    """
    with Path(path).open() as file:
        return file.read(MAX_TEXT + 1)


def read_yaml(text: str) -> Any:
    """Return what is written as YAML, or as JSON (loaded safely).

    Numbers are those of YAML 1.2: `010` is ten, `1e6` a number, `1:30` text.

    Args:
        text: The text, which a person may have written.

    Raises:
        yaml.YAMLError: it is neither; a mapping in it has a key twice, so that nobody
            would know which counts; or it is larger than a config can be.
    """
    if len(text) > MAX_TEXT:
        raise _refusal(
            f"it has more than {MAX_TEXT:,} characters; write arrays as .npz"
        )
    return yaml.load(text, _Loader)  # It derives from the safe one.


def _refusal(problem: str) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(problem=problem)


class _Loader(yaml.SafeLoader):
    """A safe loader with limits, that refuses keys which are given twice."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._values = 0
        self._sizes: dict[int, int] = {}  # Of every finished node, by its identity.

    def compose_node(self, parent: Any, index: Any) -> Any:
        is_alias = self.check_event(yaml.AliasEvent)
        before, self._depth = self._values, self._depth + 1
        if self._depth > MAX_DEPTH:
            raise _refusal(f"values lie in one another more than {MAX_DEPTH} deep")
        node = super().compose_node(parent, index)
        if is_alias and id(node) not in self._sizes:
            raise _refusal("a value refers to itself by an alias")
        self._depth -= 1
        self._values += self._sizes[id(node)] if is_alias else 1
        if self._values > MAX_VALUES:
            raise _refusal(
                f"it holds more than {MAX_VALUES:,} values, those of aliases counted "
                "wherever they stand; write arrays as .npz"
            )
        self._sizes[id(node)] = self._values - before
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Here and not where dictionaries are made, as `<<` has put keys in by then.
        node = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            name, line = (key.tag, str(key.value)), key.start_mark.line + 1
            if name in lines:
                both = sorted({lines[name], line})
                where = f"lines {both[0]} and {both[1]}" if both[1:] else f"line {line}"
                raise _refusal(
                    f"{key.value} is given twice, in {where}; leave one of them out"
                )
            lines[name] = line
        return node

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        text = self.construct_scalar(node).replace("_", "")
        return int(text, 0 if text.lstrip("+-")[1:2].isalpha() else 10)


class _Dumper(yaml.SafeDumper):
    """A safe dumper that puts into quotes what `_Loader` would take for a number."""


# The numbers of YAML 1.2, in which nothing is octal or has the base 60 by its looks.
_NUMBERS = {
    "tag:yaml.org,2002:int": r"[-+]?(0x[0-9a-fA-F]+|0o[0-7]+|0b[01]+|[0-9][0-9_]*)",
    "tag:yaml.org,2002:float": r"""[-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+]?[0-9]+)?
        |\.[0-9][0-9_]*([eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+
        |\.(inf|Inf|INF))|\.(nan|NaN|NAN)""",
}
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
for _cls in (_Loader, _Dumper):
    _cls.yaml_implicit_resolvers = {
        first: [(tag, rule) for tag, rule in rules if tag not in _NUMBERS]
        for first, rules in _cls.yaml_implicit_resolvers.items()
    }
    for _tag, _rule in _NUMBERS.items():
        _cls.add_implicit_resolver(
            _tag, re.compile(rf"^({_rule})$", re.VERBOSE), list("-+.0123456789")
        )


def read_mapping(path: str | Path) -> dict[str, Any] | None:
    """Return the mapping that a YAML file holds (loaded safely).

    Args:
        path: The file. Where there is none, or none that holds a mapping, the result is
            None.
    """
    try:
        return mapping_of(read_file(path))
    except (OSError, UnicodeDecodeError):
        return None


def mapping_of(text: str) -> dict[str, Any] | None:
    """Return the mapping that is written as YAML (loaded safely); None if it is none.

    Args:
        text: The text, such as that of `yaml_text`.
    """
    try:
        values = read_yaml(text)
    except yaml.YAMLError:
        return None
    return dict(values) if isinstance(values, Mapping) else None

"""Plain values as YAML, both ways, loaded safely."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

# A rule of DiscoRL, the largest part of a config, has 750,000 numbers.
MAX_TEXT = 20_000_000  # Characters of a file.
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
            would know which counts; it has an alias, of which a few lines make values
            without end; or it is larger than a config can be.
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

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise _refusal("it has an alias, such as *x; write the value out")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _refusal(f"values lie in one another more than {MAX_DEPTH} deep")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in lines:
                raise _refusal(
                    f"{name} is given twice, in lines {lines[name]} and {line}; leave "
                    "one of them out"
                )
            lines[name] = line
        return node

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        text = self.construct_scalar(node).replace("_", "")
        return int(text, 0 if text.lstrip("+-")[1:2].isalpha() else 10)


class _Dumper(yaml.SafeDumper):
    """A safe dumper without aliases, with quotes around what looks like a number."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


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

"""The keywords of tools in the API: those of the dataclass that `tool` is given.

Griffe reads the source of a module, in which `purerl.sweep` is a function of one class.
"""

import inspect
import pkgutil
import re
from typing import Any

import griffe


class Tools(griffe.Extension):
    """Gives the functions of tools the signature and the docstring that they have."""

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """Complete a function that `purerl.runner.options.tool` decorates."""
        if any(str(one.value).startswith("tool(") for one in func.decorators):
            made = pkgutil.resolve_name(func.path)
            parameters = inspect.signature(made).parameters.values()
            func.parameters = griffe.Parameters(*map(_parameter, parameters))
            func.docstring = griffe.Docstring(made.__doc__ or "", parent=func)


def _parameter(one: inspect.Parameter) -> griffe.Parameter:
    """A parameter as griffe describes it."""
    is_named = one.kind is inspect.Parameter.KEYWORD_ONLY
    kinds = griffe.ParameterKind
    is_required = one.default is inspect.Parameter.empty
    return griffe.Parameter(
        one.name,
        annotation=re.sub(r"\b(\w+\.)+", "", inspect.formatannotation(one.annotation)),
        kind=kinds.keyword_only if is_named else kinds.positional_or_keyword,
        default=None if is_required else repr(one.default),
    )

"""The options of a tool, each written once.

A tool such as `purerl.sweep` is a function of one frozen dataclass of options. From the
fields of this class follow the keywords of the call and their documentation (`tool`),
the flags of the command (`purerl.cli.flags`), and what the manifest keeps and the page
of the folder shows (`Options.kept`). What several tools have alike stands in a class
that theirs extend.
"""

import dataclasses
import difflib
import functools
import inspect
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, ParamSpec, TypeVar

from purerl import serialise
from purerl.config import ConfigError
from purerl.precision import in_32_bits
from purerl.runner.arguments import as_folder, as_seconds, as_switch, check_call
from purerl.runner.trackers import TRACKERS, Tracker, choose, make_tracker
from purerl.scale.devices import as_count, required

Call = ParamSpec("Call")
Asked = TypeVar("Asked")
Result = TypeVar("Result")

# How a folder keeps an option. All calls must agree in one that is fixed. One that is
# told is that of the last call.
FIXED, TOLD = "fixed", "told"


class Repeated:
    """The type of a flag that may be given several times: a tuple of texts."""


class Option(NamedTuple):
    """An option beside its name, its type and its default; or a further flag of one.

    Attributes:
        help: The help of the flag, a sentence that can be read without any other; an
            option without one has no flag.
        doc: What the documentation of the keyword says, where it is more than `help`.
        flag: The flag's name, with underscores, where it is not the option's.
        kind: The type of the flag's value, where it is not the option's.
        absent: The value where the flag is not given, where it is not the default.
        word: The flag as it is typed, where Python has no such name.
        metavar: What the help calls the flag's value, where that is not its type.
        also: Further flags that the option is read from.
        read: Makes the option's value of those of its flags.
        check: Returns the value, from the option's name and what was given for it, or
            refuses it.
        keep: How the folder keeps it: `FIXED` or `TOLD`; empty where it does not.
    """

    help: str = ""
    doc: str = ""
    flag: str = ""
    kind: Any = None
    absent: Any = ...
    word: str | None = None
    metavar: str | None = None
    also: "tuple[Option, ...]" = ()
    read: Callable[..., Any] = lambda value: value
    check: Callable[[str, Any], Any] | None = None
    keep: str = ""

    @property
    def flags(self) -> "tuple[Option, ...]":
        """The flags that the option is read from; none where it has no help."""
        return (self, *self.also) if self.help else ()


def option(default: Any, help: str = "", **about: Any) -> Any:
    """Return a field of a dataclass of options.

    Args:
        default: The default of the keyword, and of the flag.
        help: The help of the flag; an option without one has no flag.
        **about: What else there is to say; see `Option`.
    """
    known = Option(help, **about)
    return dataclasses.field(default=default, metadata={"option": known})


MEMORY_LIMIT = "Bytes for training, such as 2GB; most of what is free if not given."
FIRST_SEED = Option(
    "Number of the first seed; the others follow it.",
    flag="first_seed",
    kind=int,
    absent=0,
)
TRACKING_URI = Option(
    "Address of MLflow's store; MLFLOW_TRACKING_URI, else sqlite:///mlflow.db, if not "
    "given.",
    flag="tracking_uri",
    kind=str | None,
    absent=None,
)


def seeds_option(default: int, help: str, *, name: str = "seeds") -> Any:
    """Return the option of a number of seeds, which are then 0, 1, ..., or of which.

    Args:
        default: The number where none is given.
        help: The help of the flag.
        name: The name of the option.
    """
    return option(
        default,
        help,
        doc=f"{help} Their seeds are then 0, 1, ...; or the seeds themselves.",
        kind=int,
        also=(FIRST_SEED,),
        read=lambda number, first: range(first, first + required(name, number)),
    )


def read_trackers(names: Sequence[str], uri: str | None) -> list[str | Tracker] | None:
    """Return the trackers that `--track` and `--tracking-uri` ask for, or None.

    Raises:
        ConfigError: an address without MLflow, or trackers that cannot be made.
    """
    if uri is not None and "mlflow" not in names:
        raise ConfigError(
            f"--tracking-uri {uri} is the address of MLflow's store; add --track "
            "mlflow, or leave it out."
        )
    trackers = [
        make_tracker(name, uri=uri) if name == "mlflow" and uri else name
        for name in names
    ]
    choose(trackers)  # By its name alone each is made again, as it was before.
    return trackers or None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The options that all tools have.

    A class of a tool's own options says the name of the tool, and has `config`.
    """

    tool: ClassVar[str] = ""

    out: str | Path | None = option(
        None,
        "Folder to write; runs/{tool}-<env>-<time> if not given.",
        doc="The folder to write; nothing is written without one. The same call again "
        "goes on with what it holds.",
        kind=Path | None,
        check=as_folder,
    )
    lanes: int | None = option(
        None,
        "Agents per block of a compiled call, part of what fixes the bits; what suits "
        "the device if not given.",
        check=as_count,
    )
    trackers: Sequence[str | Tracker] | None = option(
        None,
        f"Tracker that is told while it runs: {', '.join(TRACKERS)}; may be repeated.",
        doc="Trackers that are told while it runs: names "
        f"({', '.join(TRACKERS)}) or trackers (see `purerl.make_tracker`). What goes "
        "on does so with those that it was started with where none are given.",
        flag="track",
        kind=Repeated,
        also=(TRACKING_URI,),
        read=read_trackers,
    )
    progress: bool = option(True, "Show the progress.")

    def __post_init__(self) -> None:
        values = vars(self)
        if "config" in values:
            check_call(f"purerl.{self.tool}", values["config"])
        known = options_of(type(self))
        for field in dataclasses.fields(self):
            about = known.get(field.name)
            check = as_switch if field.type is bool else about and about.check
            if check:
                value = check(field.name, values[field.name])
                object.__setattr__(self, field.name, value)
        if values.get("extend") and self.out is None:
            raise ConfigError("extend=True goes on with what a folder holds: out=.")

    @property
    def folder(self) -> Any:
        """The path of the folder to write, or None."""
        return self.out

    def kept(self, *ways: str) -> dict[str, Any]:
        """Return the options that the folder keeps, as plain values by name.

        Args:
            *ways: The ways of keeping; all of them where not given.
        """
        return {
            name: serialise.plain(getattr(self, name), name)
            for name, about in options_of(type(self)).items()
            if about.keep in (ways or (FIXED, TOLD))
        }

    def of(self, owner: type["Options"]) -> dict[str, Any]:
        """Return the options that a class has, by name, to hand them on."""
        return {name: getattr(self, name) for name in options_of(owner)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Segmented(Options):
    """Options of tools that train in segments whose length may be chosen."""

    segment_updates: int | None = option(
        None,
        "Updates per compiled call, part of what fixes the bits; chosen if not given.",
        check=as_count,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Saved(Segmented):
    """Options of tools that save checkpoints."""

    checkpoint_seconds: float = option(
        30.0,
        "Least number of seconds between two checkpoints, or ten times what the last "
        "one took where that is longer; 0 saves as often as there is something new.",
        check=as_seconds,
    )


def memory_limit_option() -> Any:
    """Return the option of the memory that training may take."""
    return option(None, MEMORY_LIMIT, kind=str | None)


def fields_of(options: type) -> list[dataclasses.Field]:
    """Return the fields of a class of options: its own first, then what it extends."""
    fields = {field.name: field for field in dataclasses.fields(options)}
    names = [name for name, field in fields.items() if not field.kw_only]
    for owner in options.__mro__:
        names += inspect.get_annotations(owner)
    return [fields[name] for name in dict.fromkeys(names) if name in fields]


def options_of(options: type) -> dict[str, Option]:
    """Return what is known of the options of a class, by name, in their order."""
    return {
        field.name: field.metadata["option"]
        for field in fields_of(options)
        if "option" in field.metadata
    }


def tool(
    options: Callable[Call, Asked],
) -> Callable[[Callable[[Asked], Result]], Callable[Call, Result]]:
    """Make a function of options one of their keywords.

    Args:
        options: The dataclass of the options. Its fields are the parameters of the
            function that is made, also for `help` and for type checkers.
    """

    def decorate(function: Callable[[Asked], Result]) -> Callable[Call, Result]:
        @functools.wraps(function)
        def call(*args: Call.args, **kwargs: Call.kwargs) -> Result:
            who, known = f"purerl.{function.__name__}()", signature.parameters
            for name in kwargs.keys() - known.keys():
                near = difflib.get_close_matches(name, known, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise TypeError(
                    f"{who} got an unexpected keyword argument {name!r}.{hint}"
                )
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{who}: {error}.") from None
            return function(options(*args, **kwargs))

        kind: Any = options
        known = inspect.signature(kind).parameters
        signature = inspect.Signature(
            [
                known[field.name].replace(annotation=field.type)
                for field in fields_of(kind)
            ],
            return_annotation=inspect.signature(function).return_annotation,
        )
        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__doc__ = _documented(function.__doc__ or "", kind)
        call.options = options  # type: ignore[attr-defined]
        return in_32_bits(call)

    return decorate


def _documented(text: str, options: type) -> str:
    """The docstring of a function with what its options say, as its arguments."""
    text = inspect.cleandoc(text)
    lines = [
        textwrap.fill(
            f"{name}: {about.doc or about.help}", 84, subsequent_indent="    "
        )
        for name, about in options_of(options).items()
    ]
    args = textwrap.indent("\n".join(lines), "    ")
    head, raises, rest = text.partition("\n\nRaises:")
    return f"{head}\n\nArgs:\n{args}{raises}{rest}\n"

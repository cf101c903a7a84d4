"""Configs: frozen dataclasses whose static fields are structure and leaves numbers.

A field made with `static` fixes shapes or the program and is read before tracing. A
field made with `dynamic` is a leaf: it may be traced, vmapped and overridden by name.
"""

import dataclasses
import difflib
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from flax.core import FrozenDict
from jax.core import Tracer

from purerl.types import Overrides, Schedule

MAX_ENV_STEPS = 2**32 - 1  # `env_steps` is an unsigned 32-bit counter.
_PLAIN = (int, bool, str, "int", "bool", "str")  # types of fields that hold no part
_MOMENTS = 256  # at which the course of a schedule is checked


@jax.tree_util.register_static
class Auto(str):
    """The value of a field that follows the task: see `TrainConfig.automatic`.

    It is the word `auto`, and no leaf: a config that holds it passes through `jax.jit`.
    """


AUTO = Auto("auto")


class ConfigError(ValueError):
    """A config that cannot be trained: says the field, value, constraint, remedy."""


class UnknownFieldError(ConfigError):
    """A name that is no field of what it was given to."""


class Check(NamedTuple):
    """A range check and the sentence that reports its violation."""

    holds: Callable[[Any], bool]
    words: str


POSITIVE = Check(lambda x: x > 0, "must be greater than 0")
NON_NEGATIVE = Check(lambda x: x >= 0, "must be 0 or greater")
FRACTION = Check(lambda x: 0 <= x <= 1, "must lie between 0 and 1")
DECAY = Check(lambda x: 0 <= x < 1, "must be 0 or greater and less than 1")
NAMES = Check(
    lambda x: isinstance(x, tuple) and all(isinstance(n, str) and n for n in x),
    'must be names, such as ("torso",)',
)
POSITIVE_OR_NONE = Check(lambda x: x is None or x > 0, POSITIVE.words)


def one_of(*choices: str) -> Check:
    """Make a check that the value is one of `choices`."""
    return Check(lambda x: x in choices, f"must be one of {', '.join(choices)}")


def static(default: Any, help: str, check: Check | None = None) -> Any:
    """Declare a field that is structure: it fixes shapes or the program.

    Args:
        default: Value where none is given.
        help: Sentence for command lines and documentation.
        check: Constraint on the value, if there is one.
    """
    return _field(default, help, check, pytree_node=False)


def dynamic(
    default: Any, help: str, check: Check | None = None, *, moves: bool = True
) -> Any:
    """Declare a field that is a number (or a pytree of numbers): it can be vmapped.

    Args:
        default: Value where none is given.
        help: Sentence for command lines and documentation.
        check: Constraint on the value, if there is one.
        moves: Whether the number is read in every update, so that it may be a schedule;
            False for one that is read at the start only, or is itself about time.
    """
    return _field(default, help, check, pytree_node=True, moves=moves)


def _field(default: Any, help: str, check: Check | None, **more: bool) -> Any:
    metadata = {"help": help, "check": check, **more}
    if type(default).__hash__ is None or dataclasses.is_dataclass(default):
        return dataclasses.field(default_factory=lambda: default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


ConfigT = TypeVar("ConfigT")


@dataclass_transform(frozen_default=True)
def config_dataclass(cls: type[ConfigT]) -> type[ConfigT]:
    """Apply `flax.struct.dataclass`, but keep the config's own `replace`.

    A name that is no field gets the sentence of `replace`, with a guess at what was
    meant.
    """
    replace = cls.replace  # type: ignore[attr-defined]
    cls = struct.dataclass(cls)
    cls.replace = replace  # type: ignore[attr-defined]
    make = cls.__init__

    @functools.wraps(make)
    def init(self: Any, *args: Any, **fields: Any) -> None:
        for name in fields:
            check_known(name, field_names(cls), cls.__name__)
        make(self, *args, **fields)

    cls.__init__ = init
    return cls


@config_dataclass
class TrainConfig:
    """Fields that every algorithm has."""

    env: Any = static("CartPole-v1", "Environment id, or an environment object.")
    env_kwargs: Any = static(
        FrozenDict(), "Keyword arguments of envs.make, such as backend=spring."
    )
    env_wrappers: tuple[str, ...] = static(
        (),
        "Wrappers around the environment, the first innermost: FrameStack(4).",
    )
    env_params: Any = dynamic(
        None,
        "Environment parameters by name, numbers or distributions to draw them from; "
        "what is not named keeps its default.",
    )
    randomise_per: str = static(
        "episode",
        "Unit that draws its own numbers from the distributions in env_params: "
        "every episode, or every environment of an agent, whose episodes keep its "
        "numbers.",
        one_of("episode", "environment"),
    )
    total_timesteps: int = static(
        500_000, "Environment steps of one agent, over all its environments.", POSITIVE
    )
    num_envs: int = static(
        4, "Environments that one agent steps in parallel.", POSITIVE
    )
    gamma: float = dynamic(0.99, "Discount per step.", FRACTION)
    learning_rate: float = dynamic(2.5e-4, "Step size of the optimiser.", POSITIVE)
    num_evaluations: int = static(
        10,
        "Evaluations of the deterministic policy; the last is at the end.",
        NON_NEGATIVE,
    )
    eval_episodes: int = static(16, "Episodes of one evaluation.", POSITIVE)
    eval_max_steps: int = static(
        0,
        "Longest evaluation episode; 0 takes the environment's time limit.",
        NON_NEGATIVE,
    )
    eval_share: float = static(
        0.1,
        "Evaluations are dropped until their steps are at most this share of "
        "training's (the last one always stays).",
        FRACTION,
    )
    reset_scheme: str = static(
        "fresh",
        "Resets that episodes start from: fresh, each of its own; pool, one of "
        "reset_pool_size resets drawn anew for every rollout (cheaper for "
        "physics).",
        one_of("fresh", "pool"),
    )
    reset_pool_size: int = static(
        64, "Resets drawn per rollout when reset_scheme is pool.", POSITIVE
    )
    frozen: tuple[str, ...] = static(
        (),
        "Parts of the networks that do not learn, by name: torso, actor.torso, critic.",
        NAMES,
    )

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one update, over all environments of an agent."""
        raise NotImplementedError(
            f"{type(self).__name__} must have a property steps_per_update: the "
            "environment steps of one update, such as self.num_envs * self.num_steps."
        )

    @property
    def sequential_steps(self) -> int:
        """Operations of one update that wait for one another; weighs evaluations."""
        raise NotImplementedError(
            f"{type(self).__name__} must have a property sequential_steps: environment "
            "and gradient steps of one update that wait for one another, such as "
            "self.num_steps + self.num_epochs * self.num_minibatches."
        )

    def automatic(self, env: Any) -> dict[str, Any]:
        """Return what the fields whose default is `AUTO` stand for, by name.

        It is asked before anything is traced, and again with the overrides put in:
        see `purerl.auto.resolve`. A value that somebody has given is never replaced.

        Args:
            env: The environment, from `resolve_env`.
        """
        del env
        return {}

    def check_numbers(self) -> None:
        """Refuse numbers with which nothing can be learned.

        It is asked of the config, and again with the overrides put in, so that an
        override is refused with the sentence of the config. Numbers that are traced, or
        schedules, must be left alone.

        Raises:
            ConfigError: naming the fields, their values, the constraint and the remedy.
        """

    def __post_init__(self) -> None:
        # Normalise what people write: 5e5 for an integer, lists, plain dicts, "auto".
        for field in dataclasses.fields(self):
            if isinstance(field.default, Auto) and is_auto(getattr(self, field.name)):
                object.__setattr__(self, field.name, AUTO)
        for field in static_fields(self):
            value = getattr(self, field.name)
            is_whole = isinstance(value, np.integer) or (
                isinstance(value, float) and value.is_integer()
            )
            if field.type in (int, "int") and is_whole:
                object.__setattr__(self, field.name, int(value))
            elif isinstance(value, list | tuple | dict | FrozenDict):
                # Lists, as files have them, could not be hashed.
                object.__setattr__(self, field.name, as_tuples(value))

    def replace(self, **changes: Any) -> Self:
        """Return a copy with `changes`; an unknown name is refused with a guess."""
        for name in changes:
            check_known(name, field_names(self), f"{type(self).__name__}")
        return dataclasses.replace(self, **changes)


def checks_together(config: TrainConfig) -> bool:
    """Return whether a config's class has a `check_numbers` of its own."""
    return type(config).check_numbers is not TrainConfig.check_numbers


def as_tuples(value: Any) -> Any:
    """Return a value with tuples for its lists and frozen dicts for its dicts.

    So it can be hashed, and is the same whether Python or a file wrote it.

    Args:
        value: Anything; what is neither a list, a plain tuple nor a mapping stays.
    """
    if type(value) in (list, tuple):  # A named tuple keeps its names.
        return tuple(map(as_tuples, value))
    if isinstance(value, dict | FrozenDict):
        return FrozenDict({name: as_tuples(inner) for name, inner in value.items()})
    return value


def static_fields(config: Any) -> list[dataclasses.Field]:
    """Return the fields that are structure."""
    return [
        field
        for field in dataclasses.fields(config)
        if not field.metadata.get("pytree_node", True)
    ]


def field_names(config: Any) -> list[str]:
    """Return names of all fields of a config (or config class)."""
    return [field.name for field in dataclasses.fields(config)]


def nearest_divisors(total: int, number: int) -> str:
    """Name the divisors of a number below and above another, such as `4 or 6`.

    Args:
        total: Number that is to be divided.
        number: Number that does not divide it.
    """
    divisors = [n for n in range(1, total + 1) if total % n == 0]
    below = [n for n in divisors if n < number][-1:]
    above = [n for n in divisors if n > number][:1]
    return " or ".join(map(str, below + above))


def shortest(number: Any) -> float:
    """Return a number as the decimal with the fewest digits that is rounded to it.

    A float32 of 0.9 is 0.8999999761581421 as a float of Python, and nobody wrote that.

    Args:
        number: Single number `[]` of NumPy, JAX or Python, which is not traced.
    """
    return float(str(np.asarray(number)[()]))


def shown(value: Any, most: int = 200) -> str:
    """Write a value for a sentence: as Python does, or its class where that is long.

    Fractions of NumPy and JAX are written as Python's are.
    """
    is_array = isinstance(value, np.generic | np.ndarray | jax.Array)
    if is_array and value.shape == () and jnp.issubdtype(value.dtype, jnp.floating):
        value = shortest(value)
    text = repr(value)
    return text if len(text) <= most else f"an instance of {type(value).__name__}"


def how_to_read(value: Any) -> str:
    """Say how text that stands where a part should is read; nothing of other values.

    Args:
        value: Value that is no part, such as `"Adam(b1=0.9)"`.
    """
    if not isinstance(value, str):
        return ""
    is_file = value.strip().endswith((".npz", ".yaml"))
    call = "purerl.load_part" if is_file else "purerl.serialise.parse_part"
    return f" Text is for files and command lines: {call}({value!r}) reads it."


def check_known(name: str, known: list[str], owner: str) -> None:
    """Refuse a name that is not among the known ones.

    Args:
        name: Name that was given.
        known: Names that there are.
        owner: Owner of these names, for the message.

    Raises:
        UnknownFieldError: with a guess at what was meant.
    """
    if name in known:
        return
    guess = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {guess[0]!r}?" if guess else ""
    raise UnknownFieldError(
        f"{owner} has no field {name!r}.{hint} Fields: {', '.join(sorted(known))}."
    )


def check_mapping(name: str, value: Any, example: str) -> None:
    """Refuse what does not map names of fields to values; None does.

    Args:
        name: Name of the argument, for the message.
        value: Value that was given.
        example: A value that can be, as it is written in Python.

    Raises:
        ConfigError: with what was given, and the example.
    """
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{name} must map names of fields to values, got {shown(value)}; for "
            f"example {example}."
        )
    odd = [key for key in value if not isinstance(key, str)]
    if odd:
        raise ConfigError(
            f"{name} must map names of fields to values, got the name {odd[0]!r}; for "
            f"example {example}."
        )


def check_apart(names: Iterable[str], words: str) -> None:
    """Refuse names of which one lies inside another: what is set would depend on order.

    Args:
        names: Names, dotted where they reach inside a field.
        words: Who names them and the verb, such as `the axes name`.

    Raises:
        ConfigError: naming both.
    """
    known = list(names)
    for name in known:
        inside = [other for other in known if other.startswith(f"{name}.")]
        if inside:
            raise ConfigError(
                f"{words} {name} and {inside[0]}, which is inside it; leave one of "
                "them out."
            )


def validate_fields(config: TrainConfig) -> None:
    """Check every field by itself.

    Raises:
        ConfigError: naming the field, the value, the constraint and the remedy.
    """
    for field in dataclasses.fields(config):
        validate_field(field, getattr(config, field.name))
    if config.total_timesteps > MAX_ENV_STEPS:
        raise ConfigError(
            f"total_timesteps must be at most {MAX_ENV_STEPS} (a 32-bit counter), got "
            f"{config.total_timesteps}. Split the run in several."
        )


def is_auto(value: Any) -> bool:
    """Return whether a field's value is `AUTO`, or that word."""
    return isinstance(value, str) and value == AUTO


def number_of(config: TrainConfig, name: str) -> int:
    """Return a whole number of a config that is needed before the task is known.

    Raises:
        ConfigError: it is `auto`.
    """
    value = getattr(config, name)
    if is_auto(value):
        raise ConfigError(
            f"{name} is auto: it follows the task. purerl.resolve(config) gives the "
            "config with the number that it stands for."
        )
    return value


def validate_field(field: dataclasses.Field, value: Any, name: str = "") -> None:
    """Check a field's value by itself; of a part, such as an optimiser, its numbers.

    Args:
        field: The field.
        value: Value of the field.
        name: Name of the field in messages, with dots; the field's own name where not
            given.

    Raises:
        ConfigError: naming the field, the value, the constraint and the remedy.
    """
    name = name or field.name
    if isinstance(value, Auto) and isinstance(field.default, Auto):
        return
    if is_part(value):
        _validate_part(field, value, name)
        return
    if is_number(field) or field.type in (int, bool, "int", "bool"):
        _validate_number(field, value, name)
    check = field.metadata.get("check")
    # While something is traced, comparing an array of JAX would be traced too.
    is_known = _is_concrete(value)
    known = np.asarray(value) if is_known and isinstance(value, jax.Array) else value
    if check is not None and is_known and not check.holds(known):
        raise ConfigError(
            f"{name} {check.words}, got {shown(value)}.{_default(field)} "
            f"{field.metadata['help']}"
        )


def is_number(field: dataclasses.Field) -> bool:
    """Return whether a field is a number with a fraction, or such a number or None."""
    return field.type in (float, "float") or may_be_none(field)


def may_be_none(field: dataclasses.Field) -> bool:
    """Return whether a field is a number with a fraction or None."""
    return field.type in (float | None, "float | None")


def part_kind(name: str) -> str | None:
    """Return what kind of part a field holds by its name, None for a plain field.

    The kinds are `loss`, `optimiser` and `rule`.

    Args:
        name: Name of a config's field, such as `policy_loss` or `actor_optimiser`.
    """
    last = name.split("_")[-1]
    is_kind = name.endswith("_loss") or last in ("optimiser", "rule")
    return last if is_kind else None


def is_part(value: Any) -> bool:
    """Return whether a value is a callable dataclass: loss, optimiser or schedule."""
    is_instance = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return is_instance and callable(value)


def _validate_part(owner: dataclasses.Field, part: Any, name: str) -> None:
    """Check the numbers inside a part, and where a schedule leads its field."""
    if owner.type in _PLAIN:
        raise ConfigError(
            f"{name} must be a plain value, got {part!r}: it is no number with a "
            "fraction, so that it can be no schedule."
        )
    if is_number(owner) and not isinstance(part, Schedule):
        raise ConfigError(
            f"{name} must be a number or a schedule, got {part!r}; for example "
            "purerl.schedules.Linear(3e-4, 0.0). A schedule of your own derives from "
            "purerl.schedules.Schedule."
        )
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if "help" in field.metadata or is_part(value):
            validate_field(field, value, f"{name}.{field.name}")
    if is_number(owner) and isinstance(part, Schedule):
        _validate_course(owner, part, name)


def _validate_course(field: dataclasses.Field, schedule: Schedule, name: str) -> None:
    """Check what a schedule makes of a field, at many moments of the run."""
    if not field.metadata.get("moves", True):
        raise ConfigError(
            f"{name} cannot follow a schedule, got {schedule!r}: it is read at the "
            "start of a run only, or says itself how something moves. Give a number."
        )
    if not all(map(_is_concrete, jax.tree.leaves(schedule))):
        return
    shares = np.linspace(0.0, 1.0, _MOMENTS, endpoint=False, dtype=np.float32)
    try:
        with jax.ensure_compile_time_eval():
            course = np.asarray(jax.vmap(schedule)(jnp.asarray(shares)))
    except (TypeError, ValueError, NotImplementedError) as error:
        raise ConfigError(
            f"{name} is {schedule!r}, which failed on a share of the run: {error}"
        ) from error
    if course.shape != shares.shape:
        raise ConfigError(
            f"{name} is {schedule!r}, which must return one number for a share of the "
            f"run, and returned shape {course.shape[1:]}."
        )
    check = field.metadata.get("check")
    if check is POSITIVE and field.name.endswith("learning_rate"):
        check = NON_NEGATIVE  # A warm-up starts at a step of 0, and may.
    for share, value in zip(shares, course, strict=True):
        is_kept = check is None or check.holds(value)
        if not (math.isfinite(value) and is_kept):
            words = "must be finite" if is_kept or check is None else check.words
            raise ConfigError(
                f"{name} {words} in the whole run, and {schedule!r} makes it "
                f"{value:g} after {share:.1%} of it."
            )


def _validate_number(field: dataclasses.Field, value: Any, name: str) -> None:
    kind = {int: "int", float: "float", bool: "bool"}.get(field.type, field.type)  # type: ignore[call-overload]
    if not _is_concrete(value) or (may_be_none(field) and value is None):
        return
    if kind == "bool" and not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, got {value!r}.")
    if kind == "int" and (isinstance(value, bool) or not isinstance(value, int)):
        raise ConfigError(f"{name} must be a whole number, got {value!r}.")
    if is_number(field):
        if isinstance(value, bool) or not isinstance(
            value, int | float | np.number | np.ndarray | jax.Array
        ):
            hint = ", or a schedule such as purerl.schedules.Linear(1e-3, 0.0)"
            is_text = isinstance(value, str) and "(" in value
            moves = hint if callable(value) or is_text else ""
            got = repr(value)
            if isinstance(value, type):
                call = f"call it to make one: {value.__name__}(...)"
                got = f"the class {value.__name__}; {call}"
            rest = how_to_read(value) if is_text else ""
            raise ConfigError(f"{name} must be a number{moves}, got {got}.{rest}")
        if np.shape(value) != ():
            raise ConfigError(
                f"{name} must be a single number, got shape {np.shape(value)}. "
                "Train several values with jax.vmap(train, in_axes=(None, 0))(key, "
                f'{{"{name}": values}}).'
            )
        if not math.isfinite(float(value)):
            raise ConfigError(
                f"{name} must be finite, got {shown(value)}.{_default(field)}"
            )


def _default(field: dataclasses.Field) -> str:
    """The sentence about a field's default; nothing where there is none."""
    missing = field.default is dataclasses.MISSING
    return "" if missing else f" Default: {field.default!r}."


def _is_concrete(value: Any) -> bool:
    return not isinstance(value, Tracer)


def apply_overrides(config: TrainConfig, overrides: Overrides | None) -> TrainConfig:
    """Replace dynamic fields by (dotted) name.

    Args:
        config: Config to start from; it is not changed.
        overrides: Name of a dynamic field -> value. Dots reach inside:
            `"env_params.length"`, `"policy_loss.clip_eps"`.

    Raises:
        ConfigError: no mapping, unknown or static field, a name inside another, or a
            value of another shape.
    """
    check_mapping("overrides", overrides, '{"learning_rate": 1e-3}')
    check_apart(overrides or {}, "the overrides name")
    for path, value in (overrides or {}).items():
        config = _replace_at(config, path.split("."), value, path)
    return config


def _replace_at(node: Any, keys: list[str], value: Any, path: str) -> Any:
    name, rest = keys[0], keys[1:]
    if node is None or isinstance(node, Mapping):
        # `env_params` by name: checked against the environment when it is bound.
        inner = dict(node or {})
        inner[name] = _replace_at(inner.get(name), rest, value, path) if rest else value
        return inner
    if not dataclasses.is_dataclass(node):
        raise ConfigError(f"override {path!r}: {name!r} is not inside a structure.")
    owner = f"override {path!r}: {type(node).__name__}"
    check_known(name, field_names(node), owner)
    field = next(f for f in dataclasses.fields(node) if f.name == name)
    if not field.metadata.get("pytree_node", True):
        raise ConfigError(
            f"{path!r} is static: it fixes shapes or the program, so it cannot be "
            f"overridden or vmapped. Use config.replace({name}=...) and a new "
            "make_train for each value."
        )
    current = getattr(node, name)
    if rest:
        if current is None and name != "env_params":
            raise ConfigError(
                f"override {path!r}: {name} is None, which has nothing inside; set "
                f"{name} in the config first. {field.metadata.get('help', '')}"
            )
        new = _replace_at(current, rest, value, path)
    else:
        new = _same_shape(current, value, path)
        if _is_concrete(new) and "help" in field.metadata:
            validate_field(field, new, path)  # A traced value cannot be looked at.
    return dataclasses.replace(node, **{name: new})  # type: ignore[type-var]


def _same_shape(current: Any, value: Any, path: str) -> Any:
    """`value`, refused where its leaves have another shape than the current ones."""
    if current is None or isinstance(current, Mapping):
        return value
    if isinstance(current, Auto) or isinstance(current, Schedule):
        current = 0.0  # What it stands for is a number.
    if isinstance(value, Schedule) and jax.tree_util.all_leaves([current]):
        return value  # A number that begins to move.
    old, new = jax.tree.structure(current), jax.tree.structure(value)
    # What is called as a part is, but is none, gets the sentence of its own check.
    if is_part(current) and not callable(value):
        raise ConfigError(
            f"override {path!r} must be of the kind of {current!r}, got "
            f"{type(value).__name__}; its numbers are overridden by name, such as "
            f"{path + '.' + next(iter(field_names(current)), 'field')!r}."
            f"{how_to_read(value)}"
        )
    if old != new:
        # By its structure alone, a loss without numbers would be taken for a number.
        if jax.tree_util.all_leaves([current]):
            raise ConfigError(
                f"override {path!r} must be a number, got {type(value).__name__}."
            )
        return value  # Another kind of loss: its shapes are its own.
    pairs = zip(jax.tree.leaves(current), jax.tree.leaves(value), strict=True)
    for mine, theirs in pairs:
        if np.shape(mine) != np.shape(theirs):
            raise ConfigError(
                f"override {path!r} has shape {np.shape(theirs)}, expected "
                f"{np.shape(mine)}. To train one agent per value, use jax.vmap(train, "
                "in_axes=(None, 0))(key, overrides)."
            )
    return value

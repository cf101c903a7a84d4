"""Configs: frozen dataclasses whose static fields are structure and leaves numbers."""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax.core import FrozenDict
from jax.core import Tracer

from purerl.errors import (
    ConfigError,
    check_apart,
    check_known,
    check_mapping,
    how_to_read,
    shown,
)
from purerl.errors import UnknownFieldError as UnknownFieldError
from purerl.errors import check_idle as check_idle
from purerl.errors import nearest_divisors as nearest_divisors
from purerl.errors import shortest as shortest
from purerl.errors import tried as tried
from purerl.fields import (
    AUTO,
    FRACTION,
    FUNCTIONS,
    NAMES,
    NON_NEGATIVE,
    POSITIVE,
    Auto,
    Check,
    as_float32,
    as_python,
    as_tuples,
    config_dataclass,
    dynamic,
    field_names,
    is_auto,
    is_number,
    is_part,
    is_real,
    may_be_none,
    one_of,
    static,
    static_fields,
)
from purerl.fields import DECAY as DECAY
from purerl.fields import LAYERS as LAYERS
from purerl.fields import PART_KINDS as PART_KINDS
from purerl.fields import POSITIVE_OR_NONE as POSITIVE_OR_NONE
from purerl.fields import SIZES as SIZES
from purerl.fields import part_kind as part_kind
from purerl.fields import thaw as thaw
from purerl.types import Array, Overrides, Schedule

ENV_FIELDS = ("env", "env_kwargs", "env_wrappers", "env_params", "randomise_per")
"""Fields that say in what an agent is trained."""
TASK_FIELDS = (
    *ENV_FIELDS,
    *("total_timesteps", "reset_scheme", "reset_pool_size"),
    *("num_evaluations", "eval_episodes", "eval_max_steps", "eval_share"),
)
"""Fields that are the same for every algorithm that is given one task: in what it is
trained, for how long, and how it is judged."""


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
        Check(lambda x: 0 <= x <= 10**6, "must be 0 or greater and at most 1,000,000"),
    )
    eval_episodes: int = static(16, "Episodes of one evaluation.", POSITIVE)
    eval_max_steps: int = static(
        0,
        "Longest evaluation episode in steps; 0 takes the environment's time limit, "
        "27,000 at most.",
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
    extra_loss: Any = dynamic(
        None,
        "Terms of your own in the loss, each with a coef: one, several, or by name.",
    )
    max_bad_transitions: float = static(
        0.01,
        "Share of total_timesteps that may be bad transitions, whose observation or "
        "reward is not finite; an agent with more counts as diverged.",
        FRACTION,
    )
    frozen: tuple[str, ...] = static(
        (),
        "Parts of the networks that do not learn, by name: torso, actor.torso, critic.",
        NAMES,
    )

    metrics: tuple[Any, ...] = static(
        (),
        "Functions (state, batch, metrics) of your own, such as lab:mean_action, that "
        "make a number of every update, or several by name.",
        FUNCTIONS,
    )

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one update, `num_envs * num_steps` of a rollout."""
        if hasattr(self, "num_steps"):
            return self.num_envs * number_of(self, "num_steps")
        raise NotImplementedError(
            f"{type(self).__name__} must have a property steps_per_update: the "
            "environment steps of one update, such as self.num_envs * self.num_steps."
        )

    @property
    def sequential_steps(self) -> int:
        """Operations of one update that wait for one another; weighs evaluations.

        They are those of a rollout and one gradient step, where nothing else is said.
        """
        if hasattr(self, "num_steps"):
            return number_of(self, "num_steps") + 1
        raise NotImplementedError(
            f"{type(self).__name__} must have a property sequential_steps: environment "
            "and gradient steps of one update that wait for one another, such as "
            "self.num_steps + self.num_epochs * self.num_minibatches."
        )

    def learned_share(self, update: Array) -> Array:
        """Return the share of the run's learning before an update, `[]`.

        With it `anneal_learning_rate` decays: of updates, or of gradient steps where
        they begin late.

        Args:
            update: `[]` int32, number of updates done.
        """
        return update / max(1, self.total_timesteps // self.steps_per_update)

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
        # Normalise what people write: 5e5 or NumPy's 4 for an integer, lists, "auto".
        for field in dataclasses.fields(self):
            if isinstance(field.default, Auto) and is_auto(getattr(self, field.name)):
                object.__setattr__(self, field.name, AUTO)
        object.__setattr__(self, "extra_loss", named_terms(self.extra_loss))
        for field in static_fields(self):
            value = as_python(getattr(self, field.name), field)
            is_whole = isinstance(value, float) and value.is_integer()
            if field.type in (int, "int") and is_whole:
                value = int(value)
            elif isinstance(value, list | tuple | dict | FrozenDict):
                value = as_tuples(value)  # Lists, as files have them, have no hash.
            object.__setattr__(self, field.name, value)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with `changes`; an unknown name is refused with a guess."""
        for name in changes:
            check_known(name, field_names(self), f"{type(self).__name__}")
        return dataclasses.replace(self, **changes)


def checks_together(config: TrainConfig) -> bool:
    """Return whether a config's class has a `check_numbers` of its own."""
    return type(config).check_numbers is not TrainConfig.check_numbers


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


def named_terms(value: Any) -> Any:
    """Return several terms by name, one term as it is.

    Raises:
        ConfigError: two terms have one name, or a name is no word.
    """
    if isinstance(value, list | tuple):
        names = [term_name(term) for term in value]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ConfigError(
                f"extra_loss has two terms {twice[0]!r}, and each is reported by its "
                f"name; name them: {{'first_{twice[0]}': ..., "
                f"'second_{twice[0]}': ...}}."
            )
        value = dict(zip(names, value, strict=True))
    if not isinstance(value, Mapping):
        return value
    odd = [n for n in value if not (isinstance(n, str) and n.isidentifier())]
    if odd:
        raise ConfigError(f"the names of extra_loss must be words, got {odd[0]!r}.")
    return FrozenDict(value) if value else None


def term_name(term: Any) -> str:
    """Return the name of a term that was given none: its class, in small letters."""
    words = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"
    return re.sub(words, "_", type(term).__name__).lower()


MAX_ENV_STEPS = 2**32 - 1  # `env_steps` is an unsigned 32-bit counter.
_MAX_NUMBER = 2**31 - 1  # The largest whole number of a program.
_PLAIN = (int, bool, str, "int", "bool", "str")  # types of fields that hold no part
_MOMENTS = 256  # at which the course of a schedule is checked


def validate_fields(config: TrainConfig) -> None:
    """Check every field by itself.

    Raises:
        ConfigError: naming the field, the value, the constraint and the remedy.
    """
    for field in dataclasses.fields(config):
        validate_field(field, getattr(config, field.name))


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
    if is_part(value) and (
        field.metadata.get("pytree_node", True) or field.type in _PLAIN
    ):
        _validate_part(field, value, name)
        return
    if is_number(field) or field.type in (int, bool, "int", "bool"):
        _validate_number(field, value, name)
    check = field.metadata.get("check")
    # While something is traced, comparing an array of JAX would be traced too.
    known = np.asarray(value) if is_real(value) else value
    if check is not None and is_concrete(value):
        reason = "" if check.holds(known) else "."
        if not reason and is_number(field) and value is not None:
            number = as_float32(known)
            words = f", which counts as {number:g} in float32."
            reason = "" if check.holds(number) else words
        if reason:
            raise ConfigError(
                f"{name} {check.words}, got {shown(value)}{reason}{_default(field)} "
                f"{field.metadata['help']}"
            )


def _validate_part(owner: dataclasses.Field, part: Any, name: str) -> None:
    """Check the numbers inside a part, and where a schedule leads its field."""
    if owner.type in _PLAIN:
        raise ConfigError(f"{name} must be a plain value, got {shown(part)}.")
    if is_number(owner) and not isinstance(part, Schedule):
        raise ConfigError(
            f"{name} must be a number or a schedule, got {shown(part)}; for example "
            "purerl.schedules.Linear(3e-4, 0.0)."
        )
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if "help" in field.metadata or is_part(value):
            validate_field(field, value, f"{name}.{field.name}")
    if is_number(owner):
        _validate_course(owner, part, name)


def _validate_course(field: dataclasses.Field, schedule: Schedule, name: str) -> None:
    """Check what a schedule makes of a field, at many moments of the run."""
    if not field.metadata.get("moves", True):
        reason = "it says itself how something moves"
        if field.metadata.get("stays"):
            reason = "what was learned means something else with another number"
        raise ConfigError(
            f"{name} cannot follow a schedule, got {schedule!r}: {reason}. Give a "
            "number."
        )
    if not all(map(is_concrete, jax.tree.leaves(schedule))):
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
    if not is_concrete(value) or (may_be_none(field) and value is None):
        return
    if kind == "bool" and not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, got {shown(value)}.")
    if kind == "int" and (isinstance(value, bool) or not isinstance(value, int)):
        raise ConfigError(f"{name} must be a whole number, got {shown(value)}.")
    most = MAX_ENV_STEPS if name == "total_timesteps" else _MAX_NUMBER
    if kind == "int" and value > most:
        got = shown(value)
        raise ConfigError(f"{name} must be at most {most} (32 bits), got {got}.")
    if not is_number(field):
        return
    if not _is_number(value):
        rest = how_to_read(value)
        if field.metadata.get("pytree_node", True):
            rest += " A schedule may be, such as purerl.schedules.Linear(1e-3, 0.0)."
        raise ConfigError(f"{name} must be a number, got {shown(value)}.{rest}")
    if np.shape(value) != ():
        raise ConfigError(
            f"{name} must be a single number, got shape {np.shape(value)}. A sweep, or "
            f'jax.vmap(train, in_axes=(None, 0))(key, {{"{name}": values}}), trains '
            "several."
        )
    if not np.isfinite(as_float32(value)):
        raise ConfigError(
            f"{name} must be finite, got {shown(value)}.{_default(field)} "
            f"{field.metadata.get('help', '')}".rstrip()
        )


def _is_number(value: Any) -> bool:
    """Return whether a value is a real number, or an array of such."""
    if isinstance(value, int | float) or not is_real(value):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return not jnp.issubdtype(value.dtype, np.bool_)


def _default(field: dataclasses.Field) -> str:
    """The sentence about a field's default; nothing where there is none."""
    missing = field.default is dataclasses.MISSING
    return "" if missing else f" Default: {field.default!r}."


def is_concrete(value: Any) -> bool:
    """Return whether a value can be looked at, because nothing traces it."""
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
        if isinstance(field.default, Auto) and is_auto(value):
            value = AUTO  # The word, as people and files write it.
        new = value if _is_absence(field, value) else _same_shape(current, value, path)
        if is_concrete(new) and "help" in field.metadata:
            validate_field(field, new, path)  # A traced value cannot be looked at.
    return dataclasses.replace(node, **{name: new})  # type: ignore[type-var]


def _numbers_inside(part: Any, path: str) -> str:
    """Say how the numbers of a part are overridden; nothing of what is no part."""
    fields = dataclasses.fields(part) if is_part(part) else ()
    names = [f.name for f in fields if f.metadata.get("pytree_node", True)]
    paths = ", ".join(f"{path}.{name}" for name in names)
    return f" Its numbers are overridden by name: {paths}." if paths else ""


def _is_absence(field: dataclasses.Field, value: Any) -> bool:
    """Return whether a value is the `None` or the `auto` that a field may hold.

    It has no leaves, where a number has one: it is structure, and another program.
    """
    if value is None:
        return may_be_none(field) or field.default is None
    return isinstance(value, Auto) and isinstance(field.default, Auto)


def _same_shape(current: Any, value: Any, path: str) -> Any:
    """`value`, refused where its leaves have another shape than the current ones."""
    if current is None or isinstance(current, Mapping):
        return value
    if isinstance(current, Auto) or isinstance(current, Schedule):
        current = 0.0  # What it stands for is a number.
    if isinstance(value, Schedule) and jax.tree_util.all_leaves([current]):
        return value  # A number that begins to move.
    old, new = jax.tree.structure(current), jax.tree.structure(value)
    is_one = jax.tree_util.all_leaves([current])
    # What is called as a part is, but is none, gets the sentence of its own check.
    if (is_part(current) and not callable(value)) or (is_one and old != new):
        kind = "a number" if is_one else f"of the kind of {current!r}"
        got = type(value).__name__ if is_concrete(value) else shown(value)
        raise ConfigError(
            f"override {path!r} must be {kind}, got {got}."
            f"{how_to_read(value)}{_numbers_inside(current, path)}"
        )
    if old != new:
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

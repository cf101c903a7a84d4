"""The fields that every algorithm's config has."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Self

from flax.core import FrozenDict

from purerl.config.errors import ConfigError, check_known
from purerl.config.fields import (
    AUTO,
    FRACTION,
    FUNCTIONS,
    NAMES,
    NON_NEGATIVE,
    POSITIVE,
    Auto,
    Check,
    as_python,
    as_tuples,
    config_dataclass,
    dynamic,
    field_names,
    is_auto,
    one_of,
    static,
    static_fields,
)
from purerl.types import Array

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

"""Strategies as they are asked for: a name and numbers, as code, text or YAML.

The published experiments ran on evosax 0.0.4 and 0.1, whose defaults differ much from
those of today: here sigma, its schedule and Adam are always explicit, and what was
published has a name.
"""

import ast
import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from purerl.config import ConfigError, as_float32, check_mapping

# Fields that are numbers, or None.
NUMBERS = (
    "sigma",
    "sigma_decay",
    "sigma_limit",
    "learning_rate",
    "learning_rate_decay",
    "learning_rate_limit",
    "beta1",
    "beta2",
    "eps",
)
# Algorithms of evosax that cannot be used here, with the reason.
EXCLUDED = {
    "RandomSearch": "it needs a sampling function",
    "SV_CMA_ES": "its populations are several",
    "SV_Open_ES": "its populations are several",
    "LES": "its weights are pickled files",
    "LGA": "its weights are pickled files",
    "LearnedGA": "its weights are pickled files",
    "EvoTF_ES": "its weights are pickled files",
    "CMAAnchoredLES": "its weights are pickled files",
}

# Algorithms that are told what a part of a training run was worth.
TRUNCATED = ("PersistentES", "NoiseReuseES")

# Algorithms with a mean that compare fitness with that of earlier generations.
COMPARING = (
    "GradientlessDescent",
    "HillClimbing",
    "Rm_ES",
    "SimulatedAnnealing",
    "iAMaLGaM_Full",
    "iAMaLGaM_Univariate",
)

SHAPINGS = ("auto", "none", "centered_rank", "z_score", "normalize")


@dataclasses.dataclass(frozen=True)
class Strategy:
    """The strategy that moves a population; case, `-` and `_` of its name do not tell.

    Attributes:
        name: The name: `open-es`, `cma-es`, `sep-cma-es`, `snes`, `pgpe`, `simple-ga`,
            ...
        sigma: The standard deviation of the first population around its start, in the
            units of `purerl.meta.genome`'s scales.
        sigma_decay: The factor of sigma per generation, where the strategy does not
            adapt sigma.
        sigma_limit: The value at which the decay of sigma ends, if it decays.
        learning_rate: Adam's step size; None keeps the strategy's own optimiser.
        learning_rate_decay: The factor of the step size per generation.
        learning_rate_limit: The value at which the decay of the step size ends, if it
            decays.
        beta1: Adam's decay of the gradient's average.
        beta2: Adam's decay of the squared gradient's average.
        eps: Adam's addition to the denominator.
        shaping: The shaping of fitness: `centered_rank`, `z_score`, `normalize`,
            `none`; `auto` is the strategy's own.
        antithetic: Whether Open-ES draws pairs around the mean.
        options: Further options of the strategy, by evosax's names.
    """

    name: str
    sigma: float = 0.1
    sigma_decay: float = 1.0
    sigma_limit: float = 0.0
    learning_rate: float | None = None
    learning_rate_decay: float = 1.0
    learning_rate_limit: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    shaping: str = "auto"
    antithetic: bool = True
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the strategy as plain values."""
        return {**dataclasses.asdict(self), "options": dict(self.options)}


# evosax 0.1's OpenES with Adam (note beta1), on which the published value losses ran.
_OPEN_ES = Strategy(
    name="Open_ES",
    sigma=0.03,
    sigma_limit=0.01,
    learning_rate=0.05,
    learning_rate_limit=0.001,
    beta1=0.99,
    shaping="centered_rank",
)
PRESETS = {
    "open-es": _OPEN_ES,
    # evosax 0.0.4 as Lu et al. 2022 ran it for drifts.
    "open-es-lpo": dataclasses.replace(
        _OPEN_ES,
        sigma=0.04,
        sigma_decay=0.999,
        learning_rate=0.01,
        learning_rate_decay=0.999,
        shaping="z_score",
    ),
    # Goldie et al. 2025 for learned policy optimisation.
    "open-es-goldie": dataclasses.replace(
        _OPEN_ES,
        sigma=0.03,
        sigma_decay=0.99,
        learning_rate=0.03,
        learning_rate_decay=0.99,
    ),
    # For parts of runs (`truncation`). Adam makes the scale of the fitness immaterial.
    "persistent-es": Strategy(name="PersistentES", sigma=0.03, learning_rate=0.01),
    "noise-reuse-es": Strategy(name="NoiseReuseES", sigma=0.03, learning_rate=0.01),
}


def algorithms() -> dict[str, Any]:
    """Return every algorithm that can be used here, by its name in evosax."""
    from evosax import algorithms as known

    return {name: cls for name, cls in known.algorithms.items() if name not in EXCLUDED}


def OpenES(**changes: Any) -> Strategy:  # noqa: N802  (reads like the class it makes)
    """Return Open-ES (Salimans et al. 2017) with Adam, with evosax 0.1's defaults.

    Args:
        **changes: Fields of `Strategy` that differ.

    Raises:
        ConfigError: an unknown field.
    """
    return _changed(_OPEN_ES, changes)


def read_strategy(given: "str | Mapping[str, Any] | Strategy") -> Strategy:
    """Read a strategy: its name, `"cma-es(sigma=0.2)"`, a mapping, or one as it is.

    Raises:
        ConfigError: an unknown strategy or field, or a value that cannot be.
    """
    if isinstance(given, Strategy):
        strategy = given
    elif isinstance(given, str):
        strategy = read_strategy(_parse(given))
    elif isinstance(given, Mapping):
        values = dict(given)
        name = str(values.pop("name", "open-es"))
        presets = {_plain(known): preset for known, preset in PRESETS.items()}
        preset = presets.get(_plain(name), Strategy(name=name))
        strategy = _changed(preset, values)
    else:
        raise ConfigError(f"strategy must be a name or a Strategy, got {given!r}.")
    plain = (*NUMBERS, "antithetic")
    numbers = {name: _as_python(getattr(strategy, name)) for name in plain}
    strategy = dataclasses.replace(strategy, name=_known(strategy.name), **numbers)
    _check(strategy)
    return strategy


def names() -> list[str]:
    """Return every strategy's name, the presets first."""
    others = (_normal(name) for name in algorithms())
    return [*PRESETS, *(name for name in others if name not in PRESETS)]


def _parse(text: str) -> dict[str, Any]:
    name, bracket, rest = text.strip().partition("(")
    if not bracket:
        return {"name": name}
    try:
        call = ast.parse(f"f({rest}", mode="eval").body
        assert isinstance(call, ast.Call) and not call.args
        values = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError, AssertionError, RecursionError, MemoryError):
        raise ConfigError(
            f"cannot read the strategy {text!r}; write for example open-es(sigma=0.05)."
        ) from None
    return {"name": name.strip(), **values}


def _changed(strategy: Strategy, changes: Mapping[str, Any]) -> Strategy:
    known = [field.name for field in dataclasses.fields(Strategy)]
    fields = {name: value for name, value in changes.items() if name in known}
    # Any other name is the algorithm's: checked against it when it is made.
    others = {name: value for name, value in changes.items() if name not in known}
    given = fields.pop("options", {})
    check_mapping("strategy: options", given, '{"std_min": 0.01}')
    options = {**strategy.options, **(given or {}), **others}
    return dataclasses.replace(strategy, **fields, options=options)


def _normal(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(" ", "-")


def _plain(name: str) -> str:
    return _normal(name).replace("-", "")


def _known(name: str) -> str:
    """The spelling of a name in evosax.

    Raises:
        ConfigError: there is no such strategy.
    """
    for known in algorithms():
        if _plain(known) == _plain(name):
            return known
    for known, why in EXCLUDED.items():
        if _plain(known) == _plain(name):
            raise ConfigError(f"strategy {name} cannot be used here: {why}.")
    guess = difflib.get_close_matches(_normal(name), names(), n=1)
    hint = f" Did you mean {guess[0]!r}?" if guess else ""
    raise ConfigError(
        f"there is no strategy {name!r}.{hint} Strategies: {', '.join(names())}."
    )


def _check(strategy: Strategy) -> None:
    def refuse(name: str, must: str) -> None:
        value = getattr(strategy, name)
        raise ConfigError(f"strategy: {name} must be {must}, got {value!r}.")

    for name in NUMBERS:
        value = getattr(strategy, name)
        if value is None and name == "learning_rate":
            continue
        may_be_zero = name.endswith("_limit") or name.startswith("beta")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        number = as_float32(value) if is_number else np.nan
        if not (number > 0 or (number == 0 and may_be_zero)) or number == np.inf:
            refuse(name, "0 or greater" if may_be_zero else "greater than 0")
        if name.startswith("beta") and number >= 1:
            refuse(name, "less than 1")
    for name in ("sigma", "learning_rate"):
        value, least = getattr(strategy, name), getattr(strategy, f"{name}_limit")
        decays = getattr(strategy, f"{name}_decay") != 1
        if value is not None and decays and value < least:
            raise ConfigError(
                f"strategy: {name} decays to {name}_limit ({least:g}) and must be at "
                f"least that, got {value:g}; give a smaller {name}_limit as well."
            )
    if strategy.name == _OPEN_ES.name and strategy.learning_rate is None:
        raise ConfigError(
            "strategy: Open-ES needs a learning_rate for Adam, got None; "
            "purerl.OpenES() has the published defaults."
        )
    if not isinstance(strategy.antithetic, bool | int):
        refuse("antithetic", "True or False")
    if strategy.shaping not in SHAPINGS:
        refuse("shaping", f"one of {', '.join(SHAPINGS)}")
    for name, value in strategy.options.items():
        if isinstance(value, str):
            raise ConfigError(f"strategy: {name} must be a number, got {value!r}.")


def _as_python(value: Any) -> Any:
    """A number of NumPy or JAX as one of Python, which files hold; others stay."""
    is_number = isinstance(value, np.generic | np.ndarray | jax.Array)
    return value.item() if is_number and np.ndim(value) == 0 else value

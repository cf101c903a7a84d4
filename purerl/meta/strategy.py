"""Strategies as they are asked for: a name and numbers, as code, text or YAML.

The published experiments ran on evosax 0.0.4 and 0.1, whose defaults differ much from
those of today: here sigma, its schedule and Adam are always explicit, and what was
published has a name.

`Optimiser` is a strategy at work on a genome. evosax minimises, purerl's fitness is to
be maximised: the sign is turned once, in `Optimiser.tell`.
"""

import dataclasses
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.config import (
    DECAY,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_OR_NONE,
    ConfigError,
    check_known,
    check_mapping,
    dynamic,
    one_of,
    static,
    validate_field,
)
from purerl.envs.adapters.packages import read_values
from purerl.meta.genome import Genome
from purerl.scale.host import to_host
from purerl.types import Array, Overrides, PyTree

# Algorithms of evosax that cannot be used here: they need a sampling function, have
# several populations, read pickled weights, or start with another spread than sigma.
EXCLUDED = (
    *("RandomSearch", "SV_CMA_ES", "SV_Open_ES", "LES", "LGA", "LearnedGA"),
    *("EvoTF_ES", "CMAAnchoredLES", "iAMaLGaM_Full", "iAMaLGaM_Univariate"),
)

# Algorithms that are told what a part of a training run was worth.
TRUNCATED = ("PersistentES", "NoiseReuseES")

# Algorithms with a mean that compare fitness with that of earlier generations.
COMPARING = ("GradientlessDescent", "HillClimbing", "Rm_ES", "SimulatedAnnealing")

# How fitness is shaped, and evosax's function that does it; by the strategy if `auto`.
SHAPINGS = {
    "auto": "",
    "none": "identity_fitness_shaping_fn",
    "centered_rank": "centered_rank_fitness_shaping_fn",
    "z_score": "standardize_fitness_shaping_fn",
    "normalize": "normalize_fitness_shaping_fn",
}


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
    sigma: float = dynamic(0.1, "Std of the first population.", POSITIVE)
    sigma_decay: float = dynamic(1.0, "Factor of sigma per generation.", POSITIVE)
    sigma_limit: float = dynamic(0.0, "Smallest sigma.", NON_NEGATIVE)
    learning_rate: float | None = dynamic(
        None, "Step size of Adam; None without Adam.", POSITIVE_OR_NONE
    )
    learning_rate_decay: float = dynamic(
        1.0, "Factor of the step size per generation.", POSITIVE
    )
    learning_rate_limit: float = dynamic(0.0, "Smallest step size.", NON_NEGATIVE)
    beta1: float = dynamic(0.9, "Adam's decay of the mean gradient.", DECAY)
    beta2: float = dynamic(0.999, "Adam's decay of the mean square.", DECAY)
    eps: float = dynamic(1e-8, "Number that Adam adds to the root.", POSITIVE)
    shaping: str = static("auto", "How fitness is shaped.", one_of(*SHAPINGS))
    antithetic: bool = static(True, "Whether Open-ES draws pairs around the mean.")
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


def may_cut(name: str) -> bool:
    """Return whether an algorithm compares no member with those of earlier generations.

    Those with a population instead of a mean do.
    """
    return name not in COMPARING and hasattr(algorithms()[name], "get_mean")


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
    plain = {
        name: value.item()  # A number of Python, which files hold.
        for name, value in vars(strategy).items()
        if isinstance(value, np.generic | np.ndarray | jax.Array) and not np.ndim(value)
    }
    strategy = dataclasses.replace(strategy, name=_known(strategy.name), **plain)
    _check(strategy)
    return strategy


def names() -> list[str]:
    """Return every strategy's name, the presets first."""
    others = (_normal(name) for name in algorithms())
    return [*PRESETS, *(name for name in others if name not in PRESETS)]


def _parse(text: str) -> dict[str, Any]:
    name, bracket, rest = text.strip().partition("(")
    try:
        found = read_values(f"{_plain(name)}{bracket}{rest}")[0]
    except (ValueError, KeyError):
        raise ConfigError(
            f"cannot read the strategy {text!r}; write for example open-es(sigma=0.05)."
        ) from None
    options = found if isinstance(found, dict) else {}
    return {**{n: x for n, x in options.items() if n != "type"}, "name": name.strip()}


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
    raise ConfigError(
        f"there is no strategy {name!r} here. Strategies: {', '.join(names())}."
    )


def _check(strategy: Strategy) -> None:
    for field in dataclasses.fields(strategy):
        value = getattr(strategy, field.name)
        if "help" in field.metadata:
            validate_field(field, value, f"strategy: {field.name}")
    for name in ("sigma", "learning_rate"):
        value, least = getattr(strategy, name), getattr(strategy, f"{name}_limit")
        decays = getattr(strategy, f"{name}_decay") != 1
        if value is not None and decays and value < least:
            raise ConfigError(
                f"strategy: {name} decays to {name}_limit ({least:g}) and must be at "
                f"least that, got {value:g}; give a smaller {name}_limit as well."
            )
    if strategy.name == _OPEN_ES.name and strategy.learning_rate is None:
        raise ConfigError("strategy: Open-ES needs a learning_rate for Adam, got None.")
    for name, value in strategy.options.items():
        if isinstance(value, str):
            raise ConfigError(f"strategy: {name} must be a number, got {value!r}.")


class Optimiser:
    """A strategy over a genome: ask and tell, each compiled once.

    States pass through the host, so that a restored one meets the same programs.

    Args:
        strategy: The strategy.
        genome: The numbers that are evolved.
        population: The number of members of a generation, P.

    Attributes:
        is_distribution: Whether the strategy has a mean, rather than a population.
    """

    def __init__(self, strategy: Strategy, genome: Genome, population: int) -> None:
        self.strategy, self.genome, self.population = strategy, genome, population
        make = _as_evosax_writes(_make)
        self.algorithm = make(strategy, population, genome.size)
        self.params = _as_evosax_writes(_params)(strategy, self.algorithm)
        self.is_distribution = hasattr(self.algorithm, "get_mean")
        self._ask = jax.jit(_as_evosax_writes(self._ask_and_decode))
        self._tell = jax.jit(_as_evosax_writes(self._tell_loss))
        self._has_schedule = "std_schedule" in _arguments(type(self.algorithm))

    def init(self, key: Array) -> PyTree:
        """Return the state before the first generation, on the host."""
        init = jax.jit(_as_evosax_writes(self._init))
        return to_host(init(key, self.genome.start()))

    def ask(self, key: Array, state: PyTree) -> tuple[np.ndarray, Overrides, PyTree]:
        """Ask for the next population.

        Returns:
            Vectors `[P, D]`, their overrides with leaves `[P, ...]`, and the new
            state, all on the host.

        Raises:
            ConfigError: the strategy has broken down, as some do in few dimensions.
        """
        vectors, overrides, state = to_host(self._ask(key, state))
        if not np.isfinite(vectors).all():
            raise ConfigError(
                f"strategy: {self.strategy.name} proposed numbers that are not finite "
                f"over {self.genome.size} of them; choose another one."
            )
        return vectors, overrides, state

    def tell(
        self, key: Array, vectors: np.ndarray, fitness: np.ndarray, state: PyTree
    ) -> PyTree:
        """Return the state after a generation.

        Args:
            key: The key of this generation.
            vectors: Vectors of the members, `[P, D]`, from `ask`.
            fitness: The worth of the members, `[P]`, greater is better; NaN for members
                that failed.
            state: The state from `ask`.
        """
        if not np.isfinite(fitness).any():
            if self.strategy.name not in TRUNCATED:
                return state  # Nothing was learned: ask again, with another key.
            # A truncated strategy counts the parts of a run, so it must be told of this
            # one; with equal fitness its mirrored pairs cancel each other.
            fitness = np.zeros_like(fitness)
        # evosax minimises. This is the only place where the sign is turned.
        loss = with_failed_worst(-np.asarray(fitness, np.float32))
        return to_host(self._tell(key, vectors, loss, state))

    def mean(self, state: PyTree) -> np.ndarray | None:
        """Return the mean `[D]` of the distribution, where there is one."""
        return np.asarray(state.mean) if self.is_distribution else None

    def sigma(self, state: PyTree) -> float:
        """Return the mean standard deviation, NaN for a strategy without one."""
        return float(np.mean(getattr(state, "std", np.nan)))

    def _init(self, key: Array, start: Array) -> PyTree:
        key_init, key_population = jax.random.split(key)
        if self.is_distribution:
            state = self.algorithm.init(key_init, start, self.params)
            # Its first population has the spread of sigma, which is in the step.
            is_xnes = self.strategy.name == "xNES"
            return state.replace(B=jnp.eye(start.size)) if is_xnes else state
        noise = jax.random.normal(key_population, (self.population, start.size))
        noise = noise.at[0].set(0.0)  # One member starts where the config is.
        vectors = start[None] + self.strategy.sigma * noise
        # The initial population has the worst possible fitness, so that whatever is
        # told first replaces it.
        worst = jnp.full(self.population, jnp.finfo(jnp.float32).max)
        return self.algorithm.init(key_init, vectors, worst, self.params)

    def _ask_and_decode(self, key: Array, state: PyTree) -> Any:
        vectors, state = self.algorithm.ask(key, state, self.params)
        if not self.is_distribution:
            # The first generation is the initial population itself.
            is_first = state.generation_counter == 0
            vectors = jnp.where(is_first, state.population, vectors)
        return vectors, self.genome.decode(vectors), state

    def _tell_loss(self, key: Array, vectors: Array, loss: Array, state: PyTree) -> Any:
        state, _ = self.algorithm.tell(key, vectors, loss, state, self.params)
        if self._has_schedule:
            # evosax's own schedule is a generation late: it repeats the first sigma.
            std = _schedule(self.strategy)(state.generation_counter)
            state = state.replace(std=jnp.broadcast_to(std, jnp.shape(state.std)))
        return state


def _as_evosax_writes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an evosax function: rank promotion allowed, deprecation warnings hidden.

    It lets arrays of different ranks meet, and calls names of optax that will go.
    """

    def wrapped(*args: Any) -> Any:
        with jax.numpy_rank_promotion("allow"), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return function(*args)

    return wrapped


def with_failed_worst(loss: np.ndarray) -> np.ndarray:
    """Return losses `[P]` with failed members (NaN) a deviation above the worst.

    So they rank last, and neither NaN nor infinity reaches a mean or a deviation.
    """
    finite = loss[np.isfinite(loss)]
    # In float64, as squares leave the range of float32 early.
    spread, largest = finite.std(dtype=float), float(np.abs(finite).max())
    margin = max(float(spread), 1e-6 * (1.0 + largest))
    return np.where(np.isfinite(loss), loss, finite.max() + margin).astype(np.float32)


def _schedule(strategy: Strategy) -> Callable[[Any], Array]:
    """Sigma by generation."""
    return _decayed(strategy.sigma, strategy.sigma_decay, strategy.sigma_limit)


def _decayed(start: float, decay: float, limit: float) -> Callable[[Any], Array]:
    """A number by generation; what does not decay has no limit."""
    least = limit if decay != 1 else 0.0

    def value(generation: Any) -> Array:
        return jnp.maximum(start * decay ** jnp.float32(generation), least)

    return value


def _arguments(cls: Any) -> list[str]:
    return list(inspect.signature(cls.__init__).parameters)


def _make(strategy: Strategy, population: int, size: int) -> Any:
    """The evosax algorithm.

    Raises:
        ConfigError: an option that it does not take, or a population that it refuses.
    """
    from evosax.core import fitness_shaping

    cls = algorithms()[strategy.name]
    taken = _arguments(cls)
    options: dict[str, Any] = {}
    if "std_schedule" in taken:
        options["std_schedule"] = _schedule(strategy)
    rate = strategy.learning_rate
    if rate is not None:
        import optax

        if "optimizer" not in taken:
            raise ConfigError(
                f"strategy: {strategy.name} has no optimiser, so learning_rate cannot "
                "be given; leave it out."
            )
        ends = strategy.learning_rate_decay, strategy.learning_rate_limit
        numbers = strategy.beta1, strategy.beta2, strategy.eps
        options["optimizer"] = optax.adam(_decayed(rate, *ends), *numbers)
    if "use_antithetic_sampling" in taken:
        options["use_antithetic_sampling"] = strategy.antithetic
    if strategy.shaping != "auto":
        shaping = getattr(fitness_shaping, SHAPINGS[strategy.shaping])
        options["fitness_shaping_fn"] = shaping
    options |= {n: v for n, v in strategy.options.items() if n in taken}
    try:
        return cls(population, np.zeros(size, np.float32), **options)
    except AssertionError as error:
        raise ConfigError(
            f"strategy: {strategy.name} refuses population={population}, {size} "
            f"numbers and options {dict(strategy.options)}: {error}"
        ) from None


def _params(strategy: Strategy, algorithm: Any) -> PyTree:
    """Parameters for evosax: its defaults, our sigma, and the options."""
    params = algorithm.default_params
    known = [field.name for field in dataclasses.fields(params)]
    taken = _arguments(type(algorithm))
    changes: dict[str, Any] = {}
    if "std_init" in known:
        changes["std_init"] = jnp.asarray(strategy.sigma, jnp.float32)
    for name, value in strategy.options.items():
        if name in taken:
            continue
        fields = [field.name for field in dataclasses.fields(Strategy)]
        everything = [*known, *taken[3:], *fields]
        check_known(name, everything, f"strategy: {strategy.name}")
        changes[name] = value
    return dataclasses.replace(params, **changes)

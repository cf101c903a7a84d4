"""Evolution strategies: the only door to evosax.

evosax minimises, purerl's fitness is to be maximised: the sign is turned once, in
`Optimiser.tell`. Its defaults are not those of the published experiments, which ran on
evosax 0.0.4 and 0.1: here the step size, its schedule and Adam are always explicit.
"""

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.config import ConfigError, check_known
from purerl.meta.genome import Genome
from purerl.scale.host import to_host
from purerl.types import Array, Overrides, PyTree

SHAPINGS = ("auto", "none", "centered_rank", "z_score", "normalize")
# In evosax, but not here, with the reason.
EXCLUDED = {
    "NoiseReuseES": "it needs unrolls that stop in the middle of training",
    "PersistentES": "it needs unrolls that stop in the middle of training",
    "RandomSearch": "it needs a sampling function",
    "SV_CMA_ES": "its populations are several",
    "SV_Open_ES": "its populations are several",
    "LES": "its weights are pickled files",
    "LGA": "its weights are pickled files",
    "LearnedGA": "its weights are pickled files",
    "EvoTF_ES": "its weights are pickled files",
    "CMAAnchoredLES": "its weights are pickled files",
}


@dataclasses.dataclass(frozen=True)
class Strategy:
    """How a population moves; names are those of evosax, `-`, `_` and case do not tell.

    Attributes:
        name: `open-es`, `cma-es`, `sep-cma-es`, `snes`, `pgpe`, `simple-ga`, ...
        sigma: standard deviation of the first population around its start, in the
            units of `purerl.meta.genome`'s scales.
        sigma_decay: factor per generation, where the strategy does not adapt sigma.
        sigma_limit: smallest sigma of the decay.
        learning_rate: Adam's step size; None keeps the strategy's own optimiser.
        learning_rate_decay: factor per generation.
        learning_rate_limit: smallest step size of the decay.
        beta1: of Adam.
        beta2: of Adam.
        eps: of Adam.
        shaping: `centered_rank`, `z_score`, `normalize`, `none`; `auto` is the
            strategy's own.
        antithetic: Open-ES draws pairs around the mean.
        options: what else the strategy takes, by evosax's names.
    """

    name: str = "Open_ES"
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
        """As plain values."""
        return {**dataclasses.asdict(self), "options": dict(self.options)}


# evosax 0.1's OpenES with Adam (note beta1), on which the published value losses ran.
_OPEN_ES = Strategy(
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
}


def OpenES(**changes: Any) -> Strategy:  # noqa: N802  (reads like the class it makes)
    """Open-ES (Salimans et al. 2017) with Adam, from evosax 0.1's published defaults.

    Args:
        **changes: fields of `Strategy` that differ.

    Raises:
        ConfigError: an unknown field.
    """
    return _changed(_OPEN_ES, changes)


def read_strategy(asked: "str | Mapping[str, Any] | Strategy") -> Strategy:
    """A strategy from its name, `"cma-es(sigma=0.2)"`, a mapping, or as it is.

    Raises:
        ConfigError: an unknown strategy or field, or a value that cannot be.
    """
    if isinstance(asked, Strategy):
        strategy = asked
    elif isinstance(asked, str):
        strategy = read_strategy(_parse(asked))
    elif isinstance(asked, Mapping):
        values = dict(asked)
        name = str(values.pop("name", "open-es"))
        preset = PRESETS.get(_normal(name), Strategy(name=name))
        strategy = _changed(preset, values)
    else:
        raise ConfigError(f"strategy must be a name or a Strategy, got {asked!r}.")
    strategy = dataclasses.replace(strategy, name=_known(strategy.name))
    _check(strategy)
    return strategy


def names() -> list[str]:
    """Every strategy's name, the presets first."""
    return [*PRESETS, *(_normal(n) for n in _algorithms() if _normal(n) not in PRESETS)]


def _parse(text: str) -> dict[str, Any]:
    import ast

    name, bracket, rest = text.strip().partition("(")
    if not bracket:
        return {"name": name}
    try:
        call = ast.parse(f"f({rest}", mode="eval").body
        assert isinstance(call, ast.Call) and not call.args
        values = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError, AssertionError):
        raise ConfigError(
            f"cannot read the strategy {text!r}; write for example open-es(sigma=0.05)."
        ) from None
    return {"name": name.strip(), **values}


def _changed(strategy: Strategy, changes: Mapping[str, Any]) -> Strategy:
    known = [field.name for field in dataclasses.fields(Strategy)]
    own = {name: value for name, value in changes.items() if name in known}
    # Any other name is the algorithm's: checked against it when it is made.
    others = {name: value for name, value in changes.items() if name not in known}
    options = {**strategy.options, **dict(own.pop("options", {}) or {}), **others}
    return dataclasses.replace(strategy, **own, options=options)


def _normal(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(" ", "-")


def _plain(name: str) -> str:
    return _normal(name).replace("-", "")


def _algorithms() -> dict[str, Any]:
    from evosax.algorithms import algorithms

    return {name: cls for name, cls in algorithms.items() if name not in EXCLUDED}


def _known(name: str) -> str:
    """The spelling of a name in evosax.

    Raises:
        ConfigError: there is no such strategy.
    """
    for known in _algorithms():
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
    for name in ("sigma", "sigma_decay", "learning_rate_decay", "eps"):
        _check_number(name, getattr(strategy, name), zero=False)
    for name in ("sigma_limit", "learning_rate_limit", "beta1", "beta2"):
        _check_number(name, getattr(strategy, name), zero=True)
    if strategy.learning_rate is not None:
        _check_number("learning_rate", strategy.learning_rate, zero=False)
    for name in ("beta1", "beta2"):
        if getattr(strategy, name) >= 1:
            raise ConfigError(
                f"strategy: {name} must be less than 1, got {getattr(strategy, name)}."
            )
    if strategy.shaping not in SHAPINGS:
        raise ConfigError(
            f"strategy: shaping must be one of {', '.join(SHAPINGS)}, got "
            f"{strategy.shaping!r}."
        )


def _check_number(name: str, value: Any, zero: bool) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if (
        not is_number
        or not np.isfinite(value)
        or value < 0
        or (value == 0 and not zero)
    ):
        least = "0 or greater" if zero else "greater than 0"
        raise ConfigError(f"strategy: {name} must be {least}, got {value!r}.")


class Optimiser:
    """A strategy over a genome: ask and tell, each compiled once.

    States pass through the host, so that a restored one meets the same programs.

    Attributes:
        is_distribution: whether it has a mean, rather than a population.
    """

    def __init__(self, strategy: Strategy, genome: Genome, population: int) -> None:
        self.strategy, self.genome, self.population = strategy, genome, population
        self.algorithm = _make(strategy, population, genome.size)
        self.params = _params(strategy, self.algorithm)
        self.is_distribution = hasattr(self.algorithm, "get_mean")
        self._ask = jax.jit(self._ask_and_decode)
        self._tell = jax.jit(self._tell_loss)
        self._has_schedule = "std_schedule" in _arguments(type(self.algorithm))

    def init(self, key: Array) -> PyTree:
        """The state before the first generation, on the host."""
        return to_host(jax.jit(self._init)(key, self.genome.start()))

    def ask(self, key: Array, state: PyTree) -> tuple[np.ndarray, Overrides, PyTree]:
        """The next population.

        Returns:
            Vectors `[P, D]`, their overrides with leaves `[P, ...]`, and the new
            state, all on the host.
        """
        return to_host(self._ask(key, state))

    def tell(
        self, key: Array, vectors: np.ndarray, fitness: np.ndarray, state: PyTree
    ) -> PyTree:
        """The state after a generation.

        Args:
            key: of this generation.
            vectors: `[P, D]`, from `ask`.
            fitness: `[P]`, greater is better; NaN for members that failed.
            state: from `ask`.
        """
        if not np.isfinite(fitness).any():
            return state  # Nothing was learned: ask again, with another key.
        # evosax minimises. This is the only place where the sign is turned.
        loss = with_failed_worst(-np.asarray(fitness, np.float32))
        return to_host(self._tell(key, vectors, loss, state))

    def mean(self, state: PyTree) -> np.ndarray | None:
        """The mean `[D]` of the distribution, where there is one."""
        return np.asarray(state.mean) if self.is_distribution else None

    def sigma(self, state: PyTree) -> float:
        """The mean standard deviation, NaN for a strategy without one."""
        std = getattr(state, "std", None)
        return float(np.mean(std)) if std is not None else float("nan")

    def _init(self, key: Array, start: Array) -> PyTree:
        key_init, key_population = jax.random.split(key)
        if self.is_distribution:
            return self.algorithm.init(key_init, start, self.params)
        noise = jax.random.normal(key_population, (self.population, start.size))
        noise = noise.at[0].set(0.0)  # One member starts where the config is.
        vectors = start[None] + self.strategy.sigma * noise
        # As if all had failed: whatever is told first is better.
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


def with_failed_worst(loss: np.ndarray) -> np.ndarray:
    """Losses `[P]` where members that failed (NaN) lie a deviation above the worst.

    So they rank last, and neither NaN nor infinity reaches a mean or a deviation.
    """
    finite = loss[np.isfinite(loss)]
    margin = max(float(finite.std()), 1e-6 * (1.0 + float(np.abs(finite).max())))
    return np.where(np.isfinite(loss), loss, finite.max() + margin).astype(np.float32)


def _schedule(strategy: Strategy) -> Callable[[Any], Array]:
    """Sigma by generation."""

    def sigma(generation: Any) -> Array:
        decayed = strategy.sigma * strategy.sigma_decay ** jnp.float32(generation)
        return jnp.maximum(decayed, strategy.sigma_limit)

    return sigma


def _adam(strategy: Strategy) -> Any:
    import optax

    def rate(generation: Any) -> Array:
        count = jnp.float32(generation)
        decayed = strategy.learning_rate * strategy.learning_rate_decay**count
        return jnp.maximum(decayed, strategy.learning_rate_limit)

    return optax.adam(rate, strategy.beta1, strategy.beta2, strategy.eps)


def _arguments(cls: Any) -> list[str]:
    return list(inspect.signature(cls.__init__).parameters)


def _make(strategy: Strategy, population: int, size: int) -> Any:
    """The evosax algorithm.

    Raises:
        ConfigError: an option that it does not take, or a population that it refuses.
    """
    from evosax.core import fitness_shaping

    cls = _algorithms()[strategy.name]
    taken = _arguments(cls)
    options: dict[str, Any] = {}
    if "std_schedule" in taken:
        options["std_schedule"] = _schedule(strategy)
    if strategy.learning_rate is not None:
        if "optimizer" not in taken:
            raise ConfigError(
                f"strategy: {strategy.name} has no optimiser, so learning_rate cannot "
                "be given; leave it out."
            )
        options["optimizer"] = _adam(strategy)
    if "use_antithetic_sampling" in taken:
        options["use_antithetic_sampling"] = strategy.antithetic
    if strategy.shaping != "auto":
        options["fitness_shaping_fn"] = {
            "none": fitness_shaping.identity_fitness_shaping_fn,
            "centered_rank": fitness_shaping.centered_rank_fitness_shaping_fn,
            "z_score": fitness_shaping.standardize_fitness_shaping_fn,
            "normalize": fitness_shaping.normalize_fitness_shaping_fn,
        }[strategy.shaping]
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
        own = [field.name for field in dataclasses.fields(Strategy)]
        everything = [*known, *taken[3:], *own]
        check_known(name, everything, f"strategy: {strategy.name}")
        changes[name] = value
    replace = partial(dataclasses.replace, params)
    return replace(**changes) if changes else params

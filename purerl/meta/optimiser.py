"""A strategy at work on a genome: ask and tell, by evosax.

evosax minimises, purerl's fitness is to be maximised: the sign is turned once, in
`Optimiser.tell`.
"""

import dataclasses
import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.config import ConfigError, check_known
from purerl.meta.genome import Genome
from purerl.meta.strategy import (
    TRUNCATED,
    Strategy,
    algorithms,
)
from purerl.scale.host import to_host
from purerl.types import Array, Overrides, PyTree

# Strategies whose spread is the sum of a schedule and of what they learn, in variances
# or in standard deviations: the share of sigma of which each of the two begins.
_SHARES = {"iAMaLGaM_Full": math.sqrt(0.5), "iAMaLGaM_Univariate": 0.5}


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
        std: Any = getattr(state, "std", None)
        if self.strategy.name in _SHARES and state.C.ndim == 1:
            std = std + np.sqrt(state.C)
        elif self.strategy.name in _SHARES:
            std = np.sqrt(std**2 + np.diag(state.C))
        return float(np.mean(std)) if std is not None else float("nan")

    def _init(self, key: Array, start: Array) -> PyTree:
        key_init, key_population = jax.random.split(key)
        if self.is_distribution:
            state = self.algorithm.init(key_init, start, self.params)
            return _as_wide_as_sigma(self.strategy, state)
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


def _as_wide_as_sigma(strategy: Strategy, state: PyTree) -> PyTree:
    """Give the first population the spread of sigma, where evosax gives it another."""
    if strategy.name == "xNES":  # Sigma is in the step already.
        return state.replace(B=jnp.eye(len(state.B)))
    if strategy.name in _SHARES:
        share = _SHARES[strategy.name]
        return state.replace(C=state.C * (strategy.sigma * share) ** 2)
    return state


def _schedule(strategy: Strategy) -> Callable[[Any], Array]:
    """Sigma by generation; where it is added to a covariance, what is added."""
    share = _SHARES.get(strategy.name, 1.0)
    limit = strategy.sigma_limit * share
    return _decayed(strategy.sigma * share, strategy.sigma_decay, limit)


def _adam(strategy: Strategy) -> Any:
    import optax

    assert strategy.learning_rate is not None
    rate = _decayed(
        strategy.learning_rate,
        strategy.learning_rate_decay,
        strategy.learning_rate_limit,
    )
    return optax.adam(rate, strategy.beta1, strategy.beta2, strategy.eps)


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
        fields = [field.name for field in dataclasses.fields(Strategy)]
        everything = [*known, *taken[3:], *fields]
        check_known(name, everything, f"strategy: {strategy.name}")
        changes[name] = value
    return dataclasses.replace(params, **changes)

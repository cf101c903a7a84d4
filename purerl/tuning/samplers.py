"""Optuna's samplers and pruners for a space, seeded so that a study can be resumed."""

import copy
import math
import warnings
from collections.abc import Container
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState

from purerl.space.axes import Choice, LogUniform, is_whole
from purerl.tuning.space import Space

# Hyperband: a third goes on at each rung, the first rung after a ninth of the budget.
REDUCTION = 3
FIRST_RUNG = 9
# Median: full trials before any is pruned.
STARTUP_TRIALS = 5

# Attributes of trials: the generation of CMA-ES in which a trial was drawn, whether it
# ended without a score, and the number of the first trial of its batch.
GENERATION = "generation"
LOST = "lost"
BATCH = "batch"
RUNG = "completed_rung"  # The beginning of the attributes of Optuna's Hyperband.


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return Optuna's distribution of every axis; whole ends make whole numbers."""
    search_space: dict[str, BaseDistribution] = {}
    for name, axis in space.axes.items():
        if isinstance(axis, Choice):
            search_space[name] = CategoricalDistribution(tuple(space.names[name]))
            continue
        log = isinstance(axis, LogUniform)
        if is_whole(axis):
            search_space[name] = IntDistribution(int(axis.low), int(axis.high), log=log)
        else:
            search_space[name] = FloatDistribution(
                float(axis.low), float(axis.high), log=log
            )
    return search_space


def make_pruner(name: str | None, total_steps: int) -> optuna.pruners.BasePruner:
    """Make a pruner whose resource is environment steps."""
    if name is None:
        return optuna.pruners.NopPruner()
    if name == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS)
    return _Hyperband(
        min_resource=max(1, total_steps // FIRST_RUNG),
        max_resource=total_steps,
        reduction_factor=REDUCTION,
    )


class _Hyperband(optuna.pruners.HyperbandPruner):
    """Optuna's Hyperband, which would read a bracket's trials from the storage."""

    def _create_bracket_study(self, study: Any, bracket_id: int) -> Any:
        trials = study.get_trials()
        return _Shown(
            study, [t for t in trials if self._get_bracket_id(study, t) == bracket_id]
        )


class SteadyPruner(optuna.pruners.BasePruner):
    """A pruner that decides as if no worker had ever stopped.

    Args:
        inner: Optuna's pruner.
    """

    def __init__(self, inner: optuna.pruners.BasePruner) -> None:
        self.inner = inner

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Return whether to stop a trial after its last report."""
        return self.stops(study, trial.number, trial.last_step or 0)

    def stops(self, study: optuna.Study, number: int, step: int) -> bool:
        """Return whether to stop a trial that has just reported a step.

        The pruner is shown what an uninterrupted study knew at that moment. Of the
        trial's own batch these are the scores up to that report: a batch that a stopped
        worker left has trials that have ended, or were further, already.
        """
        if isinstance(self.inner, optuna.pruners.NopPruner):
            return False
        trials = {
            trial.number: trial
            for trial in study.get_trials(deepcopy=False)
            if trial.state != TrialState.FAIL and BATCH in trial.user_attrs
        }
        for other, trial in trials.items():
            if trial.user_attrs[BATCH] == trials[number].user_attrs[BATCH]:
                trials[other] = _until(trial, step + (other <= number))
        shown: Any = _Shown(study, list(trials.values()))
        return self.inner.prune(shown, trials[number])


class _Shown:
    """A study of which a pruner is shown some trials."""

    def __init__(self, study: optuna.Study, trials: list[FrozenTrial]) -> None:
        self._wrapped, self._trials = study, trials

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Return trials as `optuna.Study.get_trials` does."""
        del deepcopy  # No pruner changes them.
        return [t for t in self._trials if states is None or t.state in states]


def _until(trial: FrozenTrial, step: int) -> FrozenTrial:
    """A trial as it was when it had reported the steps before `step`."""
    values = {at: x for at, x in trial.intermediate_values.items() if at < step}
    rungs = {
        name: x
        for name, x in trial.system_attrs.items()
        if not name.startswith(RUNG) or x in values.values()
    }
    trial = copy.copy(trial)
    trial.state, trial.value = TrialState.RUNNING, None
    trial.intermediate_values, trial.system_attrs = values, rungs
    return trial


class SeededSampler(optuna.samplers.BaseSampler):
    """A sampler with a random stream per trial, so that it holds nothing in memory.

    Args:
        name: The kind of sampler: `tpe`, `random` or `cmaes`.
        seed: The seed of the study.
        axes: Distributions of the study's axes, by name.
    """

    def __init__(self, name: str, seed: int, axes: dict[str, BaseDistribution]) -> None:
        self.name, self.seed, self.axes = name, seed, axes
        self.inner: optuna.samplers.BaseSampler = _make(name, seed, axes)

    @property
    def generation(self) -> int | None:
        """CMA-ES's generation of the last trial drawn; None for other samplers."""
        return getattr(self.inner, "generation", None)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Start the trial's own stream."""
        words = np.random.SeedSequence([self.seed, trial.number])
        seed = int(words.generate_state(1)[0])
        self.inner = _make(self.name, seed, self.axes)
        self.inner.before_trial(study, trial)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the fields that are drawn together."""
        return self.inner.infer_relative_search_space(study, trial)

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        """Draw the values that are drawn together."""
        return self.inner.sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Draw a value that is drawn alone."""
        return self.inner.sample_independent(
            study, trial, param_name, param_distribution
        )


def _make(
    name: str, seed: int, axes: dict[str, BaseDistribution]
) -> optuna.samplers.BaseSampler:
    if name == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    if name == "cmaes":
        return ReplayedCma(seed, axes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        # A trial that runs counts as a bad one: a batch does not repeat itself.
        return optuna.samplers.TPESampler(seed=seed, constant_liar=True)


class ReplayedCma(optuna.samplers.BaseSampler):
    """CMA-ES (Hansen 2016, arXiv:1604.00772) rebuilt from the study's trials.

    `optuna.samplers.CmaEsSampler` pickles its optimiser into the study, and reading a
    pickle runs what is in it. The strategy is a function of the finished generations,
    so it is replayed from them instead, in milliseconds. Only ranks count, so a pruned
    trial ranks below every complete one, by how far it came and its last value.

    Numbers are searched in the unit cube (logarithms where the axis is logarithmic),
    from its middle; choices are drawn at random.
    """

    def __init__(self, seed: int, axes: dict[str, BaseDistribution]) -> None:
        self.seed, self.axes = seed, axes
        self.generation: int | None = None
        self.random = optuna.samplers.RandomSampler(seed=seed)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the axes that are numbers; choices have no order."""
        del study, trial
        return {
            name: axis
            for name, axis in self.axes.items()
            if isinstance(axis, FloatDistribution | IntDistribution)
            and not axis.single()
        }

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        """Draw from the strategy after all finished generations."""
        del trial
        if not search_space:
            return {}
        import cmaes

        names, num = sorted(search_space), len(search_space)
        size = 4 + math.floor(3 * math.log(num))
        bounds = np.array([[0.0, 1.0]] * num)
        strategy = (
            cmaes.CMA(np.full(num, 0.5), 0.2, bounds, population_size=size)
            if num > 1
            # With one number there is no covariance to learn; the package wants two.
            else cmaes.CMA(
                np.full(2, 0.5), 0.2, np.tile(bounds, (2, 1)), population_size=size
            )
        )
        self.generation = 0
        for members in _generations(study, size):
            strategy.tell(
                [
                    (_unit(member, names, search_space), float(rank))
                    for rank, member in enumerate(sorted(members, key=_badness))
                ]
            )
            self.generation += 1
        strategy.reseed_rng(self.seed % 2**32)
        drawn = strategy.ask()
        return {
            name: _from_unit(float(x), search_space[name])
            for name, x in zip(names, drawn, strict=False)
        }

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Draw a choice at random."""
        return self.random.sample_independent(
            study, trial, param_name, param_distribution
        )


def _generations(study: optuna.Study, size: int) -> list[list[FrozenTrial]]:
    """The finished generations in order, the first `size` finished members of each."""
    done = study.get_trials(False, (TrialState.COMPLETE, TrialState.PRUNED))
    generations: list[list[FrozenTrial]] = []
    while True:
        number = len(generations)
        members = [t for t in done if t.user_attrs.get(GENERATION) == number]
        if len(members) < size:
            return generations
        generations.append(members[:size])


def _badness(trial: FrozenTrial) -> tuple[int, int, float]:
    """Sorts the best first: complete ones, the pruned by progress and value, the lost.

    Lost are those that diverged, or could not be trained.
    """
    is_pruned = trial.state == TrialState.PRUNED
    is_lost = is_pruned and trial.user_attrs.get(LOST, False)
    step = -(trial.last_step or 0) if is_pruned else 0
    value = trial.value if trial.value is not None else -math.inf
    return is_pruned + is_lost, step, -value


def _unit(
    trial: FrozenTrial, names: list[str], space: dict[str, BaseDistribution]
) -> np.ndarray:
    coordinates = [_to_unit(trial.params[name], space[name]) for name in names]
    # A lone number gets a second coordinate that says nothing.
    return np.array(coordinates if len(coordinates) > 1 else [*coordinates, 0.5])


def _ends(axis: Any) -> tuple[float, float]:
    """Return a number's ends in the units searched; whole ones get whole intervals."""
    half = 0.5 if isinstance(axis, IntDistribution) else 0.0
    low, high = axis.low - half, axis.high + half
    return (math.log(low), math.log(high)) if axis.log else (low, high)


def _to_unit(value: float, axis: Any) -> float:
    low, high = _ends(axis)
    return ((math.log(value) if axis.log else value) - low) / (high - low)


def _from_unit(coordinate: float, axis: Any) -> float:
    low, high = _ends(axis)
    value = low + min(max(coordinate, 0.0), 1.0) * (high - low)
    value = math.exp(value) if axis.log else value
    if isinstance(axis, IntDistribution):
        return int(min(max(round(value), axis.low), axis.high))
    return float(min(max(value, axis.low), axis.high))

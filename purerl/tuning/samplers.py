"""Optuna's samplers and pruners for a space, seeded so that a study can be resumed."""

import copy
import warnings
from collections.abc import Container
from typing import Any

import numpy as np
import optuna
from optuna import distributions as kinds
from optuna.trial import FrozenTrial, TrialState

from purerl.space.axes import Choice, LogUniform, is_whole
from purerl.tuning.space import Space

# Hyperband: a third goes on at each rung, the first rung after a ninth of the budget.
REDUCTION = 3
FIRST_RUNG = 9
# Median: full trials before any is pruned.
STARTUP_TRIALS = 5

# Attribute of a trial: the number of the first trial of its batch.
BATCH = "batch"
RUNG = "completed_rung"  # The beginning of the attributes of Optuna's Hyperband.


def distributions(space: Space) -> dict[str, kinds.BaseDistribution]:
    """Return Optuna's distribution of every axis; whole ends make whole numbers."""
    found: dict[str, kinds.BaseDistribution] = {}
    for name, axis in space.axes.items():
        if isinstance(axis, Choice):
            found[name] = kinds.CategoricalDistribution(tuple(space.names[name]))
            continue
        make = kinds.IntDistribution if is_whole(axis) else kinds.FloatDistribution
        number: Any = int if is_whole(axis) else float
        is_log = isinstance(axis, LogUniform)
        found[name] = make(number(axis.low), number(axis.high), log=is_log)
    return found


def make_pruner(name: str | None, total_steps: int) -> Any:
    """Make a pruner whose resource is environment steps; None prunes nothing."""
    if name is None:
        return None
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


def stops(pruner: Any, study: optuna.Study, number: int, step: int) -> bool:
    """Return whether to stop a trial that has just reported a step.

    The pruner is shown what an uninterrupted study knew at that moment. Of the trial's
    own batch these are the scores up to that report: a batch that a stopped worker left
    has trials that have ended, or were further, already.
    """
    if pruner is None:
        return False
    trials = {
        trial.number: trial
        for trial in study.get_trials(deepcopy=False)
        if trial.state != TrialState.FAIL and BATCH in trial.user_attrs
    }
    for other, trial in trials.items():
        if trial.user_attrs[BATCH] == trials[number].user_attrs[BATCH]:
            trials[other] = _until(trial, step + (other <= number))
    return pruner.prune(_Shown(study, list(trials.values())), trials[number])


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


class SeededSampler:
    """A sampler with a random stream per trial, so that it holds nothing in memory.

    It has all methods of Optuna's sampler, which it makes anew for every trial.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.seed = name, seed
        self._inner = _make(name, seed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Start the trial's own stream."""
        words = np.random.SeedSequence([self.seed, trial.number])
        self._inner = _make(self.name, int(words.generate_state(1)[0]))
        self._inner.before_trial(study, trial)


def _make(name: str, seed: int) -> optuna.samplers.BaseSampler:
    if name == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        # A trial that runs counts as a bad one: a batch does not repeat itself.
        return optuna.samplers.TPESampler(seed=seed, constant_liar=True)

"""An evolution with made-up scores, which takes no training."""

import jax
import numpy as np

import purerl
from purerl import losses
from purerl.acting.environment import resolve_env
from purerl.meta.genome import Genome
from purerl.meta.result import EvolutionResult, fresh_state, with_generation
from purerl.meta.strategy import Optimiser, read_strategy
from tests.helpers import tiny_config


def evolution() -> purerl.EvolutionResult:
    """One generation of a network."""
    config = tiny_config(value_loss=losses.MLPValueLoss.make((3,), init="random"))
    genome = Genome(config, resolve_env(config), "value_loss")
    strategy = read_strategy("open-es")
    optimiser = Optimiser(strategy, genome, 4)
    state = fresh_state(optimiser, jax.random.key(0), 1, 1)
    vectors = np.zeros((4, genome.size))
    state = with_generation(state, vectors, np.arange(4.0), np.ones((1, 4, 1)))
    settings = {
        "evolve": genome.scales,
        "strategy": strategy.to_dict(),
        "population": 4,
        "rollouts": 1,
        "fitness": "training_curve",
        "environments": [],
        "seed": 0,
    }
    return EvolutionResult(config, settings, optimiser, state)

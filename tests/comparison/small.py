"""Small settings to compare: two of one program, one of another, another algorithm."""

import purerl
from tests.helpers import tiny_config

SEEDS, LANES = 4, 4
SMALL = {"seeds": SEEDS, "lanes": LANES, "progress": False}
SLOW, FAST = {"learning_rate": 1e-3}, {"learning_rate": 0.02}
CONFIG = tiny_config(anneal_learning_rate=False)
DQN = purerl.DQNConfig(
    total_timesteps=CONFIG.total_timesteps,
    hidden_sizes=(8,),
    buffer_size=64,
    batch_size=8,
    learning_starts=16,
    rounds_per_update=32,
)
SETTINGS = {
    "slow": SLOW,
    "fast": FAST,
    "wide": {"hidden_sizes": (9,), "num_steps": 32},
    "DQN": DQN,
}

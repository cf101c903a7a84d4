"""Small tasks whose action values are known, for algorithms that learn values."""

import pytest

# Environment, observations, and the values of both actions there (`envs/probe.py`).
# The first has rewards that are always 1 inside it, the other those of an observation.
Q_PROBES = [
    ("probe/delayed-reward", [0.0, 1.0], [[0.7, 0.7], [1, 1]]),
    pytest.param(
        "probe/action-observation",
        [-1.0, 1.0],
        [[1, -1], [-1, 1]],
        marks=pytest.mark.slow,
    ),
]

# A small agent of an actor and critics on the probe of continuous actions.
CONTINUOUS_PROBE = {
    "env": "probe/continuous",
    "total_timesteps": 6_000,
    "num_envs": 8,
    "num_steps": 2,
    "gradient_steps": 4,
    "rounds_per_update": 25,
    "learning_starts": 256,
    "batch_size": 64,
    "hidden_sizes": (16, 16),
    "learning_rate": 5e-3,
    "tau": 0.05,
    "num_evaluations": 1,
    "eval_episodes": 8,
    "eval_max_steps": 3,
}

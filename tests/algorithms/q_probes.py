"""Small tasks whose action values are known, for algorithms that learn values."""

import pytest

# Environment, observations, and the values of both actions there (`envs/probe.py`).
Q_PROBES = [
    pytest.param("probe/constant-reward", [0.0], [[1, 1]], marks=pytest.mark.slow),
    pytest.param(
        "probe/observation-reward",
        [-1.0, 1.0],
        [[-1, -1], [1, 1]],
        marks=pytest.mark.slow,
    ),
    ("probe/delayed-reward", [0.0, 1.0], [[0.7, 0.7], [1, 1]]),
    pytest.param("probe/action-reward", [0.0], [[-1, 1]], marks=pytest.mark.slow),
    pytest.param(
        "probe/action-observation",
        [-1.0, 1.0],
        [[1, -1], [-1, 1]],
        marks=pytest.mark.slow,
    ),
]

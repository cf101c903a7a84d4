"""Action values by dynamic programming, of an environment that is written as tables.

Sutton and Barto (2018), "Reinforcement Learning: An Introduction", chapters 3 and 4.
All of it is numpy on the host: what is learned is compared with it.
"""

from typing import NamedTuple

import numpy as np


class Model(NamedTuple):
    """An environment as tables; `S` states and `A` actions.

    Attributes:
        next_state: `[S, A]` int, the state that an action leads to.
        reward: `[S, A]` float, what it pays.
        terminated: `[S, A]` bool, whether it ends the episode.
    """

    next_state: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray


def action_values(
    model: Model, gamma: float, epsilon: float = 0.0, tolerance: float = 1e-10
) -> np.ndarray:
    """Compute the action values of the best policy, or of the best that explores.

    Q(s, a) = r(s, a) + gamma (1 - terminated(s, a)) V(s') with the next state s' and

        V(s) = (1 - epsilon) max_a Q(s, a) + epsilon mean_a Q(s, a).

    With `epsilon=0` this is value iteration, and Q is that of the optimal policy. With
    another one it is the fixed point of SARSA and of expected SARSA, whose policies
    stay epsilon-greedy: the best among the policies that take every action with a
    probability of at least epsilon / A.

    Args:
        model: The environment as tables.
        gamma: Discount per step.
        epsilon: Probability of a uniform action.
        tolerance: Largest change of a value in the last sweep.

    Returns:
        float `[S, A]`.

    Raises:
        ValueError: the values do not settle, as where an episode without a discount
            never ends.
    """
    values = np.zeros(model.reward.shape)
    going_on = gamma * ~model.terminated
    for _ in range(1_000_000):
        state_values = (1 - epsilon) * values.max(1) + epsilon * values.mean(1)
        new = model.reward + going_on * state_values[model.next_state]
        change = np.abs(new - values).max()
        values = new
        if change <= tolerance:
            return values
    raise ValueError(
        f"gamma is {gamma}, and the values do not settle with it: use one below 1, or "
        "an environment in which every policy ends its episodes."
    )

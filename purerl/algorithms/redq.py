"""Randomised ensembled double Q-learning (Chen et al. 2021, arXiv:2101.05982).

Of `E` critics, `M` chosen anew at random in every gradient step make the target,

    y = r + gamma (1 - terminated) V'(s'),
    V'(s') = E_{a' ~ pi(s')}[min_{i in S} Q'_i(s', a') - alpha log pi(a'|s')],

with `S` a set of `M` of the numbers 1 to `E`, all sets alike (algorithm 1, line 8). All
critics are fitted to it, and the policy maximises their mean (line 13), once for each
step of the environment. The paper has E = 10, M = 2 and 20 gradient steps of the
critics for each step of the environment; `policy_delay` is then 20 too.
"""

from typing import Any

import jax

from purerl import networks
from purerl.types import Array, PyTree


def draw_subsets(
    key: Array, shape: tuple[int, ...], *, num_critics: int, subset: int
) -> Array:
    """Draw sets of critics, uniform without replacement, int32 `[*shape, M]`.

    Args:
        key: Random key, consumed.
        shape: Leading axes of the sets.
        num_critics: E, the number of critics.
        subset: M, the number of critics in a set.
    """
    # The places of the M largest of E independent numbers are a random subset.
    uniform = jax.random.uniform(key, (*shape, num_critics))
    return jax.lax.top_k(uniform, subset)[1]


def members(
    critics: networks.Ensemble, params: PyTree, subset: Array | slice
) -> tuple[networks.Ensemble, PyTree]:
    """Return the critics of a set, and their parameters.

    Args:
        critics: All E critics.
        params: Parameters of all critics, leaves `[E, ...]`.
        subset: `[M]` int32, numbers of the critics in the set, or a slice of them.
    """
    chosen = jax.tree.map(lambda x: x[subset], params)
    few: Any = critics.clone(num=len(jax.tree.leaves(chosen)[0]))
    return few, chosen

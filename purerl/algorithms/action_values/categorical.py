"""The distribution of returns over fixed atoms: C51 (Bellemare et al. 2017).

The network returns a logit for each of K atoms `z_1 < ... < z_K`, which lie at equal
distances from `value_min` to `value_max` (arXiv:1707.06887, section 4). The target is
the distribution of `r + gamma z` over what follows, projected onto the atoms, and the
loss is the divergence of the prediction from it, by which Rainbow also draws its
batches (Hessel et al. 2018, section "The Integrated Agent").
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import xlogy

from purerl.algorithms.action_values.base import ActionValues
from purerl.types import Array


class Categorical(ActionValues):
    """Logits of atoms; see `ActionValues` for the functions."""

    def __init__(
        self, num_atoms: int, value_min: Array | float, value_max: Array | float
    ) -> None:
        """Place the atoms.

        Args:
            num_atoms: Number K of atoms, at least 2; 51 in the paper.
            value_min: Lowest atom; -10 in the paper, whose rewards are clipped.
            value_max: Highest atom; 10 in the paper.
        """
        self.num_outputs = num_atoms
        atoms = jnp.linspace(value_min, value_max, num_atoms)
        # A sweep or an evolution may make the range empty: NaN makes such an agent fail
        # visibly.
        self.atoms = jnp.where(jnp.less(value_min, value_max), atoms, jnp.nan)

    def values(self, outputs: Array) -> Array:
        """Return the means, `[..., n]` of logits `[..., n, K]`."""
        # This is a sum because an accelerator computes a product with fewer digits.
        atoms = self.atoms.reshape((1,) * (outputs.ndim - 1) + (-1,))
        return (jax.nn.softmax(outputs) * atoms).sum(-1)

    def distribution(self, outputs: Array) -> Array:
        """Return the probabilities of the atoms."""
        return jax.nn.softmax(outputs)

    def target(self, reward: Array, discount: Array, following: Array) -> Array:
        """Return the projected probabilities, `[N, K]`.

        Args:
            reward: `[N]` rewards.
            discount: `[N]` discounts, 0 after the end of an episode.
            following: `[N, K]` probabilities of the atoms for what follows.
        """
        points = reward[:, None] + discount[:, None] * self.atoms[None]
        return project(points, following, self.atoms)

    def loss(self, outputs: Array, target: Array, levels: Array | None = None) -> Array:
        """Return the divergence `KL(target || prediction)`, `[N]`.

        Args:
            outputs: `[N, K]` logits of the actions that were taken.
            target: `[N, K]` probabilities, from `target`.
            levels: None; atoms take no levels.
        """
        del levels
        log_prob = jax.nn.log_softmax(outputs)
        divergence = (xlogy(target, target) - target * log_prob).sum(-1)
        return divergence


def project(points: Array, probabilities: Array, atoms: Array) -> Array:
    """Move a distribution onto atoms at equal distances (Bellemare et al. 2017, eq. 7).

    Each point gives its probability to its two neighbours, to the nearer one more; a
    point beyond the first or the last atom gives all of it to that one. Where no point
    lies beyond, the mean stays.

    Args:
        points: `[N, M]` where the distribution lies.
        probabilities: `[N, M]`, which sum to 1 over M.
        atoms: `[K]` rising, at equal distances.

    Returns:
        Probabilities of the atoms, `[N, K]`.
    """
    # In units of the distance the shares of a point sum to 1, however the atoms were
    # rounded, which lie far from 0.
    last = atoms.size - 1
    distance = (atoms[-1] - atoms[0]) / last
    place = jnp.clip((points - atoms[0]) / distance, 0.0, last)
    gap = jnp.abs(place[:, None, :] - jnp.arange(atoms.size)[None, :, None])
    share = jnp.clip(1.0 - gap, 0.0, 1.0)
    return (share * probabilities[:, None, :]).sum(-1)

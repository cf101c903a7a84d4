"""Kinds of action values of DQN: what is learned of each action, and how.

* `expected`: the mean return (Mnih et al. 2015).
* `categorical`: probabilities of atoms, C51 (Bellemare et al. 2017, arXiv:1707.06887).
* `quantile`: quantiles at fixed levels, QR-DQN (Dabney et al. 2018a, arXiv:1710.10044).
* `implicit`: quantiles at levels that are drawn, IQN (Dabney et al. 2018b,
  arXiv:1806.06923).

*Outputs* are what the network returns: `[..., n]` for values of n actions, `[..., n,
K]` where the return of each has a distribution of K numbers. Those of one action have
no axis n. What a distribution is made of mixes linearly: probabilities of atoms, or
quantiles.
"""

import abc
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, xlogy

from purerl import networks
from purerl.accelerator import columns
from purerl.algorithms import network_config
from purerl.losses import value_error
from purerl.losses.quantile import quantile_huber
from purerl.networks import observe
from purerl.types import Array

KINDS = ("expected", "categorical", "quantile", "implicit")
# Levels K by which IQN chooses actions, as in the paper.
ACTING_LEVELS = 32


class Levels(NamedTuple):
    """At which levels of a distribution a gradient step asks the network.

    Attributes:
        online: `[N, M]` levels between 0 and 1, for the observations; None where the
            network takes no levels.
        target: `[N, M']` levels between 0 and 1, for the observations after the steps;
            None where the network takes no levels.
    """

    online: Array | None = None
    target: Array | None = None


class ActionValues(abc.ABC):
    """A kind of action values; this class is that of distributions.

    Attributes:
        acting_levels: `[M]` levels at which the network is asked for the values that
            choose actions; None where it takes no levels.
        clip_targets: Largest absolute return in a target; None for no bound.
    """

    acting_levels: Array | None = None
    clip_targets: Array | float | None = None

    def draw_levels(self, key: Array, num: int) -> Levels:
        """Draw the levels of a gradient step on `num` samples; the key is consumed."""
        del key, num
        return Levels()

    @abc.abstractmethod
    def values(self, outputs: Array) -> Array:
        """Return expected returns: `[..., n]`, or `[...]` of one action's outputs."""

    @abc.abstractmethod
    def target(self, reward: Array, discount: Array, following: Array) -> Array:
        """Return what the outputs are to become, `[N, ...]`.

        Args:
            reward: `[N]` rewards.
            discount: `[N]` discounts, 0 after the end of an episode.
            following: `[N, ...]` distributions of what follows, from `of_action`,
                `of_best` or `of_policy`.
        """

    def returns(self, reward: Array, discount: Array, following: Array) -> Array:
        """Return `reward + discount * following`, within `clip_targets`."""
        found = reward + discount * following
        bound = self.clip_targets
        return found if bound is None else jnp.clip(found, -bound, bound)

    @abc.abstractmethod
    def loss(self, outputs: Array, target: Array, levels: Array | None = None) -> Array:
        """Return the loss of each sample, `[N]`.

        Args:
            outputs: `[N, ...]` outputs of the actions that were taken.
            target: `[N, ...]` targets, from `target`.
            levels: `[N, M]` levels at which the outputs are, where the network takes
                levels.
        """

    def priority(self, outputs: Array, target: Array, loss: Array) -> Array:
        """Return what replay draws in proportion to, `[N]`: the loss."""
        del outputs, target
        return loss

    def distribution(self, outputs: Array) -> Array:
        """Return what mixes linearly, of the shape of the outputs."""
        return outputs

    def pick(self, outputs: Array, action: Array) -> Array:
        """Return the outputs of one action `[N]` each, `[N, K]`."""
        return jnp.take_along_axis(outputs, action[:, None, None], 1)[:, 0]

    def of_action(self, outputs: Array, action: Array) -> Array:
        """Return the distribution of one action each; see `pick`."""
        return self.distribution(self.pick(outputs, action))

    def of_best(self, outputs: Array, values: Array) -> Array:
        """Return the distribution of the action with the largest value.

        Args:
            outputs: `[N, n, K]` outputs of all actions.
            values: `[N, n]` action values, of the same network or of another one.
        """
        return self.of_action(outputs, columns.argmax(values))

    def of_policy(self, outputs: Array, policy: Array) -> Array:
        """Return the distribution of an action of a policy `[N, n]`, `[N, K]`."""
        return (policy[..., None] * self.distribution(outputs)).sum(1)


class Expected(ActionValues):
    """Action values as numbers, and a loss of their TD errors."""

    def __init__(self, value_loss: Any) -> None:
        self.value_loss = value_loss

    def values(self, outputs: Array) -> Array:
        """Return the outputs, which are the values."""
        return outputs

    def pick(self, outputs: Array, action: Array) -> Array:
        """Return the values `[N]` of one action each, of `[N, n]`."""
        return columns.pick(outputs, action)

    def of_best(self, outputs: Array, values: Array) -> Array:
        """Return the values of the actions with the largest of `values`, `[N]`."""
        if values is outputs:
            return columns.largest(outputs)
        return super().of_best(outputs, values)

    def of_policy(self, outputs: Array, policy: Array) -> Array:
        """Return the value of a policy, `[N]`, from both `[N, n]`."""
        return (policy * outputs).sum(-1)

    def target(self, reward: Array, discount: Array, following: Array) -> Array:
        """Return `r + discount * following`, `[N]`."""
        return self.returns(reward, discount, following)

    def loss(self, outputs: Array, target: Array, levels: Array | None = None) -> Array:
        """Return the loss of the TD errors, `[N]`."""
        del levels
        return value_error(self.value_loss, outputs, target)

    def priority(self, outputs: Array, target: Array, loss: Array) -> Array:
        """Return the TD errors, `[N]`."""
        del loss
        return target - outputs


class Categorical(ActionValues):
    """Logits of K atoms at equal distances from `value_min` to `value_max`.

    The target is the distribution of `r + gamma z` over what follows, projected onto
    the atoms, and the loss is the divergence of the prediction from it, by which
    Rainbow also draws its batches (Hessel et al. 2018). The paper has 51 atoms from -10
    to 10, for rewards that are clipped.
    """

    def __init__(
        self, num_atoms: int, value_min: Array | float, value_max: Array | float
    ) -> None:
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
        """Return the projected probabilities, `[N, K]`."""
        points = self.returns(reward[:, None], discount[:, None], self.atoms[None])
        return project(points, following, self.atoms)

    def loss(self, outputs: Array, target: Array, levels: Array | None = None) -> Array:
        """Return the divergence `KL(target || prediction)`, `[N]`."""
        del levels
        log_prob = jax.nn.log_softmax(outputs)
        return (xlogy(target, target) - target * log_prob).sum(-1)

    def loss_of_numbers(self, outputs: Array, target: Array, std: float) -> Array:
        """Return the loss of logits `[N, K]` whose means are to become `[N]` numbers.

        Args:
            std: See `gaussian`; 0 shares a number between its two neighbours.
        """
        if std:
            return self.loss(outputs, gaussian(target, self.atoms, std))
        points = target[:, None]
        return self.loss(outputs, project(points, jnp.ones_like(points), self.atoms))


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


def gaussian(points: Array, atoms: Array, std: float) -> Array:
    """Spread numbers over atoms by a Gaussian around each, cut at the ends.

    HL-Gauss (Imani and White 2018; Farebrother et al. 2024, arXiv:2403.03950, section
    3.1): an atom has the mass of the Gaussian between the middles on its two sides.

    Args:
        points: `[N]` numbers, which are clipped to the atoms' range.
        atoms: `[K]` rising, at equal distances.
        std: Standard deviation, in units of the distance; 0.75 in the paper.

    Returns:
        Probabilities of the atoms, `[N, K]`.
    """
    distance = (atoms[-1] - atoms[0]) / (atoms.size - 1)
    place = jnp.clip((points - atoms[0]) / distance, 0.0, atoms.size - 1)
    edges = jnp.arange(atoms.size + 1, dtype=jnp.float32) - 0.5
    below = ndtr((edges[None] - place[:, None]) / std)
    return jnp.diff(below, axis=-1) / (below[:, -1:] - below[:, :1])


class Quantile(ActionValues):
    """Quantiles at the levels `(i - 1/2) / K`, i = 1 .. K; the paper has K = 200.

    They need no range of returns. Their loss is that of quantile regression, with
    Huber's in the place of the absolute error, which turns linear at `kappa`.
    """

    def __init__(self, kappa: Array | float) -> None:
        self.kappa = kappa

    def values(self, outputs: Array) -> Array:
        """Return the means, `[..., n]` of quantiles `[..., n, K]`."""
        return outputs.mean(-1)

    def target(self, reward: Array, discount: Array, following: Array) -> Array:
        """Return the targets' quantiles, `[N, K]`."""
        return self.returns(reward[:, None], discount[:, None], following)

    def loss(self, outputs: Array, target: Array, levels: Array | None = None) -> Array:
        """Return the quantile Huber loss `[N]`, at the midpoints without `levels`."""
        if levels is None:
            levels = midpoints(outputs.shape[-1])[None]
        return quantile_huber(outputs, target, levels, self.kappa)


class Implicit(Quantile):
    """Quantiles at levels that are drawn, which the network takes beside observations.

    A gradient step draws levels for each sample and compares quantiles with quantiles
    by QR-DQN's loss. Actions are chosen by the mean of the quantiles in the middles of
    equal parts; the paper draws these levels too.
    """

    def __init__(self, num_online: int, num_target: int, kappa: Array | float) -> None:
        """Keep how many levels there are, and the loss.

        Args:
            num_online: Levels N of the prediction; 64 in the paper.
            num_target: Levels N' of the target; 64 in the paper.
            kappa: Error at which Huber's loss turns linear; 1 in the paper.
        """
        super().__init__(kappa)
        self.num_online, self.num_target = num_online, num_target
        self.acting_levels = midpoints(ACTING_LEVELS)

    def draw_levels(self, key: Array, num: int) -> Levels:
        """Draw the levels of a gradient step on `num` samples; the key is consumed."""
        numbers = self.num_online + self.num_target
        levels = jax.random.uniform(key, (num, numbers))
        return Levels(levels[:, : self.num_online], levels[:, self.num_online :])


def midpoints(num: int) -> Array:
    """Return the middles of `num` equal parts of the unit interval, float32 `[num]`."""
    return (jnp.arange(num, dtype=jnp.float32) + 0.5) / num


def make(config: Any) -> ActionValues:
    """Make the kind of action values of a `DQNConfig`, whose leaves may be traced."""
    kind: ActionValues = Expected(config.value_loss)
    if config.values == "categorical":
        kind = Categorical(config.num_atoms, config.value_min, config.value_max)
    elif config.values == "quantile":
        kind = Quantile(config.kappa)
    elif config.values == "implicit":
        num_online, num_target = config.num_tau_samples, config.num_tau_prime_samples
        kind = Implicit(num_online, num_target, config.kappa)
    kind.clip_targets = config.clip_targets
    return kind


def num_outputs(config: Any) -> int | None:
    """Return the numbers that a network has for each action; None for one of means.

    Where `values` is implicit they are as many as the levels that it is given.
    """
    sizes = {"categorical": config.num_atoms, "quantile": config.num_quantiles}
    return sizes.get(config.values)


def make_network(config: Any, shape: Any, num_actions: int) -> nn.Module:
    """Make the network from observations to what is learned of each action.

    Args:
        config: Config of the agent, a `DQNConfig`.
        shape: Shape of the features of one observation.
        num_actions: Number of actions.
    """
    product, has_mask = networks.small_product, observe.has_mask(shape)
    dense = partial(networks.Dense, dot_general=product)
    if config.noisy:
        dense = partial(
            networks.NoisyDense, sigma=config.noisy_sigma, dot_general=product
        )

    def make_stream() -> nn.Module:
        sizes = network_config.stream_sizes(config)
        if not config.noisy:
            return network_config.dense_layers(config, sizes, dot_general=product)
        layer = partial(dense, scale=config.torso_gain)
        return networks.NoisyMLP(sizes, config.activation, layer, config.layer_norm)

    network = network_config.whole(config, "critic", shape)
    if network is None:
        # Dueling has a hidden layer in each stream. Noise has one, as a linear head
        # alone would only add it to the values; and levels, which that could only
        # multiply.
        has_stream = config.dueling or config.noisy or config.values == "implicit"
        network = networks.DiscreteCritic(
            network_config.torso_of(config, shape, "critic", dot_general=product),
            num_actions,
            make_stream if has_stream else None,
            config.dueling,
            has_mask,
            num_outputs=num_outputs(config),
            make_dense=partial(dense, scale=config.critic_gain),
        )
    # With distributions, the mask is put on their means later, see `dqn.values_of`.
    is_masked = has_mask and config.values == "expected"
    return networks.Masked(network) if is_masked else network

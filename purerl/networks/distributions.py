"""Action distributions: the only door to distrax (Babuschkin et al. 2020).

A head turns the network's outputs into a policy over one action space. Its *raw*
action is what the distribution is over and what is stored; `to_env` makes it an action
of the environment. So the log-probability of what was sampled is always exact,
whatever the environment then clips.
"""

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from purerl.accelerator import columns
from purerl.config import ConfigError
from purerl.envs.spaces import without_far_ends
from purerl.networks.observe import EXCLUDED, exclude
from purerl.types import Array, PyTree

# Gauss-Hermite nodes. The tanh entropy is within 0.001 for std up to 1.5, 0.004 at 2,
# 0.03 at 3 and 0.11 at 5, where nearly all actions lie at the bounds.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(16)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


class Gaussian(NamedTuple):
    """Outputs of a Gaussian policy network, `[..., A]` each."""

    mean: Array
    log_std: Array


class Head:
    """A family of policies over one action space.

    `outputs` is what the network returns for a batch of any leading shape; every
    method acts on the last axis. Noise and raw actions are arrays, and random keys are
    consumed.
    """

    num_outputs: int
    is_discrete: bool

    def noise(self, key: Array, shape: tuple[int, ...] = ()) -> Array:
        """Draw the noise of actions, `[*shape, num_outputs]`."""
        raise NotImplementedError

    def choose(self, outputs: Any, noise: Array) -> Array:
        """Return the raw actions that outputs and noise make; same leading shape."""
        raise NotImplementedError

    def sample(self, outputs: Any, key: Array) -> Array:
        """Draw raw actions."""
        lead = jax.tree.leaves(outputs)[0].shape[:-1]
        return self.choose(outputs, self.noise(key, lead))

    def mode(self, outputs: Any) -> Array:
        """Return the deterministic raw action."""
        raise NotImplementedError

    def log_prob(self, outputs: Any, raw: Array) -> Array:
        """Return the log-probability of a raw action, summed over action dimensions."""
        raise NotImplementedError

    def entropy(self, outputs: Any) -> Array:
        """Return the differential or Shannon entropy in nats."""
        raise NotImplementedError

    def to_env(self, raw: Array) -> Any:
        """Return the action that the environment gets."""
        raise NotImplementedError


def _distrax() -> Any:
    # The import takes a second, so only those who train pay for it. Its own imports use
    # names that jax has deprecated, and their warnings do not concern a user.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import distrax

    return distrax


class CategoricalHead(Head):
    """Softmax over `n` actions; `outputs` are logits `[..., n]`."""

    is_discrete = True

    def __init__(self, n: int, dtype: Any = jnp.int32) -> None:
        self.num_outputs = n
        self.dtype = dtype

    def noise(self, key: Array, shape: tuple[int, ...] = ()) -> Array:
        """Draw Gumbel noise `[*shape, n]`; the key is consumed."""
        return jax.random.gumbel(key, (*shape, self.num_outputs))

    def choose(self, outputs: Array, noise: Array) -> Array:
        """Return the action with the largest perturbed logit (the Gumbel-max trick)."""
        return columns.argmax(outputs + noise)

    def mode(self, outputs: Array) -> Array:
        """Return the most probable action."""
        return jnp.argmax(outputs, axis=-1)

    def log_prob(self, outputs: Array | list[Array], raw: Array) -> Array:
        """Return the log-probability `[...]`; logits may be a list of columns."""
        if isinstance(outputs, list):
            return columns.taken(columns.log_softmax(outputs), raw)
        return _distrax().Categorical(logits=outputs).log_prob(raw)

    def entropy(self, outputs: Array | list[Array]) -> Array:
        """Return the Shannon entropy `[...]`; logits may be a list of columns."""
        if isinstance(outputs, list):
            return columns.entropy(columns.log_softmax(outputs))
        # The function of distrax would normalise its normalised logits again.
        log_probs = _distrax().Categorical(logits=outputs).logits
        # An action of probability zero has no part, and no NaN, in the sum.
        finite = jnp.maximum(log_probs, jnp.finfo(log_probs.dtype).min)
        return -(jnp.exp(log_probs) * finite).sum(-1)

    def to_env(self, raw: Array) -> Array:
        """Return the action as the environment's integer type."""
        return raw.astype(self.dtype)


class GaussianHead(Head):
    """Independent normals; `outputs` is `Gaussian(mean, log_std)`.

    The environment gets the raw action clipped to [-1, 1] and scaled to its bounds. A
    dimension with one bound gets the raw action clipped there, and one without bounds
    (or with bounds beyond 1e30) the raw action. The policy's density is that of the
    unclipped action, so its ratio is exact (clipping the stored action would bias it).
    """

    is_discrete = False

    def __init__(self, low: Any, high: Any, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.num_outputs = int(np.prod(shape))
        low = jnp.broadcast_to(jnp.asarray(low, jnp.float32), shape).reshape(-1)
        high = jnp.broadcast_to(jnp.asarray(high, jnp.float32), shape).reshape(-1)
        low, high = without_far_ends(low), without_far_ends(high)
        self.bounded = jnp.isfinite(low) & jnp.isfinite(high)
        self.centre = jnp.where(self.bounded, (high + low) / 2, 0.0)
        self.radius = jnp.where(self.bounded, (high - low) / 2, 1.0)
        self.ends = low, high

    def _normal(self, outputs: Gaussian) -> Any:
        return _distrax().MultivariateNormalDiag(outputs.mean, jnp.exp(outputs.log_std))

    def noise(self, key: Array, shape: tuple[int, ...] = ()) -> Array:
        """Draw standard normal noise `[*shape, A]`; the key is consumed."""
        return jax.random.normal(key, (*shape, self.num_outputs))

    def choose(self, outputs: Gaussian, noise: Array) -> Array:
        """Return raw actions `[..., A]`, `mean + std * noise`."""
        return outputs.mean + jnp.exp(outputs.log_std) * noise

    def mode(self, outputs: Gaussian) -> Array:
        """Return the mean `[..., A]`."""
        return outputs.mean

    def log_prob(self, outputs: Gaussian, raw: Array) -> Array:
        """Return the log-density of the raw action, `[...]`."""
        return self._normal(outputs).log_prob(raw)

    def entropy(self, outputs: Gaussian) -> Array:
        """Return the differential entropy `[...]`."""
        return self._normal(outputs).entropy()

    def _squeezed(self, raw: Array) -> Array:
        # Where there are two bounds they are those of [-1, 1], which is scaled.
        low, high = self.ends
        low = jnp.where(self.bounded, -1.0, low)
        high = jnp.where(self.bounded, 1.0, high)
        return jnp.clip(raw, _like(low, raw), _like(high, raw))

    def to_env(self, raw: Array) -> Array:
        """Clip the raw action and scale it to the space, `[..., *shape]`."""
        squeezed = self._squeezed(raw)
        scaled = _like(self.centre, raw) + _like(self.radius, raw) * squeezed
        # Rounded, the centre and the radius may add up to more than the bound.
        scaled = jnp.clip(scaled, *(_like(end, raw) for end in self.ends))
        return scaled.reshape(*raw.shape[:-1], *self.shape)


class TanhGaussianHead(GaussianHead):
    """A normal squashed by tanh and scaled to bounds: no mass outside the space.

    The raw action is the one before tanh, so nothing is inverted; `log_prob` has the
    correction `-sum log(radius * (1 - tanh^2))`, the same at acting and learning. An
    action without width (`low == high`) has no density, and is left unscaled in it.
    """

    def __init__(self, low: Any, high: Any, shape: tuple[int, ...]) -> None:
        super().__init__(low, high, shape)
        self.width = jnp.where(self.radius > 0, self.radius, 1.0)

    def log_prob(self, outputs: Gaussian, raw: Array) -> Array:
        """Return the log-density of `to_env(raw)`, `[...]`."""
        correction = log_tanh_slope(raw) + jnp.log(_like(self.width, raw))
        return self._normal(outputs).log_prob(raw) - correction.sum(-1)

    def entropy(self, outputs: Gaussian) -> Array:
        """Return the entropy `[...]`, its tanh term by Gauss-Hermite quadrature."""
        std = jnp.exp(outputs.log_std)[..., None]
        shape = (1,) * outputs.mean.ndim + (-1,)
        nodes = outputs.mean[..., None] + std * _NODES.astype(np.float32).reshape(shape)
        weights = _WEIGHTS.astype(np.float32).reshape(shape)
        slope = (log_tanh_slope(nodes) * weights).sum(-1)
        slope = slope + jnp.log(_like(self.width, outputs.mean))
        return self._normal(outputs).entropy() + slope.sum(-1)

    def _squeezed(self, raw: Array) -> Array:
        return jnp.tanh(raw)


def log_tanh_slope(x: Array) -> Array:
    """Return `log(1 - tanh(x)^2)`, stable for large `|x|`."""
    return 2.0 * (np.log(2.0).astype(np.float32) - x - jax.nn.softplus(-2.0 * x))


def _like(vector: Array, batch: Array) -> Array:
    return jnp.broadcast_to(vector, batch.shape)


def is_discrete(space: Any) -> bool:
    """Return whether actions are choices among finitely many, one or several."""
    return any(hasattr(space, name) for name in ("n", "nvec", "bits"))


def check_real(space: Any) -> None:
    """Refuse a box of whole numbers as actions, which would get fractions, or of none.

    Raises:
        ConfigError: naming the space and the remedy.
    """
    if hasattr(space, "low") and 0 in space.shape:
        raise ConfigError(f"actions of {space} hold no number; leave them out.")
    if hasattr(space, "low") and np.dtype(space.dtype).kind in "iub":
        raise ConfigError(
            f"actions must be real numbers or choices, got {space}, a box of whole "
            "numbers; make it a MultiDiscrete in a wrapper."
        )


def make_head(space: Any, policy: str) -> Head:
    """Make the head for an action space.

    Args:
        space: Action space of `envs.spaces`, or one with the same attributes: discrete
            (see `is_discrete`) or a box (has `low`, `high`, `shape`).
        policy: Kind of the distribution, `auto`, `categorical`, `gaussian` or
            `tanh_gaussian`.

    Raises:
        ValueError: the policy does not fit the space.
    """
    if hasattr(space, "spaces"):
        raise ValueError(
            f"actions of several parts are for PPOConfig and VPGConfig, got {space}."
        )
    check_real(space)
    discrete = is_discrete(space)
    if not discrete and not hasattr(space, "low"):
        raise ValueError(f"actions must be of a space of envs.spaces, got {space!r}.")
    if policy == "auto":
        policy = "categorical" if discrete else "gaussian"
    if discrete != (policy == "categorical"):
        raise ValueError(
            f"policy {policy!r} does not fit the action space {space}; use auto."
        )
    if hasattr(space, "n"):
        return CategoricalHead(int(space.n), space.dtype)
    if hasattr(space, "nvec"):
        return MultiCategoricalHead(space.nvec, space.dtype)
    if hasattr(space, "bits"):
        return BernoulliHead(tuple(space.shape), space.dtype)
    head = TanhGaussianHead if policy == "tanh_gaussian" else GaussianHead
    bounds = (space.low, space.high)
    known = [without_far_ends(x) for x in bounds if not isinstance(x, Tracer)]
    is_bounded = all(np.all(np.isfinite(x)) for x in known)
    if policy == "tanh_gaussian" and not is_bounded:
        raise ValueError(
            f"policy 'tanh_gaussian' needs a bounded action space, got {space}; "
            "use gaussian."
        )
    return head(*bounds, tuple(space.shape))


class _SeveralChoices(Head):
    """Raw actions of `K` components, which the environment has in another shape."""

    is_discrete = True
    shape: tuple[int, ...]
    dtype: Any

    def to_env(self, raw: Array) -> Array:
        """Return the action in the shape and integer type of the environment."""
        return raw.astype(self.dtype).reshape(*raw.shape[:-1], *self.shape)


class MultiCategoricalHead(_SeveralChoices):
    """A softmax for each of `K` components; `outputs` are logits `[..., sum(nvec)]`.

    The logits of a component stand side by side, in the order of the components. Raw
    actions are int `[..., K]`.
    """

    def __init__(self, nvec: Any, dtype: Any = jnp.int32) -> None:
        sizes = np.reshape(np.asarray(nvec), -1)
        self.shape = np.shape(nvec)
        self.num_outputs = int(sizes.sum())
        self.dtype = dtype
        # Components of other sizes become rows of one: `[K, max(nvec)]` of places in
        # the logits, and whether there is such a member.
        members = np.arange(sizes.max())[None]
        starts = np.cumsum(sizes) - sizes
        self.exists = members < sizes[:, None]
        self.places = np.where(self.exists, starts[:, None] + members, 0)

    def _rows(self, outputs: Array) -> Array:
        """Logits `[..., K, max(nvec)]`, of members that do not exist next to none.

        Where a mask has left no member of a component, all of them are as likely.
        """
        rows = outputs[..., self.places]
        exists = jnp.broadcast_to(self.exists, rows.shape)
        is_empty = ~(exists & (rows > EXCLUDED / 2)).any(-1, keepdims=True)
        return exclude(jnp.where(is_empty, 0.0, rows), exists)

    def noise(self, key: Array, shape: tuple[int, ...] = ()) -> Array:
        """Draw Gumbel noise `[*shape, sum(nvec)]`; the key is consumed."""
        return jax.random.gumbel(key, (*shape, self.num_outputs))

    def choose(self, outputs: Array, noise: Array) -> Array:
        """Return the member with the largest perturbed logit of each, `[..., K]`."""
        return jnp.argmax(self._rows(outputs) + noise[..., self.places], axis=-1)

    def mode(self, outputs: Array) -> Array:
        """Return the most probable action."""
        return jnp.argmax(self._rows(outputs), axis=-1)

    def log_prob(self, outputs: Array, raw: Array) -> Array:
        """Return the sum of the components' log-probabilities, `[...]`."""
        log_probs = jax.nn.log_softmax(self._rows(outputs))
        taken = jnp.take_along_axis(log_probs, raw[..., None], -1)[..., 0]
        return taken.sum(-1)

    def entropy(self, outputs: Array) -> Array:
        """Return the sum of the components' Shannon entropies, `[...]`."""
        log_probs = jax.nn.log_softmax(self._rows(outputs))
        return -(jnp.exp(log_probs) * log_probs).sum((-2, -1))


class BernoulliHead(_SeveralChoices):
    """A coin for each of `K` components; `outputs` are the logits of a 1, `[..., K]`.

    Raw actions are int `[..., K]`, of zeros and ones.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any = jnp.int8) -> None:
        self.shape = shape
        self.num_outputs = int(np.prod(shape))
        self.dtype = dtype

    def noise(self, key: Array, shape: tuple[int, ...] = ()) -> Array:
        """Draw logistic noise `[*shape, K]`; the key is consumed."""
        return jax.random.logistic(key, (*shape, self.num_outputs))

    def choose(self, outputs: Array, noise: Array) -> Array:
        """Return 1 where the perturbed logit is positive, int32 `[..., K]`."""
        return (outputs + noise > 0).astype(jnp.int32)

    def mode(self, outputs: Array) -> Array:
        """Return the most probable action."""
        return (outputs > 0).astype(jnp.int32)

    def log_prob(self, outputs: Array, raw: Array) -> Array:
        """Return the sum of the components' log-probabilities, `[...]`."""
        return jax.nn.log_sigmoid(jnp.where(raw > 0, outputs, -outputs)).sum(-1)

    def entropy(self, outputs: Array) -> Array:
        """Return the sum of the components' Shannon entropies, `[...]`."""
        # H = -log sigmoid(x) + (1 - sigmoid(x)) x, by log sigmoid(-x) = log sigmoid(x)
        # - x.
        rest = jax.nn.sigmoid(-outputs) * outputs
        return (rest - jax.nn.log_sigmoid(outputs)).sum(-1)


class MixedHead(Head):
    """A policy with a factor for every part of a `Dict` or a `Tuple`.

    `outputs` is a `Gaussian`, `[..., A]` each, in which every part has its numbers side
    by side, in the order of JAX's pytrees. The mean of a discrete part is its logits,
    and its log standard deviation is not read. Raw actions are float32 `[..., R]`,
    which hold the whole numbers of discrete parts exactly.

    The entropy is the sum of the Shannon entropies of discrete parts and the
    differential entropies of the others.

    Args:
        heads: Pytree of the action's structure, with the head of every part.
    """

    is_discrete = False

    def __init__(self, heads: PyTree) -> None:
        self.heads, self.structure = jax.tree.flatten(heads)
        sizes = [head.num_outputs for head in self.heads]
        self.num_outputs = sum(sizes)
        self.places = np.cumsum(sizes)[:-1]
        raw_sizes = [
            1 if isinstance(head, CategoricalHead) else int(np.prod(head.shape))
            for head in self.heads
        ]
        self.raw_places = np.cumsum(raw_sizes)[:-1]

    def noise(self, key: Array, shape: tuple[int, ...] = ()) -> Array:
        """Draw the noise of all parts, `[*shape, A]`; the key is consumed."""
        keys = jax.random.split(key, len(self.heads))
        pairs = zip(self.heads, keys, strict=True)
        return jnp.concatenate([head.noise(one, shape) for head, one in pairs], -1)

    def choose(self, outputs: Gaussian, noise: Array) -> Array:
        """Return the raw actions that outputs and noise make, `[..., R]`."""
        noises = jnp.split(noise, self.places, -1)
        return self._joined(
            head.choose(part, some)
            for head, part, some in zip(
                self.heads, self._parts(outputs), noises, strict=True
            )
        )

    def mode(self, outputs: Gaussian) -> Array:
        """Return the likeliest member of discrete parts and the mean of the others."""
        pairs = zip(self.heads, self._parts(outputs), strict=True)
        return self._joined(head.mode(part) for head, part in pairs)

    def log_prob(self, outputs: Gaussian, raw: Array) -> Array:
        """Return the sum of the parts' log-probabilities and log-densities, `[...]`."""
        parts = zip(self.heads, self._parts(outputs), self._raw_parts(raw), strict=True)
        return jnp.stack([head.log_prob(part, one) for head, part, one in parts]).sum(0)

    def entropy(self, outputs: Gaussian) -> Array:
        """Return the sum of the parts' entropies, `[...]`."""
        pairs = zip(self.heads, self._parts(outputs), strict=True)
        return jnp.stack([head.entropy(part) for head, part in pairs]).sum(0)

    def to_env(self, raw: Array) -> PyTree:
        """Return the action, a dictionary or a tuple as the space is."""
        pairs = zip(self.heads, self._raw_parts(raw), strict=True)
        return jax.tree.unflatten(
            self.structure, [head.to_env(part) for head, part in pairs]
        )

    def _parts(self, outputs: Gaussian) -> list[Any]:
        """The outputs of every part, as its own head takes them."""
        means = jnp.split(outputs.mean, self.places, -1)
        log_stds = jnp.split(outputs.log_std, self.places, -1)
        return [
            mean if head.is_discrete else Gaussian(mean, log_std)
            for head, mean, log_std in zip(self.heads, means, log_stds, strict=True)
        ]

    def _raw_parts(self, raw: Array) -> list[Array]:
        """The raw action of every part, as its own head takes it."""
        parts = []
        for head, part in zip(
            self.heads, jnp.split(raw, self.raw_places, -1), strict=True
        ):
            part = part.astype(jnp.int32) if head.is_discrete else part
            parts.append(part[..., 0] if isinstance(head, CategoricalHead) else part)
        return parts

    def _joined(self, parts: Any) -> Array:
        """The raw actions of all parts side by side, float32 `[..., R]`."""
        rows = [
            part[..., None] if isinstance(head, CategoricalHead) else part
            for head, part in zip(self.heads, parts, strict=True)
        ]
        return jnp.concatenate([row.astype(jnp.float32) for row in rows], -1)


def make_policy_head(space: Any, policy: str) -> Head:
    """Make the head for an action space, which may have several parts.

    Args:
        space: Action space of `envs.spaces`, or one with the same attributes.
        policy: Kind of the distribution, as in `make_head`. Of several parts it is that
            of those with numbers; discrete ones among them are categorical.

    Raises:
        ValueError: the policy does not fit the space, or a part of it.
    """
    if not hasattr(space, "spaces"):
        return make_head(space, policy)
    is_all_discrete = all(map(is_discrete, _members(space)))

    def head_of(part: Any) -> PyTree:
        if isinstance(getattr(part, "spaces", None), dict):
            return {key: head_of(inner) for key, inner in part.spaces.items()}
        if hasattr(part, "spaces"):
            return tuple(map(head_of, part.spaces))
        is_given = is_all_discrete or not is_discrete(part)
        return make_head(part, policy if is_given else "auto")

    return MixedHead(head_of(space))


def _members(space: Any) -> list[Any]:
    """The spaces inside a space of several parts that have no parts themselves."""
    if not hasattr(space, "spaces"):
        return [space]
    parts = space.spaces
    inner = parts.values() if isinstance(parts, dict) else parts
    return [member for part in inner for member in _members(part)]

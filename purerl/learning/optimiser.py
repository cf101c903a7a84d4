"""Optimisers, rebuilt from numbers inside every step so that a state holds arrays only.

Their state has the same structure whatever the numbers, which may be traced.

Parts of networks, of which some may be frozen, have names. The name of an array is its
path with dots, such as `actor.torso.Dense_0.kernel`. Flax keeps what is learned in
collections called `params`, which are left out. A part is some consecutive words of
such names: `torso` means the torso of every network, and `actor.torso` the actor's.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from purerl.accelerator.kernels import traced_for_cpu
from purerl.learning.averages import root
from purerl.types import Array, PyTree

# With an infinite bound a gradient would be scaled by inf / inf, which is no number. No
# norm is twice as large as this, because its square would be infinite; and the product
# of a number and a power of two is not rounded.
_LARGEST = 2.0**63

CRITICS = ("critic", "critic_core")
"""The names of the networks that are the critic's own."""
# Flax's name for the collection of parameters, and the field of a state that holds
# networks.
_LEFT_OUT = "params"


class ClipState(NamedTuple):
    """The norm of the last gradient, before clipping, float32 `[]`."""

    grad_norm: Array


def make(
    optimiser: Any,
    learning_rate: Array | float,
    max_grad_norm: Array | float | None = None,
    layers: Callable[[Array], PyTree] | None = None,
    frozen: Callable[[PyTree], PyTree] | None = None,
    measured: bool = True,
) -> optax.GradientTransformation:
    """Make an optimiser after clipping by the *global* norm.

    Not as `optax.clip`, which clips every element by itself.

    Give it one flat vector (`flatten`): a dozen small layers are a dozen small kernels
    for each of its operations.

    Args:
        max_grad_norm: Largest Euclidean norm of the whole gradient, may be traced;
            without one nothing is clipped.
        layers: Function from the flat vector to a pytree of layers, for an optimiser
            that needs them; None where the parameters are such a pytree already.
        frozen: Function from layers to which of them do not learn, from
            `frozen_in`; None where all do.
        measured: Whether somebody reads the norm of the gradient (`grad_norm`). It is
            not computed where nobody does and nothing is clipped.
    """
    optim = optax.chain(
        clip_by_global_norm(max_grad_norm, measured),
        transformation(optimiser, learning_rate, layers),
    )
    return keep_frozen(optim, layers, frozen, optimiser)


def of_config(
    config: Any,
    params: dict[str, PyTree],
    anneal: Callable[[Array | float], Array | float] = lambda rate: rate,
) -> optax.GradientTransformation:
    """Return the optimiser of all networks of a config, on one flat vector.

    It clips the gradient of all of them at once where the config has `max_grad_norm`,
    and leaves what is frozen as it is.
    `critic_learning_rate` of the config, if any, is that of the networks `CRITICS`.

    Args:
        config: Config of the agent; its leaves may be traced.
        params: Parameters as layers, by network.
        anneal: Function from a step size of the config to that of the update.
    """
    layers = layers_of(params)
    rate, max_norm = config.learning_rate, getattr(config, "max_grad_norm", None)
    frozen = frozen_in(config.frozen)
    critic_rate = getattr(config, "critic_learning_rate", None)
    if critic_rate is None:
        return make(config.optimiser, anneal(rate), max_norm, layers, frozen)

    rates = {name: anneal(critic_rate if name in CRITICS else rate) for name in params}

    def scale(updates: Any, flat: Any = None) -> Any:
        del flat
        factors = {
            name: jax.tree.map(lambda x, r=rates[name]: jnp.full_like(x, r), layers)
            for name, layers in params.items()
        }
        return updates * ravel_pytree(factors)[0]

    # A step of every optimiser here is proportional to its step size.
    optim = optax.chain(
        clip_by_global_norm(max_norm),
        transformation(config.optimiser, 1.0, layers),
        optax.stateless(scale),
    )
    return keep_frozen(optim, layers, frozen, config.optimiser)


Make = Callable[[Callable[[Array], PyTree]], optax.GradientTransformation]


def beside(
    make_own: Make,
    make_heads: Make,
    layers: Callable[[Array], PyTree],
    heads: tuple[str, ...],
) -> optax.GradientTransformation:
    """Return an optimiser of a flat vector that moves some networks apart from others.

    Neither sees the numbers of the other, so that an agent learns to the last bit as
    without these networks where no gradient goes from them to it.

    Args:
        make_own: Function from `layers` of the agent's own networks to their optimiser.
        make_heads: Function from `layers` of the other networks to theirs.
        layers: Function from the flat vector to all networks by name.
        heads: Names of the other networks.
    """

    def split(flat: Any) -> Any:
        """Two vectors, and the way from each to its networks."""
        named = layers(flat)
        others = {name: x for name, x in named.items() if name not in heads}
        return ravel_pytree(others), ravel_pytree({n: named[n] for n in heads})

    def init(flat: Any) -> Any:
        (own, of_own), (more, of_more) = split(flat)
        first: Any = make_own(of_own).init(own)
        return (*first, make_heads(of_more).init(more))

    def update(updates: Any, state: Any, params: Any = None, **seen: Any) -> Any:
        (own, of_own), (more, of_more) = split(updates)
        (p_own, _), (p_more, _) = split(params)
        first: Any = make_own(of_own)
        *kept, last = state
        own, kept = first.update(own, tuple(kept), p_own, **seen)
        more, last = make_heads(of_more).update(more, last, p_more)
        moves = {**of_own(own), **of_more(more)}
        return ravel_pytree(moves)[0], (*kept, last)

    return optax.GradientTransformationExtraArgs(init, update)  # type: ignore[arg-type]


def transformation(
    optimiser: Any,
    learning_rate: Array | float,
    layers: Callable[[Array], PyTree] | None = None,
) -> optax.GradientTransformation:
    """Make an optimiser that does not clip, and moves what is frozen too."""
    inner = optimiser(learning_rate)
    if layers is None or not sees_layers(optimiser):
        return inner

    def init(params: Any) -> Any:
        return inner.init(layers(params))

    def update(updates: Any, state: Any, params: Any = None, **seen: Any) -> Any:
        params = None if params is None else layers(params)
        moves, state = inner.update(layers(updates), state, params, **seen)
        return ravel_pytree(moves)[0], state

    return optax.GradientTransformationExtraArgs(init, update)


def keep_frozen(
    optim: optax.GradientTransformation,
    layers: Callable[[Array], PyTree] | None,
    frozen: Callable[[PyTree], PyTree] | None,
    optimiser: Any = None,
) -> optax.GradientTransformation:
    """Make an optimiser leave some layers as they are, to the last bit.

    It sees no gradient of them, so that they are no part of norms and moments, and does
    not move them, whatever it does by itself (weight decay). Its state is as without.

    Args:
        optim: Optimiser of a flat vector, or of layers where `layers` is None.
        optimiser: What made it. If it takes means over parameters it must know which:
            it has `needs_frozen`, and `update` takes `moving`, `[P]` bool, which
            numbers of the flat vector are not frozen.
    """
    if frozen is None:
        return optim
    given: Any = optim

    def masked(updates: Any, still: Any, value: float) -> Any:
        return jax.tree.map(
            lambda x, is_still: jnp.where(is_still, jnp.asarray(value, x.dtype), x),
            updates,
            still,
        )

    def update(updates: Any, state: Any, params: Any = None, **seen: Any) -> Any:
        shapes = updates if layers is None else jax.eval_shape(layers, updates)
        of_leaves = frozen(shapes)
        sizes = [leaf.size for leaf in jax.tree.leaves(shapes)]
        flat = np.repeat(jax.tree.leaves(of_leaves), sizes)
        still = of_leaves if layers is None else flat
        if getattr(optimiser, "needs_frozen", False):
            seen["moving"] = ~flat
        moves, state = given.update(masked(updates, still, 0.0), state, params, **seen)
        # Adding -0.0 leaves every number as it is, 0 and -0 among them.
        return masked(moves, still, -0.0), state

    return optax.GradientTransformationExtraArgs(optim.init, update)


def sees_layers(optimiser: Any) -> bool:
    """Return whether an optimiser takes the pytree of layers, and not one flat vector.

    It does unless its own class says `needs_layers = False`: masks, names and norms of
    layers need them, and what looks at numbers alone moves them the same way.
    """
    return vars(type(optimiser)).get("needs_layers", True)


def sees_activity(optimiser: Any) -> bool:
    """Return whether an optimiser sees how active units are, and the epoch.

    It then has `needs_activity`, and its `update` takes `activity` and `epoch`.
    """
    return bool(getattr(optimiser, "needs_activity", False))


def without_noise(optimiser: Any) -> Any:
    """Return an optimiser that moves nothing at random, for what is no policy.

    Args:
        optimiser: Optimiser of a config; one that has no noise is returned as it is.
    """
    has_noise = bool(getattr(optimiser, "noise", False))
    return optimiser.replace(noise=False) if has_noise else optimiser


def layers_of(params: PyTree) -> Callable[[Array], PyTree]:
    """Return the way from a flat vector to layers, which costs nothing until used.

    Args:
        params: Pytree of float leaves, as `flatten` takes it.
    """
    return lambda flat: ravel_pytree(params)[1](flat)


def flatten(params: PyTree) -> tuple[Array, Callable[[Array], PyTree]]:
    """Flatten parameters into one vector; return it and the way back.

    The way back is differentiable, and its gradient is one concatenation; the plain
    one of `ravel_pytree` pads every layer's gradient to the whole length and adds.

    Returns:
        `(flat [P], restore)` with `restore(flat) == params`.
    """
    flat, unravel = ravel_pytree(params)

    @jax.custom_vjp
    def restore(flat: Array) -> PyTree:
        return unravel(flat)

    def forward(flat: Array) -> tuple[PyTree, None]:
        return unravel(flat), None

    def backward(_: None, gradient: PyTree) -> tuple[Array]:
        return (ravel_pytree(gradient)[0],)

    restore.defvjp(forward, backward)
    return flat, restore


class Form(NamedTuple):
    """A form of parameters that is not one flat vector, while they are learned.

    Attributes:
        join: Function from parameters to that form, a pytree.
        split: Function from that form to parameters.
    """

    join: Callable[[PyTree], PyTree]
    split: Callable[[PyTree], PyTree]


def enter(
    params: PyTree, opt_state: PyTree, form: Form | None
) -> tuple[PyTree, PyTree, Callable[[PyTree], PyTree], Callable]:
    """Bring parameters and an optimiser's state into the form in which they move.

    Args:
        opt_state: State of an optimiser of the flat vector. With a form, the optimiser
            must treat every parameter alone.
        form: The form; one flat vector where not given.

    Returns:
        What moves, the state of the optimiser for it, a function from what moves to
        what a loss takes, and one from both to parameters and the state for the flat
        vector.
    """
    flat, restore = flatten(params)
    if form is None:
        return flat, opt_state, restore, lambda flat, state: (restore(flat), state)
    moved = form.join(params)
    size, structure = flat.size, jax.tree.structure(moved)

    def is_moved(leaf: Any) -> bool:
        return jax.tree.structure(leaf) == structure

    def leave(moved: PyTree, state: PyTree) -> tuple[PyTree, PyTree]:
        def flattened(leaf: PyTree) -> Array:
            return ravel_pytree(form.split(leaf))[0] if is_moved(leaf) else leaf

        state = jax.tree.map(flattened, state, is_leaf=is_moved)
        return form.split(moved), state

    joined = jax.tree.map(
        lambda leaf: form.join(restore(leaf)) if leaf.shape == (size,) else leaf,
        opt_state,
    )
    return moved, joined, lambda moved: moved, leave


def clip_by_global_norm(
    max_norm: Array | float | None, measured: bool = True
) -> optax.GradientTransformation:
    """Scale a gradient longer than `max_norm` down to it, and remember its norm.

    `optax.clip_by_global_norm` that keeps the norm, which would else be computed twice.

    Args:
        max_norm: Largest Euclidean norm, may be traced; without one nothing is clipped.
        measured: Whether the norm is remembered also where nothing is clipped.
    """

    def init(params: Any) -> ClipState:
        del params
        return ClipState(jnp.zeros(()))

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        del params
        if max_norm is None and not measured:
            return updates, state
        # Of one vector an accelerator computes the norm in one kernel.
        whole = updates if traced_for_cpu() else ravel_pytree(updates)[0]
        norm = root(optax.tree.norm(whole, squared=True))
        if max_norm is None:
            return updates, ClipState(norm)
        bound = jnp.minimum(max_norm, _LARGEST)  # one that is traced may be infinite
        # Dividing by the larger of the two avoids 0 / 0 where the gradient vanishes.
        longest = jnp.maximum(norm, bound)
        if traced_for_cpu():
            clipped = optax.tree.scale(bound / longest, updates)
        else:
            # Dividing every number costs no kernel, whereas the quotient of the two
            # norms, which all numbers share, would be one of its own.
            clipped = jax.tree.map(lambda x: x * bound / longest, updates)
        return clipped, ClipState(norm)

    return optax.GradientTransformation(init, update)


def grad_norm(opt_state: Any) -> Array:
    """Return the norm of the last gradient, before clipping."""
    return opt_state[0].grad_norm


def polyak(target: PyTree, online: PyTree, tau: Array | float) -> PyTree:
    """Move the target towards the online parameters: `target + tau (online - target)`.

    Args:
        target: Parameters of the target network.
        online: Parameters of the online network, of the same structure.
        tau: Share of the online ones in the result: 0.005 makes a slow target, 1 a
            copy, 0 no change (each exactly).
    """
    return jax.tree.map(lambda t, o: (1.0 - tau) * t + tau * o, target, online)


def annealed(value: Array | float, update: Array, num_updates: int) -> Array:
    """Decay linearly to zero over a run, `value * (1 - update / U)`; zero after it.

    Args:
        value: The value at update 0.
        update: `[]` int, number of updates done.
        num_updates: Number of updates of the whole run.
    """
    return value * jnp.maximum(0.0, 1.0 - update / num_updates)


def name_leaves(tree: PyTree, prefix: str = "") -> list[tuple[str, PyTree]]:
    """Return the names of the leaves of a pytree with the leaves, in its order.

    Args:
        tree: The pytree.
        prefix: The name of the whole, which begins all names.
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    begin = [prefix] if prefix else []
    named = []
    for path, leaf in leaves:
        words = [jax.tree_util.keystr((entry,), simple=True) for entry in path]
        kept = [word for word in words if word and word != _LEFT_OUT]
        named.append((".".join([*begin, *kept]), leaf))
    return named


def is_in(name: str, part: str) -> bool:
    """Return whether an array belongs to a part, both by name."""
    return f".{part}." in f".{name}."


def frozen_in(parts: Sequence[str], prefix: str = "") -> Callable | None:
    """Return what says which arrays are frozen; None where no part is.

    Args:
        parts: Names of the parts that do not learn, as in a config's `frozen`.
        prefix: The name of the parameters that are asked about, where they are not
            everything that is learned.

    Returns:
        A function from layers of parameters to a pytree of Python truth values.
    """
    if not parts:
        return None

    def is_frozen(layers: PyTree) -> PyTree:
        named = name_leaves(layers, prefix)
        frozen = [any(is_in(name, part) for part in parts) for name, _ in named]
        return jax.tree.unflatten(jax.tree.structure(layers), frozen)

    return is_frozen

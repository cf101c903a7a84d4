"""The inputs of DiscoRL's network for every step (Oh et al. 2025, Methods).

The numbers and their order are those of the published weights.
"""

import jax
import jax.numpy as jnp

from purerl.learning.two_hot import signed_log
from purerl.rules.disco.inputs import DiscoInputs, Outputs
from purerl.types import Array, PyTree

# The numbers of inputs of a step, without the embeddings of the actions, and of an
# action.
NUM_OF_STEP = 23
NUM_OF_ACTION = 9

Params = dict[str, PyTree]


def dense(layer: tuple[Array, Array], x: Array) -> Array:
    """Return `x @ kernel + bias`, `[..., O]`.

    Args:
        layer: Kernel `[I, O]` and bias `[O]`.
        x: `[..., I]` inputs.
    """
    kernel, bias = layer
    out = x @ kernel
    return out + jnp.broadcast_to(bias, out.shape)


def embed(params: Params, name: str, logits: Array) -> Array:
    """Return one number `[..., 1]` of each distribution.

    Args:
        params: Layers of the network, by name.
        name: Name of the layers: `y` or `z`, with or without a prefix.
        logits: `[..., M]` logits of the distributions.
    """
    hidden = jax.nn.relu(dense(params[f"{name}_embedding"], jax.nn.softmax(logits)))
    return dense(params[f"{name}_number"], hidden)


def among_actions(layer: tuple[Array, Array], x: Array) -> Array:
    """Return relu units of each action, which also see the mean over the actions.

    Args:
        layer: Kernel `[2 I, O]` and bias `[O]`, shared by all actions.
        x: `[..., A, I]` inputs of each action.
    """
    mean = jnp.broadcast_to(x.mean(axis=-2, keepdims=True), x.shape)
    return jax.nn.relu(dense(layer, jnp.concatenate([x, mean], axis=-1)))


def of_action(x: Array, action: Array) -> Array:
    """Return what belongs to the actions that were taken, `[T, B, ...]`.

    Args:
        x: `[T, B, A, ...]` values of all actions.
        action: `[T, B]` int, the actions that were taken.
    """
    # A sum with one term is used because the gradient of a look-up writes number by
    # number.
    is_taken = action[..., None] == jnp.arange(x.shape[2])[None, None]
    is_taken = is_taken.reshape(*is_taken.shape, *[1] * (x.ndim - 3))
    return jnp.where(is_taken, x, 0.0).sum(2)


def of_steps(params: Params, prefix: str, inputs: DiscoInputs) -> tuple[Array, Array]:
    """Return what the network sees of every step, and its embedding of every action.

    Args:
        params: Layers of the network, by name.
        prefix: Prefix of the names of its embeddings.
        inputs: The trajectories.

    Returns:
        `[T, B, 23 + 2 E]` and `[T, B, A, E]`.
    """
    values, action = inputs.values, inputs.action
    policy, behaviour, target = (
        jax.nn.softmax(logits)
        for logits in (inputs.online.logits, inputs.behaviour, inputs.target.logits)
    )
    next_policy = jax.nn.softmax(inputs.next_online.logits)
    z = embed(params, f"{prefix}z", inputs.online.z)[..., 0]
    target_z = embed(params, f"{prefix}z", inputs.target.z)[..., 0]

    def of_z(z: Array, after: Outputs) -> list[Array]:
        """Return its values: of the action, the policy's mean, the maximum."""
        next_z = embed(params, f"{prefix}z", after.z)[..., 0]
        return [
            of_action(z, action),
            (z * policy).sum(-1),
            (next_z * next_policy).sum(-1),
            z.max(-1),
            next_z.max(-1),
        ]

    def of_y(logits: Array) -> Array:
        return embed(params, f"{prefix}y", logits)[..., 0]

    known = (policy, behaviour, target, z, target_z)
    embedding = _of_actions(params, prefix, inputs, known)
    numbers = [
        of_action(policy, action),
        of_action(behaviour, action),
        signed_log(inputs.reward),
        1.0 - inputs.terminated,
        signed_log(values.value),
        signed_log(values.next_value),
        signed_log(values.advantage),
        values.standardised,
        of_action(target, action),
        *(of_y(inputs.online.y), of_y(inputs.next_online.y)),
        *(of_y(inputs.target.y), of_y(inputs.next_target.y)),
        *of_z(z, inputs.next_online),
        *of_z(target_z, inputs.next_target),
    ]
    seen = [
        jnp.stack(numbers, axis=-1),
        embedding.mean(2),
        of_action(embedding, action),
    ]
    return jnp.concatenate(seen, axis=-1), embedding


def _of_actions(
    params: Params, prefix: str, inputs: DiscoInputs, known: tuple[Array, ...]
) -> Array:
    """Return the embedding `[T, B, A, E]` of every action.

    Args:
        params: Layers of the network, by name.
        prefix: Prefix of the names of its embeddings.
        inputs: The trajectories.
        known: Policies and predictions, `[T, B, A]` each.
    """
    values = inputs.values
    each = [
        *known,
        *(signed_log(values.target_q), signed_log(values.action_advantage)),
        values.action_standardised,
        jax.nn.one_hot(inputs.action, known[0].shape[-1]),
    ]
    embedding = jnp.stack(each, axis=-1)
    for number in (1, 2):
        embedding = among_actions(params[f"{prefix}action_{number}"], embedding)
    return embedding

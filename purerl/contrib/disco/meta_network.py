"""DiscoRL's network, which makes targets of trajectories (Oh et al. 2025, Methods).

It has two recurrent parts. One reads every trajectory from its last step to its first.
The other lives as long as the agent: it takes one step per update, of a mean over the
trajectories, and what it remembers scales what the first one puts out.
"""

import jax
import jax.numpy as jnp

from purerl.contrib.disco.inputs import DiscoInputs, DiscoTargets, Outputs, of_action
from purerl.learning.collectives import pmean
from purerl.learning.small_networks import dense
from purerl.learning.two_hot import signed_log
from purerl.networks.recurrent import LSTMMemory, forget, lstm
from purerl.types import Array, PyTree

# The numbers of inputs of a step, without the embeddings of the actions, and of an
# action.
NUM_OF_STEP = 23
NUM_OF_ACTION = 9

Params = dict[str, PyTree]


def embed(params: Params, name: str, logits: Array) -> Array:
    """Return one number `[..., 1]` of each distribution.

    Args:
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


def of_steps(params: Params, prefix: str, inputs: DiscoInputs) -> tuple[Array, Array]:
    """Return what the network sees of every step, and its embedding of every action.

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


LIFETIME = "lifetime_"


def init_lifetime(params: Params) -> LSTMMemory:
    """Return the memory `[L]` of an agent that is about to begin: zeros."""
    size = params["lifetime_gain"][0].shape[0]
    return LSTMMemory(jnp.zeros(size), jnp.zeros(size))


def apply(
    params: Params,
    inputs: DiscoInputs,
    memory: LSTMMemory,
    axis_name: str | None = None,
) -> tuple[DiscoTargets, LSTMMemory]:
    """Return the targets of trajectories, and the agent's next memory.

    Args:
        params: Layers by name, see `weights.shapes_of`.
        memory: The agent's memory `[L]`.
        axis_name: Mapped axis over which trajectories are spread, if any.
    """
    x, of_actions = of_steps(params, "", inputs)
    hidden = _read_backwards(params["trajectory_lstm"], x, inputs.done)
    gain = dense(params["lifetime_gain"], memory.hidden)
    hidden = hidden * jnp.broadcast_to(gain, hidden.shape)
    wide = jnp.broadcast_to(
        hidden[:, :, None], (*of_actions.shape[:3], hidden.shape[-1])
    )
    units = among_actions(
        params["policy_hidden"], jnp.concatenate([wide, of_actions], axis=-1)
    )
    targets = DiscoTargets(
        logits=dense(params["policy"], units)[..., 0],
        y=dense(params["y"], hidden),
        z=dense(params["z"], hidden),
    )
    seen, _ = of_steps(params, LIFETIME, inputs)
    summary = dense(params["summary"], hidden)
    of_y = embed(params, f"{LIFETIME}y", targets.y)
    found = dense(
        params["lifetime_input"], jnp.concatenate([seen, summary, of_y], axis=-1)
    )
    mean = pmean(found.mean((0, 1)), axis_name)
    return targets, _one_step(params["lifetime_lstm"], mean, memory)


def _read_backwards(layer: tuple[Array, Array], x: Array, done: Array) -> Array:
    """The recurrent network's outputs `[T, B, H]`, which know the steps that follow.

    Its memory is empty after the last step of a trajectory and of an episode.

    Args:
        layer: Kernel `[F + H, 4 H]` and bias.
        x: `[T, B, F]` features of the steps.
        done: `[T, B]` bool, the step is the last one of its episode.
    """
    kernel, bias = layer
    features = x.shape[-1]
    recurrent = kernel[features:]
    gates = dense((kernel[:features], bias), x)
    blank = jnp.zeros((x.shape[1], recurrent.shape[0]))

    def step(memory: LSTMMemory, xs: tuple[Array, Array]) -> tuple[LSTMMemory, Array]:
        gates_t, done_t = xs
        memory = lstm(recurrent, gates_t, forget(memory, done_t))
        return memory, memory.hidden

    start = LSTMMemory(blank, blank)
    return jax.lax.scan(step, start, (gates, done), reverse=True)[1]


def _one_step(layer: tuple[Array, Array], x: Array, memory: LSTMMemory) -> LSTMMemory:
    kernel, bias = layer
    return lstm(kernel[len(x) :], dense((kernel[: len(x)], bias), x), memory)

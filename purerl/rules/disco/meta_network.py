"""DiscoRL's network, which makes targets of trajectories (Oh et al. 2025, Methods).

It has two recurrent parts. One reads every trajectory from its last step to its first.
The other lives as long as the agent: it takes one step per update, of a mean over the
trajectories, and what it remembers scales what the first one puts out.
"""

import jax
import jax.numpy as jnp

from purerl.learning.collectives import pmean
from purerl.networks.recurrent import LSTMMemory, forget, lstm
from purerl.rules.disco.features import (
    Params,
    among_actions,
    dense,
    embed,
    of_steps,
)
from purerl.rules.disco.inputs import DiscoInputs, DiscoTargets
from purerl.types import Array

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
        inputs: The trajectories.
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

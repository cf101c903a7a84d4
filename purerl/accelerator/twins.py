"""Two critics of TD3 and SAC as one network, for a program with few kernels.

On an accelerator small networks take the time of kernels that follow one another, and
two critics that see the same have every kernel twice. Within an update they are an
ensemble there, `[2, ...]` parameters with one product for both, as more than two always
are. Between updates parameters, targets and moments are those of `networks.Twin`, on
every platform. What is computed is the same, up to rounding.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl import networks
from purerl.accelerator.kernels import traced_for_cpu
from purerl.networks.heads import ActionCritic, DiscreteCritic
from purerl.networks.torsos import MLP
from purerl.optimisers.first_order import is_known
from purerl.types import PyTree

# Joining and separating the critics takes some 75 kernels; a gradient step has some ten
# fewer then.
FEWEST_STEPS = 16


def as_one(config: Any, critics: nn.Module) -> networks.Ensemble | None:
    """Return both critics as one network, None where they stay two.

    They stay two on a CPU, which multiplies two plain matrices faster than a batch of
    two; where something is frozen, which is named by its layer; where not every number
    moves by itself; and where an update has too few gradient steps to make up for
    joining and separating them.

    Args:
        config: Config of the agent.
        critics: The critics of the config.
    """
    if traced_for_cpu() or type(critics) is not networks.Twin or config.frozen:
        return None
    if config.rounds_per_update * config.gradient_steps_per_round < FEWEST_STEPS:
        return None
    if not (is_known(config.optimiser) and _is_dense(critics.make())):
        return None
    return networks.Ensemble(critics.make, 2)


def _is_dense(critic: nn.Module) -> bool:
    """Return whether a critic has dense layers alone."""
    if type(critic) is ActionCritic:
        return critic.encoder is None and not critic.batch_norm
    return type(critic) is DiscreteCritic and type(critic.torso) is MLP


def joined(learner: Any) -> Any:
    """Return a learner whose critics are an ensemble, from one with two of them."""
    return _changed(learner, _join, learner.params["critics"])


def separated(learner: Any) -> Any:
    """Return the learner that `joined` was given, after it has learned."""
    return _changed(learner, _separate, learner.params["critics"])


def _changed(learner: Any, change: Callable[[PyTree], PyTree], like: PyTree) -> Any:
    """Change the critics' parameters, targets and moments."""
    structure = jax.tree.structure(like)

    def is_like(part: Any) -> bool:
        return jax.tree.structure(part) == structure

    def of(parts: dict[str, PyTree]) -> dict[str, PyTree]:
        if "critics" not in parts:
            return parts
        new = jax.tree.map(
            lambda part: change(part) if is_like(part) else part,
            parts["critics"],
            is_leaf=is_like,
        )
        return {**parts, "critics": new}

    return type(learner)(*map(of, learner))


def _join(params: PyTree) -> PyTree:
    """Parameters of two critics as those of an ensemble.

    The modules of the first have names that end in `_0`, those of the second in `_1`.
    """
    layers = params["params"]
    return {
        "params": {
            name: jax.tree.map(lambda *each: jnp.stack(each), own, layers[_other(name)])
            for name, own in layers.items()
            if name.endswith("_0")
        }
    }


def _separate(params: PyTree) -> PyTree:
    """Parameters of an ensemble as those of two critics."""
    layers = params["params"]
    first = {name: jax.tree.map(lambda x: x[0], both) for name, both in layers.items()}
    second = {
        _other(name): jax.tree.map(lambda x: x[1], both)
        for name, both in layers.items()
    }
    return {"params": first | second}


def _other(name: str) -> str:
    """The second critic's name of a module, from that of the first."""
    return name.removesuffix("0") + "1"

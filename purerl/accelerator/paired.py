"""An actor and a critic of one shape as one network, for a program with few kernels.

On an accelerator small networks take the time of kernels that follow one another, and
two networks that see the same observations and have layers of one size have every
kernel twice. Here both are one: their first layers lie side by side, later ones are a
batch of two, and biases are a row of the kernels, by which a row of ones in the inputs
is multiplied. So a layer and its gradients are one product each, without a sum for the
bias. What is computed is the same, up to rounding.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from purerl.accelerator import columns
from purerl.learning import averages, optimiser
from purerl.learning.minibatches import Passes, descend, is_one_loop, step_means
from purerl.networks import observe
from purerl.networks.distributions import CategoricalHead, Gaussian
from purerl.networks.heads import CategoricalActor, Critic, GaussianActor
from purerl.networks.layers import ACTIVATIONS
from purerl.networks.torsos import MLP
from purerl.optimisers.first_order import is_known
from purerl.types import Array, Metrics, PyTree

# Rows of a layer are filled up to a multiple of this, for loads of 16 bytes.
_ALIGNED = 4
NAMES = ("actor", "critic")


@struct.dataclass
class Pair:
    """Parameters of an actor and a critic, layer by layer.

    Rows of a layer are its inputs, then the bias, then zeros, R in all. What is filled
    up with zeros has no gradient, so that it stays zero.

    Attributes:
        first: `[R, 2 H]` kernels of the first layers, that of the actor before that of
            the critic.
        later: `[2, R, H]` each, and the last one `[2, R, A]` with the actor's outputs;
            of the critic the first of these columns is the value.
        log_std: `[A]` log standard deviations of a Gaussian actor; None otherwise.
        activation: After each layer but the last, one of `ACTIVATIONS`.
    """

    first: Array
    later: tuple[Array, ...]
    log_std: Array | None
    activation: str = struct.field(pytree_node=False)

    def __call__(self, inputs: Array) -> tuple[Any, Array]:
        """Return what the head takes, and the values `[N]`.

        The head takes outputs `[N, A]`, or few logits as a list of columns `[N]`.

        Args:
            inputs: Observations with ones beside them, from `with_ones`, `[N, R]`, or
                without, `[N, I]`.
        """
        activate = ACTIVATIONS[self.activation]
        if inputs.shape[-1] < self.first.shape[0]:
            inputs = with_ones(inputs)
        both = activate(inputs @ self.first)
        x = both.reshape(*both.shape[:-1], 2, -1).swapaxes(0, 1)
        for layer in self.later[:-1]:
            x = activate(_product(with_ones(x), layer))
        last, x = self.later[-1], with_ones(x)
        if last.shape[-1] > columns.MOST:
            outputs, values = x @ last
            return self._for_head(outputs), values[:, 0]
        pairs = columns.product(x, last)
        outputs, value = [pair[0] for pair in pairs], pairs[0][1]
        if self.log_std is None:
            return outputs, value
        return self._for_head(jnp.stack(outputs, -1)), value

    def _for_head(self, outputs: Array) -> Any:
        if self.log_std is None:
            return outputs
        return Gaussian(outputs, jnp.broadcast_to(self.log_std, outputs.shape))


@jax.custom_vjp
def _product(x: Array, layer: Array) -> Array:
    """Multiply; the gradient of a layer has its rows and columns as the layer has.

    JAX's own is turned, and turned back by what moves the layer: for one agent XLA then
    has a copy of parameters and both moments in every gradient step.

    Args:
        x: `[2, N, R]` inputs.
        layer: `[2, R, H]` layers.
    """
    return x @ layer


def _product_forward(x: Array, layer: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ layer, (x, layer)


def _product_backward(saved: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    x, layer = saved
    return slope @ layer.swapaxes(-1, -2), x.swapaxes(-1, -2) @ slope


_product.defvjp(_product_forward, _product_backward)


def can_be_paired(actor: nn.Module, critic: nn.Module) -> bool:
    """Return whether `join` knows the layers of both, and they are of one shape.

    Args:
        actor: Network of logits, or of means and log standard deviations.
        critic: Network of values.
    """
    if type(actor) not in (CategoricalActor, GaussianActor):
        return False
    torsos: list[Any] = [getattr(each, "torso", None) for each in (actor, critic)]
    if type(critic) is not Critic or any(type(torso) is not MLP for torso in torsos):
        return False
    sizes, activation, ndim = (
        getattr(torsos[0], name) for name in ("hidden_sizes", "activation", "obs_ndim")
    )
    plain = MLP(sizes, activation, ndim, gain=torsos[0].gain)
    return bool(sizes) and all(torso == plain for torso in torsos)


def join(actor: Any, params: dict[str, PyTree]) -> Pair:
    """Return the parameters of both networks as one.

    Args:
        actor: The actor, of which `can_be_paired` is true.
        params: Parameters of `actor` and `critic`.
    """
    own, other = (params[name]["params"] for name in NAMES)
    names = [f"Dense_{number}" for number, _ in enumerate(actor.torso.hidden_sizes)]
    layers = [[_rows(each["torso"][name]) for each in (own, other)] for name in names]
    outputs, value = _rows(own["Dense_0"]), _rows(other["Dense_0"])
    values = jnp.pad(value, ((0, 0), (0, outputs.shape[1] - 1)))
    return Pair(
        first=jnp.concatenate(layers[0], 1),
        later=tuple(jnp.stack(each) for each in [*layers[1:], [outputs, values]]),
        log_std=own.get("log_std"),
        activation=actor.torso.activation,
    )


def split(pair: Pair, like: dict[str, PyTree]) -> dict[str, PyTree]:
    """Return the parameters that `join` was given, from what it returned.

    Args:
        pair: Parameters of both networks as one.
        like: Parameters of `actor` and `critic`, whose shapes are taken.
    """
    firsts = jnp.split(pair.first, 2, 1)
    found: dict[str, PyTree] = {}
    for index, name in enumerate(NAMES):
        shapes = like[name]["params"]
        layers = [firsts[index], *(layer[index] for layer in pair.later)]
        torso = {
            f"Dense_{number}": _layer(rows, shapes["torso"][f"Dense_{number}"])
            for number, rows in enumerate(layers[:-1])
        }
        found[name] = {"torso": torso, "Dense_0": _layer(layers[-1], shapes["Dense_0"])}
    if pair.log_std is not None:
        found["actor"]["log_std"] = pair.log_std
    return {name: {"params": layers} for name, layers in found.items()}


def with_ones(x: Array) -> Array:
    """Return inputs `[..., I]` with a one for the bias, and zeros, `[..., R]`."""
    more = np.eye(1, _more_rows(x.shape[-1]), dtype=np.float32)[0]
    return jnp.concatenate([x, jnp.broadcast_to(more, (*x.shape[:-1], more.size))], -1)


def _more_rows(inputs: int) -> int:
    """Rows of a layer beside those of its inputs: the bias, and zeros."""
    return 1 + -(inputs + 1) % _ALIGNED


def _rows(layer: dict[str, Array]) -> Array:
    """A layer as rows `[R, O]`."""
    kernel, bias = layer["kernel"], layer["bias"]
    zeros = _more_rows(kernel.shape[0]) - 1
    return jnp.pad(jnp.concatenate([kernel, bias[None]]), ((0, zeros), (0, 0)))


def _layer(rows: Array, like: dict[str, Array]) -> dict[str, Array]:
    """Rows as the layer that they were made of."""
    inputs, outputs = like["kernel"].shape
    return {"kernel": rows[:inputs, :outputs], "bias": rows[inputs, :outputs]}


Loss = Callable[..., tuple[Array, Metrics]]


def minimise_in_few_kernels(
    agent: Any,
    loss: Loss,
    params: PyTree,
    opt_state: PyTree,
    batch: Any,
    key: Array,
    passes: Passes,
) -> tuple[PyTree, PyTree, Metrics]:
    """Do what `minimise` does, for PPO without a memory.

    Advantages are standardised for all minibatches of a pass at once, an actor and a
    critic of one shape are one network, and metrics are averaged after the last step.

    Args:
        agent: Networks, environments and config.
        loss: `(agent, params, minibatch, by_sample) -> (scalar, metrics)`.
        params: Parameters of `actor` and `critic`.
        opt_state: State of `passes.optim`.
        batch: `[N, ...]` samples of the rollout.
        key: Random key, consumed.
        passes: Passes of gradient steps through the batch.
    """
    config, form = agent.config, None
    if config.normalize_advantages and not config.normalize_whole_batch:
        # The loss gets advantages that are standardised already.
        agent = agent._replace(config=config.replace(normalize_whole_batch=True))
        passes = passes._replace(prepare=partial(_standardise, agent.axis_name))
    if _is_paired(agent):
        join_both = partial(join, agent.actor)
        form = optimiser.Form(join_both, lambda pair: split(pair, params))
        obs = batch.obs.reshape(batch.obs.shape[0], -1)
        # Of truth values one minibatch at a time becomes floats, with ones.
        obs = obs if observe.are_truth_values(obs) else with_ones(obs)
        agent = agent._replace(forward=partial(forward, agent.head))
        batch = batch._replace(obs=obs)
    by_sample = agent.axis_name is None and is_one_loop(batch, passes)
    loss = partial(loss, agent, by_sample=by_sample)
    moved, opt_state, seen, leave = optimiser.enter(params, opt_state, form)
    moved, opt_state, metrics = descend(
        loss, seen, moved, opt_state, batch, key, passes
    )
    params, opt_state = leave(moved, opt_state)
    return params, opt_state, step_means(metrics) if by_sample else metrics


def forward(head: Any, params: Pair, seen: Array) -> tuple[Any, Array, None]:
    """Return what a head takes, and values `[N]`; see `policy_gradient.outputs`.

    Args:
        head: Distribution of the actions.
        params: Actor and critic as one.
        seen: Observations as `Pair` takes them.
    """
    found, value = params(seen)
    if isinstance(found, list) and not isinstance(head, CategoricalHead):
        found = jnp.stack(found, -1)
    return found, value, None


def _standardise(axis_name: str | None, batch: Any) -> Any:
    advantage = averages.standardise(batch.advantage, axis_name)
    return batch._replace(advantage=advantage)


def _is_paired(agent: Any) -> bool:
    """Whether actor and critic learn as one network."""
    config = agent.config
    return (
        agent.on_features is None
        and not config.frozen
        and config.critic_learning_rate is None
        and is_known(config.optimiser)
        and can_be_paired(agent.actor, agent.critic)
    )

"""One agent over several devices: environments are split, gradients averaged."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from purerl.config import ConfigError, TrainConfig
from purerl.precision import in_32_bits
from purerl.scale.devices import chosen_devices
from purerl.train import Train, bind, check_key, make_train
from purerl.types import Array, Overrides, PyTree, TrainResult

AXIS = "devices"


@in_32_bits
def data_parallel(config: TrainConfig, devices: Sequence[Any] | None = None) -> Train:
    """Make `train` for one agent whose environments are spread over devices.

    Every device steps `num_envs / D` environments and sees their samples only;
    gradients, advantage statistics and normaliser statistics are averages over all. An
    environment draws the same random numbers as on one device. With one minibatch the
    run is the single-device one up to rounding; with more, a minibatch takes an equal
    part of every device's samples.

    With replay every device keeps the steps of its environments, and draws an equal
    part of every batch from them, by priority among its own where they have priorities.
    So the warm-up is the single-device one, and its batches are others: two runs of the
    same algorithm, but not the same run.

    Args:
        config: Config as for `make_train`; `num_envs` counts all devices' environments.
        devices: Devices, at least one; all local ones where not given. On a CPU call
            `purerl.use_all_cores()` first.

    Returns:
        `train(key, overrides=None) -> TrainResult`, to be jitted; its state is that of
        an agent on one device, which `jax.device_put(state, device)` brings there.

    Raises:
        ConfigError: `num_envs`, the minibatch size or the batch size is not divisible
            by D, or `devices` holds something that is no device.
    """
    devices = chosen_devices(devices)
    check_split(bind(config).config, len(devices))
    whole, part = (make_train(config, axis_name=axis) for axis in (None, AXIS))
    spread_train = spread(whole, part, devices)

    @in_32_bits
    def train(key: Array, overrides: Overrides | None = None) -> TrainResult:
        check_key(key)
        return spread_train(key, overrides)

    return train


def spread(
    whole: Callable[..., PyTree],
    part: Callable[..., PyTree],
    devices: Sequence[Any],
    part_args: tuple[PyTree, ...] | None = None,
) -> Callable[..., PyTree]:
    """Run `part` on every device, as the pieces of what `whole` computes on one.

    Args:
        whole: The function for one device.
        part: The function with collectives over the axis `devices`.
        devices: Devices of the mesh.
        part_args: Shapes of `part`'s arguments on one device, where they differ from
            `whole`'s (a state whose environments are spread).
    """
    mesh = Mesh(np.asarray(devices), (AXIS,))

    def run(*args: PyTree) -> PyTree:
        local = args if part_args is None else part_args
        out_specs = split_specs(
            jax.eval_shape(whole, *args),
            part_shapes(part, local, len(devices)),
            len(devices),
        )
        sharded = jax.shard_map(
            part,
            mesh=mesh,
            in_specs=split_specs(args, local, len(devices)),
            out_specs=out_specs,
            check_vma=False,
        )
        return sharded(*args)

    return run


def part_shapes(
    part: Callable[..., PyTree], args: tuple[PyTree, ...], num_devices: int
) -> PyTree:
    """Return the shapes of what `part` returns on one of the devices.

    Args:
        part: Program of one device, which may use collectives.
        args: Arguments of `part`, arrays or shapes.
    """

    def of_device(_: Array, args: tuple[PyTree, ...]) -> PyTree:
        return part(*args)

    over_devices = jax.vmap(of_device, in_axes=(0, None), axis_name=AXIS)
    stacked = jax.eval_shape(over_devices, np.arange(num_devices), args)
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), stacked)


def split_specs(whole: PyTree, part: PyTree, num_devices: int) -> PyTree:
    """Find how arrays are spread: along the axis of which a part has a share.

    That axis is how an algorithm declares what differs between devices. An array
    without one must be the same on all of them, and nothing checks its values.

    Args:
        whole: Arrays or shapes of one device's program.
        part: Arrays or shapes of one of several devices' programs.

    Raises:
        ConfigError: the two are no whole and its D-th part, naming the array.
    """

    def spec(path: Any, all_: Any, share: Any) -> PartitionSpec:
        whole, local = np.shape(all_), np.shape(share)
        if whole == local:
            return PartitionSpec()
        for axis, size in enumerate(local):
            if whole == (*local[:axis], num_devices * size, *local[axis + 1 :]):
                return PartitionSpec(*[None] * axis, AXIS)
        raise ConfigError(
            f"{jax.tree_util.keystr(path)} cannot be spread over {num_devices} "
            f"devices: it has the shape {whole} on one device and {local} on each of "
            "these, where one axis may differ, that of the environments."
        )

    if jax.tree.structure(whole) != jax.tree.structure(part):
        raise ConfigError(
            f"this algorithm cannot be spread over {num_devices} devices: its state "
            "must have the same structure for any num_envs."
        )
    return jax.tree_util.tree_map_with_path(spec, whole, part)


def check_split(config: Any, num_devices: int) -> None:
    """Refuse environments or minibatches that do not divide over the devices.

    Raises:
        ConfigError: naming the numbers.
    """
    shared = {
        "num_envs": getattr(config, "num_envs", num_devices),
        "batch_size": getattr(config, "batch_size", num_devices),
        # With a memory a batch has whole sequences.
        "batch_size / sequence_length": getattr(config, "items_per_batch", num_devices),
    }
    for name, size in shared.items():
        if size % num_devices:
            raise ConfigError(
                f"{name} must be divisible by the {num_devices} devices, got {size}."
            )
    # Minibatches are drawn from all steps, or from sequences of some.
    samples = getattr(config, "samples_per_update", config.steps_per_update)
    local, minibatches = samples // num_devices, getattr(config, "num_minibatches", 1)
    if local % minibatches:
        raise ConfigError(
            f"the samples of a device ({local}) must be divisible by num_minibatches, "
            f"got {minibatches}."
        )

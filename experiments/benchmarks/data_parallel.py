"""One agent over all cores against one core: PPO on HalfCheetah (brax, spring).

    python experiments/benchmarks/data_parallel.py [--rounds 5]

Physics is what it costs, so splitting the environments over two devices should nearly
double the rate. What is lost is told apart by two programs more: an agent with a
device's share of the environments on one device, whose steps are narrower, and as many
such agents as there are devices, side by side. These exchange nothing, so their rate is
a bound of `data_parallel`'s; what it lacks of the devices' number is the machine's. An
agent of a share makes the whole number of gradient steps, each of a share of the
samples, as each device does. Rounds take turns; compilation is apart; medians are
compared.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from bench import alternate, calls, options, print_table, rates, spread
from jax.sharding import Mesh, PartitionSpec

import purerl


def make_programs(steps: int) -> dict[str, tuple[Callable[..., Any], Any, int]]:
    """Return what is measured: a function, its argument and its environment steps.

    Args:
        steps: Environment steps of the whole agent.
    """
    devices = purerl.use_all_cores()
    whole = purerl.presets.load("ppo-halfcheetah").replace(
        total_timesteps=steps, num_evaluations=0
    )
    part = whole.replace(
        total_timesteps=steps // devices, num_envs=whole.num_envs // devices
    )
    key = jax.random.key(0)
    keys = jax.random.split(key, devices)
    options = purerl.compiler_options()
    one, share = (
        jax.jit(purerl.make_train(config), compiler_options=options)
        for config in (whole, part)
    )
    spread = jax.jit(purerl.data_parallel(whole), compiler_options=options)
    return {
        "one device": (one, key, steps),
        f"data_parallel, {devices} devices": (spread, key, steps),
        "a share of the environments, one device": (share, key, steps // devices),
        f"{devices} agents of a share, a device each": (
            jax.jit(side_by_side(part, devices), compiler_options=options),
            keys,
            steps,
        ),
    }


def side_by_side(config: Any, devices: int) -> Callable[[jax.Array], Any]:
    """Return a function that trains an agent on each device, as `jax.pmap` does.

    Unlike `jax.pmap` it can be compiled with options.

    Args:
        config: Config of an agent.
        devices: Number of devices, and of the keys that the function takes.
    """
    train = purerl.make_train(config)
    place = PartitionSpec("agents")

    def of_a_device(keys: jax.Array) -> Any:
        return jax.tree.map(lambda x: x[None], train(keys[0]))

    return jax.shard_map(
        of_a_device,
        mesh=Mesh(np.asarray(jax.devices()[:devices]), ("agents",)),
        in_specs=place,
        out_specs=place,
        check_vma=False,
    )


def main() -> None:
    """Measure all programs in turns; print their rates and the ratios to the first."""
    asked = options(__doc__, rounds=5, steps=40_960)
    programs = make_programs(asked.steps)
    measures = {
        name: calls(lambda function=function, argument=argument: function(argument))
        for name, (function, argument, _) in programs.items()
    }
    for name, measure in measures.items():
        print(f"{name}: first call {measure(0).seconds:.1f} s", flush=True)
    runs = alternate(measures, asked.rounds)
    found = {n: spread(rates(runs[n], steps)) for n, (*_, steps) in programs.items()}
    base, rows = found["one device"].median, []
    for name, (middle, low, high) in found.items():
        between = f"{low:,.0f} to {high:,.0f}"
        rows.append([name, f"{middle:,.0f}", between, f"{middle / base:.2f}"])
    print_table("program | steps/s | range | ratio to one device", rows)


if __name__ == "__main__":
    main()

"""The number of kernels that a GPU would run for purerl and its peers, on any machine.

    experiments/benchmarks/setup_gpu_program.sh
    .venv-gpu-program/bin/python experiments/benchmarks/gpu_program.py [ROW ...]

`--list` names every kernel. `--peers .venv-gpu-peers` adds rejax, and with `--purejaxrl
FILE`, the path of its ppo.py, PureJaxRL, with its other files where they lie beside it.

Every row is a preset, or a part of `gpu_day.py`, and a number of agents that `jax.vmap`
trains side by side, without evaluations, compiled for an H200 that is not there
(`gpu_kernels.py`). Where a row's own number is one, that agent is alone, without
`jax.vmap`. Nothing runs, so the figures have no noise; seconds are those of this
machine.
"""

import gpu_kernels  # isort: skip  # Before anything computes with jax.

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import bench
import gpu_day
import gpu_parts
import jax
from gpu_kernels import numbers
from same_numbers import for_purejaxrl, for_rejax

import purerl
from purerl import presets
from purerl.accelerator.kernels import traced_for
from purerl.contrib.hardware.estimate import work_of

# Preset, or part of `gpu_day.py` -> agents.
ROWS = {
    "ppo-cartpole": 1024,
    "vpg-cartpole": 1024,
    "pqn-cartpole": 1024,
    "dqn-cartpole": 64,
    "recurrent-ppo-cartpole": 64,
    "td3-pendulum": 64,
    "sac-pendulum": 64,
    "mpo-pendulum": 64,
    "ppo-minatar": 64,
    "ppo-halfcheetah": 1,
    "ppo-brax": 1,
    **{name: agents for name, (_, agents, *_) in gpu_day.PRESETS.items()},
}
# Both peers' PPO has the numbers of these rows.
SAME_ROWS = ("ppo-minatar", "ppo-brax", *gpu_day.PRESETS)
# PureJaxRL's and rejax's own settings, so that the three programs do the same work.
SAME = {"num_envs": 4, "num_steps": 128, "total_timesteps": 500_000}


def config_of(name: str) -> Any:
    """Return the config of a row."""
    if name in gpu_day.PRESETS:
        *_, preset, changes = gpu_day.PRESETS[name]
        return gpu_parts.config_of(preset, changes)
    changes = SAME if name == "ppo-cartpole" else {}
    return presets.load(name).replace(num_evaluations=0, **changes)


def count(
    name: str, agents: int, is_packed: bool = True
) -> tuple[gpu_kernels.Program, float]:
    """Compile a row; return also the kernels that `purerl plan --device` sees.

    Args:
        name: The row.
        agents: Agents that are trained side by side; with 0 one without `jax.vmap`.
        is_packed: Whether loops write the outputs of a step at once, as they do on a
            GPU (`purerl.accelerator.kernels`).
    """
    config = config_of(name)
    with traced_for("cuda" if is_packed else "cpu"):
        train = purerl.make_train(config)
        train, keys = gpu_kernels.side_by_side(train, jax.random.key, agents)
        program = gpu_kernels.compile_for_gpu(train, keys)
        return program, work_of(jax.make_jaxpr(train)(keys).jaxpr).kernels


def count_devices(number: int) -> dict[str, dict[str, Any]]:
    """Count what devices wait for one another: of one agent, and of a population.

    An agent's environments are spread by `purerl.data_parallel`. Of a population every
    device trains a block by a program of its own (`purerl.pmap`), which is compiled
    here for one device.

    Args:
        number: Number of devices.

    Returns:
        Kernels and collective operations of one device's program, by name.
    """
    over = gpu_kernels.devices(number)
    config = presets.load("ppo-cartpole").replace(
        num_evaluations=0, num_envs=64 * number, num_steps=128, total_timesteps=10**7
    )
    key = jax.eval_shape(lambda: jax.random.key(0))
    with traced_for("cuda"):
        train = purerl.data_parallel(config, over)
        spread = gpu_kernels.compile_for_gpu(train, key, over=over)
    program, _ = count("ppo-cartpole", ROWS["ppo-cartpole"])
    envs = f"PPO, {config.num_envs} environments of one agent over {number} devices"
    blocks = f"{ROWS['ppo-cartpole'] * number:,} agents over {number} devices"
    return {envs: numbers(spread), f"PPO, {blocks}": numbers(program)}


def mapped_agents(name: str, agents: int) -> int:
    """Return the agents for `jax.vmap`: 0 where one is the row's own number."""
    return 0 if agents == ROWS[name] == 1 else agents


def cells(name: str, agents: int, found: dict[str, Any]) -> list[Any]:
    """Return a row of the table."""
    share = ""
    if "from_shapes" in found:
        share = f"{found['from_shapes'] / found['kernels']:.2f}"
    return [
        name,
        f"{agents:,}",
        f"{found['kernels']:,}",
        *(f"{found[each] / 2**20:,.0f}" for each in ("results", "temporaries")),
        *(found[each] for each in ("trace_seconds", "compile_seconds")),
        share,
    ]


def label_of(name: str, agents: int) -> str:
    """Return what is behind the name of a row in the file: other numbers of agents."""
    is_own = agents == ROWS[name]
    return "" if is_own else f", {agents:,} agent{'s' * (agents != 1)}"


def peers_of(asked: bench.Asked) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return what is counted of peers: the row beside it, and what `gpu_peer` is asked.

    Args:
        asked: Options of the command line; of the rows asked for, or of all.
    """
    path, rows = asked.purejaxrl, asked.rows or ROWS
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for row in ("ppo-cartpole", *SAME_ROWS):
        config: Any = purerl.resolve(config_of(row))
        ending = "" if row == "ppo-cartpole" else f", {row}"
        found[f"rejax{ending}"] = row, {"ppo": for_rejax(config)}
        if path:
            request = {"purejaxrl": for_purejaxrl(config, path)}
            found[f"PureJaxRL{ending}"] = row, request
    if path and (rnn := path.with_name("ppo_rnn.py")).exists():
        request = {"purejaxrl": {"path": str(rnn)}}
        found["PureJaxRL, recurrent PPO"] = "recurrent-ppo-cartpole", request
    for preset in ("pqn-cartpole", "dqn-cartpole", "td3-pendulum", "sac-pendulum"):
        name = preset.split("-")[0]
        found[f"rejax, {name.upper()}"] = preset, {name: {}}
    return {name: x for name, x in found.items() if asked.peers and x[0] in rows}


def main() -> None:
    """Count what was asked for; print the table, and write it as JSON."""
    asked = bench.options(
        __doc__,
        rows=bench.Words(ROWS),
        agents=(int, "in place of the row's own number"),
        unpacked=(False, "every output with a write of its own"),
        devices=(int, "also count over so many devices"),
        list=(False, "name every kernel"),
        peers=(Path, "environment with rejax"),
        purejaxrl=(Path, "PureJaxRL's ppo.py"),
        out=(Path, "JSON file to write"),
    )
    found: dict[str, dict[str, Any]] = {}

    def add(label: str, kept: dict[str, Any]) -> None:
        """Keep a row beside those that the file has from before."""
        found[label] = kept
        if asked.out:
            row = {label: {**kept, "jax": version("jax")}}
            bench.write(asked.out, bench.read(asked.out) | row)

    print(f"jax {version('jax')}, compiled for an H200 that is not here\n")
    bench.print_table(
        "program | agents | kernels in all | results, MiB | temporaries, MiB "
        "| trace, s | compile, s | from shapes, share of these"
    )
    for name in asked.rows or ROWS:
        agents = asked.agents or ROWS[name]
        beside = mapped_agents(name, agents)
        program, from_shapes = count(name, beside, not asked.unpacked)
        kept = {"agents": agents, **numbers(program), "from_shapes": from_shapes}
        add(name + label_of(name, agents), kept)
        bench.print_row(*cells(name, agents, kept))
        if asked.list:
            print("\n".join(gpu_kernels.lines(program.loop, is_listed=True)))
    for name, (row, request) in peers_of(asked).items():
        agents, python = asked.agents or ROWS[row], asked.peers / "bin" / "python"
        words = mapped_agents(row, agents), json.dumps(request)
        own = bench.child(bench.HERE / "gpu_peer.py", *words, python=python)
        add(name + label_of(row, agents), {"agents": agents, **own})
        bench.print_row(*cells(name, agents, {"agents": agents, **own}))
    if asked.devices:
        print()
        bench.print_table("program of one device | kernels | collectives")
        for name, each in count_devices(asked.devices).items():
            add(name, each)
            bench.print_row(name, f"{each['kernels']:,}", f"{each['collectives']:,}")
    for name, each in found.items():
        print(f"\n{name}\n" + "\n".join(each["loops"]))


if __name__ == "__main__":
    main()
